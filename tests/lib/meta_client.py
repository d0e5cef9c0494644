# SPDX-License-Identifier: BSD-3-Clause
"""A meta process' control socket as the tests of meta processes talk to it, and waiting for what it does."""
import json
import socket
import time

DEADLINE = 60.0


def wait_for(condition, what):
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        result = condition()
        if result:
            return result
        time.sleep(0.005)
    raise AssertionError('timed out: ' + what)


class Connection:
    """meta.sock: one JSON object a line. A lost one raises OSError."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE)
        try:
            self.sock.connect(path)
        except OSError:
            self.sock.close()
            raise
        self.file = self.sock.makefile('rb', buffering=1 << 20)

    def send(self, cmd, **args):
        self.sock.sendall(json.dumps({'cmd': cmd, **args}).encode() + b'\n')

    def receive(self):
        line = self.file.readline()
        if not line.endswith(b'\n'):
            raise ConnectionError('closed')
        return json.loads(line)

    def call(self, cmd, **args):
        self.send(cmd, **args)
        return self.receive()

    def close(self):
        self.file.close()
        self.sock.close()
