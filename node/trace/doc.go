// Package trace shows where a program's time went. From the records of the library and the node
// (wire/timeline) it makes a timeline in the JSON that Perfetto and Chrome read, and describes the
// largest costs in sentences.
//
// All times are converted to the clock of the program. The difference between that clock and the
// node's is known from the round trips of the library's requests: the node answered between request
// and answer, so the shortest round trip in each period gives the best estimate, with an error of
// at most half of it. If no round trip contradicts a difference of zero, the two clocks are the
// same one: the node is on the same machine.
//
// The package reads no files and knows no node.
package trace
