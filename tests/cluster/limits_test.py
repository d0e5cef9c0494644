#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Hostile and odd input against the daemon, over the network and over the control socket.

    limits_test.py BUILD_DIR

Each case names the counter or the answer it must end in; a case that moves another drop counter as well, or
kills the node, fails. At the end the node is flooded with all of it and must neither grow nor stop serving.
"""
import collections
import hashlib
import itertools
import os
import random
import re
import socket
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import lab

TYPE = 2
NODE_ID = 1
FRAMES = 16  # limits.frames of the node
FLOOD_SECONDS = 5
RSS_RISE_MAX = 0.02  # of the flooded node
OPTIONS = {"limits": {"frames": FRAMES, "senders": 256, "messages": 1024, "parked": 1024, "window": 4096,
                      "inflight_pushes": 512, "payload": "16KiB"},
           "workers": {"ring": 64}, "port": {"buffers": 8192}}

# lib/wire/wire.h
HELLO, HELLO_ACK, HEARTBEAT, HEARTBEAT_ACK, ANNOUNCE, ANNOUNCE_ACK, BYE, PUBLISH, PUBLISH_ACK = range(1, 10)
TASK, PUSH, PUSH_ACK, RECEIPT, SEGMENT = 10, 16, 17, 18, 19
STATUS = ("ok", "retryable", "not_leader", "busy", "too_large", "unknown_channel", "bad_request",
          "need_hello", "expired", "unknown_gateway", "out_of_order", "limit", "too_many_sessions", "stale",
          "incomplete", "unsupported")


# --- datagrams ---------------------------------------------------------------------------------------

class Peer:
    """A client by hand: builds datagrams, signs them, reads the answers."""

    def __init__(self, sock, key, node_boot, sender):
        self.socket, self.key, self.node_boot, self.sender = sock, key, node_boot, sender
        self.boot, self.seq, self.cookie = random.getrandbits(63) | 1, 0, 0
        self.requests = itertools.count(1)

    def datagram(self, kind, body, *, magic=0x4354, version=1, flags=1, key_id=1, sender=None, boot=None,
                 seq=None, length=None, zero=0, key=None):
        if seq is None:
            self.seq += 1
            seq = self.seq
        size = 40 + len(body) + (16 if flags & 1 else 0)
        data = struct.pack("<HBBBBBBQQQHHI", magic, version, kind, flags, key_id, 0, 0,
                           self.sender if sender is None else sender, self.boot if boot is None else boot,
                           seq, size if length is None else length, zero, 0) + body
        if flags & 1:
            receiver = 0 if kind == HELLO else self.node_boot
            data += hashlib.blake2b(struct.pack("<Q", receiver) + data, key=key or self.key,
                                    digest_size=16).digest()
        return data

    def send(self, data):
        self.socket.sendto(data, (lab.NODE_IP, lab.PORT))

    def receive(self, kind, seconds=10):
        """The body of the next answer of this type."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                data = self.socket.recv(65536)
            except socket.timeout:
                break
            if data[3] == kind:
                return data[40:-16]
        raise lab.Failure("no answer of type %d" % kind)

    def hello(self, role=1):
        """Registers this address; role 2 is a gateway."""
        for _ in range(2):
            self.send(self.datagram(HELLO, hello_body(role, self.cookie)))
            answer = self.receive(HELLO_ACK)
            self.cookie = struct.unpack_from("<Q", answer, 8)[0]
        if STATUS[answer[0]] != "ok":
            raise lab.Failure("hello: %s" % STATUS[answer[0]])

    def publish(self, channel, **more):
        """Publishes and waits. Returns: (status, members)."""
        request = next(self.requests)
        self.send(self.datagram(PUBLISH, publish_body(request, channel, self.cookie, **more)))
        while True:
            answer = self.receive(PUBLISH_ACK)
            if struct.unpack_from("<Q", answer)[0] == request:
                return STATUS[answer[24]], struct.unpack_from("<I", answer, 56)[0]


def hello_body(role=1, cookie=0, mtu=1500):
    return struct.pack("<BBBBHHQ", role, 1, 1, 0, mtu, 0, cookie) + bytes(48)


def publish_body(request, channel, cookie=0, *, message=None, payload=b"x", ack=1, kind=TYPE, claimed=None,
                 from_uid=b""):
    return struct.pack("<QQQQQQIIIIBBBBB11x", request, request if message is None else message, 0, cookie,
                       0, 0, 0, 0, 0, len(payload) if claimed is None else claimed, ack, 0, kind,
                       len(channel), len(from_uid)) + channel + from_uid + payload


def segment_body(frame, index, count, total, offset, part, kind=PUBLISH):
    return struct.pack("<IBBHHHII", frame, kind, 0, 0, index, count, total, offset) + part


def announce_body(stream, count, *uids):
    """Opens sessions in slots 0, 1, ..."""
    entries = b"".join(struct.pack("<Q", 1 | len(uid) << 8 | slot << 16 | 1 << 40) + uid
                       for slot, uid in enumerate(uids))
    return struct.pack("<QHHI", stream, count, 0, 0) + entries


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


class Frames:
    """Whole Ethernet frames from the clients' end of the link."""

    def __init__(self, sock, node_mac):
        self.socket = sock
        sock.bind((lab.CLIENT_VETH, 0))
        self.source, self.node = sock.getsockname()[4], bytes.fromhex(node_mac.replace(":", ""))

    def frame(self, payload, *, protocol=17, udp_length=None, udp_checksum=None, ip_checksum=None,
              fragment=0, port=lab.PORT, version=4, ip_length=None, target=lab.NODE_IP, ethertype=0x0800,
              node=None):
        source, target = socket.inet_aton(lab.CLIENT_IP), socket.inet_aton(target)
        length = 8 + len(payload)
        udp = struct.pack("!HHHH", 5555, port, length if udp_length is None else udp_length, 0)
        pseudo = source + target + struct.pack("!BBH", 0, 17, length)
        right = checksum(pseudo + udp + payload) or 0xffff
        udp = udp[:6] + struct.pack("!H", right if udp_checksum is None else udp_checksum)
        ip = struct.pack("!BBHHHBBH4s4s", version << 4 | 5, 0,
                         20 + length if ip_length is None else ip_length, 1, fragment, 64, protocol, 0,
                         source, target)
        ip = ip[:10] + struct.pack("!H", checksum(ip) if ip_checksum is None else ip_checksum) + ip[12:]
        return (node or self.node) + self.source + struct.pack("!H", ethertype) + ip + udp + payload

    def send(self, data):
        self.socket.send(data)


# --- cases -------------------------------------------------------------------------------------------

def wire_cases(p):
    """(what, counter, datagram): each is one drop of that name and of no other."""
    good = publish_body(1, b"room", p.cookie)
    d = p.datagram
    yield "empty datagram", "drop_short", b""
    yield "one byte", "drop_short", b"T"
    yield "header cut", "drop_short", d(PUBLISH, good)[:39]
    yield "bytes cut off", "drop_length", d(PUBLISH, good)[:-1]
    yield "bytes appended", "drop_length", d(PUBLISH, good) + b"\0"
    yield "length of 65535", "drop_length", d(PUBLISH, good, length=65535)
    yield "length of 0", "drop_length", d(PUBLISH, good, length=0)
    yield "other magic", "drop_magic", d(PUBLISH, good, magic=0x5443)
    yield "version 0", "drop_version", d(PUBLISH, good, version=0)
    yield "version 255", "drop_version", d(PUBLISH, good, version=255)
    yield "type 0", "drop_type", d(0, good)
    yield "type 255", "drop_type", d(255, good)
    yield "between nodes", "drop_type", d(TASK, good)
    for kind in (HELLO_ACK, HEARTBEAT_ACK, ANNOUNCE_ACK, PUBLISH_ACK, PUSH):
        yield "answer %d as a request" % kind, "drop_type", d(kind, good)
    yield "unknown flag", "drop_flags", d(PUBLISH, good, flags=0x81)
    yield "reserved field", "drop_flags", d(PUBLISH, good, zero=1)
    yield "sender 0", "drop_field", d(PUBLISH, good, sender=0)
    yield "boot 0", "drop_field", d(PUBLISH, good, boot=0)
    yield "the node's own id", "drop_reflected", d(PUBLISH, good, sender=NODE_ID)
    yield "no tag", "drop_auth", d(PUBLISH, good, flags=0, key_id=0)
    yield "tag of another key", "drop_auth", d(PUBLISH, good, key=bytes(32))
    yield "unknown key", "drop_key", d(PUBLISH, good, key_id=9)
    yield "sequence 0", "drop_replay", d(PUBLISH, good, seq=0)
    yield "sequence seen before", "drop_replay", d(PUBLISH, good, seq=1)


def body_cases(p):
    d, channel = p.datagram, b"room"
    yield "publish cut in its fields", "drop_short", d(PUBLISH, publish_body(1, channel)[:79])
    yield "publish of more than it has", "drop_short", d(PUBLISH, publish_body(1, channel, claimed=2))
    yield "publish of less than it has", "drop_length", d(PUBLISH, publish_body(1, channel, claimed=0))
    yield "payload of 2^32 - 1", "drop_field", d(PUBLISH, publish_body(1, channel, claimed=0xffffffff))
    yield "payload of 60 KiB + 1", "drop_field", d(PUBLISH, publish_body(1, channel, claimed=61441))
    yield "channel id of length 0", "drop_field", d(PUBLISH, publish_body(1, b""))
    yield "channel type 0", "drop_field", d(PUBLISH, publish_body(1, channel, kind=0))
    yield "channel type 13", "drop_field", d(PUBLISH, publish_body(1, channel, kind=13))
    yield "ack class 3", "drop_field", d(PUBLISH, publish_body(1, channel, ack=3))
    yield "message id 0", "drop_field", d(PUBLISH, publish_body(1, channel, message=0))
    yield "hello of role 9", "drop_field", d(HELLO, hello_body(9))
    yield "hello of mtu 1", "drop_field", d(HELLO, hello_body(mtu=1))
    yield "hello cut", "drop_short", d(HELLO, hello_body()[:-1])
    yield "hello too long", "drop_length", d(HELLO, hello_body() + b"\0")
    yield "announce of 65535 sessions", "drop_short", d(ANNOUNCE, announce_body(1, 65535, b"u"))
    yield "announce of none", "drop_field", d(ANNOUNCE, announce_body(1, 0))
    yield "announce of a UID of length 0", "drop_field", d(ANNOUNCE, announce_body(1, 1, b""))
    yield "bye with a body", "drop_length", d(BYE, b"x")
    yield "acknowledged 3 x 65535 routes", "drop_field", d(
        PUSH_ACK, struct.pack("<IIHHHH", 1, 1, 65535, 65535, 65535, 0))
    yield "acknowledged none", "drop_field", d(PUSH_ACK, struct.pack("<IIHHHH", 1, 1, 0, 0, 0, 0))
    yield "positions missing", "drop_short", d(PUSH_ACK, struct.pack("<IIHHHH", 1, 1, 0, 2, 0, 0))
    yield "receipt of 65535 bytes", "drop_field", d(RECEIPT, struct.pack("<IIHHI", 1, 1, 0, 65535, 0))
    yield "receipt beyond the routes", "drop_field", d(
        RECEIPT, struct.pack("<IIHHI", 1, 1, 65528, 1, 0) + b"x")


def segment_cases(p):
    d, part = p.datagram, bytes(100)
    whole = publish_body(1, b"room", p.cookie, payload=bytes(300))
    yield "segment of a push", "drop_type", d(SEGMENT, segment_body(1, 0, 2, 200, 0, part, PUSH))
    yield "segment of an unknown type", "drop_field", d(SEGMENT, segment_body(1, 0, 2, 200, 0, part, 77))
    yield "segment of 2^32 - 1 in all", "drop_field", d(SEGMENT, segment_body(2, 0, 2, 0xffffffff, 0, part))
    yield "segment at 2^32 - 1", "drop_field", d(SEGMENT, segment_body(2, 1, 2, 200, 0xffffffff, part))
    yield "one of 65535 segments", "drop_field", d(SEGMENT, segment_body(2, 0, 65535, 98304, 0, part))
    yield "segment of one", "drop_field", d(SEGMENT, segment_body(2, 0, 1, 100, 0, part))
    yield "index at the count", "drop_field", d(SEGMENT, segment_body(2, 2, 2, 200, 100, part))
    yield "empty segment", "drop_field", d(SEGMENT, segment_body(2, 0, 2, 200, 0, b""))
    yield "segment with a gap", "drop_field", d(SEGMENT, segment_body(2, 1, 3, 300, 150, part))
    # Of one frame: the first is taken, the next ones do not fit it.
    yield "first part", None, d(SEGMENT, segment_body(3, 0, 4, 400, 0, whole[:100]))
    yield "another total", "drop_segment", d(SEGMENT, segment_body(3, 1, 4, 399, 100, part))
    yield "another count", "drop_segment", d(SEGMENT, segment_body(3, 1, 5, 500, 100, part))
    yield "another part size, overlapping", "drop_segment", d(
        SEGMENT, segment_body(3, 1, 4, 350, 90, bytes(90)))
    yield "the same part with other bytes", "drop_segment", d(
        SEGMENT, segment_body(3, 0, 4, 400, 0, b"y" * 100))
    yield "the same part again", None, d(SEGMENT, segment_body(3, 0, 4, 400, 0, whole[:100]))


def frame_cases(f, p):
    good = p.datagram(PUBLISH, publish_body(1, b"room"))
    yield "UDP length 0", "drop_udp_len", f.frame(good, udp_length=0)
    yield "UDP length 7", "drop_udp_len", f.frame(good, udp_length=7)
    yield "UDP length beyond the packet", "drop_udp_len", f.frame(good, udp_length=9 + len(good))
    yield "UDP length 65535", "drop_udp_len", f.frame(good, udp_length=65535)
    yield "wrong UDP checksum", "drop_udp_csum", f.frame(good, udp_checksum=1)
    yield "wrong IP checksum", "drop_ip_csum", f.frame(good, ip_checksum=1)
    yield "IP version 6 in an IPv4 frame", "drop_ip", f.frame(good, version=6)
    yield "IP length beyond the frame", "drop_ip", f.frame(good, ip_length=1400)
    yield "IP length below the header", "drop_ip", f.frame(good, ip_length=19)
    yield "to another address", "drop_ip", f.frame(good, target="198.51.100.77")
    # The packet socket puts fragments together itself and lets only this one pass.
    yield "reserved bit of the fragment field", "drop_fragment", f.frame(good, fragment=0x8000)
    yield "TCP", "drop_proto", f.frame(good, protocol=6)
    yield "port below the node's", "drop_port", f.frame(good, port=lab.PORT - 1)
    yield "port above the node's", "drop_port", f.frame(good, port=lab.PORT + 1)
    yield "unknown ethertype", "drop_l2", f.frame(good, ethertype=0x88b5)
    yield "to another MAC", "drop_l2", f.frame(good, node=b"\x02\0\0\0\0\x99")


class Run:
    def __init__(self, stack, build):
        self.lab = lab.Lab(stack, build, "tcl", options=OPTIONS)
        self.node = self.lab.node
        self.checked = 0

    def prepare(self, stack):
        self.node.start()
        self.node.bootstrap()
        self.node.wait_ready(30)
        self.status = self.node.status()
        with self.lab.network.inside_clients():
            self.sockets = [stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
                            for _ in range(4)]
            raw = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)))
        self.frames = Frames(raw, self.status["port_mac"])
        self.peer = self.new_peer(0, 5000)
        self.peer.hello()

    def new_peer(self, index, sender):
        return Peer(self.sockets[index], self.node.key, int(self.status["boot"], 16), sender)

    # -- counters

    def dropped(self):
        return {k: v for k, v in self.node.drops().items() if k.startswith("drop_")}

    def expect(self, what, counter, send):
        """`send()` must add one to `counter` (None: to none) and to no other drop."""
        before = self.node.drops()
        send()
        # A heartbeat of a stranger is answered: then what was sent before it has been handled.
        self.peer.send(self.peer.datagram(HEARTBEAT, struct.pack("<QI20x", 1, 0)))
        self.peer.receive(HEARTBEAT_ACK)
        if counter is not None:
            lab.wait_until("%s: %s grows" % (what, counter),
                           lambda: self.node.drops()[counter] > before[counter], 10, 0.01)
        after = self.node.drops()
        grown = {k: v - before[k] for k, v in after.items()
                 if v != before[k] and (k.startswith("drop_") or k == counter)}
        grown.pop("drop_reassembly_timeout", None)  # comes in its own time; looked at apart
        if grown != ({} if counter is None else {counter: 1}):
            raise lab.Failure("%s: expected one %s, got %s" % (what, counter, grown))
        self.checked += 1

    def network_cases(self):
        p, f = self.peer, self.frames
        for what, counter, data in itertools.chain(wire_cases(p), body_cases(p), segment_cases(p)):
            self.expect(what, counter, lambda data=data: p.send(data))
        for what, counter, data in frame_cases(f, p):
            self.expect(what, counter, lambda data=data: f.send(data))
        # Fragments on the way; put together by the packet socket, and cut at the size of its frames.
        self.expect("datagram in fragments", "drop_ip",
                    lambda: p.send(p.datagram(PUBLISH, publish_body(1, b"room", payload=bytes(4000)))))
        self.expect("overlong datagram", "drop_length",
                    lambda: p.send(p.datagram(PUBLISH, publish_body(1, b"room")) + bytes(1300)))
        # That of segment_cases is never completed.
        lab.wait_until("the incomplete frame is given up",
                       lambda: self.node.drops()["drop_reassembly_timeout"] == 1, 20)
        self.never_completed()

    def never_completed(self):
        before = self.node.drops()
        share = FRAMES // 4
        # Four senders with their shares, and more of the first; then another one.
        for p, frames in [(self.peer, share + 5)] + [(self.new_peer(0, 5100 + i), share) for i in range(3)] + [
                (self.new_peer(0, 5200), 3)]:
            for frame in range(100, 100 + frames):
                p.send(p.datagram(SEGMENT, segment_body(frame, 0, 2, 200, 0, bytes(100))))

        def given_up():
            now = self.node.drops()
            return tuple(now["drop_reassembly_" + name] - before["drop_reassembly_" + name]
                         for name in ("share", "full", "timeout")) == (5, 3, FRAMES)
        lab.wait_until("%d frames are given up, 5 were over a share, 3 found no room" % FRAMES, given_up, 20)
        self.checked += 1

    # -- sessions and acknowledgements of strangers

    def strangers(self):
        p = self.new_peer(1, 6000)
        ack = struct.pack("<IIHHHH", 1, 1, 1, 0, 0, 0)
        receipt = struct.pack("<IIHHI", 1, 1, 0, 1, 0) + b"\1"
        self.expect("acknowledgement of a stranger", "push_ack_unknown",
                    lambda: p.send(p.datagram(PUSH_ACK, ack)))
        self.expect("receipt of a stranger", "receipt_unknown", lambda: p.send(p.datagram(RECEIPT, receipt)))
        self.expect("announce of a stranger", "announce_unknown",
                    lambda: p.send(p.datagram(ANNOUNCE, announce_body(1, 1, b"user-1"))))
        if STATUS[p.receive(ANNOUNCE_ACK)[16]] != "unknown_gateway":
            raise lab.Failure("an unknown gateway is not told so")
        self.expect("publish of an address that proved nothing", "pub_need_hello",
                    lambda: p.send(p.datagram(PUBLISH, publish_body(1, b"room", cookie=4711))))
        if STATUS[p.receive(PUBLISH_ACK)[24]] != "need_hello":
            raise lab.Failure("a stranger's publish is not told need_hello")
        p.hello(role=2)
        self.expect("acknowledgement of an unknown push", "push_ack_unknown",
                    lambda: p.send(p.datagram(PUSH_ACK, ack)))
        self.expect("receipt of an unknown push", "receipt_unknown",
                    lambda: p.send(p.datagram(RECEIPT, receipt)))
        self.expect("announce out of sequence", "announce_gap",
                    lambda: p.send(p.datagram(ANNOUNCE, announce_body(9, 1, b"user-1"))))
        if STATUS[p.receive(ANNOUNCE_ACK)[16]] != "out_of_order":
            raise lab.Failure("an announce out of sequence is not told so")
        p.send(p.datagram(ANNOUNCE, announce_body(1, 1, b"user-1")))
        if STATUS[p.receive(ANNOUNCE_ACK)[16]] != "ok":
            raise lab.Failure("an announce is refused")
        p.send(p.datagram(BYE, b""))
        lab.wait_until("the gateway is gone", lambda: self.node.status()["sessions"] == 0, 10)

    # -- ids and counts over the control socket

    def ctl_cases(self):
        node = self.node
        for arguments, code, text in (
                (("channel", "add", "2", "", "u"), 65, "1 to 255"),
                (("channel", "add", "2", "c" * 256, "u"), 65, "1 to 255"),
                (("channel", "add", "2", "room", ""), 65, "1 to 255"),
                (("channel", "add", "2", "room", "u" * 256), 65, "1 to 255"),
                (("channel", "add", "0", "room", "u"), 64, "channel type"),
                (("channel", "add", "13", "room", "u"), 64, "channel type"),
                (("channel", "add", "4294967298", "room", "u"), 64, "channel type"),
                (("channel", "add", "2", "room"), 64, "no UIDs"),
                (("channel", "show", "2", "room"), 1, "not_found")):
            got, answer = node.ctl(*arguments)
            if got != code or text not in answer:
                raise lab.Failure("%s: %d, %s" % (arguments, got, answer))
        with node.meta() as meta:
            for what, error in (
                    ({"channel": ""}, "invalid_channel"), ({"channel": "c" * 256}, "invalid_channel"),
                    ({"channel": {"hex": ""}}, "invalid_channel"), ({"channel": None}, "invalid_channel"),
                    ({"channel": {"hex": "00" * 256}}, "invalid_channel"),
                    ({"uids": [""]}, "invalid_uid"), ({"uids": ["u" * 256]}, "invalid_uid"),
                    ({"uids": [17]}, "invalid_uid"), ({"uids": []}, "invalid_uids"),
                    ({"uids": "u"}, "invalid_uids"), ({"type": 0}, "invalid_type"),
                    ({"type": 1 << 32}, "invalid_type"), ({"type": (1 << 32) + 2}, "invalid_type"),
                    ({"count": 1 << 32}, "unknown_argument"), ({"list": "other"}, "invalid_list"),
                    ({"dedup": "0" * 32}, "invalid_dedup")):
                request = {"type": TYPE, "channel": "room", "uids": ["u"], **what}
                answer = meta.call("channel.add", **request)
                if answer["ok"] or answer["error"] != error:
                    raise lab.Failure("channel.add %s: %s" % (str(what)[:60], answer))
            for limit in (0, 1 << 32, 1 << 62, -1):
                answer = meta.call("channel.list", limit=limit)
                if answer["ok"] or answer["error"] != "invalid_argument":
                    raise lab.Failure("limit %d: %s" % (limit, answer))
            if meta.call("channel.list")["rows"] != []:
                raise lab.Failure("a refused command left something behind")
        self.checked += 29

    def members(self):
        """Ids of every length, repeated UIDs, the empty channel and the unknown one."""
        long_channel, long_uid = "c" * 255, "u" * 255
        with self.node.meta() as meta:
            answer = meta.call("channel.add", type=TYPE, channel=long_channel, uids=[long_uid, "x"])
            again = meta.call("channel.add", type=TYPE, channel="twice", uids=["a", "b", "a", "a", "b"])
            meta.call("channel.create", type=TYPE, channel="empty")
            if answer["members"] != 2 or again["members"] != 2 or again["changed"] != 2:
                raise lab.Failure("members: %s, %s" % (answer, again))
            shown = meta.call("channel.show", type=TYPE, channel="twice")
            if sorted(shown["members"]) != ["a", "b"]:
                raise lab.Failure("repeated UIDs: %s" % shown)
        gateway = self.lab.client("gateway", "demo_gateway", 100)
        self.lab.open_sessions(gateway, [long_uid, "a", "b"])
        gateway.expect("opened", 30)
        for channel, result in ((b"twice", ("ok", 2)), (b"c" * 255, ("ok", 2)), (b"empty", ("ok", 0)),
                                (b"nobody-made-it", ("unknown_channel", 0))):
            got = self.peer.publish(channel)
            if got != result:
                raise lab.Failure("publish to %s: %s" % (channel[:20], got))
        got = self.peer_large()
        if got != "too_large":
            raise lab.Failure("a payload over the limit: %s" % got)
        lab.wait_until("each member got it", lambda: gateway.stats()["delivered"] >= 3, 10)
        gateway.ask("flush", "flushed")
        with open(self.lab.delivery_log("gateway"), encoding="utf-8") as log:
            got = sorted((line.split()[3], line.split()[4]) for line in log)
        if got != sorted([("twice", "a"), ("twice", "b"), (long_channel, long_uid)]):
            raise lab.Failure("deliveries: %s" % [(c[:20], u[:20]) for c, u in got])
        self.checked += 6
        return gateway

    def peer_large(self):
        """17 KiB in segments, where the node takes 16."""
        p = self.peer
        body = publish_body(next(p.requests), b"twice", p.cookie, payload=bytes(17 * 1024))
        part = 1200
        count = -(-len(body) // part)
        for i in range(count):
            p.send(p.datagram(SEGMENT, segment_body(9000, i, count, len(body), i * part,
                                                    body[i * part:(i + 1) * part])))
        return STATUS[p.receive(PUBLISH_ACK)[24]]

    # -- flood

    def resident(self):
        with open("/proc/%d/statm" % self.node.process.pid, encoding="ascii") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def flood(self, seconds):
        """All of it, from ever new senders, as fast as it goes. Returns: datagrams sent."""
        rand, sent, sender = random.Random(1), 0, itertools.count(100000)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            p = self.new_peer(2, next(sender))
            cases = itertools.chain(wire_cases(p), body_cases(p), segment_cases(p))
            datagrams = [data for _, _, data in cases]
            datagrams += [p.datagram(SEGMENT, segment_body(i, 0, 80, 96000, 0, bytes(1200)))
                          for i in range(8)]
            datagrams += [p.datagram(HELLO, hello_body(2, rand.getrandbits(64))) for _ in range(8)]
            datagrams += [p.datagram(ANNOUNCE, announce_body(1, 1, b"user-%d" % i)) for i in range(8)]
            datagrams += [bytes(rand.getrandbits(8) for _ in range(60)) for _ in range(4)]
            for data in datagrams * 4:
                p.send(data)
            frames = [data for _, _, data in frame_cases(self.frames, p)]
            for data in frames:
                self.frames.send(data)
            sent += 4 * len(datagrams) + len(frames)
        return sent

    def flooded(self, gateway):
        self.flood(1.5)  # everything that is reserved has been used once
        before, limits = self.resident(), self.node.ask("show", "limits")["rows"]
        drops = sum(self.dropped().values())
        sent = self.flood(FLOOD_SECONDS)
        after = self.resident()
        drops = sum(self.dropped().values()) - drops
        lab.say("flood: %d datagrams, %d counted drops, resident %d KiB before, %d KiB after" % (
            sent, drops, before // 1024, after // 1024))
        if after > before * (1 + RSS_RISE_MAX):
            raise lab.Failure("the node grew by %d bytes" % (after - before))
        for name, used, most, *_ in self.node.ask("show", "limits")["rows"]:
            if used > most:
                raise lab.Failure("%s: %d of %d in use; before: %s" % (name, used, most, limits))
        if drops == 0:
            raise lab.Failure("nothing was dropped")
        # It serves as before.
        delivered = gateway.stats()["delivered"]
        p = self.new_peer(3, 7000)
        p.hello()
        p.requests = itertools.count(1000000)
        if p.publish(b"twice") != ("ok", 2):
            raise lab.Failure("a publish after the flood fails")
        lab.wait_until("members get it after the flood",
                       lambda: gateway.stats()["delivered"] == delivered + 2, 10)


def too_large_for_the_machine(build, config):
    """Limits no machine of today has memory for: --check says so, a start is refused with the place."""
    with open(config, encoding="utf-8") as text:
        big = re.sub(r"^  tag_memory: .*$", "  tag_memory: 1TiB", text.read(), flags=re.M)
    path = config + "-big"
    with open(path, "w", encoding="utf-8") as out:
        out.write(big)
    place = re.escape(path) + r":\d+:\d+: limits\.tag_memory: "
    for option, code, wanted in (("--check", 0, "^warning: " + place), ("-c", 78, "^" + place)):
        began = time.monotonic()
        done = subprocess.run([os.path.join(build, "app/tagcastd/tagcastd"), option, path],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=30, check=False)
        if done.returncode != code or not re.search(wanted, done.stdout, re.M):
            raise lab.Failure("tagcastd %s: %d, %s" % (option, done.returncode, done.stdout))
        if "memory: " not in done.stdout or time.monotonic() - began > 10:
            raise lab.Failure("tagcastd %s: %s" % (option, done.stdout))


def work(stack):
    build = os.path.abspath(sys.argv[1])
    lab.check(build)
    run = Run(stack, build)
    too_large_for_the_machine(build, run.node.config)
    run.prepare(stack)
    run.ctl_cases()
    run.network_cases()
    run.strangers()
    gateway = run.members()
    lab.say("%d cases ended in the counter or the answer they name" % run.checked)
    run.flooded(gateway)
    run.node.check_alive()


if __name__ == "__main__":
    sys.exit(lab.main("limits_test", work))
