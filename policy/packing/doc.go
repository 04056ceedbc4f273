// Package packing holds the policies of the paper on fragmentation gradient
// descent (FGD, USENIX ATC 2023): each waiting job is tried in order of
// submission and goes to the node, and the device, of the best score. They differ
// in the score alone: random, dot product, clustering, packing, best fit, and how
// much fragmentation the placement adds. Best fit and FGD can also be had on a
// cluster whose GPUs are decoupled from the nodes.
//
// docs/packing.md has the exact rules. The package knows nothing of traces and
// experiments; what is random comes from the seed that it is given.
package packing
