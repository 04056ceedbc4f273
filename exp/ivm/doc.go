// Package ivm reproduces the experiments of the dissertation's chapter on IVM: Figs. 5-5 and 5-6, the traffic that
// MapSubset saves, small inputs, and what creating an element costs.
//
// Three nodes, each this very program in a process of its own, have 3, 4 and 2 software GPUs that are as fast,
// relative to each other, as those of Table 5-2. The programs are those of examples/ivm, once with elements and
// once with MPI; all of them check what they computed. A software GPU with a rate takes as long for a kernel as
// its operations at that rate, and sleeps what is left of it, so nine of them can be at work on two processors.
//
// The package starts programs and reads what they print. It knows nothing of how elements share memory.
package ivm
