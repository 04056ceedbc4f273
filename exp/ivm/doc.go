// Package ivm reproduces the experiments of the dissertation's chapter on IVM: Figs. 5-5 and 5-6,
// the traffic that MapSubset saves, small inputs, and the cost of creating an element.
//
// Three nodes, each a process of this executable, have 3, 4 and 2 software GPUs with the relative
// speeds of Table 5-2. The programs are those of examples/ivm, each in a version with elements and
// one with MPI; all of them check their results. A software GPU with a rate takes as long for a
// kernel as its operations do at that rate, and sleeps for the rest of that time, so nine of them
// can work on two processors.
//
// The package starts programs and parses their output. It knows nothing about how elements share
// memory.
package ivm
