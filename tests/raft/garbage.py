#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Bytes from strangers against the Raft port, the feed socket and the control socket (F15): nobody crashes,
no term changes, nothing that was recorded and is sent again is believed."""
import contextlib
import json
import os
import socket
import struct
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import lab
import raft_check
import raft_lab
from raft_load import Load

STRANGER = 77  # last byte of its address
EXTREMES = (0, 1, 7, 8, 255, 4096, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1,
            (1 << 64) - 1)


# --- by hand --------------------------------------------------------------------------------------------

def raft_greeting(node_id, address, version=1, length=None):
    """What the library would take for the beginning of a stream."""
    text = address.encode() + b"\0"
    text += b"\0" * (-len(text) % 8)
    return struct.pack("<QQQ", version, node_id, len(text) if length is None else length) + text


def raft_message(kind, header, length=None):
    return struct.pack("<QQ", kind, len(header) if length is None else length) + header


def raft_strings(victim):
    """What killed or fooled a bare node, and its neighbours: greetings, votes, entries, snapshots."""
    hello = raft_greeting(2, victim)
    vote = struct.pack("<QQQQQ", 1 << 40, 2, 1 << 40, 1 << 40, 1)
    append = struct.pack("<QQQQQ", 1 << 40, 0, 0, 0, 1)
    strings = [b"", b"\0", b"\xff" * 8, b"\0" * 4096, b"\xff" * 65536, b"GET / HTTP/1.0\r\n\r\n", hello,
               hello + raft_message(3, vote), hello + raft_message(3, vote[:16]),
               hello + raft_message(1, append), hello + raft_message(1, append, 8),
               hello + raft_message(5, struct.pack("<QQQQQQ", 1 << 40, 2, 9, 9, 9, 1 << 40)),
               hello + raft_message(6, struct.pack("<Q", 1 << 40)),
               raft_greeting(1, victim), raft_greeting(0, victim), raft_greeting(1 << 63, victim)]
    strings += [raft_greeting(2, victim, version=v) for v in EXTREMES[:6]]
    strings += [raft_greeting(2, victim, length=n) for n in EXTREMES]
    strings += [hello + raft_message(k, b"", n) for k in (0, 1, 3, 9, 255) for n in EXTREMES[::4]]
    strings += [hello + raft_message(1, struct.pack("<QQQQQ", 1, 0, 0, 0, n)) for n in EXTREMES[5:]]
    return strings


def feed_strings(_):
    def frame(kind, body, length=None):
        return struct.pack("<IB", 1 + len(body) if length is None else length, kind) + body
    hello = frame(raft_check.HELLO, struct.pack("<IQQQ", 1, 1, 0, 0))
    strings = [b"", b"\0", b"\xff" * 64, b"\0" * 4096, hello[:7], hello + hello]
    strings += [frame(kind, b"") for kind in range(8)]
    strings += [frame(kind, b"\xff" * 28) for kind in range(8)]
    strings += [struct.pack("<IB", n & 0xffffffff, 1) + b"x" * 64 for n in EXTREMES]
    strings += [frame(raft_check.HELLO, struct.pack("<IQQQ", p, n, g, c)) for p, n, g, c in (
        (0, 1, 0, 0), (2, 1, 0, 0), (1, 0, 0, 0), (1, 1 << 40, (1 << 64) - 1, 0),
        (1, 1 << 40, 0, (1 << 64) - 1), (0xffffffff, 1, 1, 1))]
    strings += [hello + frame(raft_check.APPLIED, struct.pack("<Q", c)) for c in EXTREMES]
    strings += [hello + frame(raft_check.DELTA, b"\0" * n) for n in (0, 1, 47, 48, 49, 1000)]
    return strings


def ctl_strings(_):
    strings = [b"", b"\n", b"\0\n", b"\xff" * 64 + b"\n", b"{" * 5000 + b"\n", b"[" * 100000 + b"\n",
               b"null\n", b"[]\n", b"{}\n", b'{"cmd":1}\n', b'{"cmd":"nope"}\n', b'{"cmd":"\\u0000"}\n',
               b'{"cmd":"meta.status","x":1}\n', b'{"cmd":"meta.status"', b'"' * 70000 + b"\n",
               b'{"cmd":"meta.status","id":' + b"9" * 400 + b"}\n",
               b'{"cmd":"meta.status","id":1e999}\n', b'{"cmd":"meta.status"}' * 2 + b"\n",
               b"x" * (3 << 20) + b"\n"]
    for cmd in ("channel.add", "channel.show", "channel.list", "channel.delete", "channel.create",
                "meta.promote", "meta.remove", "meta.join", "meta.transfer", "meta.backup"):
        for arguments in ({}, {"node": -1}, {"node": 1 << 62}, {"type": 99}, {"channel": "x" * 300},
                          {"type": 2, "channel": {"hex": "zz"}, "uids": [1]}, {"via": "x" * 5000},
                          {"via": "a:b"}, {"cursor": [1, 2, 3]}, {"limit": 1 << 62}, {"path": "relative"}):
            if cmd not in ("meta.transfer",) or arguments:
                strings.append(json.dumps({"cmd": cmd, **arguments}).encode() + b"\n")
    return strings


# --- at random ------------------------------------------------------------------------------------------

def mutated(rand, strings):
    """One string: made up, or another one bent."""
    choice = rand.random()
    if choice < 0.2:
        return rand.randbytes(rand.choice((1, 8, 24, 64, 200, 1500)))
    data = bytearray(rand.choice(strings)[:4096])
    for _ in range(rand.randint(1, 4)):
        if not data:
            break
        at = rand.randrange(len(data))
        kind = rand.randrange(5)
        if kind == 0:
            data[at] ^= 1 << rand.randrange(8)
        elif kind == 1:
            data[at:at + 8] = struct.pack("<Q", rand.choice(EXTREMES))
        elif kind == 2:
            del data[at:at + rand.randint(1, 16)]
        elif kind == 3:
            data[at:at] = rand.randbytes(rand.randint(1, 16))
        else:
            data += data[at:at + 64]
    return bytes(data)


class Target:
    """One socket of a node that strangers reach."""

    def __init__(self, what, make, strings):
        self.what, self.make, self.strings = what, make, strings
        self.sent = self.closed = self.answered = self.refused = 0

    def send(self, data, wait):
        """One connection, one string. `wait`: for what comes back, at most so many seconds."""
        self.sent += 1
        try:
            with self.make() as connection:
                connection.settimeout(max(wait, 0.5))
                connection.sendall(data)
                if not wait:
                    return
                connection.shutdown(socket.SHUT_WR)
                while True:
                    got = connection.recv(65536)
                    if not got:
                        self.closed += 1
                        return
                    self.answered += 1
        except socket.timeout:
            pass
        except OSError:
            self.refused += 1


def tcp(namespace, address):
    host, port = address.split(":")

    def make():
        with raft_lab.inside(namespace):
            connection = socket.socket()
        connection.settimeout(2)
        connection.connect((host, int(port)))
        return connection
    return make


def unix(path):
    def make():
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(2)
        connection.connect(path)
        return connection
    return make


class Recorder(threading.Thread):
    """Stands between a node that joins and the member it joins by, and keeps what each said first."""

    def __init__(self, namespace, address, target):
        super().__init__(daemon=True)
        host, port = address.split(":")
        with raft_lab.inside(namespace):
            self.listener = socket.create_server((host, int(port)))
        self.target, self.namespace, self.said = target, namespace, []

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                far = tcp(self.namespace, self.target)()
                said = bytearray()
                self.said.append(said)
                for source, sink, keep in ((near, far, said), (far, near, None)):
                    threading.Thread(target=self.pump, args=(source, sink, keep), daemon=True).start()

    @staticmethod
    def pump(source, sink, keep):
        source.settimeout(None)
        with contextlib.suppress(OSError):
            while True:
                data = source.recv(65536)
                if not data:
                    break
                if keep is not None and len(keep) < 65536:
                    keep += data
                sink.sendall(data)
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def record_a_join(group, leader):
    """A true handshake and what followed, as the joining node said it."""
    namespace = group.network.namespace(STRANGER)
    address = "%s%d:%d" % (raft_lab.NET, STRANGER, 7600)
    recorder = Recorder(namespace, address, leader.address)
    recorder.start()
    fourth = group.add(number=4).start()
    fourth.wait_state("waiting")
    fourth.ask("meta.join", 60, via=address)
    fourth.wait_state("ready")
    recorder.listener.close()
    said = [bytes(s) for s in recorder.said if s]
    if not said:
        raise lab.Failure("nothing was recorded")
    return said


def f15_garbage(run):
    group = run.group().grow(3)
    group.network.add(STRANGER)
    namespace = group.network.namespace(STRANGER)
    leader = group.wait_leader()
    said = record_a_join(group, leader)
    load = Load(run.stack, group.nodes, writers=3, seed=run.seed, pause=0.02).start()
    load.wait_more(20)
    group.wait_leader()
    before = {n: (n.status()["term"], n.status()["leader"], n.process.pid, n.members()) for n in group.nodes}
    targets = []
    for node in group.nodes:
        targets += [Target("%s raft" % node.name, tcp(namespace, node.address), raft_strings(node.address) + said),
                    Target("%s feed" % node.name, unix(node.run_dir + "/feed.sock"), feed_strings(node)),
                    Target("%s ctl" % node.name, unix(node.run_dir + "/meta.sock"), ctl_strings(node))]

    def alive(what):
        load.check()
        for node in group.nodes:
            if not node.running():
                raise lab.Failure("%s ended with %s after %s\n%s" % (
                    node.name, node.process.returncode, what, node.log_tail()))
    for target in targets:
        for data in target.strings:
            target.send(data, 0.02)
            alive("%s: %r" % (target.what, data[:200]))
        lab.say("%s: %d strings by hand: %d closed, %d answered, %d refused" % (
            target.what, target.sent, target.closed, target.answered, target.refused))
    count = run.count(3000, 1000000)
    told = time.monotonic()
    for number in range(count):
        target = run.random.choice(targets)
        data = mutated(run.random, target.strings)
        if dangerous(data):
            continue
        target.send(data, 0.0 if number % 16 else 0.005)
        if number % 64 == 0:
            alive("random string %d, seed %d" % (number, run.seed))
        if time.monotonic() - told > 30:
            told = time.monotonic()
            lab.say("%d strings" % number)
    load.wait_more(20)
    load.stop()
    alive("all")
    for node in group.nodes:
        status = node.status()
        now = (status["term"], status["leader"], node.process.pid, node.members())
        if now[:3] != before[node][:3]:
            raise lab.Failure("%s: term, leader, process were %s, are %s" % (node.name, before[node][:3], now[:3]))
        roles = [{i: m["role"] for i, m in members.items()} for members in (now[3], before[node][3])]
        if roles[0] != roles[1]:
            raise lab.Failure("%s: members were %s, are %s" % (node.name, roles[1], roles[0]))
    raft_check.judge(group, load, alone=False)
    refused = sum(n.status()["handshakes_refused"] for n in group.nodes)
    lab.say("%d strings at random, seed %d: nobody ended, term and leader stayed; %d handshakes refused" % (
        count, run.seed, refused))
    if refused == 0:
        raise lab.Failure("no handshake was refused: the Raft port was not reached")


def dangerous(data):
    """A whole command that does what it says is no garbage."""
    return any(word in data for word in (b'"meta.remove"', b'"meta.transfer"', b'"meta.promote"',
                                         b'"meta.demote"'))


if __name__ == "__main__":
    sys.exit(raft_lab.run_test({f.__name__: f for f in (f15_garbage,)}, __doc__, sys.argv[1:]))
