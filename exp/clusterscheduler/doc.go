// Package clusterscheduler reproduces the experiments of the dissertation's chapter on its cluster
// scheduler: Figs. 4-2 to 4-5 with the clusters of Tables 4-3 and 4-4 and the jobs of Table 4-5.
//
// Each measurement starts a cluster on this machine: a head and nodes, each a process of this
// executable, with software GPUs that have the relative speeds of the paper's. The jobs are
// submitted to the head as a user would submit them. Their programs are those of examples/cuda;
// each process loads Muster's libcuda.so.1 and checks its results. Times are the head's.
//
// Nothing here decides where a job runs: the head's policy does. Then the same policy decides in
// the simulator, on the same jobs and cluster, with a profile of the programs measured alone. The
// difference between prediction and measurement is part of the result.
//
// The measurements can be stored in a file and shown again. The test of the paper's statements uses
// such a file.
package clusterscheduler
