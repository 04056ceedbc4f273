// PTX whose kernels set conditions of graphs. Layer: calls. graph_condition.c says what conditions are.
#include "calls.h"

#include <stdlib.h>

static const char set_conditional[] = "cudaGraphSetConditional";

// Finds the declaration of cudaGraphSetConditional in PTX text; NULL if there is none. *end gets the
// position behind its semicolon.
static const char *declaration(const char *text, size_t size, const char **end) {
	const char *at = text, *name;
	while ((name = memmem(at, size - (size_t)(at - text), set_conditional, sizeof set_conditional - 1)) != NULL) {
		const char *before = name;
		while (before > text && (before[-1] == ' ' || before[-1] == '\t' || before[-1] == '\n' || before[-1] == '\r'))
			before--;
		static const char words[] = ".extern .func";
		const char *semicolon = memchr(name, ';', size - (size_t)(name - text));
		if (before - text >= (long)(sizeof words - 1) && memcmp(before - (sizeof words - 1), words, sizeof words - 1) == 0 && semicolon != NULL) {
			*end = semicolon + 1;
			return before - (sizeof words - 1);
		}
		at = name + sizeof set_conditional - 1;
	}
	return NULL;
}

bool condition_defines(const void *image, size_t size, char **text, size_t *length) {
	static const char definition[] =
		".func cudaGraphSetConditional(.param .b64 muster_handle, .param .b32 muster_value)\n{\n\t.reg .b64 %muster_h;\n\t.reg .b32 %muster_v;\n"
		"\tld.param.b64 %muster_h, [muster_handle];\n\tld.param.b32 %muster_v, [muster_value];\n\tst.volatile.global.b32 [%muster_h], %muster_v;\n\tret;\n}\n";
	const char *from = image, *end;
	if (size < 8 || memchr(from, 0, size < 64 ? size - 1 : 64) != NULL) // no text
		return false;
	const char *begin = declaration(from, size, &end);
	if (begin == NULL)
		return false;
	size_t before = (size_t)(begin - from), after = size - (size_t)(end - from);
	*length = before + sizeof definition - 1 + after;
	*text = malloc(*length + 1);
	if (*text == NULL)
		return false;
	memcpy(*text, from, before);
	memcpy(*text + before, definition, sizeof definition - 1);
	memcpy(*text + before + sizeof definition - 1, end, after);
	(*text)[*length] = 0;
	return true;
}
