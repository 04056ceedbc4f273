// Two programs that share memory and events: see main. The second is a child of the first,
// made before either uses a device.
#include "kernels.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/wait.h>

static CUcontext context;
static CUfunction add;
static CUstream stream;
static int other; // a socket, to the other program
static pid_t child;

static void start(void) {
	CUdevice device;
	CUmodule module;
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&add, module, "add"));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static void add_to(CUdeviceptr p, unsigned n, unsigned v) { CHECK(cuLaunchKernel(add, (n + 127) / 128, 1, 1, 128, 1, 1, 0, stream, (void *[]){&p, &n, &v}, NULL)); }

static void give(const void *data, size_t size) { NEED(write(other, data, size) == (ssize_t)size); }

static void take(void *data, size_t size) {
	for (size_t got = 0; got < size;) {
		ssize_t n = read(other, (char *)data + got, size - got);
		if (n <= 0)
			exit(3); // the other program has failed, and said so
		got += (size_t)n;
	}
}

static void turn(void) { give("x", 1); }
static void await_turn(void) {
	char byte;
	take(&byte, 1);
}

// All of n words of a memory are one value.
static void holds(CUdeviceptr p, unsigned n, uint32_t value, int line) {
	uint32_t *words = malloc(4 * n);
	CHECK(cuMemcpyDtoHAsync(words, p, 4 * n, stream));
	CHECK(cuStreamSynchronize(stream));
	for (unsigned i = 0; i < n; i++)
		if (words[i] != value) {
			fprintf(stderr, "%s, line %d: word %u is %u, not %u\n", child != 0 ? "first" : "second", line, i, words[i], value);
			exit(1);
		}
	free(words);
}
#define HOLDS(p, n, value) holds(p, n, value, __LINE__)

enum { LARGE = 1 << 20, SMALL = 250 }; // words

// --- memory -----------------------------------------------------------------------------

static void first_memory(void) {
	CUdeviceptr large, small[3];
	CUipcMemHandle handles[2], again;
	unsigned capable = 0;
	CHECK(cuMemAlloc(&large, 4 * LARGE));
	for (int i = 0; i < 3; i++) {
		CHECK(cuMemAlloc(&small[i], 4 * SMALL));
		CHECK(cuMemsetD32(small[i], (unsigned)i + 1, SMALL));
	}
	CHECK(cuMemsetD32(large, 7, LARGE));
	add_to(large, LARGE, 1); // it is on the device
	CHECK(cuPointerGetAttribute(&capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, large));
	NEED(capable == 1);
	CHECK(cuIpcGetMemHandle(&handles[0], large + 4096));
	CHECK(cuIpcGetMemHandle(&again, large));
	NEED(memcmp(&again, &handles[0], sizeof again) == 0);
	CHECK(cuIpcGetMemHandle(&handles[1], small[1]));
	NEED(cuIpcGetMemHandle(NULL, large) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuIpcGetMemHandle(&again, 4096) == CUDA_ERROR_INVALID_VALUE);
	CUdeviceptr own;
	NEED(cuIpcOpenMemHandle(&own, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_ERROR_INVALID_CONTEXT);
	HOLDS(large, LARGE, 8);
	give(handles, sizeof handles);
	await_turn();
	HOLDS(large, LARGE, 10);
	HOLDS(small[0], SMALL, 1);
	HOLDS(small[1], SMALL, 102);
	HOLDS(small[2], SMALL, 3);
	for (int round = 0; round < 3; round++) {
		add_to(large, LARGE, 5);
		add_to(small[1], SMALL, 1);
		CHECK(cuStreamSynchronize(stream));
		turn();
		await_turn();
	}
	HOLDS(large, LARGE, 10 + 3 * 5);
	CUdeviceptr more; // in none of the shared chunks
	CHECK(cuMemAlloc(&more, 4 * SMALL));
	CHECK(cuMemsetD32(more, 9, SMALL));
	CHECK(cuMemFree(small[0]));
	CHECK(cuMemFree(small[2]));
	HOLDS(small[1], SMALL, 105);
	CHECK(cuMemFree(small[1]));
	CHECK(cuMemFree(large));
	HOLDS(more, SMALL, 9);
	for (int i = 0; i < 3; i++) { // the addresses are ordinary ones again
		CHECK(cuMemAlloc(&small[i], 4 * SMALL));
		CHECK(cuMemsetD32(small[i], 4, SMALL));
		add_to(small[i], SMALL, 1);
		HOLDS(small[i], SMALL, 5);
	}
	turn();
	await_turn();
}

static void second_memory(void) {
	CUipcMemHandle handles[2], wrong;
	CUdeviceptr large, small, again;
	take(handles, sizeof handles);
	CHECK(cuIpcOpenMemHandle(&large, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CHECK(cuIpcOpenMemHandle(&small, handles[1], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CHECK(cuIpcOpenMemHandle(&again, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	NEED(again == large);
	CHECK(cuIpcCloseMemHandle(again));
	NEED(cuIpcOpenMemHandle(&again, handles[0], 0) == CUDA_ERROR_INVALID_VALUE);
	wrong = handles[0];
	wrong.reserved[20] ^= 1; // another secret
	NEED(cuIpcOpenMemHandle(&again, wrong, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_ERROR_INVALID_VALUE);
	wrong = handles[0];
	wrong.reserved[0] ^= 1; // another program
	NEED(cuIpcOpenMemHandle(&again, wrong, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_ERROR_INVALID_VALUE);
	memset(&wrong, 5, sizeof wrong);
	NEED(cuIpcOpenMemHandle(&again, wrong, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemFree(large) == CUDA_ERROR_INVALID_VALUE);
	HOLDS(large, LARGE, 8);
	HOLDS(small, SMALL, 2);
	add_to(large, LARGE, 2);
	CHECK(cuMemsetD32Async(small, 102, SMALL, stream));
	CHECK(cuStreamSynchronize(stream));
	turn();
	for (int round = 1; round <= 3; round++) {
		await_turn();
		HOLDS(large, LARGE, 10 + 5 * (unsigned)round);
		HOLDS(small, SMALL, 102 + (unsigned)round);
		turn();
	}
	await_turn(); // the other has freed it; here it is still there
	HOLDS(large, LARGE, 25);
	CHECK(cuIpcCloseMemHandle(large));
	CHECK(cuIpcCloseMemHandle(small));
	NEED(cuIpcCloseMemHandle(large) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuIpcOpenMemHandle(&again, handles[0], CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_ERROR_INVALID_VALUE);
	turn();
}

// --- events -------------------------------------------------------------------------------

// A function that the stream calls: it returns when the other program says so.
static void hold(void *unused) {
	(void)unused;
	await_turn();
}

static void first_events(void) {
	CUdeviceptr p;
	CUevent event, plain;
	CUipcMemHandle memory;
	CUipcEventHandle handle;
	CHECK(cuMemAlloc(&p, 4 * LARGE));
	CHECK(cuMemsetD32(p, 0, LARGE));
	NEED(cuEventCreate(&event, CU_EVENT_INTERPROCESS) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	CHECK(cuEventCreate(&plain, CU_EVENT_DISABLE_TIMING));
	NEED(cuIpcGetEventHandle(&handle, plain) == CUDA_ERROR_INVALID_HANDLE);
	CHECK(cuIpcGetEventHandle(&handle, event));
	CHECK(cuIpcGetMemHandle(&memory, p));
	CHECK(cuEventQuery(event));
	give(&memory, sizeof memory);
	give(&handle, sizeof handle);
	await_turn(); // both have asked about an event that was never recorded
	for (unsigned round = 1; round <= 3; round++) {
		CHECK(cuLaunchHostFunc(stream, hold, NULL));
		add_to(p, LARGE, 1);
		CHECK(cuEventRecord(event, stream));
		NEED(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
		turn();
		CHECK(cuEventSynchronize(event));
		CUresult then = cuEventQuery(event); // the other may have recorded it anew
		NEED(then == CUDA_SUCCESS || then == CUDA_ERROR_NOT_READY);
		await_turn();
		CHECK(cuStreamWaitEvent(stream, event, 0)); // which the other has recorded now
		CHECK(cuEventSynchronize(event));
		HOLDS(p, LARGE, 11 * round);
		turn();
	}
	await_turn();
}

static void second_events(void) {
	CUdeviceptr p;
	CUevent event, none;
	CUipcMemHandle memory;
	CUipcEventHandle handle, wrong;
	take(&memory, sizeof memory);
	take(&handle, sizeof handle);
	CHECK(cuIpcOpenMemHandle(&p, memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CHECK(cuIpcOpenEventHandle(&event, handle));
	wrong = handle;
	wrong.reserved[9] ^= 1;
	NEED(cuIpcOpenEventHandle(&none, wrong) == CUDA_ERROR_MAP_FAILED);
	memset(&wrong, 0, sizeof wrong);
	NEED(cuIpcOpenEventHandle(&none, wrong) == CUDA_ERROR_MAP_FAILED);
	CHECK(cuEventQuery(event));
	CHECK(cuEventSynchronize(event));
	turn();
	for (unsigned round = 1; round <= 3; round++) {
		await_turn();
		NEED(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
		turn(); // now the other's stream goes on
		CHECK(cuStreamWaitEvent(stream, event, 0));
		add_to(p, LARGE, 10);
		CHECK(cuEventRecord(event, stream));
		turn();
		await_turn();
		HOLDS(p, LARGE, 11 * round);
	}
	CHECK(cuEventDestroy(event));
	CHECK(cuIpcCloseMemHandle(p));
	turn();
}

// --- memory by descriptor --------------------------------------------------------------

static void send_descriptor(int fd) {
	char byte = 'd', control[CMSG_SPACE(sizeof fd)];
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&message);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof fd);
	memcpy(CMSG_DATA(c), &fd, sizeof fd);
	NEED(sendmsg(other, &message, 0) == 1);
}

static int receive_descriptor(void) {
	int fd;
	char byte, control[CMSG_SPACE(sizeof fd)];
	struct iovec part = {&byte, 1};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	if (recvmsg(other, &message, 0) != 1)
		exit(3);
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	return fd;
}

static const CUmemAllocationProp shareable = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
static const CUmemAccessDesc both = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

static CUdeviceptr map(CUmemGenericAllocationHandle handle, size_t size) {
	CUdeviceptr p;
	CHECK(cuMemAddressReserve(&p, size, 0, 0, 0));
	CHECK(cuMemMap(p, size, 0, handle, 0));
	CHECK(cuMemSetAccess(p, size, &both, 1));
	return p;
}

static void first_descriptors(void) {
	CUmemGenericAllocationHandle handle, own;
	const size_t size = 4 * LARGE;
	int fd = -1;
	CHECK(cuMemCreate(&own, size, &(CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}}, 0));
	NEED(cuMemExportToShareableHandle(&fd, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemRelease(own));
	CHECK(cuMemCreate(&handle, size, &shareable, 0));
	NEED(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_FABRIC, 0) == CUDA_ERROR_NOT_SUPPORTED);
	CUdeviceptr p = map(handle, size);
	CHECK(cuMemsetD32(p, 3, LARGE));
	CHECK(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	send_descriptor(fd);
	close(fd);
	await_turn();
	HOLDS(p, LARGE, 4);
	CHECK(cuMemUnmap(p, size));
	CUdeviceptr q = map(handle, size); // elsewhere it is the same memory
	add_to(q, LARGE, 1);
	HOLDS(q, LARGE, 5);
	turn();
	await_turn();
	CHECK(cuMemUnmap(q, size));
	CHECK(cuMemRelease(handle));
}

static void second_descriptors(void) {
	CUmemGenericAllocationHandle handle;
	const size_t size = 4 * LARGE;
	int fd = receive_descriptor();
	CHECK(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	close(fd);
	NEED(cuMemImportFromShareableHandle(&handle, (void *)(intptr_t)0, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) == CUDA_ERROR_INVALID_VALUE);
	CUdeviceptr p = map(handle, size);
	HOLDS(p, LARGE, 3);
	add_to(p, LARGE, 1);
	CHECK(cuStreamSynchronize(stream));
	turn();
	await_turn();
	HOLDS(p, LARGE, 5);
	CHECK(cuMemUnmap(p, size));
	CHECK(cuMemRelease(handle));
	turn();
}

// --- one of them is killed ------------------------------------------------------------------

static void first_killed(void) {
	CUdeviceptr p;
	CUevent event;
	CUipcMemHandle memory;
	CUipcEventHandle handle;
	CHECK(cuMemAlloc(&p, 4 * LARGE));
	CHECK(cuMemsetD32(p, 1, LARGE));
	CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	CHECK(cuIpcGetEventHandle(&handle, event));
	CHECK(cuIpcGetMemHandle(&memory, p));
	CHECK(cuLaunchHostFunc(stream, hold, NULL));
	CHECK(cuEventRecord(event, stream));
	give(&memory, sizeof memory);
	give(&handle, sizeof handle);
	for (;;) // until the second kills it
		pause();
}

static void second_killed(void) {
	CUdeviceptr p, q;
	CUevent event;
	CUipcMemHandle memory;
	CUipcEventHandle handle;
	take(&memory, sizeof memory);
	take(&handle, sizeof handle);
	CHECK(cuIpcOpenMemHandle(&p, memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CHECK(cuIpcOpenEventHandle(&event, handle));
	NEED(cuEventQuery(event) == CUDA_ERROR_NOT_READY);
	add_to(p, LARGE, 1);
	HOLDS(p, LARGE, 2);
	kill(getppid(), SIGKILL);
	CHECK(cuEventSynchronize(event)); // its work has ended with it
	CHECK(cuStreamWaitEvent(stream, event, 0));
	for (uint32_t i = 0; i < 20; i++) {
		add_to(p, LARGE, 1);
		HOLDS(p, LARGE, 3 + i);
	}
	CHECK(cuIpcCloseMemHandle(p));
	while (cuIpcOpenMemHandle(&q, memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_SUCCESS) { // until its worker has gone, too
		CHECK(cuIpcCloseMemHandle(q));
		usleep(1000);
	}
	puts("right");
	fflush(stdout);
}

// --- another user --------------------------------------------------------------------------

static void first_stranger(void) {
	CUdeviceptr p;
	CUevent event;
	CUipcMemHandle memory;
	CUipcEventHandle handle;
	CHECK(cuMemAlloc(&p, 4 * LARGE));
	CHECK(cuIpcGetMemHandle(&memory, p));
	CHECK(cuEventCreate(&event, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	CHECK(cuIpcGetEventHandle(&handle, event));
	give(&memory, sizeof memory);
	give(&handle, sizeof handle);
	await_turn();
}

static void second_stranger(void) {
	CUdeviceptr p;
	CUevent event;
	CUipcMemHandle memory;
	CUipcEventHandle handle;
	take(&memory, sizeof memory);
	take(&handle, sizeof handle);
	NEED(cuIpcOpenMemHandle(&p, memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuIpcOpenEventHandle(&event, handle) == CUDA_ERROR_MAP_FAILED);
	turn();
}

// --- rounds, for whoever moves programs and kills workers --------------------------------

static void first_rounds(void) {
	CUdeviceptr p;
	CUipcMemHandle memory;
	CHECK(cuMemAlloc(&p, 4 * LARGE));
	CHECK(cuMemsetD32(p, 0, LARGE));
	CHECK(cuIpcGetMemHandle(&memory, p));
	give(&memory, sizeof memory);
	puts("begun");
	fflush(stdout);
	unsigned round = 0;
	for (int line; (line = getchar()) != EOF;) {
		round++;
		add_to(p, LARGE, 1);
		CHECK(cuStreamSynchronize(stream));
		turn();
		await_turn();
		HOLDS(p, LARGE, 2 * round);
		printf("round %u\n", round);
		fflush(stdout);
	}
}

static void second_rounds(void) {
	CUdeviceptr p;
	CUipcMemHandle memory;
	take(&memory, sizeof memory);
	CHECK(cuIpcOpenMemHandle(&p, memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	for (char byte; read(other, &byte, 1) == 1;) {
		add_to(p, LARGE, 1);
		CHECK(cuStreamSynchronize(stream));
		turn();
	}
}

// --- memory of pools -------------------------------------------------------------------

enum { POOLED = 30000 }; // words

static void first_pools(void) {
	CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemoryPool pool;
	CUdeviceptr small, p;
	CUmemPoolPtrExportData data[2];
	int fd;
	CHECK(cuMemPoolCreate(&pool, &properties));
	CHECK(cuMemPoolExportToShareableHandle(&fd, pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CHECK(cuMemAllocFromPoolAsync(&small, 64, pool, stream));
	CHECK(cuMemAllocFromPoolAsync(&p, 4 * POOLED, pool, stream));
	CHECK(cuMemsetD32Async(small, 3, 16, stream));
	CHECK(cuMemsetD32Async(p, 5, POOLED, stream));
	CHECK(cuMemPoolExportPointer(&data[0], p));
	CHECK(cuMemPoolExportPointer(&data[1], small));
	CHECK(cuStreamSynchronize(stream));
	send_descriptor(fd);
	close(fd);
	give(data, sizeof data);
	char done;
	take(&done, 1);
	unsigned got[POOLED];
	CHECK(cuMemcpyDtoH(got, p, sizeof got));
	for (int i = 0; i < POOLED; i++)
		NEED(got[i] == 12);
	CHECK(cuMemFreeAsync(small, stream));
	CHECK(cuMemFreeAsync(p, stream));
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuMemPoolDestroy(pool));
}

static void second_pools(void) {
	CUmemoryPool pool;
	CUdeviceptr small, p, none;
	CUmemPoolPtrExportData data[2];
	int fd = receive_descriptor();
	take(data, sizeof data);
	CHECK(cuMemPoolImportFromShareableHandle(&pool, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	close(fd);
	NEED(cuMemAllocFromPoolAsync(&none, 64, pool, stream) == CUDA_ERROR_INVALID_VALUE);
	CUcontext context;
	CHECK(cuCtxPopCurrent(&context)); // the CUDA runtime imports before it has a context
	CHECK(cuMemPoolImportPointer(&p, pool, &data[0]));
	CHECK(cuMemPoolImportPointer(&small, pool, &data[1]));
	CHECK(cuCtxPushCurrent(context));
	add_to(p, POOLED, 7);
	unsigned got[16];
	CHECK(cuMemcpyDtoH(got, small, sizeof got));
	NEED(got[0] == 3 && got[15] == 3);
	CHECK(cuMemFreeAsync(p, stream));
	CHECK(cuMemFreeAsync(small, stream));
	CHECK(cuStreamSynchronize(stream));
	memset(&data[0], 1, sizeof data[0]);
	NEED(cuMemPoolImportPointer(&p, pool, &data[0]) == CUDA_ERROR_INVALID_VALUE);
	CHECK(cuMemPoolDestroy(pool));
	give("", 1);
}

int main(int argc, char **argv) {
	static const struct {
		const char *name;
		void (*first)(void), (*second)(void);
	} all[] = {
	    {"memory", first_memory, second_memory}, {"events", first_events, second_events}, {"descriptors", first_descriptors, second_descriptors},
	    {"killed", first_killed, second_killed}, {"stranger", first_stranger, second_stranger}, {"rounds", first_rounds, second_rounds}, {"pools", first_pools, second_pools},
	};
	int pair[2];
	NEED(argc > 1 && socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
	child = fork();
	other = pair[child != 0];
	close(pair[child == 0]);
	bool stranger = strcmp(argv[1], "stranger") == 0;
	if (child == 0 && stranger)
		NEED(setgid(65534) == 0 && setuid(65534) == 0);
	start();
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (strcmp(argv[1], all[i].name) == 0)
			(child != 0 ? all[i].first : all[i].second)();
	CHECK(cuCtxDestroy(context));
	if (child == 0)
		return 0;
	close(other);
	int status;
	NEED(waitpid(child, &status, 0) == child && status == 0);
	puts("right");
	return 0;
}
