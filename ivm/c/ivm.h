/* IVM: elements on CPUs and GPUs of several nodes that share named objects. For C, C++ and CUDA.
 * Link with -lmuster-ivm; docs/ivm.md has the memory model and a tutorial.
 *
 * The names are those of the paper's 21 calls; those marked as additions are ours. All return
 * IVM_OK or an error; ivmLastError() says it in words. Threads may call at the same time. Pointers of an element on a GPU are device pointers, for kernels; ivmHost() is the
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
	IVM_ERROR_UNDONE = 101,    /* a balancer's work was not all acknowledged, exactly once */
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
typedef uint64_t ivm_request;

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
int ivmWaitLatest(ivm_pe element);      /* ivmWait; all signals of the element so far count as heard */
int ivmBarrier(void);                   /* of the caller's group: those that one call created */
int ivmGetMyNode(int *node);
int ivmGetMyDev(ivm_device *device);
/* All GPUs (IVM_GPU), or the CPUs of each node (IVM_CPU): COUNT of them, of which at most MOST are
 * written. On node 0 only. */
int ivmGetDevs(int type, ivm_device *devices, int most, int *count);
void *ivmHost(const void *memory);      /* the node's copy of an element on a GPU; NULL if it is none */
const char *ivmLastError(void);         /* of this thread */

/* Put of all bytes, also of those that have not changed here: others may have put something else. */
int ivmSyncOverwrite(void *memory, size_t size);

/* Put and get while the caller computes. The memory must not change, and after a get not be used,
 * before the request was waited for. Each is waited for once; Test says whether that would be at
 * once. An element on a GPU copies between the device and the node's copy in AsyncPut and AsyncWait. */
int ivmAsyncPut(void *memory, size_t size, ivm_request *request);
int ivmAsyncGet(void *memory, size_t size, ivm_request *request);
int ivmAsyncTest(ivm_request request, int *done);
int ivmAsyncWait(ivm_request request);

/* Load balancing. The first element calls a Root, all others the Child of the same name, and no
 * other elements are created meanwhile. Functions of the program return 0, or an error with which
 * Child, or Root, returns. They do not signal. Children put their own results, and acknowledge their
 * work: Root returns IVM_OK if all of it was acknowledged once.
 *
 * Spawning (DS-LB): an element computes one portion, has the next element created on its device,
 * and puts. EACH, if there is one, is called before each iteration, and after the last one. */
int ivmSpawningRoot(const ivm_device *devices, int count, int portions, int iterations, int (*each)(int iteration, void *context), void *context);
int ivmSpawningChild(int portions, int (*compute)(int portion, void *context), int (*put)(int portion, void *context), void *context);

/* Monitoring (OM-LB): after each iteration devices whose time is below THRESHOLD times the least get
 * one more element, up to MOST. */
int ivmMonitoringRoot(const ivm_device *devices, int count, int iterations, double threshold, int most);
int ivmMonitoringChild(int (*step)(int iteration, int part, int parts, void *context), void *context);

/* Guided (ours): one element a device does pieces of ITEMS, as large as its measured speed says. If
 * an element dies or leaves, others do its piece. */
int ivmGuidedRoot(const ivm_device *devices, int count, long items);
int ivmGuidedChild(int (*work)(long from, long to, void *context), void *context);

/* What the balancers decide, for programs that tell their elements themselves: the items of one of
 * several equal parts; whether Monitoring gives a device one more element, by its element's time and
 * the least of all; and Guided's pieces. GuideNext notes that a worker, from 0 on, has done its piece
 * in so many seconds, and returns 1 and the next piece, or 0 if there is none for it, or no such worker.
 * Each worker asks at the beginning, and when it is done with a piece, until there is none for it.
 * GuideLose forgets a worker and hands its piece out again: then those that got none must ask again.
 * GuideDone, to be asked when no worker has a piece, is IVM_OK if all items were handed out and done,
 * each once. GuideAgain hands out the same items once more, and still knows the speeds. GuideNew
 * returns NULL without memory. */
void ivmShare(long items, int part, int parts, long *from, long *to);
int ivmGrows(double time, double least, double threshold);
typedef struct ivm_guide ivm_guide;
ivm_guide *ivmGuideNew(long items, int workers);
int ivmGuideNext(ivm_guide *guide, int worker, double seconds, long *from, long *to);
void ivmGuideLose(ivm_guide *guide, int worker);
int ivmGuideDone(const ivm_guide *guide);
void ivmGuideAgain(ivm_guide *guide);
void ivmGuideFree(ivm_guide *guide);

#ifdef __cplusplus
}
#endif
#endif
