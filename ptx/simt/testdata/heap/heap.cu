// Kernels that allocate memory. heap.ptx is made of them with
//
//	clang-14 -x cuda --cuda-device-only --cuda-gpu-arch=sm_70 -nocudainc -nocudalib -fms-extensions \
//	  -std=c++17 -Xclang -target-feature -Xclang +ptx65 -O2 -S heap.cu -o heap.ptx
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))

extern "C" __device__ void *malloc(unsigned long size);
extern "C" __device__ void free(void *memory);

static __device__ unsigned number() {
	return __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
}

// A block holds its owner's number, its size in words, and numbers made from both.
static __device__ void fill(unsigned *p, unsigned owner, unsigned words) {
	p[0] = owner;
	p[1] = words;
	for (unsigned i = 2; i < words; i++)
		p[i] = owner * 31 + i;
}

static __device__ bool right(unsigned *p, unsigned owner) {
	if (p[0] != owner)
		return false;
	for (unsigned i = 2, words = p[1]; i < words; i++)
		if (p[i] != owner * 31 + i)
			return false;
	return true;
}

// Each thread has 8 slots, and allocates or frees what one of them holds, at random.
extern "C" __global__ void churn(unsigned **kept, unsigned *wrong, unsigned *full, unsigned steps, unsigned seed) {
	unsigned x = seed ^ number() * 2654435761u;
	for (unsigned s = 0; s < steps; s++) {
		x = x * 1664525u + 1013904223u;
		unsigned owner = number() * 8 + (x >> 29), words = 2 + (x >> 8) % 60;
		unsigned *p = kept[owner];
		if (p) {
			if (!right(p, owner))
				__nvvm_atom_add_gen_i((int *)wrong, 1);
			free(p);
			kept[owner] = 0;
			continue;
		}
		p = (unsigned *)malloc(4 * words);
		if (p)
			fill(p, owner, words);
		else
			__nvvm_atom_add_gen_i((int *)full, 1);
		kept[owner] = p;
	}
}

// Frees what other threads have allocated, in another kernel.
extern "C" __global__ void clear(unsigned **kept, unsigned *wrong) {
	for (unsigned i = 0; i < 8; i++) {
		unsigned owner = number() * 8 + i;
		if (kept[owner] && !right(kept[owner], owner))
			__nvvm_atom_add_gen_i((int *)wrong, 1);
		free(kept[owner]);
		kept[owner] = 0;
	}
}

// What malloc returns for sizes that a program chooses, one a thread, without freeing any.
extern "C" __global__ void sizes(unsigned long *got, const unsigned long *size) {
	got[number()] = (unsigned long)malloc(size[number()]);
}

// Frees addresses that a program chooses.
extern "C" __global__ void release(unsigned long *which) {
	free((void *)which[number()]);
}
