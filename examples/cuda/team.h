// The processes of one job as a team: the first of them hands out work and collects what
// came of it. They find each other by what the agent of a node puts into the environment
// of a job's processes (MUSTER_JOB_ID, MUSTER_PROCID and so on). Without it, a program is
// a team of one.
//
// All nodes must be on this machine, as they are where a cluster is tried out on one: the
// processes meet at a socket in the folder of --team. So there is no network between nodes,
// and it is modelled: with --link, bytes that go to or from the first process over the port of
// its node take as long as a link of that bandwidth needs, and what passes the port of a
// node at the same time, also of other jobs, takes turns.
#ifndef TEAM_H
#define TEAM_H

#include "gpu.h"

extern int team_rank, team_count;

// The options of a team, to be put at the end of a program's own.
#define TEAM_OPTIONS                                                                              \
    {"link", "bytes a second between nodes; 0 for no limit", GPU_REAL, &team_link, false},         \
    {"team", "a folder of the machine in which processes of jobs meet, and keep the ports of nodes", GPU_WORD, &team_folder, false}
extern double team_link;
extern const char *team_folder;

// Meets the others, and chooses the device: the processes of a job on a node are dealt out to
// the devices that the job has there. Called before gpu_open.
void team_meet(void);

// The first process has a part for each, in the order of ranks, and each gets its own; and the
// way back.
void team_scatter(const void *parts, void *part, size_t bytes);
void team_gather(const void *part, void *parts, size_t bytes);

#endif
