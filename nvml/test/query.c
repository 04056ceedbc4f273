// Prints what the library says of the devices, as tools ask for it: it opens the library by name
// and looks the functions up. With an argument, it asks that many times.
#include "../nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *library;

// Looks a function up, and calls it.
#define CALL(name, ...) ((nvmlReturn_t(*)())function(name))(__VA_ARGS__)

static void *function(const char *name) {
	void *f = dlsym(library, name);
	if (f == NULL) {
		fprintf(stderr, "there is no %s\n", name);
		exit(2);
	}
	return f;
}

static const char *words(nvmlReturn_t result) { return ((const char *(*)(nvmlReturn_t))function("nvmlErrorString"))(result); }

static void must(const char *what, nvmlReturn_t result) {
	if (result != NVML_SUCCESS) {
		printf("%s: %s\n", what, words(result));
		exit(1);
	}
}

static void show_number(const char *what, nvmlDevice_t device) {
	unsigned int value = 0;
	nvmlReturn_t result = CALL(what, device, &value);
	if (result == NVML_SUCCESS)
		printf("%s %u\n", what, value);
	else
		printf("%s: %s\n", what, words(result));
}

static void show_processes(nvmlDevice_t device) {
	nvmlProcessInfo_t infos[8];
	nvmlProcessInfo_v1_t old[8];
	unsigned int none = 0, count = 8, old_count = 8;
	nvmlReturn_t result = CALL("nvmlDeviceGetComputeRunningProcesses_v3", device, &none, NULL);
	printf("processes: %u, with no room for them %s\n", none, words(result));
	must("processes", CALL("nvmlDeviceGetComputeRunningProcesses_v3", device, &count, infos));
	must("processes", CALL("nvmlDeviceGetComputeRunningProcesses", device, &old_count, old));
	for (unsigned int i = 0; i < count; i++) {
		char name[64] = "?";
		CALL("nvmlSystemGetProcessName", infos[i].pid, name, (unsigned int)sizeof name);
		const char *base = strrchr(name, '/');
		printf("process %u %s %llu %llu\n", infos[i].pid, base != NULL ? base + 1 : name, infos[i].usedGpuMemory, old[i].usedGpuMemory);
	}
}

static void show_pci(nvmlDevice_t device) {
	struct {
		nvmlPciInfo_v2_t info;
		char guard[8];
	} oldest;
	nvmlPciInfo_t pci;
	nvmlDevice_t found;
	memset(&oldest, 7, sizeof oldest);
	must("pci", CALL("nvmlDeviceGetPciInfo_v3", device, &pci));
	must("old pci", CALL("nvmlDeviceGetPciInfo", device, &oldest.info));
	printf("pci %s %s %u %s, beyond the oldest struct %x\n", pci.busId, pci.busIdLegacy, pci.bus, oldest.info.busId, oldest.info.pciSubSystemId);
	must("by bus", CALL("nvmlDeviceGetHandleByPciBusId_v2", pci.busId, &found));
	printf("by its bus %s", found == device ? "found" : "another");
	must("by bus", CALL("nvmlDeviceGetHandleByPciBusId", "01:00.0", &found));
	printf(", not found: %s, %s\n", words(CALL("nvmlDeviceGetHandleByPciBusId_v2", "0000:7f:00.0", &found)), words(CALL("nvmlDeviceGetHandleByPciBusId_v2", "here", &found)));
}

static void show_device(unsigned int index) {
	nvmlDevice_t device, found;
	char name[96], uuid[96];
	nvmlMemory_t memory;
	nvmlMemory_v2_t memory2 = {.version = NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2)};
	nvmlUtilization_t utilization;
	int major, minor;
	unsigned int current, pending, clock = 0;
	must("handle", CALL("nvmlDeviceGetHandleByIndex_v2", index, &device));
	must("name", CALL("nvmlDeviceGetName", device, name, (unsigned int)sizeof name));
	must("uuid", CALL("nvmlDeviceGetUUID", device, uuid, (unsigned int)sizeof uuid));
	must("by uuid", CALL("nvmlDeviceGetHandleByUUID", uuid, &found));
	printf("device %u %s %s %s\n", index, name, uuid, found == device ? "found" : "another");
	printf("a short buffer: %s\n", words(CALL("nvmlDeviceGetUUID", device, uuid, 10u)));
	must("memory", CALL("nvmlDeviceGetMemoryInfo", device, &memory));
	must("memory", CALL("nvmlDeviceGetMemoryInfo_v2", device, &memory2));
	printf("memory %llu %llu %llu, %llu %llu\n", memory.total, memory.used, memory.free, memory2.used, memory2.reserved);
	memory2.version = 3;
	printf("another struct: %s\n", words(CALL("nvmlDeviceGetMemoryInfo_v2", device, &memory2)));
	must("capability", CALL("nvmlDeviceGetCudaComputeCapability", device, &major, &minor));
	must("utilization", CALL("nvmlDeviceGetUtilizationRates", device, &utilization));
	printf("capability %d.%d, utilization %u\n", major, minor, utilization.gpu);
	show_pci(device);
	const char *const numbers[] = {
		"nvmlDeviceGetIndex", "nvmlDeviceGetMinorNumber", "nvmlDeviceGetArchitecture", "nvmlDeviceGetPersistenceMode", "nvmlDeviceGetComputeMode", "nvmlDeviceGetDisplayMode",
		"nvmlDeviceGetMemoryBusWidth", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetFanSpeed", "nvmlDeviceGetPerformanceState",
	};
	for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
		show_number(numbers[i], device);
	nvmlReturn_t result = CALL("nvmlDeviceGetMaxClockInfo", device, 2u, &clock);
	printf("memory clock %u %s\n", clock, words(result));
	must("mig", CALL("nvmlDeviceGetMigMode", device, &current, &pending));
	printf("mig %u %u\n", current, pending);
	show_processes(device);
}

static void show(void) {
	char driver[80], version[80];
	unsigned int count;
	int cuda;
	must("driver", CALL("nvmlSystemGetDriverVersion", driver, (unsigned int)sizeof driver));
	must("version", CALL("nvmlSystemGetNVMLVersion", version, (unsigned int)sizeof version));
	must("cuda", CALL("nvmlSystemGetCudaDriverVersion_v2", &cuda));
	must("count", CALL("nvmlDeviceGetCount_v2", &count));
	printf("cuda %d, the driver's version is %s the library's, %u devices\n", cuda, strstr(version, driver) != NULL ? "in" : "not in", count);
	for (unsigned int i = 0; i < count; i++)
		show_device(i);
	nvmlDevice_t device;
	printf("beyond the last: %s; no device: %s\n", words(CALL("nvmlDeviceGetHandleByIndex_v2", count, &device)), words(CALL("nvmlDeviceGetIndex", &count, &count)));
}

// What nvidia-smi finds without names.
static void show_table(void) {
	static const unsigned char id[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4}, other[16];
	static struct {
		unsigned int pid;
		unsigned long long memory;
		unsigned int instances[2];
		unsigned long long protected;
		char name[4096];
	} processes[2];
	nvmlReturn_t (**table)();
	nvmlDevice_t device;
	unsigned int count = 2;
	must("table", CALL("nvmlInternalGetExportTable", &table, id));
	nvmlPciInfo_t pci;
	must("slot", table[81](0u, &pci));
	must("by bus", CALL("nvmlDeviceGetHandleByPciBusId_v2", pci.busId, &device));
	must("slot", table[213](device, &count, processes));
	printf("table: %u processes, the first %u with %llu; another table: %s\n", count, processes[0].pid, processes[0].memory,
		words(CALL("nvmlInternalGetExportTable", &table, other)));
}

int main(int argc, char **argv) {
	library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	if (library == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	unsigned int count;
	printf("before: %s, %s\n", words(CALL("nvmlDeviceGetCount_v2", &count)), words(CALL("nvmlDeviceGetPowerUsage", NULL, NULL)));
	must("init", CALL("nvmlInit_v2"));
	must("init", CALL("nvmlInitWithFlags", 0u));
	if (argc == 1) {
		show();
		show_table();
		must("shutdown", CALL("nvmlShutdown"));
	}
	for (int i = argc > 1 ? atoi(argv[1]) : 0; i > 0; i--) {
		nvmlDevice_t device;
		nvmlMemory_t memory;
		must("handle", CALL("nvmlDeviceGetHandleByIndex_v2", 0u, &device));
		nvmlReturn_t result = CALL("nvmlDeviceGetMemoryInfo", device, &memory);
		nvmlUtilization_t utilization = {0, 0};
		CALL("nvmlDeviceGetUtilizationRates", device, &utilization);
		if (i == 1)
			printf("the last: %s, %u%%\n", words(result), utilization.gpu);
		if (argc > 2)
			usleep(1000 * (unsigned int)atoi(argv[2]));
	}
	fflush(stdout);
	pid_t child = fork();
	if (child == 0)
		_exit(CALL("nvmlDeviceGetCount_v2", &count) == NVML_SUCCESS ? 0 : 1);
	int status;
	waitpid(child, &status, 0);
	printf("the child: %d\n", WEXITSTATUS(status));
	return 0;
}
