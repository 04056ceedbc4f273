// What the library knows of the node: a picture of its devices and of the programs
// on them, taken from the node's socket when it is asked for.
#ifndef MUSTER_NVML_NODE_H
#define MUSTER_NVML_NODE_H

#include <stdbool.h>
#include <stdint.h>

#define MAX_DEVICES 64
#define MAX_PROCESSES 1024

struct gpu {
	uint64_t memory; // that a program sees
	uint8_t uuid[16];
	unsigned int major, minor, clock, memory_clock, bus_width, ecc, bus; // clocks in kHz
	char name[96];
};

struct process {
	unsigned int gpu, pid;
	uint64_t memory, busy_ns;
	bool busy;
	char program[224];
};

struct picture {
	unsigned int cuda; // 13000
	uint64_t now_ns;   // the node's clock
	unsigned int gpus, processes;
	struct gpu gpu[MAX_DEVICES];
	struct process process[MAX_PROCESSES];
};

// picture_take asks the node, and returns within a few seconds whatever the other end
// does. It says false if no trusted node answers, or not as a node does.
bool picture_take(struct picture *p);

// picture_read reads what a node answered: text is NUL-terminated and is changed.
bool picture_read(struct picture *p, char *text);

#endif
