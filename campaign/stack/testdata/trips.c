// Does one kind of thing a number of times: trips WHAT N. Muster counts how often that waits
// for the node.
#include "kernels.h"

enum { SIZE = 1 << 16 };

static CUdeviceptr words;
static CUfunction add;
static CUstream stream;
static CUevent event;
static unsigned char *pinned, pageable[SIZE];

static void launch(void) {
	unsigned n = 64, v = 1;
	void *args[] = {&words, &n, &v};
	CHECK(cuLaunchKernel(add, 1, 1, 1, 64, 1, 1, 0, stream, args, NULL));
}

static void in(void) {
	CHECK(cuMemcpyHtoD(words, pageable, 4));
	CHECK(cuMemcpyHtoD(words, pageable, SIZE));
	CHECK(cuMemcpyHtoDAsync(words, pinned, SIZE, stream));
}

static void within(void) {
	CHECK(cuMemsetD32Async(words, 1, SIZE / 4, stream));
	CHECK(cuMemcpyDtoDAsync(words, words + SIZE / 2, SIZE / 2, stream));
}

static void events(void) {
	CHECK(cuEventRecord(event, stream));
	CHECK(cuStreamWaitEvent(NULL, event, 0));
}

static void objects(void) {
	CUstream s;
	CUevent e;
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&e, 0));
	CHECK(cuEventDestroy(e));
	CHECK(cuStreamDestroy(s));
}

static void questions(void) {
	int blocks = 0, value = 0;
	size_t shared = 0;
	CHECK(cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 64, 0));
	NEED(blocks > 0);
	CHECK(cuOccupancyAvailableDynamicSMemPerBlock(&shared, add, blocks, 64));
	CHECK(cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, add));
}

static void out_later(void) { CHECK(cuMemcpyDtoHAsync(pinned, words, 4096, stream)); }

static void out(void) { CHECK(cuMemcpyDtoH(pageable, words, 4)); }

static void wait(void) {
	launch();
	CHECK(cuStreamSynchronize(stream));
}

// Nothing was sent since the stream was last seen to be idle.
static void again(void) {
	CHECK(cuStreamSynchronize(stream));
	CHECK(cuStreamQuery(stream));
}

static void all_again(void) {
	CHECK(cuEventRecord(event, stream));
	for (int i = 0; i < 3; i++) {
		CHECK(cuCtxSynchronize());
		CHECK(cuStreamQuery(stream));
		CHECK(cuEventQuery(event));
		CHECK(cuEventSynchronize(event));
	}
}

// The stream was waited for since, or a later event was, whatever else was sent.
static void events_known(void) {
	CUevent later;
	CHECK(cuEventCreate(&later, 0));
	CHECK(cuEventRecord(event, stream));
	launch();
	CHECK(cuEventRecord(later, stream));
	CHECK(cuEventSynchronize(later));
	launch();
	CHECK(cuEventQuery(event));
	CHECK(cuEventSynchronize(event));
	CHECK(cuEventQuery(later));
	CHECK(cuEventDestroy(later));
}

// A result in memory that is not pinned, and what programs do to be sure that it is there.
static void item(void) {
	launch();
	CHECK(cuMemcpyDtoHAsync(pageable, words, 4, stream));
	CHECK(cuStreamSynchronize(stream));
}

// What a program does that trains: data in, many kernels, events, and one result that it waits
// for.
static void step(void) {
	in();
	for (int i = 0; i < 20; i++) {
		questions();
		launch();
		events();
	}
	within();
	CHECK(cuMemcpyDtoHAsync(pinned, words, 4, stream));
	CHECK(cuStreamSynchronize(stream));
}

static const struct {
	const char *name;
	void (*run)(void);
} kinds[] = {
	{"launch", launch}, {"in", in}, {"within", within}, {"events", events}, {"objects", objects}, {"questions", questions},
	{"out-later", out_later}, {"out", out}, {"wait", wait}, {"again", again}, {"all-again", all_again}, {"events-known", events_known}, {"item", item}, {"step", step},
};

int main(int argc, char **argv) {
	CUdevice device;
	CUcontext context;
	CUmodule module;
	NEED(argc == 3);
	CHECK(cuInit(0));
	CHECK(cuDeviceGet(&device, 0));
	CHECK(cuCtxCreate(&context, 0, device));
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&add, module, "add"));
	CHECK(cuMemAlloc(&words, SIZE));
	CHECK(cuMemAllocHost((void **)&pinned, SIZE));
	CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&event, 0));
	for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
		if (strcmp(argv[1], kinds[k].name) == 0) {
			for (int i = atoi(argv[2]); i > 0; i--)
				kinds[k].run();
			CHECK(cuCtxSynchronize());
			return 0;
		}
	NEED(!"a kind that there is");
}
