#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The configuration of a running node is read again.

    reload_test.py BUILD_DIR

Keys rotate under traffic, node and clients one step after the other: every receiver gets every message once,
in order, and no datagram is refused. What must not change is refused, by SIGHUP and by tagcastctl, and the
node goes on as it was. Beside that: of its capabilities the running daemon has kept what the port needs.
"""
import collections
import contextlib
import os
import re
import secrets
import signal
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import lab

TYPE = 2
MEMBERS = 40
GATEWAYS = 2
SIZES = (0, 300, 5000)


class Traffic:
    """Publishes one message after the other until stopped; keeps their outcomes."""

    def __init__(self, publisher):
        self.publisher, self.outcomes = publisher, {}
        self.sent, self.stopped = 0, threading.Event()
        publisher.on_line = self.on_line
        self.thread = threading.Thread(target=self.run, daemon=True)

    def on_line(self, line):
        if line.startswith("out "):
            _, message, status, members, *_ = line.split()
            self.outcomes[int(message)] = (status, int(members))
            return True
        return False

    def run(self):
        while not self.stopped.is_set():
            if self.sent - len(self.outcomes) > 64:
                time.sleep(0.001)
                continue
            self.sent += 1
            self.publisher.send("pub %d gateway %d room %d" % (self.sent, TYPE, SIZES[self.sent % len(SIZES)]))

    def pass_some(self, more=300):
        """Waits until so many messages sent after now have their outcome."""
        until = self.sent + more
        lab.wait_until("%d outcomes" % until, lambda: len(self.outcomes) >= until, 60)


class Run:
    def __init__(self, stack, build):
        self.lab = lab.Lab(stack, build, "tcr", options={"workers": {"count": 2}})
        self.node = self.lab.node
        self.new_key = self.node.key_path + "-2"
        with open(os.open(self.new_key, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as key:
            key.write(secrets.token_bytes(32).hex() + "\n")
        self.checked = 0

    def prepare(self):
        self.node.start()
        self.node.bootstrap()
        self.node.wait_ready(30)
        uids = ["user-%d" % i for i in range(MEMBERS)]
        with self.node.meta() as meta:
            if not meta.call("channel.add", type=TYPE, channel="room", uids=uids)["ok"]:
                raise lab.Failure("channel.add")
        self.gateways = [self.lab.client("gw%d" % i, "demo_gateway", 100 + i) for i in range(GATEWAYS)]
        for i, gateway in enumerate(self.gateways):
            self.lab.open_sessions(gateway, uids[i::GATEWAYS])
        for gateway in self.gateways:
            gateway.expect("opened", 30)
        self.publisher = self.lab.client("publisher", "demo_publisher", 50)
        self.publisher.ask("window 128", "ok")

    # -- configurations

    def edit(self, pattern, text):
        with open(self.node.config, encoding="utf-8") as config:
            old = config.read()
        new = re.sub(pattern, text, old, flags=re.M)
        if new == old:
            raise lab.Failure("nothing to change: %s" % pattern)
        with open(self.node.config, "w", encoding="utf-8") as config:
            config.write(new)
        return old

    def set_keys(self, keys, send):
        listed = ", ".join("{id: %d, file: %s}" % key for key in keys)
        self.edit(r"^  keys: .*(\n  send_key: .*)?$", "  keys: [%s]\n  send_key: %d" % (listed, send))

    def reload(self):
        return self.node.ctl("reload")

    def reload_by_signal(self):
        before = self.node.status()
        self.daemon_signal(signal.SIGHUP)

        def counted():
            now = self.node.status()
            return now["reloads"] + now["reloads_refused"] > before["reloads"] + before["reloads_refused"]
        lab.wait_until("SIGHUP is heard", counted, 10)
        return self.node.status()["reloads"] > before["reloads"]

    def daemon_signal(self, number):
        # `ip netns exec` has become the daemon.
        self.node.process.send_signal(number)

    def must_reload(self):
        code, text = self.reload()
        if code != 0:
            raise lab.Failure("reload: %d, %s" % (code, text))

    # -- what is tested

    def rotate(self, traffic):
        old, new = (1, self.node.key_path), (2, self.new_key)
        clients = self.gateways + [self.publisher]

        def tell(*keys):
            words = " ".join("%s %d" % (path, number) for number, path in keys)
            for client in clients:
                client.ask("keys " + words, "ok")
            traffic.pass_some()

        traffic.pass_some()
        self.set_keys([old, new], 1)
        self.must_reload()
        traffic.pass_some()
        tell(old, new)
        self.set_keys([old, new], 2)
        if not self.reload_by_signal():
            raise lab.Failure("SIGHUP: refused\n%s" % self.node.log_tail())
        traffic.pass_some()
        tell(new, old)
        tell(new)
        self.set_keys([new], 2)
        self.must_reload()
        traffic.pass_some()
        self.checked += 1

    def judge(self, traffic):
        traffic.stopped.set()
        traffic.thread.join()
        lab.wait_until("all outcomes", lambda: len(traffic.outcomes) == traffic.sent, 30)
        bad = {m: o for m, o in traffic.outcomes.items() if o != ("ok", MEMBERS)}
        if bad:
            raise lab.Failure("outcomes: %s" % list(bad.items())[:5])
        expected = traffic.sent * MEMBERS
        lab.wait_until("%d deliveries" % expected, lambda: sum(
            g.stats()["delivered"] for g in self.gateways) >= expected, 30)
        arrived = collections.defaultdict(list)
        for gateway in self.gateways:
            gateway.ask("flush", "flushed")
            with open(self.lab.delivery_log(gateway.name), encoding="utf-8") as log:
                for line in log:
                    _, message, _, _, uid, *_ = line.split()
                    arrived[uid].append(int(message))
        for uid, got in arrived.items():
            if sorted(got) != list(range(1, traffic.sent + 1)):
                raise lab.Failure("%s got %d of %d messages, %d twice" % (
                    uid, len(set(got)), traffic.sent, len(got) - len(set(got))))
        drops = self.node.drops()
        refused = {name: drops[name] for name in ("drop_auth", "drop_key") if drops[name]}
        bad = sum(c.stats()["rx_bad"] for c in self.gateways + [self.publisher])
        if len(arrived) != MEMBERS or refused or bad:
            raise lab.Failure("%d of %d receivers, node refused %s, clients %d" % (
                len(arrived), MEMBERS, refused, bad))
        lab.say("keys rotated under %d messages, %d deliveries" % (traffic.sent, expected))

    def refused(self):
        """Nothing of a configuration with a change that needs a start is taken."""
        cases = [
            (r"^  udp_base: .*$", "  udp_base: 7777", "port.udp_base"),
            (r"^  uids: .*$", "  uids: 400001", "limits.uids"),
            (r"^  mode: on$", "  mode: off", "auth.keys"),
            (r"^  cluster_id: .*$", "  cluster_id: 1\n  log_level: loud", "node.log_level"),
            (r"^  keys: .*$", "  keys: [{id: 2, file: /nonexistent}]", "auth.keys"),
        ]
        for pattern, text, key in cases:
            old = self.edit(pattern, text)
            # A change that could be taken, beside it.
            self.edit(r"\Z", "delivery:\n  push_timeout: 70ms\n")
            code, answer = self.reload()
            if code != 65 or not re.search(r"node\.yaml:\d+:\d+: %s: " % re.escape(key), answer):
                raise lab.Failure("%s: %d, %s" % (key, code, answer))
            if self.reload_by_signal():
                raise lab.Failure("%s: taken by SIGHUP" % key)
            with open(self.node.config, "w", encoding="utf-8") as config:
                config.write(old)
            self.checked += 2
        code, answer = self.reload()
        if code != 0 or "no option changed" not in answer:
            raise lab.Failure("the old one again: %d, %s" % (code, answer))

    def times_and_level(self):
        self.edit(r"\Z", "delivery:\n  push_timeout: 70ms\n  deadline: 20s\ntags:\n  ttl: 1s\n")
        self.edit(r"^  cluster_id: 1$", "  cluster_id: 1\n  log_level: warn")
        code, answer = self.reload()
        for key in ("delivery.push_timeout", "delivery.deadline", "tags.ttl", "node.log_level"):
            if code != 0 or key not in answer:
                raise lab.Failure("reload: %d, %s" % (code, answer))
        # The tag of a channel nobody publishes to any more is freed after the new time.
        lab.wait_until("the idle tag is freed", lambda: self.node.ask("show", "tags")["rows"] == [], 20)
        self.checked += 1


KEPT = 1 << 12 | 1 << 13 | 1 << 14  # CAP_NET_ADMIN, CAP_NET_RAW, CAP_IPC_LOCK


def privileges(pid):
    """[(name of a thread, its effective and permitted capabilities, no_new_privs)]"""
    found = []
    for thread in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/status" % (pid, thread), encoding="ascii") as status:
            fields = dict(line.rstrip("\n").split(":\t", 1) for line in status if ":\t" in line)
        found.append((fields["Name"], int(fields["CapEff"], 16) | int(fields["CapPrm"], 16),
                      fields["NoNewPrivs"] == "1"))
    return found


def check_privileges(node):
    for pid, kept in ((node.process.pid, KEPT), (node.status()["meta_pid"], 0)):
        threads = privileges(pid)
        bad = [t for t in threads if t[1] & ~kept or not t[2]]
        if bad or not threads:
            raise lab.Failure("threads of %d with more than %x: %s" % (pid, kept, bad))


def work(stack):
    build = os.path.abspath(sys.argv[1])
    lab.check(build)
    run = Run(stack, build)
    run.prepare()
    check_privileges(run.node)
    traffic = Traffic(run.publisher)
    traffic.thread.start()
    try:
        run.rotate(traffic)
    finally:
        traffic.stopped.set()
    run.judge(traffic)
    run.refused()
    run.times_and_level()
    lab.say("%d reloads did what they must" % run.checked)


if __name__ == "__main__":
    sys.exit(lab.main("reload_test", work))
