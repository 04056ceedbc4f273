// Package noderuntime reproduces the node experiments of the dissertation's
// chapter on its runtime: Figs. 3-7 to 3-10 (programs of one process) and 3-14
// to 3-20 (programs of several processes).
//
// Each measurement is a real daemon with real workers on software GPUs that are
// as fast, relative to each other, as those of the paper. The programs are
// scripts of this process: clients of the daemon that allocate, copy, launch
// kernels, sleep where the paper's programs compute on the CPU, and check what
// they get back. Times are measured, so they vary; what is drawn follows from
// the seed.
//
// Nothing here decides who gets a GPU: that is the daemon's, with the one
// exception of batch scheduling, which stands outside of it in the paper too.
package noderuntime
