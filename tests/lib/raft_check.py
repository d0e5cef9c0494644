# SPDX-License-Identifier: BSD-3-Clause
"""The judge of a group: what was acknowledged against what every node holds.

- every acknowledged operation is in the history of every node, once, under the commit number and the
  version (SMV) it was acknowledged with,
- commit numbers grow by one per logical change, versions by one per change of their channel,
- histories are the same on all nodes, and so are the chains and the digests of the whole stores,
- the channels hold exactly what they must.
"""
import socket
import struct

import lab

HELLO, WELCOME, DELTA, APPLIED, LAGGED, WAIT = 1, 2, 3, 4, 5, 6
ADD, REMOVE, BULK = 3, 4, 5
TYPE = 2


class Feed:
    """A subscriber of feed.sock that only listens."""

    def __init__(self, path, commit=0, generation=0, seconds=30):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(seconds)
        self.socket.connect(path)
        self.buffer, self.at = b"", 0
        self.socket.sendall(struct.pack("<IBIQQQ", 29, HELLO, 1, 1 << 40, generation, commit))
        kind = WAIT
        while kind == WAIT:
            kind, body = self.frame()
        if kind != WELCOME:
            raise lab.Failure("feed: frame of kind %d for a welcome" % kind)
        self.generation, self.commit, self.resync = struct.unpack("<QQB", body)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def take(self, count):
        while len(self.buffer) - self.at < count:
            more = self.socket.recv(1 << 20)
            if not more:
                raise lab.Failure("feed: closed")
            self.buffer, self.at = self.buffer[self.at:] + more, 0
        taken = self.buffer[self.at:self.at + count]
        self.at += count
        return taken

    def frame(self):
        length, kind = struct.unpack("<IB", self.take(5))
        return kind, self.take(length - 1)

    def delta(self):
        """Returns: commit, kind, channel, smv before, smv, UIDs (of a small one), the bytes."""
        kind, body = self.frame()
        if kind != DELTA:
            raise lab.Failure("feed: frame of kind %d" % kind)
        _, dkind, _, _, _, clen = struct.unpack_from("<BBBBBB", body)
        commit, before, smv, _, count, _ = struct.unpack_from("<QQQQII", body, 8)
        uids, at = [], 48 + clen
        for _ in range(count):
            uids.append(body[at + 1:at + 1 + body[at]].decode("utf-8", "replace"))
            at += 1 + body[at]
        return commit, dkind, body[48:48 + clen].decode("utf-8", "replace"), before, smv, uids, body


class History:
    """The journal of a node, from where it reaches back to; after a restore that is the snapshot."""

    def __init__(self, node):
        status = node.status()
        self.node, self.deltas = node, {}
        self.last, self.generation = status["commit"], status["generation"]
        self.first = self.last  # the journal has what follows
        self.smv = {}  # channel -> last version
        if self.last > 1:
            self.find_first()
            self.read()

    def subscribe(self, commit):
        return Feed(self.node.run_dir + "/feed.sock", commit, self.generation)

    def find_first(self):
        """The least commit number that one can go on from. Having nothing, 0, always means a new start."""
        low, high = 1, self.last
        while low < high:
            middle = (low + high) // 2
            with self.subscribe(middle) as feed:
                low, high = (middle + 1, high) if feed.resync else (low, middle)
        self.first = low

    def read(self):
        last = self.first
        with self.subscribe(last) as feed:
            while last < self.last:
                number, kind, channel, before, smv, uids, body = feed.delta()
                if number != last + 1:
                    raise lab.Failure("%s: commit %d follows %d" % (self.node.name, number, last))
                if channel and (before != self.smv.get(channel, before) or smv != before + 1):
                    raise lab.Failure("%s: commit %d: %s goes from version %d to %d, it was at %s" % (
                        self.node.name, number, channel, before, smv, self.smv.get(channel)))
                self.smv[channel], last = smv, number
                self.deltas[number] = (kind, channel, smv, uids, hash(body))


def union(histories):
    """All of them as one; where they overlap they must be the same."""
    found = {}
    for history in histories:
        for number, delta in history.deltas.items():
            if found.setdefault(number, delta) != delta:
                raise lab.Failure("commit %d is %s at %s, %s elsewhere" % (
                    number, delta, history.node.name, found[number]))
    return found


def members(control, channel, kind=TYPE):
    found, cursor = set(), None
    while True:
        page = control.call("channel.show", type=kind, channel=channel, cursor=cursor)
        if not page["ok"]:
            return None if page["error"] == "not_found" else lab.Failure(page)
        found.update(page["members"])
        cursor = page["cursor"]
        if cursor is None:
            return found


def digests(nodes):
    """meta.verify of each node: they must agree. Returns: that of the first."""
    found = {node.name: node.ask("meta.verify", 120)["fields"] for node in nodes}
    same = {(f["commit"], f["chain"], f["crc32c"], f["bytes"]) for f in found.values()}
    if len(same) != 1:
        raise lab.Failure("the stores differ: %s" % found)
    return next(iter(found.values()))


def judge_done(done, deltas, first):
    """Each acknowledged operation against the history after commit `first`. Returns: how many were in it."""
    by_commit, versions, seen = {}, {}, 0
    for entry in done:
        other = by_commit.setdefault(entry.commit, entry)
        if other is not entry:
            raise lab.Failure("one commit number for two operations: %s, %s" % (other, entry))
        other = versions.setdefault((entry.channel, entry.smv), entry)
        if other is not entry:
            raise lab.Failure("one version for two operations: %s, %s" % (other, entry))
        delta = deltas.get(entry.commit)
        if delta is None and entry.commit > first:
            raise lab.Failure("lost: %s" % (entry,))
        want = (ADD if entry.op == "add" else REMOVE, entry.channel, entry.smv, [entry.uid])
        if delta is not None and delta[:4] != want:
            raise lab.Failure("the history has %s for %s" % (delta, entry))
        seen += delta is not None
    return seen


def judge_members(node, load, alone):
    with node.control(60) as control:
        for channel, uids in load.expected().items():
            found = members(control, channel)
            if found is None or (found != uids if alone else not uids <= found):
                raise lab.Failure("%s: %d members missing, %d too many" % (
                    channel, len(uids - (found or set())), len((found or set()) - uids)))


def sanitizer_reports(group):
    """What a build with sanitizers has to say, in the life at hand or one before."""
    for node in group.nodes:
        for word in ("AddressSanitizer", "LeakSanitizer", "runtime error:"):
            log = node.log_tail(1 << 30)
            if word in log:
                raise lab.Failure("%s: %s" % (node.name, log[log.index(word):][:3000]))


def judge(group, load, nodes=None, seconds=60, alone=True):
    """Everything, of all running nodes. `alone`: the load made all changes there are."""
    nodes = nodes or [node for node in group.nodes if node.running()]
    sanitizer_reports(group)
    group.wait_equal(seconds, nodes)
    done = load.done()
    digest = digests(nodes)
    histories = [History(node) for node in nodes]
    first = min(h.first for h in histories)
    deltas = union(histories)
    seen = judge_done(done, deltas, first)
    # What is of no channel is of nodes and slots.
    changes = digest["commit"] - sum(not delta[1] for delta in deltas.values())
    if alone and changes != len(done):
        raise lab.Failure("%d changes in the store, %d were acknowledged" % (changes, len(done)))
    judge_members(nodes[0], load, alone)
    counts = load.counts()
    lab.say("judged: %d nodes equal at commit %d, chain %s, digest %s; %d acknowledged, 0 lost, 0 different "
            "(%d by the journals, all by the members); %d repeats, %d of them applied before; longest gap "
            "%.3f s" % (len(nodes), digest["commit"], digest["chain"], digest["crc32c"], len(done), seen,
                        counts["repeats"], counts["applied_before"], load.gap()))
    return digest
