// libnvidia-ml.so.1 for programs under `muster run`: it answers the queries of tools and frameworks
// for the devices that the program sees there. Values that Muster does not know, such as temperatures
// and power, are "not supported", which tools show as N/A; nothing can be changed. names.h lists all
// functions; entry.c exports them, calls the bodies here (do_NAME), and refuses those without one.
//
// All answers come from a picture of the node. A call takes a new one if the last is older than
// FRESH_MS. One lock protects all state, and is held while a picture is taken, so a call waits at
// most as long as picture_take does.
#include "nvml.h"

#include "bodies.h"
#include "node.h"

#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define FRESH_MS 100
#define SULK_MS 5000 // a node that did not answer is not asked again for this long: tools make hundreds of calls

struct nvmlDevice_st {
	char unused;
};

_Atomic int nvml_uses;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct nvmlDevice_st handles[MAX_DEVICES];
static struct picture shown, fresh;
static unsigned int devices; // their number when the library was initialised; it must not change for the program
static int64_t taken_ms, failed_ms; // when the picture was taken; when the node last failed to answer, 0: it answered
static uint64_t taken_us; // the same, in microseconds since 1970
static unsigned int rates[MAX_DEVICES]; // percentage of the time in which kernels ran
static unsigned int process_rates[MAX_PROCESSES]; // the same for each of shown.process

// In a child of fork: another thread of the parent may have held the lock, and does not exist here.
static void in_child(void) { pthread_mutex_init(&lock, NULL); }

__attribute__((constructor)) static void load(void) { pthread_atfork(NULL, NULL, in_child); }

static int64_t now_ms(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint64_t now_us(void) {
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
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

// The percentage of the time between two pictures in which kernels ran. The node counts a kernel's
// time when the kernel ends, so one that still runs only shows as busy. The time of programs that
// have ended is gone from the sum, so it may even decrease.
static unsigned int rate(const struct picture *before, const struct picture *after, uint64_t from, uint64_t to, bool busy) {
	if (before == NULL || after->now_ns <= before->now_ns || to <= from)
		return busy ? 100 : 0;
	double percent = 100.0 * (double)(to - from) / (double)(after->now_ns - before->now_ns);
	return percent < 100 ? (unsigned int)(percent + 0.5) : 100;
}

static unsigned int device_rate(const struct picture *before, const struct picture *after, unsigned int gpu) {
	bool was, is;
	uint64_t from = before != NULL ? busy_time(before, gpu, &was) : 0, to = busy_time(after, gpu, &is);
	return rate(before, after, from, to, is);
}

// The node lists programs in the same order each time, so the search for a program's earlier entry
// starts where the last search ended.
static void rate_processes(const struct picture *before, const struct picture *after) {
	unsigned int known = before != NULL ? before->processes : 0, at = 0;
	for (unsigned int i = 0; i < after->processes; i++) {
		const struct process *p = &after->process[i], *q = NULL;
		for (unsigned int tried = 0; tried < known && q == NULL; tried++, at = (at + 1) % known)
			if (before->process[at].pid == p->pid && before->process[at].gpu == p->gpu)
				q = &before->process[at];
		process_rates[i] = rate(q != NULL ? before : NULL, after, q != NULL ? q->busy_ns : 0, p->busy_ns, p->busy);
	}
}

// Takes a new picture if the last is too old. The caller holds the lock.
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
		rates[i] = device_rate(first ? NULL : &shown, &fresh, i);
	rate_processes(first ? NULL : &shown, &fresh);
	memcpy(&shown, &fresh, sizeof shown);
	taken_ms = now_ms();
	taken_us = now_us();
	return true;
}

int place_of(nvmlDevice_t device) {
	for (unsigned int i = 0; i < devices; i++)
		if (device == &handles[i])
			return (int)i;
	return -1;
}

// Takes the lock and finds a device in a fresh picture. On failure the lock is released.
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

// Begins a function about a device. It returns on failure; otherwise the lock is held until leave.
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

// ---- the library ----

nvmlReturn_t do_nvmlInitWithFlags(unsigned int flags) {
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

nvmlReturn_t do_nvmlInit(void) { return do_nvmlInitWithFlags(0); }
nvmlReturn_t do_nvmlInit_v2(void) { return do_nvmlInitWithFlags(0); }

nvmlReturn_t do_nvmlShutdown(void) {
	pthread_mutex_lock(&lock);
	if (nvml_uses == 0)
		return leave(NVML_ERROR_UNINITIALIZED);
	nvml_uses--;
	return leave(NVML_SUCCESS);
}

const char *do_nvmlErrorString(nvmlReturn_t result) {
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

// The version of the loaded driver. If there is none, the first driver that came with the CUDA
// version that programs are told, since tools compare the number.
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

nvmlReturn_t do_nvmlSystemGetDriverVersion(char *version, unsigned int length) { return version_text(false, version, length); }
nvmlReturn_t do_nvmlSystemGetNVMLVersion(char *version, unsigned int length) { return version_text(true, version, length); }

nvmlReturn_t do_nvmlSystemGetCudaDriverVersion(int *version) {
	if (version == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_lock(&lock);
	if (nvml_uses == 0)
		return leave(NVML_ERROR_UNINITIALIZED);
	*version = (int)shown.cuda;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t do_nvmlSystemGetCudaDriverVersion_v2(int *version) { return do_nvmlSystemGetCudaDriverVersion(version); }

// The name of a process from /proc, or from the node if a container hides the process.
bool process_name(unsigned int pid, char *text, size_t room) {
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

nvmlReturn_t do_nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length) {
	char text[1024];
	if (name == NULL || length == 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_lock(&lock);
	if (nvml_uses == 0)
		return leave(NVML_ERROR_UNINITIALIZED);
	if (!process_name(pid, text, sizeof text))
		return leave(NVML_ERROR_NOT_FOUND);
	snprintf(name, length, "%s", text); // cut off if it is too long
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

nvmlReturn_t do_nvmlUnitGetCount(unsigned int *count) { return none(count); }
nvmlReturn_t do_nvmlGetExcludedDeviceCount(unsigned int *count) { return none(count); }
nvmlReturn_t do_nvmlGetBlacklistDeviceCount(unsigned int *count) { return none(count); }

// ---- finding devices ----

nvmlReturn_t do_nvmlDeviceGetCount_v2(unsigned int *count) {
	if (nvml_uses == 0)
		return NVML_ERROR_UNINITIALIZED;
	if (count == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_lock(&lock);
	*count = devices;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t do_nvmlDeviceGetCount(unsigned int *count) { return do_nvmlDeviceGetCount_v2(count); }

nvmlReturn_t do_nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
	unsigned int count;
	if (nvml_uses == 0)
		return NVML_ERROR_UNINITIALIZED;
	if (device == NULL || do_nvmlDeviceGetCount_v2(&count) != NVML_SUCCESS || index >= count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = &handles[index];
	return NVML_SUCCESS;
}

nvmlReturn_t do_nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) { return do_nvmlDeviceGetHandleByIndex_v2(index, device); }

static void uuid_text(const struct gpu *gpu, char text[48]) {
	const uint8_t *u = gpu->uuid;
	snprintf(text, 48, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9],
		u[10], u[11], u[12], u[13], u[14], u[15]);
}

nvmlReturn_t do_nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
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

// Addresses have the form domain:bus:device.function; domain and function may be missing.
nvmlReturn_t do_nvmlDeviceGetHandleByPciBusId_v2(const char *text, nvmlDevice_t *device) {
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

nvmlReturn_t do_nvmlDeviceGetHandleByPciBusId(const char *text, nvmlDevice_t *device) { return do_nvmlDeviceGetHandleByPciBusId_v2(text, device); }

// ---- what a device is ----

nvmlReturn_t do_nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
	ENTER(device, name != NULL);
	return leave(put(gpu->name, name, length));
}

nvmlReturn_t do_nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
	char text[48];
	ENTER(device, uuid != NULL);
	uuid_text(gpu, text);
	return leave(put(text, uuid, length));
}

nvmlReturn_t do_nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
	ENTER(device, index != NULL);
	*index = place;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t do_nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *number) {
	ENTER(device, number != NULL);
	*number = place;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t do_nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor) {
	ENTER(device, major != NULL && minor != NULL);
	*major = (int)gpu->major;
	*minor = (int)gpu->minor;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t do_nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture) {
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

nvmlReturn_t do_nvmlDeviceGetBrand(nvmlDevice_t device, unsigned int *brand) {
	ENTER(device, brand != NULL);
	*brand = 0; // unknown
	return leave(NVML_SUCCESS);
}

nvmlReturn_t do_nvmlDeviceGetMemoryBusWidth(nvmlDevice_t device, unsigned int *bits) {
	ENTER(device, bits != NULL);
	if (gpu->bus_width == 0)
		return leave(NVML_ERROR_NOT_SUPPORTED);
	*bits = gpu->bus_width;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t do_nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned int type, unsigned int *mhz) {
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

nvmlReturn_t do_nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
	ENTER(device, pci != NULL);
	memset(pci, 0, sizeof *pci);
	bus_text(gpu, BUS_SHORT, pci->busIdLegacy, sizeof pci->busIdLegacy);
	bus_text(gpu, BUS_LONG, pci->busId, sizeof pci->busId);
	pci->bus = gpu->bus;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t do_nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_v2_t *pci) {
	ENTER(device, pci != NULL);
	memset(pci, 0, sizeof *pci);
	bus_text(gpu, BUS_SHORT, pci->busId, sizeof pci->busId);
	pci->bus = gpu->bus;
	return leave(NVML_SUCCESS);
}

// Callers of the oldest version have a shorter struct, which ends with the device's number.
nvmlReturn_t do_nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_v2_t *pci) {
	ENTER(device, pci != NULL);
	memset(pci, 0, offsetof(nvmlPciInfo_v2_t, pciSubSystemId));
	bus_text(gpu, BUS_SHORT, pci->busId, sizeof pci->busId);
	pci->bus = gpu->bus;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t do_nvmlDeviceGetPciInfoExt(nvmlDevice_t device, nvmlPciInfoExt_v1_t *pci) {
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

nvmlReturn_t constant(nvmlDevice_t device, unsigned int *into, unsigned int value) {
	ENTER(device, into != NULL);
	*into = value;
	return leave(NVML_SUCCESS);
}

// Constant settings: the node keeps devices open, programs share them, and no display is attached.
nvmlReturn_t do_nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned int *mode) { return constant(device, mode, 1); }
nvmlReturn_t do_nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode) { return constant(device, mode, 0); }
nvmlReturn_t do_nvmlDeviceGetDisplayMode(nvmlDevice_t device, unsigned int *mode) { return constant(device, mode, 0); }
nvmlReturn_t do_nvmlDeviceGetDisplayActive(nvmlDevice_t device, unsigned int *active) { return constant(device, active, 0); }
nvmlReturn_t do_nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *is) { return constant(device, is, 0); }
nvmlReturn_t do_nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count) { return constant(device, count, 0); }
nvmlReturn_t do_nvmlDeviceGetVirtualizationMode(nvmlDevice_t device, unsigned int *mode) { return constant(device, mode, 0); } // not that of a virtual machine
nvmlReturn_t do_nvmlDeviceGetAccountingMode(nvmlDevice_t device, unsigned int *mode) { return constant(device, mode, 0); }
nvmlReturn_t do_nvmlDeviceGetMultiGpuBoard(nvmlDevice_t device, unsigned int *several) { return constant(device, several, 0); }

// A struct with a version and one number.
static nvmlReturn_t versioned(nvmlDevice_t device, nvmlDeviceCapabilities_v1_t *into, unsigned int value) {
	ENTER(device, into != NULL);
	if (into->version != NVML_STRUCT_VERSION(nvmlDeviceCapabilities_v1_t, 1))
		return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	into->value = value;
	return leave(NVML_SUCCESS);
}

// No addressing mode by which kernels access pageable memory of the host.
nvmlReturn_t do_nvmlDeviceGetAddressingMode(nvmlDevice_t device, nvmlDeviceAddressingMode_v1_t *mode) { return versioned(device, mode, 0); }
nvmlReturn_t do_nvmlDeviceGetCapabilities(nvmlDevice_t device, nvmlDeviceCapabilities_v1_t *capabilities) { return versioned(device, capabilities, 0); }

// No features need a licence: all versions of the struct begin with whether any does,
// and how many are described.
static nvmlReturn_t unlicensed(nvmlDevice_t device, unsigned int *features) {
	ENTER(device, features != NULL);
	features[0] = features[1] = 0;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t do_nvmlDeviceGetGridLicensableFeatures(nvmlDevice_t device, unsigned int *features) { return unlicensed(device, features); }
nvmlReturn_t do_nvmlDeviceGetGridLicensableFeatures_v2(nvmlDevice_t device, unsigned int *features) { return unlicensed(device, features); }
nvmlReturn_t do_nvmlDeviceGetGridLicensableFeatures_v3(nvmlDevice_t device, unsigned int *features) { return unlicensed(device, features); }
nvmlReturn_t do_nvmlDeviceGetGridLicensableFeatures_v4(nvmlDevice_t device, unsigned int *features) { return unlicensed(device, features); }

static nvmlReturn_t both(nvmlDevice_t device, unsigned int *current, unsigned int *pending, unsigned int value) {
	nvmlReturn_t result = constant(device, current, value);
	return result == NVML_SUCCESS ? constant(device, pending, value) : result;
}

nvmlReturn_t do_nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) { return both(device, current, pending, 0); }

// A device that reports no error correction may have none.
nvmlReturn_t do_nvmlDeviceGetEccMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending) {
	ENTER(device, current != NULL && pending != NULL);
	if (gpu->ecc == 0)
		return leave(NVML_ERROR_NOT_SUPPORTED);
	*current = *pending = 1;
	return leave(NVML_SUCCESS);
}

// ---- topology: a virtual device may be any real one, so none is near another ----

nvmlReturn_t do_nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, unsigned int *level) {
	return constant(a, place_of(b) >= 0 ? level : NULL, a == b ? NVML_TOPOLOGY_INTERNAL : NVML_TOPOLOGY_SYSTEM);
}

nvmlReturn_t do_nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, unsigned int what, unsigned int *status) {
	(void)what;
	return constant(a, place_of(b) >= 0 ? status : NULL, NVML_P2P_STATUS_NOT_SUPPORTED);
}

nvmlReturn_t do_nvmlDeviceOnSameBoard(nvmlDevice_t a, nvmlDevice_t b, int *same) {
	return constant(a, place_of(b) >= 0 ? (unsigned int *)same : NULL, a == b);
}

// ---- how it is used ----

// Programs may have allocated more than the device has, since memory is swapped: then it counts as
// full.
static uint64_t used_of(unsigned int place, const struct gpu *gpu) {
	uint64_t used = 0;
	for (unsigned int i = 0; i < shown.processes; i++) {
		uint64_t more = shown.process[i].gpu == place ? shown.process[i].memory : 0;
		used = more < gpu->memory - used ? used + more : gpu->memory;
	}
	return used;
}

nvmlReturn_t do_nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
	ENTER(device, memory != NULL);
	memory->total = gpu->memory;
	memory->used = used_of(place, gpu);
	memory->free = memory->total - memory->used;
	return leave(NVML_SUCCESS);
}

nvmlReturn_t do_nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
	ENTER(device, memory != NULL);
	if (memory->version != NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2))
		return leave(NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	memory->total = gpu->memory;
	memory->used = used_of(place, gpu);
	memory->free = memory->total - memory->used;
	memory->reserved = 0;
	return leave(NVML_SUCCESS);
}

// The memory rate is 0: Muster does not know how long memory was read or written.
nvmlReturn_t do_nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization) {
	ENTER(device, utilization != NULL);
	utilization->gpu = rates[place];
	utilization->memory = 0;
	return leave(NVML_SUCCESS);
}

// Counts the programs on a device, and passes each to take. *count is the caller's room, and
// becomes the number of programs. If the picture is not newer than seen, which the caller has had,
// the result is NVML_ERROR_NOT_FOUND.
static nvmlReturn_t list_since(nvmlDevice_t device, unsigned int *count, void *into, uint64_t seen, taker *take) {
	unsigned int found = 0;
	ENTER(device, count != NULL && (*count == 0 || into != NULL));
	if (taken_us <= seen)
		return leave(NVML_ERROR_NOT_FOUND);
	for (unsigned int i = 0; i < shown.processes; i++) {
		if (shown.process[i].gpu != place)
			continue;
		if (found < *count)
			take(into, found, &shown.process[i], process_rates[i]);
		found++;
	}
	bool enough = found <= *count;
	*count = found;
	return leave(enough ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE);
}

nvmlReturn_t list(nvmlDevice_t device, unsigned int *count, void *into, taker *take) { return list_since(device, count, into, 0, take); }

static void take_v1(void *into, unsigned int n, const struct process *p, unsigned int percent) {
	(void)percent;
	((nvmlProcessInfo_v1_t *)into)[n] = (nvmlProcessInfo_v1_t){p->pid, p->memory};
}

static void take_v2(void *into, unsigned int n, const struct process *p, unsigned int percent) {
	(void)percent;
	((nvmlProcessInfo_t *)into)[n] = (nvmlProcessInfo_t){p->pid, p->memory, NVML_NO_INSTANCE, NVML_NO_INSTANCE};
}

nvmlReturn_t do_nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_v1_t *infos) { return list(device, count, infos, take_v1); }
nvmlReturn_t do_nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) { return list(device, count, infos, take_v2); }
nvmlReturn_t do_nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos) { return list(device, count, infos, take_v2); }

nvmlReturn_t do_nvmlDeviceGetGraphicsRunningProcesses(nvmlDevice_t device, unsigned int *count, void *infos) { return (void)infos, constant(device, count, 0); }
nvmlReturn_t do_nvmlDeviceGetGraphicsRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, void *infos) { return (void)infos, constant(device, count, 0); }
nvmlReturn_t do_nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, void *infos) { return (void)infos, constant(device, count, 0); }
nvmlReturn_t do_nvmlDeviceGetMPSComputeRunningProcesses(nvmlDevice_t device, unsigned int *count, void *infos) { return (void)infos, constant(device, count, 0); }
nvmlReturn_t do_nvmlDeviceGetMPSComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *count, void *infos) { return (void)infos, constant(device, count, 0); }
nvmlReturn_t do_nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *count, void *infos) { return (void)infos, constant(device, count, 0); }

static void take_detail(void *into, unsigned int n, const struct process *p, unsigned int percent) {
	(void)percent;
	((nvmlProcessDetail_v1_t *)into)[n] = (nvmlProcessDetail_v1_t){p->pid, p->memory, NVML_NO_INSTANCE, NVML_NO_INSTANCE, 0};
}

nvmlReturn_t do_nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device, nvmlProcessDetailList_v1_t *processes) {
	if (processes != NULL && processes->version != NVML_STRUCT_VERSION(nvmlProcessDetailList_v1_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (processes == NULL || processes->mode > NVML_PROCESS_MODE_MPS)
		return constant(device, NULL, 0);
	if (processes->mode != NVML_PROCESS_MODE_COMPUTE)
		return constant(device, &processes->numProcArrayEntries, 0);
	return list(device, &processes->numProcArrayEntries, processes->procArray, take_detail);
}

// Writes a program's share of the time up to the last picture. Only the engine that runs kernels
// has a share: Muster knows no others.
static void take_sample(void *into, unsigned int n, const struct process *p, unsigned int percent) {
	((nvmlProcessUtilizationSample_t *)into)[n] = (nvmlProcessUtilizationSample_t){.pid = p->pid, .timeStamp = taken_us, .smUtil = percent};
}

static void take_utilization(void *into, unsigned int n, const struct process *p, unsigned int percent) {
	((nvmlProcessUtilizationInfo_v1_t *)into)[n] = (nvmlProcessUtilizationInfo_v1_t){.timeStamp = taken_us, .pid = p->pid, .smUtil = percent};
}

// As list_since, but returns NVML_ERROR_NOT_FOUND if there are no programs.
static nvmlReturn_t samples_since(nvmlDevice_t device, unsigned int *count, void *into, uint64_t seen, taker *take) {
	nvmlReturn_t result = list_since(device, count, into, seen, take);
	return result == NVML_SUCCESS && *count == 0 ? NVML_ERROR_NOT_FOUND : result;
}

nvmlReturn_t do_nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *samples, unsigned int *count, unsigned long long seen) {
	if (count != NULL && samples == NULL)
		*count = 0;
	return samples_since(device, count, samples, seen, take_sample);
}

nvmlReturn_t do_nvmlDeviceGetProcessesUtilizationInfo(nvmlDevice_t device, nvmlProcessesUtilizationInfo_v1_t *info) {
	if (info == NULL)
		return constant(device, NULL, 0);
	if (info->version != NVML_STRUCT_VERSION(nvmlProcessesUtilizationInfo_v1_t, 1))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (info->procUtilArray == NULL)
		info->processSamplesCount = 0;
	return samples_since(device, &info->processSamplesCount, info->procUtilArray, info->lastSeenTimeStamp, take_utilization);
}

// Returns the last sample only: the library keeps no history.
nvmlReturn_t do_nvmlDeviceGetSamples(nvmlDevice_t device, unsigned int what, unsigned long long seen, unsigned int *type, unsigned int *count, nvmlSample_t *samples) {
	ENTER(device, type != NULL && count != NULL);
	if (what != NVML_GPU_UTILIZATION_SAMPLES)
		return leave(NVML_ERROR_NOT_SUPPORTED);
	*type = NVML_VALUE_TYPE_UNSIGNED_INT;
	if (samples == NULL)
		return *count = 1, leave(NVML_SUCCESS);
	if (*count == 0)
		return leave(NVML_ERROR_INVALID_ARGUMENT);
	if (taken_us <= seen)
		return leave(NVML_ERROR_NOT_FOUND);
	*count = 1;
	samples[0] = (nvmlSample_t){.timeStamp = taken_us, .value = rates[place]};
	return leave(NVML_SUCCESS);
}

// Fields are requested by number, many in one call; each gets its own result.
nvmlReturn_t do_nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values) {
	ENTER(device, count > 0 && values != NULL);
	for (int i = 0; i < count; i++) {
		values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		if (nvml_trace >= 2)
			complain("muster: nvmlDeviceGetFieldValues refuses field %u of scope %u", values[i].fieldId, values[i].scopeId);
	}
	return leave(NVML_SUCCESS);
}
