// A thread that makes the launches of one context, in order.
//
// Only one thread at a time may give it launches and read the answers (launcher.mu in Go). The
// driver does not know yet of a launch that was given: a thread that calls the driver itself must
// wait first (mcu_launcher_wait), or its call would overtake the launch.
#ifndef MUSTER_CUDA_LAUNCHER_H
#define MUSTER_CUDA_LAUNCHER_H

#include "driver.h"

enum {
	MCU_LAUNCHES = 128,       // launches that the queue holds
	MCU_LAUNCH_PARAMS = 4096, // most bytes of parameters of a launch
	MCU_LAUNCH_COUNT = 128,   // most parameters of a launch
};

typedef struct mcu_launcher mcu_launcher;

mcu_launcher *mcu_launcher_create(mcu_handle context); // NULL if no thread can be made
void mcu_launcher_destroy(mcu_launcher *launcher);     // waits until it has made all launches

// mcu_launcher_awake says whether the thread is polling for launches. mcu_launcher_rouse wakes it,
// which takes a while.
int mcu_launcher_awake(const mcu_launcher *launcher);
void mcu_launcher_rouse(mcu_launcher *launcher);

// mcu_launcher_give queues a launch with the arguments of mcu_launch; it waits while the queue is
// full. If the driver has refused launches, it queues nothing and returns 0 until
// mcu_launcher_refused is called: a new launch could overwrite an answer that was not read.
int mcu_launcher_give(mcu_launcher *launcher, mcu_handle stream, mcu_handle function, const mcu_shape *shape,
                      const char *params, size_t size, const uint32_t *offsets, size_t count);

// mcu_launcher_wait waits until at most left of the launches given so far are not made.
void mcu_launcher_wait(mcu_launcher *launcher, uint64_t left);

const uint64_t *mcu_launcher_done(const mcu_launcher *launcher); // counter of launches made; read it atomically
// mcu_launcher_refused returns how many launches the driver has refused since the last call. No
// launch may be pending.
uint64_t mcu_launcher_refused(mcu_launcher *launcher);
// mcu_launcher_answer returns the driver's answer to a launch, counted from 0. It must be made, and
// among the last MCU_LAUNCHES.
mcu_result mcu_launcher_answer(const mcu_launcher *launcher, uint64_t number);

// In driver.c, for this thread: make a context current, and launch in the current context.
mcu_result mcu_enter(mcu_handle context);
void mcu_leave(void);
mcu_result mcu_launch_here(mcu_handle stream, mcu_handle function, const mcu_shape *shape,
                           char *params, const uint32_t *offsets, size_t count);

#endif
