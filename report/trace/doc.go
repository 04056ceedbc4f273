// Package trace shows where a program's time went: of the records that the library and
// the node made of it (wire/timeline) it makes a timeline in the JSON that Perfetto and
// Chrome read, and the costliest things as sentences.
//
// All times become those of the program's clock. What a node noted is moved by the
// difference of the two clocks, as the round trips of the library's questions show it:
// the node answered somewhere between question and answer, so the shortest round trip of
// each stretch of time knows the difference best, to half of what it took. Where no
// difference at all explains every round trip, the two are one clock: the node is on the
// same machine.
//
// The package reads nothing and knows no node.
package trace
