#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The judge of the group tests sees what it is there for: each way of losing or doubling something fails."""
import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import lab
import raft_check
from raft_load import Done


def done(commit, smv, uid="u1", op="add", channel="c"):
    return Done(op, channel, uid, commit, smv, False, 0.0, 0.0, 1)


def delta(smv, uid="u1", kind=raft_check.ADD, channel="c"):
    return kind, channel, smv, [uid], 0


class History:
    def __init__(self, name, deltas):
        self.node, self.deltas = type("Node", (), {"name": name}), deltas


class Judge(unittest.TestCase):
    def test_what_is_in_the_history_passes(self):
        self.assertEqual(raft_check.judge_done(
            [done(2, 1), done(3, 2, "u1", "remove")],
            {2: delta(1), 3: delta(2, kind=raft_check.REMOVE)}, 1), 2)

    def test_before_the_history_only_numbers_are_judged(self):
        self.assertEqual(raft_check.judge_done([done(2, 1)], {}, 5), 0)

    def refused(self, entries, deltas):
        with self.assertRaises(lab.Failure):
            raft_check.judge_done(entries, deltas, 1)

    def test_a_lost_change_fails(self):
        self.refused([done(2, 1), done(3, 2, "u2")], {2: delta(1)})

    def test_another_change_under_its_number_fails(self):
        self.refused([done(2, 1)], {2: delta(1, "other")})
        self.refused([done(2, 1)], {2: delta(1, channel="d")})
        self.refused([done(2, 1)], {2: delta(1, kind=raft_check.REMOVE)})
        self.refused([done(2, 1)], {2: delta(7)})

    def test_one_number_told_twice_fails(self):
        self.refused([done(2, 1), done(2, 2, "u2")], {2: delta(1)})
        self.refused([done(2, 1), done(3, 1, "u2")], {2: delta(1), 3: delta(1, "u2")})

    def test_histories_that_differ_fail(self):
        same = History("a", {2: delta(1)})
        raft_check.union([same, History("b", {2: delta(1), 3: delta(2)})])
        with self.assertRaises(lab.Failure):
            raft_check.union([same, History("b", {2: delta(1, "u2")})])

    def test_nodes_with_other_digests_fail(self):
        class Node:
            def __init__(self, name, crc):
                self.name, self.crc = name, crc

            def ask(self, *_):
                return {"fields": {"commit": 1, "chain": "x", "bytes": 1, "crc32c": self.crc}}
        raft_check.digests([Node("a", "1"), Node("b", "1")])
        with self.assertRaises(lab.Failure):
            raft_check.digests([Node("a", "1"), Node("b", "2")])


if __name__ == "__main__":
    unittest.main()
