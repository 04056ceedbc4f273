// What the library knows of the node: a picture of its devices and of the programs on them, read from
// the node's socket on demand.
#ifndef MUSTER_NVML_NODE_H
#define MUSTER_NVML_NODE_H

#include <stdbool.h>
#include <stdint.h>

#define MAX_DEVICES 64
#define MAX_PROCESSES 1024

struct gpu {
	uint64_t memory; // bytes that a program sees
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
	unsigned int cuda; // version, such as 13000
	uint64_t now_ns;   // the node's clock
	unsigned int gpus, processes;
	struct gpu gpu[MAX_DEVICES];
	struct process process[MAX_PROCESSES];
};

// picture_take asks the node, and returns within a few seconds whatever the node does. It returns
// false if no trusted node answers, or the answer is malformed.
bool picture_take(struct picture *p);

// picture_read parses a node's answer; text is NUL-terminated, and parsing changes it.
bool picture_read(struct picture *p, char *text);

#endif
