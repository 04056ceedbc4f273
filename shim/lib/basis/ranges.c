// Which addresses are taken: a treap, ordered by address. Layer: basis. Nodes have
// pseudo-random priorities, and none has a higher one than its parent, which keeps the tree about as
// deep as a balanced one whatever the order of the program's calls. Each node keeps the largest gap
// between the ranges of its subtree, so that one descent finds the lowest gap that is large
// enough. A program may have a hundred thousand allocations.
//
// Gaps are measured between aligned ends. Where all callers pass the same align, a gap of size bytes
// therefore has an aligned place for size bytes.
#include "basis.h"

#include <stdlib.h>

struct range_node {
	struct range range; // first: callers have its address
	uint64_t end;       // where the next range may begin: the end, aligned for ranges_take
	uint64_t priority;
	struct range_node *left, *right;
	uint64_t first, last, gap; // of the subtree, this node included: begin, end, largest gap between two ranges
};

static uint64_t align_up(uint64_t at, uint64_t align) { return (at + align - 1) / align * align; }

static uint64_t between(uint64_t end, uint64_t begin) { return begin > end ? begin - end : 0; }

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

// Recomputes first, last and gap of a node from its children.
static void look_below(struct range_node *n) {
	n->first = n->range.at;
	n->last = n->end;
	n->gap = 0;
	if (n->left != NULL) {
		n->first = n->left->first;
		n->gap = larger(n->left->gap, between(n->left->last, n->range.at));
	}
	if (n->right != NULL) {
		n->last = n->right->last;
		n->gap = larger(n->gap, larger(n->right->gap, between(n->end, n->right->first)));
	}
}

// Splits a tree into the ranges that begin before an address and the rest.
static void split(struct range_node *n, uint64_t at, struct range_node **low, struct range_node **high) {
	if (n == NULL) {
		*low = *high = NULL;
		return;
	}
	if (n->range.at < at) {
		split(n->right, at, &n->right, high);
		*low = n;
	} else {
		split(n->left, at, low, &n->left);
		*high = n;
	}
	look_below(n);
}

// Joins two trees of which all of the first lies below all of the second.
static struct range_node *join(struct range_node *low, struct range_node *high) {
	if (low == NULL)
		return high;
	if (high == NULL)
		return low;
	struct range_node *top;
	if (low->priority > high->priority) {
		top = low;
		low->right = join(low->right, high);
	} else {
		top = high;
		high->left = join(low, high->left);
	}
	look_below(top);
	return top;
}

// The last range that begins at or before an address.
static struct range_node *upto(const struct ranges *r, uint64_t at) {
	struct range_node *found = NULL;
	for (struct range_node *n = r->root; n != NULL;) {
		if (n->range.at <= at) {
			found = n;
			n = n->right;
		} else {
			n = n->left;
		}
	}
	return found;
}

struct range *ranges_find(const struct ranges *r, uint64_t at, uint64_t size) {
	struct range_node *n = upto(r, at);
	if (n == NULL)
		return NULL;
	uint64_t into = at - n->range.at;
	return into < n->range.size && size <= n->range.size - into ? &n->range : NULL;
}

struct range *ranges_from(const struct ranges *r, uint64_t at) {
	struct range_node *found = NULL;
	for (struct range_node *n = r->root; n != NULL;) {
		if (n->range.at >= at) {
			found = n;
			n = n->left;
		} else {
			n = n->right;
		}
	}
	return found != NULL ? &found->range : NULL;
}

// Scatters numbers that follow each other (the end of splitmix64).
static uint64_t scatter(uint64_t x) {
	x *= 0x9e3779b97f4a7c15;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

static bool insert(struct ranges *r, struct range range, uint64_t end) {
	static _Atomic uint64_t ids;
	struct range_node *n = malloc(sizeof *n);
	if (n == NULL)
		return false;
	range.id = atomic_fetch_add(&ids, 1) + 1;
	*n = (struct range_node){.range = range, .end = end, .priority = scatter(range.id)};
	look_below(n);
	struct range_node *low, *high;
	split(r->root, range.at, &low, &high);
	r->root = join(join(low, n), high);
	return true;
}

struct wish {
	uint64_t low, high, size, align;
};

// Whether a wish fits into a gap, and where.
static bool fits(const struct wish *w, uint64_t from, uint64_t to, uint64_t *at) {
	from = align_up(larger(from, w->low), w->align);
	to = to < w->high ? to : w->high;
	*at = from;
	return from >= w->low && from <= to && w->size <= to - from;
}

// The lowest place for a wish between the ranges of a tree.
static bool search(const struct range_node *n, const struct wish *w, uint64_t *at) {
	if (n == NULL || n->gap < w->size || n->last <= w->low || n->first >= w->high)
		return false;
	if (n->left != NULL && (search(n->left, w, at) || fits(w, n->left->last, n->range.at, at)))
		return true;
	return n->right != NULL && (fits(w, n->end, n->right->first, at) || search(n->right, w, at));
}

// Takes the lowest place with so many free bytes behind the range.
static uint64_t take(struct ranges *r, uint64_t low, uint64_t high, uint64_t size, uint64_t behind, uint64_t align, CUcontext context) {
	struct wish w = {low, high, size + behind, align};
	uint64_t at;
	if (size == 0 || high < low || size > high - low || behind > high - low - size)
		return 0;
	bool found = r->root == NULL ? fits(&w, low, high, &at)
				     : fits(&w, low, r->root->first, &at) || search(r->root, &w, &at) || fits(&w, r->root->last, high, &at);
	return found && insert(r, (struct range){.at = at, .size = size, .context = context}, align_up(at + size + behind, align)) ? at : 0;
}

uint64_t ranges_take(struct ranges *r, uint64_t low, uint64_t high, uint64_t size, uint64_t align, CUcontext context) {
	return take(r, low, high, size, 0, align, context);
}

uint64_t ranges_take_apart(struct ranges *r, uint64_t low, uint64_t high, uint64_t size, uint64_t behind, uint64_t align, CUcontext context) {
	return take(r, low, high, size, behind, align, context);
}

bool ranges_add(struct ranges *r, struct range range) {
	if (range.size == 0)
		return false;
	struct range_node *before = upto(r, range.at);
	if (before != NULL && before->end > range.at)
		return false;
	struct range *behind = ranges_from(r, range.at);
	if (behind != NULL && behind->at - range.at < range.size)
		return false;
	return insert(r, range, range.at + range.size);
}

void ranges_remove(struct ranges *r, struct range *range) {
	struct range_node *low, *found, *high;
	split(r->root, range->at, &low, &high);
	split(high, range->at + 1, &found, &high);
	r->root = join(low, high);
	free(found);
}
