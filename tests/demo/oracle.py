#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Decides whether every receiver of the demo got what it should, and nothing else.

Reads the package index, the demo's command log and the gateways' delivery logs; shares no code with the
product or with demo.py, not even the parser of the index.

    oracle.py --index FILE --commands FILE GATEWAY=DELIVERY_LOG...

Command log: one JSON object a line, times in nanoseconds of one monotonic clock:
    {"kind": "generated", "type", "channel", "prefix", "count"}          members <prefix>0 .. <count - 1>
    {"kind": "open", "gateway", "uids", "start", "end"}                  sessions known to the node by `end`
    {"kind": "mutate", "op": "add|remove|reset", "list": "members|deny", "type", "channel", "uids",
     "start", "end", "applied"}                                applied false: never sure to have ended
    {"kind": "publish", "message", "group", "type", "channel", "ack", "send", "outcome", "status",
     "sender"}                                                           sender: [gateway, uid] or null
    {"kind": "stats", "gateway", "suppressed"}
Delivery log: <ns> <message id> <channel type> <channel> <uid> <stamp> <late>

The rule, for a message in flight from `send` to `outcome`: a change that ended before `send` counts, one
that started after `outcome` does not, one that overlaps may be seen or not. Who is a member in every
possible view must get it once on each of its sessions; who is one in no view must not.

Exit: 0 all right, 1 something missing, doubled, wrong or refused, 2 the input cannot be judged.
"""
import argparse
import collections
import json
import sys

NEVER = float("inf")
EXAMPLES = 5


class Unjudgeable(Exception):
    """The input does not allow a judgement."""


# --- the package index -------------------------------------------------------------------------------

def relation_names(value):
    """The package names of a Depends value: each alternative, without version, architecture, profile."""
    for clause in value.split(","):
        for choice in clause.split("|"):
            name = choice.strip()
            for stop in " (:[<\t":
                name = name.split(stop, 1)[0]
            if name:
                yield name


def read_index(path):
    """Channel name -> set of the packages that name it in Depends or Pre-Depends."""
    channels = collections.defaultdict(set)
    package = None
    field = None
    values = {}

    def close():
        if package is None:
            return
        for value in values.values():
            for name in relation_names(value):
                channels[name].add(package)

    with open(path, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            line = line.rstrip("\n")
            if not line.strip():
                close()
                package, field, values = None, None, {}
            elif line[0] in " \t":
                if field is not None:
                    values[field] += " " + line.strip()
            else:
                key, _, value = line.partition(":")
                key = key.lower()
                field = None
                if key == "package":
                    package = value.strip()
                elif key in ("depends", "pre-depends"):
                    field = key
                    values[field] = value
        close()
    return channels


# --- the command log ---------------------------------------------------------------------------------

class Channel:
    """The membership of a channel: a state after each change, in order."""

    def __init__(self, members):
        self.members = set(members)
        self.denied = set()
        self.views = [frozenset(self.members)]
        self.changes = []  # (start, end) of the change that made views[i + 1]

    def change(self, record):
        uids = record["uids"]
        target = self.members if record["list"] == "members" else self.denied
        start = record["start"]
        end = record["end"] if record["applied"] else NEVER
        if self.changes and self.changes[-1][1] > start and self.changes[-1][1] != NEVER:
            raise Unjudgeable("two changes of one channel overlap: %s" % record["channel"])
        if record["op"] == "add":
            target.update(uids)
        elif record["op"] == "remove":
            target.difference_update(uids)
        elif record["op"] == "reset":
            target.clear()
            target.update(uids)
        else:
            raise Unjudgeable("unknown change %r" % record["op"])
        self.views.append(frozenset(self.members - self.denied))
        self.changes.append((start, end))

    def possible(self, send, outcome):
        """The views a message in flight from send to outcome may have seen."""
        first = 0
        last = 0
        for i, (start, end) in enumerate(self.changes):
            if end < send:
                first = i + 1
            if start <= outcome:
                last = i + 1
        return self.views[first:last + 1]


class Story:
    """What the demo did."""

    def __init__(self, index, path):
        self.channels = {(2, name): members for name, members in index.items()}
        self.live = {}
        self.sessions = collections.defaultdict(dict)  # uid -> gateway -> (start, end) of its opening
        self.publishes = {}
        self.suppressed = 0
        mutations = []
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                try:
                    self.take(json.loads(line), mutations)
                except (KeyError, ValueError, TypeError) as problem:
                    raise Unjudgeable("%s:%d: %r" % (path, number, problem)) from problem
        # The log is written by several threads; what counts is when a change began.
        for record in sorted(mutations, key=lambda m: m["start"]):
            self.channel(record).change(record)

    def take(self, record, mutations):
        kind = record["kind"]
        if kind == "generated":
            names = {"%s%d" % (record["prefix"], i) for i in range(record["count"])}
            self.channels[(record["type"], record["channel"])] = names
        elif kind == "open":
            for uid in record["uids"]:
                self.sessions[uid][record["gateway"]] = (record["start"], record["end"])
        elif kind == "mutate":
            mutations.append(record)
        elif kind == "publish":
            if record["message"] in self.publishes:
                raise ValueError("message id used twice")
            self.publishes[record["message"]] = record
        elif kind == "stats":
            self.suppressed += record["suppressed"]

    def channel(self, record):
        key = (record["type"], record["channel"])
        if key not in self.live:
            self.live[key] = Channel(self.channels.get(key, ()))
        return self.live[key]

    def receivers(self, publish):
        """(must, may, members): sessions as (gateway, uid), and how many members the widest view has."""
        views = self.channel(publish).possible(publish["send"], publish["outcome"])
        certain = frozenset.intersection(*views)
        perhaps = frozenset.union(*views)
        must, may = set(), set()
        sender = tuple(publish["sender"]) if publish["sender"] else None
        for uid in perhaps:
            for gateway, (start, end) in self.sessions.get(uid, {}).items():
                session = (gateway, uid)
                if session == sender or start > publish["outcome"]:
                    continue
                may.add(session)
                if uid in certain and end <= publish["send"]:
                    must.add(session)
        return must, may, len(perhaps)


# --- deliveries --------------------------------------------------------------------------------------

def read_deliveries(logs):
    """message id -> (gateway, uid) -> list of (ns, channel type, channel)"""
    deliveries = collections.defaultdict(dict)
    for gateway, path in logs:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                parts = line.split()
                if len(parts) != 7 or not line.endswith("\n"):
                    raise Unjudgeable("%s:%d: not a delivery line" % (path, number))
                entry = (int(parts[0]), int(parts[2]), parts[3])
                deliveries[int(parts[1])].setdefault((gateway, parts[4]), []).append(entry)
    return deliveries


class Row:
    """Sums of one group of messages."""

    def __init__(self):
        self.messages = self.members = self.online = self.delivered = 0
        self.missing = self.duplicate = self.wrong = self.refused = 0
        self.latencies = []
        self.spans = []

    def add(self, other):
        for name in ("messages", "members", "online", "delivered", "missing", "duplicate", "wrong",
                     "refused"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.latencies += other.latencies
        self.spans += other.spans

    def quantile(self, q):
        if not self.latencies:
            return 0.0
        at = min(len(self.latencies) - 1, int(q * len(self.latencies)))
        return sorted(self.latencies)[at] / 1e6

    def routes_per_second(self):
        """Deliveries over the time in which anything was under way."""
        busy, until = 0, 0
        for start, end in sorted(self.spans):
            busy += max(0, end - max(start, until))
            until = max(until, end)
        return self.delivered / (busy / 1e9) if busy else 0.0


def judge_message(story, publish, got, row, examples):
    message = publish["message"]
    must, may, members = story.receivers(publish)
    row.messages += 1
    row.members += members
    row.online += len(must)
    where = "message %d to %s/%s" % (message, publish["type"], publish["channel"])
    last = publish["send"]
    if publish["status"] != "ok":
        row.refused += 1
        examples["refused"].append("%s: %s" % (where, publish["status"]))
        must = set()
    for session in must:
        if session not in got:
            row.missing += 1
            examples["missing"].append("%s: %s on %s" % (where, session[1], session[0]))
    for session, entries in got.items():
        row.duplicate += len(entries) - 1
        if len(entries) > 1:
            examples["duplicate"].append("%s: %s on %s, %d times" % (where, session[1], session[0],
                                                                     len(entries)))
        right = session in may and all(e[1:] == (publish["type"], publish["channel"]) for e in entries)
        if not right:
            row.wrong += 1
            examples["wrong"].append("%s: %s on %s" % (where, session[1], session[0]))
            continue
        row.delivered += 1
        row.latencies.append(entries[0][0] - publish["send"])
        last = max(last, entries[0][0])
    row.spans.append((publish["send"], last))


def judge(story, deliveries):
    rows = {}
    examples = collections.defaultdict(list)
    for message, publish in sorted(story.publishes.items()):
        row = rows.setdefault(publish["group"], Row())
        judge_message(story, publish, deliveries.get(message, {}), row, examples)
    stray = Row()
    for message in set(deliveries) - set(story.publishes):
        stray.wrong += sum(len(e) for e in deliveries[message].values())
        examples["wrong"].append("message %d was never published" % message)
    if stray.wrong:
        rows["never published"] = stray
    return rows, examples


def report(rows, examples, story):
    total = Row()
    for row in rows.values():
        total.add(row)
    head = ("group", "messages", "members", "online", "delivered", "missing", "duplicate", "wrong",
            "refused", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "routes/s")
    table = [head]
    for name, row in list(rows.items()) + [("total", total)]:
        table.append((name, row.messages, row.members, row.online, row.delivered, row.missing,
                      row.duplicate, row.wrong, row.refused, "%.2f" % row.quantile(0.5),
                      "%.2f" % row.quantile(0.99), "%.2f" % row.quantile(0.999),
                      "%.2f" % row.quantile(1.0), "%.0f" % row.routes_per_second()))
    widths = [max(len(str(line[i])) for line in table) for i in range(len(head))]
    for line in table:
        cells = [str(cell).ljust(w) if i == 0 else str(cell).rjust(w)
                 for i, (cell, w) in enumerate(zip(line, widths))]
        print("  ".join(cells))
    print("repeats suppressed by the client library: %d" % story.suppressed)
    for kind in ("missing", "duplicate", "wrong", "refused"):
        for example in examples[kind][:EXAMPLES]:
            print("%s: %s" % (kind, example))
        if len(examples[kind]) > EXAMPLES:
            print("%s: and %d more" % (kind, len(examples[kind]) - EXAMPLES))
    return total


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--index", required=True)
    parser.add_argument("--commands", required=True)
    parser.add_argument("logs", nargs="+", metavar="GATEWAY=LOG")
    args = parser.parse_args(argv)
    try:
        index = read_index(args.index)
        print("index: %d channels, %d memberships, largest %d" % (
            len(index), sum(map(len, index.values())), max(map(len, index.values()), default=0)))
        story = Story(index, args.commands)
        deliveries = read_deliveries([log.split("=", 1) for log in args.logs])
        rows, examples = judge(story, deliveries)
        total = report(rows, examples, story)
        if total.online == 0:
            raise Unjudgeable("no message had a receiver")
    except (Unjudgeable, OSError) as problem:
        print("oracle: cannot judge: %s" % problem, file=sys.stderr)
        return 2
    bad = total.missing or total.duplicate or total.wrong or total.refused
    print("oracle: %s" % ("NOT all right" if bad else "every receiver got every message, once"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
