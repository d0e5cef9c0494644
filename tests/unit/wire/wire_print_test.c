/* SPDX-License-Identifier: BSD-3-Clause */
// The printer: one line for anything, within the buffer it was given.
#include "wire_samples.h"

static void every_message_prints_its_fields(void **state)
{
	static const struct {
		enum sample_id id;
		const char *want;
	} lines[] = {
		{S_HELLO,
			"HELLO sender=2/3 lane=1 seq=4 bytes=104 role=gateway versions=1-3 mtu=1500"
			" cookie=1122334455667788"},
		{S_HELLO_ACK,
			"status=ok cookie=8877665544332211 node=7/b007 ports=7400+2 version=1"},
		{S_HEARTBEAT, "stamp=72623859790382856 sessions=77"},
		{S_HEARTBEAT_ACK, "status=unknown_gateway"},
		{S_ANNOUNCE, "stream_seq=5 count=3 +0.1 uid=\"alice\" -16777215.16777214 uid=\"b\""
			     " +3.0 uid=\"\\x00\\xff\\x22\""},
		{S_ANNOUNCE_ACK, "next=6 rejected=3 0:limit 2:stale"},
		{S_BYE, "BYE sender=2/3 lane=1 seq=4 bytes=40"},
		{S_PUBLISH, "request=11 message=12 ack=client redirect=1 deadline_ms=1500 type=2"
			    " channel=\"room\" from=\"alice\" session=21/16/23.24"},
		{S_PUBLISH_ACK, "status=not_leader seq=99 duplicate=1 unfinished=3"},
		{S_PUBLISH_ACK, "leader=10.0.0.1:7400"},
		{S_PUSH, "push=31.32 gateway_boot=21 records=2 routes=5 need_ack=1 attempt=2"
			 " {message=12 seq=99"},
		{S_PUSH, "routes=3: 0.1 1.2 2.3}"},
		{S_PUSH_ACK, "accepted=2 retryable=2 dropped=1 1 4 0"},
		{S_RECEIPT, "first=8 bits=2[0580]"},
		{S_SEGMENT, "frame=41 of=PUSH part=2/3 offset=40 total=47"},
		{S_TASK, "TASK sender=2/3 lane=1 seq=4 bytes=200 task=51 message=12 seq=7 target=4"
			 " attempt=1 ack=client deadline_ms=1500"
			 " fence=0102030405060708090a0b0c0d0e0f10.900 slot=3 term=9 epochs=2.5"
			 " type=2 channel=\"room\" from=\"alice\" session=21/16/23.24"},
		{S_SCOPED_TASK, "deadline_ms=0 slot=3 term=9 type=8"},
		{S_SCOPED_TASK, "payload=2[6869] uids=2 uid=\"u1\" uid=\"u2\""},
		{S_TASK_ACK, "task=51 message=12 status=completed"
			     " fence=0102030405060708090a0b0c0d0e0f10.899 duplicate=1"},
		{S_TAG_GET, "request=61 target=4 fence=0102030405060708090a0b0c0d0e0f10.900"
			    " have=0102030405060708090a0b0c0d0e0f10.890 slot=3 term=9 epochs=2.5"
			    " first=64 want=8000000000000003 body=901 room=1416 flags=3 type=2"},
		{S_TAG_PART, "base=0 smv=77 table=6 leader=0 part=1/3 members=33000 entries=3"
			     " slot[3 9 1 4] member=\"alice\" denied=\"\\x00\\xff\\x22\""},
		{S_DELTA_PART, "base=890 smv=77 table=6 leader=0 part=1/3 members=33000 entries=2"
			       " gone=\"alice\" member=\"bob\""},
		{S_HINT,
			"hint=71 op=invalidate commit=1000 smv=77 slot=3 term=9 epochs=2.5 type=2"},
		{S_HINT_ANSWER, "hint=71 op=fence status=not_leader leader=3 commit=999"},
		{S_PRESENCE, "revision=88 table=6 hash_slots=256 stream_seq=5 count=2"
			     " 0-25:not_ready slot=1 term=9 255-255:complete slot=10 term=2"},
	};

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		uint8_t p[SAMPLE_MAX];
		char text[2048];
		const uint32_t len = sample_datagram(lines[i].id, p);
		const int n = wire_print(p, len, text, sizeof(text));

		assert_int_equal(n, strlen(text));
		if (strstr(text, lines[i].want) == NULL)
			fail_msg("\"%s\" is not in \"%s\"", lines[i].want, text);
		assert_null(strchr(text, '\n'));
	}
	(void)state;
}

static void what_is_wrong_is_named(void **state)
{
	uint8_t p[SAMPLE_MAX] = {0};
	char text[256];
	uint32_t len = sample_datagram(S_PUSH, p);

	p[WIRE_HEADER_BYTES + 22] = 1;
	wire_print(p, len, text, sizeof(text));
	assert_non_null(strstr(text, "PUSH sender=2/3"));
	assert_non_null(strstr(text, "drop_field"));
	p[0] = 'X';
	wire_print(p, len, text, sizeof(text));
	assert_string_equal(text, "? bytes=197 drop_magic");
	wire_print(p, 3, text, sizeof(text));
	assert_string_equal(text, "? bytes=3 drop_short");
	(void)state;
}

static void text_is_cut_at_the_buffer(void **state)
{
	uint8_t p[SAMPLE_MAX];

	for (enum sample_id id = 0; id < S_COUNT; id++) {
		const uint32_t len = sample_datagram(id, p);

		for (size_t size = 0; size < 200; size++) {
			char *const text = malloc(size != 0 ? size : 1);
			const int n = wire_print(p, len, text, size);

			if (size == 0) {
				assert_int_equal(n, 0);
			} else {
				assert_true((size_t)n < size);
				assert_int_equal(strlen(text), n);
			}
			free(text);
		}
	}
	(void)state;
}

static void flipped_bits_print_too(void **state)
{
	for (enum sample_id id = 0; id < S_COUNT; id++) {
		uint8_t p[SAMPLE_MAX];
		const uint32_t len = sample_datagram(id, p);

		for (uint32_t bit = 0; bit < 8 * len; bit++) {
			uint8_t *const copy = malloc(len);
			char text[512];

			memcpy(copy, p, len);
			copy[bit / 8] ^= (uint8_t)(1u << bit % 8);
			assert_true(wire_print(copy, len, text, sizeof(text)) > 0);
			free(copy);
		}
	}
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_message_prints_its_fields),
		cmocka_unit_test(what_is_wrong_is_named),
		cmocka_unit_test(text_is_cut_at_the_buffer),
		cmocka_unit_test(flipped_bits_print_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
