#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Versions of channels (SMV): one for each change that changed something, given once, never going back."""
import collections
import os
import sys
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import lab
import raft_check
import raft_lab
from raft_load import Load

CHANNELS = 10


def versions_under_kills(run):
    """64 writers at three nodes on ten channels while leaders are killed: the last version of a channel is
    the number of changes, each acknowledged with another one."""
    group = run.group().grow(3)
    load = Load(run.stack, group.nodes, writers=64, channels=CHANNELS, seed=run.seed, pause=0.001,
                patience=20).start()
    supervisor = group.supervise()
    kills = run.count(4, 30)
    for _ in range(kills):
        load.wait_more(150, 60, supervisor)
        leader = supervisor.watch("a leader", group.leader, 30)
        supervisor.held.add(leader)
        leader.kill()
        others = [n for n in group.nodes if n is not leader]
        supervisor.watch("another leads", lambda o=others: group.leader(o), 30)
        load.wait_more(100, 60, supervisor)
        leader.start()
        supervisor.held.discard(leader)
    load.stop(90, supervisor)
    raft_check.judge(group, load)
    judge_versions(group, load)
    lab.say("64 writers, %d leaders killed" % kills)


def judge_versions(group, load):
    by_channel = collections.defaultdict(list)
    for done in load.done():
        by_channel[done.channel].append(done.smv)
    for node in group.nodes:
        for channel, versions in by_channel.items():
            fields = node.ask("channel.show", type=2, channel=channel)["fields"]
            if sorted(versions) != list(range(1, len(versions) + 1)) or fields["smv"] != len(versions):
                raise lab.Failure("%s, %s: version %d, %d changes, %d distinct" % (
                    node.name, channel, fields["smv"], len(versions), len(set(versions))))
    lab.say("%d channels, %d changes: each channel's version is the number of its changes, each was told "
            "once" % (len(by_channel), sum(map(len, by_channel.values()))))


def versions_after_removal(run):
    """A channel that was removed and is made again goes on from its old version, also after a restart, a
    change of leader and a snapshot."""
    group = run.group(options=["--snapshot-entries", "64", "--snapshot-trailing", "16"]).grow(3)
    leader = group.wait_leader()
    smv = 0
    for step in range(run.count(6, 60)):
        for number in range(12):
            answer = leader.ask("channel.add", type=2, channel="again", uids=["u%d" % number])
            smv += 1
            if answer["smv"] != smv:
                raise lab.Failure("step %d: version %d, expected %d" % (step, answer["smv"], smv))
        answer = leader.ask("channel.delete", type=2, channel="again")
        smv += 1
        if answer["smv"] != smv:
            raise lab.Failure("step %d: removed at version %d, expected %d" % (step, answer["smv"], smv))
        if step % 3 == 0:
            leader.kill()
            old, leader = leader, group.wait_leader(but=leader)
            old.start()
            old.wait_state("ready")
        elif step % 3 == 1:
            group.wait_equal()
            for node in group.nodes:
                node.kill()
            for node in group.nodes:
                node.start()
            leader = group.wait_leader()
    group.wait_equal()
    raft_check.digests(group.nodes)
    lab.say("removed and made again %d times: version %d on %d nodes" % (
        run.count(6, 60), smv, len(group.nodes)))


def no_change_moves_nothing(run):
    """What changes nothing says so, takes no version and no commit number, whoever asks at the same time."""
    group = run.group().grow(3)
    answers, problems = [], []

    def same(node):
        try:
            with node.control() as control:
                for _ in range(50):
                    answers.append(control.call("channel.add", type=2, channel="same", uids=["x"]))
        except Exception as problem:  # handed to the main thread
            problems.append(problem)
    threads = [threading.Thread(target=same, args=(node,)) for node in group.nodes * 3]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
    bad = [a for a in answers if not a["ok"]]
    changed = [a for a in answers if a["ok"] and a["changed"]]
    if bad or len(changed) != 1 or {a["smv"] for a in answers} != {1} or {a["commit"] for a in answers} != {1}:
        raise lab.Failure("%d changed it; %s" % (len(changed), (bad or answers)[0]))
    group.wait_equal()
    if group.nodes[0].status()["commit"] != 1:
        raise lab.Failure("commit %s after one change" % group.positions(group.nodes))
    lab.say("%d equal changes at three nodes: one changed, version 1, commit 1" % len(answers))


if __name__ == "__main__":
    sys.exit(raft_lab.run_test({f.__name__: f for f in (
        versions_under_kills, versions_after_removal, no_change_moves_nothing)}, __doc__, sys.argv[1:]))
