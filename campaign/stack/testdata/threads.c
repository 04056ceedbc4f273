// Eight threads that use the GPU at the same time, in every way there is.
#include "kernels.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>
#include <sys/wait.h>

enum { THREADS = 8, WORDS = 5000 };

typedef CUresult launch_function(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **);
typedef CUresult synchronise_function(CUstream);

static CUcontext context;
static CUfunction add;
static launch_function *launch_per_thread;
static synchronise_function *synchronise_per_thread;
static _Atomic int finished;
static int rounds = 4;

static void start(void) {
	CUmodule module;
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&add, module, "add"));
	CHECK(cuGetProcAddress("cuLaunchKernel", (void **)&launch_per_thread, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
	CHECK(cuGetProcAddress("cuStreamSynchronize", (void **)&synchronise_per_thread, 12000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, NULL));
	NEED(launch_per_thread != cuLaunchKernel);
}

static void count_call(void *counter) { atomic_fetch_add((_Atomic int *)counter, 1); }

// One round in streams and events of its own, with pinned memory.
static void streams_round(unsigned *words, CUdeviceptr p) {
	CUstream streams[2];
	CUevent began, half, ended;
	unsigned n = WORDS, one = 1, two = 2;
	void *first[] = {&p, &n, &one}, *second[] = {&p, &n, &two};
	_Atomic int calls = 0;
	for (int i = 0; i < 2; i++)
		CHECK(cuStreamCreate(&streams[i], i == 0 ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&began, CU_EVENT_DEFAULT));
	CHECK(cuEventCreate(&half, CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventCreate(&ended, CU_EVENT_DEFAULT));
	for (unsigned i = 0; i < n; i++)
		words[i] = i;
	CHECK(cuEventRecord(began, streams[0]));
	CHECK(cuMemcpyHtoDAsync(p, words, 4ul * n, streams[0]));
	CHECK(cuLaunchKernel(add, (n + 63) / 64, 1, 1, 64, 1, 1, 0, streams[0], first, NULL));
	CHECK(cuLaunchHostFunc(streams[0], count_call, &calls));
	CHECK(cuEventRecord(half, streams[0]));
	CHECK(cuStreamWaitEvent(streams[1], half, 0));
	CHECK(cuLaunchKernel(add, (n + 63) / 64, 1, 1, 64, 1, 1, 0, streams[1], second, NULL));
	CHECK(cuMemcpyDtoHAsync(words, p, 4ul * n, streams[1]));
	CHECK(cuEventRecord(ended, streams[1]));
	CUresult result;
	while ((result = cuEventQuery(ended)) == CUDA_ERROR_NOT_READY)
		;
	CHECK(result);
	float milliseconds = -1;
	CHECK(cuEventElapsedTime(&milliseconds, began, ended));
	NEED(milliseconds >= 0 && calls == 1);
	for (unsigned i = 0; i < n; i++)
		NEED(words[i] == i + 3);
	for (int i = 0; i < 2; i++)
		CHECK(cuStreamDestroy(streams[i]));
	CHECK(cuEventDestroy(began));
	CHECK(cuEventDestroy(half));
	CHECK(cuEventDestroy(ended));
}

// One in the thread's default stream, through the entry points for that.
static void per_thread_round(unsigned *words, CUdeviceptr p, unsigned value) {
	unsigned n = WORDS;
	void *args[] = {&p, &n, &value};
	CHECK(cuMemsetD32(p, 5, n));
	CHECK(launch_per_thread(add, (n + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, args, NULL));
	CHECK(launch_per_thread(add, (n + 127) / 128, 1, 1, 128, 1, 1, 0, NULL, args, NULL));
	CHECK(synchronise_per_thread(NULL));
	CHECK(cuMemcpyDtoH(words, p, 4ul * n));
	for (unsigned i = 0; i < n; i++)
		NEED(words[i] == 5 + 2 * value);
}

static void *thread(void *number) {
	unsigned *pinned;
	CUdeviceptr p;
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemHostAlloc((void **)&pinned, 4 * WORDS, 0));
	CHECK(cuMemAlloc(&p, 4 * WORDS));
	for (int i = 0; i < rounds; i++) {
		streams_round(pinned, p);
		per_thread_round(pinned, p, (unsigned)(size_t)number);
	}
	CHECK(cuMemFree(p));
	CHECK(cuMemFreeHost(pinned));
	atomic_fetch_add(&finished, 1);
	return NULL;
}

// A child begins anew; what its parent had is not its own.
static void in_child(CUfunction parents, CUcontext was) {
	CUcontext now;
	unsigned n = 0;
	void *args[] = {&n, &n, &n};
	NEED(cuCtxGetCurrent(&now) == CUDA_ERROR_NOT_INITIALIZED);
	NEED(cuLaunchKernel(parents, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL) == CUDA_ERROR_NOT_INITIALIZED);
	CHECK(cuInit(0));
	NEED(cuCtxSetCurrent(was) != CUDA_SUCCESS);
	start();
	thread((void *)9);
	exit(0);
}

static void fork_round(void) {
	pid_t child = fork();
	NEED(child >= 0);
	if (child == 0)
		in_child(add, context);
	int status;
	NEED(waitpid(child, &status, 0) == child);
	if (status != 0) {
		fprintf(stderr, "the child ended with %#x\n", (unsigned)status);
		exit(1);
	}
}

// Waits for the device until that fails, and says so.
static void *until_failure(void *unused) {
	CHECK(cuCtxSetCurrent(context));
	while (cuCtxSynchronize() == CUDA_SUCCESS)
		usleep(1000);
	puts("failed");
	fflush(stdout);
	return unused;
}

static void fail_in_threads(bool by_fault) {
	pthread_t other;
	NEED(pthread_create(&other, NULL, until_failure, NULL) == 0);
	if (by_fault) {
		CUdeviceptr nowhere = 16;
		unsigned n = 1, value = 1;
		void *args[] = {&nowhere, &n, &value};
		CHECK(cuLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, NULL, args, NULL));
	}
	puts("waiting");
	fflush(stdout);
	until_failure(NULL);
	NEED(pthread_join(other, NULL) == 0);
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "join";
	bool leaves = strcmp(what, "leave") == 0;
	pthread_t threads[THREADS];
	if (leaves)
		rounds = 1 << 30;
	start();
	if (strcmp(what, "ended") == 0 || strcmp(what, "fault") == 0) {
		fail_in_threads(strcmp(what, "fault") == 0);
		return 0;
	}
	for (size_t i = 0; i < THREADS; i++)
		NEED(pthread_create(&threads[i], NULL, thread, (void *)(i + 1)) == 0);
	if (leaves) { // while all others are in calls
		for (int i = 0; i < 3; i++) {
			unsigned *pinned = malloc(4 * WORDS);
			CUdeviceptr p;
			CHECK(cuMemAlloc(&p, 4 * WORDS));
			per_thread_round(pinned, p, 3);
			free(pinned);
		}
		puts("right");
		exit(0);
	}
	if (strcmp(what, "fork") == 0)
		fork_round();
	for (size_t i = 0; i < THREADS; i++)
		NEED(pthread_join(threads[i], NULL) == 0);
	NEED(finished == THREADS);
	puts("right");
	return 0;
}
