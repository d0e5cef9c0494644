# SPDX-License-Identifier: BSD-3-Clause
"""A laboratory for the real daemons: namespaces, a node, its clients. Used by the demo and by tests/cluster.

Owns what it makes through the ExitStack it is given: processes, namespaces and folders are removed on
every way out, signals included (see main).
"""
import collections
import contextlib
import ctypes
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

NODE_IP, CLIENT_IP, PORT = "198.51.100.1", "198.51.100.2", 7400
NODE_VETH, CLIENT_VETH = "tc0", "tc1"
PROGRAMS = ("app/tagcastd/tagcastd", "app/tagcast-metad/tagcast-metad", "app/tagcastctl/tagcastctl",
            "tests/demo/demo_gateway", "tests/demo/demo_publisher")
CLONE_NEWNET = 0x40000000
STARTED = time.monotonic()


class Failure(Exception):
    """The run cannot go on, or a check failed; the text says why."""


def say(text):
    print("[%6.1f s] %s" % (time.monotonic() - STARTED, text), flush=True)


def wait_until(what, condition, seconds, every=0.05):
    """Until `condition()` is true. Returns: what it returned."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise Failure("not within %g s: %s" % (seconds, what))
        time.sleep(every)


# --- things that must be undone ----------------------------------------------------------------------

def run(*command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=60, check=False, **more)
    if done.returncode != 0:
        raise Failure("%s: %s" % (" ".join(command), done.stdout.strip()))
    return done.stdout


def end_process(process, seconds):
    """Ends a process of ours: asked first, then not."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class Network:
    """Two namespaces with a veth pair between them: `node` has no address in the kernel."""

    def __init__(self, stack, name):
        self.node, self.clients = name + "n", name + "c"
        self.veth = NODE_VETH
        for namespace in (self.node, self.clients):
            stack.callback(self.remove, namespace)
            run("ip", "netns", "add", namespace)
            run("ip", "netns", "exec", namespace, "sysctl", "-qw",
                "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
            run("ip", "-n", namespace, "link", "set", "lo", "up")
        run("ip", "-n", self.node, "link", "add", self.veth, "numtxqueues", "1", "numrxqueues", "1",
            "type", "veth", "peer", "name", CLIENT_VETH, "netns", self.clients)
        run("ip", "-n", self.clients, "address", "add", CLIENT_IP + "/24", "dev", CLIENT_VETH)
        # The kernel leaves UDP checksums on a veth unfinished, and the node checks them.
        run("ip", "netns", "exec", self.clients, "ethtool", "-K", CLIENT_VETH, "tx", "off", "gro", "off")
        run("ip", "-n", self.node, "link", "set", self.veth, "up")
        run("ip", "-n", self.clients, "link", "set", CLIENT_VETH, "up")

    @staticmethod
    def remove(namespace):
        # Whatever still runs in there was started by this run.
        pids = subprocess.run(["ip", "netns", "pids", namespace], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.DEVNULL, check=False).stdout.split()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", namespace], stderr=subprocess.DEVNULL, check=False)

    @contextlib.contextmanager
    def inside_clients(self):
        """Sockets that this thread makes meanwhile belong to the clients' namespace."""
        libc = ctypes.CDLL(None, use_errno=True)

        def enter(path):
            with open(path, "rb") as namespace:
                if libc.setns(namespace.fileno(), CLONE_NEWNET) != 0:
                    raise Failure("%s: %s" % (path, os.strerror(ctypes.get_errno())))
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        try:
            enter("/run/netns/" + self.clients)
            yield
        finally:
            enter("/proc/self/fd/%d" % home)
            os.close(home)


class Program:
    """A client of the node: commands in, answer lines out."""

    def __init__(self, stack, name, command, log, environment):
        self.name = name
        self.lines = collections.deque()
        self.news = threading.Condition()
        self.ended = False
        self.on_line = None
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=log, text=True, bufsize=1, env=environment)
        stack.callback(end_process, self.process, 5)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            line = line.rstrip("\n")
            if self.on_line is not None and self.on_line(line):
                continue
            with self.news:
                self.lines.append(line)
                self.news.notify_all()
        with self.news:
            self.ended = True
            self.news.notify_all()

    def send(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError) as problem:
            raise Failure("%s ended" % self.name) from problem

    def expect(self, word, seconds):
        """The rest of the next answer that starts with `word`."""
        deadline = time.monotonic() + seconds
        with self.news:
            while True:
                while self.lines:
                    line = self.lines.popleft()
                    if line.startswith("error"):
                        raise Failure("%s: %s" % (self.name, line))
                    if line.split(" ", 1)[0] == word:
                        return line[len(word):].strip()
                if self.ended:
                    raise Failure("%s ended" % self.name)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Failure("%s: no \"%s\" within %d s" % (self.name, word, seconds))
                self.news.wait(left)

    def ask(self, line, word, seconds=30):
        self.send(line)
        return self.expect(word, seconds)

    def stats(self):
        pairs = self.ask("stats", "stats").split()
        return {k: int(v) for k, v in (p.split("=") for p in pairs)}

    def kill(self):
        """SIGKILL, and everything it still said is read."""
        self.process.kill()
        self.process.wait()
        self.reader.join()


# --- the node ----------------------------------------------------------------------------------------

class Unreachable(Exception):
    """The connection to a control socket is not there, or ended before the answer."""


class Control:
    """A connection to a control socket: one JSON object a line, one answer a line."""

    def __init__(self, path, seconds=30):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(seconds)
        self.rest = b""
        try:
            self.socket.connect(path)
        except OSError as problem:
            self.socket.close()
            raise Unreachable("%s: %s" % (path, problem)) from problem

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def call(self, cmd, **arguments):
        """Returns: the answer. Raises Unreachable when none came."""
        self.send(cmd, **arguments)
        return self.receive(cmd)

    def send(self, cmd, **arguments):
        try:
            self.socket.sendall(json.dumps({"cmd": cmd, **arguments}).encode() + b"\n")
        except OSError as problem:
            raise Unreachable("%s: %s" % (cmd, problem)) from problem

    def receive(self, cmd):
        try:
            while b"\n" not in self.rest:
                more = self.socket.recv(1 << 20)
                if not more:
                    raise Unreachable("%s: closed before the answer" % cmd)
                self.rest += more
        except OSError as problem:
            raise Unreachable("%s: %s" % (cmd, problem)) from problem
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)


class Node:
    """tagcastd in its namespace; it starts tagcast-metad itself.

    `options` changes or adds to the configuration: {"section": {"key": value}}. `meta_program` is the
    program started as tagcast-metad, None for the built one.
    """

    def __init__(self, stack, build, directory, network, name, options=None, environment=None,
                 meta_program=None):
        self.stack, self.build, self.network = stack, build, network
        self.ctl_program = os.path.join(build, "app/tagcastctl/tagcastctl")
        self.run_dir = os.path.join(directory, "run")
        self.key_path = os.path.join(directory, "key")
        self.log_path = os.path.join(directory, "tagcastd.log")
        self.config = os.path.join(directory, "node.yaml")
        self.environment = dict(os.environ)
        self.environment.pop("TAGCAST_FAULT", None)
        self.environment.update(environment or {})
        self.process = None
        for sub in ("run", "data"):
            os.mkdir(os.path.join(directory, sub), 0o700)
        self.key = secrets.token_bytes(32)
        with open(os.open(self.key_path, os.O_CREAT | os.O_WRONLY, 0o600), "w",
                  encoding="ascii") as key:
            key.write(self.key.hex() + "\n")
        metad = meta_program or os.path.join(build, "app/tagcast-metad/tagcast-metad")
        self.write_config(directory, name, metad, options or {})
        # DPDK leaves its runtime folder, and after kill -9 what is in it.
        stack.callback(shutil.rmtree, os.path.join("/var/run/dpdk", name), True)

    def write_config(self, directory, name, metad, options):
        sections = {
            "node": {"id": 1, "cluster_id": 1, "run_dir": directory + "/run",
                     "data_dir": directory + "/data"},
            "eal": {"hugepages": "false", "memory": "192MiB", "file_prefix": name},
            "port": {"device": "net_af_packet0,iface=%s,blocksz=65536,framesz=2048,framecnt=4096,"
                               "qdisc_bypass=1" % self.network.veth,
                     "address": NODE_IP + "/24", "udp_base": PORT, "buffers": 24576},
            "auth": {"mode": "on", "keys": "[{id: 1, file: %s}]" % self.key_path},
            "meta": {"program": metad},
            "limits": {"channels": 65536, "uids": 400000, "tag_memory": "256MiB"},
        }
        for section, keys in options.items():
            sections.setdefault(section, {}).update(keys)
        with open(self.config, "w", encoding="utf-8") as out:
            for section, keys in sections.items():
                out.write("%s:\n" % section)
                out.writelines("  %s: %s\n" % item for item in keys.items())

    def start(self):
        with open(self.log_path, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["ip", "netns", "exec", self.network.node,
                 os.path.join(self.build, "app/tagcastd/tagcastd"), "-c", self.config],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment)
        self.stack.callback(end_process, self.process, 20)

    def kill(self):
        """SIGKILL; the meta process ends with it."""
        self.process.kill()
        self.process.wait()

    def ctl(self, *arguments, seconds=60):
        """Runs tagcastctl. Returns: (exit code, output)."""
        done = subprocess.run([self.ctl_program, "--run-dir", self.run_dir, *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=seconds, check=False)
        return done.returncode, done.stdout.strip()

    def ask(self, *arguments):
        """An answer of tagcastctl --json that must be good."""
        code, answer = self.ctl("--json", *arguments)
        if code != 0:
            self.check_alive()
            raise Failure("tagcastctl %s: %d, %s" % (" ".join(arguments), code, answer))
        return json.loads(answer.splitlines()[-1])

    def status(self):
        return self.ask("status")["fields"]

    def busy(self):
        """Messages and pushes that have not ended."""
        status = self.status()
        return sum(status[name] for name in
                   ("messages_open", "messages_parked", "pushes_inflight", "pushes_backlog"))

    def drops(self):
        """All counters that are not 0."""
        return collections.Counter({row[0]: row[1] for row in self.ask("show", "drops")["rows"]})

    def meta(self, seconds=30):
        return Control(os.path.join(self.run_dir, "meta.sock"), seconds)

    def log_tail(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as log:
            return log.read()[-2000:]

    def check_alive(self):
        if self.process.poll() is not None:
            raise Failure("tagcastd ended with %d:\n%s" % (self.process.returncode, self.log_tail()))

    def bootstrap(self, seconds=30):
        """The node becomes a group of its own, as an operator makes it once in its life."""
        def reached():
            self.check_alive()
            code, answer = self.ctl("--json", "--timeout", "2000", "meta", "status")
            return code == 0 and json.loads(answer.splitlines()[-1])["fields"]
        fields = wait_until("the meta process answers", reached, seconds)
        if fields["state"] != "waiting":
            raise Failure("a new node's meta process is %s, not waiting" % fields["state"])
        self.ask("meta", "bootstrap")

    def wait_ready(self, seconds):
        answer = ""

        def ready():
            nonlocal answer
            self.check_alive()
            code, answer = self.ctl("--json", "--timeout", "2000", "status")
            return code == 0 and json.loads(answer.splitlines()[-1])["fields"]["state"] == "ready"
        try:
            wait_until("the node is ready", ready, seconds)
        except Failure as problem:
            raise Failure("%s: %s\n%s" % (problem, answer, self.log_tail())) from None


class Lab:
    """A folder, a network and a node that is not started yet; clients on demand."""

    def __init__(self, stack, build, prefix, **node):
        self.stack, self.build = stack, build
        self.name = "%s%d" % (prefix, os.getpid())
        self.dir = tempfile.mkdtemp(prefix="tagcast-%s-" % prefix)
        stack.callback(shutil.rmtree, self.dir, True)
        self.network = Network(stack, self.name)
        self.node = Node(stack, build, self.dir, self.network, self.name, **node)

    def client(self, name, program, client_id, environment=None):
        """Starts demo_gateway or demo_publisher; its deliveries go to NAME.log."""
        full = dict(os.environ)
        full.pop("TAGCAST_FAULT", None)
        full.update(environment or {})
        stderr = self.stack.enter_context(
            open(os.path.join(self.dir, name + ".err"), "a", encoding="utf-8"))
        return Program(self.stack, name, [
            "ip", "netns", "exec", self.network.clients,
            os.path.join(self.build, "tests/demo", program), NODE_IP, str(PORT), str(client_id),
            self.delivery_log(name), self.node.key_path, "1"], stderr, full)

    def delivery_log(self, name):
        return os.path.join(self.dir, name + ".log")

    def open_sessions(self, program, uids):
        """Asks for a session of each UID; the program answers "opened" when the node knows all."""
        path = os.path.join(self.dir, program.name + ".uids")
        with open(path, "w", encoding="utf-8") as out:
            out.writelines(uid + "\n" for uid in uids)
        program.send("open " + path)


# --- a run -------------------------------------------------------------------------------------------

def on_signal(number, _frame):
    for again in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(again, signal.SIG_IGN)
    raise SystemExit(128 + number)


def catch_signals():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)


def check(build, *more_tools):
    if os.geteuid() != 0:
        raise Failure("needs root: it makes network namespaces")
    for tool in ("ip", "ethtool", "sysctl", *more_tools):
        if shutil.which(tool) is None:
            raise Failure("%s is missing" % tool)
    for program in PROGRAMS:
        if not os.access(os.path.join(build, program), os.X_OK):
            raise Failure("%s/%s is not built" % (build, program))


def main(name, work):
    """Runs work(stack); a Failure is printed. Returns: an exit code, 0 when all was right."""
    catch_signals()
    with contextlib.ExitStack() as stack:
        try:
            work(stack)
        except (Failure, Unreachable, OSError, subprocess.TimeoutExpired) as problem:
            print("%s: %s" % (name, problem), file=sys.stderr, flush=True)
            return 1
    say("%s: all right" % name)
    return 0
