// Package programs saves whole programs and restores them: their processes with CRIU,
// and the GPU's side of each of their clients with the node that serves it.
//
// Saving goes in this order. The clients of the program's processes are held by their
// node: they leave their devices, their state and memory are written, and no message of
// theirs is read any more. CRIU stops the processes and writes them. While they are
// stopped the memory that each shares with its worker is written (Hook), and then the
// processes go on, with what they had. Whatever fails, at whatever point, the processes
// go on and the clients are let go: closing the connections to the node does that.
//
// Restoring goes the other way. The node makes a client of each file, with new shared
// memory and one end of a connection, and holds it. CRIU makes the processes again, with
// these descriptors in the place of those that they had. Then the clients are let go.
//
// The node that restores need not be the one that saved, nor the same machine. CRIU
// needs root. What it cannot save it says, and that is passed on.
package programs
