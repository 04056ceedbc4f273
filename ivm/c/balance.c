/* The load balancers of muster/ivm/balance in C; that package says what they do and why. The decisions of
 * Guided and Monitoring are at the top, without elements and without a clock; a test compares them with
 * those of the Go side. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "ivm.h"
#include "internal.h"

#include <float.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- what is decided ------------------------------------------------------------- */

EXPORT void ivmShare(long items, int part, int parts, long *from, long *to)
{
	*from = *to = 0;
	if (parts < 1)
		return;
	*from = (long)((__int128)items * part / parts);
	*to = (long)((__int128)items * (part + 1) / parts);
}

EXPORT int ivmGrows(double time, double least, double threshold) { return time < threshold * least || time == least; }

/* span is the items from one to before another. */
struct span {
	long from, to;
};

static long count_of(struct span s) { return s.to - s.from; }

/* ledger keeps which items were acknowledged: in order, apart from each other. It knows nothing of how
 * they were divided, so that it finds any error of what does. */
struct ledger {
	struct span *done;
	int count, room;
};

/* ledger_add notes items that were acknowledged; false if some of them were before, or without memory. */
static bool ledger_add(struct ledger *l, struct span s)
{
	if (count_of(s) <= 0)
		return true;
	if (l->count == l->room) {
		int room = 2 * l->room + 16;
		struct span *more = realloc(l->done, (size_t)room * sizeof *more);
		if (!more)
			return false;
		l->done = more;
		l->room = room;
	}
	int i = l->count;
	while (i > 0 && l->done[i - 1].from >= s.from)
		i--;
	if ((i > 0 && l->done[i - 1].to > s.from) || (i < l->count && l->done[i].from < s.to))
		return false;
	bool before = i > 0 && l->done[i - 1].to == s.from, after = i < l->count && l->done[i].from == s.to;
	if (after)
		l->done[i].from = s.from;
	if (before)
		l->done[i - 1].to = after ? l->done[i].to : s.to;
	int moves = before && after ? -1 : !before && !after;
	if (moves != 0)
		memmove(&l->done[i + (moves > 0)], &l->done[i + (moves < 0)], (size_t)(l->count - i - (moves < 0)) * sizeof *l->done);
	if (moves > 0)
		l->done[i] = s;
	l->count += moves;
	return true;
}

/* missing_of is the first items that were not acknowledged; none if all were. */
static struct span missing_of(const struct ledger *l, long items)
{
	struct span missing = {0, items};
	for (int i = 0; i < l->count; i++) {
		if (l->done[i].from > missing.from)
			return (struct span){missing.from, l->done[i].from};
		missing.from = l->done[i].to;
	}
	return missing;
}

struct worker {
	/* Sums over its pieces: how many, their items and seconds, and products; earlier pieces count less and less. */
	double pieces, items, seconds, squares, products;
	double fixed; /* seconds of a piece, whatever its size */
	double least; /* seconds of its shortest piece */
	double since; /* seconds of its pieces in this round before the one that it does now */
	long most;    /* items of its largest piece */
	struct span has; /* items that it does now */
	bool dead, idle;
};

/* A guide's todo are the items that nobody has: at first all of them, and behind them what workers had
 * that were lost; there is room for one of each worker. */
struct ivm_guide {
	long items;
	struct span *todo;
	int parts; /* of todo, at least 1 */
	struct ledger done;
	bool twice; /* some items were done twice */
	int count, rounds;
	bool fewer;      /* in this round slow workers get nothing */
	double longs[2]; /* how long the last round took with all workers, and with fewer; 0: unknown */
	struct worker *workers;
};

enum { first_part = 4096, growth = 8, rest_part = 2, least_part = 64, pays_from = 16, dearest = 64, retry = 16 };
static const double keeps = 0.5; /* how much of what was known before a piece counts after it */
static const double slow = 8, too_little = 1.0 / 32, nearly = 1.1;

static long least_of(long a, long b) { return a < b ? a : b; }
static long most_of(long a, long b) { return a > b ? a : b; }
static double smaller(double a, double b) { return a < b ? a : b; }
static double larger(double a, double b) { return a > b ? a : b; }

/* each is the seconds that an item takes; 0 if that is not known, or an error of the clock. */
static double each(const struct worker *w)
{
	const double fastest = 1e100;
	if (w->pieces <= 1 || w->seconds <= 0 || w->items / w->seconds > fastest)
		return 0;
	double all = w->seconds / w->items;
	return larger(all - w->fixed * w->pieces / w->items, all / dearest);
}

/* took is a time that a worker says, or 0 if that is none. */
static double took(double seconds) { return seconds >= 0 && seconds <= DBL_MAX ? seconds : 0; }

/* note adds a piece that the worker has done. */
static void note(struct worker *w, double items, double seconds)
{
	w->pieces = keeps * w->pieces + 1;
	w->items = keeps * w->items + items;
	w->seconds = smaller(keeps * w->seconds + seconds, DBL_MAX);
	w->squares = keeps * w->squares + items * items;
	w->products = smaller(keeps * w->products + items * seconds, DBL_MAX);
	double spread = w->pieces * w->squares - w->items * w->items;
	if (spread > 0.1 * w->pieces * w->squares) {
		double slope = (w->pieces * w->products - w->items * w->seconds) / spread;
		w->fixed = (w->seconds - slope * w->items) / w->pieces;
	}
	if (!(w->fixed > 0))
		w->fixed = 0;
	if (w->least == 0 || seconds < w->least)
		w->least = seconds;
	w->fixed = smaller(w->fixed, w->least);
}

/* without says whether a worker gets nothing in this round. */
static bool without(const ivm_guide *g, const struct worker *x)
{
	double least = 0, all = 0, of_slow = 0;
	for (int i = 0; i < g->count; i++) {
		double is = each(&g->workers[i]);
		if (is > 0 && !g->workers[i].dead && (least == 0 || is < least))
			least = is;
	}
	if (each(x) <= slow * least)
		return false;
	for (int i = 0; i < g->count; i++) {
		double is = each(&g->workers[i]);
		if (is == 0 || g->workers[i].dead)
			continue;
		all += 1 / is;
		if (is > slow * least)
			of_slow += 1 / is;
	}
	return g->fewer || of_slow < too_little * all;
}

/* begin is when a worker would begin with its next items; what each of them takes is 0 if it takes none. */
static double begin(const ivm_guide *g, const struct worker *x, const struct worker *w, double *takes)
{
	*takes = 0;
	if (x->dead || (x != w && (x->idle || without(g, x))))
		return 0;
	*takes = each(x);
	if (*takes == 0) {
		*takes = each(w);
		return w->fixed;
	}
	return count_of(x->has) > 0 ? x->fixed + larger(0, x->since + x->fixed + *takes * (double)count_of(x->has) - w->since) : x->fixed;
}

/* ends is how long from now the workers need for the items that are left, with w, which asks; rate is
 * how many items a second they do together. */
static double ends(const ivm_guide *g, const struct worker *w, double left, double *rate)
{
	double end = 0;
	*rate = 0;
	for (bool again = true; again;) {
		double from = 0, sum = 0;
		for (int i = 0; i < g->count; i++) {
			double takes, begins = begin(g, &g->workers[i], w, &takes);
			if (takes == 0 || (*rate > 0 && begins >= end))
				continue;
			from += begins / takes;
			sum += 1 / takes;
		}
		if (sum == 0) {
			*rate = 0;
			return 0;
		}
		again = *rate == 0 || sum < *rate;
		end = (left + from) / sum;
		*rate = sum;
	}
	return end;
}

/* second is how many items a worker's second piece has. */
static long second(const ivm_guide *g, const struct worker *w, long left, bool busy)
{
	long most = growth;
	double rate, end = ends(g, w, (double)left, &rate);
	if (end > 0) {
		if (busy && w->seconds > end / 4)
			return 0;
		double times = end / w->seconds / rest_part;
		most = times < growth ? most_of(2, (long)times) : growth;
	}
	return w->most > left / most ? left : most * w->most;
}

/* size is how many items a worker's next piece has; 0 if the others end sooner without it. */
static long size(const ivm_guide *g, const struct worker *w, long left)
{
	double own = each(w);
	bool alone = true, busy = false;
	for (int i = 0; i < g->count; i++) {
		const struct worker *x = &g->workers[i];
		alone = alone && (x == w || x->dead || x->idle || without(g, x));
		busy = busy || count_of(x->has) > 0;
	}
	if (without(g, w) && !alone)
		return 0;
	if (alone && !busy)
		return left;
	if (own == 0 && (w->pieces == 0 || w->seconds <= 0))
		return least_of(left, most_of(1, g->items / g->count / first_part));
	if (own == 0)
		return second(g, w, left, busy);
	double rate, end = ends(g, w, (double)left, &rate), can = (end - w->fixed) / own;
	if (busy && !(can >= 1))
		return 0;
	double n = larger(larger(can / rest_part, smaller(can, pays_from * w->fixed / own)), (double)g->items / own / rate / least_part);
	long piece = n < (double)left ? least_of(left, most_of(1, (long)n)) : left;
	if (w->most <= left / growth) /* else it may get all that is left, and growth times that is too large a number */
		piece = least_of(piece, most_of(1, growth * w->most));
	return piece;
}

EXPORT int ivmGuideNext(ivm_guide *g, int worker, double seconds, long *from, long *to)
{
	*from = *to = g->items;
	if (worker < 0 || worker >= g->count)
		return 0;
	struct worker *w = &g->workers[worker];
	if (count_of(w->has) > 0) {
		g->twice = !ledger_add(&g->done, w->has) || g->twice;
		note(w, (double)count_of(w->has), took(seconds));
		w->since = smaller(w->since + took(seconds), DBL_MAX);
		w->has = (struct span){0};
	}
	long left = 0;
	for (int i = 0; i < g->parts; i++)
		left += count_of(g->todo[i]);
	long n = left == 0 || w->dead ? 0 : size(g, w, left);
	w->idle = n == 0;
	if (n == 0)
		return 0;
	struct span *last = &g->todo[g->parts - 1]; /* what a lost worker had comes first */
	n = least_of(n, count_of(*last));
	*from = w->has.from = last->from;
	*to = w->has.to = last->from += n;
	w->most = most_of(w->most, n);
	g->parts -= count_of(*last) == 0 && g->parts > 1;
	return 1;
}

EXPORT int ivmGuideDone(const ivm_guide *g)
{
	if (g->twice)
		return ivm_fail(IVM_ERROR_UNDONE, "some of %ld items were acknowledged twice", g->items);
	struct span m = missing_of(&g->done, g->items);
	if (count_of(m) > 0)
		return ivm_fail(IVM_ERROR_UNDONE, "of %ld items those from %ld to %ld were acknowledged by no element", g->items, m.from, m.to - 1);
	return IVM_OK;
}

EXPORT void ivmGuideLose(ivm_guide *g, int worker)
{
	if (worker < 0 || worker >= g->count)
		return;
	if (count_of(g->workers[worker].has) > 0)
		g->todo[g->parts++] = g->workers[worker].has;
	g->workers[worker] = (struct worker){.dead = true};
	g->longs[0] = g->longs[1] = 0;
	g->fewer = false;
	for (int i = 0; i < g->count; i++)
		g->workers[i].idle = false;
}

/* begin_round has all items handed out. */
static void begin_round(ivm_guide *g)
{
	g->todo[0] = (struct span){0, g->items};
	g->parts = 1;
	g->done.count = 0;
	g->twice = false;
}

EXPORT void ivmGuideAgain(ivm_guide *g)
{
	double taken = 0;
	for (int i = 0; i < g->count; i++) {
		struct worker *w = &g->workers[i];
		taken = larger(taken, w->since);
		w->since = 0;
		w->idle = false;
		w->has = (struct span){0};
	}
	if (g->rounds > 2 && !g->twice && count_of(missing_of(&g->done, g->items)) == 0) /* what the first ones took says little */
		g->longs[g->fewer] = taken;
	begin_round(g);
	g->rounds++;
	if (g->longs[0] == 0) {
		g->fewer = false;
	} else if (g->longs[1] == 0) {
		g->fewer = true;
	} else {
		double with = g->longs[0], fewer = g->longs[1];
		bool again = g->rounds % retry == 0 && larger(with, fewer) < nearly * smaller(with, fewer);
		g->fewer = (fewer < with) != again;
	}
}

EXPORT void ivmGuideFree(ivm_guide *g)
{
	if (!g)
		return;
	free(g->workers);
	free(g->todo);
	free(g->done.done);
	free(g);
}

EXPORT ivm_guide *ivmGuideNew(long items, int workers)
{
	ivm_guide *g = workers < 0 ? NULL : calloc(1, sizeof *g);
	if (!g)
		return NULL;
	g->items = most_of(0, items);
	g->count = workers;
	g->workers = calloc((size_t)workers + 1, sizeof *g->workers);
	g->todo = calloc((size_t)workers + 1, sizeof *g->todo);
	if (!g->workers || !g->todo) {
		ivmGuideFree(g);
		return NULL;
	}
	begin_round(g);
	return g;
}

static int no_memory(void) { return ivm_fail(IVM_ERROR_NO_MEMORY, "there is no memory to divide the work with"); }

/* --- what the root tells its children ------------------------------------------- */

static const char plan_name[] = "balance.plan", reports_name[] = "balance.reports";

/* plan is of an iteration (From: the element before the first, To: how many there are), or a piece of
 * an element. A child may look while the root writes: the sum tells whether all of it is there. */
struct plan {
	int64_t number; /* counts plans; -1 ends the child */
	int64_t from, to, sum;
};

static int64_t sum(const struct plan *p)
{
	return (int64_t)((uint64_t)p->number * 0x100000001 ^ (uint64_t)p->from * 0x3b9aca07 ^ (uint64_t)p->to * 0x5deece66d ^ 0x2545f4914f6cdd1d);
}

static void write_plan(struct plan *at, int64_t number, int64_t from, int64_t to)
{
	struct plan p = {number, from, to, 0};
	p.sum = sum(&p);
	for (size_t i = 0; i < sizeof p / 8; i++)
		__atomic_store_n((int64_t *)at + i, ((int64_t *)&p)[i], __ATOMIC_RELAXED);
}

static struct plan read_plan(const struct plan *at)
{
	struct plan p;
	for (size_t i = 0; i < sizeof p / 8; i++)
		((int64_t *)&p)[i] = __atomic_load_n((const int64_t *)at + i, __ATOMIC_RELAXED);
	return p;
}

/* announce makes a plan known to all nodes, and lets the children go on. */
static int announce(struct plan *plans, size_t count)
{
	void *memory = plans;
	size_t bytes = count * sizeof *plans;
	int code = ivmSyncPutGroup(&memory, &bytes, 1);
	return code == IVM_OK ? ivmSignal() : code;
}

/* report acknowledges work: the number of the plan, or of the element if it needs none, and how long it
 * took. A signal or an end without it is no acknowledgement. The first report of its object says how
 * many follow. */
struct report {
	int64_t number;
	double seconds;
};

/* boards are the two objects. */
struct boards {
	struct plan *plans;
	struct report *reports;
};

static int make_boards(struct boards *b, size_t plans, size_t reports)
{
	int code = plans > 0 ? ivmMalloc(plan_name, &b->plans, plans * sizeof *b->plans) : IVM_OK;
	if (code == IVM_OK)
		code = ivmMalloc(reports_name, &b->reports, (reports + 1) * sizeof *b->reports);
	if (code == IVM_OK)
		b->reports++[0].number = (int64_t)reports;
	return code;
}

static int free_boards(struct boards *b)
{
	int code = b->plans ? ivmFree(b->plans) : IVM_OK, other = ivmFree(b->reports - 1);
	return code != IVM_OK ? code : other;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* follower is a child. What it maps may be on a device: it looks at the node's copy. */
struct follower {
	void *plans, *reports; /* as mapped */
	int id, slots;
};

static int map_boards(struct follower *f, bool plans)
{
	int code = plans ? ivmMap(plan_name, &f->plans, 0) : IVM_OK;
	if (code == IVM_OK)
		code = ivmMap(reports_name, &f->reports, 0);
	if (code == IVM_OK)
		code = ivmGetMyId(&f->id);
	if (code == IVM_OK)
		f->slots = (int)((struct report *)ivmHost(f->reports))->number;
	return code;
}

/* acknowledge says that the child is done, and how long it took. */
static int acknowledge(struct follower *f, int slot, struct report r)
{
	size_t at = (1 + (size_t)slot) * sizeof r;
	*(struct report *)((char *)ivmHost(f->reports) + at) = r;
	int code = ivmSyncPut((char *)f->reports + at, sizeof r);
	return code == IVM_OK ? ivmSignal() : code;
}

/* await waits for a plan that the child has not seen. */
static int await(struct follower *f, int slot, int64_t last, struct plan *p)
{
	char *mapped = (char *)f->plans + (size_t)slot * sizeof *p;
	for (;;) {
		int code = ivmSyncGet(mapped, sizeof *p);
		if (code != IVM_OK)
			return code;
		*p = read_plan(ivmHost(mapped));
		if (p->sum == sum(p) && p->number != last)
			return IVM_OK;
		if ((code = ivmWaitLatest(0)) != IVM_OK) /* of signals for others it hears only the last */
			return code;
	}
}

/* await_all waits for a signal, or the end, of each element. */
static int await_all(const ivm_pe *ids, int count)
{
	int code = IVM_OK;
	for (int i = 0; code == IVM_OK && i < count; i++)
		code = ivmWait(ids[i]);
	return code;
}

/* --- Spawning -------------------------------------------------------------------- */

/* await_portions waits until all portions of an iteration were reported, each by its own element. */
static int await_portions(const struct boards *b, int portions, int iteration)
{
	struct ledger done = {0};
	ivm_pe before = (ivm_pe)portions * (ivm_pe)iteration;
	int code = IVM_OK;
	while (code == IVM_OK && count_of(missing_of(&done, portions)) > 0) {
		ivm_pe id = 0;
		code = ivmWaitAny(&id);
		if (id > 0 && id <= before && (code == IVM_OK || code == IVM_ERROR_DEAD)) {
			code = IVM_OK; /* an end of the iteration before, whose work is done */
			continue;
		}
		if (code != IVM_OK)
			break;
		long portion = (long)((id - 1) % (ivm_pe)portions);
		if (b->reports[portion].number != (int64_t)id)
			code = ivm_fail(IVM_ERROR_UNDONE, "element %ld signalled or ended, but did not do portion %ld of iteration %d", (long)id, portion, iteration);
		else
			ledger_add(&done, (struct span){portion, portion + 1}); /* or its end, after its report */
	}
	free(done.done);
	return code;
}

EXPORT int ivmSpawningRoot(const ivm_device *devices, int count, int portions, int iterations, int (*each)(int, void *), void *context)
{
	if (portions < 1 || count < 1 || !devices)
		return ivm_fail(IVM_ERROR_INVALID, "%d portions on %d devices: there must be one of each", portions, count);
	struct boards b = {0};
	int code = make_boards(&b, 0, (size_t)portions);
	for (int i = 0; code == IVM_OK && i < iterations; i++) {
		if (each && (code = each(i, context)) != 0)
			break;
		code = ivmSetMaxPesId(portions * (i + 1));
		for (int d = 0; code == IVM_OK && d < count; d++) {
			ivm_pe made;
			code = ivmCreatePEs(devices[d], 1, &made);
		}
		if (code == IVM_OK)
			code = await_portions(&b, portions, i);
	}
	if (code == IVM_OK)
		code = free_boards(&b);
	return code == IVM_OK && each ? each(iterations, context) : code;
}

EXPORT int ivmSpawningChild(int portions, int (*compute)(int, void *), int (*put)(int, void *), void *context)
{
	struct follower f;
	ivm_device own;
	ivm_pe made;
	int code = map_boards(&f, false);
	if (code != IVM_OK)
		return code;
	int portion = (f.id - 1) % portions;
	code = ivmGetMyDev(&own);
	if (code == IVM_OK)
		code = compute(portion, context);
	if (code == IVM_OK)
		code = ivmCreatePEs(own, 1, &made); /* no effect if all are given out */
	if (code == IVM_OK && put)
		code = put(portion, context);
	return code == IVM_OK ? acknowledge(&f, portion, (struct report){.number = f.id}) : code;
}

/* --- Monitoring ------------------------------------------------------------------ */

/* grow creates elements: one a device first, then where it is fast. */
static int grow(const ivm_device *devices, int count, int most, double threshold, const struct report *reports, ivm_pe *ids, ivm_device *of, int *have)
{
	int there = *have;
	double least = 0;
	for (int i = 0; i < there; i++)
		if (i == 0 || reports[i].seconds < least)
			least = reports[i].seconds;
	for (int i = 0; i < (there == 0 ? count : there) && *have < most; i++) {
		if (there > 0 && !ivmGrows(reports[i].seconds, least, threshold))
			continue;
		of[*have] = there == 0 ? devices[i] : of[i];
		int code = ivmCreatePEs(of[*have], 1, &ids[*have]);
		if (code != IVM_OK)
			return code;
		*have += ivmCreated();
	}
	return IVM_OK;
}

EXPORT int ivmMonitoringRoot(const ivm_device *devices, int count, int iterations, double threshold, int most)
{
	struct boards b = {0};
	int have = 0;
	if (count < 1 || most < 1 || !devices)
		return ivm_fail(IVM_ERROR_INVALID, "at most %d elements on %d devices: there must be one of each", most, count);
	ivm_pe *ids = calloc((size_t)most, sizeof *ids);
	ivm_device *of = calloc((size_t)most, sizeof *of);
	int code = ids && of ? make_boards(&b, 1, (size_t)most) : no_memory();
	for (int i = 0; code == IVM_OK && i < iterations; i++) {
		if ((code = grow(devices, count, most, threshold, b.reports, ids, of, &have)) != IVM_OK)
			break;
		if (have == 0 || ids[have - 1] != ids[0] + (ivm_pe)have - 1) { /* an element finds its part by its number */
			code = ivm_fail(IVM_ERROR_UNDONE, "%d elements have numbers that do not follow each other: no other elements may be created meanwhile", have);
			break;
		}
		write_plan(b.plans, i + 1, (int64_t)ids[0] - 1, have);
		if ((code = announce(b.plans, 1)) == IVM_OK)
			code = await_all(ids, have);
		for (int j = 0; code == IVM_OK && j < have; j++)
			if (b.reports[j].number != i + 1)
				code = ivm_fail(IVM_ERROR_UNDONE, "element %ld signalled or ended, but did not do part %d of %d of iteration %d", (long)ids[j], j, have, i);
	}
	if (code == IVM_OK) {
		write_plan(b.plans, -1, 0, 0);
		code = announce(b.plans, 1);
	}
	if (code == IVM_OK && (code = await_all(ids, have)) == IVM_OK)
		code = free_boards(&b);
	free(ids);
	free(of);
	return code;
}

EXPORT int ivmMonitoringChild(int (*step)(int, int, int, void *), void *context)
{
	struct follower f;
	struct plan p = {0};
	int code = map_boards(&f, true);
	while (code == IVM_OK) {
		if ((code = await(&f, 0, p.number, &p)) != IVM_OK || p.number < 0)
			return code;
		int64_t mine = f.id - p.from;
		if (mine > p.to)
			continue; /* the plan of an iteration before this element was created */
		double begun = now();
		if ((code = step((int)p.number - 1, (int)mine - 1, (int)p.to, context)) == IVM_OK)
			code = acknowledge(&f, (int)mine - 1, (struct report){p.number, now() - begun});
	}
	return code;
}

/* --- Guided ---------------------------------------------------------------------- */

/* leader is Guided's root. A worker is a device's place in the list, whose element has a plan, or none
 * if its number is 0. */
struct leader {
	ivm_guide *guide;
	struct boards boards;
	struct led {
		ivm_pe id;
		int64_t number;
	} *workers;
	int64_t number; /* the last */
};

static int slot_of(const struct leader *l, ivm_pe id) { return (int)(id % (ivm_pe)(l->guide->count + 1)); }

/* give gives an element its next piece, if there is one for it. */
static int give(struct leader *l, int worker, double seconds)
{
	struct led *w = &l->workers[worker];
	long from, to;
	w->number = 0;
	if (!ivmGuideNext(l->guide, worker, seconds, &from, &to))
		return IVM_OK;
	w->number = ++l->number;
	write_plan(&l->boards.plans[slot_of(l, w->id)], w->number, from, to);
	return ivmSignal();
}

/* give_all gives a piece to each element that has none, if there is one for it. */
static int give_all(struct leader *l)
{
	int code = IVM_OK;
	for (int i = 0; code == IVM_OK && i < l->guide->count; i++)
		if (!l->guide->workers[i].dead && l->workers[i].number == 0)
			code = give(l, i, 0);
	return code;
}

/* heard deals with a worker that has signalled, ended or died. One that did not report its piece has
 * left: if it still runs, it must not go on while others do its piece. */
static int heard(struct leader *l, int worker, bool died)
{
	struct led *w = &l->workers[worker];
	struct report *r = &l->boards.reports[slot_of(l, w->id)];
	if (!died && w->number != 0 && r->number == w->number)
		return give(l, worker, r->seconds);
	int code = died ? IVM_OK : ivmKillPEs((ivm_device){0}, 1, &w->id);
	ivmGuideLose(l->guide, worker);
	w->number = 0;
	return code == IVM_OK ? give_all(l) : code;
}

/* lead hands out all items. */
static int lead(struct leader *l)
{
	int code = give_all(l);
	for (;;) {
		bool busy = false;
		for (int i = 0; i < l->guide->count; i++)
			busy = busy || l->workers[i].number != 0;
		if (code != IVM_OK || !busy)
			break;
		ivm_pe id = 0;
		code = ivmWaitAny(&id);
		if (code != IVM_OK && code != IVM_ERROR_DEAD)
			return code;
		int worker = 0;
		while (worker < l->guide->count && (l->workers[worker].id != id || l->guide->workers[worker].dead))
			worker++;
		code = worker < l->guide->count ? heard(l, worker, code == IVM_ERROR_DEAD) : IVM_OK; /* others are not of this balancer */
	}
	return code == IVM_OK ? ivmGuideDone(l->guide) : code;
}

/* dismiss ends the children. One that has died meanwhile has done its work. */
static int dismiss(struct leader *l)
{
	for (int i = 0; i <= l->guide->count; i++)
		write_plan(&l->boards.plans[i], -1, 0, 0);
	int code = announce(l->boards.plans, (size_t)l->guide->count + 1);
	for (int i = 0; code == IVM_OK && i < l->guide->count; i++) {
		if (!l->guide->workers[i].dead && (code = ivmWait(l->workers[i].id)) == IVM_ERROR_DEAD)
			code = IVM_OK;
	}
	return code == IVM_OK ? free_boards(&l->boards) : code;
}

EXPORT int ivmGuidedRoot(const ivm_device *devices, int count, long items)
{
	if (count < 1 || items < 0 || !devices)
		return ivm_fail(IVM_ERROR_INVALID, "%ld items on %d devices make no sense", items, count);
	struct leader l = {.guide = ivmGuideNew(items, count)};
	l.workers = calloc((size_t)count, sizeof *l.workers);
	int code = l.guide && l.workers ? make_boards(&l.boards, (size_t)count + 1, (size_t)count + 1) : no_memory();
	for (int i = 0; code == IVM_OK && i < count; i++) {
		code = ivmCreatePEs(devices[i], 1, &l.workers[i].id);
		if (ivmCreated() == 0) /* beyond the greatest number, or its node is lost */
			ivmGuideLose(l.guide, i);
		if (code == IVM_ERROR_LOST)
			code = IVM_OK;
		for (int j = 0; code == IVM_OK && j < i; j++)
			if (!l.guide->workers[i].dead && !l.guide->workers[j].dead && slot_of(&l, l.workers[j].id) == slot_of(&l, l.workers[i].id))
				code = ivm_fail(IVM_ERROR_UNDONE, "elements %ld and %ld have one slot: no other elements may be created meanwhile", (long)l.workers[j].id, (long)l.workers[i].id);
	}
	if (code == IVM_OK && (code = lead(&l)) == IVM_OK)
		code = dismiss(&l);
	ivmGuideFree(l.guide);
	free(l.workers);
	return code;
}

EXPORT int ivmGuidedChild(int (*work)(long, long, void *), void *context)
{
	struct follower f;
	struct plan p = {0};
	int code = map_boards(&f, true);
	while (code == IVM_OK) {
		int slot = f.id % f.slots;
		if ((code = await(&f, slot, p.number, &p)) != IVM_OK || p.number < 0)
			return code;
		double begun = now();
		if ((code = work((long)p.from, (long)p.to, context)) == IVM_OK)
			code = acknowledge(&f, slot, (struct report){p.number, now() - begun});
	}
	return code;
}
