// Makes the calls that it reads, one per line, as nvidia-smi makes them: a function of the library,
// or a slot of its private table, and the arguments. Prints each line with the answer after it.
// Reports what a call writes beyond the room that it was given.
//
// Arguments: a number; D the device found last; E the event set made last; L a text; I
// the id of the table. Those that a call writes to: d a device, e an event set, T a table,
// u and w a number of 32 and 64 bits, c500 such a count with a value before, t80 a text of
// that room, p a PCI address, s8:1000008 a struct of that size and version, r500 room for
// so many programs, f95x2 so many fields from a number on; x2, m2 and l2 room for so many
// samples of programs, and for the lists of their shares and of their memory; y a sample.
#include "../nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILL 0xA5
#define GUARD 64
#define MOST 6

struct program {
	nvmlProcessDetail_v1_t detail;
	char name[4096];
};

struct argument {
	char kind;
	long value;          // what is passed
	unsigned char *room; // what it points to, if it is written to
	size_t size;         // with a guard behind it
};

static void *library;
static nvmlDevice_t device;
static nvmlEventSet_t events;
static long (**table)(long, long, long, long, long, long);
static const char text[16] = "nvidia-smi";
static const unsigned char id[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e, 0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};

static void give_room(struct argument *a, size_t size) {
	a->size = size;
	a->room = malloc(size + GUARD);
	memset(a->room, FILL, size + GUARD);
	a->value = (long)a->room;
}

static void fields(struct argument *a, const char *word) {
	unsigned int first = 0, count = 0;
	sscanf(word, "f%ux%u", &first, &count);
	give_room(a, count * sizeof(nvmlFieldValue_t));
	for (unsigned int i = 0; i < count; i++) {
		((nvmlFieldValue_t *)a->room)[i].fieldId = first + i;
		((nvmlFieldValue_t *)a->room)[i].scopeId = 0;
	}
}

static void structure(struct argument *a, const char *word) {
	unsigned int size = 0, version = 0;
	int given = sscanf(word, "s%u:%x", &size, &version);
	give_room(a, size);
	if (given == 2)
		memcpy(a->room, &version, sizeof version);
}

static void number(struct argument *a, unsigned int value) {
	give_room(a, sizeof value);
	memcpy(a->room, &value, sizeof value);
}

// Lists are of at most two programs here.
static nvmlProcessUtilizationInfo_v1_t shares[2];
static nvmlProcessDetail_v1_t details[2];

static void share_list(struct argument *a, unsigned int count) {
	nvmlProcessesUtilizationInfo_v1_t info = {NVML_STRUCT_VERSION(nvmlProcessesUtilizationInfo_v1_t, 1), count, 0, count > 0 ? shares : NULL};
	give_room(a, sizeof info);
	memcpy(a->room, &info, sizeof info);
}

static void detail_list(struct argument *a, unsigned int count) {
	nvmlProcessDetailList_v1_t list = {NVML_STRUCT_VERSION(nvmlProcessDetailList_v1_t, 1), NVML_PROCESS_MODE_COMPUTE, count, details};
	give_room(a, sizeof list);
	memcpy(a->room, &list, sizeof list);
}

static struct argument parse(const char *word) {
	struct argument a = {.kind = word[0]};
	unsigned int given = (unsigned int)strtoul(word + 1, NULL, 10);
	switch (a.kind) {
	case 'D': a.value = (long)device; break;
	case 'E': a.value = (long)events; break;
	case 'L': a.value = (long)text; break;
	case 'I': a.value = (long)id; break;
	case 'd': case 'e': case 'T': case 'w': give_room(&a, 8); break;
	case 'u': give_room(&a, 4); break;
	case 'c': number(&a, given); break;
	case 't': give_room(&a, given); break;
	case 'p': give_room(&a, sizeof(nvmlPciInfo_t)); break;
	case 's': structure(&a, word); break;
	case 'r': give_room(&a, given * sizeof(struct program)); break;
	case 'f': fields(&a, word); break;
	case 'x': give_room(&a, given * sizeof(nvmlProcessUtilizationSample_t)); break;
	case 'y': give_room(&a, sizeof(nvmlSample_t)); break;
	case 'm': share_list(&a, given); break;
	case 'l': detail_list(&a, given); break;
	default: a.kind = '0', a.value = strtol(word, NULL, 0);
	}
	return a;
}

static void show_words(const struct argument *a) {
	for (size_t i = 0; i + 4 <= a->size; i += 4) {
		unsigned int word;
		memcpy(&word, a->room + i, sizeof word);
		printf(word == 0xA5A5A5A5u ? " ~" : " %u", word);
	}
}

static void show_programs(const struct argument *a, unsigned int count) {
	for (unsigned int i = 0; i < count; i++) {
		const struct program *p = (const struct program *)a->room + i;
		printf(" [%u %s: %llu bytes, instances %d %d]", p->detail.pid, p->name, p->detail.usedGpuMemory, (int)p->detail.gpuInstanceId, (int)p->detail.computeInstanceId);
	}
}

static void show_fields(const struct argument *a) {
	for (size_t i = 0; i < a->size / sizeof(nvmlFieldValue_t); i++)
		printf(" %d", (int)((const nvmlFieldValue_t *)a->room)[i].nvmlReturn);
}

static const char *time_of(unsigned long long us) { return us > 1500000000000000 && us < 4000000000000000 ? "in this century" : "at no time"; }

static void show_samples(const struct argument *a) {
	for (size_t i = 0; i < a->size / sizeof(nvmlProcessUtilizationSample_t); i++) {
		const nvmlProcessUtilizationSample_t *x = (const nvmlProcessUtilizationSample_t *)a->room + i;
		printf(" [%u %u%% %s, others %u %u %u]", x->pid, x->smUtil, time_of(x->timeStamp), x->memUtil, x->encUtil, x->decUtil);
	}
}

static void show_shares(const struct argument *a) {
	const nvmlProcessesUtilizationInfo_v1_t *info = (const nvmlProcessesUtilizationInfo_v1_t *)a->room;
	for (unsigned int i = 0; i < info->processSamplesCount; i++)
		printf(" [%u %u%% %s]", shares[i].pid, shares[i].smUtil, time_of(shares[i].timeStamp));
}

static void show_details(const struct argument *a) {
	const nvmlProcessDetailList_v1_t *list = (const nvmlProcessDetailList_v1_t *)a->room;
	for (unsigned int i = 0; i < list->numProcArrayEntries; i++)
		printf(" [%u %llu %d %d %llu]", details[i].pid, details[i].usedGpuMemory, (int)details[i].gpuInstanceId, (int)details[i].computeInstanceId, details[i].usedGpuCcProtectedMemory);
}

static void show_sample(const nvmlSample_t *sample) { printf(" %llu %s", sample->value, time_of(sample->timeStamp)); }

static void show(const struct argument *a, unsigned int *count) {
	const nvmlPciInfo_t *pci = (const nvmlPciInfo_t *)a->room;
	switch (a->kind) {
	case 'd': memcpy(&device, a->room, sizeof device), printf(" a device"); break;
	case 'e': memcpy(&events, a->room, sizeof events), printf(events != NULL ? " a set" : " none"); break;
	case 'T': memcpy(&table, a->room, sizeof table), printf(" %zu slots", *(size_t *)table / sizeof *table); break;
	case 'c': memcpy(count, a->room, sizeof *count), printf(" %u", *count); break;
	case 'w': printf(" %llu", *(unsigned long long *)a->room); break;
	case 't': printf(" \"%.*s\"", (int)a->size, (const char *)a->room); break;
	case 'p': printf(" %.16s %.32s %u:%u:%u %x %x", pci->busIdLegacy, pci->busId, pci->domain, pci->bus, pci->device, pci->pciDeviceId, pci->pciSubSystemId); break;
	case 'u': case 's': show_words(a); break;
	case 'r': show_programs(a, *count); break;
	case 'f': show_fields(a); break;
	case 'x': show_samples(a); break;
	case 'y': show_sample((const nvmlSample_t *)a->room); break;
	case 'm': show_shares(a); break;
	case 'l': show_details(a); break;
	}
}

static long call(const char *name, const struct argument *a) {
	unsigned int slot;
	long (*f)(long, long, long, long, long, long);
	if (sscanf(name, "table[%u]", &slot) == 1)
		f = table[slot];
	else
		f = (long (*)(long, long, long, long, long, long))dlsym(library, name);
	return f != NULL ? f(a[0].value, a[1].value, a[2].value, a[3].value, a[4].value, a[5].value) : NVML_ERROR_FUNCTION_NOT_FOUND;
}

static void perform(char *line) {
	struct argument a[MOST] = {0};
	unsigned int count = 0;
	int n = 0;
	printf("%s = ", line);
	char *rest = NULL, *name = strtok_r(line, " ", &rest);
	for (char *word; n < MOST && (word = strtok_r(NULL, " ", &rest)) != NULL; n++)
		a[n] = parse(word);
	nvmlReturn_t result = (nvmlReturn_t)call(name, a);
	printf("%s", ((const char *(*)(nvmlReturn_t))dlsym(library, "nvmlErrorString"))(result));
	for (int i = 0; i < n; i++) {
		if (result == NVML_SUCCESS)
			show(&a[i], &count);
		for (size_t g = 0; a[i].room != NULL && g < GUARD; g++)
			if (a[i].room[a[i].size + g] != FILL) {
				printf(", and wrote beyond argument %d", i);
				break;
			}
		free(a[i].room);
	}
	printf("\n");
}

int main(void) {
	char line[256];
	library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	if (library == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	while (fgets(line, sizeof line, stdin) != NULL) {
		line[strcspn(line, "\n")] = 0;
		perform(line);
	}
	return 0;
}
