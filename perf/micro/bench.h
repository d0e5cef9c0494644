/* SPDX-License-Identifier: BSD-3-Clause */
// What the micro benchmarks share: a clock, rounds, and one way to print. A figure is the median of its
// rounds; a ratio is the median of the rounds' ratios to a primitive measured in the same round, so that
// what the machine does to both cancels out. Goals are on ratios only.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BENCH_ROUNDS 7u
#define BENCH_NOISE 1.25  // a reference that spreads more says nothing of a miss

enum bench_goal_kind { BENCH_NO_GOAL, BENCH_AT_MOST, BENCH_AT_LEAST };
struct bench_goal {
	enum bench_goal_kind kind;
	double ratio;
};

// Time of this thread on its core: what others take from the machine is not counted.
static inline uint64_t bench_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

static inline int bench_by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

// Median of BENCH_ROUNDS values, which stay as they are; *spread: largest over smallest.
static inline double bench_median(const double *v, double *spread)
{
	double s[BENCH_ROUNDS];

	for (uint32_t i = 0; i < BENCH_ROUNDS; i++)
		s[i] = v[i];
	qsort(s, BENCH_ROUNDS, sizeof(*s), bench_by_value);
	if (spread != NULL)
		*spread = s[0] > 0 ? s[BENCH_ROUNDS - 1] / s[0] : 0;
	return s[BENCH_ROUNDS / 2];
}

static inline void bench_head(const char *title)
{
	printf("%s, medians of %u rounds\n", title, BENCH_ROUNDS);
	printf("%-42s %12s %-22s %10s %9s %9s  %s\n", "what", "ns", "primitive", "its ns", "ratio",
		"goal", "verdict");
}

// One row. `v` and `primitive_v` in ns by round. The ratio is v/primitive, or with `cheaper` its inverse:
// how many times cheaper the thing is. primitive NULL: a figure without one.
static inline void bench_row_as(const char *what, const double *v, const char *primitive,
	const double *primitive_v, struct bench_goal goal, bool cheaper)
{
	double ratio[BENCH_ROUNDS], spread = 0, middle;
	const char *verdict = "";
	char goal_text[16] = "";
	bool met;

	if (primitive == NULL) {
		printf("%-42s %12.2f\n", what, bench_median(v, NULL));
		return;
	}
	for (uint32_t i = 0; i < BENCH_ROUNDS; i++)
		ratio[i] = cheaper ? primitive_v[i] / v[i] : v[i] / primitive_v[i];
	middle = bench_median(ratio, NULL);
	const double primitive_ns = bench_median(primitive_v, &spread);

	if (goal.kind != BENCH_NO_GOAL) {
		met = goal.kind == BENCH_AT_MOST ? middle <= goal.ratio : middle >= goal.ratio;
		snprintf(goal_text, sizeof(goal_text), "%s %.2f",
			goal.kind == BENCH_AT_MOST ? "<=" : ">=", goal.ratio);
		verdict = met ? "pass" : spread > BENCH_NOISE ? "MISS (primitive spreads)" : "MISS";
	}
	printf("%-42s %12.2f %-22s %10.2f %9.2f %9s  %s\n", what, bench_median(v, NULL), primitive,
		primitive_ns, middle, goal_text, verdict);
}

static inline void bench_row(const char *what, const double *v, const char *primitive,
	const double *primitive_v, struct bench_goal goal)
{
	bench_row_as(what, v, primitive, primitive_v, goal, false);
}

#define BENCH_NONE ((struct bench_goal){BENCH_NO_GOAL, 0})
#define BENCH_MOST(r) ((struct bench_goal){BENCH_AT_MOST, (r)})
#define BENCH_LEAST(r) ((struct bench_goal){BENCH_AT_LEAST, (r)})
