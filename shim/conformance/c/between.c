// What the library has in the tests that do something to a client between any two calls
// (campaign/stack/between_test.go): linked into libcuda.so.1 in the place of its trace,
// which every exported function calls first.
//
//   MUSTER_TRACE=2                 so that the trace is called
//   MUSTER_BETWEEN=NAME EVERY AT   whom to ask: an abstract socket; before every EVERYth of the
//                                  calls that are counted, beginning with the ATth (0: none)
//
// A question is a line, the process's number, the number of the call, and whether the answer
// may wait until nothing of the client's is left where it was: not while a function of the
// program's runs, or waits for its turn behind one, which may need this very call. An answer
// is one byte. The program's threads ask one after the other. A call is not counted if no
// message was sent since the last question: the client is then where it was. After every
// other question the client is put on a device, with all that it has; after the others it
// has none when the call begins.
#include "../../lib/entry/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

void __wrap_trace_call(const char *name);
void __wrap_trace_result(const char *name, CUresult result);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char name[64];
static unsigned long every, at, calls;
static uint64_t asked; // how much had been sent then
static int connection = -1;
static pid_t connected; // the process that connected; its children are others

static int ask_whom(void) {
	if (connection >= 0 && connected == getpid())
		return connection;
	if (connection >= 0)
		close(connection);
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	memcpy(address.sun_path + 1, name, strlen(name));
	connected = getpid();
	connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connection < 0 || connect(connection, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))) < 0) {
		perror("whom MUSTER_BETWEEN names");
		abort();
	}
	return connection;
}

// Whether the client can leave its device without another call of the program's.
static bool may_wait(void) {
	bool may = !host_calling();
	for (int i = 0; i < device_count && may; i++) {
		struct client *c = client_at(i);
		may = c == NULL || !host_pending(c);
	}
	return may;
}

static const char nothing[] = ".version 6.4\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\n\tret;\n}\n";

// Has a client be on a device, with all that it has: a kernel runs there, in a stream of its
// own. Whatever fails here fails for the program too. Nothing is left of it.
static void settle(struct client *c) {
	uint32_t image = atomic_fetch_add(&c->numbers, 3), function = image + 1, stream = image + 2;
	struct wire_header head = {0};
	if (stage_begin(c, nothing, sizeof nothing - 1, &head) != CUDA_SUCCESS)
		return;
	CUresult result = POST(c, MODULE_DATA, module_data, (&(struct wire_module_data){image}), &head);
	stage_end(c);
	struct answer answer;
	if (result == CUDA_SUCCESS)
		result = CALL(c, MODULE_LOAD, module_load, (&(struct wire_module_load){image}), NO_DATA, &answer);
	if (result != CUDA_SUCCESS)
		return;
	struct wire_module_function wanted = {.module = image, .function = function, .name = {(const uint8_t *)"nothing", 7}};
	struct wire_launch launch = {.function = function, .stream = stream, .grid_x = 1, .grid_y = 1, .grid_z = 1, .block_x = 1, .block_y = 1, .block_z = 1};
	result = CALL(c, MODULE_FUNCTION, module_function, &wanted, NO_DATA, &answer);
	if (result == CUDA_SUCCESS)
		result = POST(c, STREAM_CREATE, stream_create, (&(struct wire_stream_create){stream, CU_STREAM_NON_BLOCKING, 0}), NO_DATA);
	if (result == CUDA_SUCCESS) {
		POST(c, LAUNCH, launch, &launch, NO_DATA);
		CALL(c, STREAM_SYNCHRONISE, stream_synchronise, (&(struct wire_stream_synchronise){stream}), NO_DATA, &answer);
		POST(c, STREAM_DESTROY, stream_destroy, (&(struct wire_stream_destroy){stream}), NO_DATA);
	}
	POST(c, MODULE_UNLOAD, module_unload, (&(struct wire_module_unload){image}), NO_DATA);
}

static uint64_t sent(void) {
	uint64_t sum = 0;
	for (int i = 0; i < device_count; i++) {
		struct client *c = client_at(i);
		if (c == NULL)
			continue;
		pthread_mutex_lock(&c->ring.lock);
		sum += c->ring.tail;
		pthread_mutex_unlock(&c->ring.lock);
	}
	return sum;
}

static void ask(const char *call) {
	static unsigned long questions;
	char line[160], answer;
	bool wait = may_wait();
	int n = snprintf(line, sizeof line, "%d %lu %d %s\n", (int)getpid(), calls, wait, call);
	if (write(ask_whom(), line, (size_t)n) != n || read(connection, &answer, 1) != 1) {
		fprintf(stderr, "nobody answers before call %lu, %s\n", calls, call);
		abort();
	}
	for (int i = 0; i < device_count && wait && questions % 2 == 0; i++)
		if (client_at(i) != NULL)
			settle(client_at(i));
	questions++;
}

void __wrap_trace_call(const char *call) {
	if (atomic_load(&shim_state) != SHIM_READY)
		return;
	pthread_mutex_lock(&lock);
	if (name[0] == 0) {
		const char *setting = getenv("MUSTER_BETWEEN");
		if (setting == NULL || sscanf(setting, "%63s %lu %lu", name, &every, &at) != 3) {
			fprintf(stderr, "MUSTER_BETWEEN is to be NAME EVERY AT\n");
			abort();
		}
	}
	uint64_t now = sent();
	if (now != asked) {
		if (every > 0 && calls >= at && (calls - at) % every == 0) {
			ask(call);
			asked = sent();
		}
		calls++;
	}
	pthread_mutex_unlock(&lock);
}

void __wrap_trace_result(const char *call, CUresult result) { (void)call, (void)result; }
