/* SPDX-License-Identifier: BSD-3-Clause */
// Every option, once: where it is stored, type, range, default, and its part of the manual. Read by the
// parser, the printers and the checks. Constant.
#include "conf_pvt.h"

#include "base_time.h"

#define AT(field) offsetof(struct conf, field), sizeof(((struct conf *)0)->field)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define TIB (UINT64_C(1) << 40)
#define MIN (60 * NS_PER_S)
#define HOUR (3600 * NS_PER_S)
#define ID_MAX (UINT64_C(0x7fffffffffffffff))

static const char *const log_levels[] = {"error", "warn", "info", "debug", NULL};
static const char *const idles[] = {
	[CONF_IDLE_ADAPTIVE] = "adaptive", [CONF_IDLE_BUSY] = "busy", NULL};
static const char *const checksums[] = {
	[CONF_CHECKSUM_ON] = "on", [CONF_CHECKSUM_OFF] = "off", NULL};
static const char *const auths[] = {[CONF_AUTH_OFF] = "off", [CONF_AUTH_ON] = "on", NULL};
static const char *const metas[] = {
	[CONF_META_EMBEDDED] = "embedded", [CONF_META_EXTERNAL] = "external", NULL};

const struct conf_section conf_sections[] = {
	{"node", "Who this node is and where it keeps its files."},
	{"eal", "DPDK's environment. The final arguments are printed in the log at start."},
	{"port", "The network port. The node answers ARP and ICMP echo on it itself: the address "
		 "must not\n"
		 "be configured in the kernel as well."},
	{"workers", "The polling cores."},
	{"auth",
		"Authentication of datagrams: a keyed BLAKE2b tag over each, with replay windows."},
	{"meta", "The meta process: it owns the store and applies membership changes."},
	{"limits", "Sizes of everything; nothing grows beyond, and each has a counter. The memory "
		   "they come to is\n"
		   "printed at start and by --check: a machine that has less does not start the "
		   "node. Most of it\n"
		   "is taken from the system only as it is used."},
	{"delivery", "How pushes to gateways are acknowledged, repeated and given up."},
	{"tags", "Delivery tags, the membership snapshots that messages are bound to."},
};
const uint32_t conf_sections_count = sizeof(conf_sections) / sizeof(conf_sections[0]);
_Static_assert(sizeof(conf_sections) / sizeof(conf_sections[0]) <= CONF_SECTIONS_MAX, "marks fit");

// clang-format off
const struct conf_option conf_schema[] = {
	// --- node ---
	{.section = "node", .name = "id", .type = CONF_UINT, AT(node.id), .min = 1, .max = ID_MAX,
		.required = true, .text = "1",
		.help = "Id of this node, unique in the cluster, never given to another machine again."},
	{.section = "node", .name = "cluster_id", .type = CONF_UINT, AT(node.cluster_id), .min = 1,
		.max = ID_MAX, .value = 1,
		.help = "Id of the cluster. It is written into the store; a store of another cluster is refused."},
	{.section = "node", .name = "run_dir", .type = CONF_PATH, AT(node.run_dir), .text = "/run/tagcast",
		.help = "Folder of the control sockets. It must exist and be writable; one node per folder."},
	{.section = "node", .name = "data_dir", .type = CONF_PATH, AT(node.data_dir),
		.text = "/var/lib/tagcast",
		.help = "Folder of the store, made if it is absent. On a local disk: not NFS, not tmpfs if the\n"
			"memberships are to survive. It and run_dir belong to the user the daemons run as: once\n"
			"started they give up every capability but those the port needs, root too."},
	{.section = "node", .name = "log_level", .type = CONF_WORD_TEXT, AT(node.log_level),
		.words = log_levels, .text = "info",
		.reloadable = true,
		.help = "What is logged. debug adds DPDK's own lines, if it is so at start, and ids of members. A\n"
			"reload changes it for tagcastd; tagcast-metad goes on as it was started."},

	// --- eal ---
	{.section = "eal", .name = "lcores", .type = CONF_CPUS, AT(eal.lcores), .text = "auto",
		.help = "CPUs of the workers. With at least as many CPUs as workers each worker is pinned to one,\n"
			"in order; with fewer they share all of them. auto: every CPU the process may use. Name\n"
			"isolated CPUs here when workers.idle is busy."},
	{.section = "eal", .name = "memory", .type = CONF_SIZE, AT(eal.memory_bytes), .min = 32 * MIB,
		.max = 4095 * MIB, .value = 256 * MIB,
		.help = "Memory of DPDK: datagram buffers and queues. Without hugepages a buffer costs a whole\n"
			"4 KiB page: 8192 of them 34 MiB; with hugepages about 2.5 KiB each."},
	{.section = "eal", .name = "hugepages", .type = CONF_BOOL, AT(eal.hugepages), .value = 1,
		.help = "false runs on ordinary pages: no set-up of the machine, slower. true needs free hugepages\n"
			"(dpdk-hugepages.py --setup 1G)."},
	{.section = "eal", .name = "file_prefix", .type = CONF_NAME, AT(eal.file_prefix), .text = "",
		.help = "Name of DPDK's runtime folder. Two nodes on one machine need two names. Empty: made from\n"
			"node.id."},
	{.section = "eal", .name = "extra", .type = CONF_TEXT, AT(eal.extra), .text = "",
		.help = "Further EAL arguments, separated by spaces, added as written: --iova-mode=va,\n"
			"--log-level=pmd.*:debug, --huge-dir=..."},

	// --- port ---
	{.section = "port", .name = "device", .type = CONF_DEVICE, AT(port.device), .required = true,
		.text = "0000:3b:00.0",
		.help = "The port: a PCI address, bound to vfio-pci by dpdk-devbind.py, or a DPDK virtual device\n"
			"with its arguments, for example net_af_packet0,iface=eth1 or net_tap0,iface=tap0. Only\n"
			"this device is opened."},
	{.section = "port", .name = "address", .type = CONF_CIDR, AT(port.ip), .min = 8, .max = 32,
		.required = true, .text = "192.0.2.1/24",
		.help = "The node's IPv4 address and the length of its network's prefix."},
	{.section = "port", .name = "gateway", .type = CONF_IPV4, AT(port.gateway_ip),
		.help = "Next hop for addresses outside the network. none: they cannot be reached."},
	{.section = "port", .name = "vlan", .type = CONF_UINT, AT(port.vlan), .max = 4094,
		.help = "VLAN id that every frame carries. 0: untagged."},
	{.section = "port", .name = "mtu", .type = CONF_UINT, AT(port.mtu), .min = MTU_MIN, .max = MTU_MAX,
		.value = 1500,
		.help = "Largest IPv4 packet, in bytes, of every link to publishers and gateways. A virtual device\n"
			"over a kernel interface keeps that interface's own MTU, which must not be smaller."},
	{.section = "port", .name = "udp_base", .type = CONF_UINT, AT(port.udp_base), .min = 1024,
		.max = 65535, .value = 7400,
		.help = "First UDP port. Worker w listens on udp_base + w; HELLO goes to udp_base."},
	{.section = "port", .name = "rx_descriptors", .type = CONF_UINT, AT(port.rx_descriptors), .min = 64,
		.max = 32768, .value = 1024,
		.help = "Receive descriptors of each queue. More ride out longer pauses of a worker."},
	{.section = "port", .name = "tx_descriptors", .type = CONF_UINT, AT(port.tx_descriptors), .min = 64,
		.max = 32768, .value = 1024,
		.help = "Transmit descriptors of each queue."},
	{.section = "port", .name = "buffers", .type = CONF_UINT, AT(port.buffers), .min = 1024,
		.max = 4194304, .value = 16384,
		.help = "Datagram buffers of the node. They hold what is received, waits in queues, and every push\n"
			"until its acknowledgement."},
	{.section = "port", .name = "checksum", .type = CONF_WORD, AT(port.checksum), .words = checksums,
		.value = CONF_CHECKSUM_ON,
		.help = "UDP checksums. off: none is sent and none is checked; only for benchmarks."},
	{.section = "port", .name = "neighbours", .type = CONF_NEIGHBOURS, AT(port.neighbours),
		.help = "Static link addresses, for hosts that answer no ARP. An entry of ours is never replaced\n"
			"by what is learnt. As in: [{ip: 192.0.2.9, mac: \"02:00:00:00:00:09\"}]"},
	{.section = "port", .name = "neighbour_ttl", .type = CONF_DURATION, AT(port.neighbour_ttl_ns),
		.min = 10 * NS_PER_S, .max = 24 * HOUR, .value = 20 * MIN,
		.help = "How long a learnt link address is used without being confirmed."},

	// --- workers ---
	{.section = "workers", .name = "count", .type = CONF_UINT, AT(workers.count), .min = 1,
		.max = WORKERS_MAX, .value = 1,
		.help = "Polling cores. Each serves its own share of the channels, chosen by the channel's name.\n"
			"The control core comes on top."},
	{.section = "workers", .name = "idle", .type = CONF_WORD, AT(workers.idle), .words = idles,
		.value = CONF_IDLE_ADAPTIVE,
		.help = "adaptive: a worker without work sleeps until the port or another thread wakes it. busy:\n"
			"it polls at 100 %; only for CPUs that nothing else runs on."},
	{.section = "workers", .name = "quantum", .type = CONF_UINT, AT(workers.quantum_members), .min = 64,
		.max = 1048576, .value = 4096,
		.help = "Members of one channel expanded before the next channel gets its turn. Smaller keeps small\n"
			"channels quicker beside large ones, larger costs less per member."},
	{.section = "workers", .name = "ring", .type = CONF_UINT, AT(workers.ring_items), .min = 64,
		.max = 65536, .value = 1024, .power_of_two = true,
		.help = "Items of the ring between each two threads. A full ring drops and counts."},

	// --- auth ---
	{.section = "auth", .name = "mode", .type = CONF_WORD, AT(auth.mode), .words = auths,
		.required = true, .text = "off",
		.help = "on: every datagram must carry a tag made with one of the keys below. off: anyone who\n"
			"reaches the port may publish; only for networks where nobody else can. There is no\n"
			"default: say which."},
	{.section = "auth", .name = "keys", .type = CONF_KEYS, AT(auth.key_id),
		.reloadable = true,
		.help = "One key, or two while keys rotate: both are accepted. To rotate without a gap: let node and\n"
			"clients accept both, then send with the new one, then drop the old one. A file holds 32\n"
			"bytes in hex and has mode 0600.\n"
			"As in: [{id: 1, file: /etc/tagcast/key-1}, {id: 2, file: /etc/tagcast/key-2}]"},
	{.section = "auth", .name = "send_key", .type = CONF_KEY_ID, AT(auth.send_key), .max = 255,
		.reloadable = true,
		.help = "Id of the key to send with. 0: the first of the list."},

	// --- meta ---
	{.section = "meta", .name = "mode", .type = CONF_WORD, AT(meta.mode), .words = metas,
		.value = CONF_META_EMBEDDED,
		.help = "embedded: tagcastd starts tagcast-metad and starts it again when it ends. external: it is\n"
			"started by someone else, for example systemd, with the same configuration."},
	{.section = "meta", .name = "program", .type = CONF_PROGRAM, AT(meta.program),
		.text = "tagcast-metad",
		.help = "The program of the meta process, for embedded. A bare name is looked for beside tagcastd,\n"
			"then in PATH."},
	{.section = "meta", .name = "map_size", .type = CONF_SIZE, AT(meta.map_bytes), .min = 16 * MIB,
		.max = 16 * TIB, .value = 64 * GIB,
		.help = "Address space of the store, and with it its largest size on disk. Only what is used takes\n"
			"memory or disk. A full store refuses changes."},
	{.section = "meta", .name = "apply_wait", .type = CONF_DURATION, AT(meta.apply_wait_ns),
		.min = 10 * NS_PER_MS, .max = 5 * MIN, .value = 5 * NS_PER_S,
		.help = "How long a membership change waits until every worker acts on it. After that it is reported\n"
			"as stored but not yet in force."},
	{.section = "meta", .name = "journal_commits", .type = CONF_UINT, AT(meta.journal_commits),
		.min = 1000, .max = 1000000000, .value = 100000,
		.help = "Changes kept for a fast process that was away. One that was away for longer reads all\n"
			"channels again."},
	{.section = "meta", .name = "dedup_commits", .type = CONF_UINT, AT(meta.dedup_commits), .min = 1000,
		.max = 1000000000, .value = 100000,
		.help = "For how many changes a caller's token is remembered, so that a repeated call is applied\n"
			"once. An older repeat is refused as expired."},
	{.section = "meta", .name = "stages", .type = CONF_UINT, AT(meta.stages), .min = 1, .max = 4096,
		.value = 64,
		.help = "Large changes (more than fits one entry) that may be under way at once."},
	{.section = "meta", .name = "stage_commits", .type = CONF_UINT, AT(meta.stage_commits), .min = 100,
		.max = 1000000000, .value = 100000,
		.help = "A large change whose caller sent no further part during so many other entries is dropped."},
	{.section = "meta", .name = "feed_backlog", .type = CONF_SIZE, AT(meta.feed_backlog_bytes),
		.min = MIB, .max = 4095 * MIB, .value = 64 * MIB,
		.help = "Changes that may wait for a slow fast process. Beyond it the feed is cut, and it starts\n"
			"anew from the journal."},
	{.section = "meta", .name = "raft_address", .type = CONF_HOSTPORT, AT(meta.raft_address),
		.text = "none",
		.help = "Where the meta processes of other nodes reach this one: an address or name, and a TCP port,\n"
			"on a network that only they are on. A name is looked up at start. none: this node is a\n"
			"group of its own and listens nowhere."},
	{.section = "meta", .name = "raft_bind", .type = CONF_HOSTPORT, AT(meta.raft_bind), .text = "none",
		.help = "Where to listen, when it is not raft_address: behind address translation, or 0.0.0.0:PORT."},
	{.section = "meta", .name = "raft_auth", .type = CONF_WORD, AT(meta.raft_auth), .words = auths,
		.value = CONF_AUTH_ON,
		.help = "on: meta processes prove to each other that they hold the key below before anything else is\n"
			"read. off: whoever reaches the port is believed."},
	{.section = "meta", .name = "raft_key_file", .type = CONF_PATH_OR_NONE, AT(meta.raft_key_file),
		.text = "none",
		.help = "The key of the group, the same on every node: 32 bytes in hex, in a file of mode 0600.\n"
			"Needed with raft_address unless raft_auth is off."},
	{.section = "meta", .name = "election_timeout", .type = CONF_DURATION, AT(meta.election_ns),
		.min = 100 * NS_PER_MS, .max = 10 * NS_PER_S, .value = 300 * NS_PER_MS,
		.help = "Without a word from the leader for this long a node stands for election. A failed leader is\n"
			"replaced in one to two of them. 300ms is for one site; add the longest round trip."},
	{.section = "meta", .name = "heartbeat", .type = CONF_DURATION, AT(meta.heartbeat_ns),
		.min = 10 * NS_PER_MS, .max = 2 * NS_PER_S, .value = 50 * NS_PER_MS,
		.help = "How often a leader says that it is there. At most a third of election_timeout."},
	{.section = "meta", .name = "snapshot_entries", .type = CONF_UINT, AT(meta.snapshot_entries),
		.min = 64, .max = 16777216, .value = 65536,
		.help = "Log entries between two snapshots. Each snapshot writes the whole store once; the log since\n"
			"the last one is in memory and is what a restart reads."},
	{.section = "meta", .name = "snapshot_trailing", .type = CONF_UINT, AT(meta.snapshot_trailing),
		.min = 16, .max = 16777216, .value = 8192,
		.help = "Entries kept behind a snapshot. A node that missed no more is sent entries, another one the\n"
			"whole store."},
	{.section = "meta", .name = "snapshot_log", .type = CONF_SIZE, AT(meta.snapshot_log_bytes),
		.min = MIB, .max = 16 * GIB, .value = 128 * MIB,
		.help = "A snapshot also after so much log, so that it cannot fill the memory."},

	// --- limits ---
	{.section = "limits", .name = "channels", .type = CONF_UINT, AT(limits.channels), .min = 16,
		.max = 16777216, .value = 65536,
		.help = "Channels of the node, those without members included."},
	{.section = "limits", .name = "uids", .type = CONF_UINT, AT(limits.uids), .min = 64,
		.max = UID_INDEX_MAX - 1, .value = 1000000,
		.help = "Distinct UIDs in tags and with sessions. Each costs about 64 bytes and its name."},
	{.section = "limits", .name = "gateways", .type = CONF_UINT, AT(limits.gateways), .min = 1,
		.max = GATEWAYS_MAX - 1, .value = 1024,
		.help = "Gateway processes at once; one that restarts counts twice for a moment."},
	{.section = "limits", .name = "senders", .type = CONF_UINT, AT(limits.senders), .min = 16,
		.max = 1048576, .value = 4096,
		.help = "Senders (publishers, gateways, each of their lanes) whose replay windows each worker keeps.\n"
			"With auth.mode off one IP address has an eighth of them, 16 at least; beyond it the one\n"
			"not heard of for longest must prove its address again."},
	{.section = "limits", .name = "payload", .type = CONF_SIZE, AT(limits.payload_bytes), .min = 64,
		.max = PAYLOAD_MAX, .value = PAYLOAD_MAX,
		.help = "Largest payload of a message. A larger one is answered too_large."},
	{.section = "limits", .name = "messages", .type = CONF_UINT, AT(limits.messages), .min = 64,
		.max = 1048576, .value = 8192,
		.help = "Messages admitted and not yet ended, of each worker. Beyond it publishers get busy."},
	{.section = "limits", .name = "parked_per_channel", .type = CONF_UINT, AT(limits.parked_per_channel),
		.min = 1, .max = 65536, .value = 256,
		.help = "Messages of one channel that may wait while its tag is built."},
	{.section = "limits", .name = "parked", .type = CONF_UINT, AT(limits.parked), .min = 1,
		.max = 1048576, .value = 4096,
		.help = "Messages of all channels of a worker that may wait for tags."},
	{.section = "limits", .name = "inflight_pushes", .type = CONF_UINT, AT(limits.inflight_pushes),
		.min = 16, .max = 1048576, .value = 8192,
		.help = "Pushes sent and not yet acknowledged, of each worker. Each keeps its buffer."},
	{.section = "limits", .name = "frames", .type = CONF_UINT, AT(limits.frames), .min = 1, .max = 65536,
		.value = 64,
		.help = "Messages larger than a datagram that may be under reassembly or in use, of each worker.\n"
			"Each has 96 KiB of address space. One sender (with auth.mode off: one IP address) has a\n"
			"quarter of them at most."},
	{.section = "limits", .name = "window", .type = CONF_UINT, AT(limits.window), .min = 16,
		.max = 16777216, .value = 262144,
		.help = "Message ids each worker remembers, so that a repeated publish delivers nothing again."},
	{.section = "limits", .name = "window_age", .type = CONF_DURATION, AT(limits.window_age_ns),
		.min = NS_PER_S, .max = 24 * HOUR, .value = 10 * MIN,
		.help = "How long a message id is remembered at most. At least delivery.deadline_max."},
	{.section = "limits", .name = "tag_memory", .type = CONF_SIZE, AT(limits.tag_bytes), .min = MIB,
		.max = TIB, .value = 256 * MIB,
		.help = "Memory of all tags: 4 to 5 bytes for each member of each channel in use."},
	{.section = "limits", .name = "build_members_per_step", .type = CONF_UINT,
		AT(limits.build_members_per_step), .min = 64, .max = 1048576, .value = 4096,
		.help = "Members read from the store in one step of the control core while a tag is built. Smaller\n"
			"keeps other control work quicker."},

	// --- delivery ---
	{.section = "delivery", .name = "heartbeat", .type = CONF_DURATION, AT(delivery.heartbeat_ns),
		.min = 100 * NS_PER_MS, .max = MIN, .value = NS_PER_S,
		.help = "How often a gateway reports. After three missed ones its sessions are gone."},
	{.section = "delivery", .name = "push_timeout", .type = CONF_DURATION, AT(delivery.push_timeout_ns),
		.min = NS_PER_MS, .max = MIN, .value = 50 * NS_PER_MS,
		.reloadable = true,
		.help = "Least time before a push without acknowledgement is sent again. Longer for a gateway that\n"
			"answers slower: its round trip is measured by each worker (srtt_us of tagcastctl show\n"
			"gateways) as in RFC 6298. Doubled with each send, with jitter."},
	{.section = "delivery", .name = "retry_max", .type = CONF_DURATION, AT(delivery.retry_max_ns),
		.min = NS_PER_MS, .max = 10 * MIN, .value = 2 * NS_PER_S,
		.reloadable = true,
		.help = "Longest wait between two sends of a push. At least push_timeout."},
	{.section = "delivery", .name = "attempts", .type = CONF_UINT, AT(delivery.attempts), .min = 1,
		.max = 255, .value = 8,
		.help = "Sends of one route at most, the first included."},
	{.section = "delivery", .name = "receipt_timeout", .type = CONF_DURATION,
		AT(delivery.receipt_timeout_ns), .min = NS_PER_MS, .max = HOUR, .value = 5 * NS_PER_S,
		.reloadable = true,
		.help = "With ack=client: a route without its client's receipt is pushed again after this."},
	{.section = "delivery", .name = "deadline", .type = CONF_DURATION, AT(delivery.deadline_ns),
		.min = 10 * NS_PER_MS, .max = 24 * HOUR, .value = 30 * NS_PER_S,
		.reloadable = true,
		.help = "Deadline of a message that names none. What is not delivered by then is given up."},
	{.section = "delivery", .name = "deadline_max", .type = CONF_DURATION, AT(delivery.deadline_max_ns),
		.min = 10 * NS_PER_MS, .max = 24 * HOUR, .value = 5 * MIN,
		.reloadable = true,
		.help = "Longest deadline a publisher may ask for; a longer one is cut to this."},
	{.section = "delivery", .name = "push_window", .type = CONF_UINT, AT(delivery.push_window), .min = 1,
		.max = 65536, .value = 256,
		.help = "Unacknowledged pushes to one gateway from one worker. More pushes wait in the backlog."},
	{.section = "delivery", .name = "backlog", .type = CONF_UINT, AT(delivery.backlog), .min = 1,
		.max = 1048576, .value = 4096,
		.help = "Pushes that may wait for a gateway's window, of each worker. Beyond it routes end as\n"
			"route_overflow."},
	{.section = "delivery", .name = "resend_budget", .type = CONF_PERCENT, AT(delivery.resend_percent),
		.min = 1, .max = 1000, .value = 20,
		.help = "Resends as a share of first pushes. It keeps a slow gateway from filling the link."},

	// --- tags ---
	{.section = "tags", .name = "ttl", .type = CONF_DURATION, AT(delivery.tag_ttl_ns), .min = NS_PER_S,
		.max = 30 * 24 * HOUR, .value = 10 * MIN,
		.reloadable = true,
		.help = "A tag without a message for this long is freed; the next message builds it again. It frees\n"
			"memory and changes nothing else."},
	{.section = "tags", .name = "steps", .type = CONF_UINT, AT(delivery.tag_steps), .min = 1, .max = 4096,
		.value = 64,
		.help = "Changes kept per tag, so that another node can follow without the whole tag."},
};
// clang-format on
const uint32_t conf_schema_count = sizeof(conf_schema) / sizeof(conf_schema[0]);
_Static_assert(sizeof(conf_schema) / sizeof(conf_schema[0]) <= CONF_OPTIONS_MAX, "marks fit");
