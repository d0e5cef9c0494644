#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A real tagcast-metad in a temporary folder: what it promises to its clients and to the feed.

usage: metad_test.py METAD TAGCASTCTL [unittest arguments]
"""
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../lib'))
from meta_client import DEADLINE, Connection, wait_for  # noqa: E402

METAD, CTL = sys.argv[1], sys.argv[2]
NODE, CLUSTER = 7, 42
HELLO, WELCOME, DELTA, APPLIED, LAGGED, WAIT = 1, 2, 3, 4, 5, 6
CHANNEL, REMOVED, ADD, REMOVE, BULK = 1, 2, 3, 4, 5


class Feed:
    """feed.sock, as a subscriber; an observer unless it names the node, whose mutations then wait for it."""

    def __init__(self, path, node=99, generation=0, commit=0):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(DEADLINE)
        self.sock.connect(path)
        self.buffer = b''
        self.sock.sendall(struct.pack('<IBIQQQ', 29, HELLO, 1, node, generation, commit))
        kind, body = self.frame()
        while kind == WAIT:  # an empty store is served once it is known to be the group's
            kind, body = self.frame()
        assert kind == WELCOME, kind
        self.generation, self.commit, self.resync = struct.unpack('<QQB', body)

    def take(self, count):
        while len(self.buffer) < count:
            more = self.sock.recv(1 << 20)
            if not more:
                raise ConnectionError('closed')
            self.buffer += more
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def frame(self):
        length, kind = struct.unpack('<IB', self.take(5))
        return kind, self.take(length - 1)

    def delta(self):
        kind, body = self.frame()
        assert kind == DELTA, 'frame of kind %d' % kind
        _, dkind, dlist, flags, ctype, clen = struct.unpack_from('<BBBBBB', body)
        commit, before, smv, members, count, size = struct.unpack_from('<QQQQII', body, 8)
        uids, at = [], 48 + clen
        for _ in range(count):
            uids.append(body[at + 1:at + 1 + body[at]])
            at += 1 + body[at]
        assert at == len(body)
        return {'kind': dkind, 'list': dlist, 'type': ctype, 'channel': body[48:48 + clen],
                'commit': commit, 'before': before, 'smv': smv, 'members': members, 'uids': uids}

    def applied(self, commit):
        self.sock.sendall(struct.pack('<IBQ', 9, APPLIED, commit))

    def close(self):
        self.sock.close()


class FastProcess(threading.Thread):
    """Acknowledges every delta at once, as a healthy fast process would."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.feed = Feed(path, node=NODE)
        self.feed.applied(self.feed.commit)
        self.start()

    def run(self):
        try:
            while True:
                self.feed.applied(self.feed.delta()['commit'])
        except (OSError, ConnectionError, ValueError):
            pass

    def stop(self):
        self.feed.sock.shutdown(socket.SHUT_RDWR)
        self.join()
        self.feed.close()


class Case(unittest.TestCase):
    options = []

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix='metad.')
        self.run_dir, self.data = self.dir + '/run', self.dir + '/data'
        self.meta, self.feed_path = self.run_dir + '/meta.sock', self.run_dir + '/feed.sock'
        self.process = None
        self.start()

    def tearDown(self):
        if self.process is not None:
            self.kill()
        shutil.rmtree(self.dir)

    def args(self, *more):
        return [METAD, '--run-dir', self.run_dir, '--data-dir', self.data, '--node-id', str(NODE),
                '--cluster-id', str(CLUSTER), '--map-size', str(1 << 30), '--log-level', 'error',
                *self.options, *more]

    def start(self, *more):
        self.launch(*more)
        connection = Connection(self.meta)
        if connection.call('meta.status')['fields']['state'] == 'waiting':
            self.ok(connection.call('meta.bootstrap'))
        wait_for(lambda: connection.call('meta.status')['fields']['state'] == 'ready', 'a leader')
        connection.close()

    def launch(self, *more):
        """Started, whatever state it is in."""
        self.process = subprocess.Popen(self.args(*more))

        def up():
            self.assertIsNone(self.process.poll(), 'metad ended')
            with socket.socket(socket.AF_UNIX) as probe:
                return probe.connect_ex(self.feed_path) == 0
        wait_for(up, 'start of metad')

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process = None

    def connect(self):
        connection = Connection(self.meta)
        self.addCleanup(connection.close)
        return connection

    def subscribe(self, **args):
        feed = Feed(self.feed_path, **args)
        self.addCleanup(feed.close)
        return feed

    def ok(self, answer, **expected):
        self.assertTrue(answer['ok'], answer)
        for key, value in expected.items():
            self.assertEqual(answer[key], value, answer)
        return answer

    def refused(self, answer, code):
        self.assertFalse(answer['ok'], answer)
        self.assertEqual(answer['error'], code, answer)

    def members(self, connection, channel, **args):
        found, cursor = [], None
        while True:
            page = self.ok(connection.call('channel.show', type=2, channel=channel, cursor=cursor, **args))
            found += page['members']
            cursor = page['cursor']
            if cursor is None:
                return found


class Mutations(Case):
    def test_a_mutation_moves_the_version_once_and_only_when_it_changes_something(self):
        c = self.connect()
        self.ok(c.call('channel.add', type=2, channel='g', uids=['b', 'a', 'b']),
                changed=2, members=2, smv=1, commit=1, applied=False, repeated=False)
        self.ok(c.call('channel.add', type=2, channel='g', uids=['a']), changed=0, members=2, smv=1, commit=1)
        self.ok(c.call('channel.remove', type=2, channel='g', uids=['a', 'x']), changed=1, members=1, smv=2)
        self.ok(c.call('channel.reset', type=2, channel='g', uids=['c', 'd', 'e']), changed=4, members=3, smv=3)
        self.assertEqual(self.members(c, 'g'), ['c', 'd', 'e'])
        self.ok(c.call('channel.remove_all', type=2, channel='g'), changed=3, members=0, smv=4)
        self.ok(c.call('channel.delete', type=2, channel='g'), smv=5)
        self.refused(c.call('channel.show', type=2, channel='g'), 'not_found')
        self.refused(c.call('channel.delete', type=2, channel='g'), 'not_found')
        self.ok(c.call('channel.add', type=2, channel='g', uids=['z']), smv=6, members=1)

    def test_lists_are_apart_from_members(self):
        c = self.connect()
        self.ok(c.call('channel.add', type=2, channel='g', uids=['a', 'b']))
        self.ok(c.call('channel.add', type=2, channel='g', list='deny', uids=['b']), smv=2, members=2)
        self.assertEqual(self.members(c, 'g', list='deny'), ['b'])
        self.assertEqual(self.members(c, 'g'), ['a', 'b'])

    def test_flags_of_a_channel(self):
        c = self.connect()
        self.refused(c.call('channel.info', type=2, channel='g', ban=True), 'not_found')
        self.ok(c.call('channel.create', type=2, channel='g', large=True), smv=1)
        self.ok(c.call('channel.info', type=2, channel='g', ban=True, send_ban=True), smv=2)
        self.assertEqual(c.call('channel.show', type=2, channel='g')['fields']['flags'], ['ban', 'send_ban'])

    def test_ids_of_any_bytes_come_back_as_they_went_in(self):
        c = self.connect()
        ids = ['\u00e9\u4e2d', ' ', '"\\', {'hex': 'ff00'}, {'hex': '00'}, 'x' * 255]
        self.ok(c.call('channel.add', type=12, channel={'hex': 'c328'}, uids=ids), changed=len(ids))
        shown = c.call('channel.show', type=12, channel={'hex': 'c328'})
        self.assertEqual(shown['fields']['channel'], {'hex': 'c328'})
        self.assertCountEqual([json.dumps(i) for i in shown['members']], [json.dumps(i) for i in ids])
        # A string and its hex are the same id.
        self.ok(c.call('channel.add', type=12, channel={'hex': 'c328'}, uids=[{'hex': '20'}]), changed=0)

    def test_bad_arguments_are_named_and_change_nothing(self):
        c = self.connect()
        good = {'type': 2, 'channel': 'g', 'uids': ['a']}
        for change, code in [
                ({'uids': ['']}, 'invalid_uid'), ({'uids': ['x' * 256]}, 'invalid_uid'),
                ({'uids': [1]}, 'invalid_uid'), ({'uids': [{'hex': 'f'}]}, 'invalid_uid'),
                ({'uids': [{'hex': ''}]}, 'invalid_uid'), ({'uids': ['a', {'hex': '00', 'x': 1}]}, 'invalid_uid'),
                ({'uids': 'a'}, 'invalid_uids'), ({'uids': []}, 'invalid_uids'),
                ({'channel': ''}, 'invalid_channel'), ({'channel': 'c' * 256}, 'invalid_channel'),
                ({'channel': None}, 'invalid_channel'), ({'type': 0}, 'invalid_type'),
                ({'type': 13}, 'invalid_type'), ({'type': '2'}, 'invalid_type'),
                ({'list': 'friends'}, 'invalid_list'), ({'dedup': 'abc'}, 'invalid_dedup'),
                ({'dedup': '0' * 32}, 'invalid_dedup'), ({'uid': ['a']}, 'unknown_argument'),
                ({'dedup': 'f' * 32}, 'invalid')]:
            with self.subTest(change=str(change)[:60]):
                self.refused(c.call('channel.add', **{**good, **change}), code)
        self.refused(c.call('channel.nope'), 'unknown_command')
        self.refused(c.call('channel.add', **{**good, 'uids': ['a'] * 1000001}), 'too_many_uids')
        self.ok(c.call('channel.add', **good), smv=1, commit=1)

    def test_pages_of_channels_and_members_reach_everything_once(self):
        c = self.connect()
        uids = ['u%05d' % i for i in range(2500)]
        self.ok(c.call('channel.add', type=2, channel='g', uids=uids))
        self.assertEqual(self.members(c, 'g', limit=7 * 100), uids)
        for i in range(50):
            c.send('channel.create', type=1 + i % 12, channel='c%d' % i)
        for i in range(50):
            self.ok(c.receive())
        self.ok(c.call('channel.delete', type=1, channel='c0'))
        for removed, count in [(False, 50), (True, 51)]:
            rows, cursor = [], None
            while True:
                page = self.ok(c.call('channel.list', limit=7, cursor=cursor, removed=removed))
                rows += page['rows']
                cursor = page['cursor']
                if cursor is None:
                    break
            self.assertEqual(len(rows), count)
            self.assertEqual(len({(r[0], r[1]) for r in rows}), count)

    def test_a_repeated_key_is_applied_once(self):
        c = self.connect()
        key = '%016x%016x' % (0, 77)
        first = self.ok(c.call('channel.add', type=2, channel='g', uids=['a'], dedup=key), repeated=False)
        self.ok(c.call('channel.remove', type=2, channel='g', uids=['a']), smv=2)
        self.ok(c.call('channel.add', type=2, channel='g', uids=['a'], dedup=key),
                repeated=True, commit=first['commit'], smv=1, changed=1)
        self.assertEqual(self.members(c, 'g'), [])
        # Also after a crash, and for a large one, whose second staging is dropped.
        uids = ['user%06d' % i for i in range(20000)]
        key = '%016x%016x' % (2, 78)
        first = self.ok(c.call('channel.add', type=2, channel='h', uids=uids, dedup=key), changed=20000)
        self.ok(c.call('channel.remove_all', type=2, channel='h'))
        self.kill()
        self.start()
        c = self.connect()
        self.ok(c.call('channel.add', type=2, channel='h', uids=uids, dedup=key),
                repeated=True, commit=first['commit'], changed=20000)
        self.ok(c.call('channel.add', type=2, channel='h', uids=['one']), members=1, changed=1)
        self.assertEqual(c.call('meta.status')['fields']['stages_open'], 0)

    def test_answers_keep_the_order_of_pipelined_requests(self):
        c = self.connect()
        uids = ['user%06d' % i for i in range(30000)]
        c.send('channel.reset', type=2, channel='g', uids=uids, id=1)
        c.send('channel.add', type=2, channel='g', uids=['extra'], id=2)
        c.send('channel.add', type=2, channel='other', uids=['a'], id=3)
        c.send('channel.reset', type=2, channel='g', uids=uids, id=4)
        c.send('channel.remove', type=2, channel='g', uids=['user000000'], id=5)
        answers = [c.receive() for _ in range(5)]
        self.assertEqual([a['id'] for a in answers], [1, 2, 3, 4, 5])
        self.assertEqual([a['members'] for a in answers], [30000, 30001, 1, 30000, 29999])
        self.assertEqual([a['smv'] for a in answers], [1, 2, 1, 3, 4])

    def test_a_stop_by_signal_is_clean_and_a_second_start_goes_on(self):
        c = self.connect()
        self.ok(c.call('channel.add', type=2, channel='g', uids=['a']))
        self.process.terminate()
        self.assertEqual(self.process.wait(timeout=DEADLINE), 0)
        self.assertEqual(os.listdir(self.run_dir), [])
        self.start()
        self.assertEqual(self.members(self.connect(), 'g'), ['a'])


class Large(Case):
    def test_a_million_uids_show_at_once_with_one_step(self):
        c, watcher = self.connect(), self.connect()
        feed = self.subscribe()
        order = list(range(1000000))
        random.Random(1).shuffle(order)
        uids = ['user%08d' % i for i in order]
        self.ok(c.call('channel.add', type=2, channel='g', uids=['old1', 'old2', 'old3']), smv=1)
        c.send('channel.reset', type=2, channel='g', uids=uids)
        done, seen, late = [], set(), []
        reader = threading.Thread(target=lambda: done.append(c.receive()))
        reader.start()
        wait_for(lambda: watcher.call('meta.status')['fields']['stages_open'] == 1, 'an open stage')
        # A later mutation of the channel queues behind it, one of another channel does not.
        behind = self.connect()
        behind.send('channel.add', type=2, channel='g', uids=['late'])
        self.ok(watcher.call('channel.add', type=2, channel='other', uids=['x']), smv=1)
        late.append(not done)
        while not done:
            fields = watcher.call('channel.show', type=2, channel='g', limit=1)['fields']
            seen.add((fields['members'], fields['smv']))
        reader.join()
        self.ok(done[0], changed=1000003, members=1000000, smv=2)
        self.ok(behind.receive(), changed=1, members=1000001, smv=3)
        self.assertTrue(late[0])
        self.assertLessEqual(seen, {(3, 1), (1000000, 2), (1000001, 3)})
        self.assertIn((3, 1), seen)
        deltas = [feed.delta() for _ in range(4)]
        self.assertEqual([d['commit'] for d in deltas], [1, 2, 3, 4])
        self.assertEqual([(d['kind'], d['before'], d['smv']) for d in deltas if d['channel'] == b'g'],
                         [(ADD, 0, 1), (BULK, 1, 2), (ADD, 2, 3)])
        self.assertEqual(len(self.members(watcher, 'g')), 1000001)

    def test_a_large_change_cut_by_a_crash_leaves_no_trace(self):
        c, watcher = self.connect(), self.connect()
        self.ok(c.call('channel.add', type=2, channel='g', uids=['a', 'b']))
        c.send('channel.reset', type=2, channel='g', uids=['user%08d' % i for i in range(400000)])
        wait_for(lambda: watcher.call('meta.status')['fields']['stages_open'] == 1, 'an open stage')
        applied = watcher.call('meta.status')['fields']['applied']
        wait_for(lambda: watcher.call('meta.status')['fields']['applied'] > applied + 2, 'some chunks')
        self.kill()
        self.start()
        c = self.connect()
        self.assertEqual(self.members(c, 'g'), ['a', 'b'])
        self.ok(c.call('channel.add', type=2, channel='g', uids=['c']), changed=1, members=3, smv=2)


class Impatient(Case):
    options = ['--stage-wait-ms', '1', '--stages', '1']

    def test_what_waits_too_long_behind_a_stage_is_told_and_was_not_applied(self):
        c, watcher, other = self.connect(), self.connect(), self.connect()
        c.send('channel.reset', type=2, channel='g', uids=['user%08d' % i for i in range(400000)])
        wait_for(lambda: watcher.call('meta.status')['fields']['stages_open'] == 1, 'an open stage')
        self.refused(other.call('channel.add', type=2, channel='g', uids=['late']), 'busy')
        # There is one stage, and it is taken.
        self.refused(other.call('channel.reset', type=2, channel='h',
                                uids=['user%08d' % i for i in range(9000)]), 'busy')
        self.ok(c.receive(), members=400000, smv=1)
        self.refused(other.call('channel.show', type=2, channel='h'), 'not_found')


class Applied(Case):
    options = ['--apply-wait-ms', '300']

    def test_answers_wait_for_the_fast_process_and_say_what_they_know(self):
        c = self.connect()
        add = {'type': 2, 'channel': 'g'}
        self.ok(c.call('channel.add', uids=['a'], **add), applied=False)
        fast = self.subscribe(node=NODE)
        self.assertEqual(fast.resync, 1)
        # It acts on nothing yet: the wait ends.
        before = time.monotonic()
        self.ok(c.call('channel.add', uids=['b'], **add), applied=False, commit=2)
        self.assertGreaterEqual(time.monotonic() - before, 0.29)
        # It catches up: also what changed nothing waits until it is applied.
        fast.applied(2)
        self.ok(c.call('channel.add', uids=['b'], **add), applied=True, changed=0)
        # The answer comes with APPLIED, not before.
        c.send('channel.add', uids=['c'], **add)
        while True:
            delta = fast.delta()
            if delta['commit'] == 3:
                break
        c.sock.setblocking(False)
        with self.assertRaises(BlockingIOError):
            c.sock.recv(1, socket.MSG_PEEK)
        c.sock.settimeout(DEADLINE)
        fast.applied(3)
        self.ok(c.receive(), applied=True, commit=3)

    def test_a_subscriber_that_is_not_this_nodes_does_not_count(self):
        c = self.connect()
        other = self.subscribe(node=NODE + 1)
        self.ok(c.call('channel.add', type=2, channel='g', uids=['a']), applied=False)
        self.assertEqual(other.delta()['commit'], 1)

    def test_a_fast_process_that_returns_within_the_wait_counts(self):
        c = self.connect()
        self.kill()
        self.start('--apply-wait-ms', '20000')
        c = self.connect()
        fast = self.subscribe(node=NODE)
        generation = fast.generation
        c.send('channel.add', type=2, channel='g', uids=['a'])
        self.assertEqual(fast.delta()['commit'], 1)
        fast.close()
        fast = self.subscribe(node=NODE, generation=generation, commit=1)
        fast.applied(1)
        self.ok(c.receive(), applied=True)


class Subscribers(Case):
    def load(self, connection, count, start=0):
        for i in range(start, start + count):
            connection.send('channel.add', type=2, channel='c%d' % (i % 5), uids=['u%d' % i])
        for _ in range(count):
            self.ok(connection.receive())

    def test_deltas_have_no_gap_over_reconnects_and_crashes(self):
        rng = random.Random(3)
        feed = self.subscribe()
        generation, last, total = feed.generation, feed.commit, 0
        for turn in range(12):
            c = self.connect()
            self.load(c, 60, total)
            total += 60
            for _ in range(rng.randrange(1, 50)):
                delta = feed.delta()
                self.assertEqual(delta['commit'], last + 1)
                self.assertEqual(delta['smv'], delta['before'] + 1)
                last = delta['commit']
            feed.close()
            if turn % 3 == 2:
                self.kill()
                self.start()
            feed = self.subscribe(generation=generation, commit=last)
            self.assertEqual((feed.generation, feed.commit, feed.resync), (generation, last, 0))
        while last < total:
            self.assertEqual(feed.delta()['commit'], last + 1)
            last += 1

    def test_several_subscribers_get_the_same(self):
        feeds = [self.subscribe(node=n) for n in range(1, 6)]
        self.load(self.connect(), 100)
        for feed in feeds:
            self.assertEqual([feed.delta()['commit'] for _ in range(100)], list(range(1, 101)))

    def test_another_history_is_told_to_read_everything(self):
        self.load(self.connect(), 10)
        generation = self.subscribe().generation
        for asked, commit, resync in [(generation, 10, 0), (generation, 4, 0), (generation, 11, 1),
                                      (generation + 1, 4, 1), (0, 0, 1)]:
            feed = self.subscribe(generation=asked, commit=commit)
            self.assertEqual((feed.resync, feed.commit), (resync, 10 if resync else commit))

    def test_garbage_closes_that_connection_only(self):
        good = self.subscribe()
        for bad in [b'GET / HTTP/1.1\r\n\r\n', struct.pack('<I', 1 << 31), struct.pack('<IB', 1, 77),
                    struct.pack('<IBIQQQ', 29, HELLO, 2, NODE, 0, 0), struct.pack('<IBQ', 9, APPLIED, 0),
                    struct.pack('<IB', 1 << 17, DELTA) + b'x' * 8192]:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(DEADLINE)
            sock.connect(self.feed_path)
            sock.sendall(bad)
            try:
                self.assertEqual(sock.recv(10), b'')
            except ConnectionResetError:
                pass
            sock.close()
        # One that claims to act on what was never sent.
        liar = self.subscribe()
        liar.applied(1000)
        with self.assertRaises((ConnectionError, OSError)):
            liar.frame()
        self.load(self.connect(), 1)
        self.assertEqual(good.delta()['commit'], 1)

    def test_sockets_are_for_owner_and_group(self):
        for path in [self.meta, self.feed_path]:
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o660)


class Lagging(Case):
    options = ['--feed-backlog', '262144']

    def test_a_subscriber_that_does_not_read_is_told_and_can_come_back(self):
        feed = self.subscribe()
        healthy = FastProcess(self.feed_path)
        self.addCleanup(healthy.stop)
        c = self.connect()
        sent = 0

        def lagged():
            nonlocal sent
            self.ok(c.call('channel.add', type=2, channel='g',
                           uids=['%s%06d' % ('x' * 200, sent * 20 + i) for i in range(20)]), applied=True)
            sent += 1
            return c.call('meta.status')['fields']['feed_lagged'] == 1
        wait_for(lagged, 'LAGGED')
        self.assertGreater(sent, 262144 // 4200)
        last = feed.commit
        while True:
            kind, body = feed.frame()
            if kind == LAGGED:
                break
            self.assertEqual(kind, DELTA)
            last += 1
            self.assertEqual(struct.unpack_from('<Q', body, 8)[0], last)
        with self.assertRaises((ConnectionError, OSError)):
            feed.frame()
        self.assertLess(last, sent)
        again = self.subscribe(generation=feed.generation, commit=last)
        self.assertEqual(again.resync, 0)
        for commit in range(last + 1, sent + 1):
            self.assertEqual(again.delta()['commit'], commit)


class ShortJournal(Case):
    options = ['--journal-commits', '10']

    def test_a_position_the_journal_no_longer_reaches_is_told_to_read_everything(self):
        c = self.connect()
        generation = self.subscribe().generation
        for i in range(200):
            self.ok(c.call('channel.add', type=2, channel='g', uids=['u%d' % i]))
        feed = self.subscribe(generation=generation, commit=5)
        self.assertEqual((feed.resync, feed.commit), (1, 200))
        feed = self.subscribe(generation=generation, commit=195)
        self.assertEqual((feed.resync, feed.delta()['commit']), (0, 196))


class Crashes(Case):
    def test_no_acknowledged_mutation_is_lost_in_twenty_crashes(self):
        rng = random.Random(20)
        acknowledged, smv, serial = set(), 0, 0
        for _ in range(20):
            c = self.connect()
            stop_at = rng.randrange(20, 400)
            open_uids, acks = [], 0
            # Keeps 64 in flight and is killed in the middle of them.
            while acks < stop_at:
                while len(open_uids) < 64:
                    uid = 'u%07d' % serial
                    serial += 1
                    c.send('channel.add', type=2, channel='g', uids=[uid])
                    open_uids.append(uid)
                answer = self.ok(c.receive())
                self.assertGreater(answer['smv'], smv)
                smv = answer['smv']
                acknowledged.add(open_uids.pop(0))
                acks += 1
            self.kill()
            # Answers that were on their way count as well.
            try:
                while True:
                    smv = self.ok(c.receive())['smv']
                    acknowledged.add(open_uids.pop(0))
            except (ConnectionError, OSError):
                pass
            self.start()
            c = self.connect()
            found = self.members(c, 'g')
            shown = c.call('channel.show', type=2, channel='g', limit=1)['fields']
            self.assertFalse(acknowledged - set(found))
            self.assertEqual(shown['members'], len(found))
            self.assertGreaterEqual(shown['smv'], smv)
            self.assertEqual(shown['smv'], len(found))
            smv = shown['smv']


class Starting(Case):
    def exit_of(self, *args):
        result = subprocess.run(args, capture_output=True, text=True, timeout=DEADLINE)
        return result.returncode, result.stderr

    def test_refuses_to_start_for_a_reason_it_names(self):
        code, text = self.exit_of(*self.args('--run-dir', self.dir + '/run2'))
        self.assertEqual(code, 75)
        self.assertIn('STORE_OPEN', text)
        code, text = self.exit_of(*self.args('--data-dir', self.dir + '/data2'))
        self.assertEqual(code, 75)
        self.assertIn('meta.sock', text)
        self.kill()
        code, text = self.exit_of(*self.args('--cluster-id', str(CLUSTER + 1)))
        self.assertEqual(code, 90)
        self.assertIn('cluster', text)
        for bad in [['--node-id', '0'], ['--map-size', '1k'], ['--nope'], ['extra'], ['--log-level', 'loud']]:
            self.assertEqual(self.exit_of(*self.args(*bad))[0], 64, bad)
        self.assertEqual(self.exit_of(METAD)[0], 64)
        self.assertEqual(self.exit_of(METAD, '--config', '/nonexistent')[0], 78)
        self.start()

    def tool(self, *args, text=None):
        return subprocess.run([CTL, '--run-dir', self.run_dir, *args], capture_output=True, text=True,
                              input=text, timeout=DEADLINE)

    def test_tagcastctl_does_and_says(self):
        self.assertIn('2 members', self.tool('channel', 'add', '2', 'g', 'a', 'b').stdout)
        shown = self.tool('--no-header', 'channel', 'show', 'group', 'g')
        self.assertIn('a\nb\n', shown.stdout)
        self.assertEqual(json.loads(self.tool('--json', 'channel', 'show', '2', 'g').stdout)['members'], ['a', 'b'])
        self.assertIn('g', self.tool('channel', 'list').stdout)
        self.assertIn('commit', self.tool('meta', 'status').stdout)
        # Options of tables mean nothing to it.
        self.assertIn('commit', self.tool('--limit', '7', '--skip', '1', '--all', 'meta', 'status').stdout)
        for args, code in [(['channel', 'show', '2', 'nope'], 1), (['channel', 'add', '13', 'g', 'a'], 64),
                           (['channel', 'add', '2', 'g', 'x' * 256], 65), (['channel', 'add', '2', 'g'], 64),
                           (['channel', 'add', '2', 'g', 'a', '--list', 'x'], 65), (['nope'], 64),
                           (['status'], 69), (['--run-dir', '/nonexistent', 'meta', 'status'], 69)]:
            self.assertEqual(self.tool(*args).returncode, code, args)

    def test_import_reads_runs_and_names_bad_lines(self):
        lines = ''.join('2\tc%d\tu%d\n' % (i // 10, i) for i in range(3000))
        done = self.tool('import', '-', text=lines)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn('3000 rows, 300 channels', done.stderr)
        c = self.connect()
        self.assertEqual(self.members(c, 'c7'), ['u%d' % i for i in range(70, 80)])
        # Not grouped: the second run of a channel adds to the first.
        mixed = 'group\tx\ta\n2\ty\tb\n# comment\n\n2\tx\tc\n2\ty\td\n'
        self.ok(c.call('channel.add', type=2, channel='x', uids=['gone']))
        self.assertEqual(self.tool('import', '-', text=mixed).returncode, 0)
        self.assertEqual(self.members(c, 'x'), ['a', 'c'])
        self.assertEqual(self.members(c, 'y'), ['b', 'd'])
        self.assertEqual(self.tool('import', '--mode', 'add', '-', text='2\tx\tb\n').returncode, 0)
        self.assertEqual(self.members(c, 'x'), ['a', 'b', 'c'])
        path = self.dir + '/bad.tsv'
        for bad in ['2\tx', '99\tx\ta', '2\t\ta', '2\tx\t', '2\tx\ta\r', '2\tx\ta\tb', '2\tx\t' + 'u' * 256]:
            with open(path, 'w', newline='') as out:
                out.write('2\tq\ta\n' + bad + '\n')
            result = self.tool('import', path)
            self.assertEqual(result.returncode, 65, bad)
            self.assertIn(path + ':2: ', result.stderr)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
