#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Changes of the members of a group, also of dead ones, under load and at the worst moment (F6, F8, F11,
F12)."""
import collections
import os
import shutil
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import lab
import raft_check
import raft_lab
from raft_load import Load


def roles(node):
    return {i: m["role"] for i, m in node.members().items()}


def wait_roles(group, expected, nodes=None, seconds=30):
    nodes = nodes or [node for node in group.nodes if node.running()]
    lab.wait_until("members are %s: %s" % (expected, [roles(n) for n in nodes]),
                   lambda: all(roles(n) == expected for n in nodes), seconds)


def change(at, cmd, **arguments):
    """Returns: seconds it took; it must succeed."""
    started = time.monotonic()
    at.ask(cmd, 40, **arguments)
    return time.monotonic() - started


def refused(at, cmd, **arguments):
    """Returns: (seconds, answer); it must be refused."""
    started = time.monotonic()
    answer = at.call(cmd, 40, **arguments)
    if answer["ok"]:
        raise lab.Failure("%s %s was not refused" % (cmd, arguments))
    return time.monotonic() - started, answer


def f06_uncommitted_change(run):
    """A leader writes a change of members that nobody gets, another is elected: the old one comes back with
    the configuration of the others, within two restarts."""
    group = run.group(options=["--snapshot-entries", "256", "--snapshot-trailing", "32"])
    group.grow(3, 1)
    load = Load(run.stack, group.nodes, writers=6, seed=run.seed, pause=0.001).start()
    supervisor = group.supervise()
    supervisor_strict(supervisor)
    lab_wait_snapshots(group, load, supervisor)
    expected, shown, told = roles(group.nodes[0]), 0, collections.Counter()
    for number in range(run.count(4, 30)):
        leader = supervisor.watch("a leader", group.leader, 30)
        starts, last = leader.starts, leader.status()["log_last"]
        with leader.control(40) as control:
            control.call("meta.status")
            group.network.mute(leader.number)
            others = [n for n in group.nodes[:3] if n is not leader]
            control.send("meta.demote", node=others[0].node_id)
            supervisor.watch("another leads", lambda: group.leader(others), 30)
            # Its outcome is known before the heal, or it would be done then, at the new leader.
            told[outcome(control)] += 1
        load.wait_more(20, 60, supervisor)
        group.network.heal()
        supervisor.watch("%s is back" % leader.name, lambda: (leader.status() or {}).get("state") == "ready", 30)
        load.wait_more(20, 60, supervisor)
        try:
            supervisor.watch("the configuration is that of the others", lambda: load.check() or (
                leader.running() and leader.status() and roles(leader) == expected), 15)
        except lab.Failure as problem:
            raise lab.Failure("round %d: %s: members at %s are %s, the log was at %d, restarts %s" % (
                number, problem, leader.name, roles(leader), last, supervisor.restarts)) from None
        restarts = leader.starts - starts
        if restarts > 2:
            raise lab.Failure("%s needed %d restarts" % (leader.name, restarts))
        shown += restarts > 0
    load.stop(60, supervisor)
    wait_roles(group, expected)
    raft_check.judge(group, load)
    lab.say("%d rounds, %d of them with a restart of the old leader; members stayed; it was told: %s; restarts: %s" % (
        run.count(4, 30), shown, dict(told), supervisor.restarts))
    if shown == 0:
        raise lab.Failure("no change ever reached the log of the cut-off leader: nothing was shown")


def outcome(control):
    """What a cut-off leader says of a change; None when it ended over it."""
    try:
        answer = control.receive("meta.demote")
    except lab.Unreachable:
        return None
    if answer["ok"]:
        raise lab.Failure("a change without a majority was done: %s" % answer)
    return answer["error"]


def supervisor_strict(supervisor):
    supervisor.backoff = 0.05


def lab_wait_snapshots(group, load, supervisor):
    """Until every node has taken a snapshot."""
    supervisor.watch("every node has a snapshot", lambda: load.check() or all(
        (n.status() or {}).get("log_snapshot", 0) > 0 for n in group.nodes), 120)


def f08_members(run):
    """Add, promote (alive, dead, behind a snapshot), demote, remove, remove the leader, two at once: under
    load, with what each costs the writers."""
    group = run.group(options=["--snapshot-entries", "512", "--snapshot-trailing", "64"])
    group.grow(3)
    load = Load(run.stack, group.nodes[:3], writers=8, seed=run.seed, pause=0.001).start()

    def told(what, took, since):
        load.wait_more(20)
        lab.say("%s: %.3f s, longest gap %.3f s" % (what, took, load.gap(since)))

    lab.wait_until("a snapshot", lambda: load.check() or group.nodes[0].status()["log_snapshot"] > 0, 60)
    leader, since = group.wait_leader(), time.monotonic()
    standby = group.add().start()
    standby.wait_state("waiting")
    group.join(standby, leader, promote=False)
    told("add a standby that is behind a snapshot", time.monotonic() - since, since)
    since = time.monotonic()
    group.promote(standby, leader)
    told("promote it", time.monotonic() - since, since)
    since = time.monotonic()
    told("demote it", change(leader, "meta.demote", node=4), since)
    standby.kill()
    since = time.monotonic()
    took, answer = refused(leader, "meta.promote", node=4)
    told("promote it while it is dead: refused (%s)" % answer.get("message", answer["error"]), took, since)
    standby.start()
    standby.wait_state("ready")
    two_at_once(group, leader, load)
    since = time.monotonic()
    told("remove the standby", change(leader, "meta.remove", node=4), since)
    standby.kill()
    remove_the_leader(group, load, told)
    load.stop()
    raft_check.judge(group, load, [n for n in group.nodes if n.running()])


def two_at_once(group, leader, load):
    """The second of two changes is refused, or waits; never both half."""
    with leader.control(40) as one, leader.control(40) as two:
        one.send("meta.promote", node=4)
        two.send("meta.demote", node=next(
            n.node_id for n in group.nodes[:3] if n is not leader))
        answers = [one.receive("meta.promote"), two.receive("meta.demote")]
    load.wait_more(20)
    members = roles(leader)
    lab.say("two changes at once: %s" % [a["ok"] or a["error"] for a in answers])
    voters = [i for i, role in members.items() if role == "voter"]
    expected = 3 + answers[0]["ok"] - answers[1]["ok"]
    if len(voters) != expected:
        raise lab.Failure("%s gave %s" % (answers, members))
    for node_id, role in members.items():
        if role == "voter" and node_id == 4:
            leader.ask("meta.demote", 40, node=4)
        elif role != "voter" and node_id != 4:
            group.promote(group.node(node_id), leader)


def remove_the_leader(group, load, told):
    leader = group.wait_leader()
    others = [n for n in group.nodes[:3] if n is not leader]
    fourth = group.add(number=5)
    group.join(fourth, leader)
    since = time.monotonic()
    answer = others[0].call("meta.remove", 40, node=leader.node_id)
    if not answer["ok"] and answer["error"] != "unknown_outcome":
        raise lab.Failure("removing the leader: %s" % answer)
    load.nodes = others
    group.wait_leader(30, others + [fourth])
    told("remove the leader (%s)" % (answer["ok"] or answer["error"]), time.monotonic() - since, since)
    lab.wait_until("the leader is no member", lambda: leader.node_id not in roles(others[0]), 20)
    leader.kill()


def f11_old_id(run):
    """A disk is replaced: the id that was on it cannot come back, not as itself and not after its removal.
    A new id joins."""
    group = run.group().grow(3)
    load = Load(run.stack, group.nodes, writers=4, seed=run.seed, pause=0.002).start()
    load.wait_more(50)
    leader = group.wait_leader()
    lost = next(n for n in group.nodes if n is not leader)
    load.nodes = [n for n in group.nodes if n is not lost]
    lost.kill()
    lost.wipe()
    lost.start()
    lost.wait_state("waiting")
    _, answer = refused(lost, "meta.join", via=leader.address)
    lab.say("a member's id with an empty disk: %s" % answer.get("message", answer))
    load.wait_more(50)
    change(leader, "meta.remove", node=lost.node_id)
    _, answer = refused(lost, "meta.join", via=leader.address)
    lab.say("the same after its removal: %s" % answer.get("message", answer))
    lost.kill()
    started = time.monotonic()
    fresh = group.add(number=lost.number, node_id=9)
    group.join(fresh, leader)
    lab.say("a new id is voter after %.3f s" % (time.monotonic() - started))
    load.wait_more(50)
    load.stop()
    raft_check.judge(group, load, [n for n in group.nodes if n.running()])


def f12_bootstrap_twice(run):
    """A member is not bootstrapped again. One that lost its disk and is, is no part of the old group: it
    gives it no majority."""
    group = run.group().grow(3)
    leader = group.wait_leader()
    leader.ask("channel.add", type=2, channel="b", uids=["one"])
    for node in group.nodes:
        _, answer = refused(node, "meta.bootstrap")
        if answer["error"] != "already_member":
            raise lab.Failure("%s: %s" % (node.name, answer))
    group.wait_equal()
    lost, third = [n for n in group.nodes if n is not leader]
    lost.kill()
    lost.wipe()
    lost.start()
    lost.wait_state("waiting")
    lost.ask("meta.bootstrap")
    lost.wait_state("ready")
    leader.ask("channel.add", type=2, channel="b", uids=["two"])
    third.kill()
    lab.wait_until("a leader without a majority steps down",
                   lambda: leader.status()["leader"] != leader.node_id, 20)
    answer = leader.call("channel.add", type=2, channel="b", uids=["three"])
    if answer["ok"]:
        raise lab.Failure("a node without memory made a majority: %s" % answer)
    third.start()
    group.wait_leader(30, [leader, third])
    leader.ask("channel.add", type=2, channel="b", uids=["four"])
    with lost.control() as control:
        found = raft_check.members(control, "b")
    if found:
        raise lab.Failure("the node without memory has members of the old group: %s" % found)
    group.wait_equal(30, [leader, third])
    raft_check.digests([leader, third])
    lab.say("bootstrapping again: refused; with an empty disk: a group of its own that the old one ignores")


def two_groups_one_folder(run):
    """A second process on a folder in use is refused and disturbs nothing."""
    group = run.group().grow(1)
    node = group.nodes[0]
    node.ask("channel.add", type=2, channel="b", uids=["one"])
    twin = raft_lab.RaftNode(group, 1, node_id=99)
    twin.node_id, twin.data_dir = node.node_id, node.data_dir
    twin.start()
    code = twin.wait_exit(10)
    if code != 75:
        raise lab.Failure("the second process ended with %d\n%s" % (code, twin.log_tail()))
    node.ask("channel.add", type=2, channel="b", uids=["two"])
    node.kill()
    shutil.rmtree(twin.dir)
    node.start()
    node.wait_state("ready")


if __name__ == "__main__":
    sys.exit(raft_lab.run_test({f.__name__: f for f in (
        f06_uncommitted_change, f08_members, f11_old_id, f12_bootstrap_twice, two_groups_one_folder)},
        __doc__, sys.argv[1:]))
