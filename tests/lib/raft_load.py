# SPDX-License-Identifier: BSD-3-Clause
"""Writers against a group of meta processes, and what was acknowledged to them.

Each operation has a de-duplication key and is repeated with it, at any node, until its outcome is known. A
UID belongs to one writer, so what a channel must hold in the end is known exactly. Each writer is a thread.
"""
import collections
import random
import secrets
import threading
import time

import lab

TYPE = 2
RETRY = ("unknown_outcome", "busy", "not_leader", "not_ready", "stopping", "unreachable")
Done = collections.namedtuple("Done", "op channel uid commit smv repeated start end node")


class Writer(threading.Thread):
    def __init__(self, load, index, seed):
        super().__init__(daemon=True)
        self.load, self.index, self.random = load, index, random.Random(seed)
        self.done = []  # Done, in the order of the acknowledgements
        self.mine = {}  # channel -> UIDs of this writer in it
        self.connection = self.node = None
        self.problem, self.serial, self.commit = None, 0, 0
        self.counts = collections.Counter()
        self.longest = 0.0

    def connect(self):
        load = self.load
        candidates = [n for n in load.nodes if n.running() and not n.paused] or load.nodes
        self.node = self.random.choice(candidates)
        self.connection = self.node.control(load.patience)

    def drop(self):
        if self.connection is not None:
            self.connection.socket.close()
        self.connection = None

    def attempt(self, cmd, arguments):
        """Returns: the answer, None when there was none."""
        try:
            if self.connection is None:
                self.connect()
            return self.connection.call(cmd, **arguments)
        except lab.Unreachable:
            self.drop()
            self.counts["unanswered"] += 1
            return None

    def command(self, op, channel, uids):
        """Repeats until it is known. Returns: the answer; None when the load was given up."""
        key = "%016x%s" % (self.commit, secrets.token_hex(8))
        arguments = dict(type=TYPE, channel=channel, dedup=key)
        if uids is not None:
            arguments["uids"] = uids
        start = time.monotonic()
        while not self.load.given_up.is_set():
            answer = self.attempt("channel." + op, arguments)
            if answer is not None and answer["ok"]:
                self.commit = max(self.commit, answer["commit"])
                self.longest = max(self.longest, time.monotonic() - start)
                self.counts["applied_before"] += answer["repeated"]
                return answer, start
            if answer is not None:
                if answer["error"] not in RETRY:
                    raise lab.Failure("channel.%s %s: %s" % (op, arguments, answer))
                self.counts[answer["error"]] += 1
                # The way through is another node; this one may be cut off.
                self.drop()
            self.counts["repeats"] += 1
            self.load.given_up.wait(0.01 + self.random.random() * 0.04)
        return None, start

    def step(self):
        load = self.load
        channel = load.channels[self.random.randrange(len(load.channels))]
        mine = self.mine.setdefault(channel, set())
        if mine and self.random.random() < load.remove_share:
            op, uid = "remove", self.random.choice(sorted(mine)) if len(mine) < 64 else next(iter(mine))
        else:
            self.serial += 1
            op, uid = "add", "%s-%d-%d%s" % (load.tag, self.index, self.serial, load.padding)
        answer, start = self.command(op, channel, [uid])
        if answer is None:
            return
        if answer["changed"] != 1:
            raise lab.Failure("%s of %s to %s changed %s rows" % (op, uid, channel, answer))
        self.done.append(Done(op, channel, uid, answer["commit"], answer["smv"], answer["repeated"],
                              start, time.monotonic(), self.node.node_id))
        (mine.add if op == "add" else mine.discard)(uid)

    def run(self):
        try:
            while not self.load.stopping.is_set():
                if self.load.limit is not None and self.load.total() >= self.load.limit:
                    break
                self.step()
                if self.load.pause:
                    self.load.stopping.wait(self.load.pause)
        except Exception as problem:  # handed to the main thread
            self.problem = problem
        finally:
            self.drop()


class Load:
    """`writers` threads over `nodes`, until stop(). `pause` seconds between operations of one writer."""

    def __init__(self, stack, nodes, writers=8, channels=10, seed=1, pause=0.0, limit=None,
                 remove_share=0.3, patience=10, padding="", name="c"):
        self.nodes, self.pause, self.limit = list(nodes), pause, limit
        self.remove_share, self.patience, self.padding = remove_share, patience, padding
        self.tag = secrets.token_hex(3)  # two loads share no UID
        self.channels = ["%s%d" % (name, i) for i in range(channels)]
        self.stopping, self.given_up = threading.Event(), threading.Event()
        self.writers = [Writer(self, i, seed * 1000 + i) for i in range(writers)]
        self.started = time.monotonic()
        stack.callback(self.give_up)

    def start(self):
        self.started = time.monotonic()
        # A key names a commit number of late, or it is taken for an old one.
        commits = [status["commit"] for status in (node.status() for node in self.nodes) if status]
        for writer in self.writers:
            writer.commit = max(commits, default=0)
            writer.start()
        return self

    def check(self):
        for writer in self.writers:
            if writer.problem is not None:
                raise writer.problem

    def total(self):
        return sum(len(writer.done) for writer in self.writers)

    def wait_more(self, count, seconds=60, supervisor=None):
        """Until `count` more operations were acknowledged."""
        target = self.total() + count

        def enough():
            self.check()
            return self.total() >= target
        wait = supervisor.watch if supervisor is not None else lab.wait_until
        wait("%d more acknowledged operations" % count, enough, seconds, 0.005)

    def stop(self, seconds=60, supervisor=None):
        """Lets every writer finish the operation at hand."""
        self.stopping.set()
        self.ended(seconds, supervisor)

    def ended(self, seconds=60, supervisor=None):
        wait = supervisor.watch if supervisor is not None else lab.wait_until
        wait("every operation's outcome is known",
             lambda: self.check() or not any(w.is_alive() for w in self.writers), seconds, 0.01)
        self.check()

    def give_up(self):
        self.stopping.set()
        self.given_up.set()
        for writer in self.writers:
            if writer.ident is not None:
                writer.join(2 * self.patience)

    def done(self):
        return [done for writer in self.writers for done in writer.done]

    def counts(self):
        return sum((writer.counts for writer in self.writers), collections.Counter())

    def gap(self, since=0.0):
        """The longest time between two acknowledgements, in seconds."""
        ends = sorted(done.end for done in self.done() if done.end >= since)
        return max((b - a for a, b in zip(ends, ends[1:])), default=0.0)

    def expected(self):
        """channel -> the UIDs it must hold."""
        found = {}
        for writer in self.writers:
            for channel, uids in writer.mine.items():
                found.setdefault(channel, set()).update(uids)
        return found
