// The table of taken addresses against one that is plainly right, and what it costs.
//
//   ranges_test random SEED   calls at random, beside a list
//   ranges_test growth        four times as many ranges may not cost much more than four times as long
#include "../lib/basis/basis.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MUST(condition, ...) \
	do { \
		if (!(condition)) { \
			fprintf(stderr, "%s:%d: not so: %s: ", __FILE__, __LINE__, #condition); \
			fprintf(stderr, __VA_ARGS__); \
			fputc('\n', stderr); \
			exit(1); \
		} \
	} while (0)

static uint64_t seed;

static uint64_t chance(uint64_t n) {
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % n;
}

// --- beside a list ---------------------------------------------------------------------

// Two areas with steps of their own, as device memory has.
enum { LOW = 0x1000, MIDDLE = 0x3000, HIGH = 0x8000, SMALL_STEP = 16, LARGE_STEP = 256, MOST = 4096 };

static struct plain {
	uint64_t at, size, behind; // free bytes that were asked for behind it
} list[MOST];
static int count;

static bool is_free(uint64_t at, uint64_t size) {
	for (int i = 0; i < count; i++)
		if (at < list[i].at + list[i].size + list[i].behind && list[i].at < at + size)
			return false;
	return true;
}

static uint64_t lowest(uint64_t low, uint64_t high, uint64_t size, uint64_t align) {
	for (uint64_t at = low; at <= high && size <= high - at; at += align)
		if (is_free(at, size))
			return at;
	return 0;
}

static void take(struct ranges *r) {
	bool small = chance(4) > 0;
	uint64_t low = small ? LOW : MIDDLE, high = small ? MIDDLE : HIGH, align = small ? SMALL_STEP : LARGE_STEP;
	uint64_t size = 1 + chance(chance(8) == 0 ? high - low + 2 : small ? 100 : 1000);
	uint64_t apart = chance(3) == 0 ? 1 + chance(40) : 0;
	uint64_t want = lowest(low, high, size + apart, align);
	uint64_t got = apart > 0 ? ranges_take_apart(r, low, high, size, apart, align, NULL) : ranges_take(r, low, high, size, align, NULL);
	MUST(got == want, "%llu bytes came to %#llx and belong to %#llx", (unsigned long long)size, (unsigned long long)got, (unsigned long long)want);
	if (got != 0)
		list[count++] = (struct plain){got, size, apart};
}

static void look(const struct ranges *r) {
	uint64_t at = LOW + chance(HIGH - LOW), size = 1 + chance(40);
	const struct plain *want = NULL, *next = NULL;
	for (int i = 0; i < count; i++) {
		if (at >= list[i].at && at - list[i].at < list[i].size && size <= list[i].size - (at - list[i].at))
			want = &list[i];
		if (list[i].at >= at && (next == NULL || list[i].at < next->at))
			next = &list[i];
	}
	const struct range *got = ranges_find(r, at, size), *behind = ranges_from(r, at);
	MUST((got != NULL) == (want != NULL) && (got == NULL || (got->at == want->at && got->size == want->size)), "at %#llx", (unsigned long long)at);
	MUST((behind != NULL) == (next != NULL) && (behind == NULL || behind->at == next->at), "behind %#llx", (unsigned long long)at);
}

static void give_back(struct ranges *r) {
	if (count == 0)
		return;
	int i = (int)chance((uint64_t)count);
	ranges_remove(r, ranges_find(r, list[i].at, 1));
	list[i] = list[--count];
}

static void against_a_list(void) {
	struct ranges r = {0};
	for (int step = 0; step < 20000; step++) {
		uint64_t phase = step / 500 % 2; // it fills, and empties again
		if (chance(3) == 0)
			look(&r);
		else if (chance(4) > phase * 2)
			take(&r);
		else
			give_back(&r);
	}
	while (count > 0)
		give_back(&r);
	MUST(ranges_from(&r, 0) == NULL, "something is left");
}

// What a program has registered lies where it likes, but not twice.
static void no_overlaps(void) {
	struct ranges r = {0};
	MUST(ranges_add(&r, (struct range){.at = 100, .size = 10}), "the first");
	for (uint64_t at = 80; at < 120; at++) {
		bool apart = at + 5 <= 100 || at >= 110;
		bool added = ranges_add(&r, (struct range){.at = at, .size = 5});
		MUST(added == apart, "5 bytes at %llu", (unsigned long long)at);
		if (added)
			ranges_remove(&r, ranges_find(&r, at, 5));
	}
	MUST(!ranges_add(&r, (struct range){.at = 50}), "nothing");
	ranges_remove(&r, ranges_find(&r, 100, 10));
}

// --- what it costs ---------------------------------------------------------------------

static double seconds(void) {
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double best_of(int rounds, int n, double (*part)(int n)) {
	double best = part(n);
	while (--rounds > 0) {
		double again = part(n);
		best = again < best ? again : best;
	}
	return best;
}

static const uint64_t far = (uint64_t)1 << 40;

static double taking(int n) {
	struct ranges r = {0};
	double start = seconds();
	for (int i = 0; i < n; i++)
		MUST(ranges_take(&r, 512, far, 256, 512, NULL) == 512 + (uint64_t)i * 512, "range %d", i);
	double took = seconds() - start;
	for (int i = n; i-- > 0;)
		ranges_remove(&r, ranges_find(&r, 512 + (uint64_t)i * 512, 1));
	return took;
}

static double giving_back(int n) {
	struct ranges r = {0};
	for (int i = 0; i < n; i++) // from above, which was always fast
		MUST(ranges_add(&r, (struct range){.at = 512 + (uint64_t)i * 512, .size = 256}), "range %d", i);
	double start = seconds();
	for (int i = 0; i < n; i++)
		ranges_remove(&r, ranges_find(&r, 512 + (uint64_t)i * 512, 1));
	return seconds() - start;
}

// Four times as many, four times as long: less than twice as much for each, where a
// list would take four times as much.
static void growth(void) {
	enum { N = 10000, ROUNDS = 5 };
	double (*parts[])(int) = {taking, giving_back};
	for (int i = 0; i < 2; i++) {
		double few = best_of(ROUNDS, N, parts[i]), many = best_of(ROUNDS, 4 * N, parts[i]);
		MUST(many < 10 * few, "%s: %d ranges take %.1f ms and %d take %.1f ms", i == 0 ? "taking" : "giving back", N, few * 1e3, 4 * N, many * 1e3);
	}
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";
	if (strcmp(what, "random") == 0 && argc > 2) {
		seed = strtoull(argv[2], NULL, 0);
		against_a_list();
		no_overlaps();
	} else if (strcmp(what, "growth") == 0) {
		growth();
	} else {
		fprintf(stderr, "ranges_test: say random SEED or growth\n");
		return 2;
	}
	return 0;
}
