// Package noderuntime reproduces the node experiments of the dissertation's
// chapter on its runtime: Figs. 3-7 to 3-13 (programs of one process) and 3-14
// to 3-21 (programs of several processes).
//
// Each measurement starts a node, or two, each of which is this very program in a process of its
// own, with software GPUs that are as fast, relative to each other, as those of the
// paper. The programs are those of examples/, each a process of its own that finds
// Muster's libcuda.so.1; those of several processes use MPI. All of them check
// what they computed. Times are measured, so they vary; what is drawn follows from
// the seed.
//
// Nothing here decides who gets a GPU: that is the node's, with the one exception
// of batch scheduling, which stands outside of it in the paper too.
//
// What was measured can be kept in a file and shown again. The test of the paper's
// statements runs on such a file.
package noderuntime
