// Package whatifrun simulates a head's history in a process of its own, so that it can
// neither slow the head down nor take its memory: one core at the lowest priority, with a
// bound on memory, and on the processor's time for each policy. The head starts it (Run)
// and hands over what it knows through a pipe; the process answers with lines (Serve).
//
// What goes in is a line with the order, a line for each ended job as it lies in the
// store, and a line that says that this was all. Then the pipe stays open: when it ends,
// the head is gone, and the process ends too. What comes out is a line for each Message.
package whatifrun
