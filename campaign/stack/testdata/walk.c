// A random program: which calls it makes, with what, is decided by a seed, and never by
// time. Whatever it reads back goes into a checksum, which it prints now and then, so that
// two runs can be told apart from where they begin to differ.
//
//	walk SEED STEPS [BYTES [NAME [FILE]]]
//
// The rest changes nothing of what it prints. It holds so many BYTES beside all that; it
// saves its memory under the NAME now and then, spoils it, and takes it back; and where
// there is a FILE, it stops itself for somebody to save it, spoils its memory, and stops
// again for it to be restored.
#include "kernels.h"

#include <muster.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <unistd.h>

// stir(p, q, n): p[i] = (p[i] ^ q[i]) * 2654435761 + count. tick: count = count * 3 + 1.
// follow(p): **p += 1. say(v): prints it.
static const char walk_image[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);\n"
    ".visible .global .align 4 .u32 count = 7;\n"
    ".visible .global .align 8 .b8 table[4096];\n"
    ".global .align 1 .b8 format[9] = {115, 97, 105, 100, 32, 37, 117, 10, 0};\n"
    ".visible .entry stir(.param .u64 p, .param .u64 q, .param .u32 n) {\n"
    "  .reg .pred %k; .reg .b32 %r<9>; .reg .b64 %d<6>;\n"
    "  mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x; mad.lo.u32 %r3, %r0, %r1, %r2;\n"
    "  ld.param.u32 %r4, [n]; setp.ge.u32 %k, %r3, %r4; @%k bra end;\n"
    "  ld.param.u64 %d0, [p]; ld.param.u64 %d1, [q]; mul.wide.u32 %d2, %r3, 4; add.u64 %d3, %d0, %d2; add.u64 %d4, %d1, %d2;\n"
    "  ld.global.u32 %r5, [%d3]; ld.global.u32 %r6, [%d4]; xor.b32 %r5, %r5, %r6;\n"
    "  ld.global.u32 %r7, [count]; mad.lo.u32 %r5, %r5, 2654435761, %r7; st.global.u32 [%d3], %r5;\n"
    "end: ret;\n}\n"
    ".visible .entry tick() {\n"
    "  .reg .b32 %r; ld.global.u32 %r, [count]; mad.lo.u32 %r, %r, 3, 1; st.global.u32 [count], %r; ret;\n}\n"
    ".visible .entry follow(.param .u64 p) {\n"
    "  .reg .b32 %r; .reg .b64 %d<2>; ld.param.u64 %d0, [p]; ld.global.u64 %d1, [%d0];\n"
    "  ld.global.u32 %r, [%d1]; add.u32 %r, %r, 1; st.global.u32 [%d1], %r; ret;\n}\n"
    ".visible .entry say(.param .u32 v) {\n"
    "  .local .align 8 .b8 depot[8]; .reg .b32 %r<2>; .reg .b64 %d<3>;\n"
    "  ld.param.u32 %r0, [v]; mov.u64 %d0, depot; st.local.u32 [%d0], %r0; cvta.local.u64 %d1, %d0;\n"
    "  mov.u64 %d2, format; cvta.global.u64 %d2, %d2;\n"
    "  { .param .b64 f; st.param.b64 [f], %d2; .param .b64 a; st.param.b64 [a], %d1; .param .b32 r;\n"
    "    call.uni (r), vprintf, (f, a); ld.param.b32 %r1, [r]; }\n"
    "  ret;\n}\n";

enum { BLOCKS = 10, STREAMS = 4, MODULES = 2, PIECE = 1 << 20, MOST = 6 << 20, PINNED = 1 << 16, TABLE = 4096 };

static uint32_t chance, sum;
static bool waits_for_words; // because of which none of its kernels are mapped

static uint32_t draw(uint32_t below) {
	chance ^= chance << 13;
	chance ^= chance >> 17;
	chance ^= chance << 5;
	return chance % below;
}

static void hash(const void *data, size_t n) {
	const uint8_t *b = data;
	for (size_t i = 0; i < n; i++)
		sum = (sum ^ b[i]) * 16777619u;
}

static void hash_word(uint32_t w) { hash(&w, sizeof w); }

// What the program has on its device.
static struct { CUdeviceptr at; uint32_t words; } block[BLOCKS];
static size_t allocated;
static struct { CUmodule module; CUfunction stir, tick, follow, say; CUdeviceptr count, table; } loaded[MODULES];
static CUcontext context;
static CUfunction add, poke;
static CUstream stream[STREAMS]; // the first is the default one; NULL: none
static int current;
static CUevent begun, over;
static bool timed;
static uint8_t *pinned;
static struct { CUdeviceptr at; uint32_t value; } *held;
static uint32_t pieces;
static uint32_t buffer[MOST / 4];

static void launch(CUfunction f, uint32_t threads, void **args) {
	CHECK(cuLaunchKernel(f, (threads + 127) / 128, 1, 1, threads < 128 ? threads : 128, 1, 1, 0, stream[current], args, NULL));
}

static void add_to(CUdeviceptr p, uint32_t n, uint32_t v) { launch(add, n, (void *[]){&p, &n, &v}); }

static void load(int m) {
	size_t size;
	CHECK(cuModuleLoadData(&loaded[m].module, walk_image));
	CHECK(cuModuleGetFunction(&loaded[m].stir, loaded[m].module, "stir"));
	CHECK(cuModuleGetFunction(&loaded[m].tick, loaded[m].module, "tick"));
	CHECK(cuModuleGetFunction(&loaded[m].follow, loaded[m].module, "follow"));
	CHECK(cuModuleGetFunction(&loaded[m].say, loaded[m].module, "say"));
	CHECK(cuModuleGetGlobal(&loaded[m].count, &size, loaded[m].module, "count"));
	CHECK(cuModuleGetGlobal(&loaded[m].table, &size, loaded[m].module, "table"));
	NEED(size == TABLE);
}

static void start(void) {
	CUmodule module;
	CHECK(cuCtxCreate(&context, 0, 0));
	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&add, module, "add"));
	CHECK(cuModuleGetFunction(&poke, module, "poke"));
	load(0);
	CHECK(cuEventCreate(&begun, CU_EVENT_DEFAULT));
	CHECK(cuEventCreate(&over, CU_EVENT_DEFAULT));
	CHECK(cuMemHostAlloc((void **)&pinned, PINNED, 0));
	memset(pinned, 1, PINNED);
	for (uint32_t i = 0; i < pieces; i++) {
		CHECK(cuMemAlloc(&held[i].at, PIECE));
		CHECK(cuMemsetD32(held[i].at, i, PIECE / 4));
		held[i].value = i;
	}
}

// The context goes, with all that is in it.
static void finish(void) {
	cuCtxDestroy(context); // which may say what has failed
	memset(block, 0, sizeof block);
	memset(loaded, 0, sizeof loaded);
	memset(stream, 0, sizeof stream);
	allocated = 0;
	current = 0;
	timed = false;
}

// follow_to goes on in another stream, when the one before has come so far.
static void follow_to(int next) {
	if (next == current)
		return;
	if (draw(4) == 0) {
		CHECK(cuStreamSynchronize(stream[current]));
	} else {
		CUevent e;
		CHECK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
		CHECK(cuEventRecord(e, stream[current]));
		CHECK(cuStreamWaitEvent(stream[next], e, 0));
		if (draw(4) == 0)
			CHECK(cuEventSynchronize(e));
		CHECK(cuEventDestroy(e));
	}
	current = next;
}

static CUstream on(void) {
	int next = (int)draw(STREAMS);
	if (draw(6) == 0 && (next == 0 || stream[next] != NULL))
		follow_to(next);
	return stream[current];
}

static void streams(void) {
	int i = 1 + (int)draw(STREAMS - 1);
	if (stream[i] == NULL) {
		CHECK(cuStreamCreate(&stream[i], draw(2) ? CU_STREAM_NON_BLOCKING : CU_STREAM_DEFAULT));
		return;
	}
	if (i == current)
		follow_to(0);
	CHECK(cuStreamDestroy(stream[i]));
	stream[i] = NULL;
}

static void allocate(void) {
	int i = (int)draw(BLOCKS);
	uint32_t words = 4 + draw(draw(8) == 0 ? 500000 : 60000);
	if (block[i].at != 0 || allocated + 4ul * words > MOST) {
		if (block[i].at != 0) {
			CHECK(cuMemFree(block[i].at));
			allocated -= 4ul * block[i].words;
			block[i].at = 0;
		}
		return;
	}
	CHECK(cuMemAlloc(&block[i].at, 4ul * words));
	block[i].words = words;
	allocated += 4ul * words;
	CHECK(cuMemsetD32Async(block[i].at, draw(1000), words, on()));
}

// some chooses a part of a block, in words; false if the program has none there.
static bool some(int *i, uint32_t *at, uint32_t *n) {
	*i = (int)draw(BLOCKS);
	uint32_t from = draw(1 << 20), most = draw(3);
	if (block[*i].at == 0)
		return false;
	*at = from % block[*i].words;
	*n = block[*i].words - *at;
	if (most > 0 && *n > 3000)
		*n = 3000;
	return true;
}

static void copy_in(void) {
	int i;
	uint32_t at, n, x = draw(1u << 31);
	if (!some(&i, &at, &n))
		return;
	for (uint32_t k = 0; k < n; k++)
		buffer[k] = x = x * 1664525 + 1013904223;
	size_t odd = draw(4); // not all is a multiple of words
	CHECK(cuMemcpyHtoDAsync(block[i].at + 4ul * at + odd, (char *)buffer + odd, 4ul * n - odd, on()));
}

static void copy_out(void) {
	int i;
	uint32_t at, n;
	if (!some(&i, &at, &n))
		return;
	CUstream s = on();
	CHECK(cuMemcpyDtoHAsync(buffer, block[i].at + 4ul * at, 4ul * n, s));
	CHECK(cuStreamSynchronize(s));
	hash(buffer, 4ul * n);
}

static void copy_within(void) {
	int i, k;
	uint32_t at, n, from, m;
	if (!some(&i, &at, &n) || !some(&k, &from, &m) || i == k)
		return;
	CHECK(cuMemcpyDtoDAsync(block[i].at + 4ul * at, block[k].at + 4ul * from, 4ul * (n < m ? n : m), on()));
}

static void fill(void) {
	int i;
	uint32_t at, n;
	if (!some(&i, &at, &n))
		return;
	CUdeviceptr p = block[i].at + 4ul * at;
	uint32_t value = draw(1u << 31), odd = draw(4);
	switch (draw(7)) {
	case 0:
		CHECK(cuMemsetD32Async(p, value, n, on()));
		break;
	case 1:
		CHECK(cuMemsetD8Async(p + odd, (unsigned char)value, 4ul * n - 4, on()));
		break;
	case 2:
		CHECK(cuMemsetD16Async(p + odd / 2 * 2, (unsigned short)value, 2ul * n - 2, on()));
		break;
	case 3:
		if (n >= 64)
			CHECK(cuMemsetD2D32Async(p, 64, value, 1 + draw(16), n / 16, on()));
		break;
	case 4:
		if (n >= 64)
			CHECK(cuMemsetD2D16Async(p + 2, 62, (unsigned short)value, 1 + draw(31), n / 16, on()));
		break;
	case 5:
		if (n >= 64)
			CHECK(cuMemsetD2D8Async(p + odd, 61, (unsigned char)value, 1 + draw(61), n / 16, on()));
		break;
	case 6: // all of it, which is remembered
		CHECK(cuMemsetD32Async(block[i].at, value, block[i].words, on()));
	}
}

// A stream waits for a word that another one writes only later.
static void words(void) {
	static uint32_t round;
	int i;
	uint32_t at, n;
	if (!waits_for_words || !some(&i, &at, &n))
		return;
	CUstream s = on(), other;
	CUevent e;
	CUdeviceptr word = block[i].at + 4ul * at;
	round++;
	CHECK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	CHECK(cuStreamWriteValue32(s, word, 0, 0));
	CHECK(cuEventRecord(e, s));
	CHECK(cuStreamWaitEvent(other, e, 0));
	CHECK(cuStreamWaitValue32(s, word, round, CU_STREAM_WAIT_VALUE_EQ));
	CHECK(cuStreamWriteValue32(other, word, round, 0));
	CHECK(cuEventDestroy(e));
	CHECK(cuStreamDestroy(other));
}

static void compute(void) {
	int i, k, m = (int)draw(MODULES);
	uint32_t at, n, from, most;
	if (!some(&i, &at, &n))
		return;
	if (draw(3) == 0) {
		on();
		add_to(block[i].at + 4ul * at, n, draw(1000));
		return;
	}
	if (!some(&k, &from, &most) || i == k || loaded[m].module == NULL)
		return;
	on();
	if (draw(4) == 0)
		CHECK(cuLaunchKernel(loaded[m].tick, 1, 1, 1, 1, 1, 1, 0, stream[current], NULL, NULL));
	CUdeviceptr p = block[i].at + 4ul * at, q = block[k].at + 4ul * from;
	n = n < most ? n : most;
	launch(loaded[m].stir, n, (void *[]){&p, &q, &n});
}

static void follow_pointer(void) {
	int i, k;
	uint32_t at, n;
	if (!some(&i, &at, &n) || !some(&k, &at, &n) || i == k || block[i].words < 2)
		return;
	CUdeviceptr to = block[k].at + 4ul * at, p = block[i].at;
	CHECK(musterNested(p, &block[k].at, 1));
	CHECK(cuMemcpyHtoDAsync(p, &to, sizeof to, on()));
	launch(loaded[0].follow, 1, (void *[]){&p});
	// Addresses differ with what else the program has: none may be left where results are read.
	CHECK(cuMemsetD32Async(p, 0, 2, stream[current]));
	CHECK(musterNested(p, NULL, 0));
}

static void variables(void) {
	int m = (int)draw(MODULES);
	uint32_t at = draw(TABLE / 4), n = 1 + draw(TABLE / 4 - at), value = draw(1u << 31);
	if (loaded[m].module == NULL) {
		load(m);
		return;
	}
	CUstream s = on();
	switch (draw(5)) {
	case 0:
		CHECK(cuMemcpyDtoHAsync(buffer, loaded[m].table + 4ul * at, 4ul * n, s));
		CHECK(cuStreamSynchronize(s));
		hash(buffer, 4ul * n);
		break;
	case 1:
		CHECK(cuMemsetD32Async(loaded[m].table + 4ul * at, value, n, s));
		break;
	case 2:
		CHECK(cuMemcpyHtoDAsync(loaded[m].count, &value, 4, s));
		break;
	case 3:
		CHECK(cuMemcpyDtoHAsync(&value, loaded[m].count, 4, s));
		CHECK(cuStreamSynchronize(s));
		hash_word(value);
		break;
	case 4:
		if (m == 0)
			break;
		CHECK(cuModuleUnload(loaded[m].module));
		loaded[m].module = NULL;
	}
}

// What a function of the program's does to pinned memory.
struct change { uint32_t at, n; uint8_t key; };

static void CUDA_CB change(void *data) {
	struct change *c = data;
	for (uint32_t i = 0; i < c->n; i++)
		pinned[c->at + i] = (uint8_t)(pinned[c->at + i] * 5 + c->key);
	free(c);
}

static void use_pinned(void) {
	int i;
	uint32_t at, n, off = draw(PINNED);
	if (!some(&i, &at, &n))
		return;
	CUstream s = on();
	size_t bytes = 4ul * n < PINNED - off ? 4ul * n : PINNED - off;
	struct change *c;
	switch (draw(4)) {
	case 0:
		CHECK(cuMemcpyHtoDAsync(block[i].at + 4ul * at, pinned + off, bytes, s));
		break;
	case 1:
		CHECK(cuMemcpyDtoHAsync(pinned + off, block[i].at + 4ul * at, bytes, s));
		break;
	case 2:
		c = malloc(sizeof *c);
		*c = (struct change){off, (uint32_t)bytes, (uint8_t)draw(256)};
		CHECK(cuLaunchHostFunc(s, change, c));
		break;
	case 3:
		CHECK(cuStreamSynchronize(s));
		hash(pinned + off, bytes);
		memset(pinned + off, (int)draw(256), bytes / 2);
	}
}

static void CUDA_CB change_again(void *data) {
	const struct change *c = data;
	for (uint32_t i = 0; i < c->n; i++)
		pinned[c->at + i] = (uint8_t)(pinned[c->at + i] * 3 + c->key);
}

// A graph with two branches, and behind them copies through pinned memory that a function
// changes. It is launched a few times and ended without waiting.
static void graphs(void) {
	static struct change c; // launches follow each other, and the next graph waits for them
	int i, k;
	uint32_t at, n, from, most, off = draw(PINNED / 2), launches = 1 + draw(3), v = draw(1000);
	if (!some(&i, &at, &n) || !some(&k, &from, &most) || i == k)
		return;
	CHECK(cuCtxSynchronize());
	CUdeviceptr p = block[i].at + 4ul * at, q = block[k].at + 4ul * from;
	size_t bytes = 4ul * n < PINNED / 2 ? 4ul * n : PINNED / 2;
	c = (struct change){off, (uint32_t)bytes, (uint8_t)draw(256)};
	CUstream one, two;
	CUevent e;
	CUgraph g;
	CUgraphExec x;
	CHECK(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&two, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	CHECK(cuStreamBeginCapture(one, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK(cuEventRecord(e, one));
	CHECK(cuStreamWaitEvent(two, e, 0));
	CHECK(cuLaunchKernel(add, (n + 127) / 128, 1, 1, 128, 1, 1, 0, one, (void *[]){&p, &n, &v}, NULL));
	CHECK(cuLaunchKernel(add, (most + 127) / 128, 1, 1, 128, 1, 1, 0, two, (void *[]){&q, &most, &v}, NULL));
	CHECK(cuEventRecord(e, two));
	CHECK(cuStreamWaitEvent(one, e, 0));
	CHECK(cuMemcpyDtoHAsync(pinned + off, p, bytes, one));
	CHECK(cuLaunchHostFunc(one, change_again, &c));
	CHECK(cuMemcpyHtoDAsync(p, pinned + off, bytes, one));
	CHECK(cuStreamEndCapture(one, &g));
	CHECK(cuGraphInstantiateWithFlags(&x, g, 0));
	CHECK(cuGraphDestroy(g));
	while (launches-- > 0)
		CHECK(cuGraphLaunch(x, on()));
	CHECK(cuGraphExecDestroy(x));
	CHECK(cuEventDestroy(e));
	CHECK(cuStreamDestroy(one));
	CHECK(cuStreamDestroy(two));
}

static void times(void) {
	float took;
	switch (draw(3)) {
	case 0:
		CHECK(cuEventRecord(begun, on()));
		timed = false;
		break;
	case 1:
		CHECK(cuEventRecord(begun, on()));
		CHECK(cuEventRecord(over, on()));
		timed = true;
		break;
	case 2:
		if (!timed)
			break;
		CHECK(cuEventSynchronize(over));
		CHECK(cuEventElapsedTime(&took, begun, over));
		NEED(took >= 0);
	}
	CUresult result = cuStreamQuery(stream[current]);
	NEED(result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY);
}

static void say(void) {
	uint32_t v = draw(1000000);
	on();
	launch(loaded[0].say, 1, (void *[]){&v});
	CHECK(cuCtxSynchronize()); // where it is printed
}

// What must not be done, and does no harm.
static void wrong(void) {
	CUdeviceptr p;
	CUfunction f;
	hash_word((uint32_t)cuMemAlloc(&p, 1ul << 45));
	hash_word((uint32_t)cuModuleGetFunction(&f, loaded[0].module, "nothing"));
	if (block[0].at != 0)
		hash_word((uint32_t)cuMemFree(block[0].at + 1));
	hash_word((uint32_t)cuCtxSynchronize());
}

// A fault, which only another context helps against.
static void fault(void) {
	CUdeviceptr nowhere = 16;
	CHECK(cuCtxSynchronize());
	hash(pinned, PINNED);
	launch(poke, 1, (void *[]){&nowhere});
	NEED(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
	NEED(cuMemAlloc(&nowhere, 4) == CUDA_ERROR_ILLEGAL_ADDRESS);
	finish();
	start();
}

// spoil writes over all memory that musterRestore gives back, and waits.
static void spoil(void) {
	CHECK(cuCtxSynchronize());
	for (int i = 0; i < BLOCKS; i++)
		if (block[i].at != 0)
			CHECK(cuMemsetD32(block[i].at, 0xdeadbeef, block[i].words));
	for (uint32_t i = 0; i < pieces; i++)
		CHECK(cuMemsetD32(held[i].at, 0xdeadbeef, PIECE / 4));
	CHECK(cuCtxSynchronize());
}

static void go_back(const char *name) {
	CHECK(musterCheckpoint(name));
	spoil();
	CHECK(musterRestore(name));
}

static void be_restored(void) {
	CHECK(cuCtxSynchronize());
	raise(SIGSTOP);
	spoil();
	raise(SIGSTOP);
}

static void step(uint32_t number) {
	uint32_t n = draw(1000);
	if (pieces > 0 && number % 16 == 0) {
		uint32_t i = number / 16 % pieces;
		add_to(held[i].at, PIECE / 4, number);
		held[i].value += number;
	}
	if (n < 120)
		allocate();
	else if (n < 240)
		copy_in();
	else if (n < 340)
		copy_out();
	else if (n < 420)
		copy_within();
	else if (n < 500)
		fill();
	else if (n < 700)
		compute();
	else if (n < 720)
		graphs();
	else if (n < 750)
		follow_pointer();
	else if (n < 810)
		variables();
	else if (n < 900)
		use_pinned();
	else if (n < 930)
		streams();
	else if (n < 950)
		times();
	else if (n < 960)
		words();
	else if (n < 975)
		say();
	else if (n < 985)
		wrong();
	else if (n < 990)
		CHECK(musterSync());
	else if (n < 992 && getenv("WALK_WITHOUT_FAULTS") == NULL) // NVIDIA's driver makes no context in a process that had one
		fault();
	else
		CHECK(cuCtxSynchronize());
}

int main(int argc, char **argv) {
	if (argc < 3)
		return 2;
	uint32_t seed = (uint32_t)strtoul(argv[1], NULL, 0), steps = (uint32_t)strtoul(argv[2], NULL, 0);
	pieces = (uint32_t)(argc > 3 ? strtoul(argv[3], NULL, 0) / PIECE : 0);
	held = calloc(pieces + 1, sizeof *held);
	chance = seed * 2654435761u + 1;
	waits_for_words = seed % 3 == 0;
	CHECK(cuInit(0));
	start();
	for (uint32_t i = 1; i <= steps; i++) {
		step(i);
		if (argc > 4 && i % 600 == 150)
			go_back(argv[4]);
		if (argc > 5 && i % 5 == 0 && access(argv[5], F_OK) == 0)
			be_restored();
		if (i % 50 == 0) {
			printf("%u %08x\n", i, sum);
			fflush(stdout);
		}
	}
	CHECK(cuCtxSynchronize());
	hash(pinned, PINNED);
	for (int i = 0; i < BLOCKS; i++)
		if (block[i].at != 0) {
			CHECK(cuMemcpyDtoH(buffer, block[i].at, 4ul * block[i].words));
			hash(buffer, 4ul * block[i].words);
		}
	for (uint32_t i = 0; i < pieces; i++) {
		CHECK(cuMemcpyDtoH(buffer, held[i].at, PIECE));
		for (int k = 0; k < PIECE / 4; k++)
			NEED(buffer[k] == held[i].value);
	}
	printf("the sum is %08x\n", sum);
	return 0;
}
