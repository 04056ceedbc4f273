// Package programs saves whole programs and restores them: their processes with CRIU,
// and the GPU's side of each of their clients with the node that serves it. It also tells
// with which arguments programs of this machine were started.
//
// Saving goes in this order. The node holds the clients of the program's processes: they
// leave their devices, their state and memory are written, and their workers read no
// more messages. CRIU stops the processes and writes them. While they are stopped the
// memory that each shares with its worker is written (Hook), and then the processes go
// on, with what they had. Whatever fails, the processes go on and the node lets the
// clients go: closing the connections to the node does that, even if this process is
// killed.
//
// Restoring goes the other way. The node makes a client of each file, with new shared
// memory and one end of a connection, and holds it. CRIU recreates the processes, with
// these descriptors in place of those that they had. Then the clients are let go.
//
// The node that restores need not be the one that saved, nor the same machine. CRIU
// needs root. If CRIU cannot save something, its reason is passed on.
package programs
