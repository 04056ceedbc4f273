// Package whatifrun simulates a head's history in a process of its own, so that the simulation can
// neither slow the head down nor use up its memory: the process has one core at the lowest
// priority, limited memory, and limited processor time for each policy. The head starts it (Run)
// and hands over what it knows through a pipe; the process answers with lines (Serve).
//
// The input is a line with the order, a line for each ended job as it lies in the store, and a line
// that ends the list. Then the pipe stays open: when it is closed, the head has gone, and the
// process ends too. The output is a line for each Message.
package whatifrun
