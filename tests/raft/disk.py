#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Full disks (F9): the node leaves, the others go on, and it is back by itself once there is room. Disks are
tmpfs of a size."""
import os
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import lab
import raft_check
import raft_lab
from raft_load import Load

DISK = 192 << 20
PIECE = 1 << 20


class Filler:
    """Takes all room of a disk, and what becomes free meanwhile."""

    def __init__(self, node, leave=0):
        self.path, self.leave = os.path.join(node.data_dir, "filler"), leave
        self.file = os.open(self.path, os.O_CREAT | os.O_WRONLY, 0o600)
        self.size = 0

    def turn(self):
        while True:
            room = os.statvfs(self.path).f_bavail * os.statvfs(self.path).f_bsize - self.leave
            if room <= 0:
                return
            try:
                os.posix_fallocate(self.file, self.size, min(room, 64 * PIECE))
            except OSError:
                if room <= 4096:
                    return
                room = 4096
                try:
                    os.posix_fallocate(self.file, self.size, room)
                except OSError:
                    return
            self.size = os.fstat(self.file).st_size

    def free(self):
        os.close(self.file)
        os.unlink(self.path)


def until_it_leaves(group, supervisor, load, node, filler, seconds=60):
    """Fills until the process has ended for want of room, and a start of it fails too."""
    before = len(supervisor.restarts)

    def gone():
        filler.turn()
        load.check()
        return any(name == node.name for name, _ in supervisor.restarts[before:])
    supervisor.watch("%s leaves for want of room" % node.name, gone, seconds, 0.01)
    code = next(code for name, code in supervisor.restarts[before:] if name == node.name)
    if code not in raft_lab.NO_ROOM:
        raise lab.Failure("%s ended with %d\n%s" % (node.name, code, node.log_tail()))
    lab.say("%s: %s" % (node.name, node.last_error()))
    return code


def room_again(group, supervisor, load, node, filler):
    """Frees the disk and touches nothing else. Returns: seconds until the node has caught up."""
    commit = group.leader().status()["commit"]
    filler.free()
    started = time.monotonic()
    supervisor.watch("%s is back" % node.name, lambda: load.check() or (
        (node.status() or {}).get("state") == "ready" and node.status()["commit"] >= commit), 60)
    return time.monotonic() - started


def f09_disk_full(run):
    """Each of three voters in turn, under load: followers and the leader."""
    group = run.group(disk_bytes=DISK).grow(3)
    load = Load(run.stack, group.nodes, writers=8, seed=run.seed, pause=0.001, padding="-" + 150 * "p").start()
    supervisor = group.supervise(backoff_max=1.0)
    load.wait_more(200, 60, supervisor)
    done = set()
    for _ in range(run.count(1, 3)):
        for number in range(3):
            leader = supervisor.watch("a leader", group.leader, 30)
            others = sorted((n for n in group.nodes if n is not leader), key=lambda n: n in done)
            node = leader if number == 1 else others[0]
            done.add(node)
            filler, since = Filler(node), time.monotonic()
            code = until_it_leaves(group, supervisor, load, node, filler)
            others = [n for n in group.nodes if n is not node]
            supervisor.watch("the others lead", lambda o=others: group.leader(o), 30)
            load.wait_more(200, 60, supervisor)
            gap = load.gap(since)
            took = room_again(group, supervisor, load, node, filler)
            lab.say("disk of %s (%s) full: it left with %d, longest gap %.3f s; room again: caught up "
                    "after %.3f s" % (node.name, "leader" if node is leader else "follower", code, gap,
                                      took))
            load.wait_more(100, 60, supervisor)
    load.stop(60, supervisor)
    raft_check.judge(group, load)


def f09_full_at_start(run):
    """A start without room says so and ends; with room it runs and has everything."""
    group = run.group(disk_bytes=DISK).grow(3)
    load = Load(run.stack, group.nodes, writers=4, seed=run.seed, limit=300).start()
    load.ended()
    group.wait_equal()
    node = next(n for n in group.nodes if n is not group.wait_leader())
    node.kill()
    filler = Filler(node)
    filler.turn()
    node.start()

    def ended_or_ready():
        filler.turn()
        return not node.running() or (node.status() or {}).get("state") == "ready"
    lab.wait_until("%s ends or runs" % node.name, ended_or_ready, 15)
    told = "it runs on its reserve" if node.running() else "exit %d" % node.process.returncode
    if not node.running() and node.process.returncode not in raft_lab.NO_ROOM:
        raise lab.Failure("%s: %s\n%s" % (node.name, told, node.log_tail()))
    node.kill()
    filler.free()
    node.start()
    node.wait_state("ready")
    raft_check.judge(group, load)
    lab.say("start on a full disk: %s; with room: all there" % told)


def f09_full_at_snapshot(run):
    """The log has its room, the snapshot has none: nobody wedges, nothing is lost."""
    group = run.group(options=["--snapshot-entries", "512", "--snapshot-trailing", "64"], disk_bytes=DISK)
    group.grow(3)
    leader = group.wait_leader()
    for part in range(20):  # 20 MiB of state, so that a snapshot is no small file
        leader.ask("channel.add", 60, type=2, channel="big%d" % part, uids=[
            "%d-%05d-%s" % (part, i, "s" * 200) for i in range(4000)])
    load = Load(run.stack, group.nodes, writers=8, seed=run.seed, pause=0.001).start()
    supervisor = group.supervise(backoff_max=1.0)
    node = next(n for n in group.nodes if n is not supervisor.watch("a leader", group.leader, 30))
    filler, starts = Filler(node, leave=12 << 20), node.starts
    snapshots = node.status()["log_snapshot"]

    def met():
        filler.turn()
        load.check()
        status = node.status()
        return node.starts > starts or (status and status["log_snapshot"] > snapshots + 2000)
    supervisor.watch("a snapshot is tried without room", met, 90)
    told = "the node left with %s" % supervisor.restarts[-1][1] if node.starts > starts else "it found room"
    load.wait_more(200, 60, supervisor)
    took = room_again(group, supervisor, load, node, filler)
    load.stop(60, supervisor)
    raft_check.judge(group, load, alone=False)
    lab.say("no room for a snapshot: %s; room again: caught up after %.3f s" % (told, took))


def f09_map_full(run):
    """The store's address space ends: a fault of that node alone, mended by a larger one."""
    group = run.group()
    for _ in range(3):
        group.add()
    small = group.nodes[2]
    small.options = ["--map-size", str(16 << 20)]
    group.bootstrap()
    for node in group.nodes[1:]:
        group.join(node, group.nodes[0])
    load = Load(run.stack, group.nodes[:2], writers=8, seed=run.seed, padding="-" + 200 * "p",
                remove_share=0.0).start()
    supervisor = group.supervise()
    supervisor.watch("%s runs out of map" % small.name, lambda: load.check() or any(
        name == small.name for name, _ in supervisor.restarts), 120)
    code = next(c for name, c in supervisor.restarts if name == small.name)
    if code not in raft_lab.NO_ROOM:
        raise lab.Failure("%s ended with %d\n%s" % (small.name, code, small.log_tail()))
    load.wait_more(200, 60, supervisor)
    small.kill()
    small.options = []
    small.start()
    supervisor.watch("%s is back" % small.name, lambda: (small.status() or {}).get("state") == "ready", 60)
    load.stop(60, supervisor)
    raft_check.judge(group, load)
    lab.say("map of 16 MiB full after %d changes: exit %d, the others went on; with a larger one all is "
            "there" % (load.total(), code))


if __name__ == "__main__":
    sys.exit(raft_lab.run_test({f.__name__: f for f in (
        f09_disk_full, f09_full_at_start, f09_full_at_snapshot, f09_map_full)}, __doc__, sys.argv[1:]))
