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
import signal
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import lab
from lab import Failure, say

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


# --- the run -----------------------------------------------------------------------------------------

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


class Demo:
    def __init__(self, stack, build, fault):
        self.stack, self.build, self.fault = stack, build, fault
        self.random = random.Random(SEED)
        self.lab = lab.Lab(stack, build, "tcd", environment={"TAGCAST_FAULT": fault} if fault else None)
        self.dir, self.node = self.lab.dir, self.lab.node
        self.log = CommandLog(stack, os.path.join(self.dir, "commands.jsonl"))
        self.publisher = None
        self.gateways, self.senders = [], []
        self.channels, self.packages = {}, []
        self.members = {}       # channel -> set, as the demo has changed it
        self.next_message = 1
        self.in_flight = {}     # message id -> what is logged with its outcome
        self.outcomes = threading.Condition()
        self.statuses = collections.Counter()
        self.mutations = 0
        self.unapplied = 0
        self.mutating = threading.Lock()

    # -- set-up

    def read_index(self):
        index = lab.run("apt-cache", "dumpavail")
        if not index.strip():
            say("the package index is empty: apt-get update")
            lab.run("apt-get", "update", "-qq")
            index = lab.run("apt-cache", "dumpavail")
        with open(os.path.join(self.dir, "index"), "w", encoding="utf-8") as out:
            out.write(index)
        self.channels, self.packages = derive_graph(index)
        if not self.channels:
            raise Failure("apt-cache dumpavail is empty, also after apt-get update")
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
        fault = {"TAGCAST_FAULT": self.fault} if self.fault and index == 0 else None
        return self.lab.client(name, program, 1000 + index, fault)

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
            self.lab.open_sessions(program, uids)
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
            applied = json.loads(answer.splitlines()[-1]).get("applied") is True
            self.log.write("mutate", op=op, list=kind, type=TYPE, channel=channel, uids=list(uids),
                           start=start, end=end, applied=applied)
            self.mutations += 1
            self.unapplied += not applied
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
            self.change_visibly(number // len(channels), channel)
            for _ in range(3):
                self.publish("changed between", channel, "gateway", 100)
        self.wait_outcomes()

    def change_visibly(self, turn, channel):
        """An addition, a removal or a reset (which the node answers with a new tag) of online members."""
        members = self.members[channel]
        gone = self.online_sample(members, 2)
        if turn % 3 == 0 or not gone:
            self.mutate("add", channel, self.outsiders(channel, 2))
        elif turn % 3 == 1:
            self.mutate("remove", channel, gone)
        else:
            self.mutate("reset", channel, sorted(members.difference(gone)) + self.outsiders(channel, 2))

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
        self.change_between(largest[5:10] + picked[:5], 30 if self.fault else 60)
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
            self.mutations, ", %d not applied in time" % self.unapplied if self.unapplied else ""))

    # -- the end

    def settle(self, seconds=30):
        """Until the node has nothing open and nothing arrives any more. Returns: damaged payloads."""
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
        return bad

    def judge(self):
        programs = self.gateways + [self.publisher]
        oracle = os.path.join(os.path.dirname(os.path.abspath(__file__)), "oracle.py")
        return subprocess.run([sys.executable, "-B", oracle, "--index", os.path.join(self.dir, "index"),
                               "--commands", os.path.join(self.dir, "commands.jsonl"),
                               *("%s=%s" % (p.name, os.path.join(self.dir, p.name + ".log"))
                                 for p in programs)], check=False).returncode

    def run(self):
        self.read_index()
        self.node.start()
        self.node.bootstrap()
        self.node.wait_ready(30)
        say("node ready at %s:%d in namespace %s" % (lab.NODE_IP, lab.PORT, self.lab.network.node))
        self.import_graph()
        say("imported")
        self.start_clients()
        self.run_traffic()
        damaged = self.settle()
        self.node.check_alive()
        code = self.judge()
        if damaged:
            print("demo: %d payloads are not what was published under their id" % damaged)
            code = code or 1
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
  {ctl} --limit 20 show tags
  {ctl} show gateways
  {ctl} show drops
  {ctl} show limits
  {ctl} show queues
  {ctl} show workers
  {ctl} meta status
  {ctl} --limit 10 channel show {type} libc6
To change it and see who gets the next message:
  {ctl} channel add {type} room-1 {uid}
  echo 'pub {message} client {type} room-1 100' > {pipe}
  cat {dir}/publisher.out        # out <message> <status> <members> <routes> <ns sent> <ns outcome> ...
  tail -n 3 {dir}/gw*.log        # <ns> <message> <type> <channel> <uid> ...
  {ctl} channel remove {type} room-1 {uid}
  {ctl} --list deny channel add {type} libc6 {uid}
Its packets, with tcpdump installed:
  ip netns exec {clients} tcpdump -ni tc1 -c 20
To stop it and remove everything:
  kill {pid}
""".format(ctl=ctl, type=TYPE, uid=uid, pipe=pipe,
           message=self.next_message, dir=self.dir, clients=self.lab.network.clients, pid=os.getpid()),
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


def check(build, fault):
    if fault and fault not in FAULTS:
        raise Failure("FAULT is one of %s" % ", ".join(FAULTS))
    lab.check(build, "apt-cache")


def work(build, report):
    """The whole demo. `report` tells the exit code to whoever waits, when this process stays."""
    lab.catch_signals()
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
