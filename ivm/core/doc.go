// Package core is what IVM decides, without any input or output: events go in, effects come out.
//
// # Copies
//
// A named object has one master copy, on the node of the element that allocated it, and a mirror
// copy on every other node that has mapped it. Elements write to the copy of their node without
// telling anybody, so nobody but the memory itself knows what has changed. Both sides therefore
// keep a second copy to compare with, a page at a time:
//
//   - A Mirror keeps the twin: what the master was known to contain. A put compares memory with
//     twin, byte by byte, and sends the bytes that differ. Two nodes that changed different bytes
//     of one page lose nothing, whatever ranges they named.
//   - A Master keeps the shadow: what it contained when it was last looked at, with a version a
//     page. A page that differs from its shadow gets the next version. A get names the versions
//     that the mirror has, and the pages with others are sent, whole.
//
// The versions are the directory: a chunk is valid at a mirror if the mirror has the master's
// version of it. vmm's directory has one writer a chunk, which announces its writes; here there
// are many, who do not, so marks alone do not do (docs/ivm.md).
//
// The driver owes a copy this: operations on the same page of one mirror do not overlap, from the
// request to the last byte of the answer, and those on one master are called one at a time.
//
// # The program
//
// Root is the state of one program, kept by the daemon of the node on which the program began:
// its nodes, elements, groups, names, and who waits for whom. It is told Events and returns
// Effects, to be performed in order. Whoever waits is always answered: with what was waited for,
// or with a Failure once that cannot come.
//
// The package knows no socket, no process, no clock and no lock.
package core
