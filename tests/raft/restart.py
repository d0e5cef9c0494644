#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What a restart goes on from (F18, F19), and readers that do not let go (F20)."""
import os
import subprocess
import sys
import uuid

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import lab
import raft_check
import raft_lab
from raft_load import Load

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def f18_replay(run):
    """Entries that the store has are skipped, the one after is not: nothing is applied twice, nothing is
    left out, with the group at rest and without any other member that could mend it."""
    group = run.group(options=["--snapshot-entries", "200", "--snapshot-trailing", "40"]).grow(1)
    node = group.nodes[0]
    load = Load(run.stack, [node], writers=8, seed=run.seed).start()
    for _ in range(run.count(8, 100)):
        load.wait_more(run.random.randint(20, 300))
        node.kill()
        node.start()
        node.wait_state("ready")
    load.stop()
    before = node.status()
    node.kill()
    node.start()
    after = node.wait_state("ready")
    for field in ("commit", "chain", "applied"):
        if after[field] != before[field]:
            raise lab.Failure("%s was %s, is %s" % (field, before[field], after[field]))
    raft_check.judge(group, load)
    lab.say("%d kills; the last restart: log %d to %d, store at %d, nothing applied again" % (
        run.count(8, 100) + 1, after["log_snapshot"], after["log_last"], after["applied"]))


def with_boot_id(node, text):
    """Starts the node as after another start of the machine."""
    path = os.path.join(node.dir, "boot_id")
    with open(path, "w", encoding="ascii") as out:
        out.write(text + "\n")
    # Inside the mount namespace that `ip netns exec` makes.
    node.wrapper = ["sh", "-c", 'mount --bind "$0" %s && exec "$@"' % BOOT_ID, path]


def said_given_up(node):
    return node.log_tail(1 << 30).count("code=GIVEN_UP")


def f19_boot_id(run):
    """After a crash of the machine the store is given up and made again from snapshot and log; after a
    clean stop it is kept."""
    group = run.group(options=["--snapshot-entries", "200", "--snapshot-trailing", "40"]).grow(3)
    load = Load(run.stack, group.nodes, writers=8, seed=run.seed).start()
    node = next(n for n in group.nodes if n is not group.wait_leader())
    for clean in (False, True, False):
        load.wait_more(400)
        if clean:
            node.stop()
        else:
            node.kill()
        given_up = said_given_up(node)
        with_boot_id(node, str(uuid.UUID(int=run.random.getrandbits(128))))
        node.start()
        status = node.wait_state("ready")
        # It may be replaced by the leader's snapshot later on: that is no word on the one it had.
        kept = said_given_up(node) == given_up
        lab.say("another boot id after %s: the store is %s, node ready at commit %d" % (
            "a clean stop" if clean else "kill -9", "kept" if kept else "given up", status["commit"]))
        if kept != clean:
            raise lab.Failure("the store is %s" % status["store_origin"])
    load.stop()
    raft_check.judge(group, load)


def f19_boot_id_alone(run):
    """The same of a node without others: everything comes from its own snapshot and log."""
    group = run.group(options=["--snapshot-entries", "200", "--snapshot-trailing", "40"]).grow(1)
    node = group.nodes[0]
    load = Load(run.stack, [node], writers=8, seed=run.seed).start()
    for _ in range(run.count(2, 20)):
        load.wait_more(400)
        node.kill()
        with_boot_id(node, str(uuid.UUID(int=run.random.getrandbits(128))))
        node.start()
        if node.wait_state("ready")["store_origin"] == "found":
            raise lab.Failure("the store was kept")
    load.stop()
    raft_check.judge(group, load)


def f20_long_reader(run):
    """A reader in another process that does not let go is noticed and named, and while readers behave the
    store does not grow with what is changed."""
    group = run.group(options=["--journal-commits", "500", "--dedup-commits", "500"]).grow(1)
    node = group.nodes[0]

    def churn(count, seed):
        load = Load(run.stack, [node], writers=8, seed=seed, limit=count, remove_share=0.5, channels=4,
                    name="churn").start()
        load.ended(120)
    churn(run.count(4000, 100000), 1)
    before = node.status()
    if before["long_reads"] != 0:
        raise lab.Failure("long reads before there was one: %s" % before)
    reader = subprocess.Popen([run.program("raft_reader"), node.data_dir],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    run.stack.callback(lab.end_process, reader, 5)
    if reader.stdout.readline().strip() != "reading":
        raise lab.Failure("the reader did not begin")
    load = Load(run.stack, [node], writers=4, seed=3, name="churn", channels=4, pause=0.001).start()
    lab.wait_until("the long reader is counted",
                   lambda: load.check() or node.status()["long_reads"] > 0, 20)
    load.stop()
    if "READER_LONG" not in node.log_tail(20000) or str(reader.pid) not in node.log_tail(20000):
        raise lab.Failure("the log does not name process %d\n%s" % (reader.pid, node.log_tail()))
    held = node.status()["map_used_bytes"]
    reader.stdin.close()
    reader.wait(10)
    counted = node.status()["long_reads"]
    churn(run.count(4000, 100000), 4)
    after = node.status()
    lab.say("store: %.2f MB, %.2f MB while a reader held on (noticed, named), %.2f MB after as many "
            "changes without it" % (before["map_used_bytes"] / 1e6, held / 1e6,
                                    after["map_used_bytes"] / 1e6))
    if after["map_used_bytes"] > 2 * max(before["map_used_bytes"], held):
        raise lab.Failure("the store grows without a long reader")
    if after["long_reads"] > counted + 1:
        raise lab.Failure("%d long reads after the reader ended" % (after["long_reads"] - counted))


if __name__ == "__main__":
    sys.exit(raft_lab.run_test({f.__name__: f for f in (
        f18_replay, f19_boot_id, f19_boot_id_alone, f20_long_reader)}, __doc__, sys.argv[1:]))
