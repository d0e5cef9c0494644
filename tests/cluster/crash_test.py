#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""kill -9 of every process, again and again, under load.

    crash_test.py BUILD_DIR [--kills N] [--seed S]

Two publishers send to channels of fixed and of changing membership, a mutator changes members one command
after the other; tagcastd, tagcast-metad, a gateway or a publisher is killed and comes back. Judged at the
end from what was recorded (Model):
- the store holds exactly the acknowledged history; a change without answer may be there or not, but whole
  (one channel gets changes that need several log entries),
- every publish has one outcome, unless its publisher was killed,
- nobody who cannot be a member gets a message, nobody gets one twice from one gateway process,
- every certain member's session gets every message, but for what the kill at hand may take with it: all
  of it when tagcastd dies, the sessions of a gateway that dies,
- while only the meta process is away, messages are delivered as if it was there.
"""
import argparse
import collections
import contextlib
import os
import random
import secrets
import signal
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import lab

TYPE = 2
GATEWAYS, PUBLISHERS = 3, 2
UIDS = ["user-%d" % i for i in range(120)]
STEADY = ["steady-%d" % i for i in range(6)]
CHANGING = ["changing-%d" % i for i in range(10)]
LARGE, LARGE_UIDS = "large", 25000  # of more bytes than one entry of the log takes
ACKS = ("none", "gateway", "client")
SIZES = (0, 100, 1200, 100, 5000)  # "none" is best effort, so it only takes those of one datagram
WINDOW = 8
PAUSE = 0.01  # between publishes of one publisher: load, not a flood
DOWN_BATCH = 60  # messages published while the meta process is away
BETWEEN = 30  # messages that must have ended between two kills
NONE_LOST_MAX = 0.01  # of the certain deliveries of class "none": sent once, so a full socket may lose one
VICTIMS = ("meta", "gateway", "publisher", "daemon")


def gateways_of(uid):
    """Every fifth UID is offline, every seventh has sessions on two gateways."""
    number = int(uid.split("-")[1])
    if number % 5 == 0:
        return ()
    first = number % GATEWAYS
    return (first, (first + 1) % GATEWAYS) if number % 7 == 0 else (first,)


# --- membership --------------------------------------------------------------------------------------

class Change:
    """One command to the store. `end` is None without an answer; `applied`: in force at `end`."""

    def __init__(self, op, uids):
        self.op, self.uids = op, frozenset(uids)
        self.start, self.end, self.applied = time.monotonic_ns(), None, False
        self.refused = False  # answered: not applied
        self.smv = None

    def says(self, uid):
        """What it makes of a UID: a member, none, or None: nothing."""
        if self.op == "reset":
            return uid in self.uids
        return self.op == "add" if uid in self.uids else None


def member_states(changes, uid, start, end):
    """Whether a UID may be and may not be a member for a message with this span: a set of booleans."""
    states = {False}
    for change in changes:
        if end is not None and change.start >= end:
            break
        value = change.says(uid)
        if value is None or change.refused:
            continue
        if change.end is not None and change.applied and change.end <= start:
            states = {value}
        else:
            states.add(value)
    return states


def stored_states(changes, uid):
    """The same for the store at the end: acknowledged is enough."""
    states = {False}
    for change in changes:
        value = change.says(uid)
        if value is None or change.refused:
            continue
        states = {value} if change.end is not None else states | {value}
    return states


class Mutator(threading.Thread):
    """Changes members without pause. Of the commands without answer half are repeated with their key."""

    def __init__(self, node, seed, pick):
        super().__init__(daemon=True)
        self.node, self.random, self.pick = node, random.Random(seed), pick
        self.changes = collections.defaultdict(list)
        self.stop, self.problem = threading.Event(), None
        self.counts = collections.Counter()
        self.connection, self.commit = None, 0

    def connect(self):
        def there():
            try:
                return self.node.meta()
            except lab.Unreachable:
                return None
        if self.connection is None:
            self.connection = lab.wait_until("the meta process listens", there, 90)

    def drop(self):
        if self.connection is not None:
            self.connection.socket.close()
        self.connection = None

    def command(self, channel, op, uids):
        change = Change(op, uids)
        self.changes[channel].append(change)
        key = "%016x%s" % (self.commit, secrets.token_hex(8))
        repeat = self.random.random() < 0.5
        while True:
            try:
                self.connect()
                answer = self.connection.call("channel." + op, type=TYPE, channel=channel,
                                              uids=list(uids), dedup=key)
            except lab.Unreachable:
                self.drop()
                self.counts["unanswered"] += 1
                answer = None
            if answer is not None and answer.get("error") != "unknown_outcome":
                break
            if not repeat:
                return
            self.counts["repeated"] += 1
        if answer["ok"]:
            change.end, change.applied = time.monotonic_ns(), answer["applied"]
            change.smv, self.commit = answer["smv"], answer["commit"]
            self.counts["acknowledged"] += 1
            self.counts["applied_before"] += answer["repeated"]
        elif answer["error"] in ("stopping", "busy"):
            change.refused = True
            self.counts[answer["error"]] += 1
        else:
            raise lab.Failure("channel.%s: %s" % (op, answer))

    def run(self):
        try:
            while not self.stop.is_set():
                self.command(*self.pick(self.random))
                self.stop.wait(self.random.random() * 0.002)
        except Exception as problem:  # handed to the main thread
            self.problem = problem
        finally:
            self.drop()


def small_change(rand):
    op = rand.choice(("add", "add", "remove", "remove", "reset"))
    return rand.choice(CHANGING), op, rand.sample(UIDS, rand.randint(1, 25))


def large_change(rand):
    prefix = "%08x" % rand.randrange(1 << 32)
    return LARGE, "reset", ["%s-%d" % (prefix, i) for i in range(LARGE_UIDS)]


# --- messages ----------------------------------------------------------------------------------------

class Message:
    def __init__(self, publisher, channel, ack):
        self.publisher, self.channel, self.ack = publisher, channel, ack
        self.start, self.end, self.status = time.monotonic_ns(), None, None
        self.outcomes = 0
        self.orphan = False  # its publisher was killed before the outcome


class Publisher:
    """A publisher program that is started again after each kill, and the load it carries."""

    def __init__(self, run, index):
        self.run, self.index, self.name = run, index, "pub%d" % index
        self.program, self.open = None, set()
        self.start()

    def start(self):
        self.program = self.run.lab.client(self.name, "demo_publisher", 50 + self.index)
        self.program.on_line = self.on_line
        self.program.ask("window %d" % (2 * WINDOW), "ok")

    def on_line(self, line):
        if not line.startswith("out "):
            return False
        _, number, status, _, _, _, outcome, _ = line.split()
        run = self.run
        with run.news:
            message = run.messages[int(number)]
            message.outcomes += 1
            message.status, message.end = status, int(outcome)
            self.open.discard(int(number))
            run.news.notify_all()
        return True

    def publish(self, channel, ack, size):
        run = self.run
        with run.news:
            number = len(run.messages) + 1
            run.messages[number] = Message(self.name, channel, ack)
            self.open.add(number)
        try:
            self.program.send("pub %d %s %d %s %d" % (number, ack, TYPE, channel, size))
        except lab.Failure:
            if not self.program.ended and self.program.process.poll() is None:
                raise
        return number

    def burst(self):
        """Messages that are surely on their way now."""
        for i in range(WINDOW):
            self.publish(STEADY[i % len(STEADY)], ACKS[i % 3], 100)

    def kill(self):
        with self.run.publishing[self.index]:
            self.burst()
            self.program.kill()
            with self.run.news:
                for number in self.open:
                    self.run.messages[number].orphan = True
                self.open.clear()
            self.start()


class Load(threading.Thread):
    """Keeps a few messages of one publisher in flight."""

    def __init__(self, run, publisher):
        super().__init__(daemon=True)
        self.run_, self.publisher = run, publisher
        self.random = random.Random(run.seed * 10 + publisher.index)
        self.problem = None

    def run(self):
        run, publisher = self.run_, self.publisher
        try:
            while not run.stop.is_set():
                run.flowing.wait(0.2)
                with run.news:
                    if not run.flowing.is_set() or len(publisher.open) >= WINDOW:
                        run.news.wait(0.05)
                        continue
                ack = self.random.choice(ACKS)
                size = self.random.choice(SIZES[:4] if ack == "none" else SIZES)
                with run.publishing[publisher.index]:
                    if run.flowing.is_set():
                        publisher.publish(self.random.choice(STEADY + CHANGING), ack, size)
                run.stop.wait(PAUSE)
        except Exception as problem:  # handed to the main thread
            self.problem = problem


# --- the run -----------------------------------------------------------------------------------------

class Storm:
    """From the first message that a kill may touch to the end of the recovery."""

    def __init__(self, victim, index):
        self.victim, self.index = victim, index
        self.start, self.end = time.monotonic_ns(), None

    def overlaps(self, message):
        return (message.end is None or message.end >= self.start) and message.start <= self.end


class Run:
    def __init__(self, stack, build, kills, seed):
        self.seed, self.kills = seed, kills
        self.random = random.Random(seed)
        self.lab = lab.Lab(stack, build, "tck")
        self.hold = os.path.join(self.lab.dir, "hold")
        self.wrap_meta(os.path.join(build, "app/tagcast-metad/tagcast-metad"))
        self.node = self.lab.node
        self.mutator = Mutator(self.node, seed, small_change)
        self.large = Mutator(self.node, seed, large_change)
        self.messages = {}
        self.news = threading.Condition()
        self.publishing = [threading.Lock() for _ in range(PUBLISHERS)]
        self.flowing, self.stop = threading.Event(), threading.Event()
        self.storms = []
        self.deliveries = []  # of gateway processes that are gone: (index, lines)
        self.threads = []
        self.done = collections.Counter()
        self.down_messages = 0

    def wrap_meta(self, metad):
        """While the file `hold` is there, a started meta process waits: that is how long it is away."""
        script = os.path.join(self.lab.dir, "metad")
        with open(script, "w", encoding="utf-8") as out:
            out.write("#!/bin/sh\nwhile [ -e %s ]; do sleep 0.05; done\nexec %s \"$@\"\n" % (
                self.hold, metad))
        os.chmod(script, 0o700)
        with open(self.lab.node.config, encoding="utf-8") as config:
            text = config.read()
        with open(self.lab.node.config, "w", encoding="utf-8") as config:
            config.write(text.replace("program: " + metad, "program: " + script))

    # -- set-up

    def sessions(self, index):
        return [uid for uid in UIDS if index in gateways_of(uid)]

    def start_gateway(self, index):
        gateway = self.lab.client("gw%d" % index, "demo_gateway", 100 + index)
        gateway.ask("receipts on", "ok")
        self.lab.open_sessions(gateway, self.sessions(index))
        return gateway

    def wait_whole(self, seconds=60):
        """Until the node knows every session and nobody else."""
        sessions = sum(len(self.sessions(i)) for i in range(GATEWAYS))

        def whole():
            self.check_threads()
            s = self.node.status()
            return (s["state"] == "ready" and s["meta"] == "connected" and s["sessions"] == sessions
                    and s["gateways"] == GATEWAYS + PUBLISHERS)
        try:
            lab.wait_until("all sessions are known again", whole, seconds)
        except lab.Failure as problem:
            raise lab.Failure("%s: %s" % (problem, self.node.status())) from problem

    def prepare(self):
        self.node.start()
        self.node.bootstrap()
        self.node.wait_ready(30)
        for i, channel in enumerate(STEADY):
            self.mutator.command(channel, "add", UIDS[i::3])
        for channel in CHANGING:
            self.mutator.command(channel, "add", self.random.sample(UIDS, 20))
        self.gateways = [self.start_gateway(i) for i in range(GATEWAYS)]
        for gateway in self.gateways:
            gateway.expect("opened", 30)
        self.publishers = [Publisher(self, i) for i in range(PUBLISHERS)]
        self.wait_whole()
        self.threads = [self.mutator, self.large] + [Load(self, p) for p in self.publishers]
        for thread in self.threads:
            thread.start()

    def check_threads(self):
        for thread in self.threads:
            if thread.problem is not None:
                raise thread.problem
        self.node.check_alive()

    # -- between kills

    def wait_ended(self, since, count, seconds=60):
        """Until `count` messages published after number `since` have their outcome."""
        def enough():
            self.check_threads()
            with self.news:
                return sum(m.end is not None or m.orphan for n, m in self.messages.items()
                           if n > since) >= count
        lab.wait_until("%d messages after number %d end" % (count, since), enough, seconds)

    def drained(self):
        """Stops publishing until every message has its outcome and every push its end."""
        self.flowing.clear()

        def silent():
            self.check_threads()
            with self.news:
                if any(p.open for p in self.publishers):
                    return False
            return self.node.busy() == 0
        lab.wait_until("every message has its outcome", silent, 60)
        # Sent once and not acknowledged ("none"): a gateway's answer shows that it read what came before.
        for gateway in self.gateways:
            gateway.ask("flush", "flushed")

    def take_deliveries(self, index):
        """Keeps what a gateway process logged; what was cut by its end is no line."""
        with open(self.lab.delivery_log("gw%d" % index), encoding="utf-8") as log:
            text = log.read()
        self.deliveries.append((index, text[:text.rfind("\n") + 1].splitlines()))

    # -- kills

    def kill_meta(self, storm):
        status = self.node.status()
        with open(self.hold, "w", encoding="ascii"):
            pass
        os.kill(status["meta_pid"], signal.SIGKILL)

        def away():
            s = self.node.status()
            return s["meta"] == "away" and s["meta_pid"] not in (0, status["meta_pid"])
        lab.wait_until("the meta process is away", away, 60)
        # Only the meta process is away: the fast path must not mind.
        self.publish_while_down()
        s = self.node.status()
        if s["meta"] != "away" or s["boot"] != status["boot"]:
            raise lab.Failure("the meta process was not away all the time: %s" % s)
        os.unlink(self.hold)
        lab.wait_until("the feed is back", lambda: self.node.status()["meta"] == "connected", 60)

    def publish_while_down(self):
        publisher = self.publishers[0]
        numbers = []
        with self.publishing[0]:
            for i in range(DOWN_BATCH):
                numbers.append(publisher.publish(STEADY[i % len(STEADY)], ACKS[i % 3], 100))

        def ended():
            self.check_threads()
            with self.news:
                return all(self.messages[n].end is not None for n in numbers)
        lab.wait_until("messages end while the meta process is away", ended, 30)
        self.down_messages += len(numbers)

    def kill_gateway(self, storm):
        gateway = self.gateways[storm.index]
        with self.publishing[0]:
            self.publishers[0].burst()
            gateway.kill()
        self.take_deliveries(storm.index)
        self.gateways[storm.index] = self.start_gateway(storm.index)
        self.gateways[storm.index].expect("opened", 60)

    def kill_publisher(self, storm):
        self.publishers[storm.index].kill()

    def kill_daemon(self, storm):
        with self.publishing[0]:
            self.publishers[0].burst()
            self.node.kill()
        self.node.start()
        self.node.wait_ready(60)

    def kill(self, victim):
        count = {"gateway": GATEWAYS, "publisher": PUBLISHERS}.get(victim, 1)
        storm = Storm(victim, self.random.randrange(count))
        since = len(self.messages)
        self.flowing.set()
        # Under load: some messages are through, some are on their way.
        self.wait_ended(since, self.random.randint(3, 12))
        {"meta": self.kill_meta, "gateway": self.kill_gateway, "publisher": self.kill_publisher,
         "daemon": self.kill_daemon}[victim](storm)
        self.wait_whole()
        storm.end = time.monotonic_ns()
        self.storms.append(storm)
        self.done[victim] += 1

    def run(self):
        victims = []
        while len(victims) < self.kills:
            block = list(VICTIMS)
            self.random.shuffle(block)
            victims += block
        self.flowing.set()
        for number, victim in enumerate(victims[:self.kills]):
            self.wait_ended(len(self.messages), BETWEEN)
            self.drained()
            self.kill(victim)
            lab.say("kill %d: %s, %d messages, %d changes" % (
                number + 1, victim, len(self.messages), self.mutator.counts["acknowledged"]))
        self.wait_ended(len(self.messages), BETWEEN)
        self.finish()

    def end_threads(self):
        self.stop.set()
        for mutator in (self.mutator, self.large):
            mutator.stop.set()

    def finish(self):
        self.drained()
        self.end_threads()
        for thread in self.threads:
            thread.join(90)
            if thread.is_alive():
                raise lab.Failure("a thread does not end")
        self.check_threads()
        for index, gateway in enumerate(self.gateways):
            if gateway.stats()["bad_payload"] != 0:
                raise lab.Failure("%s got payloads that nobody published" % gateway.name)
            gateway.ask("quit", "bye")
            self.take_deliveries(index)

    # -- judging

    def judge_store(self):
        with self.node.meta() as meta:
            rows = meta.call("channel.list")["rows"]
            if sorted(row[1] for row in rows) != sorted(STEADY + CHANGING + [LARGE]):
                raise lab.Failure("channels of the store: %s" % rows)
            for channel in STEADY + CHANGING:
                answer = meta.call("channel.show", type=TYPE, channel=channel)
                changes = self.mutator.changes[channel]
                stored = set(answer["members"])
                for uid in UIDS:
                    if (uid in stored) not in stored_states(changes, uid):
                        raise lab.Failure("store: %s is %s member of %s" % (
                            uid, "a" if uid in stored else "no", channel))
                self.judge_version(channel, changes, answer["fields"]["smv"])
                if not stored <= set(UIDS) or answer["fields"]["members"] != len(stored):
                    raise lab.Failure("store: members of %s: %s" % (channel, answer))

            self.judge_large(meta)

    def judge_large(self, meta):
        """Its members are those of the last acknowledged reset, or of one later and without answer."""
        stored, cursor = set(), None
        while True:
            answer = meta.call("channel.show", type=TYPE, channel=LARGE, cursor=cursor)
            stored.update(answer["members"])
            cursor = answer["cursor"]
            if cursor is None:
                break
        for change in reversed(self.large.changes[LARGE]):
            if change.uids == stored and not change.refused:
                break
            if change.end is not None:
                raise lab.Failure("store: %s has %d members, %d of the last reset (%d)" % (
                    LARGE, len(stored), len(stored & change.uids), len(change.uids)))
        else:
            raise lab.Failure("store: %s has %d members, of no reset" % (LARGE, len(stored)))
        self.judge_version(LARGE, self.large.changes[LARGE], answer["fields"]["smv"])

    @staticmethod
    def judge_version(channel, changes, smv):
        """Versions grow by one per change that changed something; none is lost, none counted twice."""
        last, open_changes = 0, 0
        for change in changes:
            if change.end is None and not change.refused:
                open_changes += 1
            if change.smv is None:
                continue
            if not last <= change.smv <= last + 1 + open_changes:
                raise lab.Failure("%s: version %d after %d" % (channel, change.smv, last))
            last, open_changes = change.smv, 0
        if not last <= smv <= last + open_changes:
            raise lab.Failure("%s: version %d in the store, %d acknowledged" % (channel, smv, last))

    def judge_outcomes(self):
        for number, message in self.messages.items():
            storms = {s.victim for s in self.storms if s.overlaps(message)}
            if message.outcomes != (0 if message.orphan else 1) and not (
                    message.orphan and message.outcomes == 1):
                raise lab.Failure("message %d has %d outcomes" % (number, message.outcomes))
            if message.orphan and "publisher" not in storms:
                raise lab.Failure("message %d lost its publisher without a kill" % number)
            allowed = {"ok", None} if message.orphan else {"ok"}
            if storms & {"daemon", "gateway"} and message.ack == "client":
                allowed.add("incomplete")
            if message.status not in allowed:
                raise lab.Failure("message %d to %s ended %s (%s)" % (
                    number, message.channel, message.status, storms or "calm"))

    def excused(self, message, index):
        """True when a kill may have taken the delivery at this gateway with it."""
        return message.orphan or any(
            s.overlaps(message) and (s.victim == "daemon" or (s.victim, s.index) == ("gateway", index))
            for s in self.storms)

    def judge_deliveries(self):
        got = set()
        for process, (index, lines) in enumerate(self.deliveries):
            seen = set()
            for line in lines:
                _, number, _, channel, uid, _, _ = line.split()
                message = self.messages.get(int(number))
                if message is None or message.channel != channel or index not in gateways_of(uid):
                    raise lab.Failure("never published: %s" % line)
                if True not in member_states(self.mutator.changes[channel], uid, message.start,
                                             message.end):
                    raise lab.Failure("not a member: %s at gateway %d" % (line, index))
                if (number, uid) in seen:
                    raise lab.Failure("twice from one gateway process (%d): %s" % (process, line))
                seen.add((number, uid))
                got.add((int(number), uid, index))
        return got

    def judge_missing(self, got):
        certain, none_certain, none_lost = 0, 0, 0
        for number, message in self.messages.items():
            excused = [self.excused(message, i) for i in range(GATEWAYS)]
            for uid in UIDS:
                where = [i for i in gateways_of(uid) if not excused[i]]
                if not where or False in member_states(self.mutator.changes[message.channel], uid,
                                                       message.start, message.end):
                    continue
                certain += len(where)
                none_certain += len(where) if message.ack == "none" else 0
                for index in where:
                    if (number, uid, index) in got:
                        continue
                    if message.ack == "none":
                        none_lost += 1
                    else:
                        raise lab.Failure("message %d (%s, %s) of %s did not reach %s at gateway %d, %s" % (
                            number, message.ack, message.status, message.channel, uid, index,
                            [s.victim for s in self.storms if s.overlaps(message)] or "calm"))
        if none_lost > NONE_LOST_MAX * none_certain:
            raise lab.Failure("%d of %d deliveries of class none did not arrive" % (
                none_lost, none_certain))
        return certain

    def judge(self):
        self.judge_store()
        self.judge_outcomes()
        got = self.judge_deliveries()
        certain = self.judge_missing(got)
        counts = self.mutator.counts + self.large.counts
        lab.say("kills: %s" % ", ".join("%d %s" % (n, v) for v, n in sorted(self.done.items())))
        lab.say("%d changes acknowledged (%d had been applied before their repeat), %d without answer, "
                "none lost" % (counts["acknowledged"], counts["applied_before"], counts["unanswered"]))
        lab.say("%d messages, %d without outcome as their publisher died; %d deliveries, %d that had "
                "to be" % (len(self.messages), sum(m.outcomes == 0 for m in self.messages.values()),
                           len(got), certain))
        lab.say("%d messages ended while the meta process was away" % self.down_messages)
        if set(self.done) != set(VICTIMS) and self.kills >= len(VICTIMS):
            raise lab.Failure("not every kind of process was killed: %s" % self.done)
        if certain == 0 or (self.done["meta"] and self.down_messages == 0):
            raise lab.Failure("nothing was shown")


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("build")
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    args = parser.parse_args(argv)

    def work(stack):
        build = os.path.abspath(args.build)
        lab.check(build)
        lab.say("seed %d" % args.seed)
        run = Run(stack, build, args.kills, args.seed)
        stack.callback(run.end_threads)
        run.prepare()
        run.run()
        run.judge()
    return lab.main("crash_test", work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
