# SPDX-License-Identifier: BSD-3-Clause
"""A laboratory for meta processes: N of them, each in a network namespace of its own behind one bridge.

Owns what it makes through the ExitStack it is given: processes, namespaces, mounts and folders are gone on
every way out. Disks of a size are tmpfs, mounted in this process' own mount namespace (private_mounts), so
that even SIGKILL leaves none. Runs in the test's threads; processes are started by its main thread only.
"""
import argparse
import contextlib
import ctypes
import os
import random
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

import lab

NET, PORT, CLUSTER = "10.77.0.", 7500, 4242
HUB_MAC = "02:00:00:00:00:ff"  # nobody's
CLONE_NEWNET = 0x40000000
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x00020000, 0x4000, 1 << 18
ELECTION_MS, HEARTBEAT_MS = 300, 50
# Exit codes of tagcast-metad, as in its help.
EXIT_DISK, EXIT_HISTORY, EXIT_FOREIGN, EXIT_NEWER, EXIT_AMNESIA = 81, 84, 90, 91, 92
EXIT_DAMAGED, EXIT_SPACE, EXIT_LIBRARY = 93, 95, 96
NO_ROOM = (EXIT_DISK, EXIT_SPACE)
# What a crash looks like: none is part of any test but by our own SIGKILL.
CRASHES = (-signal.SIGSEGV, -signal.SIGABRT, -signal.SIGBUS, -signal.SIGILL, -signal.SIGFPE)
NEEDS_HELP = (64, 78, 77, EXIT_HISTORY, EXIT_FOREIGN, EXIT_NEWER, EXIT_AMNESIA, EXIT_DAMAGED, EXIT_LIBRARY)



def private_mounts():
    """Mounts made from here on are this process' and its children's alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS) != 0 or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) != 0:
        raise lab.Failure("mount namespace: %s" % os.strerror(ctypes.get_errno()))


@contextlib.contextmanager
def inside(namespace):
    """Sockets that this thread makes meanwhile belong to the network namespace."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(path):
        with open(path, "rb") as file:
            if libc.setns(file.fileno(), CLONE_NEWNET) != 0:
                raise lab.Failure("%s: %s" % (path, os.strerror(ctypes.get_errno())))
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        enter("/run/netns/" + namespace)
        yield
    finally:
        enter("/proc/self/fd/%d" % home)
        os.close(home)


class Neighbours:
    """The neighbour table of eth0 in a namespace, by netlink: what was written is in force on return."""

    NEWNEIGH, REQUEST, ACK, REPLACE, CREATE, PERMANENT, DST, LLADDR = 28, 1, 4, 0x100, 0x400, 0x80, 1, 2

    def __init__(self, namespace):
        with inside(namespace):
            self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
            self.device = socket.if_nametoindex("eth0")
        self.socket.settimeout(5)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def write(self, address, mac):
        body = struct.pack("<BxxxiHBB", socket.AF_INET, self.device, self.PERMANENT, 0, 1)
        body += struct.pack("<HH4s", 8, self.DST, socket.inet_aton(address))
        body += struct.pack("<HH6sxx", 10, self.LLADDR, bytes.fromhex(mac.replace(":", "")))
        self.socket.send(struct.pack("<IHHII", 16 + len(body), self.NEWNEIGH, self.REQUEST | self.ACK |
                                     self.REPLACE | self.CREATE, 1, 0) + body)
        error = struct.unpack_from("<i", self.socket.recv(4096), 16)[0]
        if error != 0:
            raise lab.Failure("neighbour %s: %s" % (address, os.strerror(-error)))


# --- the network --------------------------------------------------------------------------------------

class RaftNetwork:
    """One bridge in a namespace of its own, a namespace a node.

    Neighbours are written down, never asked for: a direction is cut by writing a wrong one, which loses
    packets without a word, as a cut wire does.
    """

    def __init__(self, stack, prefix):
        self.stack, self.prefix, self.nodes = stack, prefix, []
        self.hub = prefix + "h"
        self.cut_pairs, self.down, self.tables = set(), set(), {}
        self.add_namespace(self.hub)
        lab.run("ip", "-n", self.hub, "link", "add", "br0", "type", "bridge", "forward_delay", "0")
        lab.run("ip", "-n", self.hub, "link", "set", "br0", "up")

    def add_namespace(self, name):
        self.stack.callback(lab.Network.remove, name)
        lab.run("ip", "netns", "add", name)
        lab.run("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1",
                "net.ipv6.conf.default.disable_ipv6=1")
        lab.run("ip", "-n", name, "link", "set", "lo", "up")

    def namespace(self, number):
        return "%s%d" % (self.prefix, number)

    @staticmethod
    def mac(number):
        return "02:00:00:00:00:%02x" % number

    def add(self, number):
        name = self.namespace(number)
        self.add_namespace(name)
        lab.run("ip", "-n", name, "link", "add", "eth0", "address", self.mac(number), "type", "veth",
                "peer", "name", "v%d" % number, "netns", self.hub)
        lab.run("ip", "-n", self.hub, "link", "set", "v%d" % number, "master", "br0", "up")
        lab.run("ip", "-n", name, "address", "add", NET + "%d/24" % number, "dev", "eth0")
        lab.run("ip", "-n", name, "link", "set", "eth0", "up")
        self.nodes.append(number)
        for other in self.nodes:
            if other != number:
                self.neighbour(number, other, True)
                self.neighbour(other, number, True)

    def neighbour(self, number, other, right):
        if number not in self.tables:
            self.tables[number] = self.stack.enter_context(Neighbours(self.namespace(number)))
        self.tables[number].write(NET + str(other), self.mac(other) if right else HUB_MAC)

    def link(self, number, up):
        """Pulls or plugs the node's cable at the bridge."""
        lab.run("ip", "-n", self.hub, "link", "set", "v%d" % number, "up" if up else "down")
        (self.down.discard if up else self.down.add)(number)

    def cut(self, sender, receiver):
        """What `sender` sends to `receiver` is lost, the other direction works."""
        self.neighbour(sender, receiver, False)
        self.cut_pairs.add((sender, receiver))

    def cut_both(self, a, b):
        self.cut(a, b)
        self.cut(b, a)

    def mute(self, number):
        for other in self.nodes:
            if other != number:
                self.cut(number, other)

    def deafen(self, number):
        for other in self.nodes:
            if other != number:
                self.cut(other, number)

    def split(self, one, two):
        for a in one:
            for b in two:
                self.cut_both(a, b)

    def heal(self):
        for pair in sorted(self.cut_pairs):
            self.neighbour(*pair, True)
        self.cut_pairs.clear()
        for number in sorted(self.down):
            self.link(number, True)


# --- a node -------------------------------------------------------------------------------------------

class RaftNode:
    """One tagcast-metad. `number` is the last byte of its address, `node_id` by default the same."""

    def __init__(self, group, number, node_id=None, disk_bytes=None, options=()):
        self.group, self.number, self.node_id = group, number, node_id or number
        self.name = "n%d" % self.node_id
        self.dir = os.path.join(group.dir, self.name)
        self.run_dir, self.data_dir = self.dir + "/run", self.dir + "/data"
        self.log_path = self.dir + "/log"
        self.address = "%s%d:%d" % (NET, number, PORT)
        self.options, self.environment, self.wrapper = list(options), {}, []
        self.process, self.paused, self.started_at = None, False, 0.0
        self.starts, self.exit_codes = 0, []
        os.makedirs(self.data_dir, 0o700)
        os.mkdir(self.run_dir, 0o700)
        if disk_bytes is not None:
            group.mount(self.data_dir, disk_bytes)

    def command(self, *more):
        group = self.group
        return [*self.wrapper, group.metad, "--run-dir", self.run_dir, "--data-dir", self.data_dir,
                "--node-id", str(self.node_id), "--cluster-id", str(CLUSTER), "--raft-address",
                self.address, "--raft-key-file", group.key_path, *group.options, *self.options, *more]

    def start(self, *more):
        """Starts it and does not wait."""
        environment = dict(os.environ)
        environment.update(self.environment)
        with open(self.log_path, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "ip", "netns", "exec",
                 self.group.network.namespace(self.number), *self.command(*more)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        self.paused, self.started_at = False, time.monotonic()
        self.starts += 1
        return self

    def running(self):
        return self.process is not None and self.process.poll() is None

    def signal(self, number):
        if self.running():
            self.process.send_signal(number)

    def kill(self):
        """SIGKILL."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def stop(self, seconds=20):
        """SIGTERM. Returns: exit code."""
        self.process.terminate()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise lab.Failure("%s does not stop within %d s\n%s" % (
                self.name, seconds, self.log_tail())) from None

    def pause(self):
        self.signal(signal.SIGSTOP)
        self.paused = True

    def resume(self):
        self.signal(signal.SIGCONT)
        self.paused = False

    def wait_exit(self, seconds):
        """Returns: exit code."""
        lab.wait_until("%s ends" % self.name, lambda: not self.running(), seconds, 0.01)
        return self.process.returncode

    def control(self, seconds=30):
        return lab.Control(self.run_dir + "/meta.sock", seconds)

    def call(self, cmd, seconds=30, **arguments):
        """One answer over a connection of its own. Raises lab.Unreachable."""
        with self.control(seconds) as control:
            return control.call(cmd, **arguments)

    def ask(self, cmd, seconds=30, **arguments):
        """The same, and it must be good."""
        answer = self.call(cmd, seconds, **arguments)
        if not answer.get("ok"):
            raise lab.Failure("%s: %s%s: %s" % (self.name, cmd, arguments, answer))
        return answer

    def status(self, seconds=5):
        """Fields, or None when it does not answer."""
        if not self.running() or self.paused:
            return None
        try:
            return self.call("meta.status", seconds).get("fields")
        except lab.Unreachable:
            return None

    def members(self):
        """Rows of meta.members by node id, as dictionaries."""
        answer = self.ask("meta.members")
        return {row[0]: dict(zip(answer["columns"], row)) for row in answer["rows"]}

    def wait_state(self, state, seconds=30):
        def there():
            if not self.running():
                raise lab.Failure("%s ended with %s\n%s" % (
                    self.name, self.process.returncode, self.log_tail()))
            status = self.status()
            return status if status is not None and status["state"] == state else None
        return lab.wait_until("%s is %s" % (self.name, state), there, seconds, 0.02)

    def log_tail(self, length=3000):
        try:
            with open(self.log_path, encoding="utf-8", errors="replace") as log:
                return log.read()[-length:]
        except OSError:
            return ""

    def last_error(self):
        """What it said last, for people."""
        lines = [line for line in self.log_tail(20000).splitlines() if "level=error" in line]
        return lines[-1].split(" mod=", 1)[-1] if lines else "nothing"

    def last_error_of(self, code):
        """The text of its last error of that code; all of the last one without such."""
        lines = [line for line in self.log_tail(20000).splitlines() if "code=" + code in line]
        return lines[-1].split('msg="')[-1].rstrip('"').replace(self.data_dir, "") if lines else (
            self.last_error())

    def rss_bytes(self, peak=False):
        with open("/proc/%d/status" % self.process.pid, encoding="ascii") as status:
            for line in status:
                if line.startswith("VmHWM:" if peak else "VmRSS:"):
                    return int(line.split()[1]) * 1024
        return 0

    def wipe(self):
        """Empties the data folder, as a replaced disk would."""
        for name in os.listdir(self.data_dir):
            path = os.path.join(self.data_dir, name)
            (shutil.rmtree if os.path.isdir(path) else os.unlink)(path)


# --- a group ------------------------------------------------------------------------------------------

class Group:
    """A folder, a network and nodes. `options` go to every node."""

    def __init__(self, stack, build, prefix="rl", options=(), metad=None, disk_bytes=1 << 30):
        """`disk_bytes`: each node's disk is a tmpfs of that size; None: it is that of the folder."""
        self.stack, self.build, self.disk_bytes = stack, build, disk_bytes
        self.metad = metad or os.path.join(build, "app/tagcast-metad/tagcast-metad")
        if not os.access(self.metad, os.X_OK):
            raise lab.Failure("%s is not built" % self.metad)
        self.dir = tempfile.mkdtemp(prefix="tagcast-%s-" % prefix)
        stack.callback(shutil.rmtree, self.dir, True)
        self.key_path = os.path.join(self.dir, "key")
        with open(os.open(self.key_path, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as key:
            key.write(secrets.token_bytes(32).hex() + "\n")
        self.network = RaftNetwork(stack, "%s%d" % (prefix, os.getpid()))
        self.nodes, self.options = [], [
            "--map-size", str(4 << 30), "--log-level", "info", "--election-ms", str(ELECTION_MS),
            "--heartbeat-ms", str(HEARTBEAT_MS), "--answer-wait-ms", "2000", "--journal-commits",
            str(1 << 22), "--dedup-commits", str(1 << 22), *options]
        self.supervisor = None
        stack.callback(self.end)

    def mount(self, path, size):
        lab.run("mount", "-t", "tmpfs", "-o", "size=%d,mode=700" % size, "tcraft", path)
        self.stack.callback(subprocess.run, ["umount", "-l", path], check=False,
                            stderr=subprocess.DEVNULL)

    def end(self):
        if self.supervisor is not None:
            self.supervisor.stop()
        for node in self.nodes:
            node.kill()

    def add(self, number=None, **more):
        """A node that is not started yet, its namespace made when it is the first there."""
        number = number or max([node.number for node in self.nodes], default=0) + 1
        if number not in self.network.nodes:
            self.network.add(number)
        more.setdefault("disk_bytes", self.disk_bytes)
        node = RaftNode(self, number, **more)
        self.nodes.append(node)
        return node

    def node(self, node_id):
        return next(node for node in self.nodes if node.node_id == node_id)

    def bootstrap(self, node=None):
        node = node or self.nodes[0]
        if not node.running():
            node.start()
        node.wait_state("waiting")
        node.ask("meta.bootstrap")
        node.wait_state("ready")

    def join(self, node, via=None, promote=True):
        if not node.running():
            node.start()
        node.wait_state("waiting")
        via = via or next(n for n in self.nodes if n is not node and n.running())
        node.ask("meta.join", 60, via=via.address)
        node.wait_state("ready")
        if promote:
            self.promote(node, via)

    def promote(self, node, via, seconds=60):
        """Asks until it is done: a node that is behind, or another change, refuses it for now."""
        def done():
            answer = via.call("meta.promote", 60, node=node.node_id)
            if answer.get("ok"):
                return True
            members = via.members()
            return members.get(node.node_id, {}).get("role") == "voter"
        lab.wait_until("%s is a voter" % node.name, done, seconds, 0.1)

    def grow(self, voters, standbys=0):
        """A running group of that many."""
        for _ in range(voters + standbys):
            self.add()
        self.bootstrap()
        for index, node in enumerate(self.nodes[1:]):
            self.join(node, self.nodes[0], promote=index + 1 < voters)
        self.wait_leader()
        return self

    # -- conditions

    def statuses(self, nodes=None):
        return {node: node.status() for node in nodes or self.nodes if node.running()}

    def leader(self, nodes=None, but=None):
        """The node that says it leads in the highest term and is ready; None."""
        best = None
        for node in nodes or self.nodes:
            status = node.status() if node is not but else None
            if status and status["leader"] == node.node_id and status["state"] == "ready":
                if best is None or status["term"] > best[0]:
                    best = (status["term"], node)
        return best[1] if best else None

    def wait_leader(self, seconds=30, nodes=None, but=None):
        return lab.wait_until("a leader", lambda: self.leader(nodes, but), seconds, 0.01)

    def positions(self, nodes):
        return {node.name: (s["commit"], s["applied"], s["chain"], s["term"], s["state"]) if s else None
                for node, s in self.statuses(nodes).items()}

    def wait_equal(self, seconds=60, nodes=None):
        """Until all running nodes have the same commit and chain, and know one leader."""
        nodes = nodes or [node for node in self.nodes if node.running()]

        def equal():
            found = [node.status() for node in nodes]
            if any(s is None or s["state"] != "ready" for s in found):
                return False
            return len({(s["commit"], s["chain"], s["leader"], s["term"]) for s in found}) == 1
        try:
            lab.wait_until("all nodes are equal", equal, seconds, 0.05)
        except lab.Failure as problem:
            raise lab.Failure("%s: %s" % (problem, self.positions(nodes))) from None

    def supervise(self, **more):
        self.supervisor = Supervisor(self, **more)
        return self.supervisor


class Supervisor:
    """Starts a node again that ended with a code that passes by itself, as its real supervisor does.

    Called by the test's main thread (turn), because a process started by a thread ends with it.
    """

    def __init__(self, group, backoff=0.2, backoff_max=2.0):
        self.group, self.backoff, self.backoff_max = group, backoff, backoff_max
        self.delays, self.ended = {}, {}
        self.restarts = []  # (node, exit code)
        self.held = set()  # nodes that a test keeps down
        self.lock, self.stopped = threading.Lock(), False

    def stop(self):
        self.stopped = True

    def turn(self):
        now = time.monotonic()
        for node in self.group.nodes:
            if self.stopped or node in self.held or node.process is None or node.running():
                if node.running() and now - node.started_at > 5:
                    self.delays.pop(node, None)
                self.ended.pop(node, None)
                continue
            if node not in self.ended:
                code = node.process.returncode
                if code in NEEDS_HELP or code == 0 or code in CRASHES:
                    raise lab.Failure("%s ended with %d\n%s" % (node.name, code, node.log_tail()))
                self.ended[node] = now
                self.restarts.append((node.name, code))
                self.delays[node] = min(self.backoff_max, 2 * self.delays.get(node, self.backoff / 2))
            elif now - self.ended[node] >= self.delays[node]:
                node.start()

    def watch(self, what, condition, seconds, every=0.02):
        """lab.wait_until that supervises meanwhile."""
        def both():
            self.turn()
            return condition()
        return lab.wait_until(what, both, seconds, every)


class Eyes:
    """Asks nodes for their status again and again over connections that stay."""

    def __init__(self, nodes):
        self.nodes, self.connections = list(nodes), {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for connection in self.connections.values():
            connection.socket.close()

    def look(self, node):
        """Fields, or None."""
        try:
            if node not in self.connections:
                self.connections[node] = node.control(2)
            return self.connections[node].call("meta.status").get("fields")
        except lab.Unreachable:
            connection = self.connections.pop(node, None)
            if connection is not None:
                connection.socket.close()
            return None

    def wait_leader(self, seconds=30, but=None):
        """Until one of the nodes leads and is ready. Returns: (node, seconds it took)."""
        started = time.monotonic()

        def found():
            for node in self.nodes:
                status = self.look(node) if node is not but else None
                if status and status["leader"] == node.node_id and status["state"] == "ready":
                    return node
            return None
        node = lab.wait_until("a leader", found, seconds, 0.002)
        return node, time.monotonic() - started


# --- a test program -----------------------------------------------------------------------------------

def run_test(tests, description, argv):
    """`PROGRAM BUILD TEST [--full] [--seed N] ...`: runs the one test of that name. Returns: exit code."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("test", choices=sorted(tests))
    parser.add_argument("--full", action="store_true", help="the long form")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    parser.add_argument("--count", type=int, help="kills, rounds, strings or rows, by the test")
    parser.add_argument("--seconds", type=int, help="of chaos")
    parser.add_argument("--voters", type=int, help="nodes that vote")
    parser.add_argument("--metad", help="another tagcast-metad than that of BUILD")
    parser.add_argument("--keep", help="on failure the nodes' folders are moved to this one")
    args = parser.parse_args(argv)

    def work(stack):
        build = os.path.abspath(args.build)
        lab.say("%s, seed %d%s" % (args.test, args.seed, ", full" if args.full else ""))
        if os.geteuid() != 0:
            raise lab.Failure("needs root: it makes network namespaces")
        for tool in ("ip", "sysctl", "setpriv", "mount"):
            if shutil.which(tool) is None:
                raise lab.Failure("%s is missing" % tool)
        private_mounts()
        run = Run(stack, build, args)
        try:
            tests[args.test](run)
        except BaseException:
            for group in run.groups:
                for node in group.nodes:
                    lines = node.log_tail(1500)
                    print("--- %s, ended with %s:\n%s" % (
                        node.name, node.process.poll() if node.process else None, lines), flush=True)
                if args.keep:
                    shutil.copytree(group.dir, args.keep, symlinks=True, dirs_exist_ok=True,
                                    ignore=shutil.ignore_patterns("*.sock", "ballast"))
            raise
    return lab.main(args.test, work)


class Run:
    """What a test is given."""

    def __init__(self, stack, build, args):
        self.stack, self.build, self.args = stack, build, args
        self.full, self.seed = args.full, args.seed
        self.random = random.Random(args.seed)
        self.groups = []

    def group(self, **more):
        metad = os.path.abspath(self.args.metad) if self.args.metad else None
        group = Group(self.stack, self.build, metad=metad, **more)
        self.groups.append(group)
        return group

    def count(self, short, full):
        return self.args.count or (full if self.full else short)

    def seconds(self, short, full):
        return self.args.seconds or (full if self.full else short)

    def program(self, name):
        path = os.path.join(self.build, "tests/raft", name)
        if not os.access(path, os.X_OK):
            raise lab.Failure("%s is not built" % path)
        return path


def spread(values):
    """Median and worst, for people."""
    values = sorted(values)
    return "median %.3f s, worst %.3f s, n=%d" % (values[len(values) // 2], values[-1], len(values))


def median(values):
    return sorted(values)[len(values) // 2]
