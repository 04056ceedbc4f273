// Checkpoints of device memory, for programs that save themselves. Layer: entry. The
// format is that of node/checkpoint, which describes it. Files written here have no client core: a
// restarted program gets back its memory, and nothing else.
#include "export.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC "MusterCheckpoint"
#define FORMAT 1u
#define MAX_PIECE ((size_t)2 << 20)
#define PIECE ((size_t)1 << 20)
#define BLOCK ((size_t)64 << 10) // what is zero is left out in such blocks

enum { ABOUT = 1, CORE, ALLOCATIONS, MEMORY, RING, DATA, END };

struct head {
	char magic[16];
	uint64_t version;
};

struct record {
	uint32_t kind, check;
	uint64_t at, size;
};

// --- checksums: CRC-32C ------------------------------------------------------------

static uint32_t table[8][256];
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void make_table(void) {
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t x = i;
		for (int bit = 0; bit < 8; bit++)
			x = x >> 1 ^ (x & 1 ? 0x82f63b78u : 0);
		table[0][i] = x;
	}
	for (uint32_t i = 0; i < 256; i++)
		for (int k = 1; k < 8; k++)
			table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 0xff];
}

static uint32_t crc(uint32_t sum, const void *data, size_t size) {
	const uint8_t *at = data;
	sum = ~sum;
	for (; size >= 8; at += 8, size -= 8) {
		uint64_t word;
		memcpy(&word, at, 8);
		word ^= sum;
		sum = table[7][word & 0xff] ^ table[6][word >> 8 & 0xff] ^ table[5][word >> 16 & 0xff] ^ table[4][word >> 24 & 0xff] ^
		      table[3][word >> 32 & 0xff] ^ table[2][word >> 40 & 0xff] ^ table[1][word >> 48 & 0xff] ^ table[0][word >> 56];
	}
	for (; size > 0; at++, size--)
		sum = sum >> 8 ^ table[0][(sum ^ *at) & 0xff];
	return ~sum;
}

static uint32_t check_of(const struct record *r, const void *data) {
	uint8_t b[20];
	memcpy(b, &r->kind, 4);
	memcpy(b + 4, &r->at, 8);
	memcpy(b + 12, &r->size, 8);
	return crc(crc(0, b, sizeof b), data, r->size);
}

// --- names ---------------------------------------------------------------------------

// The folder of checkpoints; false if neither MUSTER_CHECKPOINTS nor HOME gives one.
static bool folder(char path[PATH_MAX]) {
	const char *named = secure_getenv("MUSTER_CHECKPOINTS"), *home = secure_getenv("HOME");
	if (named != NULL && named[0] != 0)
		return snprintf(path, PATH_MAX, "%s", named) < PATH_MAX;
	if (home == NULL || home[0] != '/') {
		struct passwd *who = getpwuid(geteuid());
		home = who != NULL ? who->pw_dir : NULL;
	}
	errno = ENOENT;
	return home != NULL && snprintf(path, PATH_MAX, "%s/.local/state/muster/checkpoints", home) < PATH_MAX;
}

static bool is_name(const char *name) {
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	return name != NULL && name[0] != 0 && name[0] != '.' && strlen(name) <= 200 && name[strspn(name, allowed)] == 0;
}

// Makes a folder and its parents.
static bool make_folder(char *path) {
	for (char *at = path + 1; *at != 0; at++) {
		if (*at != '/')
			continue;
		*at = 0;
		bool made = mkdir(path, 0700) == 0 || errno == EEXIST;
		*at = '/';
		if (!made)
			return false;
	}
	return mkdir(path, 0700) == 0 || errno == EEXIST;
}

static CUresult trouble(const char *what, const char *path) {
	notice("%s %s: %s", what, path, strerror(errno));
	return CUDA_ERROR_OPERATING_SYSTEM;
}

// --- writing ---------------------------------------------------------------------------

struct writer {
	FILE *file;
	uint64_t records;
};

static bool put(struct writer *w, uint32_t kind, uint64_t at, const void *data, uint64_t size) {
	struct record r = {.kind = kind, .at = at, .size = size};
	r.check = check_of(&r, data);
	w->records++;
	return fwrite(&r, sizeof r, 1, w->file) == 1 && (size == 0 || fwrite(data, size, 1, w->file) == 1);
}

static bool is_zero(const uint8_t *data, size_t size) { return data[0] == 0 && memcmp(data, data + 1, size - 1) == 0; }

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

// Writes the blocks of some memory that are not all zero.
static bool put_memory(struct writer *w, uint64_t at, const uint8_t *data, size_t size) {
	for (size_t from = 0; from < size;) {
		size_t block = smaller(BLOCK, size - from);
		if (is_zero(data + from, block)) {
			from += block;
			continue;
		}
		size_t to = from + block;
		while (to < size && !is_zero(data + to, smaller(BLOCK, size - to)))
			to += smaller(BLOCK, size - to);
		if (!put(w, MEMORY, at + from, data + from, to - from))
			return false;
		from = to;
	}
	return true;
}

static bool put_beginning(struct writer *w, struct client *c, const struct range *list, size_t count) {
	struct head head = {.version = FORMAT};
	memcpy(head.magic, MAGIC, sizeof head.magic);
	char now[32] = "", about[256];
	time_t t = time(NULL);
	struct tm utc;
	strftime(now, sizeof now, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&t, &utc));
	int n = snprintf(about, sizeof about, "{\"taken\":\"%s\",\"arena_base\":%" PRIu64 ",\"arena_size\":%" PRIu64 "}", now, c->granted.base, c->granted.size);
	uint64_t *pairs = malloc(count > 0 ? count * 16 : 16);
	if (pairs == NULL) {
		errno = ENOMEM;
		return false;
	}
	for (size_t i = 0; i < count; i++) {
		pairs[2 * i] = list[i].at;
		pairs[2 * i + 1] = list[i].size;
	}
	bool done = fwrite(&head, sizeof head, 1, w->file) == 1 && put(w, ABOUT, 0, about, (uint64_t)n) && put(w, ALLOCATIONS, 0, pairs, count * 16);
	free(pairs);
	return done;
}

// Copies an allocation into the file.
static CUresult put_allocation(struct writer *w, struct client *c, const struct range *range, uint8_t *buffer, const char *path) {
	for (uint64_t done = 0; done < range->size;) {
		size_t size = smaller(PIECE, range->size - done);
		CUresult result = copy_out(c, 0, buffer, range->at + done, size, true);
		if (result != CUDA_SUCCESS)
			return result;
		if (!put_memory(w, range->at + done, buffer, size))
			return trouble("the checkpoint cannot be written to", path);
		done += size;
	}
	return CUDA_SUCCESS;
}

static CUresult put_all(struct writer *w, struct client *c, const char *path) {
	struct range *list;
	size_t count;
	uint8_t *buffer = malloc(PIECE);
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	if (memory_list(c, &list, &count) && buffer != NULL) {
		result = put_beginning(w, c, list, count) ? CUDA_SUCCESS : trouble("the checkpoint cannot be written to", path);
		for (size_t i = 0; i < count && result == CUDA_SUCCESS; i++)
			result = put_allocation(w, c, &list[i], buffer, path);
		if (result == CUDA_SUCCESS && (!put(w, END, w->records, NULL, 0) || fflush(w->file) != 0 || fsync(fileno(w->file)) != 0))
			result = trouble("the checkpoint cannot be written to", path);
	}
	free(buffer);
	free(list);
	return result;
}

// Renames a complete file to its final name.
static CUresult publish(const char *dir, const char *from, const char *to) {
	if (rename(from, to) != 0)
		return trouble("the checkpoint cannot be written to", to);
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		fsync(fd);
		close(fd);
	}
	return CUDA_SUCCESS;
}

static CUresult save(const char *name, struct client *c) {
	char dir[PATH_MAX], path[PATH_MAX + 256], fresh[PATH_MAX + 512];
	if (!folder(dir) || !make_folder(dir))
		return trouble("the folder of checkpoints cannot be made:", dir);
	snprintf(path, sizeof path, "%s/%s", dir, name);
	snprintf(fresh, sizeof fresh, "%s/.%s-XXXXXX", dir, name);
	int fd = mkostemp(fresh, O_CLOEXEC);
	if (fd < 0)
		return trouble("the checkpoint cannot be written to", dir);
	struct writer w = {.file = fdopen(fd, "w")};
	if (w.file == NULL) {
		close(fd);
		unlink(fresh);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	CUresult result = managed_give_all(c, false);
	if (result == CUDA_SUCCESS)
		result = put_all(&w, c, path);
	if (fclose(w.file) != 0 && result == CUDA_SUCCESS)
		result = trouble("the checkpoint cannot be written to", path);
	if (result == CUDA_SUCCESS)
		result = publish(dir, fresh, path);
	if (result != CUDA_SUCCESS)
		unlink(fresh);
	return result;
}

static CUresult finish_work(struct client *c) {
	struct wire_synchronise message = {0};
	CUresult result = CALL(c, SYNCHRONISE, synchronise, &message, NO_DATA, NULL);
	print_pending(c);
	return result;
}

EXPORT CUresult musterCheckpoint(const char *name) {
	ENTER(musterCheckpoint);
	struct target t;
	CUresult result = is_name(name) ? target_current(&t) : CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = finish_work(t.client);
	pthread_once(&table_once, make_table);
	if (result == CUDA_SUCCESS)
		result = save(name, t.client);
	return leave(result);
}

// --- reading ---------------------------------------------------------------------------

struct reader {
	FILE *file;
	const char *path;
	uint64_t rest; // bytes not read yet
	uint64_t records, end; // so far, and where the last piece of a kind ended
	uint32_t last;
	struct record record; // the present one, with its bytes
	uint8_t *data;
	size_t room;
};

static bool damaged(struct reader *r, const char *what) {
	notice("%s is no checkpoint that can be used: record %" PRIu64 ": %s", r->path, r->records, what);
	return false;
}

static bool take(struct reader *r, void *to, size_t size) {
	if (size > r->rest || (size > 0 && fread(to, size, 1, r->file) != 1))
		return damaged(r, "it breaks off");
	r->rest -= size;
	return true;
}

static bool begin(struct reader *r) {
	struct stat info;
	struct head head;
	rewind(r->file);
	if (fstat(fileno(r->file), &info) != 0)
		return damaged(r, strerror(errno));
	r->rest = (uint64_t)info.st_size;
	r->records = r->end = r->last = 0;
	if (!take(r, &head, sizeof head))
		return false;
	if (memcmp(head.magic, MAGIC, sizeof head.magic) != 0)
		return damaged(r, "it does not begin as one does");
	return head.version == FORMAT || damaged(r, "it has another version: use the Muster that wrote it");
}

// Checks a record before its bytes are read: what is wrong with it, or NULL.
static const char *nonsense(const struct reader *r) {
	const struct record *now = &r->record;
	bool single = now->kind < MEMORY;
	if (now->kind < ABOUT || now->kind > END)
		return "there is no such kind";
	if (now->size > r->rest)
		return "it breaks off";
	if ((r->records == 0 && now->kind != ABOUT) || (now->kind > ALLOCATIONS && r->last < ALLOCATIONS) || now->kind < r->last || (single && now->kind == r->last))
		return "it is not due here";
	if (now->kind == END)
		return now->size != 0 || now->at != r->records || r->rest != 0 ? "the end is not where it should be" : NULL;
	if (single)
		return now->at != 0 ? "it is at no place" : NULL;
	if (now->size == 0 || now->size > MAX_PIECE || now->at > UINT64_MAX - now->size)
		return "a piece of an impossible size";
	return now->kind == r->last && now->at < r->end ? "it begins before the end of the piece before it" : NULL;
}

// Reads the next record, and its bytes if this library needs them.
static bool next(struct reader *r) {
	if (!take(r, &r->record, sizeof r->record))
		return false;
	const char *wrong = nonsense(r);
	if (wrong != NULL)
		return damaged(r, wrong);
	if (r->record.size > r->room) {
		uint8_t *more = realloc(r->data, r->record.size);
		if (more == NULL)
			return damaged(r, strerror(ENOMEM));
		r->data = more;
		r->room = r->record.size;
	}
	if (!take(r, r->data, r->record.size))
		return false;
	if (check_of(&r->record, r->data) != r->record.check)
		return damaged(r, "it is damaged: its checksum is wrong");
	r->records++;
	r->last = r->record.kind;
	r->end = r->record.at + r->record.size;
	return true;
}

struct saved {
	struct range *list; // in order
	size_t count;
};

// The allocation that contains all of a piece, or NULL.
static const struct range *allocation_of(const struct saved *s, uint64_t at, uint64_t size) {
	size_t low = 0, high = s->count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (s->list[middle].at <= at)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == 0)
		return NULL;
	const struct range *found = &s->list[low - 1];
	uint64_t into = at - found->at;
	return into < found->size && size <= found->size - into ? found : NULL;
}

static bool read_allocations(struct reader *r, struct saved *s) {
	uint64_t end = 0;
	if (r->record.size % 16 != 0)
		return damaged(r, "the list of allocations is no list");
	s->count = r->record.size / 16;
	s->list = calloc(s->count > 0 ? s->count : 1, sizeof *s->list);
	if (s->list == NULL)
		return damaged(r, strerror(ENOMEM));
	for (size_t i = 0; i < s->count; i++) {
		struct range *range = &s->list[i];
		memcpy(&range->at, r->data + 16 * i, 8);
		memcpy(&range->size, r->data + 16 * i + 8, 8);
		if (range->at < end || range->size == 0 || range->at > UINT64_MAX - range->size)
			return damaged(r, "allocations out of order");
		end = range->at + range->size;
	}
	return true;
}

// Reads all of a file to check that it is complete, and lists its allocations.
static bool check_file(struct reader *r, struct saved *s) {
	if (!begin(r))
		return false;
	do {
		if (!next(r))
			return false;
		if (r->record.kind == ALLOCATIONS && !read_allocations(r, s))
			return false;
		if (r->record.kind == MEMORY && allocation_of(s, r->record.at, r->record.size) == NULL)
			return damaged(r, "a piece lies in no allocation");
	} while (r->record.kind != END);
	return true;
}

static void give_back(struct client *c, const struct saved *s, const bool *made, size_t count) {
	for (size_t i = 0; i < count; i++)
		if (made[i])
			memory_free(c, s->list[i].at);
}

// Makes all allocations, or none.
static CUresult claim(struct target *t, const struct saved *s) {
	bool *made = calloc(s->count > 0 ? s->count : 1, sizeof *made);
	if (made == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = CUDA_SUCCESS;
	for (size_t i = 0; i < s->count && result == CUDA_SUCCESS; i++) {
		result = memory_claim(t->client, t->context, s->list[i].at, s->list[i].size, &made[i]);
		if (result == CUDA_ERROR_INVALID_VALUE)
			notice("a checkpoint has %" PRIu64 " bytes at 0x%" PRIx64 ", which are taken or not of this device: restore it before anything else is allocated", s->list[i].size, s->list[i].at);
		if (result != CUDA_SUCCESS)
			give_back(t->client, s, made, i);
	}
	free(made);
	return result;
}

static CUresult clear(struct client *c, uint64_t from, uint64_t to) {
	if (from >= to)
		return CUDA_SUCCESS;
	struct wire_fill message = {.dst = from, .pitch = to - from, .value = 0, .width = 1, .count = to - from, .height = 1, .stream = 0};
	return POST(c, FILL, fill, &message, NO_DATA);
}

// Fills the allocations; memory that the file does not contain becomes zero.
static CUresult fill(struct reader *r, struct client *c, const struct saved *s) {
	size_t at = 0;
	uint64_t filled = s->count > 0 ? s->list[0].at : 0;
	CUresult result = CUDA_SUCCESS;
	if (!begin(r))
		return CUDA_ERROR_OPERATING_SYSTEM;
	do {
		if (!next(r))
			return CUDA_ERROR_OPERATING_SYSTEM;
		if (r->record.kind != MEMORY && r->record.kind != END)
			continue;
		uint64_t from = r->record.kind == MEMORY ? r->record.at : UINT64_MAX;
		while (at < s->count && s->list[at].at + s->list[at].size <= from && result == CUDA_SUCCESS) {
			result = clear(c, filled, s->list[at].at + s->list[at].size);
			if (++at < s->count)
				filled = s->list[at].at;
		}
		if (r->record.kind != MEMORY || result != CUDA_SUCCESS)
			continue;
		if (allocation_of(s, from, r->record.size) == NULL) // the file has changed
			return CUDA_ERROR_OPERATING_SYSTEM;
		result = clear(c, filled, from);
		if (result == CUDA_SUCCESS)
			result = copy_in(c, 0, from, r->data, r->record.size, true);
		filled = from + r->record.size;
	} while (r->record.kind != END && result == CUDA_SUCCESS);
	return result;
}

static CUresult load(struct reader *r, struct target *t) {
	struct saved s = {0};
	CUresult result = CUDA_ERROR_OPERATING_SYSTEM;
	if (check_file(r, &s))
		result = claim(t, &s);
	if (result == CUDA_SUCCESS)
		result = managed_give_all(t->client, true);
	if (result == CUDA_SUCCESS)
		result = fill(r, t->client, &s);
	free(s.list);
	free(r->data);
	return result == CUDA_SUCCESS ? finish_work(t->client) : result;
}

EXPORT CUresult musterRestore(const char *name) {
	ENTER(musterRestore);
	struct target t;
	CUresult result = is_name(name) ? target_current(&t) : CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		result = finish_work(t.client);
	if (result != CUDA_SUCCESS)
		return leave(result);
	char dir[PATH_MAX], path[PATH_MAX + 256];
	if (!folder(dir))
		return trouble("there is no folder of checkpoints:", "HOME is not set");
	snprintf(path, sizeof path, "%s/%s", dir, name);
	pthread_once(&table_once, make_table);
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // the path may be a pipe, whose opening would block
	if (fd < 0)
		return errno == ENOENT ? CUDA_ERROR_FILE_NOT_FOUND : trouble("the checkpoint cannot be read:", path);
	struct reader r = {.file = fdopen(fd, "r"), .path = path};
	if (r.file == NULL) {
		close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	result = load(&r, &t);
	fclose(r.file);
	return leave(result);
}
