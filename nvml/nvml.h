// Types and numbers of NVIDIA's management library, as far as Muster answers. They
// are those of its interface, so that programs made for it find what they expect.
#ifndef MUSTER_NVML_H
#define MUSTER_NVML_H

#include <stdint.h>

typedef enum {
	NVML_SUCCESS = 0,
	NVML_ERROR_UNINITIALIZED = 1,
	NVML_ERROR_INVALID_ARGUMENT = 2,
	NVML_ERROR_NOT_SUPPORTED = 3,
	NVML_ERROR_NO_PERMISSION = 4,
	NVML_ERROR_ALREADY_INITIALIZED = 5,
	NVML_ERROR_NOT_FOUND = 6,
	NVML_ERROR_INSUFFICIENT_SIZE = 7,
	NVML_ERROR_INSUFFICIENT_POWER = 8,
	NVML_ERROR_DRIVER_NOT_LOADED = 9,
	NVML_ERROR_TIMEOUT = 10,
	NVML_ERROR_IRQ_ISSUE = 11,
	NVML_ERROR_LIBRARY_NOT_FOUND = 12,
	NVML_ERROR_FUNCTION_NOT_FOUND = 13,
	NVML_ERROR_CORRUPTED_INFOROM = 14,
	NVML_ERROR_GPU_IS_LOST = 15,
	NVML_ERROR_RESET_REQUIRED = 16,
	NVML_ERROR_OPERATING_SYSTEM = 17,
	NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
	NVML_ERROR_IN_USE = 19,
	NVML_ERROR_MEMORY = 20,
	NVML_ERROR_NO_DATA = 21,
	NVML_ERROR_VGPU_ECC_NOT_SUPPORTED = 22,
	NVML_ERROR_INSUFFICIENT_RESOURCES = 23,
	NVML_ERROR_FREQ_NOT_SUPPORTED = 24,
	NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
	NVML_ERROR_DEPRECATED = 26,
	NVML_ERROR_NOT_READY = 27,
	NVML_ERROR_GPU_NOT_FOUND = 28,
	NVML_ERROR_INVALID_STATE = 29,
	NVML_ERROR_UNKNOWN = 999
} nvmlReturn_t;

typedef struct nvmlDevice_st *nvmlDevice_t;

// The version of a struct that carries one: its size, and its number above that.
#define NVML_STRUCT_VERSION(type, number) ((unsigned int)(sizeof(type) | (number) << 24))

typedef struct {
	unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
	unsigned int version;
	unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
	char busIdLegacy[16];
	unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
	char busId[32];
} nvmlPciInfo_t;

typedef struct {
	char busId[16];
	unsigned int domain, bus, device, pciDeviceId, pciSubSystemId, reserved[4];
} nvmlPciInfo_v2_t;

typedef struct {
	unsigned int version, domain, bus, device, pciDeviceId, pciSubSystemId, baseClass, subClass;
	char busId[32];
} nvmlPciInfoExt_v1_t;

typedef struct {
	unsigned int gpu, memory;
} nvmlUtilization_t;

typedef struct {
	unsigned int pid;
	unsigned long long usedGpuMemory;
} nvmlProcessInfo_v1_t;

typedef struct {
	unsigned int pid;
	unsigned long long usedGpuMemory;
	unsigned int gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
	unsigned int pid;
	unsigned long long usedGpuMemory;
	unsigned int gpuInstanceId, computeInstanceId;
	unsigned long long usedGpuCcProtectedMemory;
} nvmlProcessDetail_v1_t;

typedef struct {
	unsigned int version, mode, numProcArrayEntries;
	nvmlProcessDetail_v1_t *procArray;
} nvmlProcessDetailList_v1_t;

typedef struct {
	unsigned int pid;
	unsigned long long timeStamp; // in us since 1970
	unsigned int smUtil, memUtil, encUtil, decUtil;
} nvmlProcessUtilizationSample_t;

typedef struct {
	unsigned long long timeStamp;
	unsigned int pid, smUtil, memUtil, encUtil, decUtil, jpgUtil, ofaUtil;
} nvmlProcessUtilizationInfo_v1_t;

typedef struct {
	unsigned int version, processSamplesCount;
	unsigned long long lastSeenTimeStamp;
	nvmlProcessUtilizationInfo_v1_t *procUtilArray;
} nvmlProcessesUtilizationInfo_v1_t;

typedef struct {
	unsigned long long timeStamp;
	unsigned long long value; // a union: of counts, the low half
} nvmlSample_t;

typedef struct {
	unsigned int fieldId, scopeId;
	long long timestamp, latencyUsec;
	unsigned int valueType;
	nvmlReturn_t nvmlReturn;
	unsigned long long value;
} nvmlFieldValue_t;

// Two structs with a version and one number have the same layout.
typedef struct {
	unsigned int version, value;
} nvmlDeviceAddressingMode_v1_t, nvmlDeviceCapabilities_v1_t;

typedef struct nvmlEventSet_st *nvmlEventSet_t;

typedef struct {
	nvmlDevice_t device;
	unsigned long long eventType, eventData;
	unsigned int gpuInstanceId, computeInstanceId;
} nvmlEventData_t;

_Static_assert(sizeof(nvmlMemory_v2_t) == 0x28 && sizeof(nvmlPciInfo_t) == 68 && sizeof(nvmlPciInfo_v2_t) == 52 && sizeof(nvmlPciInfoExt_v1_t) == 0x40, "NVML's layout");
_Static_assert(sizeof(nvmlProcessInfo_v1_t) == 16 && sizeof(nvmlProcessInfo_t) == 24 && sizeof(nvmlProcessDetail_v1_t) == 32, "NVML's layout");
_Static_assert(sizeof(nvmlProcessDetailList_v1_t) == 0x18 && sizeof(nvmlProcessesUtilizationInfo_v1_t) == 0x18 && sizeof(nvmlSample_t) == 16, "NVML's layout");
_Static_assert(sizeof(nvmlProcessUtilizationSample_t) == 32 && sizeof(nvmlProcessUtilizationInfo_v1_t) == 40, "NVML's layout");
_Static_assert(sizeof(nvmlFieldValue_t) == 40 && sizeof(nvmlEventData_t) == 32, "NVML's layout");

#define NVML_NO_INSTANCE 0xFFFFFFFFu // of a GPU that is not divided

enum { NVML_CLOCK_GRAPHICS = 0, NVML_CLOCK_SM = 1, NVML_CLOCK_MEM = 2 };
enum { NVML_TOPOLOGY_INTERNAL = 0, NVML_TOPOLOGY_SYSTEM = 50 };
enum { NVML_P2P_STATUS_OK = 0, NVML_P2P_STATUS_NOT_SUPPORTED = 5 };
enum { NVML_GPU_UTILIZATION_SAMPLES = 1 };
enum { NVML_VALUE_TYPE_UNSIGNED_INT = 1 };
enum { NVML_PROCESS_MODE_COMPUTE = 0, NVML_PROCESS_MODE_MPS = 2 };
enum { NVML_INIT_FLAG_NO_GPUS = 1, NVML_INIT_FLAG_NO_ATTACH = 2 };

#define EXPORT __attribute__((visibility("default")))

// What the environment's MUSTER_TRACE asks for: 1 names refused functions on standard
// error, 2 every call.
extern int nvml_trace;

__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);

// traced tells the user what a function answered, as far as MUSTER_TRACE asks for it.
void traced(const char *name, nvmlReturn_t result);

// How often the library is initialised: 0 if it is not.
extern _Atomic int nvml_uses;

#endif
