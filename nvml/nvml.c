// libnvidia-ml.so.1 for programs under `muster run`: what tools and frameworks read
// of GPUs, told of the devices that a program sees there. Values that Muster does not
// know, temperatures and power above all, are "not supported", which tools show as
// N/A; nothing can be changed through it. names.h lists all functions, missing.c
// refuses those that are not here.
//
// A picture of the node is taken when somebody asks and the last is older than
// FRESH_MS. One lock guards all; no call waits longer than picture_take does.
#include "nvml.h"

#include "node.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define FRESH_MS 100
#define SULK_MS 5000 // how long a node that did not answer is not asked again: tools make hundreds of calls

struct nvmlDevice_st {
	char unused;
};

_Atomic int nvml_uses;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvmlDevice_st handles[MAX_DEVICES];
static struct picture shown, fresh;
static unsigned int devices; // when the library was initialised; programs count on it
static int64_t taken_ms, failed_ms; // 0: it answered
static unsigned int rates[MAX_DEVICES]; // percent of the time that kernels ran

// The child of a fork has one thread, and it may have been made while another held the lock.
static void in_child(void) { pthread_mutex_init(&lock, NULL); }

__attribute__((constructor)) static void load(void) { pthread_atfork(NULL, NULL, in_child); }

static int64_t now_ms(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint64_t busy_time(const struct picture *p, unsigned int gpu, bool *busy) {
	uint64_t sum = 0;
	*busy = false;
	for (unsigned int i = 0; i < p->processes; i++)
		if (p->process[i].gpu == gpu) {
			sum += p->process[i].busy_ns;
			*busy |= p->process[i].busy;
		}
	return sum;
}

// How busy a device was between two pictures. Kernels count when they end, so one
// that still runs shows only as such; programs that ended take their time along.
static unsigned int rate(const struct picture *before, const struct picture *after, unsigned int gpu) {
	bool was, is;
	uint64_t from = before != NULL ? busy_time(before, gpu, &was) : 0, to = busy_time(after, gpu, &is);
	if (before == NULL || after->now_ns <= before->now_ns || to <= from)
		return is ? 100 : 0;
	double percent = 100.0 * (double)(to - from) / (double)(after->now_ns - before->now_ns);
	return percent < 100 ? (unsigned int)(percent + 0.5) : 100;
}

// Takes a new picture, if the last is old. The caller has the lock.
static bool refresh(bool first) {
	int64_t now = now_ms();
	if (!first && failed_ms != 0 && now - failed_ms < SULK_MS)
		return false;
	if (!first && now - taken_ms < FRESH_MS)
		return true;
	if (!picture_take(&fresh)) {
		failed_ms = now_ms();
		return false;
	}
	failed_ms = 0;
	for (unsigned int i = 0; i < fresh.gpus; i++)
		rates[i] = rate(first ? NULL : &shown, &fresh, i);
	memcpy(&shown, &fresh, sizeof shown);
	taken_ms = now_ms();
	return true;
}

static int place_of(nvmlDevice_t device) {
	for (unsigned int i = 0; i < devices; i++)
		if (device == &handles[i])
			return (int)i;
	return -1;
}

// Locks, and finds the device, with what is known of it now. If it fails, nothing is
// locked.
static nvmlReturn_t enter(nvmlDevice_t device, unsigned int *place, const struct gpu **gpu) {
	pthread_mutex_lock(&lock);
	int found = place_of(device);
	nvmlReturn_t result = NVML_SUCCESS;
	if (nvml_uses == 0)
		result = NVML_ERROR_UNINITIALIZED;
	else if (found < 0)
		result = NVML_ERROR_INVALID_ARGUMENT;
	else if (!refresh(false) || (unsigned int)found >= shown.gpus)
		result = NVML_ERROR_GPU_IS_LOST;
	if (result != NVML_SUCCESS) {
		pthread_mutex_unlock(&lock);
		return result;
	}
	*place = (unsigned int)found;
	*gpu = &shown.gpu[found];
	return NVML_SUCCESS;
}

static nvmlReturn_t leave(nvmlReturn_t result) {
	pthread_mutex_unlock(&lock);
	return result;
}

// Begins a function that answers about a device: from here on the lock is held.
#define ENTER(device, ok) \
	unsigned int place; \
	const struct gpu *gpu; \
	if (!(ok)) \
		return nvml_uses > 0 ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_UNINITIALIZED; \
	nvmlReturn_t entered = enter(device, &place, &gpu); \
	if (entered != NVML_SUCCESS) \
		return entered; \
	(void)place, (void)gpu

static nvmlReturn_t put(const char *text, char *into, unsigned int room) {
	size_t size = strlen(text) + 1;
	if (size > room)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memcpy(into, text, size);
	return NVML_SUCCESS;
}

// The functions of this file that are called here too.
EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags);
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device);
EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *device);
EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count);
EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version);

// ---- the library ----

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags) {
	(void)flags;
	nvmlReturn_t result = NVML_SUCCESS;
	pthread_mutex_lock(&lock);
	if (nvml_uses == 0) {
		if (refresh(true))
			devices = shown.gpus;
		else
			result = NVML_ERROR_DRIVER_NOT_LOADED;
	}
	if (result == NVML_SUCCESS)
		nvml_uses++;
	return leave(result);
}

EXPORT nvmlReturn_t nvmlInit(void) { return nvmlInitWithFlags(0); }
EXPORT nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

EXPORT nvmlReturn_t nvmlShutdown(void) {
	pthread_mutex_lock(&lock);
	if (nvml_uses == 0)
		return leave(NVML_ERROR_UNINITIALIZED);
	nvml_uses--;
	return leave(NVML_SUCCESS);
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result) {
	static const char *const texts[] = {
		"Success", "Uninitialized", "Invalid Argument", "Not Supported", "Insufficient Permissions", "Already Initialized", "Not Found", "Insufficient Size",
		"Insufficient External Power", "Driver Not Loaded", "Timeout", "Interrupt Request Issue", "NVML Shared Library Not Found", "Function Not Found",
		"Corrupted infoROM", "GPU is lost", "GPU requires restart", "The operating system has blocked the request.",
		"RM has detected an NVML/RM version mismatch.", "In use by another client", "Insufficient Memory", "No data", "vGPU ECC not supported",
		"Insufficient Resources", "Frequency not supported", "Argument version mismatch", "Deprecated", "Not ready", "GPU not found", "Invalid state",
	};
	return (unsigned int)result < sizeof texts / sizeof *texts ? texts[result] : "Unknown Error";
}

// ---- the system ----

// The driver's version where one is loaded; else the first of those that came with
// the version of CUDA that programs are told, since tools compare the number.
static void driver_version(char *text, size_t room) {
	static const unsigned int branches[][2] = {
		{13000, 580}, {12090, 575}, {12080, 570}, {12070, 565}, {12060, 560}, {12050, 555}, {12040, 550}, {12030, 545}, {12020, 535}, {12010, 530}, {12000, 525}, {0, 520},
	};
	char line[256] = "";
	FILE *f = fopen("/proc/driver/nvidia/version", "re");
	if (f != NULL) {
		if (fgets(line, sizeof line, f) == NULL)
			line[0] = 0;
		fclose(f);
	}
	char *rest = NULL;
	for (char *word = strtok_r(line, " \t\n", &rest); word != NULL; word = strtok_r(NULL, " \t\n", &rest)) {
		size_t digits = strspn(word, "0123456789");
		if (digits > 0 && word[digits] == '.' && strspn(word, "0123456789.") == strlen(word)) {
			snprintf(text, room, "%s", word);
			return;
		}
	}
	size_t i = 0;
	while (shown.cuda < branches[i][0])
		i++;
	snprintf(text, room, "%u.00", branches[i][1]);
}

static nvmlReturn_t version_text(bool nvml, char *version, unsigned int length) {
	char driver[64], text[80];
	if (version == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_lock(&lock);
	if (nvml_uses == 0)
		return leave(NVML_ERROR_UNINITIALIZED);
	driver_version(driver, sizeof driver);
	if (nvml)
		snprintf(text, sizeof text, "%u.%s", shown.cuda / 1000, driver);
	else
		snprintf(text, sizeof text, "%s", driver);
	return leave(put(text, version, length));
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length) { return version_text(false, version, length); }
EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length) { return version_text(true, version, length); }

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
	if (version == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_lock(&lock);
	if (nvml_uses == 0)
		return leave(NVML_ERROR_UNINITIALIZED);
	*version = (int)shown.cuda;
	return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

// What the system says of a process, or, from inside of a container, the node.
static bool process_name(unsigned int pid, char *text, size_t room) {
	char path[64];
	snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
	FILE *f = fopen(path, "re");
	size_t n = f != NULL ? fread(text, 1, room - 1, f) : 0;
	if (f != NULL)
		fclose(f);
	text[n] = 0;
	for (unsigned int i = 0; text[0] == 0 && i < shown.processes; i++)
		if (shown.process[i].pid == pid)
			snprintf(text, room, "%s", shown.process[i].program);
	return text[0] != 0;
}

EXPORT nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
	char text[1024];
	if (name == NULL || length == 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_lock(&lock);
	if (nvml_uses == 0)
		return leave(NVML_ERROR_UNINITIALIZED);
	if (!process_name(pid, text, sizeof text))
		return leave(NVML_ERROR_NOT_FOUND);
	snprintf(name, length, "%s", text); // the beginning, if all of it does not fit
	return leave(NVML_SUCCESS);
}

static nvmlReturn_t none(unsigned int *count) {
	if (nvml_uses == 0)
		return NVML_ERROR_UNINITIALIZED;
	if (count == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 0;
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlUnitGetCount(unsigned int *count) { return none(count); }
EXPORT nvmlReturn_t nvmlGetExcludedDeviceCount(unsigned int *count) { return none(count); }
EXPORT nvmlReturn_t nvmlGetBlacklistDeviceCount(unsigned int *count) { return none(count); }

// ---- finding devices ----

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
	if (nvml_uses == 0)
		return NVML_ERROR_UNINITIALIZED;
	if (count == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_lock(&lock);
	*count = devices;
	return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount(unsigned int *count) { return nvmlDeviceGetCount_v2(count); }

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
	unsigned int count;
	if (nvml_uses == 0)
		return NVML_ERROR_UNINITIALIZED;
	if (device == NULL || nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS || index >= count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = &handles[index];
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) { return nvmlDeviceGetHandleByIndex_v2(index, device); }

static void uuid_text(const struct gpu *gpu, char text[48]) {
	const uint8_t *u = gpu->uuid;
	snprintf(text, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9],
		u[10], u[11], u[12], u[13], u[14], u[15]);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
	if (nvml_uses == 0)
		return NVML_ERROR_UNINITIALIZED;
	if (uuid == NULL || device == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < devices; i++) {
		char text[48];
		uuid_text(&shown.gpu[i], text);
		if (strcasecmp(text, uuid) == 0) {
			*device = &handles[i];
			return leave(NVML_SUCCESS);
		}
	}
	return leave(NVML_ERROR_NOT_FOUND);
}

// Addresses are domain:bus:device.function, with or without the first and the last.
EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *device) {
	unsigned int domain = 0, bus, slot;
	if (nvml_uses == 0)
		return NVML_ERROR_UNINITIALIZED;
	if (text == NULL || device == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (sscanf(text, "%8x:%2x:%2x", &domain, &bus, &slot) != 3) {
		domain = 0;
		if (sscanf(text, "%2x:%2x", &bus, &slot) != 2)
			return NVML_ERROR_INVALID_ARGUMENT;
	}
	pthread_mutex_lock(&lock);
	for (unsigned int i = 0; i < devices; i++)
		if (domain == 0 && slot == 0 && shown.gpu[i].bus == bus) {
			*device = &handles[i];
			return leave(NVML_SUCCESS);
		}
	return leave(NVML_ERROR_NOT_FOUND);
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *text, nvmlDevice_t *device) { return nvmlDeviceGetHandleByPciBusId_v2(text, device); }

// ---- what a device is ----

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
	ENTER(device, name != NULL);
	return leave(put(gpu->name, name, length));
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
	char text[48];
	ENTER(device, uuid != NULL);
	uuid_text(gpu, text);
	return leave(put(text, uuid, length));
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
	ENTER(device, index != NULL);
	*index = place;
	return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *number) {
	ENTER(device, number != NULL);
	*number = place;
	return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
	ENTER(device, major != NULL && minor != NULL);
	*major = (int)gpu->major;
	*minor = (int)gpu->minor;
	return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture) {
	static const struct {
		unsigned int capability, architecture;
	} from[] = {{100, 10}, {90, 9}, {89, 8}, {80, 7}, {75, 6}, {70, 5}, {60, 4}, {50, 3}, {30, 2}, {0, 0xFFFFFFFFu}};
	ENTER(device, architecture != NULL);
	size_t i = 0;
	while (10 * gpu->major + gpu->minor < from[i].capability)
		i++;
	*architecture = from[i].architecture;
	return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetBrand(nvmlDevice_t device, unsigned int *brand) {
	ENTER(device, brand != NULL);
	*brand = 0; // unknown
	return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *bits) {
	ENTER(device, bits != NULL);
	if (gpu->bus_width == 0)
		return leave(NVML_ERROR_NOT_SUPPORTED);
	*bits = gpu->bus_width;
	return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *mhz) {
	ENTER(device, mhz != NULL);
	unsigned int khz = type == NVML_CLOCK_MEM ? gpu->memory_clock : type <= NVML_CLOCK_SM ? gpu->clock : 0;
	if (khz == 0)
		return leave(NVML_ERROR_NOT_SUPPORTED);
	*mhz = khz / 1000;
	return leave(NVML_SUCCESS);
}

static void bus_text(const struct gpu *gpu, const char *format, char *text, size_t room) { snprintf(text, room, format, 0u, gpu->bus, 0u); }

#define BUS_LONG "%08X:%02X:%02X.0"
#define BUS_SHORT "%04X:%02X:%02X.0"

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
	ENTER(device, pci != NULL);
	memset(pci, 0, sizeof *pci);
	bus_text(gpu, BUS_SHORT, pci->busIdLegacy, sizeof pci->busIdLegacy);
	bus_text(gpu, BUS_LONG, pci->busId, sizeof pci->busId);
	pci->bus = gpu->bus;
	return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *pci) {
	ENTER(device, pci != NULL);
	memset(pci, 0, sizeof *pci);
	bus_text(gpu, BUS_SHORT, pci->busId, sizeof pci->busId);
	pci->bus = gpu->bus;
	return leave(NVML_SUCCESS);
}

// The oldest callers have room up to the device's number only.
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_v2_t *pci) {
	ENTER(device, pci != NULL);
	memset(pci, 0, offsetof(nvmlPciInfo_v2_t, pciSubSystemId));
	bus_text(gpu, BUS_SHORT, pci->busId, sizeof pci->busId);
	pci->bus = gpu->bus;
	return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_v1_t *pci) {
	ENTER(device, pci != NULL);
	if (pci->version != NVML_STRUCT_VERSION(nvmlPciInfoExt_v1_t, 1))
		return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	memset(&pci->domain, 0, sizeof *pci - offsetof(nvmlPciInfoExt_v1_t, domain));
	bus_text(gpu, BUS_LONG, pci->busId, sizeof pci->busId);
	pci->bus = gpu->bus;
	pci->baseClass = 3;
	pci->subClass = 2;
	return leave(NVML_SUCCESS);
}

// ---- how it is set ----

static nvmlReturn_t constant(nvmlDevice_t device, unsigned int *into, unsigned int value) {
	ENTER(device, into != NULL);
	*into = value;
	return leave(NVML_SUCCESS);
}

// The node keeps devices open, programs share them, and nothing is shown on a screen.
EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int *mode) { return constant(device, mode, 1); }
EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode) { return constant(device, mode, 0); }
EXPORT nvmlReturn_t nvmlDeviceGetDisplayMode(nvmlDevice_t device, unsigned int *mode) { return constant(device, mode, 0); }
EXPORT nvmlReturn_t nvmlDeviceGetDisplayActive(nvmlDevice_t device, unsigned int *active) { return constant(device, active, 0); }
EXPORT nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is) { return constant(device, is, 0); }
EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) { return constant(device, count, 0); }
EXPORT nvmlReturn_t nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *several) { return constant(device, several, 0); }

static nvmlReturn_t both(nvmlDevice_t device, unsigned int *current, unsigned int *pending, unsigned int value) {
	nvmlReturn_t result = constant(device, current, value);
	return result == NVML_SUCCESS ? constant(device, pending, value) : result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) { return both(device, current, pending, 0); }

// A device that says nothing of error correction may have none.
EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
	ENTER(device, current != NULL && pending != NULL);
	if (gpu->ecc == 0)
		return leave(NVML_ERROR_NOT_SUPPORTED);
	*current = *pending = 1;
	return leave(NVML_SUCCESS);
}

// ---- devices together: each may be any of the node's, so none is near another ----

EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, unsigned int *level) {
	return constant(a, place_of(b) >= 0 ? level : NULL, a == b ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_SYSTEM);
}

EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, unsigned int what, unsigned int *status) {
	(void)what;
	return constant(a, place_of(b) >= 0 ? status : NULL, NVML_P2P_STATUS_NOT_SUPPORTED);
}

EXPORT nvmlReturn_t nvmlDeviceOnSameBoard(nvmlDevice_t a, nvmlDevice_t b, int *same) {
	return constant(a, place_of(b) >= 0 ? (unsigned int *)same : NULL, a == b);
}

// ---- how it is used ----

// Programs together may have more than a device: then it is full.
static uint64_t used_of(unsigned int place, const struct gpu *gpu) {
	uint64_t used = 0;
	for (unsigned int i = 0; i < shown.processes; i++) {
		uint64_t more = shown.process[i].gpu == place ? shown.process[i].memory : 0;
		used = more < gpu->memory - used ? used + more : gpu->memory;
	}
	return used;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
	ENTER(device, memory != NULL);
	memory->total = gpu->memory;
	memory->used = used_of(place, gpu);
	memory->free = memory->total - memory->used;
	return leave(NVML_SUCCESS);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
	ENTER(device, memory != NULL);
	if (memory->version != NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2))
		return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	memory->total = gpu->memory;
	memory->used = used_of(place, gpu);
	memory->free = memory->total - memory->used;
	memory->reserved = 0;
	return leave(NVML_SUCCESS);
}

// Of memory it is not known how long it was read or written.
EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {
	ENTER(device, utilization != NULL);
	utilization->gpu = rates[place];
	utilization->memory = 0;
	return leave(NVML_SUCCESS);
}

// Counts the programs on a device, and hands each to take. The caller says how many it
// has room for, and learns how many there are if those are more.
static nvmlReturn_t list(nvmlDevice_t device, unsigned int *count, void *into, void (*take)(void *into, unsigned int n, const struct process *p)) {
	unsigned int found = 0;
	ENTER(device, count != NULL && (*count == 0 || into != NULL));
	for (unsigned int i = 0; i < shown.processes; i++) {
		if (shown.process[i].gpu != place)
			continue;
		if (found < *count)
			take(into, found, &shown.process[i]);
		found++;
	}
	bool enough = found <= *count;
	*count = found;
	return leave(enough ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE);
}

static void take_v1(void *into, unsigned int n, const struct process *p) { ((nvmlProcessInfo_v1_t *)into)[n] = (nvmlProcessInfo_v1_t){p->pid, p->memory}; }

static void take_v2(void *into, unsigned int n, const struct process *p) {
	((nvmlProcessInfo_t *)into)[n] = (nvmlProcessInfo_t){p->pid, p->memory, NVML_NO_INSTANCE, NVML_NO_INSTANCE};
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos) { return list(device, count, infos, take_v1); }
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) { return list(device, count, infos, take_v2); }
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) { return list(device, count, infos, take_v2); }

EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count, void *infos) { return (void)infos, constant(device, count, 0); }
EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, void *infos) { return (void)infos, constant(device, count, 0); }
EXPORT nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, void *infos) { return (void)infos, constant(device, count, 0); }
EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int *count, void *infos) { return (void)infos, constant(device, count, 0); }
EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, void *infos) { return (void)infos, constant(device, count, 0); }
EXPORT nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, void *infos) { return (void)infos, constant(device, count, 0); }

// Fields are asked for by number, many at a time; each has an answer of its own.
struct field_value {
	unsigned int field, scope;
	long long timestamp, latency;
	unsigned int type;
	nvmlReturn_t result;
	unsigned long long value;
};

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, struct field_value *values) {
	ENTER(device, count > 0 && values != NULL);
	for (int i = 0; i < count; i++)
		values[i].result = NVML_ERROR_NOT_SUPPORTED;
	return leave(NVML_SUCCESS);
}

// ---- what nvidia-smi asks for in private ----

// nvidia-smi finds devices and programs through a table of functions without names: a
// size, then one function a place. Of those that are known from outside, three are
// answered; the others refuse what is asked of a device, and agree to what is not.
#define TABLE_SIZE 512
#define TABLE_BY_INDEX 81
#define TABLE_COMPUTE 213
#define TABLE_GRAPHICS 214
#define TABLE_MPS 215

struct table_process {
	unsigned int pid;
	unsigned long long memory;
	unsigned int gpu_instance, compute_instance;
	unsigned long long protected;
	char name[4096];
};

static nvmlReturn_t table_other(nvmlDevice_t device) { return place_of(device) >= 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS; }

static void take_named(void *into, unsigned int n, const struct process *p) {
	struct table_process *t = (struct table_process *)into + n;
	*t = (struct table_process){.pid = p->pid, .memory = p->memory, .gpu_instance = NVML_NO_INSTANCE, .compute_instance = NVML_NO_INSTANCE};
	if (!process_name(p->pid, t->name, sizeof t->name))
		snprintf(t->name, sizeof t->name, "-");
}

// There is room for *count programs: those beyond are left out.
static nvmlReturn_t table_compute(nvmlDevice_t device, unsigned int *count, struct table_process *into) {
	unsigned int room = count != NULL ? *count : 0;
	nvmlReturn_t result = list(device, count, into, take_named);
	if (result == NVML_ERROR_INSUFFICIENT_SIZE) {
		*count = room;
		result = NVML_SUCCESS;
	}
	return result;
}

static nvmlReturn_t table_none(nvmlDevice_t device, unsigned int *count, void *into) { return (void)into, constant(device, count, 0); }

EXPORT nvmlReturn_t nvmlInternalGetExportTable(const void **table, const void *id) {
	static const uint8_t known[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};
	static const void *functions[TABLE_SIZE];
	if (table == NULL || id == NULL || memcmp(id, known, sizeof known) != 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_lock(&lock);
	for (size_t i = 1; i < TABLE_SIZE; i++)
		functions[i] = (const void *)table_other;
	functions[0] = (const void *)sizeof functions;
	functions[TABLE_BY_INDEX] = (const void *)nvmlDeviceGetHandleByIndex_v2;
	functions[TABLE_COMPUTE] = (const void *)table_compute;
	functions[TABLE_GRAPHICS] = (const void *)table_none;
	functions[TABLE_MPS] = (const void *)table_none;
	*table = functions;
	return leave(NVML_SUCCESS);
}
