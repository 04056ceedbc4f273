// A program of a campaign's jobs: it fills memory of all devices that it sees, reads it
// again and looks whether it is right, as many rounds as it is told. Exit status 3: a call
// failed before it had all its devices; 5: a call failed later; 4: the memory was wrong, which nothing
// excuses.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { DEVICES = 16, WORDS = 4096 };

typedef int (*function)(void *, unsigned long, unsigned long);

static void *library;
static int failed = 3;

static function find(const char *name) {
	void *f = dlsym(library, name);
	if (f == NULL) {
		fprintf(stderr, "gpu: %s\n", dlerror());
		exit(3);
	}
	return (function)f;
}

static void need(const char *what, int device, int result) {
	if (result == 0)
		return;
	fprintf(stderr, "gpu: %s on device %d: error %d\n", what, device, result);
	exit(failed);
}

int main(int count, char **words) {
	int rounds = count > 1 ? atoi(words[1]) : 10, devices = 0;
	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (library == NULL) {
		fprintf(stderr, "gpu: %s\n", dlerror());
		return 3;
	}
	int (*init)(unsigned) = (int (*)(unsigned))find("cuInit");
	int (*devicecount)(int *) = (int (*)(int *))find("cuDeviceGetCount");
	int (*create)(void **, unsigned, int) = (int (*)(void **, unsigned, int))find("cuCtxCreate_v2");
	int (*current)(void *) = (int (*)(void *))find("cuCtxSetCurrent");
	int (*alloc)(unsigned long long *, size_t) = (int (*)(unsigned long long *, size_t))find("cuMemAlloc_v2");
	int (*fill)(unsigned long long, unsigned, size_t) = (int (*)(unsigned long long, unsigned, size_t))find("cuMemsetD32_v2");
	int (*copy)(void *, unsigned long long, size_t) = (int (*)(void *, unsigned long long, size_t))find("cuMemcpyDtoH_v2");
	void *contexts[DEVICES];
	unsigned long long memory[DEVICES];
	static unsigned seen[WORDS];
	need("cuInit", 0, init(0));
	need("cuDeviceGetCount", 0, devicecount(&devices));
	if (devices < 1 || devices > DEVICES)
		need("cuDeviceGetCount shows too few, or too many", devices, 1);
	for (int d = 0; d < devices; d++) {
		need("cuCtxCreate", d, create(&contexts[d], 0, d));
		need("cuMemAlloc", d, alloc(&memory[d], sizeof seen));
	}
	failed = 5;
	for (int round = 1; round <= rounds; round++)
		for (int d = 0; d < devices; d++) {
			unsigned value = (unsigned)(round * 31 + d);
			need("cuCtxSetCurrent", d, current(contexts[d]));
			need("cuMemsetD32", d, fill(memory[d], value, WORDS));
			usleep(10000);
			need("cuMemcpyDtoH", d, copy(seen, memory[d], sizeof seen));
			for (int i = 0; i < WORDS; i++)
				if (seen[i] != value) {
					fprintf(stderr, "gpu: device %d, round %d: word %d is %u, not %u\n", d, round, i, seen[i], value);
					return 4;
				}
		}
	return 0;
}
