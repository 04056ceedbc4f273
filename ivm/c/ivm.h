/* IVM: elements on CPUs and GPUs of several nodes that share named objects. For C, C++ and CUDA.
 * Link with -lmuster-ivm; docs/ivm.md has the memory model and a tutorial.
 *
 * The names are those of the paper's 21 calls; those marked as additions are ours. All return
 * IVM_OK or an error; ivmLastError() says it in words. Calls of several threads are done one after
 * the other. Pointers of an element on a GPU are device pointers, for kernels; ivmHost() is the
 * node's copy of the same bytes. */
#ifndef MUSTER_IVM_H
#define MUSTER_IVM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ivm_result {
	IVM_OK = 0,
	IVM_ERROR_INVALID = 1,     /* the call makes no sense */
	IVM_ERROR_NO_OBJECT = 2,   /* there is no object of that name */
	IVM_ERROR_TAKEN = 3,       /* there is one already */
	IVM_ERROR_DEAD = 4,        /* an element that was waited for has died */
	IVM_ERROR_LOST = 5,        /* a node that is needed is lost */
	IVM_ERROR_FREED = 6,       /* the object was freed */
	IVM_ERROR_REFUSED = 7,     /* the node may not, or cannot, do it */
	IVM_ERROR_OVER = 8,        /* the program is over, or the node is */
	IVM_ERROR_NO_MEMORY = 9,   /* there is no room */
	IVM_ERROR_NO_ELEMENT = 10, /* there is no element of that number */
	IVM_ERROR_CUDA = 100,      /* the GPU, or its library, failed */
};

/* What elements run on. IVM_GPU is any GPU; IVM_GPU_N(2) is the third of its node. */
enum ivm_type { IVM_CPU = 0, IVM_GPU = 1, IVM_GPU_0 = 16, IVM_GPU_1, IVM_GPU_2, IVM_GPU_3, IVM_GPU_4, IVM_GPU_5, IVM_GPU_6, IVM_GPU_7 };
#define IVM_GPU_N(n) (IVM_GPU_0 + (n))

/* Any node. Node 0 is the one on which the program began, the others are as --nodes names them. */
#define IVM_ANY_NODE (-1)

typedef struct ivm_device {
	int node;
	int type;
} ivm_device;

typedef uint64_t ivm_pe;

/* Initialisation and finalisation */
int ivmEnter(void);
int ivmExit(void);

/* Devices */
int ivmCreateDev(int node, int type, ivm_device *device);
int ivmDestroyDev(ivm_device device);

/* Elements. Wait hears each signal of an element once, and then its end. */
int ivmCreatePEs(ivm_device device, int count, ivm_pe *elements);
int ivmKillPEs(ivm_device device, int count, const ivm_pe *elements);
int ivmGetMyId(int *id);
int ivmGetMyGroupId(int *group);
int ivmGetMyDevType(int *type); /* IVM_CPU or IVM_GPU */
int ivmSetMaxPesId(int most);
int ivmWait(ivm_pe element);
int ivmSignal(void);

/* Memory. POINTER is the address of a pointer, as of int *v: ivmMalloc("v", &v, size). */
int ivmMalloc(const char *name, void *pointer, size_t size);
int ivmFree(void *memory);
int ivmMap(const char *name, void *pointer, size_t size); /* all of the object, which has at least SIZE bytes */
int ivmMapSubset(const char *name, void *pointer, size_t offset, size_t size);
int ivmUnmap(void *memory);
int ivmSyncPut(void *memory, size_t size); /* mirror to master */
int ivmSyncGet(void *memory, size_t size); /* master to mirror */
int ivmSyncPutGroup(void *const *memory, const size_t *sizes, int count); /* master to all mirrors */
int ivmSyncGetGroup(void *const *memory, const size_t *sizes, int count); /* all mirrors to master */

/* Additions */
int ivmCreated(void);                   /* elements that the last ivmCreatePEs of this thread created */
int ivmWaitAny(ivm_pe *element);        /* the next signal or end of any other element */
int ivmBarrier(void);                   /* of the caller's group: those that one call created */
int ivmGetMyNode(int *node);
void *ivmHost(const void *memory);      /* the node's copy of an element on a GPU; NULL if it is none */
const char *ivmLastError(void);         /* of this thread */

#ifdef __cplusplus
}
#endif
#endif
