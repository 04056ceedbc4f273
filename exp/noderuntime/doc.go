// Package noderuntime reproduces the node experiments of the dissertation's chapter on its runtime:
// Figs. 3-7 to 3-13 (single-process programs) and 3-14 to 3-21 (multi-process programs).
//
// Each measurement starts one or two nodes, each a process of this executable, with software GPUs
// that have the relative speeds of the paper's. The programs are those of examples/, each a process
// that loads Muster's libcuda.so.1; the multi-process ones use MPI. All of them check their
// results. Times are measured, so they vary; random choices follow from the seed.
//
// Nothing here decides which client gets a GPU: the node does. The one exception is batch
// scheduling, which is outside the node in the paper, too.
//
// The measurements can be stored in a file and shown again. The test of the paper's statements uses
// such a file.
package noderuntime
