// Package core has the decisions of IVM, without any input or output: events go in, effects come out.
//
// # Copies
//
// A named object has one master copy, on the node of the element that allocated it, and a mirror
// copy on every other node that has mapped it. Elements write to the copy of their node with ordinary
// stores, so only a comparison of the memory shows what has changed. Both sides therefore keep a
// second copy to compare with, a page at a time:
//
//   - A Mirror keeps the twin: the contents that the master is known to have. A put compares memory
//     with twin, byte by byte, and sends the bytes that differ. If two nodes change different bytes
//     of one page, no change is lost, whatever ranges they put.
//   - A Master keeps the shadow: its contents at the last comparison, with a version for each page. A
//     page that differs from its shadow gets the next version. A get carries the mirror's versions,
//     and the master sends the pages with other versions, whole.
//
// The versions are the directory: a chunk is valid at a mirror if the mirror has the master's
// version of it. vmm's directory has one writer for a chunk, which announces its writes. Here there
// are many writers that do not, so marks of validity are not enough (docs/ivm.md).
//
// The driver must serialise: operations on the same page of one mirror must not overlap, from the
// request to the last byte of the answer, and those on the same page of one master must be called
// one at a time.
//
// # The program
//
// Root is the state of one program, kept by the daemon of the node on which the program began:
// its nodes, elements, groups, names, and which elements wait for which. It takes Events and returns
// Effects, which the driver performs in order. Every wait is answered: with the event that it waits
// for, or with a Failure once that event cannot come.
//
// The package knows no socket, no process, no clock and no lock.
package core
