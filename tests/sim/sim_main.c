/* SPDX-License-Identifier: BSD-3-Clause */
// Command line of the simulator. Runs seeds, each in a child process so that a crash names its seed, and
// prints what failed and how to replay it.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base_time.h"
#include "sim.h"

#define SEEDS_FIRST_DEFAULT 1u

// What a seed's world is like: derived from the seed alone.
static struct sim_params params_of(uint64_t seed, bool trace)
{
	static const uint32_t losses[] = {0, 0, 10, 50, 150, 250};
	static const uint32_t workers[] = {1, 2, 4};
	static const uint64_t ttls[] = {3600 * NS_PER_S, 3600 * NS_PER_S, 300 * NS_PER_MS,
		20 * NS_PER_MS};
	uint64_t r = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	struct sim_params p = {.seed = seed, .trace = trace};

	for (int i = 0; i < 4; i++)
		r ^= r >> 12, r ^= r << 25, r ^= r >> 27;
	p.workers = workers[r % 3];
	p.gateways = 1 + (uint32_t)(r >> 8) % SIM_GATEWAYS;
	p.publishers = 1 + (uint32_t)(r >> 12) % SIM_PUBLISHERS;
	p.loss_permille = losses[(r >> 16) % 6];
	p.dup_permille = p.loss_permille == 0 ? 0 : (uint32_t)(r >> 20) % 200;
	p.reorder_permille = p.loss_permille == 0 ? 0 : (uint32_t)(r >> 28) % 300;
	p.garbage_permille = (uint32_t)(r >> 36) % 3 == 0 ? 20 : 0;
	p.strangers = (r >> 37) % 4 == 0;
	p.delay_min_ns = 5000;
	p.delay_max_ns = 5000 + ((r >> 40) % 4) * 500000;
	p.auth = (r >> 44) % 2;
	p.ttl_ns = ttls[(r >> 46) % 4];
	p.crashes = (r >> 48) % 2;
	p.slow_gateway = p.gateways > 1 && (r >> 50) % 4 == 0;
	p.actions = 150 + (uint32_t)(r >> 54) % 150;
	p.store_faults = (r >> 20) % 3 == 0;
	p.jumps = (r >> 24) % 5 == 0;
	p.tiny = (r >> 32) % 8 == 0;
	p.perfect = !p.tiny && (r >> 5) % 8 == 0;
	if (p.perfect) {
		p.loss_permille = p.reorder_permille = p.garbage_permille = 0;
		p.dup_permille = 100;
		p.workers = r % 2 != 0 ? 1 : p.workers;
		p.crashes = p.jumps = p.strangers = p.slow_gateway = false;
	}
	// A world where only fairness is looked at.
	p.starve = !p.tiny && !p.perfect && (r >> 58) % 10 == 0;
	if (p.starve) {
		p.loss_permille = p.dup_permille = p.reorder_permille = p.garbage_permille = 0;
		p.crashes = p.store_faults = p.jumps = p.strangers = false;
		p.gateways = SIM_GATEWAYS;
		p.slow_gateway = true;
		p.ttl_ns = 3600 * NS_PER_S;
	}
	return p;
}

static bool fails(const struct sim_params *p, const char *how, uint64_t *hash)
{
	char failure[400] = "";

	if (sim_run(p, failure, sizeof(failure), hash) == 0)
		return false;
	printf("seed %llu%s: %s\n", (unsigned long long)p->seed, how, failure);
	return true;
}

// A story goes well with any time to live of tags: it frees memory and repairs nothing (I10). So every
// few seeds it is told twice.
static int run_seed(uint64_t seed, bool trace)
{
	struct sim_params p = params_of(seed, trace);
	uint64_t hash;
	bool failed = fails(&p, "", &hash);

	if (!failed && seed % 8 == 0) {
		p.ttl_ns = p.ttl_ns > NS_PER_S ? 50 * NS_PER_MS : 3600 * NS_PER_S;
		failed = fails(&p, " with another time to live", &hash);
	}
	fflush(stdout);
	return failed;
}

// The same seed must be the same world, or no failure could be replayed.
static int run_twice(uint64_t seed)
{
	struct sim_params p = params_of(seed, false);
	uint64_t hash[2];

	p.hash = true;
	if (fails(&p, "", &hash[0]) || fails(&p, "", &hash[1]))
		return 1;
	if (hash[0] == hash[1])
		return 0;
	printf("seed %llu: two runs differ\n", (unsigned long long)seed);
	return 1;
}

static int run_child(uint64_t seed, bool twice)
{
	int status;

	fflush(stdout);
	const pid_t pid = fork();

	if (pid == 0) {
		const int rc = twice ? run_twice(seed) : run_seed(seed, false);

		fflush(stdout);
		_exit(rc);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	if (WIFSIGNALED(status))
		printf("seed %llu: ended by signal %d\n", (unsigned long long)seed, WTERMSIG(status));
	return !(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static uint64_t number_of(const char *text)
{
	char *end;
	const unsigned long long v = strtoull(text, &end, 10);

	if (*text == '\0' || *end != '\0') {
		fprintf(stderr, "sim: not a number: %s\n", text);
		exit(64);
	}
	return v;
}

int main(int argc, char **argv)
{
	uint64_t seeds = 200, first = SEEDS_FIRST_DEFAULT, seed = 0;
	uint32_t failed = 0;
	bool stop = false, twice = false;

	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc) {
			seed = number_of(argv[++i]);
		} else if (strcmp(argv[i], "--seeds") == 0 && i + 1 < argc) {
			seeds = number_of(argv[++i]);
		} else if (strcmp(argv[i], "--first") == 0 && i + 1 < argc) {
			first = number_of(argv[++i]);
		} else if (strcmp(argv[i], "--stop") == 0) {
			stop = true;  // at the first failing seed
		} else if (strcmp(argv[i], "--twice") == 0) {
			twice = true;  // each seed two times, and the traces must be equal
		} else {
			fprintf(stderr, "usage: sim [--seeds N] [--first M] [--stop] [--twice] | --seed X\n");
			return 64;
		}
	}
	if (seed != 0)
		return run_seed(seed, true);
	for (uint64_t i = 0; i < seeds && !(stop && failed != 0); i++) {
		if (run_child(first + i, twice) == 0)
			continue;
		failed++;
		printf("replay: make sim SEED=%llu\n", (unsigned long long)(first + i));
	}
	printf("%llu passed, %u failed, 0 skipped\n", (unsigned long long)(seeds - failed), failed);
	return failed != 0;
}
