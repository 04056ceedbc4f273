// A thread that gives the driver the launches of one context, in their order.
//
// One thread at a time gives it launches and asks for the answers. A launch that was given has
// not happened yet: whoever calls the driver otherwise waits first (mcu_launcher_wait).
#ifndef MUSTER_CUDA_LAUNCHER_H
#define MUSTER_CUDA_LAUNCHER_H

#include "driver.h"

enum {
	MCU_LAUNCHES = 128,       // that it holds
	MCU_LAUNCH_PARAMS = 4096, // bytes that the parameters of each may take
	MCU_LAUNCH_COUNT = 128,   // parameters of each
};

typedef struct mcu_launcher mcu_launcher;

mcu_launcher *mcu_launcher_create(mcu_handle context); // NULL if there can be no thread
void mcu_launcher_destroy(mcu_launcher *launcher);     // when it has done all that it was given

// mcu_launcher_awake says whether the thread looks for launches, and mcu_launcher_rouse wakes it, which
// takes a while.
int mcu_launcher_awake(const mcu_launcher *launcher);
void mcu_launcher_rouse(mcu_launcher *launcher);

// mcu_launcher_give gives it a launch, as mcu_launch; it waits while there are too many. It takes
// none, and returns 0, if the driver has refused some (mcu_launcher_refused): answers must be read
// before they are written over.
int mcu_launcher_give(mcu_launcher *launcher, mcu_handle stream, mcu_handle function, const mcu_shape *shape,
                      const char *params, size_t size, const uint32_t *offsets, size_t count);

// mcu_launcher_wait waits until the driver has all launches but so many.
void mcu_launcher_wait(mcu_launcher *launcher, uint64_t left);

const uint64_t *mcu_launcher_done(const mcu_launcher *launcher); // how many launches the driver has
// mcu_launcher_refused is how many it has refused since it was last asked that. Nothing may be
// pending.
uint64_t mcu_launcher_refused(mcu_launcher *launcher);
// mcu_launcher_answer is the driver's answer to a launch, counted from 0, that is done and was
// among the last MCU_LAUNCHES.
mcu_result mcu_launcher_answer(const mcu_launcher *launcher, uint64_t number);

// Of driver.c, for this thread: to make a context current, and to launch within it.
mcu_result mcu_enter(mcu_handle context);
void mcu_leave(void);
mcu_result mcu_launch_here(mcu_handle stream, mcu_handle function, const mcu_shape *shape,
                           char *params, const uint32_t *offsets, size_t count);

#endif
