#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""kill -9 under load: nothing acknowledged is lost, nobody differs (F3, F17, F24, F25), and how soon another
leads."""
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import lab
import raft_check
import raft_lab
from raft_load import Load


def victims(run, group, leader):
    """One, a pair or all; the leader often, because it is the one that hurts."""
    choice = run.random.random()
    if choice < 0.1:
        return list(group.nodes)
    if choice < 0.3:
        return run.random.sample(group.nodes, 2)
    if choice < 0.65 and leader is not None:
        return [leader]
    return [run.random.choice(group.nodes)]


def storm(run, group, kills):
    """Kills and restarts under load; judges at the end."""
    load = Load(run.stack, group.nodes, writers=12, seed=run.seed).start()
    supervisor = group.supervise()
    killed = 0
    while killed < kills:
        load.wait_more(run.random.randint(5, 200), 60, supervisor)
        doomed = victims(run, group, group.leader())
        supervisor.held.update(doomed)
        for node in doomed:
            node.kill()
        killed += len(doomed)
        alive = [node for node in group.nodes if node not in doomed]
        if run.random.random() < 0.5 and sum(n.node_id <= group.voters for n in alive) > group.voters // 2:
            load.wait_more(10, 60, supervisor)  # the others go on
        else:
            load.stopping.wait(run.random.random() * 0.5)
        for node in doomed:
            node.start()
        supervisor.held.difference_update(doomed)
        if killed % 20 < len(doomed):
            lab.say("%d kills, %d acknowledged" % (killed, load.total()))
    load.wait_more(50, 60, supervisor)
    load.stop(60, supervisor)
    supervisor.watch("all nodes run", lambda: all(n.running() for n in group.nodes), 30)
    raft_check.judge(group, load)
    lab.say("%d kills, seed %d, restarts beside them: %s" % (killed, run.seed, supervisor.restarts or 0))


def f03_kills(run):
    """Three voters and a standby, or --voters 5."""
    group = run.group(disk_bytes=None)
    group.voters = run.args.voters or 3
    group.grow(group.voters, 1 if group.voters == 3 else 0)
    storm(run, group, run.count(12, 200))


def f03_kills_snapshots(run):
    """The same with a snapshot every 256 entries, so that kills meet snapshots and installs."""
    group = run.group(options=["--snapshot-entries", "256", "--snapshot-trailing", "64"])
    group.voters = run.args.voters or 3
    group.grow(group.voters, 1)
    storm(run, group, run.count(12, 200))
    taken = [node.status()["log_snapshot"] for node in group.nodes]
    if not any(taken):
        raise lab.Failure("no snapshot was taken")
    lab.say("snapshots at log index %s" % taken)


def f25_kills_sanitized(run):
    """F3 with a tagcast-metad that was built with sanitizers (--metad)."""
    if not run.args.metad:
        raise lab.Failure("--metad: a tagcast-metad built with sanitizers")
    with open(run.args.metad, "rb") as program:
        if b"AddressSanitizer" not in program.read():
            raise lab.Failure("%s was built without sanitizers" % run.args.metad)
    group = run.group()
    group.voters = 3
    group.grow(3, 1)
    storm(run, group, run.count(8, 60))


def election_after_kill(run):
    """The leader is killed again and again: until another leads, and until a change is acknowledged."""
    group = run.group(disk_bytes=None).grow(3)
    elected, written = [], []
    rounds = run.count(6, 20)
    for number in range(rounds):
        group.wait_equal()
        leader = group.wait_leader()
        others = [node for node in group.nodes if node is not leader]
        with raft_lab.Eyes(others) as eyes:
            for node in others:
                eyes.look(node)
            started = time.monotonic()
            leader.kill()
            winner, took = eyes.wait_leader(but=leader)
            elected.append(took)
            winner.ask("channel.add", type=2, channel="e", uids=["u%d" % number])
            written.append(time.monotonic() - started)
        leader.start()
        leader.wait_state("ready")
    lab.say("election %d ms, heartbeat %d ms, leader killed: another leads: %s; a change is "
            "acknowledged: %s" % (raft_lab.ELECTION_MS, raft_lab.HEARTBEAT_MS, raft_lab.spread(elected),
                                  raft_lab.spread(written)))
    limit = 0.7 if run.full else 2.0
    if raft_lab.median(elected) > limit:
        raise lab.Failure("median %.3f s, over %.1f s: %s" % (
            raft_lab.median(elected), limit, ["%.3f" % t for t in elected]))


def f17_retry_applies_once(run):
    """An entry reaches the others, their answers do not come back: the leader steps down and cannot know.
    The same command at the next leader is recognised."""
    group = run.group().grow(3)
    for number in range(run.count(2, 20)):
        leader = group.wait_leader()
        others = [node for node in group.nodes if node is not leader]
        before = leader.ask("channel.add", type=2, channel="r", uids=["before%d" % number])
        group.wait_equal()
        arguments = dict(type=2, channel="r", uids=["once%d" % number],
                         dedup="%016x%016x" % (before["commit"], run.random.randrange(1 << 64)))
        with leader.control() as control:
            group.network.deafen(leader.number)
            try:
                answer = control.call("channel.add", **arguments)
            except lab.Unreachable as problem:
                answer = {"ok": False, "error": str(problem)}
        if answer["ok"] or answer["error"] != "unknown_outcome":
            raise lab.Failure("a leader that hears nobody answers %s" % answer)
        winner = group.wait_leader(30, others)
        after = winner.ask("channel.add", **arguments)
        if not after["repeated"] or after["smv"] != before["smv"] + 1:
            raise lab.Failure("round %d: %s after %s" % (number, after, before))
        group.network.heal()
        again = leader.ask("channel.add", **arguments)
        if not again["repeated"] or again["smv"] != after["smv"]:
            raise lab.Failure("round %d, at the old leader: %s after %s" % (number, again, after))
        group.wait_equal()
    raft_check.digests(group.nodes)
    lab.say("%d commands of unknown outcome were applied once" % run.count(2, 20))


def f24_graceful_stop(run):
    """SIGTERM to the leader under load: exit 0, and another leads at once."""
    group = run.group().grow(3)
    load = Load(run.stack, group.nodes, writers=6, seed=run.seed, pause=0.002).start()
    taken = []
    for _ in range(10):
        load.wait_more(30)
        leader = group.wait_leader()
        others = [node for node in group.nodes if node is not leader]
        with raft_lab.Eyes(others) as eyes:
            for node in others:
                eyes.look(node)
            leader.process.terminate()
            _, took = eyes.wait_leader(but=leader)
            taken.append(took)
        code = leader.wait_exit(20)
        if code != 0:
            raise lab.Failure("%s stopped with %d\n%s" % (leader.name, code, leader.log_tail()))
        leader.start()
        leader.wait_state("ready")
    load.stop()
    raft_check.judge(group, load)
    lab.say("stopped 10 leaders: exit 0 each; another leads after: %s" % raft_lab.spread(taken))
    limit = 0.1 if run.full else 0.3
    if raft_lab.median(taken) > limit:
        raise lab.Failure("hand-over takes %s" % ["%.3f" % t for t in taken])


if __name__ == "__main__":
    sys.exit(raft_lab.run_test({f.__name__: f for f in (
        f03_kills, f03_kills_snapshots, f25_kills_sanitized, election_after_kill, f17_retry_applies_once, f24_graceful_stop)},
        __doc__, sys.argv[1:]))
