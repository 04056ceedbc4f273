// Package timeline is how the parts of Muster record where a program's time went: records of 64
// bytes, and the files in which the library in the program keeps them while it is traced
// (shim/lib/transport/watch.c). It draws nothing: node/trace does.
//
// A record is a span of time of one kind. Times are nanoseconds of CLOCK_MONOTONIC on the machine
// that wrote it; clock records, which the library makes from its requests to the node, say how the
// two clocks compare. Names are recorded once, in records of their own, under a number: for the
// library's functions a number that it chooses, for everything else the FNV-1a hash of the name, so
// that several workers of a client agree without talking.
//
// A file has a head, sums for each function of the library, and three regions of records: calls,
// what the node did, and names. The sums are exact whatever happens. Calls and the node's records
// fill the first half of their region and then go round in the second, so that a file never grows
// and keeps the beginning and the end. A process may be killed at any instruction: a record that is
// being written has mark 0, and the mark of a complete one says how many came before it.
//
// All numbers are little-endian:
//
//	record   mark u64, begin i64, end i64, bytes u64, name u32, row u32, kind u16,
//	         source u16, first u32, last u32, waited u32, kernel u32, result u32
//	name     mark u64, name u32, part u32, 24 bytes of text, kind u16, source u16,
//	         20 more bytes of text
package timeline
