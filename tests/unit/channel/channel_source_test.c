/* SPDX-License-Identifier: BSD-3-Clause */
#include "unit.h"

#include <errno.h>
#include <string.h>

#include "channel_source.h"

static struct id_view id(const char *s)
{
	return id_view_of(s, (uint8_t)strlen(s));
}

static void check_id(const struct channel_key *key, const char *want)
{
	if (!id_equal(channel_key_id(key), id(want)))
		fail_msg("\"%.*s\" instead of \"%s\"", key->len, (const char *)key->bytes, want);
}

static void hash_slots_of_ids_are_those_of_every_node(void **state)
{
	(void)state;
	assert_int_equal(id_hash_slot(id("u1"), 256), 118);
	assert_int_equal(id_hash_slot(id("u2"), 256), 204);
	assert_int_equal(id_hash_slot(id("alice"), 256), 71);
	assert_int_equal(id_hash_slot(id("bob"), 256), 64);
	assert_int_equal(id_hash_slot(id("user1"), 256), 85);
}

static void a_derived_channel_resolves_to_its_source(void **state)
{
	struct channel_key key, derived, source;

	(void)state;
	assert_int_equal(channel_key_set(&key, CHANNEL_GROUP, "room", 4), 0);
	assert_false(channel_is_derived(&key));
	channel_source(&key, &source);
	assert_true(channel_key_equal(&source, &key));
	assert_int_equal(channel_derive(&key, &derived), 0);
	check_id(&derived, "room____cmd");
	assert_int_equal(derived.type, CHANNEL_GROUP);
	assert_true(channel_is_derived(&derived));
	channel_source(&derived, &source);
	assert_true(channel_key_equal(&source, &key));
	channel_source(&derived, &derived);
	assert_true(channel_key_equal(&derived, &key));
}

static void the_suffix_is_appended_once(void **state)
{
	struct channel_key key, derived;

	(void)state;
	assert_int_equal(channel_key_set(&key, CHANNEL_GROUP, "room____cmd", 11), 0);
	assert_int_equal(channel_derive(&key, &derived), 0);
	check_id(&derived, "room____cmd");
	assert_int_equal(channel_derive(&derived, &derived), 0);
	check_id(&derived, "room____cmd");
}

static void a_suffix_alone_or_cut_is_an_ordinary_id(void **state)
{
	static const char *const ordinary[] = {"____cmd", "___cmd", "x____cm", "x____cmd ",
		"____cmdx", "x___cmd", "c", "x____CMD"};

	(void)state;
	for (uint32_t i = 0; i < sizeof(ordinary) / sizeof(ordinary[0]); i++) {
		assert_int_equal(channel_source_id(id(ordinary[i])).len, strlen(ordinary[i]));
		assert_int_equal(channel_root_id(id(ordinary[i])).len, strlen(ordinary[i]));
	}
}

static void whatever_is_derived_shares_the_slot_of_its_root(void **state)
{
	static const char *const ids[] = {"room", "room____cmd", "room____cmd____cmd"};

	(void)state;
	assert_true(id_equal(channel_source_id(id(ids[2])), id(ids[1])));
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(id_hash_slot(channel_root_id(id(ids[i])), 256),
			id_hash_slot(id("room"), 256));
	assert_true(id_equal(channel_root_id(id("____cmd____cmd")), id("____cmd")));
}

static void an_id_without_room_for_the_suffix_is_refused(void **state)
{
	struct channel_key key = {
		.type = CHANNEL_GROUP, .len = ID_LEN_MAX - CHANNEL_CMD_SUFFIX_BYTES};
	struct channel_key derived;

	(void)state;
	memset(key.bytes, 'x', sizeof(key.bytes));
	assert_int_equal(channel_derive(&key, &derived), 0);
	assert_int_equal(derived.len, ID_LEN_MAX);
	key.len++;
	assert_int_equal(channel_derive(&key, &derived), -ENAMETOOLONG);
}

static void two_people_have_one_channel(void **state)
{
	static const char *const vectors[][3] = {
		{"u1", "u2", "u2@u1"}, {"alice", "bob", "bob@alice"},
		{"user1", "user2", "user1@user2"}, {"1001", "1002", "1001@1002"},
		{"plumless", "buckeroo", "plumless@buckeroo"},  // the same CRC
	};
	struct channel_key key;

	(void)state;
	for (uint32_t i = 0; i < sizeof(vectors) / sizeof(vectors[0]); i++) {
		const struct id_view a = id(vectors[i][0]), b = id(vectors[i][1]);

		assert_int_equal(channel_person(a, b, &key), 0);
		check_id(&key, vectors[i][2]);
		assert_int_equal(channel_person(b, a, &key), 0);
		check_id(&key, vectors[i][2]);
		assert_int_equal(key.type, CHANNEL_PERSON);
		assert_int_equal(channel_person_normalise(a, b, &key), 0);
		check_id(&key, vectors[i][2]);
		assert_int_equal(channel_person_normalise(b, id(vectors[i][2]), &key), 0);
		check_id(&key, vectors[i][2]);
	}
	assert_int_equal(channel_person_normalise(id("u1"), id("u1@u2"), &key), 0);
	check_id(&key, "u2@u1");
	assert_int_equal(channel_person_normalise(id("u3"), id("u2@u1"), &key), -EINVAL);
	assert_int_equal(channel_person(id(""), id("x"), &key), -EINVAL);
	assert_int_equal(channel_person(id("a@b"), id("x"), &key), -EINVAL);
}

static void ids_of_no_two_people_are_refused(void **state)
{
	static const char *const bad[] = {"", "u1", "@", "u1@", "@u1", "a@b@c"};
	struct id_view left, right;

	(void)state;
	for (uint32_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(channel_person_split(id(bad[i]), &left, &right), -EINVAL);
	assert_int_equal(channel_person_split(id("a@bc"), &left, &right), 0);
	assert_true(id_equal(left, id("a")) && id_equal(right, id("bc")));
}

static void a_request_is_named_by_its_set_in_order(void **state)
{
	const struct id_view pair[] = {id("u1"), id("u2")};
	const struct id_view turned[] = {id("u2"), id("u1")};
	const struct id_view people[] = {id("alice"), id("bob")};
	const struct id_view messy[] = {
		id(""), id(" u1\t"), id("  "), id("u1"), id("u2\n"), id("u1")};
	struct channel_key key, other;

	(void)state;
	assert_int_equal(channel_request(pair, 2, &key), 0);
	check_id(&key, "17922244540036557902");
	assert_int_equal(key.type, CHANNEL_TEMP);
	assert_int_equal(channel_request(messy, 6, &key), 0);
	check_id(&key, "17922244540036557902");
	assert_int_equal(channel_request(people, 2, &key), 0);
	check_id(&key, "5412798438395137264");
	assert_int_equal(channel_request(pair, 1, &key), 0);
	check_id(&key, "631765120777144307");
	assert_int_equal(channel_request(turned, 2, &other), 0);
	assert_false(channel_key_equal(&key, &other));
	assert_int_equal(channel_request(messy, 1, &key), -EINVAL);
	assert_int_equal(channel_request(messy, 0, &key), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hash_slots_of_ids_are_those_of_every_node),
		cmocka_unit_test(a_derived_channel_resolves_to_its_source),
		cmocka_unit_test(the_suffix_is_appended_once),
		cmocka_unit_test(a_suffix_alone_or_cut_is_an_ordinary_id),
		cmocka_unit_test(whatever_is_derived_shares_the_slot_of_its_root),
		cmocka_unit_test(an_id_without_room_for_the_suffix_is_refused),
		cmocka_unit_test(two_people_have_one_channel),
		cmocka_unit_test(ids_of_no_two_people_are_refused),
		cmocka_unit_test(a_request_is_named_by_its_set_in_order),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
