# SPDX-License-Identifier: BSD-3-Clause
"""Faults at random, one after the other, each healed before the next: the load must go on after each."""
import collections
import time

import lab


class Chaos:
    """go() for some seconds. Run by the test's main thread."""

    def __init__(self, run, group, load, voters):
        self.run, self.group, self.load, self.voters = run, group, load, voters
        self.random = run.random
        self.supervisor = group.supervise()
        self.counts = collections.Counter()
        self.slowest = 0.0

    def pause(self, longest):
        """Lets the fault last."""
        end = time.monotonic() + self.random.random() * longest
        self.supervisor.watch("the fault has lasted", lambda: self.load.check() or
                              time.monotonic() >= end, longest + 5, 0.02)

    def follower(self, leader):
        return self.random.choice([n for n in self.group.nodes if n is not leader])

    def restart(self, *nodes):
        for node in nodes:
            node.start()
            self.supervisor.held.discard(node)

    def kill(self, *nodes):
        self.supervisor.held.update(nodes)
        for node in nodes:
            node.kill()

    # -- the kinds

    def kill_leader(self, leader):
        self.kill(leader)
        self.pause(1.5)
        self.restart(leader)

    def kill_follower(self, leader):
        node = self.follower(leader)
        self.kill(node)
        self.pause(1.5)
        self.restart(node)

    def cut_leader(self, leader):
        self.group.network.link(leader.number, False)
        self.pause(3)

    def cut_one_way(self, leader):
        victim = self.random.choice((leader, self.follower(leader)))
        self.random.choice((self.group.network.mute, self.group.network.deafen))(victim.number)
        self.pause(3)

    def split_in_two(self, _):
        nodes = [n.number for n in self.group.nodes]
        self.random.shuffle(nodes)
        at = self.random.randrange(1, len(nodes))
        self.group.network.split(nodes[:at], nodes[at:])
        self.pause(3)

    def freeze(self, leader):
        victim = self.random.choice((leader, leader, self.follower(leader)))
        victim.pause()
        self.pause(2)
        victim.resume()

    def cut_leader_kill_other(self, leader):
        node = self.follower(leader)
        self.group.network.link(leader.number, False)
        self.kill(node)
        self.pause(1.5)
        self.restart(node)

    KINDS = (kill_leader, kill_follower, cut_leader, cut_one_way, split_in_two, freeze,
             cut_leader_kill_other)

    # -- the run

    def one(self):
        leader = self.supervisor.watch("a leader", self.group.leader, 30)
        kind = self.random.choice(self.KINDS)
        kind(self, leader)
        self.group.network.heal()
        self.counts[kind.__name__] += 1
        started = time.monotonic()
        self.load.wait_more(self.random.randint(len(self.load.writers), 100), 60, self.supervisor)
        self.slowest = max(self.slowest, time.monotonic() - started)

    def go(self, seconds):
        started = told = time.monotonic()
        while time.monotonic() - started < seconds:
            self.one()
            if time.monotonic() - told > 30:
                told = time.monotonic()
                lab.say("%d faults, %d acknowledged" % (sum(self.counts.values()), self.load.total()))

    def told(self):
        return "%d faults (%s), slowest to go on after one %.2f s; restarts by themselves: %s" % (
            sum(self.counts.values()), ", ".join("%d %s" % (n, k) for k, n in sorted(self.counts.items())),
            self.slowest, dict(collections.Counter(self.supervisor.restarts)) or 0)
