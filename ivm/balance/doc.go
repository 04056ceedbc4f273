// Package balance divides the work of an IVM program over devices of unequal speed.
//
//   - Spawning is the paper's DS-LB (Listing 5-2a): the work is cut into portions, an element does
//     one and creates the next element on its device. Fast devices have more elements, one after
//     the other.
//   - Monitoring is the paper's OM-LB (Listing 5-2b): in each iteration all elements report how long
//     they took, and devices whose time is below a threshold times the least get one more, which
//     shares the device.
//   - Guided is ours, and has nothing to tune: one element a device takes pieces of the work, as
//     large as its measured speed says, and ever smaller towards the end, so that all end together.
//
// Each has a Root, which the program's first element calls, and a Child for the others. What they
// decide is in decide.go, without elements and without a clock, so that it can be tried in virtual
// time.
//
// The package knows elements and their memory, and nothing of what they compute.
package balance
