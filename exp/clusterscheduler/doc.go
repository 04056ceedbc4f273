// Package clusterscheduler reproduces the experiments of the dissertation's chapter on its
// cluster scheduler: Figs. 4-2 to 4-5 with the clusters of Tables 4-3 and 4-4 and the jobs of
// Table 4-5.
//
// Each measurement starts a cluster on this machine: a head and nodes, all of them this very
// program in processes of their own, with software GPUs that are as fast, relative to each
// other, as those of the paper. The jobs are submitted to the head as a user would. Their
// programs are those of examples/cuda: each process is one of the operating system's, finds
// Muster's libcuda.so.1, and checks what it computed. Times are the head's.
//
// Nothing here decides where a job runs: the policy of the head does. The same policy then
// decides in the simulator, on the same jobs and cluster, with what the programs were seen to
// need alone; how far that is from what was measured is part of the result.
//
// What was measured can be kept in a file and shown again. The test of the paper's
// statements runs on such a file.
package clusterscheduler
