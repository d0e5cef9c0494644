#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The demo: one node, four gateways and a publisher on a real membership graph, judged by oracle.py.

    demo.py BUILD_DIR        (as root; KEEP=1 leaves it running, FAULT=name plants a fault, see README)

The graph is the machine's own package index: each package that others depend on is a channel, its members
are the packages that name it in Depends or Pre-Depends. The node runs in one network namespace on
net_af_packet, the clients in another; both, and everything else made here, are removed on every way out.
"""
import binascii
import collections
import contextlib
import json
import os
import random
import re
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

NODE_IP, CLIENT_IP, PORT = "198.51.100.1", "198.51.100.2", 7400
GATEWAYS = 4
ONLINE_PERCENT = 60
SECOND_SESSION_PERCENT = 10
GENERATED, GENERATED_PREFIX, GENERATED_COUNT = "generated-100k", "member-", 100000
TYPE = 2
RESET_MAX = 300  # a reset channel is small afterwards: the large ones stay as they are
SENDERS = 8
WINDOW = 16
SIZES = [0, 64, 200, 1000, 1400, 4000, 16000, 61440]
SEED = 20240601
FAULTS = ("drop1", "dup1", "stale", "removed")

CONFIG = """# Written by the demo.
node:
  id: 1
  cluster_id: 1
  run_dir: {dir}/run
  data_dir: {dir}/data
eal:
  hugepages: false
  memory: 192MiB
  file_prefix: {name}
port:
  device: net_af_packet0,iface={veth},blocksz=65536,framesz=2048,framecnt=4096,qdisc_bypass=1
  address: {ip}/24
  udp_base: {port}
  buffers: 24576
auth:
  mode: on
  keys: [{{id: 1, file: {dir}/key}}]
meta:
  program: {metad}
limits:
  channels: 65536
  uids: 400000
  tag_memory: 256MiB
"""


class Failure(Exception):
    """The demo cannot go on; the text says why."""


def say(text):
    print("[%6.1f s] %s" % (time.monotonic() - STARTED, text), flush=True)


STARTED = time.monotonic()


# --- the graph ---------------------------------------------------------------------------------------

RELATION = re.compile(r"^(?:Pre-)?Depends:(.*(?:\n[ \t].*)*)", re.MULTILINE | re.IGNORECASE)
NAME = re.compile(r"\s*([^\s,|(:\[<]+)[^,|]*")
PACKAGE = re.compile(r"^Package:[ \t]*(\S+)", re.MULTILINE)


def derive_graph(index):
    """(channel -> packages that depend on it, all packages), from the text of a package index."""
    channels = collections.defaultdict(dict)
    packages = {}
    for stanza in index.split("\n\n"):
        package = PACKAGE.search(stanza)
        if package is None:
            continue
        packages[package.group(1)] = None
        for relation in RELATION.findall(stanza):
            for name in NAME.findall(relation):
                channels[name][package.group(1)] = None
    return {name: list(members) for name, members in channels.items()}, list(packages)


def hashed(text, salt, below):
    return binascii.crc32(("%s/%s" % (salt, text)).encode()) % below


def gateways_of(uid):
    """Indices of the gateways where a UID is online: none, one or two. Depends on nothing but the name."""
    if hashed(uid, "online", 100) >= ONLINE_PERCENT:
        return []
    first = hashed(uid, "gateway", GATEWAYS)
    if hashed(uid, "second", 100) < SECOND_SESSION_PERCENT:
        return [first, (first + 1) % GATEWAYS]
    return [first]


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
        self.veth = "tc0"
        for namespace in (self.node, self.clients):
            stack.callback(self.remove, namespace)
            run("ip", "netns", "add", namespace)
            run("ip", "netns", "exec", namespace, "sysctl", "-qw",
                "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
            run("ip", "-n", namespace, "link", "set", "lo", "up")
        run("ip", "-n", self.node, "link", "add", self.veth, "numtxqueues", "1", "numrxqueues", "1",
            "type", "veth", "peer", "name", "tc1", "netns", self.clients)
        run("ip", "-n", self.clients, "address", "add", CLIENT_IP + "/24", "dev", "tc1")
        # The kernel leaves UDP checksums on a veth unfinished, and the node checks them.
        run("ip", "netns", "exec", self.clients, "ethtool", "-K", "tc1", "tx", "off", "gro", "off")
        run("ip", "-n", self.node, "link", "set", self.veth, "up")
        run("ip", "-n", self.clients, "link", "set", "tc1", "up")

    @staticmethod
    def remove(namespace):
        # Whatever still runs in there was started by this demo.
        pids = subprocess.run(["ip", "netns", "pids", namespace], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.DEVNULL, check=False).stdout.split()
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        subprocess.run(["ip", "netns", "del", namespace], stderr=subprocess.DEVNULL, check=False)


class Program:
    """One of the demo's clients: commands in, answer lines out."""

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


class CommandLog:
    """What the oracle reads. Written by several threads."""

    def __init__(self, stack, path):
        self.file = stack.enter_context(open(path, "w", encoding="utf-8"))
        self.lock = threading.Lock()

    def write(self, kind, **fields):
        fields["kind"] = kind
        with self.lock:
            self.file.write(json.dumps(fields) + "\n")
            self.file.flush()


# --- the node ----------------------------------------------------------------------------------------

class Node:
    def __init__(self, stack, build, directory, network, name, fault):
        self.ctl_program = os.path.join(build, "app/tagcastctl/tagcastctl")
        self.run_dir = os.path.join(directory, "run")
        self.log_path = os.path.join(directory, "tagcastd.log")
        for sub in ("run", "data"):
            os.mkdir(os.path.join(directory, sub), 0o700)
        with open(os.open(os.path.join(directory, "key"), os.O_CREAT | os.O_WRONLY, 0o600), "w",
                  encoding="ascii") as key:
            key.write(secrets.token_hex(32) + "\n")
        config = os.path.join(directory, "node.yaml")
        with open(config, "w", encoding="utf-8") as out:
            out.write(CONFIG.format(dir=directory, name=name, veth=network.veth, ip=NODE_IP, port=PORT,
                                    metad=os.path.join(build, "app/tagcast-metad/tagcast-metad")))
        environment = dict(os.environ)
        environment.pop("TAGCAST_FAULT", None)
        if fault:
            environment["TAGCAST_FAULT"] = fault
        log = stack.enter_context(open(self.log_path, "w", encoding="utf-8"))
        self.process = subprocess.Popen(
            ["ip", "netns", "exec", network.node, os.path.join(build, "app/tagcastd/tagcastd"), "-c",
             config], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        stack.callback(end_process, self.process, 20)

    def ctl(self, *arguments, seconds=60):
        """Runs tagcastctl. Returns: (exit code, output)."""
        done = subprocess.run([self.ctl_program, "--run-dir", self.run_dir, *arguments],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=seconds, check=False)
        return done.returncode, done.stdout.strip()

    def check_alive(self):
        if self.process.poll() is not None:
            with open(self.log_path, encoding="utf-8", errors="replace") as log:
                tail = log.read()[-2000:]
            raise Failure("tagcastd ended with %d:\n%s" % (self.process.returncode, tail))

    def busy(self):
        """Messages and pushes that have not ended."""
        code, answer = self.ctl("status")
        if code != 0:
            raise Failure("tagcastctl status: %d, %s" % (code, answer))
        status = status_of(answer)
        return sum(int(status[name]) for name in
                   ("messages_open", "messages_parked", "pushes_inflight", "pushes_backlog"))

    def wait_ready(self, seconds):
        deadline = time.monotonic() + seconds
        answer = ""
        while time.monotonic() < deadline:
            self.check_alive()
            code, answer = self.ctl("--timeout", "2000", "status")
            if code == 0 and status_of(answer).get("state") == "ready":
                return
            time.sleep(0.1)
        raise Failure("the node is not ready after %d s: %s" % (seconds, answer))


def status_of(answer):
    """The lines "name value" of a status answer."""
    return dict(line.split(None, 1) for line in answer.splitlines() if " " in line)


# --- the run -----------------------------------------------------------------------------------------

class Demo:
    def __init__(self, stack, build, fault):
        self.stack, self.build, self.fault = stack, build, fault
        self.random = random.Random(SEED)
        self.name = "tcd%d" % os.getpid()
        self.dir = tempfile.mkdtemp(prefix="tagcast-demo-")
        stack.callback(shutil.rmtree, self.dir, True)
        self.log = CommandLog(stack, os.path.join(self.dir, "commands.jsonl"))
        self.network = self.node = self.publisher = None
        self.gateways, self.senders = [], []
        self.channels, self.packages = {}, []
        self.members = {}       # channel -> set, as the demo has changed it
        self.next_message = 1
        self.in_flight = {}     # message id -> what is logged with its outcome
        self.outcomes = threading.Condition()
        self.statuses = collections.Counter()
        self.mutations = 0
        self.unfenced = 0
        self.mutating = threading.Lock()

    # -- set-up

    def read_index(self):
        index = run("apt-cache", "dumpavail")
        with open(os.path.join(self.dir, "index"), "w", encoding="utf-8") as out:
            out.write(index)
        self.channels, self.packages = derive_graph(index)
        if not self.channels:
            raise Failure("apt-cache dumpavail is empty: run apt-get update")
        say("package index: %d channels, %d memberships, %d UIDs, largest %d" % (
            len(self.channels), sum(map(len, self.channels.values())), len(self.packages),
            max(map(len, self.channels.values()))))

    def generated(self):
        return [GENERATED_PREFIX + str(i) for i in range(GENERATED_COUNT)]

    def import_graph(self):
        path = os.path.join(self.dir, "import.tsv")
        rows = 0
        with open(path, "w", encoding="utf-8") as out:
            for channel, members in list(self.channels.items()) + [(GENERATED, self.generated())]:
                rows += len(members)
                out.writelines("%d\t%s\t%s\n" % (TYPE, channel, uid) for uid in members)
        self.log.write("generated", type=TYPE, channel=GENERATED, prefix=GENERATED_PREFIX,
                       count=GENERATED_COUNT)
        say("import of %d memberships" % rows)
        done = subprocess.run([self.node.ctl_program, "--run-dir", self.node.run_dir, "import", path],
                              timeout=120, check=False)
        if done.returncode != 0:
            raise Failure("import failed with %d" % done.returncode)
        self.members = {channel: set(members) for channel, members in self.channels.items()}
        self.members[GENERATED] = set(self.generated())

    def start_program(self, index, program):
        name = "publisher" if program == "demo_publisher" else "gw%d" % (index + 1)
        environment = dict(os.environ)
        environment.pop("TAGCAST_FAULT", None)
        if self.fault and index == 0:
            environment["TAGCAST_FAULT"] = self.fault
        stderr = self.stack.enter_context(
            open(os.path.join(self.dir, name + ".err"), "w", encoding="utf-8"))
        return Program(self.stack, name, [
            "ip", "netns", "exec", self.network.clients,
            os.path.join(self.build, "tests/demo", program), NODE_IP, str(PORT), str(1000 + index),
            os.path.join(self.dir, name + ".log"), os.path.join(self.dir, "key"), "1"],
            stderr, environment)

    def open_sessions(self, program, uids):
        path = os.path.join(self.dir, program.name + ".uids")
        with open(path, "w", encoding="utf-8") as out:
            out.writelines(uid + "\n" for uid in uids)
        program.send("open " + path)

    def start_clients(self):
        self.gateways = [self.start_program(i, "demo_gateway") for i in range(GATEWAYS)]
        self.publisher = self.start_program(GATEWAYS, "demo_publisher")
        self.publisher.on_line = self.on_publisher_line
        lists = [[] for _ in range(GATEWAYS)]
        online = 0
        for uid in self.packages + self.generated():
            where = gateways_of(uid)
            online += bool(where)
            for gateway in where:
                lists[gateway].append(uid)
        # Senders: members of the largest channel, with sessions of their own at the publisher.
        largest = max(self.channels, key=lambda c: len(self.channels[c]))
        self.senders = self.channels[largest][:SENDERS]
        programs = self.gateways + [self.publisher]
        lists.append(self.senders)
        start = time.monotonic_ns()
        for program, uids in zip(programs, lists):
            program.ask("receipts on", "ok")
            self.open_sessions(program, uids)
        for program, uids in zip(programs, lists):
            if int(program.expect("opened", 60)) != len(uids):
                raise Failure("%s did not open all sessions" % program.name)
            self.log.write("open", gateway=program.name, uids=uids, start=start,
                           end=time.monotonic_ns())
        self.publisher.ask("window %d" % WINDOW, "ok")
        say("%d UIDs online with %d sessions on %d gateways" % (
            online, sum(map(len, lists)), len(programs)))

    # -- publishing

    def on_publisher_line(self, line):
        if not line.startswith("out "):
            return False
        _, message, status, _, _, send, outcome, _ = line.split()
        with self.outcomes:
            fields = self.in_flight.pop(int(message))
            self.statuses[status] += 1
            self.log.write("publish", message=int(message), send=int(send), outcome=int(outcome),
                           status=status, **fields)
            self.outcomes.notify_all()
        return True

    def publish(self, group, channel, ack, size, sender=None):
        message = self.next_message
        self.next_message += 1
        at_publisher = sender in self.senders
        with self.outcomes:
            self.in_flight[message] = {
                "group": group, "type": TYPE, "channel": channel, "ack": ack, "bytes": size,
                "sender": [self.publisher.name, sender] if at_publisher else None}
        self.publisher.send("pub %d %s %d %s %d%s" % (message, ack, TYPE, channel, size,
                                                      " " + sender if sender else ""))
        return message

    def wait_outcomes(self, message=None, seconds=45):
        """Until this message, or every one, has its outcome."""
        deadline = time.monotonic() + seconds
        with self.outcomes:
            while self.in_flight if message is None else message in self.in_flight:
                left = deadline - time.monotonic()
                if left <= 0 or self.publisher.ended:
                    self.node.check_alive()
                    raise Failure("%d publishes without outcome" % len(self.in_flight))
                self.outcomes.wait(min(left, 1))

    @staticmethod
    def ack_for(group, number, size):
        # "none" is best effort: only where nothing large shares the way.
        if group == "random" and number % 3 == 0 and size <= 1000:
            return "none"
        return ("gateway", "client")[number % 2]

    def publish_all(self, group, channels, rounds):
        for number in range(rounds * len(channels)):
            channel = channels[number % len(channels)]
            size = SIZES[(number * 5 + number // len(channels)) % len(SIZES)]
            sender = self.senders[number % SENDERS] if number % 4 == 1 else None
            self.publish(group, channel, self.ack_for(group, number, size), size, sender)

    # -- membership

    def mutate(self, op, channel, uids, kind="members"):
        arguments = ["channel", op, str(TYPE), channel, *uids]
        if kind != "members":
            arguments += ["--list", kind]
        with self.mutating:
            start = time.monotonic_ns()
            code, answer = self.node.ctl("--json", *arguments)
            end = time.monotonic_ns()
            if code != 0:
                raise Failure("tagcastctl %s: %d, %s" % (" ".join(arguments), code, answer))
            fenced = json.loads(answer.splitlines()[-1]).get("fenced") is True
            self.log.write("mutate", op=op, list=kind, type=TYPE, channel=channel, uids=list(uids),
                           start=start, end=end, fenced=fenced)
            self.mutations += 1
            self.unfenced += not fenced
            if kind == "members":
                members = self.members[channel]
                if op == "add":
                    members.update(uids)
                elif op == "remove":
                    members.difference_update(uids)
                else:
                    self.members[channel] = set(uids)

    def online_sample(self, uids, count):
        candidates = sorted(uid for uid in uids if gateways_of(uid))
        return self.random.sample(candidates, min(count, len(candidates)))

    def outsiders(self, channel, count):
        found = []
        while len(found) < count:
            uid = self.random.choice(self.packages)
            if gateways_of(uid) and uid not in self.members[channel] and uid not in found:
                found.append(uid)
        return found

    def change_somehow(self, number, channel):
        """One logical change after the other; a denied member is allowed again by the next change."""
        members = self.members[channel]
        what = number % 5
        if what == 0:
            self.mutate("add", channel, self.outsiders(channel, 3))
        elif what == 1 and len(members) > 4:
            self.mutate("remove", channel, self.online_sample(members, 2) or sorted(members)[:1])
        elif what == 2 and len(members) <= RESET_MAX:
            kept = self.online_sample(members, 10)
            self.mutate("reset", channel, kept + self.outsiders(channel, 5))
        elif what == 3 and members:
            denied = self.online_sample(members, 1) or sorted(members)[:1]
            self.mutate("add", channel, denied, "deny")
        else:
            self.mutate("reset", channel, [], "deny")

    def change_between(self, channels, rounds):
        """Publish, change, publish again at once: each message must see exactly its own side."""
        for number in range(rounds):
            channel = channels[number % len(channels)]
            self.wait_outcomes(self.publish("changed between", channel, "gateway", 100))
            gone = self.online_sample(self.members[channel], 2) if number // len(channels) % 2 else []
            if gone:
                self.mutate("remove", channel, gone)
            else:
                self.mutate("add", channel, self.outsiders(channel, 2))
            for _ in range(3):
                self.publish("changed between", channel, "gateway", 100)
        self.wait_outcomes()

    def while_changing(self, channels, work):
        """Runs `work` while a second thread changes members of `channels` one change after the other."""
        finished = threading.Event()
        problems = []

        def changer():
            number = 0
            try:
                while not finished.is_set():
                    self.change_somehow(number // 2, channels[number % len(channels)])
                    number += 1
            except Exception as problem:  # handed to the main thread
                problems.append(problem)

        thread = threading.Thread(target=changer)
        thread.start()
        try:
            work()
            self.wait_outcomes()
        finally:
            finished.set()
            thread.join()
        if problems:
            raise problems[0]

    def run_traffic(self):
        by_size = sorted(self.channels, key=lambda c: (-len(self.channels[c]), c))
        largest = by_size[:10 if self.fault else 50]
        rest = sorted(by_size[50:])
        picked = self.random.sample(rest, 40 if self.fault else 200)
        rounds = 1 if self.fault else 3
        self.publish_all("largest", largest, rounds)
        self.wait_outcomes()
        self.publish_all("random", picked, rounds)
        self.wait_outcomes()
        say("published to the %d largest and %d random channels" % (len(largest), len(picked)))
        self.change_between(largest[5:10] + picked[:5], 20 if self.fault else 60)
        say("%d changes between publishes" % self.mutations)

        def under_way():
            self.publish_all("while changing", largest[:10] + picked[:30], rounds + 1)
            if not self.fault:
                self.publish_all("generated", [GENERATED], 2)
        self.while_changing([*picked[:20], *largest[3:9], GENERATED], under_way)
        if not self.fault:
            self.publish_all("generated", [GENERATED], len(SIZES))
        self.wait_outcomes()
        say("%d publishes, %s; %d changes%s" % (
            self.next_message - 1, ", ".join("%d %s" % (n, s) for s, n in self.statuses.items()),
            self.mutations, ", %d not fenced in time" % self.unfenced if self.unfenced else ""))

    # -- the end

    def settle(self, seconds=30):
        """Until the node has nothing open and nothing arrives any more."""
        programs = self.gateways + [self.publisher]
        deadline = time.monotonic() + seconds
        last, since = -1, time.monotonic()
        while time.monotonic() < deadline:
            busy = self.node.busy()
            delivered = sum(p.stats()["delivered"] for p in programs)
            if delivered != last or busy:
                last, since = delivered, time.monotonic()
            elif time.monotonic() - since > 0.3:
                break
            time.sleep(0.05)
        else:
            say("the node still has %d messages and pushes open" % busy)
        bad = 0
        for program, s in zip(programs, [p.stats() for p in programs]):
            self.log.write("stats", gateway=program.name, suppressed=s["suppressed"])
            bad += s["bad_payload"]
            program.ask("flush", "flushed")
        if bad:
            raise Failure("%d payloads differ from what was published" % bad)

    def judge(self):
        programs = self.gateways + [self.publisher]
        oracle = os.path.join(os.path.dirname(os.path.abspath(__file__)), "oracle.py")
        return subprocess.run([sys.executable, "-B", oracle, "--index", os.path.join(self.dir, "index"),
                               "--commands", os.path.join(self.dir, "commands.jsonl"),
                               *("%s=%s" % (p.name, os.path.join(self.dir, p.name + ".log"))
                                 for p in programs)], check=False).returncode

    def run(self):
        self.read_index()
        self.network = Network(self.stack, self.name)
        self.node = Node(self.stack, self.build, self.dir, self.network, self.name, self.fault)
        self.node.wait_ready(30)
        say("node ready at %s:%d in namespace %s" % (NODE_IP, PORT, self.network.node))
        self.import_graph()
        say("imported")
        self.start_clients()
        self.run_traffic()
        self.settle()
        self.node.check_alive()
        code = self.judge()
        if code != 0:
            print("the node's counters:\n" + self.node.ctl("show", "drops")[1])
            for program in self.gateways + [self.publisher]:
                print("%s: %s" % (program.name, program.stats()))
        say("done")
        return code

    # -- KEEP=1

    def explain(self, pipe):
        uid = next(u for u in self.packages if gateways_of(u) and u not in self.senders)
        ctl = "%s --run-dir %s" % (self.node.ctl_program, self.node.run_dir)
        print("""
Everything is still running. To look at it:
  {ctl} status
  {ctl} show tags
  {ctl} show gateways
  {ctl} show drops
  {ctl} show limits
  {ctl} show queues
  {ctl} meta status
  {ctl} --limit 10 channel show {type} libc6
To change it and see who gets the next message:
  {ctl} channel add {type} room-1 {uid}
  echo 'pub {message} gateway {type} room-1 100' > {pipe}
  cat {dir}/publisher.out        # out <message> <status> <members> <routes> <ns sent> <ns outcome> ...
  tail -n 3 {dir}/gw*.log        # <ns> <message> <type> <channel> <uid> ...
  {ctl} channel remove {type} room-1 {uid}
  {ctl} --list deny channel add {type} libc6 {uid}
Its packets, with tcpdump installed:
  ip netns exec {clients} tcpdump -ni tc1 -c 20
To stop it and remove everything:
  kill {pid}
""".format(ctl=ctl, type=TYPE, uid=uid, pipe=pipe,
           message=self.next_message, dir=self.dir, clients=self.network.clients, pid=os.getpid()),
              flush=True)

    def keep(self, report):
        """Stays until SIGTERM; lines written into the pipe go to the publisher."""
        pipe = os.path.join(self.dir, "publish")
        os.mkfifo(pipe, 0o600)
        out = open(os.path.join(self.dir, "publisher.out"), "w", encoding="utf-8", buffering=1)

        def on_line(line):
            out.write(line + "\n")
            return True
        self.publisher.on_line = on_line
        self.explain(pipe)
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        report()
        # Opened for writing too, so that reading never ends.
        with os.fdopen(os.open(pipe, os.O_RDWR), "r", encoding="utf-8") as lines:
            for line in lines:
                for program in self.gateways:
                    program.send("flush")
                self.publisher.send(line.strip())
                time.sleep(0.2)
                for program in self.gateways:
                    program.send("flush")


def on_signal(number, _frame):
    for again in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(again, signal.SIG_IGN)
    raise SystemExit(128 + number)


def check(build, fault):
    if fault and fault not in FAULTS:
        raise Failure("FAULT is one of %s" % ", ".join(FAULTS))
    if os.geteuid() != 0:
        raise Failure("needs root: it makes network namespaces")
    for tool in ("ip", "ethtool", "apt-cache", "sysctl"):
        if shutil.which(tool) is None:
            raise Failure("%s is missing" % tool)
    for program in ("app/tagcastd/tagcastd", "app/tagcast-metad/tagcast-metad",
                    "app/tagcastctl/tagcastctl", "tests/demo/demo_gateway", "tests/demo/demo_publisher"):
        if not os.access(os.path.join(build, program), os.X_OK):
            raise Failure("%s/%s is not built" % (build, program))


def work(build, report):
    """The whole demo. `report` tells the exit code to whoever waits, when this process stays."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    with contextlib.ExitStack() as stack:
        demo = None
        try:
            fault = os.environ.get("FAULT", "")
            check(build, fault)
            demo = Demo(stack, build, fault)
            code = demo.run()
        except (Failure, OSError, subprocess.TimeoutExpired) as problem:
            print("demo: %s" % problem, file=sys.stderr, flush=True)
            return 2
        if report is not None:
            demo.keep(lambda: report(code))
        return code


def keep(build):
    """Runs the demo in a process that stays; this one ends with its result."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        code = 2

        def report(value):
            os.write(writer, bytes([value]))
            os.close(writer)
        try:
            code = work(build, report)
        except SystemExit as stop:
            code = int(stop.code or 0)
        finally:
            os._exit(code)
    os.close(writer)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _: os.kill(child, signal.SIGTERM))
    told = os.read(reader, 1)
    if told:
        return told[0]
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(argv):
    if len(argv) != 2:
        print("usage: demo.py BUILD_DIR", file=sys.stderr)
        return 64
    build = os.path.abspath(argv[1])
    return keep(build) if os.environ.get("KEEP") else work(build, None)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
