// The private table of nvidia-smi: its size, and then functions without names, one a slot. What the
// slots with a body do was observed from outside, in traces of nvidia-smi 580 with NVIDIA's
// library. The other slots refuse if their first argument is a device, and return success
// otherwise, since nvidia-smi uses some of those for logging. Each slot has its own function, so
// that MUSTER_TRACE can name the slot that was called.
#include "bodies.h"

#include <stdio.h>
#include <string.h>

#define SLOTS 512 // more than nvidia-smi uses

enum {
	SLOT_LOG = 26,
	SLOT_MONITORED = 72,
	SLOT_PCI_BY_INDEX = 81,
	SLOT_PROCESS_SAMPLES = 145,
	SLOT_COMPUTE = 213,
	SLOT_GRAPHICS = 214,
	SLOT_MPS = 215,
	SLOT_DEFERRED_CLOCK = 232,
	SLOT_FRU_PART_NUMBER = 237,
};

static const uint8_t table_id[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};

// What the table returns for each program; nvidia-smi has room for 500.
struct table_process {
	nvmlProcessDetail_v1_t detail;
	char name[4096];
};

_Static_assert(sizeof(struct table_process) == 4128, "as nvidia-smi allocates them");

static void take_named(void *into, unsigned int n, const struct process *p, unsigned int percent) {
	struct table_process *t = (struct table_process *)into + n;
	(void)percent;
	*t = (struct table_process){.detail = {p->pid, p->memory, NVML_NO_INSTANCE, NVML_NO_INSTANCE, 0}};
	if (!process_name(p->pid, t->name, sizeof t->name))
		snprintf(t->name, sizeof t->name, "-");
}

// Lists programs. The caller has room for *count; programs beyond that are left out.
static nvmlReturn_t compute(nvmlDevice_t device, unsigned int *count, struct table_process *into) {
	unsigned int room = count != NULL ? *count : 0;
	nvmlReturn_t result = list(device, count, into, take_named);
	if (result == NVML_ERROR_INSUFFICIENT_SIZE) {
		*count = room;
		result = NVML_SUCCESS;
	}
	return result;
}

// The PCI address of a device by its index: nvidia-smi has no handle yet.
static nvmlReturn_t pci_by_index(unsigned int index, nvmlPciInfo_t *pci) {
	nvmlDevice_t device;
	nvmlReturn_t result = do_nvmlDeviceGetHandleByIndex_v2(index, &device);
	return result == NVML_SUCCESS ? do_nvmlDeviceGetPciInfo_v3(device, pci) : result;
}

static nvmlReturn_t empty_text(nvmlDevice_t device, char *text, unsigned int length) {
	unsigned int none;
	nvmlReturn_t result = constant(device, text != NULL && length > 0 ? &none : NULL, 0);
	if (result == NVML_SUCCESS)
		text[0] = 0;
	return result;
}

// Returns no samples, since their layout is unknown: nvidia-smi shows programs without utilization.
static nvmlReturn_t no_samples(nvmlDevice_t device) {
	unsigned int none;
	nvmlReturn_t result = constant(device, &none, 0);
	return result == NVML_SUCCESS ? NVML_ERROR_NOT_FOUND : result;
}

// dispatch answers a call of a slot; known says whether it has a body.
static nvmlReturn_t dispatch(unsigned int slot, long a, long b, long c, bool *known) {
	nvmlDevice_t device = (nvmlDevice_t)a;
	*known = true;
	switch (slot) {
	case SLOT_LOG: // (program, stream, text): nvidia-smi prints by itself
		return NVML_SUCCESS;
	case SLOT_MONITORED: // whether programs on the device can be watched
		return constant(device, (unsigned int *)b, 1);
	case SLOT_PCI_BY_INDEX:
		return pci_by_index((unsigned int)a, (nvmlPciInfo_t *)b);
	case SLOT_PROCESS_SAMPLES:
		return no_samples(device);
	case SLOT_COMPUTE:
		return compute(device, (unsigned int *)b, (struct table_process *)c);
	case SLOT_GRAPHICS:
	case SLOT_MPS:
	case SLOT_DEFERRED_CLOCK: // 0 is none, as in NVIDIA's library
		return constant(device, (unsigned int *)b, 0);
	case SLOT_FRU_PART_NUMBER: // an empty string is none
		return empty_text(device, (char *)b, (unsigned int)c);
	}
	*known = false;
	return place_of(device) >= 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

static long called(unsigned int slot, long a, long b, long c) {
	char name[32];
	bool known;
	snprintf(name, sizeof name, "table c4fe3e6c[%u]", slot);
	if (nvml_trace >= 2)
		complain("muster: %s", name);
	nvmlReturn_t result = dispatch(slot, a, b, c, &known);
	if (nvml_trace >= 1 && !known && result == NVML_SUCCESS)
		complain("muster: %s is unknown and was agreed to", name);
	traced(name, result);
	return result;
}

#define ROW(n) \
	SLOT(n##0) SLOT(n##1) SLOT(n##2) SLOT(n##3) SLOT(n##4) SLOT(n##5) SLOT(n##6) SLOT(n##7) SLOT(n##8) SLOT(n##9) SLOT(n##a) SLOT(n##b) SLOT(n##c) SLOT(n##d) SLOT(n##e) SLOT(n##f)
#define ALL \
	ROW(0x00) ROW(0x01) ROW(0x02) ROW(0x03) ROW(0x04) ROW(0x05) ROW(0x06) ROW(0x07) ROW(0x08) ROW(0x09) ROW(0x0a) ROW(0x0b) ROW(0x0c) ROW(0x0d) ROW(0x0e) ROW(0x0f) \
	ROW(0x10) ROW(0x11) ROW(0x12) ROW(0x13) ROW(0x14) ROW(0x15) ROW(0x16) ROW(0x17) ROW(0x18) ROW(0x19) ROW(0x1a) ROW(0x1b) ROW(0x1c) ROW(0x1d) ROW(0x1e) ROW(0x1f)

#define SLOT(n) \
	static long slot_##n(long a, long b, long c) { return called(n, a, b, c); }
ALL
#undef SLOT

// Entry 0 is the size of the table.
static const void *table[SLOTS] = {
#define SLOT(n) (const void *)slot_##n,
	ALL
};

__attribute__((constructor)) static void load(void) { table[0] = (const void *)sizeof table; }

nvmlReturn_t do_nvmlInternalGetExportTable(const void **into, const void *id) {
	if (into == NULL || id == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (memcmp(id, table_id, sizeof table_id) != 0) {
		const uint8_t *u = id;
		if (nvml_trace >= 1)
			complain("muster: table %02x%02x%02x%02x%02x%02x%02x%02x%02x%02x%02x%02x%02x%02x%02x%02x is not supported", u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8],
				u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	*into = table;
	return NVML_SUCCESS;
}
