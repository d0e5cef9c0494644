#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Damaged files at start (F10): each case ends, within ten seconds, in a refusal that says why or in a node
that is proven equal to the others; never in a spin, never in a silent difference.

The group is at rest meanwhile, so that a copy of a folder is what the node had.
"""
import os
import re
import shutil
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import lab
import raft_check
import raft_lab
from raft_load import Load

REFUSALS = (raft_lab.EXIT_AMNESIA, raft_lab.EXIT_DAMAGED, raft_lab.EXIT_FOREIGN, raft_lab.EXIT_NEWER)


# --- what is in a folder ------------------------------------------------------------------------------

def names(raft, pattern):
    return sorted(n for n in os.listdir(raft) if re.fullmatch(pattern, n))


def closed(raft):
    return names(raft, r"\d{16}-\d{16}")


def opened(raft):
    """Open segments with something in them."""
    found = []
    for name in names(raft, r"open-\d+"):
        with open(os.path.join(raft, name), "rb") as file:
            if any(file.read(4096)):
                found.append(name)
    return found


def snapshots(raft):
    return names(raft, r"snapshot-\d+-\d+-\d+")


def last(found, what):
    if not found:
        raise lab.Failure("there is no %s to damage" % what)
    return found[-1]


def flip(path, at, mask=0x40):
    """Changes one bit; a negative `at` counts from the end."""
    with open(path, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        at = at if at >= 0 else size + at
        file.seek(at)
        old = file.read(1)
        file.seek(at)
        file.write(bytes([old[0] ^ mask]))


def used_bytes(path):
    """Of a preallocated file: up to its last byte that is not zero."""
    with open(path, "rb") as file:
        return len(file.read().rstrip(b"\0"))


def batches_end(path):
    """Where the last batch of entries ends (raft/uv.h has the layout)."""
    with open(path, "rb") as file:
        data, at = file.read(), 8
    while at + 16 <= len(data):
        count = int.from_bytes(data[at + 8:at + 16], "little")
        if count == 0:
            break
        at += 16 + sum(16 + int.from_bytes(data[i + 12:i + 16], "little")
                       for i in range(at + 16, at + 16 + 16 * count, 16))
    return at


def truncate(path, part):
    os.truncate(path, int(used_bytes(path) * part))


# --- the cases: each gets the raft folder and the store folder ----------------------------------------

def closed_flip_middle(raft, _):
    path = os.path.join(raft, closed(raft)[len(closed(raft)) // 2])
    flip(path, used_bytes(path) // 2)


def closed_flip_header(raft, _):
    flip(os.path.join(raft, closed(raft)[0]), 0)


def closed_short(raft, _):
    truncate(os.path.join(raft, last(closed(raft), "closed segment")), 0.5)


def closed_empty(raft, _):
    os.truncate(os.path.join(raft, last(closed(raft), "closed segment")), 0)


def closed_last_gone(raft, _):
    os.unlink(os.path.join(raft, last(closed(raft), "closed segment")))


def closed_gap(raft, _):
    os.unlink(os.path.join(raft, closed(raft)[len(closed(raft)) // 2]))


def open_flip_first_batch(raft, _):
    flip(os.path.join(raft, last(opened(raft), "open segment")), 100)


def open_flip_middle(raft, _):
    path = os.path.join(raft, last(opened(raft), "open segment"))
    flip(path, used_bytes(path) // 2)


def open_flip_last_batch(raft, _):
    path = os.path.join(raft, last(opened(raft), "open segment"))
    flip(path, used_bytes(path) - 4)


def open_short(raft, _):
    truncate(os.path.join(raft, last(opened(raft), "open segment")), 0.5)


def open_cut_to_its_end(raft, _):
    """No damage: the process ended between the two steps that close a segment."""
    path = os.path.join(raft, last(opened(raft), "open segment"))
    os.truncate(path, batches_end(path))


def open_gone(raft, _):
    os.unlink(os.path.join(raft, last(opened(raft), "open segment")))


def open_garbage_header(raft, _):
    with open(os.path.join(raft, last(opened(raft), "open segment")), "r+b") as file:
        file.write(os.urandom(64))


def metadata_files(raft):
    """The older one first: they are written in turns, the second from the second promise on."""
    found = []
    for name in ("metadata1", "metadata2"):
        path = os.path.join(raft, name)
        if os.path.exists(path):
            with open(path, "rb") as file:
                found.append((int.from_bytes(file.read(16)[8:], "little"), path))
    return [path for _, path in sorted(found)]


def metadata_newest_flip_term(raft, _):
    flip(metadata_files(raft)[-1], 17)


def metadata_oldest_flip_term(raft, _):
    flip(metadata_files(raft)[0], 17)


def metadata_newest_gone(raft, _):
    os.unlink(metadata_files(raft)[-1])


def metadata_all_short(raft, _):
    for path in metadata_files(raft):
        os.truncate(path, 7)


def metadata_all_gone(raft, _):
    for path in metadata_files(raft):
        os.unlink(path)


def metadata_vote(raft, _):
    for path in metadata_files(raft):
        flip(path, 24, 0x03)


def snapshot_flip(raft, _):
    path = os.path.join(raft, last(snapshots(raft), "snapshot"))
    flip(path, os.path.getsize(path) // 2)


def snapshot_flip_end(raft, _):
    flip(os.path.join(raft, last(snapshots(raft), "snapshot")), -3)


def snapshot_short(raft, _):
    path = os.path.join(raft, last(snapshots(raft), "snapshot"))
    os.truncate(path, os.path.getsize(path) * 2 // 3)


def snapshot_empty(raft, _):
    os.truncate(os.path.join(raft, last(snapshots(raft), "snapshot")), 0)


def snapshot_gone(raft, _):
    for name in snapshots(raft):
        os.unlink(os.path.join(raft, name))


def snapshot_meta_flip(raft, _):
    flip(os.path.join(raft, last(snapshots(raft), "snapshot") + ".meta"), 40)


def snapshot_meta_short(raft, _):
    os.truncate(os.path.join(raft, last(snapshots(raft), "snapshot") + ".meta"), 20)


def snapshot_meta_gone(raft, _):
    os.unlink(os.path.join(raft, last(snapshots(raft), "snapshot") + ".meta"))


def snapshot_all_short_store_gone(raft, store):
    for name in snapshots(raft):
        path = os.path.join(raft, name)
        os.truncate(path, os.path.getsize(path) // 2)
    shutil.rmtree(store)


def sidecar_flip(raft, _):
    for at in (20, 512 + 20):
        if at < os.path.getsize(os.path.join(raft, "sidecar")):
            flip(os.path.join(raft, "sidecar"), at)


def sidecar_short(raft, _):
    os.truncate(os.path.join(raft, "sidecar"), 11)


def sidecar_gone(raft, _):
    os.unlink(os.path.join(raft, "sidecar"))


def sidecar_alone(raft, _):
    for name in os.listdir(raft):
        if name != "sidecar":
            os.unlink(os.path.join(raft, name))


def log_gone(raft, _):
    shutil.rmtree(raft)


def store_flip(_, store):
    for at in range(0, 64 * 1024, 512):
        flip(store_file(store), 3 * 4096 + at)


def store_short(_, store):
    os.truncate(store_file(store), 4096)


def store_gone(_, store):
    shutil.rmtree(store)


def store_current_gone(_, store):
    os.unlink(os.path.join(store, "current"))


def store_file(store):
    with open(os.path.join(store, "current"), encoding="ascii") as current:
        return os.path.join(store, current.read().strip(), "data.mdb")


CASES = (closed_flip_middle, closed_flip_header, closed_short, closed_empty, closed_last_gone, closed_gap,
         open_flip_first_batch, open_flip_middle, open_flip_last_batch, open_short,
         open_cut_to_its_end, open_gone,
         open_garbage_header, metadata_newest_flip_term, metadata_oldest_flip_term,
         metadata_newest_gone, metadata_all_short, metadata_all_gone, metadata_vote, snapshot_flip, snapshot_flip_end, snapshot_short,
         snapshot_empty, snapshot_gone, snapshot_meta_flip, snapshot_meta_short, snapshot_meta_gone,
         snapshot_all_short_store_gone, sidecar_flip, sidecar_short, sidecar_gone, sidecar_alone, log_gone,
         store_flip, store_short, store_gone, store_current_gone)


SOUND = (open_cut_to_its_end, store_gone)  # nothing acknowledged is missing: it must run
EQUAL = "runs and is equal"


def outcome(node, others, expected, damaged_store):
    """Refused or equal; anything else fails."""
    started = time.monotonic()

    def decided():
        if not node.running():
            return True
        status = node.status(2)
        return status and (status["state"] == "waiting" or (
            status["state"] == "ready" and status["commit"] >= expected["commit"]))
    lab.wait_until("it refuses or runs: %s, %s" % (node.status(2), node.log_tail(600)), decided, 10, 0.02)
    took = time.monotonic() - started
    if not node.running():
        code = node.process.returncode
        if code not in REFUSALS:
            raise lab.Failure("ended with %s: %s" % (code, node.last_error_of("RAFT_REFUSED")))
        return "refused with %d (%s)" % (code, node.last_error_of("RAFT_REFUSED")), took
    if node.status()["state"] == "waiting":
        raise lab.Failure("takes itself for a new node")
    answer = node.call("meta.verify", 60)
    if not answer["ok"] and answer["error"] == "damaged":
        return "runs, and says that its store is damaged", took
    digest = answer["fields"]
    if damaged_store and digest["crc32c"] != expected["crc32c"]:
        return "runs; meta.verify shows that it differs", took
    if (digest["commit"], digest["chain"], digest["crc32c"]) != (
            expected["commit"], expected["chain"], expected["crc32c"]):
        raise lab.Failure("differs: %s, the others %s" % (digest, expected))
    committed = max((other.status()["log_committed"] for other in others), default=0)
    lab.wait_until("its log has what was committed", lambda: node.status()["log_last"] >= committed, 10)
    return EQUAL, took


def f10_damaged_files(run):
    group = run.group(options=["--snapshot-entries", "300", "--snapshot-trailing", "100"])
    group.grow(run.args.voters or 3)
    # At the leader: at another node each change waits for a heartbeat.
    load = Load(run.stack, [group.wait_leader()], writers=1, seed=run.seed, limit=700).start()
    load.ended(120)
    # Restarts close segments, so that there are several.
    node = group.nodes[-1]
    for limit in (60, 60, 60):
        node.kill()
        node.start()
        node.wait_state("ready")
        more = Load(run.stack, [group.wait_leader()], writers=1, seed=limit, limit=limit, name="d").start()
        more.ended()
    group.wait_equal()
    others = [n for n in group.nodes if n is not node]
    expected = raft_check.digests(group.nodes)
    node.kill()
    copy = os.path.join(group.dir, "copy")
    shutil.copytree(node.data_dir, copy, ignore=shutil.ignore_patterns("ballast"))
    raft, store = os.path.join(node.data_dir, "raft"), os.path.join(node.data_dir, "store")
    lab.say("%d closed segments, %d open ones, %d snapshots" % (
        len(closed(raft)), len(opened(raft)), len(snapshots(raft))))
    wrong = []
    for case in CASES:
        node.wipe()
        shutil.copytree(copy, node.data_dir, dirs_exist_ok=True)
        try:
            case(raft, store)
            node.start()
            told, took = outcome(node, others, expected, case is store_flip)
            if case in SOUND and told != EQUAL:
                raise lab.Failure("nothing is wrong with it, and it is %s" % told)
            lab.say("%-32s %s, %.2f s" % (case.__name__, told, took))
        except (lab.Failure, lab.Unreachable, OSError, IndexError) as problem:
            lab.say("%-32s WRONG: %s" % (case.__name__, problem))
            wrong.append(case.__name__)
        node.kill()
    node.wipe()
    shutil.copytree(copy, node.data_dir, dirs_exist_ok=True)
    node.start()
    group.wait_equal()
    if raft_check.digests(group.nodes)["chain"] != expected["chain"]:
        raise lab.Failure("the undamaged copy differs")
    if wrong:
        raise lab.Failure("%d of %d cases: %s" % (len(wrong), len(CASES), ", ".join(wrong)))
    lab.say("%d cases: refused or equal" % len(CASES))


if __name__ == "__main__":
    sys.exit(raft_lab.run_test({f.__name__: f for f in (f10_damaged_files,)}, __doc__, sys.argv[1:]))
