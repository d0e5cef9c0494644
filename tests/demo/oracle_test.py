#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Plants what the oracle must find, and what it must let pass."""
import contextlib
import io
import json
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import demo
import oracle

INDEX = """Package: alpha
Version: 1
Pre-Depends: base (>= 1.0)
Depends: libc6 (>= 2.36), libfoo1 | libfoo2 [amd64] | foo-virtual,
 perl:any <!nocheck>, libc6
Suggests: not-a-channel

Package: beta
Depends: libc6, alpha
Description: with a
 Depends: fake

Package: gamma

Package: delta
depends: libc6
"""


class Parsers(unittest.TestCase):
    want = {
        "base": {"alpha"}, "libc6": {"alpha", "beta", "delta"}, "libfoo1": {"alpha"},
        "libfoo2": {"alpha"}, "foo-virtual": {"alpha"}, "perl": {"alpha"}, "alpha": {"beta"},
    }

    def test_oracle_reads_the_graph(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "index")
            with open(path, "w", encoding="utf-8") as f:
                f.write(INDEX)
            self.assertEqual(dict(oracle.read_index(path)), self.want)

    def test_demo_derives_the_same_graph(self):
        channels, packages = demo.derive_graph(INDEX)
        self.assertEqual({k: set(v) for k, v in channels.items()}, self.want)
        self.assertEqual(packages, ["alpha", "beta", "gamma", "delta"])


class World:
    """Logs of a small run in which everything is right, to be spoilt by a test."""

    def __init__(self):
        self.commands = [
            {"kind": "open", "gateway": "g1", "uids": ["alpha", "beta", "new"], "start": 1, "end": 2},
            {"kind": "open", "gateway": "g2", "uids": ["beta"], "start": 1, "end": 2},
        ]
        self.lines = {"g1": [], "g2": []}
        self.publish(1, 100, 110)
        for g, uid in (("g1", "alpha"), ("g1", "beta"), ("g2", "beta")):
            self.deliver(g, uid, 1, 105)

    def publish(self, message, send, outcome, **more):
        record = {"kind": "publish", "message": message, "group": "all", "type": 2, "channel": "libc6",
                  "ack": "gateway", "send": send, "outcome": outcome, "status": "ok", "sender": None}
        record.update(more)
        self.commands.append(record)

    def mutate(self, op, uids, start, end, **more):
        record = {"kind": "mutate", "op": op, "list": "members", "type": 2, "channel": "libc6",
                  "uids": uids, "start": start, "end": end, "applied": True}
        record.update(more)
        self.commands.append(record)

    def deliver(self, gateway, uid, message, ns, channel="libc6"):
        self.lines[gateway].append("%d %d 2 %s %s 7 0\n" % (ns, message, channel, uid))

    def verdict(self):
        out = io.StringIO()
        with tempfile.TemporaryDirectory() as d:
            paths = {name: os.path.join(d, name) for name in ("index", "commands", "g1", "g2")}
            with open(paths["index"], "w", encoding="utf-8") as f:
                f.write(INDEX)
            with open(paths["commands"], "w", encoding="utf-8") as f:
                f.writelines(json.dumps(c) + "\n" for c in self.commands)
            for g, lines in self.lines.items():
                with open(paths[g], "w", encoding="utf-8") as f:
                    f.writelines(lines)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                rc = oracle.main(["--index", paths["index"], "--commands", paths["commands"],
                                  "g1=" + paths["g1"], "g2=" + paths["g2"]])
        return rc, out.getvalue()


class Verdicts(unittest.TestCase):
    def setUp(self):
        self.w = World()

    def right(self):
        rc, out = self.w.verdict()
        self.assertEqual(rc, 0, out)

    def found(self, kind):
        rc, out = self.w.verdict()
        self.assertEqual(rc, 1, out)
        self.assertRegex(out, "(?m)^%s: " % kind)
        for other in {"missing", "duplicate", "wrong", "refused"} - {kind}:
            self.assertNotRegex(out, "(?m)^%s: " % other)

    def test_a_right_run_passes(self):
        self.right()

    def test_one_missing_session_is_found(self):
        del self.w.lines["g2"][0]
        self.found("missing")

    def test_a_message_nobody_got_is_found(self):
        self.w.publish(2, 200, 210)
        self.found("missing")

    def test_a_duplicate_is_found(self):
        self.w.deliver("g1", "alpha", 1, 106)
        self.found("duplicate")

    def test_a_receiver_that_is_no_member_is_found(self):
        self.w.deliver("g1", "new", 1, 106)
        self.found("wrong")

    def test_a_session_that_was_never_opened_is_found(self):
        self.w.deliver("g2", "alpha", 1, 106)
        self.found("wrong")

    def test_a_message_under_another_channel_is_found(self):
        self.w.lines["g2"][0] = self.w.lines["g2"][0].replace("libc6", "perl")
        self.found("wrong")

    def test_a_message_never_published_is_found(self):
        self.w.deliver("g1", "alpha", 99, 106)
        self.found("wrong")

    def test_a_refused_publish_is_found(self):
        self.w.publish(2, 200, 210, status="timeout")
        self.found("refused")

    def test_a_member_removed_before_must_not_get_it(self):
        self.w.mutate("remove", ["alpha"], 120, 130)
        self.w.publish(2, 200, 210)
        self.w.deliver("g1", "beta", 2, 205)
        self.w.deliver("g2", "beta", 2, 205)
        self.right()
        self.w.deliver("g1", "alpha", 2, 205)
        self.found("wrong")

    def test_a_member_added_before_must_get_it(self):
        self.w.mutate("add", ["new"], 120, 130)
        self.w.publish(2, 200, 210)
        for g, uid in (("g1", "alpha"), ("g1", "beta"), ("g2", "beta")):
            self.w.deliver(g, uid, 2, 205)
        self.found("missing")
        self.w.deliver("g1", "new", 2, 205)
        self.right()

    def test_a_change_that_overlaps_allows_both(self):
        self.w.mutate("add", ["new"], 105, 130)
        self.right()
        self.w.deliver("g1", "new", 1, 105)
        self.right()
        del self.w.lines["g1"][0]  # alpha is a member in both views
        self.found("missing")

    def test_a_change_after_the_outcome_allows_only_the_old_view(self):
        self.w.mutate("add", ["new"], 115, 130)
        self.w.deliver("g1", "new", 1, 105)
        self.found("wrong")

    def test_a_change_not_applied_stays_open(self):
        self.w.mutate("remove", ["alpha"], 120, 130, applied=False)
        self.w.publish(2, 200, 210)
        self.w.deliver("g1", "beta", 2, 205)
        self.w.deliver("g2", "beta", 2, 205)
        self.right()
        self.w.deliver("g1", "alpha", 2, 205)
        self.right()

    def test_reset_replaces_all_members(self):
        self.w.mutate("reset", ["new"], 120, 130)
        self.w.publish(2, 200, 210)
        self.w.deliver("g1", "new", 2, 205)
        self.right()
        self.w.deliver("g1", "beta", 2, 205)
        self.found("wrong")

    def test_a_denied_member_gets_nothing_until_it_is_allowed_again(self):
        self.w.mutate("add", ["alpha"], 120, 130, list="deny")
        self.w.publish(2, 200, 210)
        self.w.mutate("remove", ["alpha"], 220, 230, list="deny")
        self.w.publish(3, 300, 310)
        for message in (2, 3):
            self.w.deliver("g1", "beta", message, message * 100 + 5)
            self.w.deliver("g2", "beta", message, message * 100 + 5)
        self.found("missing")
        self.w.deliver("g1", "alpha", 3, 305)
        self.right()
        self.w.deliver("g1", "alpha", 2, 205)
        self.found("wrong")

    def test_the_senders_own_session_gets_no_echo_but_its_other_one_does(self):
        self.w.publish(2, 200, 210, sender=["g1", "beta"])
        self.w.deliver("g1", "alpha", 2, 205)
        self.found("missing")
        self.w.deliver("g2", "beta", 2, 205)
        self.right()
        self.w.deliver("g1", "beta", 2, 205)
        self.found("wrong")

    def test_changes_of_one_channel_that_overlap_cannot_be_judged(self):
        self.w.mutate("add", ["new"], 120, 140)
        self.w.mutate("remove", ["new"], 130, 150)
        self.assertEqual(self.w.verdict()[0], 2)

    def test_a_cut_log_cannot_be_judged(self):
        self.w.lines["g1"][-1] = self.w.lines["g1"][-1][:-4]
        self.assertEqual(self.w.verdict()[0], 2)

    def test_a_run_without_receivers_cannot_be_judged(self):
        self.w.commands = [c for c in self.w.commands if c["kind"] != "open"]
        self.w.lines = {"g1": [], "g2": []}
        self.assertEqual(self.w.verdict()[0], 2)

    def test_a_generated_channel_has_its_members(self):
        self.w.commands.insert(0, {"kind": "generated", "type": 2, "channel": "big", "prefix": "m-",
                                   "count": 3})
        self.w.commands.append({"kind": "open", "gateway": "g1", "uids": ["m-0", "m-2", "m-3"],
                                "start": 1, "end": 2})
        self.w.publish(2, 200, 210, channel="big")
        self.w.deliver("g1", "m-0", 2, 205, channel="big")
        self.found("missing")
        self.w.deliver("g1", "m-2", 2, 205, channel="big")
        self.right()
        self.w.deliver("g1", "m-3", 2, 205, channel="big")
        self.found("wrong")


if __name__ == "__main__":
    unittest.main()
