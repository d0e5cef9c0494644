#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Every limit at the smallest value the configuration allows: the node starts, serves and refuses.

    smallest_test.py BUILD_DIR
"""
import os
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lib"))
import lab

TYPE = 2
CHANNELS, UIDS = 16, 64
SMALLEST = {
    "limits": {"channels": CHANNELS, "uids": UIDS, "gateways": 1, "senders": 16, "payload": "64B",
               "messages": 64, "parked_per_channel": 1, "parked": 1, "inflight_pushes": 16, "frames": 1,
               "window": 64, "tag_memory": "1MiB", "build_members_per_step": 64},
    "delivery": {"attempts": 1, "push_window": 1, "backlog": 1},
    "tags": {"steps": 1, "ttl": "1s"},
    "workers": {"quantum": 64, "ring": 64},
}


def change(meta, verb, channel, **more):
    answer = meta.call("channel." + verb, type=TYPE, channel=channel, **more)
    if not answer["ok"]:
        raise lab.Failure("channel.%s %s: %s" % (verb, channel, answer))


def publish(publisher, number, channel):
    """Until it is not told to try again. Returns: status and members."""
    status = None

    def told():
        nonlocal status
        publisher.send("pub %d gateway %d %s 8" % (number, TYPE, channel))
        status = publisher.expect("out", 20).split()[1:3]
        return status[0] not in ("busy", "retryable")
    lab.wait_until("an outcome of %s other than %s" % (channel, status), told, 20)
    return status


def work(stack):
    build = os.path.abspath(sys.argv[1])
    lab.check(build)
    one = lab.Lab(stack, build, "tcs", options=SMALLEST)
    one.node.start()
    one.node.bootstrap()
    one.node.wait_ready(30)
    publisher = one.client("publisher", "demo_publisher", 20)  # and the only gateway
    one.open_sessions(publisher, ["u0", "u1"])
    publisher.expect("opened", 20)
    with one.node.meta() as meta:
        for number in range(CHANNELS + 4):
            change(meta, "add", "c%02d" % number, uids=["u0", "u1", "u2"])
        change(meta, "add", "c00", uids=["w%d" % i for i in range(UIDS)])
        if publish(publisher, 1, "c01") != ["ok", "3"]:
            raise lab.Failure("a channel within the limits is not served")
        change(meta, "delete", "c01")
        change(meta, "delete", "c02")
        if publish(publisher, 2, "c%02d" % CHANNELS) != ["ok", "3"]:
            raise lab.Failure("room that came is not used")
    lab.wait_until("nothing is open", lambda: one.node.busy() == 0, 20)
    one.node.check_alive()


if __name__ == "__main__":
    sys.exit(lab.main("smallest_test", work))
