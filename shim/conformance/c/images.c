// Cases of broken images, and of links of several; see cases.c.
//
//   images [NAME...]   all that were recorded, or those named
//   images --list      their names
//   images --rest      cases that were not recorded: calls that crash NVIDIA's driver, and what came behind them
#include <cuda.h>
#include <elf.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

CUresult CUDAAPI cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device);

static const char *name_of(CUresult r) {
	const char *name = NULL;
	if (cuGetErrorName(r, &name) != CUDA_SUCCESS || name == NULL)
		return "?";
	return strncmp(name, "CUDA_", 5) == 0 ? name + 5 : name;
}

static CUresult tell(CUresult r) {
	printf(" = %s\n", name_of(r));
	fflush(stdout);
	return r;
}

#define T(call) (printf("%s", #call), fflush(stdout), tell(call))
#define ON_GPUS(call) (printf("~ "), T(call))
#define SHOW(format, ...) printf("  " format "\n", __VA_ARGS__)
#define LENGTH(a) (sizeof(a) / sizeof *(a))
#define HEAD ".version 7.0\n.target sm_70\n.address_size 64\n"

static CUcontext context;
static CUmodule m;

static void begin(void) {
	if (cuInit(0) != CUDA_SUCCESS || cuCtxCreate_v2(&context, 0, 0) != CUDA_SUCCESS)
		printf("no context\n");
}

// Images as text, and none at all.
static void texts(void) {
	begin();
	T(cuModuleLoadData(&m, NULL));
	T(cuModuleLoadData(NULL, HEAD));
	T(cuModuleLoadData(&m, ""));
	T(cuModuleLoadData(&m, "garbage"));
	T(cuModuleLoadData(&m, "\1\2\3\4\5\6\7\10"));
	T(cuModuleLoadData(&m, HEAD));
	T(cuModuleLoadData(&m, HEAD "nonsense"));
	T(cuModuleLoadData(&m, HEAD ".visible .entry k() { nonsense.u32; }\n"));
	T(cuModuleLoadData(&m, HEAD ".visible .entry k() { mov.u32 %r, %q; }\n"));
	T(cuModuleLoadData(&m, HEAD ".visible .entry k() {"));
	T(cuModuleLoadData(&m, HEAD ".extern .func f();\n.visible .entry k() { call.uni f, (); ret; }\n"));
	T(cuModuleLoadData(&m, ".version 99.0\n.target sm_70\n.address_size 64\n"));
	T(cuModuleLoadData(&m, ".target sm_70\n.address_size 64\n"));
	T(cuModuleLoadFatBinary(&m, NULL));
	T(cuModuleLoadFatBinary(&m, "garbage"));
	T(cuModuleLoadDataEx(&m, NULL, 0, NULL, NULL));
}

static char path[] = "/tmp/muster-images-XXXXXX";

// Loads some bytes as a file, whose end is known.
static void load_file(const char *what, const void *data, size_t size) {
	int file = mkstemp(path);
	if (file < 0 || write(file, data, size) != (ssize_t)size)
		printf("no file\n");
	close(file);
	printf("%s", what);
	tell(cuModuleLoad(&m, path));
	unlink(path);
	memcpy(path + sizeof path - 7, "XXXXXX", 6);
}

// Cubins: what is no ELF file of a GPU's, or only half of one.
static void cubins(void) {
	struct { Elf64_Ehdr head; char rest[256]; } image;
	begin();
	memset(&image, 0, sizeof image);
	memcpy(image.head.e_ident, ELFMAG, SELFMAG);
	load_file("four bytes", &image, 4);
	load_file("half a header", &image, 32);
	image.head.e_ident[EI_CLASS] = ELFCLASS64;
	image.head.e_ident[EI_DATA] = ELFDATA2LSB;
	image.head.e_ident[EI_VERSION] = EV_CURRENT;
	image.head.e_version = EV_CURRENT;
	image.head.e_type = ET_EXEC;
	image.head.e_ehsize = sizeof image.head;
	image.head.e_machine = EM_X86_64;
	load_file("of a host", &image, sizeof image);
	T(cuModuleLoadData(&m, &image));
	image.head.e_machine = 190; // EM_CUDA
	image.head.e_shoff = 1 << 20;
	image.head.e_shnum = 3;
	image.head.e_shentsize = sizeof(Elf64_Shdr);
	load_file("cut short", &image, sizeof image);
	image.head.e_ident[EI_CLASS] = ELFCLASS32;
	load_file("of 32 bits", &image, sizeof image);
}

// Fat binaries without what the GPU could use.
static void fat_binaries(void) {
	struct { uint32_t magic; uint16_t version, header; uint64_t size; char rest[64]; } image = {0xba55ed50u, 1, 16, 0, {0}};
	begin();
	T(cuModuleLoadData(&m, &image));
}

static void fat_binaries_rest(void) {
	struct { uint32_t magic; uint16_t version, header; uint64_t size; char rest[64]; } image = {0xba55ed50u, 1, 16, 0, {0}};
	struct { uint32_t magic, version; const void *data, *more; } wrapper = {0x466243b1u, 1, NULL, NULL};
	begin();
	image.size = 1 << 20;
	load_file("cut short", &image, sizeof image);
	image.size = 64;
	load_file("of nothing", &image, sizeof image);
	image.magic ^= 1;
	T(cuModuleLoadData(&m, &image));
	T(cuModuleLoadData(&m, &wrapper));
	wrapper.data = "garbage";
	T(cuModuleLoadData(&m, &wrapper));
	wrapper.data = HEAD;
	T(cuModuleLoadData(&m, &wrapper));
}

#define ADD(link, text, name) T(cuLinkAddData(link, CU_JIT_INPUT_PTX, (void *)(text), sizeof(text), name, 0, NULL, NULL))

static const char caller[] = HEAD ".extern .func f();\n.visible .entry k() { call.uni f, (); ret; }\n";
static const char callee[] = HEAD ".visible .func f() { ret; }\n";
static const char weak[] = HEAD ".weak .func f() { ret; }\n";
static const char wrong[] = HEAD "nonsense";
static const char newer[] = ".version 99.0\n.target sm_70\n.address_size 64\n";

static void links(void) {
	CUlinkState s;
	void *image = NULL;
	size_t size = 0;
	CUfunction f;
	begin();
	T(cuLinkCreate(0, NULL, NULL, &s));
	ADD(s, caller, "caller");
	ADD(s, callee, "callee");
	T(cuLinkComplete(s, &image, &size));
	SHOW("%d %d", image != NULL, size > 0);
	T(cuModuleLoadData(&m, image));
	T(cuModuleGetFunction(&f, m, "k"));
	T(cuLinkDestroy(s));
	T(cuLinkCreate(0, NULL, NULL, &s));
	ADD(s, weak, "weak");
	ADD(s, callee, "callee");
	ADD(s, weak, "weak");
	T(cuLinkComplete(s, &image, &size));
	T(cuLinkDestroy(s));
	T(cuLinkCreate(0, NULL, NULL, &s));
	T(cuLinkComplete(s, &image, &size));
	T(cuModuleLoadData(&m, image));
	T(cuLinkDestroy(s));
}

static void links_that_fail(void) {
	CUlinkState s;
	void *image = NULL;
	size_t size = 0;
	begin();
	T(cuLinkCreate(0, NULL, NULL, &s));
	ADD(s, wrong, "wrong");
	ADD(s, newer, "newer");
	T(cuLinkAddData(s, CU_JIT_INPUT_PTX, NULL, 4, "nothing", 0, NULL, NULL));
	T(cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)callee, 0, "nothing", 0, NULL, NULL));
	T(cuLinkAddData(s, (CUjitInputType)77, (void *)callee, sizeof callee, "kind", 0, NULL, NULL));
	T(cuLinkAddFile(s, CU_JIT_INPUT_PTX, "/nonexistent", 0, NULL, NULL));
	T(cuLinkComplete(s, NULL, &size));
	T(cuLinkDestroy(s));
	T(cuLinkCreate(0, NULL, NULL, &s));
	ADD(s, caller, "caller");
	ON_GPUS(cuLinkComplete(s, &image, &size)); // f is nowhere
	T(cuLinkDestroy(s));
	T(cuLinkCreate(0, NULL, NULL, &s));
	ADD(s, callee, "one");
	cuLinkAddData(s, CU_JIT_INPUT_PTX, (void *)callee, sizeof callee, "two", 0, NULL, NULL); // f is twice; the driver says so here already
	T(cuLinkComplete(s, &image, &size));
	T(cuLinkDestroy(s));
}

static const struct test_case cases[] = {CASE(texts), CASE(cubins), CASE(fat_binaries), CASE(links), CASE(links_that_fail), REST(fat_binaries_rest)};

int main(int argc, char **argv) { return run_cases(cases, LENGTH(cases), argc, argv); }
