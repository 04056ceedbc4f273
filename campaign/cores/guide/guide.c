// Plays guides of the library in C, as it is told line by line. "new ITEMS WORKERS" begins with a guide;
// "next WORKER SECONDS" is answered with the worker's piece, or with "none"; "lose WORKER" and "done" are
// answered with "ok", or with what is wrong.
#include "c/balance.c"

#include <stdarg.h>
#include <stdio.h>

static char wrong[512];

int ivm_fail(int code, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(wrong, sizeof wrong, format, args);
	va_end(args);
	return code;
}

int main(void)
{
	char what[8];
	ivm_guide *g = NULL;
	while (scanf("%7s", what) == 1) {
		long items, from, to;
		int worker;
		double seconds;
		if (strcmp(what, "new") == 0 && scanf("%ld %d", &items, &worker) == 2) {
			ivmGuideFree(g);
			g = ivmGuideNew(items, worker);
			puts(g ? "ok" : "no memory");
		} else if (strcmp(what, "next") == 0 && scanf("%d %lf", &worker, &seconds) == 2) {
			if (ivmGuideNext(g, worker, seconds, &from, &to))
				printf("%ld %ld\n", from, to);
			else
				puts("none");
		} else if (strcmp(what, "lose") == 0 && scanf("%d", &worker) == 1) {
			ivmGuideLose(g, worker);
			puts("ok");
		} else if (strcmp(what, "done") == 0) {
			puts(ivmGuideDone(g) == IVM_OK ? "ok" : wrong);
		} else {
			return 2;
		}
		fflush(stdout);
	}
	ivmGuideFree(g);
	return 0;
}
