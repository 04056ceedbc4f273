// A program that uses all devices that it sees, and does what it reads:
//
//   see            each device: its name, its memory, its number on the PCI bus
//   use D          a context on device D, 1000 words there, all 0
//   add D V        adds V to each word of device D, with a kernel
//   show D         says what they all are
//   copy A B       the words of device A become those of device B
//   take D BYTES   allocates more on device D
//   drop D         frees that
//   spin D         adds 1 again and again, a kernel each, until it is told something else,
//                  and says how often
//   time D N       says what N launches on device D take, and copies
#include "kernels.h"

#include <poll.h>
#include <time.h>

enum { DEVICES = 16, WORDS = 1000 };

static struct {
	CUcontext context;
	CUfunction add;
	CUdeviceptr words, more;
} on[DEVICES];

static void see(void) {
	int count;
	CHECK(cuDeviceGetCount(&count));
	printf("devices %d", count);
	for (int i = 0; i < count; i++) {
		char name[100];
		size_t memory;
		int bus;
		CHECK(cuDeviceGetName(name, sizeof name, i));
		CHECK(cuDeviceTotalMem(&memory, i));
		CHECK(cuDeviceGetAttribute(&bus, CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, i));
		printf(" %s:%zuMiB:%d", name, memory >> 20, bus);
	}
	putchar('\n');
}

static CUresult use(int d) {
	CUmodule module;
	CUresult result = cuCtxCreate(&on[d].context, 0, d);
	if (result == CUDA_SUCCESS)
		result = cuModuleLoadData(&module, image);
	if (result == CUDA_SUCCESS)
		result = cuModuleGetFunction(&on[d].add, module, "add");
	if (result == CUDA_SUCCESS)
		result = cuMemAlloc(&on[d].words, 4 * WORDS);
	if (result == CUDA_SUCCESS)
		result = cuMemsetD32(on[d].words, 0, WORDS);
	return result;
}

static CUresult add(int d, unsigned v) {
	unsigned n = WORDS;
	void *args[] = {&on[d].words, &n, &v};
	return cuLaunchKernel(on[d].add, (n + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, args, NULL);
}

static CUresult show(int d) {
	unsigned copy[WORDS];
	CUresult result = cuMemcpyDtoH(copy, on[d].words, sizeof copy);
	for (int i = 1; i < WORDS && result == CUDA_SUCCESS; i++)
		NEED(copy[i] == copy[0]);
	if (result == CUDA_SUCCESS)
		printf("value %u ", copy[0]);
	return result;
}

static CUresult spin(int d) {
	CUresult result = CUDA_SUCCESS;
	struct pollfd in = {.fd = 0, .events = POLLIN};
	unsigned n = 0;
	while (result == CUDA_SUCCESS && (n % 100 != 0 || poll(&in, 1, 0) == 0)) {
		result = add(d, 1);
		if (++n % 10 == 0 && result == CUDA_SUCCESS)
			result = cuCtxSynchronize();
	}
	printf("times %u ", n);
	return result;
}

static double seconds(void) {
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* What a launch with its synchronisation takes, a launch alone, and copies of 16 MiB in and out. */
static CUresult took(int d, int times) {
	enum { COPY = 16 << 20, COPIES = 10 };
	void *data = calloc(1, COPY);
	CUdeviceptr memory;
	CUresult result = cuMemAlloc(&memory, COPY);
	if (result == CUDA_SUCCESS)
		result = add(d, 1);
	double start = seconds();
	for (int i = 0; i < times && result == CUDA_SUCCESS; i++)
		if ((result = add(d, 1)) == CUDA_SUCCESS)
			result = cuCtxSynchronize();
	double synchronised = seconds();
	for (int i = 0; i < times && result == CUDA_SUCCESS; i++)
		result = add(d, 1);
	if (result == CUDA_SUCCESS)
		result = cuCtxSynchronize();
	double launched = seconds();
	for (int i = 0; i < COPIES && result == CUDA_SUCCESS; i++)
		result = cuMemcpyHtoD(memory, data, COPY);
	if (result == CUDA_SUCCESS)
		result = cuCtxSynchronize();
	double in = seconds();
	for (int i = 0; i < COPIES && result == CUDA_SUCCESS; i++)
		result = cuMemcpyDtoH(data, memory, COPY);
	double out = seconds();
	printf("took %.0f us launch and synchronise, %.0f us launch, %.0f MB/s in, %.0f MB/s out ", (synchronised - start) / times * 1e6,
	       (launched - synchronised) / times * 1e6, COPIES * COPY / 1e6 / (in - launched), COPIES * COPY / 1e6 / (out - in));
	free(data);
	return result;
}

int main(void) {
	char what[20];
	CUresult result = cuInit(0);
	printf("init %d\n", result);
	fflush(stdout);
	while (result == CUDA_SUCCESS && scanf("%19s", what) == 1) {
		int d = 0, other = 0;
		long n = 0;
		CUresult got = CUDA_SUCCESS;
		if (strcmp(what, "see") != 0) {
			NEED(scanf("%d", &d) == 1 && d >= 0 && d < DEVICES);
			if (on[d].context != NULL)
				CHECK(cuCtxSetCurrent(on[d].context));
		}
		if (strcmp(what, "see") == 0) {
			see();
			fflush(stdout);
			continue;
		} else if (strcmp(what, "use") == 0) {
			got = use(d);
		} else if (strcmp(what, "add") == 0) {
			NEED(scanf("%ld", &n) == 1);
			got = add(d, (unsigned)n);
		} else if (strcmp(what, "show") == 0) {
			got = show(d);
		} else if (strcmp(what, "copy") == 0) {
			NEED(scanf("%d", &other) == 1 && other >= 0 && other < DEVICES);
			got = cuMemcpyPeer(on[other].words, on[other].context, on[d].words, on[d].context, 4 * WORDS);
		} else if (strcmp(what, "take") == 0) {
			NEED(scanf("%ld", &n) == 1);
			got = cuMemAlloc(&on[d].more, (size_t)n);
		} else if (strcmp(what, "drop") == 0) {
			got = cuMemFree(on[d].more);
		} else if (strcmp(what, "time") == 0) {
			NEED(scanf("%ld", &n) == 1);
			got = took(d, (int)n);
		} else if (strcmp(what, "spin") == 0) {
			printf("spinning %d\n", d);
			fflush(stdout);
			got = spin(d);
		} else {
			return 2;
		}
		printf("%s %d: %d\n", what, d, got);
		fflush(stdout);
	}
	return 0;
}
