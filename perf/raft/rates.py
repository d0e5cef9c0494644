#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the meta process costs over the bare library, in one run: rates.py BUILD [--rounds N] [--seconds N]
[--dir DIR] [--rows N]

A loop over libraft alone (raft_bare) and the whole meta process (raft_gen asks it) take turns, as one voter
and as three on loopback, in folders of the same disk. A ratio is the median of the rounds' ratios. Needs
root: all of it runs in a network namespace of its own.
"""
import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/lib"))
import lab

PORT, ENTRY_BYTES, MANY = 7700, 256, 64
UID_BYTES = 200  # with the command around it about an entry of ENTRY_BYTES
LATENCY_MOST, RATE_LEAST, IMPORT_LEAST = 1.3, 0.7, 200000


def own_network():
    """Loopback of our own: a new network namespace for this process and its children."""
    if os.environ.get("TAGCAST_RATES") == "inside":
        lab.run("ip", "link", "set", "lo", "up")
        return
    os.environ["TAGCAST_RATES"] = "inside"
    os.execvp("unshare", ["unshare", "--net", sys.executable, "-B", *sys.argv])


class Rates:
    def __init__(self, stack, args):
        self.stack, self.args = stack, args
        self.build = os.path.abspath(args.build)
        self.port = PORT

    def folder(self):
        path = tempfile.mkdtemp(prefix="tagcast-rates-", dir=self.args.dir)
        self.stack.callback(shutil.rmtree, path, True)
        return path

    def start(self, *command, **more):
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, **more)
        self.stack.callback(lab.end_process, process, 5)
        return process

    # -- the library alone

    def bare(self, voters, call_entries, in_flight):
        folder, self.port = self.folder(), self.port + 10
        program = os.path.join(self.build, "perf/raft/raft_bare")
        running = [self.start(program, os.path.join(folder, str(i)), str(i), str(voters), str(self.port),
                              str(ENTRY_BYTES), str(call_entries), str(in_flight), str(self.args.seconds),
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                   for i in range(1, voters + 1)]
        ended = lab.wait_until("the bare loop ends", lambda: next(
            (p for p in running if p.poll() is not None), None), self.args.seconds + 30, 0.02)
        for process in running:
            process.kill()
            process.wait()
        shutil.rmtree(folder)
        line = ended.stdout.read()
        if not line:
            raise lab.Failure("the bare loop said nothing")
        return json.loads(line)

    # -- the meta process

    def group(self, voters):
        """Started nodes: (process, run folder); the first leads."""
        folder, self.port = self.folder(), self.port + 10
        nodes = []
        for i in range(1, voters + 1):
            run_dir = os.path.join(folder, "r%d" % i)
            address = [] if voters == 1 else ["--raft-address", "127.0.0.1:%d" % (self.port + i),
                                              "--raft-auth", "off"]
            process = self.start(
                os.path.join(self.build, "app/tagcast-metad/tagcast-metad"), "--run-dir", run_dir,
                "--data-dir", os.path.join(folder, "d%d" % i), "--node-id", str(i), "--cluster-id", "1",
                "--log-level", "warn", "--snapshot-entries", str(1 << 20), "--snapshot-log",
                str(1 << 30), *address)
            nodes.append((process, run_dir))
            self.wait_state(run_dir, "waiting")
            if i == 1:
                self.ask(run_dir, "meta.bootstrap")
            else:
                self.ask(run_dir, "meta.join", via="127.0.0.1:%d" % (self.port + 1))
                self.wait_state(run_dir, "ready")
                lab.wait_until("promotion", lambda n=i: self.call(
                    nodes[0][1], "meta.promote", node=n)["ok"], 60)
            self.wait_state(run_dir, "ready")
        return folder, nodes

    @staticmethod
    def call(run_dir, cmd, **arguments):
        with lab.Control(run_dir + "/meta.sock", 60) as control:
            return control.call(cmd, **arguments)

    def ask(self, run_dir, cmd, **arguments):
        answer = self.call(run_dir, cmd, **arguments)
        if not answer["ok"]:
            raise lab.Failure("%s: %s" % (cmd, answer))
        return answer

    def wait_state(self, run_dir, state):
        def there():
            try:
                return self.call(run_dir, "meta.status")["fields"]["state"] == state
            except lab.Unreachable:
                return False
        lab.wait_until("%s is %s" % (run_dir, state), there, 30, 0.02)

    def end(self, folder, nodes):
        for process, _ in nodes:
            process.kill()
            process.wait()
        shutil.rmtree(folder)

    def asked(self, nodes, in_flight, uids=1):
        found = json.loads(lab.run(
            os.path.join(self.build, "tests/raft/raft_gen"), nodes[0][1] + "/meta.sock",
            secrets.token_hex(3), str(in_flight), str(uids), str(UID_BYTES), str(self.args.seconds)))
        if found["bad"]:
            raise lab.Failure("%d of %d refused" % (found["bad"], found["answered"]))
        return found

    # -- rows of the table

    def compare(self, voters):
        """One at a time; many separate ones at a time; one that carries many."""
        rounds = []
        for _ in range(self.args.rounds):
            bare = [self.bare(voters, 1, 1), self.bare(voters, 1, MANY), self.bare(voters, MANY, 1)]
            folder, nodes = self.group(voters)
            meta = [self.asked(nodes, 1), self.asked(nodes, MANY), self.asked(nodes, 1, MANY)]
            turn = self.call(nodes[0][1], "meta.status")["fields"]
            self.end(folder, nodes)
            meta[2]["rate"] *= MANY
            rounds.append((bare, meta))
            lab.say("%d voters, one: bare %d us, meta %d us; %d separate ones: bare %.0f/s, meta %.0f/s; %d "
                    "in one: bare %.0f/s, meta %.0f/s; longest turn %.1f ms CPU, %.1f ms wall" % (
                        voters, bare[0]["p50_us"], meta[0]["p50_us"], MANY, bare[1]["rate"],
                        meta[1]["rate"], MANY, bare[2]["rate"], meta[2]["rate"],
                        turn["turn_max_cpu_us"] / 1e3, turn["turn_max_wall_us"] / 1e3))
        name = "%d voter%s, " % (voters, "s" * (voters > 1))
        self.ratio(name + "one at a time, p50 us", rounds, 0, "p50_us", LATENCY_MOST, False)
        self.ratio(name + "%d separate in flight, per second" % MANY, rounds, 1, "rate", RATE_LEAST, True)
        self.ratio(name + "%d in one, per second" % MANY, rounds, 2, "rate", RATE_LEAST, True)

    def ratio(self, what, rounds, which, field, goal, least):
        pairs = [(meta[which][field], bare[which][field]) for bare, meta in rounds]
        ratio = middle(m / b for m, b in pairs)
        self.row(what, middle(m for m, _ in pairs), middle(b for _, b in pairs), ratio,
                 "%s %.2f" % (">=" if least else "<=", goal), ratio >= goal if least else ratio <= goal)

    def import_rows(self, voters):
        folder, nodes = self.group(voters)
        path = os.path.join(folder, "rows")
        with open(path, "w", encoding="ascii") as out:
            for i in range(self.args.rows):
                out.write("2\troom-%d\tu%08d\n" % (i // 1000, i))
        started = time.monotonic()
        done = subprocess.run([os.path.join(self.build, "app/tagcastctl/tagcastctl"), "--run-dir",
                               nodes[0][1], "import", path], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
        took = time.monotonic() - started
        if done.returncode != 0:
            raise lab.Failure("import: %s" % done.stdout)
        turn = self.call(nodes[0][1], "meta.status")["fields"]
        self.end(folder, nodes)
        rate = self.args.rows / took
        lab.say("import of %d rows, %d voters: %.2f s; longest turn %.1f ms CPU, %.1f ms wall" % (
            self.args.rows, voters, took, turn.get("turn_max_cpu_us", 0) / 1e3,
            turn.get("turn_max_wall_us", 0) / 1e3))
        self.row("%d voter%s, import, rows per second" % (voters, "s" * (voters > 1)), rate, IMPORT_LEAST,
                 rate / IMPORT_LEAST, ">= 1.00", rate >= IMPORT_LEAST)

    def row(self, what, figure, primitive, ratio, goal, met):
        self.rows.append("%-42s %12.0f %12.0f %9.2f %9s  %s" % (
            what, figure, primitive, ratio, goal, "pass" if met else "MISS"))

    def run(self):
        self.rows = []
        for voters in (1, 3):
            self.compare(voters)
        for voters in (1, 3):
            self.import_rows(voters)
        print("%-42s %12s %12s %9s %9s  %s" % ("what", "meta", "bare", "ratio", "goal", "verdict"))
        print("\n".join(self.rows), flush=True)


def middle(values):
    values = sorted(values)
    return values[len(values) // 2]


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("build")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=2)
    parser.add_argument("--rows", type=int, default=1000000)
    parser.add_argument("--dir", help="folder on the disk to measure on")
    args = parser.parse_args(argv)
    own_network()
    return lab.main("rates", lambda stack: Rates(stack, args).run())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
