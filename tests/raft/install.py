#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Whole states to new nodes (F13, F14): the loop stays quick on both sides, and what interrupts it is
made good."""
import os
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import lab
import raft_check
import raft_lab
from raft_load import Load

ROWS_A_CHANNEL = 1000
TURN_MAX_US = raft_lab.HEARTBEAT_MS * 1000 // 2


def fill(run, group, node, rows, first=0):
    """tagcastctl import of that many rows. Returns: rows a second, end to end."""
    ctl = os.path.join(run.build, "app/tagcastctl/tagcastctl")
    path = os.path.join(group.dir, "rows")
    with open(path, "w", encoding="ascii") as out:
        for start in range(first, first + rows, ROWS_A_CHANNEL):
            channel = start // ROWS_A_CHANNEL
            out.write("".join("2\troom-%d\tu%08d\n" % (channel, start + i) for i in range(
                min(ROWS_A_CHANNEL, first + rows - start))))
    started = time.monotonic()
    done = subprocess.run([ctl, "--run-dir", node.run_dir, "import", path], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False, timeout=900)
    took = time.monotonic() - started
    os.unlink(path)
    if done.returncode != 0:
        raise lab.Failure("import: %d, %s" % (done.returncode, done.stdout[-1000:]))
    return rows / took


def snapshot_now(group, load=None, seconds=300):
    """Until the leader has a snapshot of what it has now; entries are what brings one about."""
    leader = group.wait_leader()
    want = leader.status()["log_applied"]
    count = 0

    def taken():
        nonlocal count
        if load is None:
            for _ in range(50):
                count += 1
                leader.ask("channel.add", type=2, channel="tick", uids=["t%d" % count])
        else:
            load.check()
        return leader.status()["log_snapshot"] >= want
    lab.wait_until("a snapshot", taken, seconds, 0.02)
    return leader


def turns(nodes):
    for node in nodes:
        status = node.status()
        lab.say("%s: longest turn %.1f ms CPU, %.1f ms wall (%s %.1f ms), %d of %d over the limit; peak "
                "%.0f MB" % (node.name, status["turn_max_cpu_us"] / 1e3, status["turn_max_wall_us"] / 1e3,
                             status["turn_max_part"], status["turn_max_part_us"] / 1e3,
                             status["turns_over_limit"], status["turns"], node.rss_bytes(True) / 1e6))


def quantile(load, since, part):
    took = sorted(d.end - d.start for d in load.done() if d.start >= since)
    return took[min(len(took) - 1, int(len(took) * part))] if took else 0.0


def f13_install(run):
    """200 k rows (full: 10 M): import, snapshot, install on a new node under load, restart."""
    rows = run.count(200000, 10000000)
    group = run.group(disk_bytes=None, options=[
        "--snapshot-entries", "2048" if run.full else "256", "--snapshot-trailing", "64", "--map-size",
        str(32 << 30), "--answer-wait-ms", "20000"]).grow(2)
    leader = group.wait_leader()
    lab.say("import of %d rows: %.0f rows/s" % (rows, fill(run, group, leader, rows)))
    started = time.monotonic()
    load = Load(run.stack, group.nodes[:2], writers=4, seed=run.seed, pause=0.002, channels=4).start()
    leader = snapshot_now(group, load)
    lab.say("the next snapshot under load: there after %.2f s, %.1f MB; live p99 %.1f ms, longest gap %.3f s" % (
        time.monotonic() - started, leader.status()["snapshot_bytes"] / 1e6,
        1e3 * quantile(load, started, 0.99), load.gap(started)))
    fresh = group.add().start()
    fresh.wait_state("waiting")
    started = time.monotonic()
    fresh.ask("meta.join", 120, via=leader.address)
    commit = leader.status()["commit"]
    lab.wait_until("%s has it all" % fresh.name,
                   lambda: load.check() or (fresh.status() or {}).get("commit", 0) >= commit, 600, 0.05)
    lab.say("install on a new node under load: %.2f s; live p99 %.1f ms, longest gap %.3f s" % (
        time.monotonic() - started, 1e3 * quantile(load, started, 0.99), load.gap(started)))
    if fresh.status()["restores"] == 0:
        raise lab.Failure("it was not a snapshot that brought it there")
    group.promote(fresh, leader, 120)
    load.stop()
    group.wait_equal(120)
    turns(group.nodes)
    over = [n.name for n in group.nodes if n.status()["turn_max_cpu_us"] > TURN_MAX_US]
    fresh.kill()
    started = time.monotonic()
    fresh.start()
    fresh.wait_state("ready", 300)
    lab.say("restart of a node with %d rows: ready after %.2f s" % (rows, time.monotonic() - started))
    turns([fresh])
    raft_check.judge(group, load, alone=False, seconds=120)
    if over:
        raise lab.Failure("turns over %d ms of CPU: %s" % (TURN_MAX_US // 1000, over))


def f14_install_interrupted(run):
    """The receiver or the sender of a state is killed, or leadership moves, at any moment of it."""
    group = run.group(options=["--snapshot-entries", "512", "--snapshot-trailing", "32",
                               "--answer-wait-ms", "20000"]).grow(3)
    leader = group.wait_leader()
    lab.say("import: %.0f rows/s" % fill(run, group, leader, run.count(100000, 1000000)))
    load = Load(run.stack, group.nodes[:3], writers=4, seed=run.seed, pause=0.002, channels=4).start()
    snapshot_now(group, load)
    supervisor = group.supervise()
    kinds = ("receiver", "sender", "leadership", "receiver", "sender", "cut")
    for number, kind in enumerate(kinds[:6 if run.full else 4]):
        fresh = group.add().start()
        fresh.wait_state("waiting")
        leader = supervisor.watch("a leader", group.leader, 30)
        # A voter that was just started again counts as silent for a moment.
        supervisor.watch("it may join", lambda f=fresh, at=leader: f.call(
            "meta.join", 60, via=at.address)["ok"], 20, 0.1)
        delay = run.random.random() * 0.25
        end = time.monotonic() + delay
        supervisor.watch("it is under way", lambda e=end: time.monotonic() >= e, 5, 0.002)
        restores = (fresh.status() or {}).get("restores", 0)
        interrupt(group, leader, fresh, kind)
        commit = supervisor.watch("a leader", group.leader, 30).status()["commit"]
        started = time.monotonic()
        supervisor.watch("%s has it all" % fresh.name, lambda f=fresh, c=commit: load.check() or (
            (f.status() or {}).get("commit", 0) >= c), 90)
        lab.say("round %d: %s after %.3f s (restores so far: %d): there after %.2f s" % (
            number, kind, delay, restores, time.monotonic() - started))
        load.wait_more(20, 60, supervisor)
    load.stop(60, supervisor)
    supervisor.watch("all run", lambda: all(n.running() for n in group.nodes), 30)
    raft_check.judge(group, load, alone=False, seconds=120)


def interrupt(group, leader, fresh, kind):
    if kind == "receiver":
        fresh.kill()
        fresh.start()
    elif kind == "sender":
        leader.kill()
        leader.start()
    elif kind == "leadership":
        leader.call("meta.transfer", 30)
    else:
        group.network.cut_both(leader.number, fresh.number)
        time.sleep(1)  # the fault
        group.network.heal()


if __name__ == "__main__":
    sys.exit(raft_lab.run_test({f.__name__: f for f in (f13_install, f14_install_interrupted)}, __doc__,
                               sys.argv[1:]))
