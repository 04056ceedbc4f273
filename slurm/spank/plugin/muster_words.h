// What the driver says to the plug-in in the comment of a job: package slurm/words in C, as far as
// the plug-in needs it. Both are tested with slurm/words/testdata.
#ifndef MUSTER_WORDS_H
#define MUSTER_WORDS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// How much of a comment is read, as in slurm/words.
#define WORDS_MAX_COMMENT (64 << 10)
#define WORDS_MAX_GPUS (1 << 20)

// words_comment is the content of a comment. Its strings point into copy, which the caller must
// free.
struct words_comment {
	char *copy;
	int request;           // there is a muster:req
	long gpus;             // how many GPUs the request asks for
	long as;               // the alternative that was chosen, from 1; 0 for none
	const char *mapping;   // what the programs find in MUSTER_MAPPING; "" for nothing
	const char *why;       // why the job waits, or why it got what it got; "" if no reason was written
	int answer;            // there is a muster:got
	uint64_t start, job;   // which start of which job the answer is for
	const char *devices;   // NODE:NUMBER,...; "" for none
	const char *grant;     // a path; "" for none
};

static int words_number(const char *s, uint64_t most, uint64_t *value)
{
	uint64_t n = 0;
	if (!*s || (s[0] == '0' && s[1]))
		return -1;
	for (; *s; s++) {
		if (*s < '0' || *s > '9' || n > (UINT64_MAX - 9) / 10)
			return -1;
		n = n * 10 + (uint64_t)(*s - '0');
	}
	*value = n;
	return n > most ? -1 : 0;
}

static int words_hex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

// words_unescape turns %XX back into bytes, in place.
static int words_unescape(char *s)
{
	char *to = s;
	for (; *s; s++) {
		if (*s != '%') {
			*to++ = *s;
			continue;
		}
		int high = words_hex(s[1]), low = high < 0 ? -1 : words_hex(s[2]);
		if (low < 0 || !(high | low))
			return -1;
		*to++ = (char)(high << 4 | low);
		s += 2;
	}
	*to = 0;
	return 0;
}

// words_next takes the next word off a text; "" at its end.
static char *words_next(char **rest)
{
	char *word = *rest, *space = strchr(word, ' ');
	if (space) {
		*space = 0;
		*rest = space + 1;
	} else {
		*rest = word + strlen(word);
	}
	return word;
}

// words_value takes the next word, which must be KEY=VALUE with this key.
static char *words_value(char **rest, const char *key)
{
	char *word = words_next(rest);
	size_t n = strlen(key);
	return !strncmp(word, key, n) && word[n] == '=' && word[n + 1] ? word + n + 1 : NULL;
}

// words_list checks a list with commas; if numbers is set, each item must end with :NUMBER.
static int words_list(const char *list, int numbers)
{
	for (;;) {
		size_t n = strcspn(list, ",");
		char item[300];
		if (!n || n >= sizeof item)
			return -1;
		memcpy(item, list, n);
		item[n] = 0;
		char *colon = strrchr(item, ':');
		uint64_t value;
		if (numbers && (!colon || colon == item || words_number(colon + 1, 1 << 16, &value)))
			return -1;
		if (!list[n])
			return 0;
		list += n + 1;
	}
}

static int words_request(struct words_comment *c, char *word)
{
	uint64_t n;
	size_t length = strlen(word);
	if (!strcmp(word, "hold=user") || !strcmp(word, "paused=yes") || !strcmp(word, "mode=excl") || !strcmp(word, "mode=shar"))
		return 0;
	if (!strncmp(word, "as=", 3)) {
		if (words_number(word + 3, WORDS_MAX_GPUS, &n))
			return -1;
		c->as = (long)n;
		return 0;
	}
	if (!strncmp(word, "rgpu=", 5)) {
		if (words_number(word + 5, WORDS_MAX_GPUS, &n))
			return -1;
		c->gpus = (long)n;
		return 0;
	}
	if (!strncmp(word, "mem=", 4) && word[length - 1] == 'M') {
		word[length - 1] = 0;
		return words_number(word + 4, (uint64_t)1 << 40, &n);
	}
	if (!strcmp(word, "reach=device") || !strcmp(word, "reach=node") || !strcmp(word, "reach=cluster") || !strcmp(word, "beyond=all"))
		return 0;
	if (!strncmp(word, "beyond=", 7) && word[length - 1] == 'M') {
		word[length - 1] = 0;
		return words_number(word + 7, ((uint64_t)1 << 40) - 1, &n);
	}
	if (!strncmp(word, "map=", 4)) {
		c->mapping = word + 4;
		return !word[4] ? -1 : words_unescape(word + 4);
	}
	if (!strncmp(word, "was=", 4)) // the nodes that the user named
		return !word[4] ? -1 : words_unescape(word + 4);
	return strncmp(word, "or=", 3) || !word[3] ? -1 : words_unescape(word + 3);
}

static int words_answer(struct words_comment *c, char *rest)
{
	if (words_number(words_next(&rest), 1 << 30, &c->start) || words_number(words_next(&rest), (uint64_t)1 << 62, &c->job))
		return -1;
	char *nodes = words_value(&rest, "nodes"), *devices = nodes ? words_value(&rest, "rgpu") : NULL;
	char *grant = devices ? words_value(&rest, "grant") : NULL;
	if (!grant || words_list(nodes, 0) || (strcmp(devices, "-") && words_list(devices, 1)) || strncmp(rest, "why=", 4))
		return -1;
	c->devices = strcmp(devices, "-") ? devices : "";
	c->grant = "";
	if (strcmp(grant, "-")) {
		if (words_unescape(grant))
			return -1;
		c->grant = grant;
	}
	c->why = rest + 4;
	c->answer = 1;
	return 0;
}

// words_read parses a comment. It returns 0, or -1 if the comment has words of Muster that are
// wrong. The caller must free c->copy in either case.
static int words_read(const char *comment, struct words_comment *c)
{
	static const char req[] = "muster:req";
	memset(c, 0, sizeof *c);
	c->why = c->mapping = "";
	if (!comment || strlen(comment) > WORDS_MAX_COMMENT)
		return comment ? -1 : 0;
	const char *at = comment;
	for (; (at = strstr(at, req)); at += sizeof req - 1)
		if ((at == comment || at[-1] == ' ') && (!at[sizeof req - 1] || at[sizeof req - 1] == ' '))
			break;
	if (!at)
		return 0;
	if (!(c->copy = strdup(at)))
		return -1;
	char *rest = c->copy;
	words_next(&rest);
	c->request = 1;
	while (*rest) {
		char *word = words_next(&rest);
		if (!strcmp(word, "muster:got"))
			return words_answer(c, rest);
		if (!strcmp(word, "muster:wait")) {
			c->why = rest + 4;
			return strncmp(rest, "why=", 4) ? -1 : 0;
		}
		if (words_request(c, word))
			return -1;
	}
	return 0;
}

#endif
