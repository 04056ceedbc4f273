// libmuster-mpi.so: announces MPI collectives to Muster, in programs that know
// nothing of it. A rank that enters a collective waits for others, and its GPU
// may be lent to them meanwhile.
//
// It is loaded before the program's MPI (LD_PRELOAD, which `muster run --mpi`
// sets) and stands in for the collectives: each announces itself and calls the
// one of MPI's profiling interface. It is built without MPI's headers and works
// with any MPI whose calls follow the C calling convention: arguments, whatever
// they mean, are passed on as machine words.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef long word;
typedef int (*collective)(word, word, word, word, word, word, word, word, word, word);

// Looks for musterSync, which Muster's libcuda.so.1 has. Returns 0 if no libcuda is loaded yet, so
// that the caller looks again later; 1 if the search is over. *sync stays NULL if the program's
// libcuda is another one: then it has no GPU to lend.
static int look(void **sync) {
	*sync = dlsym(RTLD_DEFAULT, "musterSync");
	if (*sync)
		return 1;
	// The CUDA runtime may have loaded it with RTLD_LOCAL, where RTLD_DEFAULT does not find it.
	void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
	if (!library)
		return 0;
	*sync = dlsym(library, "musterSync");
	if (!*sync)
		dlclose(library);
	return 1;
}

// Tells Muster that the program is about to wait. The search takes longer than some collectives, so
// after 100 calls only every hundredth searches.
static void announce(void) {
	enum { OFTEN = 100 };
	static void *found;
	static int looked;
	static unsigned calls;
	if (!__atomic_load_n(&looked, __ATOMIC_ACQUIRE)) {
		unsigned call = __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
		void *sync;
		if ((call >= OFTEN && call % OFTEN != 0) || !look(&sync))
			return;
		__atomic_store_n(&found, sync, __ATOMIC_RELAXED);
		__atomic_store_n(&looked, 1, __ATOMIC_RELEASE);
	}
	void *at = __atomic_load_n(&found, __ATOMIC_RELAXED);
	if (at) {
		void (*sync)(void);
		*(void **)&sync = at;
		sync();
	}
}

static collective find(const char *name) {
	void *f = dlsym(RTLD_NEXT, name);
	if (!f) {
		fprintf(stderr, "muster: this MPI has no %s: run without --mpi\n", name);
		abort();
	}
	collective c;
	*(void **)&c = f;
	return c;
}

#define COLLECTIVE(name)                                                                                             \
	__attribute__((visibility("default"))) int MPI_##name(word a, word b, word c, word d, word e, word f, word g, \
							      word h, word i, word j);                                \
	int MPI_##name(word a, word b, word c, word d, word e, word f, word g, word h, word i, word j) {              \
		static collective next;                                                                               \
		collective n = __atomic_load_n(&next, __ATOMIC_ACQUIRE);                                              \
		if (!n) {                                                                                             \
			n = find("PMPI_" #name);                                                                      \
			__atomic_store_n(&next, n, __ATOMIC_RELEASE);                                                 \
		}                                                                                                     \
		announce();                                                                                           \
		return n(a, b, c, d, e, f, g, h, i, j);                                                               \
	}

COLLECTIVE(Barrier)
COLLECTIVE(Bcast)
COLLECTIVE(Gather)
COLLECTIVE(Gatherv)
COLLECTIVE(Scatter)
COLLECTIVE(Scatterv)
COLLECTIVE(Allgather)
COLLECTIVE(Allgatherv)
COLLECTIVE(Alltoall)
COLLECTIVE(Alltoallv)
COLLECTIVE(Alltoallw)
COLLECTIVE(Reduce)
COLLECTIVE(Allreduce)
COLLECTIVE(Reduce_scatter)
COLLECTIVE(Reduce_scatter_block)
COLLECTIVE(Scan)
COLLECTIVE(Exscan)
