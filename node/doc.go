// Package node is the daemon of a machine with GPUs: it accepts programs,
// checks and limits them, gives each a worker process, and performs what the
// dispatcher in node/vgpu decides.
//
// One goroutine, the loop, owns the dispatcher and all that is known of
// clients; the others only carry messages to and from it. The daemon opens no
// contexts and sees none of the programs' data: those go through memory that
// program and worker share. It knows no job policy.
//
// Devices come and go (devices.go). What there is now is a value, the inventory, that the
// loop replaces and anybody may read; so is the configuration, which can be read again
// (reload.go, live). What people ask for on the socket is in requests.go.
//
// A connection is silent until it says what it wants, for which it has a time; it is
// a request, which is answered, or a program's, which then waits until the program
// uses a device. Until it is a client's it has one of its user's places, and may be
// closed to make room for a newer one of the same user: first those that wait,
// since their programs connect again when they need to.
package node
