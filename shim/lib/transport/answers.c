// A cache of answers that never change. Layer: transport. Libraries ask for the occupancy
// of a kernel and for the descriptor of a tensor before each launch, in a loop and with the same
// bytes each time. The cache saves the round trip, which may be to another machine.
//
// A question is an operation with the bytes of its message, and its answer depends on nothing
// else: numbers of functions are never reused (client.numbers), and the device's properties are
// those that the program was told when it began. Only successful answers are kept.
#include "transport.h"

#include <stdlib.h>
#include <string.h>

struct known {
	uint64_t hash;
	uint32_t op, asked, answered; // asked, answered: lengths of question and answer
	uint8_t bytes[];              // the question, then the answer
};

// FNV-1a.
static uint64_t hash_of(uint32_t op, const uint8_t *question, size_t size) {
	uint64_t h = UINT64_C(0xcbf29ce484222325) ^ op;
	for (size_t i = 0; i < size; i++)
		h = (h ^ question[i]) * UINT64_C(0x100000001b3);
	return h;
}

static struct known **place_of(struct client *c, uint64_t hash) { return &c->answers.known[(hash ^ hash >> 32) % KNOWN_ANSWERS]; }

bool answer_known(struct client *c, enum wire_op op, const void *question, size_t size, void *answer, size_t room, size_t *length) {
	if (size > KNOWN_BYTES || client_status(c) != CUDA_SUCCESS) // a failed client answers with its error
		return false;
	uint64_t hash = hash_of(op, question, size);
	pthread_mutex_lock(&c->answers.lock);
	const struct known *k = *place_of(c, hash);
	bool found = k != NULL && k->hash == hash && k->op == (uint32_t)op && k->asked == size && k->answered <= room && memcmp(k->bytes, question, size) == 0;
	if (found) {
		memcpy(answer, k->bytes + size, k->answered);
		*length = k->answered;
	}
	pthread_mutex_unlock(&c->answers.lock);
	return found;
}

void answer_keep(struct client *c, enum wire_op op, const void *question, size_t size, const void *answer, size_t length) {
	if (size > KNOWN_BYTES || length > KNOWN_BYTES)
		return;
	struct known *k = malloc(sizeof *k + size + length);
	if (k == NULL)
		return;
	*k = (struct known){hash_of(op, question, size), (uint32_t)op, (uint32_t)size, (uint32_t)length};
	memcpy(k->bytes, question, size);
	memcpy(k->bytes + size, answer, length);
	pthread_mutex_lock(&c->answers.lock);
	struct known **at = place_of(c, k->hash), *before = *at;
	*at = k;
	pthread_mutex_unlock(&c->answers.lock);
	free(before);
}

bool answers_prepare(struct client *c) {
	pthread_mutex_init(&c->answers.lock, NULL);
	c->answers.known = calloc(KNOWN_ANSWERS, sizeof *c->answers.known);
	return c->answers.known != NULL;
}
