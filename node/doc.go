// Package node is the daemon of a machine with GPUs: it accepts programs,
// checks and limits them, gives each a worker process, and performs what the
// dispatcher in node/vgpu decides.
//
// One goroutine, the loop, owns the dispatcher and all that is known of
// clients; the others only carry messages to and from it. The daemon opens no
// contexts and sees none of the programs' data: those go through memory that
// program and worker share. It knows no job policy.
package node
