#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Groups of real meta processes on loopback: every verb of `tagcastctl meta`, every refused start.

usage: group_test.py METAD TAGCASTCTL [unittest arguments]
"""
import contextlib
import json
import os
import re
import secrets
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

METAD, CTL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
CLUSTER = 42
HELLO, WELCOME, DELTA, APPLIED, LAGGED, WAIT = 1, 2, 3, 4, 5, 6
EXIT_BUSY, EXIT_CONFIG, EXIT_DISK = 75, 78, 81
EXIT_FOREIGN, EXIT_NEWER, EXIT_AMNESIA, EXIT_DAMAGED, EXIT_ADDRESS, EXIT_SPACE = range(90, 96)


def free_port():
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


class Meta:
    """One meta process with its folder; `number` is its node id."""

    def __init__(self, group, number, options=()):
        self.group, self.number, self.options = group, number, list(options)
        self.dir = os.path.join(group.dir, 'n%d' % number)
        os.mkdir(self.dir)
        self.run_dir, self.data = self.dir + '/run', self.dir + '/data'
        self.sock, self.feed = self.run_dir + '/meta.sock', self.run_dir + '/feed.sock'
        self.log_path = self.dir + '/log'
        self.port = free_port()
        self.process = None

    @property
    def address(self):
        return '127.0.0.1:%d' % self.port

    def args(self, *more):
        return [METAD, '--run-dir', self.run_dir, '--data-dir', self.data, '--node-id', str(self.number),
                '--cluster-id', str(CLUSTER), '--map-size', str(1 << 30), '--log-level', 'info',
                '--raft-address', self.address, '--raft-key-file', self.group.key, *self.options, *more]

    def start(self, *more):
        with open(self.log_path, 'ab') as log:
            self.process = subprocess.Popen(self.args(*more), stderr=log)

        def up():
            if self.process.poll() is not None:
                raise AssertionError('metad %d ended with %d:\n%s' % (
                    self.number, self.process.returncode, self.log()))
            with socket.socket(socket.AF_UNIX) as probe:
                return probe.connect_ex(self.feed) == 0
        wait_for(up, 'start of metad')
        return self

    def refuse(self, *more):
        """A start that is refused. Returns: (exit code, what it said)."""
        done = subprocess.run(self.args(*more), stderr=subprocess.PIPE, text=True, timeout=DEADLINE, check=False)
        return done.returncode, done.stderr

    def log(self):
        with open(self.log_path, encoding='utf-8', errors='replace') as log:
            return log.read()[-3000:]

    def kill(self, sig=signal.SIGKILL):
        if self.process is None:
            return None
        self.process.send_signal(sig)
        code = self.process.wait(timeout=DEADLINE)
        self.process = None
        return code

    def connect(self):
        connection = Connection(self.sock)
        self.group.test.addCleanup(connection.close)
        return connection

    def call(self, cmd, **args):
        connection = Connection(self.sock)
        with contextlib.closing(connection):
            return connection.call(cmd, **args)

    def status(self):
        return self.call('meta.status')['fields']

    def ready(self):
        wait_for(lambda: self.status()['state'] == 'ready', 'node %d has a leader' % self.number)
        return self

    def ctl(self, *args, code=0, **more):
        done = subprocess.run([CTL, '--run-dir', self.run_dir, *args], capture_output=True, text=True,
                              timeout=DEADLINE, check=False, **more)
        if done.returncode != code:
            raise AssertionError('tagcastctl %s: %d, not %d: %s%s' % (
                ' '.join(args), done.returncode, code, done.stdout, done.stderr))
        return done.stdout if code == 0 else done.stderr

    def members(self):
        rows = self.call('meta.members')['rows']
        return {row[0]: row[1] for row in rows}

    def leader(self):
        return self.status()['leader']

    def has(self, channel):
        shown = self.call('channel.show', type=2, channel=channel)
        return set(shown['members']) if shown['ok'] else None


class Group:
    """A folder, a key and the processes in it."""

    def __init__(self, test, options=()):
        self.test, self.options = test, options
        self.dir = tempfile.mkdtemp(prefix='group.')
        test.addCleanup(shutil.rmtree, self.dir, True)
        self.key = self.dir + '/key'
        with open(os.open(self.key, os.O_CREAT | os.O_WRONLY, 0o600), 'w', encoding='ascii') as key:
            key.write(secrets.token_hex(32) + '\n')
        self.nodes = {}

    def node(self, number, options=()):
        node = Meta(self, number, [*self.options, *options])
        self.nodes[number] = node
        self.test.addCleanup(node.kill)
        return node

    def one(self):
        node = self.node(1).start()
        node.ctl('meta', 'bootstrap')
        return node.ready()

    def three(self):
        """Three voters, the first leads."""
        first = self.one()
        for number in (2, 3):
            self.add(number, first)
        return [self.nodes[n] for n in (1, 2, 3)]

    def add(self, number, via, promote=True):
        node = self.node(number).start()
        node.ctl('meta', 'join', '--via', via.address)
        node.ready()
        if promote:
            self.promote(number, via)
        return node

    def promote(self, number, via):
        # Until it has caught up it is refused, with that reason.
        def promoted():
            answer = via.call('meta.promote', node=number)
            return answer['ok'] or via.members().get(number) == 'voter'
        wait_for(promoted, 'promotion of node %d' % number)


class Case(unittest.TestCase):
    def ok(self, answer, **expected):
        self.assertTrue(answer['ok'], answer)
        for key, value in expected.items():
            self.assertEqual(answer[key], value, answer)
        return answer

    def refused(self, answer, code):
        self.assertFalse(answer['ok'], answer)
        self.assertEqual(answer['error'], code, answer)
        return answer['message']


class Waiting(Case):
    def test_a_new_node_waits_and_says_what_to_do(self):
        node = Group(self).node(1).start()
        self.assertEqual(node.status()['state'], 'waiting')
        for cmd, args in [('channel.add', {'type': 2, 'channel': 'g', 'uids': ['a']}),
                          ('channel.show', {'type': 2, 'channel': 'g'}), ('channel.list', {}),
                          ('meta.members', {}), ('meta.promote', {'node': 1}), ('meta.transfer', {})]:
            self.assertIn('bootstrap', self.refused(node.call(cmd, **args), 'not_ready'))
        self.refused(node.call('meta.verify'), 'not_ready')
        self.refused(node.call('meta.backup', path='/tmp/x'), 'not_ready')
        self.assertIn('not_ready', node.ctl('channel', 'add', '2', 'g', 'a', code=75))

    def test_the_feed_tells_its_subscriber_to_wait_and_goes_on_by_itself(self):
        node = Group(self).node(1).start()
        feed = socket.socket(socket.AF_UNIX)
        self.addCleanup(feed.close)
        feed.settimeout(DEADLINE)
        feed.connect(node.feed)
        feed.sendall(struct.pack('<IBIQQQ', 29, HELLO, 1, 1, 0, 0))
        stream = feed.makefile('rb')
        self.addCleanup(stream.close)
        for _ in range(2):
            self.assertEqual(struct.unpack('<IB', stream.read(5)), (1, WAIT))
        node.ctl('meta', 'bootstrap')
        while True:
            length, kind = struct.unpack('<IB', stream.read(5))
            stream.read(length - 1)
            if kind == WELCOME:
                break
            self.assertEqual(kind, WAIT)

    def test_bootstrap_is_done_once(self):
        node = Group(self).one()
        self.assertIn('already_member', node.ctl('meta', 'bootstrap', code=1))
        self.refused(node.call('meta.join', via='127.0.0.1:1'), 'already_member')
        node.kill()
        node.start().ready()
        self.refused(node.call('meta.bootstrap'), 'already_member')

    def test_a_stop_while_waiting_is_clean(self):
        node = Group(self).node(1).start()
        self.assertEqual(node.kill(signal.SIGTERM), 0)
        self.assertEqual(node.start().status()['state'], 'waiting')

    def test_a_join_that_cannot_work_says_why_and_can_be_repeated(self):
        group = Group(self)
        node = group.node(1).start()
        for via in ['nowhere', ':1', '127.0.0.1:0', '127.0.0.1:65536', 'x' * 200 + ':1']:
            self.refused(node.call('meta.join', via=via), 'invalid_argument')
        self.refused(node.call('meta.join', via='no.such.host.invalid:7500'), 'invalid_argument')
        # Nobody listens there.
        answer = node.call('meta.join', via='127.0.0.1:%d' % free_port())
        self.assertFalse(answer['ok'], answer)
        self.assertEqual(node.status()['state'], 'waiting')
        node.ctl('meta', 'bootstrap')
        node.ready()

    def test_usage_of_the_tool(self):
        node = Group(self).node(1).start()
        for args in [['meta'], ['meta', 'nope'], ['meta', 'join'], ['meta', 'promote'], ['meta', 'promote', 'x'],
                     ['meta', 'promote', '0'], ['meta', 'remove', '1', '2'], ['meta', 'backup'],
                     ['meta', 'status', 'x'], ['meta', 'recover']]:
            node.ctl(*args, code=64)
        self.assertIn('waiting', node.ctl('meta', 'status'))
        node.ctl('meta', 'inspect', '/nonexistent', code=65)


class One(Case):
    def test_a_restart_goes_on_from_the_log(self):
        node = Group(self).one()
        for i in range(50):
            self.ok(node.call('channel.add', type=2, channel='g', uids=['u%d' % i]), smv=i + 1)
        before = node.status()
        node.kill()
        node.start().ready()
        after = node.status()
        self.assertEqual([before[k] for k in ('commit', 'generation', 'chain')],
                         [after[k] for k in ('commit', 'generation', 'chain')])
        self.assertEqual(node.has('g'), {'u%d' % i for i in range(50)})

    def test_a_stop_is_clean_and_quick(self):
        node = Group(self).one()
        self.ok(node.call('channel.add', type=2, channel='g', uids=['a']))
        before = time.monotonic()
        self.assertEqual(node.kill(signal.SIGTERM), 0, node.log())
        self.assertLess(time.monotonic() - before, 3)
        self.assertEqual(node.start().ready().has('g'), {'a'})

    def test_a_store_that_is_gone_or_not_to_be_trusted_is_built_anew_from_the_log(self):
        node = Group(self, ['--snapshot-entries', '64', '--snapshot-trailing', '16']).one()
        generations = set()
        for turn in range(4):
            for i in range(60):
                self.ok(node.call('channel.add', type=2, channel='g', uids=['u%d-%d' % (turn, i)]))
            generations.add(node.status()['generation'])
            commit, chain = node.status()['commit'], node.status()['chain']
            node.kill()
            if turn == 0:
                shutil.rmtree(node.data + '/store')
            elif turn == 1:
                # As after a power cut: started on another boot, and not closed cleanly.
                self.other_boot(node)
            elif turn == 2:
                current = os.path.join(node.data, 'store', self.current(node), 'data.mdb')
                with open(current, 'r+b') as data:
                    data.write(b'\xff' * 8192)
            node.start().ready()
            wait_for(lambda: node.status()['commit'] == commit, 'the rebuilt store')
            self.assertEqual(node.status()['chain'], chain)
            self.assertEqual(node.has('g'), {'u%d-%d' % (t, i) for t in range(turn + 1) for i in range(60)})
        # Whoever followed the former store reads the new one from the start.
        self.assertEqual(len(generations), 4)
        self.assertGreater(node.status()['log_snapshot'], 0)

    @staticmethod
    def current(node):
        with open(node.data + '/store/current', encoding='ascii') as current:
            return current.read().strip()

    def other_boot(self, node):
        path = os.path.join(node.data, 'store', self.current(node), 'boot')
        with open(path, 'r+b') as boot:
            text = boot.read()
            new = re.sub(rb'[0-9a-f]{8}-', b'00000000-', text, count=1)
            self.assertNotEqual(text, new)
            boot.seek(0)
            boot.write(new)

    def test_reads_carry_their_position_and_may_wait_for_the_newest(self):
        node = Group(self).one()
        answer = self.ok(node.call('channel.add', type=2, channel='g', uids=['a']))
        for linearizable in (False, True):
            shown = self.ok(node.call('channel.show', type=2, channel='g', linearizable=linearizable))
            self.assertEqual((shown['members'], shown['commit']), (['a'], answer['commit']))
            listed = self.ok(node.call('channel.list', linearizable=linearizable))
            self.assertEqual((len(listed['rows']), listed['commit']), (1, answer['commit']))
        self.refused(node.call('channel.show', type=2, channel='g', linearizable='yes'), 'invalid_argument')
        self.assertIn('a', node.ctl('--linearizable', 'channel', 'show', '2', 'g'))

    def test_no_turn_of_the_loop_is_long(self):
        node = Group(self).one()
        c = node.connect()
        uids = ['user%08d' % i for i in range(300000)]
        self.ok(c.call('channel.reset', type=2, channel='g', uids=uids), members=300000)
        self.ok(c.call('channel.remove', type=2, channel='g', uids=uids[:200000]), members=100000)
        self.ok(c.call('channel.add', type=2, channel='g', uids=uids[:8192]), members=108192)
        fields = node.status()
        self.assertGreater(fields['turns'], 100)
        self.assertGreater(fields['turn_max_cpu_us'], 0)
        self.assertGreaterEqual(fields['turn_max_cpu_us'], fields['turn_max_part_us'])
        if not os.environ.get('TAGCAST_SLOW'):
            self.assertEqual(fields['turns_over_limit'], 0, fields)

    def test_the_only_voter_stays(self):
        node = Group(self).one()
        for verb in ('remove', 'demote'):
            self.refused(node.call('meta.' + verb, node=1), 'refused')
        self.refused(node.call('meta.remove', node=9), 'not_found')
        for verb in ('promote', 'demote', 'remove'):
            self.refused(node.call('meta.' + verb), 'invalid_argument')
        self.assertEqual(node.members(), {1: 'voter'})


class Backups(Case):
    def fill(self, node, count=300):
        for i in range(count):
            self.ok(node.call('channel.add', type=2, channel='c%d' % (i % 7), uids=['u%d' % i]))

    def test_a_backup_is_whole_and_names_what_it_is_of(self):
        node = Group(self).one()
        self.fill(node)
        path = node.dir + '/backup'
        fields = json.loads(node.ctl('--json', 'meta', 'backup', path))['fields']
        self.assertEqual((fields['cluster'], fields['commit'], fields['file']), (CLUSTER, 300, path))
        self.assertEqual(os.stat(path).st_size, fields['bytes'])
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        self.assertFalse(os.path.exists(path + '.part'))
        verified = json.loads(node.ctl('--json', 'meta', 'verify'))['fields']
        self.assertEqual(verified['crc32c'], fields['crc32c'])
        # A relative name is the caller's; one that cannot be written is said and leaves nothing.
        node.ctl('meta', 'backup', 'second', cwd=node.dir)
        self.assertTrue(os.path.exists(node.dir + '/second'))
        self.assertIn('No such file', node.ctl('meta', 'backup', '/nonexistent/x', code=74))
        self.refused(node.call('meta.backup', path='x'), 'invalid_argument')
        with open(path + '.part', 'wb'):
            pass
        self.assertIn('.part', node.ctl('meta', 'backup', path, code=74))

    def test_an_empty_node_starts_from_a_backup_of_its_cluster(self):
        group = Group(self)
        node = group.one()
        self.fill(node)
        self.ok(node.call('channel.delete', type=2, channel='c3'))
        path = group.dir + '/backup'
        node.ctl('meta', 'backup', path)
        before = node.status()
        node.kill()
        other = group.node(5).start()
        fields = json.loads(other.ctl('--json', 'meta', 'restore', path))['fields']
        self.assertEqual((fields['cluster'], fields['commit']), (CLUSTER, before['commit']))
        other.ready()
        wait_for(lambda: other.status()['commit'] == before['commit'], 'the restored store')
        self.assertEqual(other.status()['chain'], before['chain'])
        self.assertEqual(other.has('c1'), {'u%d' % i for i in range(300) if i % 7 == 1})
        # Versions go on where they were, also those of a removed channel.
        self.ok(other.call('channel.add', type=2, channel='c3', uids=['x']), smv=45, members=1)
        self.ok(other.call('channel.add', type=2, channel='c1', uids=['x']), smv=44)
        other.kill()
        other.start().ready()
        self.assertEqual(other.has('c3'), {'x'})
        self.refused(other.call('meta.restore', path=path), 'already_member')
        # Who joins gets all of it.
        third = group.add(6, other)
        wait_for(lambda: third.has('c3') == {'x'}, 'the state at the new member')

    def test_what_is_no_backup_of_this_cluster_is_refused_and_changes_nothing(self):
        group = Group(self)
        node = group.one()
        self.fill(node, 20)
        path = group.dir + '/backup'
        node.ctl('meta', 'backup', path)
        other = group.node(5, ['--cluster-id', '43']).start()
        self.assertIn('cluster 42', other.ctl('meta', 'restore', path, code=65))
        third = group.node(6).start()
        with open(path, 'rb') as whole:
            good = whole.read()
        for name, bad in [('short', good[:-8]), ('empty', b''), ('flipped', good[:100] + b'\xff' + good[101:]),
                          ('text', b'hello' * 100)]:
            with open(path + name, 'wb') as out:
                out.write(bad)
            third.ctl('meta', 'restore', path + name, code=65)
        third.ctl('meta', 'restore', '/nonexistent', code=74)
        self.assertEqual(third.status()['state'], 'waiting')
        third.ctl('meta', 'restore', path)
        third.ready()


class Offline(Case):
    def test_a_copied_folder_is_inspected_and_verified(self):
        group = Group(self, ['--snapshot-entries', '64', '--snapshot-trailing', '16'])
        node = group.one()
        for i in range(200):
            self.ok(node.call('channel.add', type=2, channel='g', uids=['u%d' % i]))
        wait_for(lambda: node.status()['log_snapshot'] > 0, 'a snapshot')
        before = node.status()
        node.kill(signal.SIGTERM)
        copy = group.dir + '/copy'
        shutil.copytree(node.data, copy)
        fields = json.loads(node.ctl('--json', 'meta', 'inspect', copy))
        self.assertEqual(fields['rows'], [[1, 'voter', node.address]])
        fields = fields['fields']
        self.assertEqual((fields['cluster'], fields['node']), (CLUSTER, 1))
        self.assertGreaterEqual(fields['log_last'], before['log_last'])
        fields = json.loads(node.ctl('--json', 'meta', 'verify', copy))['fields']
        self.assertEqual((fields['verdict'], fields['store_commit'], fields['store_chain']),
                         ('whole', before['commit'], before['chain']))
        self.assertGreater(fields['snapshots'], 0)
        # One byte of a snapshot, then the end of the log.
        snapshot = [n for n in os.listdir(copy + '/raft') if n.startswith('snapshot-') and not n.endswith('.meta')][0]
        with open(os.path.join(copy, 'raft', snapshot), 'r+b') as data:
            data.seek(90)
            data.write(b'\xff\xff')
        node.ctl('meta', 'verify', copy, code=65)
        shutil.rmtree(copy)
        shutil.copytree(node.data, copy)
        for name in os.listdir(copy + '/raft'):
            if re.match(r'\d+-\d+$', name) or name.startswith('open-'):
                os.remove(os.path.join(copy, 'raft', name))
        self.assertIn('missing', node.ctl('meta', 'verify', copy, code=65))

    def test_recover_asks_first_and_makes_one_survivor_a_group(self):
        group = Group(self)
        nodes = group.three()
        self.ok(nodes[0].call('channel.add', type=2, channel='g', uids=['a', 'b']))
        wait_for(lambda: nodes[1].has('g') == {'a', 'b'}, 'the entry at node 2')
        for node in nodes:
            node.kill()
        survivor = nodes[1]
        said = survivor.ctl('meta', 'recover', survivor.data, code=64)
        self.assertIn('--confirm', said)
        # Alone it has no leader.
        survivor.start()
        self.refused(survivor.call('channel.add', type=2, channel='g', uids=['c'], wait_ms=500), 'not_leader')
        self.assertEqual(survivor.has('g'), {'a', 'b'})
        survivor.kill()
        survivor.ctl('meta', 'recover', '--confirm', survivor.data)
        survivor.start().ready()
        self.assertEqual(survivor.members(), {2: 'voter'})
        self.assertEqual(survivor.has('g'), {'a', 'b'})
        self.ok(survivor.call('channel.add', type=2, channel='g', uids=['c']), members=3)
        group.add(9, survivor)
        self.assertEqual(survivor.members(), {2: 'voter', 9: 'voter'})

    def test_a_folder_in_use_is_left_alone(self):
        node = Group(self).one()
        self.assertIn('in use', node.ctl('meta', 'recover', '--confirm', node.data, code=75))


class Refused(Case):
    """Starts that must not be: a reason, what to do, and a code of its own."""

    def setUp(self):
        self.group = Group(self)
        self.node = self.group.one()
        for i in range(20):
            self.ok(self.node.call('channel.add', type=2, channel='g', uids=['u%d' % i]))

    def expect(self, code, words, *more):
        got, text = self.node.refuse(*more)
        self.assertEqual(got, code, text)
        for word in [words] if isinstance(words, str) else words:
            self.assertIn(word, text)

    def test_another_process_has_the_folder(self):
        self.expect(EXIT_BUSY, 'another', '--run-dir', self.node.dir + '/run2')

    def test_files_of_another_cluster_or_node(self):
        self.node.kill()
        self.expect(EXIT_FOREIGN, 'cluster', '--cluster-id', '43')
        self.expect(EXIT_FOREIGN, 'node', '--node-id', '2')
        self.node.start().ready()

    def test_the_log_is_gone(self):
        self.node.kill()
        shutil.rmtree(self.node.data + '/raft')
        self.expect(EXIT_AMNESIA, ['empty', 'remove'])

    def test_the_end_of_the_log_is_gone(self):
        self.node.kill(signal.SIGTERM)
        raft = self.node.data + '/raft'
        for name in os.listdir(raft):
            if re.match(r'\d+-\d+$', name) or name.startswith('open-'):
                os.remove(os.path.join(raft, name))
        got, text = self.node.refuse()
        self.assertIn(got, (EXIT_AMNESIA, EXIT_DAMAGED), text)

    def test_the_sidecar_is_damaged_or_newer(self):
        self.node.kill()
        path = self.node.data + '/raft/sidecar'
        with open(path, 'rb') as side:
            good = side.read()
        bad = bytearray(good)
        for at in range(0, len(good), 512):  # a byte of each slot
            bad[at + 20] ^= 1
        with open(path, 'wb') as side:
            side.write(bad)
        self.expect(EXIT_DAMAGED, 'sidecar')
        with open(path, 'wb') as side:
            side.write(good)
        self.node.start().ready()

    def test_the_address_is_in_use_or_not_ours(self):
        self.node.kill()
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(('127.0.0.1', self.node.port))
            taken.listen()
            self.expect(EXIT_ADDRESS, self.node.address)
        self.expect(EXIT_ADDRESS, '192.0.2.77', '--raft-bind', '192.0.2.77:7500')
        self.expect(EXIT_ADDRESS, 'no.such.host.invalid', '--raft-address', 'no.such.host.invalid:7500')
        self.node.start().ready()

    def test_the_key_is_not_one_or_open_to_others(self):
        self.node.kill()
        bad = self.group.dir + '/bad'
        for text, mode, word in [('00' * 31, 0o600, '64 hex'), ('zz' * 32, 0o600, '64 hex'),
                                 ('00' * 32, 0o640, 'chmod'), ('', 0o600, '64 hex')]:
            with contextlib.suppress(FileNotFoundError):
                os.remove(bad)
            with open(os.open(bad, os.O_CREAT | os.O_WRONLY, 0o600), 'w', encoding='ascii') as out:
                out.write(text)
            os.chmod(bad, mode)
            self.expect(EXIT_CONFIG, word, '--raft-key-file', bad)
        self.expect(EXIT_CONFIG, 'No such file', '--raft-key-file', '/nonexistent')

    def test_options_that_do_not_go_together(self):
        for more in [['--heartbeat-ms', '101'], ['--snapshot-entries', '64', '--snapshot-trailing', '65'],
                     ['--raft-address', 'none', '--raft-bind', '0.0.0.0:1'], ['--raft-address', 'x'],
                     ['--raft-auth', 'maybe'], ['--raft-address', ':1'], ['--raft-address', 'a:0']]:
            got, text = self.node.refuse(*more)
            self.assertEqual(got, 64, text)


class Full(Case):
    """A disk that fills up, and gets room again; needs root for a file system of its own."""

    SIZE = 192 << 20

    def setUp(self):
        self.group = Group(self)
        self.node = self.group.node(1)
        os.mkdir(self.node.data, 0o700)
        subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=%d' % self.SIZE, 'tmpfs', self.node.data], check=True)
        self.addCleanup(subprocess.run, ['umount', '-l', self.node.data], check=False)

    def fill(self):
        """Takes all the room there is, but for what a page or two needs."""
        with open(self.node.data + '/filler', 'ab') as filler:
            block = b'x' * (1 << 20)
            try:
                while True:
                    filler.write(block)
                    filler.flush()
            except OSError:
                pass

    def test_it_leaves_loses_nothing_and_comes_back_by_itself(self):
        node = self.node.start()
        node.ctl('meta', 'bootstrap')
        node.ready()
        acknowledged = set()

        def add(uid):
            answer = node.call('channel.add', type=2, channel='g', uids=[uid, uid + 'x' * 200])
            if answer['ok']:
                acknowledged.add(uid)
        for i in range(50):
            add('before%d' % i)
        self.fill()
        # The log has room that it took ahead; then it ends, with a code that says so.
        serial = 0
        while node.process.poll() is None:
            with contextlib.suppress(OSError):
                add('full%06d' % serial)
            serial += 1
            self.assertLess(serial, 200000)
        self.assertIn(node.process.returncode, (EXIT_SPACE, EXIT_DISK), node.log())
        node.process = None
        self.assertGreater(len(acknowledged), 50)
        # A supervisor tries again: refused, or ending again, until there is room.
        self.fill()
        code, text = node.refuse()
        self.assertEqual(code, EXIT_SPACE, text)
        self.assertIn('make room', text)
        os.remove(node.data + '/filler')
        node.start().ready()
        found, cursor = set(), None
        while True:
            page = self.ok(node.call('channel.show', type=2, channel='g', cursor=cursor))
            found.update(page['members'])
            cursor = page['cursor']
            if cursor is None:
                break
        self.assertFalse(acknowledged - found)


class Three(Case):
    def test_members_join_catch_up_and_are_promoted(self):
        group = Group(self)
        first = group.one()
        self.ok(first.call('channel.add', type=2, channel='g', uids=['a']))
        second = group.add(2, first, promote=False)
        self.assertEqual(first.members(), {1: 'voter', 2: 'standby'})
        wait_for(lambda: second.has('g') == {'a'}, 'the state at the standby')
        self.assertEqual(second.members(), {1: 'voter', 2: 'standby'})
        group.promote(2, first)
        group.add(3, second)  # by way of a follower
        self.assertEqual(first.members(), {1: 'voter', 2: 'voter', 3: 'voter'})
        text = first.ctl('meta', 'members')
        self.assertIn(second.address, text)
        for node in group.nodes.values():
            node.kill()
        for node in group.nodes.values():
            node.start()
        for node in group.nodes.values():
            self.assertEqual(node.ready().has('g'), {'a'})

    def test_changes_through_any_member_and_reads_of_what_was_acknowledged(self):
        nodes = Group(self).three()
        for i in range(60):
            node = nodes[i % 3]
            self.ok(node.call('channel.add', type=2, channel='g', uids=['u%d' % i]), smv=i + 1, members=i + 1)
            other = nodes[(i + 1) % 3]
            shown = self.ok(other.call('channel.show', type=2, channel='g', linearizable=True))
            self.assertEqual(len(shown['members']), i + 1)
        # A large one through a follower, and order on one connection.
        c = nodes[1].connect()
        uids = ['user%06d' % i for i in range(20000)]
        c.send('channel.reset', type=2, channel='h', uids=uids)
        c.send('channel.add', type=2, channel='h', uids=['x'])
        c.send('channel.remove', type=2, channel='h', uids=uids[:10])
        self.assertEqual([self.ok(c.receive())['members'] for _ in range(3)], [20000, 20001, 19991])
        digests = set()

        def equal():
            digests.clear()
            for node in nodes:
                fields = node.call('meta.verify')['fields']
                digests.add((fields['applied'], fields['chain'], fields['crc32c']))
            return len(digests) == 1
        wait_for(equal, 'equal states')

    def test_leadership_moves_when_asked(self):
        group = Group(self)
        nodes = group.three()
        self.assertEqual(nodes[1].leader(), 1)
        nodes[1].ctl('meta', 'transfer', '3')  # asked at a follower
        wait_for(lambda: all(n.leader() == 3 for n in nodes), 'node 3 leads')
        nodes[2].ctl('meta', 'transfer')
        wait_for(lambda: nodes[0].leader() in (1, 2), 'another one leads')
        self.refused(nodes[0].ready().call('meta.transfer', node=9), 'refused')

    def test_a_removed_id_never_comes_back(self):
        group = Group(self)
        nodes = group.three()
        nodes[0].ctl('meta', 'remove', '3')
        self.assertEqual(nodes[0].members(), {1: 'voter', 2: 'voter'})
        nodes[2].kill()
        again = group.nodes[3]
        shutil.rmtree(again.data)
        again.start()
        self.assertIn('refused', again.ctl('meta', 'join', '--via', nodes[0].address, code=1))
        again.kill()
        # An id that is a member is no other's either.
        twin = Meta(group, 20)
        twin.number = 2
        self.addCleanup(twin.kill)
        twin.start()
        self.refused(twin.call('meta.join', via=nodes[0].address), 'refused')
        group.add(4, nodes[0])
        nodes[0].ctl('meta', 'demote', '4')
        self.assertEqual(nodes[1].members(), {1: 'voter', 2: 'voter', 4: 'standby'})
        # The leader itself: the others go on.
        leader = group.nodes[nodes[0].leader()]
        others = [n for n in (nodes[0], nodes[1]) if n is not leader]
        # It hands over first, so the answer may be to ask again, or be lost with it.
        wait_for(lambda: others[0].call('meta.remove', node=leader.number)['ok'] or
                 others[0].ready() and leader.number not in others[0].members(), 'removal of the leader')
        wait_for(lambda: others[0].ready().leader() == others[0].number, 'a leader without it')
        self.ok(others[0].call('channel.add', type=2, channel='g', uids=['z']))

    def test_without_a_majority_nothing_is_acknowledged_and_it_heals(self):
        nodes = Group(self).three()
        self.ok(nodes[0].call('channel.add', type=2, channel='g', uids=['a']))
        nodes[1].kill()
        nodes[2].kill()
        answer = nodes[0].call('channel.add', type=2, channel='g', uids=['b'], wait_ms=3000)
        self.assertFalse(answer['ok'], answer)
        self.assertIn(answer['error'], ('not_leader', 'unknown_outcome'))
        self.assertFalse(nodes[0].call('channel.show', type=2, channel='g', linearizable=True)['ok'])
        self.assertIn('a', nodes[0].has('g'))  # what it has may still be read
        c = nodes[0].connect()
        c.send('channel.add', type=2, channel='g', uids=['c'], wait_ms=30000)
        nodes[1].start()
        # The one that waited is carried out once there is a leader.
        self.ok(c.receive())
        self.assertIn('c', nodes[1].ready().call(
            'channel.show', type=2, channel='g', linearizable=True)['members'])

    def test_nothing_acknowledged_is_lost_while_leaders_are_killed(self):
        group = Group(self)
        nodes = group.three()
        acknowledged, stop, problems = set(), threading.Event(), []

        def load(node, name):
            serial = 0
            try:
                while not stop.is_set():
                    uid = '%s-%d' % (name, serial)
                    serial += 1
                    try:
                        answer = node.call('channel.add', type=2, channel='g', uids=[uid])
                    except OSError:
                        time.sleep(0.01)  # it is being started again
                        continue
                    if answer['ok']:
                        acknowledged.add(uid)
            except Exception as problem:  # handed to the main thread
                problems.append(problem)
        threads = [threading.Thread(target=load, args=(n, 'n%d' % n.number)) for n in nodes]
        for thread in threads:
            thread.start()
        try:
            for _ in range(5):
                before = len(acknowledged)
                wait_for(lambda: len(acknowledged) > before + 50 or problems, 'load')
                leader = wait_for(lambda: next((n for n in nodes if n.process and n.leader() == n.number), None),
                                  'a leader')
                leader.kill()
                before = len(acknowledged)
                wait_for(lambda: len(acknowledged) > before + 20 or problems, 'load goes on without it')
                leader.start()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        self.assertEqual(problems, [])

        def everywhere():
            return all(not acknowledged - self.all_members(n) for n in nodes)
        wait_for(everywhere, 'everything acknowledged is on every node')
        chains = wait_for(lambda: self.same_chain(nodes), 'equal histories')
        self.assertEqual(len(chains), 1)

    def all_members(self, node):
        found, cursor = set(), None
        while True:
            page = self.ok(node.call('channel.show', type=2, channel='g', cursor=cursor))
            found.update(page['members'])
            cursor = page['cursor']
            if cursor is None:
                return found

    @staticmethod
    def same_chain(nodes):
        states = {(s['applied'], s['chain'], s['commit']) for s in (n.status() for n in nodes)}
        return states if len(states) == 1 else None

    def test_a_node_behind_the_log_gets_the_whole_store_and_its_feed_starts_anew(self):
        group = Group(self, ['--snapshot-entries', '64', '--snapshot-trailing', '16'])
        nodes = group.three()
        self.ok(nodes[0].call('channel.add', type=2, channel='g', uids=['a']))
        wait_for(lambda: nodes[2].has('g') == {'a'}, 'the entry at node 3')
        nodes[2].kill()
        for i in range(400):
            self.ok(nodes[0].call('channel.add', type=2, channel='g', uids=['u%d' % i]))
        nodes[2].start().ready()
        wait_for(lambda: len(self.all_members(nodes[2])) == 401, 'the state at node 3')
        self.assertGreater(nodes[2].status()['restores'] + nodes[2].status()['log_snapshot'], 0)


if __name__ == '__main__':
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=2)
