#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The daemon with one, two and four workers on whatever cores there are.

    workers_test.py BUILD_DIR

Publishes to many channels; every online member's session must get each message once, the messages of a
channel in the order they were published, and several workers must have handed datagrams to each other.
"""
import collections
import contextlib
import os
import sys
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import lab

GATEWAYS = 6
CHANNELS = 200
UIDS = 240
MEMBERS = 12
ROUNDS = 5
SIZES = (0, 64, 900, 3000)
TYPE = 2


def channel(number):
    return "room-%d" % number


def members(number):
    return ["user-%d" % ((number * 7 + i * 19) % UIDS) for i in range(MEMBERS)]


def gateway_of(uid):
    """Every fifth UID is offline."""
    number = int(uid.split("-")[1])
    return None if number % 5 == 0 else number % GATEWAYS


class Run:
    def __init__(self, stack, build, workers):
        self.lab = lab.Lab(stack, build, "tcw", options={"workers": {"count": workers}})
        self.outcomes = {}
        self.news = threading.Condition()
        self.order = collections.defaultdict(list)  # channel -> its message ids, as published
        self.workers = workers

    def on_line(self, line):
        if not line.startswith("out "):
            return False
        _, message, status, count, _, _, _, _ = line.split()
        with self.news:
            twice = int(message) in self.outcomes
            self.outcomes[int(message)] = ("twice" if twice else status, int(count))
            self.news.notify_all()
        return True

    def prepare(self):
        node = self.lab.node
        node.start()
        node.bootstrap()
        node.wait_ready(30)
        with node.meta() as meta:
            for number in range(CHANNELS):
                answer = meta.call("channel.add", type=TYPE, channel=channel(number),
                                   uids=members(number))
                if not answer["ok"] or answer["members"] != MEMBERS:
                    raise lab.Failure("channel.add: %s" % answer)
        self.gateways = [self.lab.client("gw%d" % i, "demo_gateway", 100 + i)
                         for i in range(GATEWAYS)]
        for i, gateway in enumerate(self.gateways):
            gateway.ask("receipts on", "ok")
            mine = [u for u in ("user-%d" % n for n in range(UIDS)) if gateway_of(u) == i]
            self.lab.open_sessions(gateway, mine)
        for gateway in self.gateways:
            gateway.expect("opened", 30)
        self.publisher = self.lab.client("publisher", "demo_publisher", 50)
        self.publisher.on_line = self.on_line
        self.publisher.ask("window 64", "ok")

    def publish(self):
        message = 0
        for turn in range(ROUNDS):
            for number in range(CHANNELS):
                message += 1
                self.order[channel(number)].append(message)
                self.publisher.send("pub %d %s %d %s %d" % (
                    message, ("gateway", "client")[turn % 2], TYPE, channel(number),
                    SIZES[(turn + number) % len(SIZES)]))

        def all_out():
            self.lab.node.check_alive()
            return len(self.outcomes) == message
        lab.wait_until("%d outcomes" % message, all_out, 60)
        bad = {m: o for m, o in self.outcomes.items() if o != ("ok", MEMBERS)}
        if bad:
            raise lab.Failure("outcomes other than ok for %d members: %s" % (
                MEMBERS, list(bad.items())[:5]))

    def collect(self):
        """(channel, uid) -> message ids in the order of arrival."""
        online = sum(gateway_of(u) is not None for n in range(CHANNELS) for u in members(n))
        expected = ROUNDS * online
        lab.wait_until("%d deliveries" % expected, lambda: sum(
            g.stats()["delivered"] for g in self.gateways) >= expected, 30)
        arrived = collections.defaultdict(list)
        for gateway in self.gateways:
            gateway.ask("flush", "flushed")
            if gateway.stats()["bad_payload"] != 0:
                raise lab.Failure("%s got payloads that nobody published" % gateway.name)
            with open(self.lab.delivery_log(gateway.name), encoding="utf-8") as log:
                for line in log:
                    _, message, _, where, uid, _, late = line.split()
                    arrived[where, uid].append((int(message), late != "0"))
        return arrived

    def check_queues(self):
        """Every place where work crosses threads is told, as it is: idle now, with its rates."""
        answer = self.lab.node.ask("show", "queues")
        names = answer["columns"]
        rows = {row[names.index("queue")]: dict(zip(names, row)) for row in answer["rows"]}
        wanted = {"requests", "replies", "events", "commands"}
        if self.workers > 1:
            wanted.add("handoff")
        if not wanted <= set(rows) or set(rows) - wanted - {"frames"}:
            raise lab.Failure("queues: %s" % sorted(rows))
        fields = answer["fields"]
        if fields["total"] != len(rows) or sum(fields[level] for level in (
                "ok", "busy", "degraded", "critical")) != len(rows):
            raise lab.Failure("the summary does not fit the rows: %s" % fields)
        for row in rows.values():
            if row["depth"] > row["capacity"] or not 0 <= row["score"] <= 1 or row["workers"] != 0:
                raise lab.Failure("a queue is told wrong: %s" % row)
            if row["wait_p99_ms"] is not None:
                raise lab.Failure("a lane has no times: %s" % row)
        if not rows["requests"]["full"] == rows["replies"]["full"] == 0:
            raise lab.Failure("something was refused: %s" % rows)
        code, out = self.lab.node.ctl("--window", "1", "show", "queues")
        if code != 65 or "2 to 120" not in out:
            raise lab.Failure("a window of 1 second: %d %s" % (code, out))

    def judge(self, arrived):
        wanted = {(channel(n), uid) for n in range(CHANNELS) for uid in members(n)
                  if gateway_of(uid) is not None}
        if set(arrived) != wanted:
            raise lab.Failure("missing %s, unwanted %s" % (
                sorted(wanted - set(arrived))[:5], sorted(set(arrived) - wanted)[:5]))
        for (where, uid), got in arrived.items():
            if sorted(m for m, _ in got) != self.order[where]:
                raise lab.Failure("%s of %s got %s, not %s" % (uid, where, got, self.order[where]))
            on_time = [m for m, late in got if not late]
            if on_time != sorted(on_time):
                raise lab.Failure("%s of %s got them out of order: %s" % (uid, where, got))
        counters = self.lab.node.drops()
        handed = counters["handoff"]
        if (handed > 0) != (self.workers > 1):
            raise lab.Failure("%d workers handed over %d datagrams" % (self.workers, handed))
        workers = self.lab.node.ask("show", "workers")["rows"]
        if len(workers) != self.workers or not all(row[2] > 0 for row in workers):
            raise lab.Failure("a worker was never busy: %s" % workers)
        self.check_queues()
        lab.say("%d workers: %d messages, %d deliveries, %d handed over" % (
            self.workers, len(self.outcomes), sum(map(len, arrived.values())), handed))


def work(_):
    build = os.path.abspath(sys.argv[1])
    lab.check(build)
    for workers in (1, 2, 4):
        with contextlib.ExitStack() as stack:
            run = Run(stack, build, workers)
            run.prepare()
            run.publish()
            run.judge(run.collect())


if __name__ == "__main__":
    sys.exit(lab.main("workers_test", work))
