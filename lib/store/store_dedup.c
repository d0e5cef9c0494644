/* SPDX-License-Identifier: BSD-3-Clause */
// De-duplication: keys of applied commands with their results, for a window of commits.
// Whether a key is inside the window is decided from its record's commit, never from whether the record
// was deleted yet. Thread: owner of the write transaction.
#include "store_pvt.h"

static struct store_bytes record_key(const uint8_t *key, uint8_t k[1 + STORE_DEDUP_BYTES])
{
	k[0] = 'K';
	memcpy(k + 1, key, STORE_DEDUP_BYTES);
	return bytes_of(k, 1 + STORE_DEDUP_BYTES);
}

int dedup_find(struct store_apply *a, const uint8_t *key, struct store_result *r,
	enum dedup_verdict *verdict)
{
	uint8_t k[1 + STORE_DEDUP_BYTES];
	struct store_bytes v;
	const uint64_t base = get_le(key, 8), now = a->state.commit;
	const int rc = tx_get(a->tx, STORE_T_DEDUP, record_key(key, k), &v);

	if (rc != 0 && rc != -ENOENT)
		return rc;
	if (rc == 0 && v.len != DEDUP_RECORD_BYTES)
		return -EUCLEAN;
	if (rc == 0 && now - get_le(v.p, 8) <= a->limits->dedup_commits) {
		const uint8_t *p = v.p;

		r->code = p[16];
		r->repeated = 1;
		r->commit = get_le(p + 17, 8);
		r->smv = get_le(p + 25, 8);
		r->changed = (uint32_t)get_le(p + 33, 4);
		*verdict = DEDUP_REPEATED;
	} else if (base > now) {
		*verdict = DEDUP_FUTURE;
	} else {
		*verdict = now - base > a->limits->dedup_commits ? DEDUP_EXPIRED : DEDUP_NEW;
	}
	return 0;
}

int dedup_record(
	struct store_apply *a, const uint8_t *key, const struct store_result *r, bool moved)
{
	uint8_t k[1 + STORE_DEDUP_BYTES], o[9] = {'O'}, p[DEDUP_RECORD_BYTES], q[DEDUP_ORDER_BYTES];
	const uint64_t sequence = a->state.dedup_next;

	if (r->code > STORE_R_NOT_FOUND)
		return 0;
	// What moved no commit number cannot be aged by one, so it is bounded by number. Not remembering it
	// cannot apply anything twice, as nothing was applied.
	if (!moved && a->state.dedup_count / 2 >= a->limits->dedup_commits)
		return 0;
	put_le(p, a->state.commit, 8);
	put_le(p + 8, sequence, 8);
	p[16] = r->code;
	put_le(p + 17, r->commit, 8);
	put_le(p + 25, r->smv, 8);
	put_le(p + 33, r->changed, 4);

	int rc = tx_put(a->tx, STORE_T_DEDUP, record_key(key, k), bytes_of(p, sizeof(p)));

	if (rc != 0)
		return rc;
	put_be(o + 1, sequence, 8);
	put_le(q, a->state.commit, 8);
	memcpy(q + 8, key, STORE_DEDUP_BYTES);
	rc = tx_put(a->tx, STORE_T_DEDUP, bytes_of(o, sizeof(o)), bytes_of(q, sizeof(q)));
	a->state.dedup_next++;
	a->state.dedup_count++;
	return rc;
}

// Each command records at most one key, so dropping two a command keeps up. Part of apply, not of
// compaction: dedup_count decides what is recorded and must be equal on all nodes.
int dedup_evict(struct store_apply *a)
{
	for (int i = 0; i < 2; i++) {
		const uint8_t from[1] = {'O'};
		uint8_t k[1 + STORE_DEDUP_BYTES], o[9];
		struct store_bytes key, v;
		int rc = tx_seek(a->tx, STORE_T_DEDUP, bytes_of(from, 1), false, &key, &v);

		if (rc == -ENOENT)
			return 0;
		if (rc == 0 && (key.len != sizeof(o) || v.len != DEDUP_ORDER_BYTES))
			rc = -EUCLEAN;
		if (rc != 0)
			return rc;
		if (a->state.commit - get_le(v.p, 8) <= a->limits->dedup_commits)
			return 0;
		memcpy(o, key.p, sizeof(o));
		record_key((const uint8_t *)v.p + 8, k);
		rc = tx_del(a->tx, STORE_T_DEDUP, bytes_of(k, sizeof(k)));
		if (rc == 0)
			rc = tx_del(a->tx, STORE_T_DEDUP, bytes_of(o, sizeof(o)));
		if (rc != 0)
			return rc;
		a->state.dedup_count--;
	}
	return 0;
}
