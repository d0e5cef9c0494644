#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Memory under steady load: it must not grow.

    memory_test.py BUILD_DIR [--seconds N]

One publisher, two gateways, a steady rate of messages of every class and of membership changes that undo
each other. An outside sampler reads the resident size of tagcastd and of tagcast-metad from /proc and
jemalloc's allocated bytes from `tagcastctl status`. After the warm-up a line is fitted through each by least
squares; it may not rise by more than 1 % of the mean over the window.

The limits of the node are small, so that everything reserved is in use before the warm-up ends, and the
window is full of messages: growth of some tens of bytes a message fails even the short form (printed).
"""
import argparse
import os
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import lab

TYPE = 2
GATEWAYS, CHANNELS, UIDS, MEMBERS = 2, 40, 400, 50
ACKS = ("none", "gateway", "client")
SIZES = (0, 100, 600, 100, 1300, 100, 5000)
RATE = 500  # messages a second wanted
CHANGES = 150  # membership changes a second wanted
RISE_MAX = 0.01  # of the mean, over the window
WARM_UP_SHARE, WARM_UP_MIN = 0.2, 25
JOURNAL = 1000
WARM_UP_CHANGES = 8 * JOURNAL  # journal, log and snapshots have their full size by then
OPTIONS = {
    "limits": {"channels": 256, "uids": 4096, "gateways": 16, "senders": 64, "messages": 256,
               "parked": 256, "parked_per_channel": 64, "inflight_pushes": 256, "frames": 16,
               "window": 1024, "window_age": "1min", "tag_memory": "4MiB"},
    # The rings between threads are touched item by item, by heartbeats for the most part: small ones soon.
    "workers": {"ring": 64},
    "delivery": {"heartbeat": "500ms", "deadline_max": "1min", "backlog": 256, "push_window": 64},
    "eal": {"memory": "64MiB"},
    "port": {"buffers": 4096, "rx_descriptors": 512, "tx_descriptors": 512},
    # The log since the last snapshot is in memory: snapshots often enough for its full length by then.
    "meta": {"journal_commits": JOURNAL, "dedup_commits": JOURNAL, "map_size": "64MiB",
             "snapshot_entries": 512, "snapshot_trailing": 64},
}


# --- the line ----------------------------------------------------------------------------------------

def fit(samples):
    """Least squares through (seconds, value). Returns: (slope per second, mean)."""
    n = len(samples)
    mean_x = sum(x for x, _ in samples) / n
    mean_y = sum(y for _, y in samples) / n
    spread = sum((x - mean_x) ** 2 for x, _ in samples)
    return sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread, mean_y


def rise(samples):
    """How much the fitted line rises over the samples' time, as a share of their mean."""
    slope, mean = fit(samples)
    return slope * (samples[-1][0] - samples[0][0]) / mean


def check_rise():
    """The rule on series whose answer is known."""
    level = 50e6
    noise = [((i * 7919) % 101 - 50) * 1e4 for i in range(200)]
    for what, share, bad in (("level", 0, False), ("falling", -0.05, False), ("0.8 %", 0.008, False),
                             ("1.2 %", 0.012, True), ("doubling", 1.0, True)):
        series = [(0.5 * i, level * (1 + share * (i / 199 - 0.5)) + noise[i]) for i in range(200)]
        if (rise(series) > RISE_MAX) != bad or abs(rise(series) - share) > 0.002:
            raise lab.Failure("the fit of a series that is %s is wrong: %g" % (what, rise(series)))
    steps = [(float(i), level + (i // 60) * level * 0.005) for i in range(200)]
    if rise(steps) <= RISE_MAX:
        raise lab.Failure("growth in steps is not seen: %g" % rise(steps))


# --- the load ----------------------------------------------------------------------------------------

def members(number):
    return ["user-%d" % ((number * 11 + i * 7) % UIDS) for i in range(MEMBERS)]


class Worker(threading.Thread):
    """Calls `turn(number)` at a steady rate; what is missed is not made up for."""

    def __init__(self, stop, rate, turn):
        super().__init__(daemon=True)
        self.stop, self.rate, self.turn = stop, rate, turn
        self.problem, self.count = None, 0

    def run(self):
        due = time.monotonic()
        try:
            while not self.stop.is_set():
                self.turn(self.count)
                self.count += 1
                due = max(due + 1 / self.rate, time.monotonic() - 0.1)
                self.stop.wait(max(0.0, due - time.monotonic()))
        except Exception as problem:  # handed to the main thread
            self.problem = problem


class Run:
    def __init__(self, stack, build):
        self.lab = lab.Lab(stack, build, "tcm", options=OPTIONS)
        self.node = self.lab.node
        self.stop = threading.Event()
        stack.callback(self.stop.set)
        self.outcomes, self.bad_outcome = 0, None
        self.sent = 0

    def prepare(self):
        self.node.start()
        self.node.bootstrap()
        self.node.wait_ready(30)
        self.meta = self.node.meta()
        for number in range(CHANNELS):
            self.change("reset", number, members(number))
        self.gateways = [self.lab.client("gw%d" % i, "demo_gateway", 100 + i) for i in range(GATEWAYS)]
        for i, gateway in enumerate(self.gateways):
            gateway.ask("receipts on", "ok")
            self.lab.open_sessions(gateway, ["user-%d" % u for u in range(i, UIDS, GATEWAYS)])
        for gateway in self.gateways:
            gateway.expect("opened", 30)
        self.publisher = self.lab.client("publisher", "demo_publisher", 50)
        self.publisher.on_line = self.on_line
        self.publisher.ask("window 64", "ok")
        # Delivery logs would fill the disk: what was delivered is counted.
        self.workers = [Worker(self.stop, RATE, self.publish), Worker(self.stop, CHANGES, self.toggle)]

    def on_line(self, line):
        if not line.startswith("out "):
            return False
        _, _, status, count, _, _, _, _ = line.split()
        self.outcomes += 1
        if status != "ok" or int(count) < MEMBERS - 3:
            self.bad_outcome = self.bad_outcome or line
        return True

    def change(self, op, number, uids):
        answer = self.meta.call("channel." + op, type=TYPE, channel="room-%d" % number, uids=uids)
        if not answer["ok"]:
            raise lab.Failure("channel.%s: %s" % (op, answer))

    def toggle(self, count):
        self.change(("remove", "add")[count % 2], count // 2 % CHANNELS, members(count // 2)[:3])

    def publish(self, count):
        if self.sent - self.outcomes >= 64:
            return  # it does not keep up: less load, never a queue of our own
        self.sent += 1
        self.publisher.send("pub %d %s %d room-%d %d" % (
            self.sent, ACKS[count % 3], TYPE, count % CHANNELS, SIZES[count % len(SIZES)]))

    def check(self):
        self.node.check_alive()
        for worker in self.workers:
            if worker.problem is not None:
                raise worker.problem
        if self.bad_outcome is not None:
            raise lab.Failure("outcome: %s" % self.bad_outcome)

    # -- sampling

    @staticmethod
    def resident(pid):
        with open("/proc/%d/statm" % pid, encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def sample(self):
        status = self.node.status()
        return {"tagcastd resident": self.resident(self.node.process.pid),
                "tagcastd allocated": status["malloc_allocated_bytes"],
                "tagcast-metad resident": self.resident(status["meta_pid"])}

    def measure(self, seconds):
        warm_up = max(WARM_UP_MIN, WARM_UP_SHARE * seconds)
        window = max(seconds - warm_up, 20)
        every = window / 200
        for worker in self.workers:
            worker.start()
        started = time.monotonic()
        while time.monotonic() < started + warm_up or self.workers[1].count < WARM_UP_CHANGES:
            self.check()
            if time.monotonic() > started + warm_up + 90:
                raise lab.Failure("only %d changes in the warm-up" % self.workers[1].count)
            self.stop.wait(0.5)
        warm_up = time.monotonic() - started
        first, sent, samples = time.monotonic(), self.outcomes, {}
        while time.monotonic() < first + window:
            self.check()
            now = time.monotonic()
            for name, value in self.sample().items():
                samples.setdefault(name, []).append((now, value))
            self.stop.wait(max(0.0, now + every - time.monotonic()))
        messages, changes = self.outcomes - sent, self.workers[1].count
        lab.say("warm-up %.0f s, window %.0f s: %d messages, %d samples; %d changes in all" % (
            warm_up, window, messages, len(next(iter(samples.values()))), changes))
        if messages < window * RATE / 10:
            raise lab.Failure("that is no load")
        return samples, messages

    def finish(self):
        self.stop.set()
        for worker in self.workers:
            worker.join(60)
        lab.wait_until("every outcome", lambda: self.outcomes == self.sent, 60)
        self.check()


def report(samples, messages):
    grown = []
    for name, series in samples.items():
        slope, mean = fit(series)
        share = rise(series)
        lab.say("%-22s mean %8.0f KiB, from %8.0f to %8.0f, slope %+8.3f KiB/s, %+.3f %% over the window; "
                "fails at %.0f bytes a message" % (
                    name, mean / 1024, min(y for _, y in series) / 1024, max(y for _, y in series) / 1024,
                    slope / 1024, 100 * share, RISE_MAX * mean / messages))
        if share > RISE_MAX:
            grown.append(name)
    if grown:
        raise lab.Failure("grows by more than %g %%: %s" % (100 * RISE_MAX, ", ".join(grown)))


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("build")
    parser.add_argument("--seconds", type=int, default=60)
    args = parser.parse_args(argv)

    def work(stack):
        build = os.path.abspath(args.build)
        lab.check(build)
        check_rise()
        run = Run(stack, build)
        run.prepare()
        samples, messages = run.measure(args.seconds)
        run.finish()
        report(samples, messages)
    return lab.main("memory_test", work)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
