// Package node is the daemon of a machine with GPUs: it accepts programs, checks and
// limits them, gives each a worker process, and performs what the dispatcher in node/vgpu
// decides.
//
// One goroutine, the loop (loop.go), owns the dispatcher and all that is known of
// clients. No lock protects that state: every other goroutine reaches it by handing the
// loop a function, with do (does not wait) or ask (waits until it has run). A function
// that the loop runs must therefore never wait, least of all with ask for the loop
// itself. The daemon opens no contexts and sees none of the programs' data: those go
// through memory that program and worker share. It knows no job policy.
//
// Devices come and go (devices.go). The devices that the node has now are an immutable
// value, the inventory, which the loop replaces and any goroutine may read; so is the
// configuration, which can be read again (reload.go, live). The requests that people and
// commands make on the socket are in requests.go.
//
// A new connection must say within Connections.Greet what it wants. It is either a
// request, which is answered at once, or a program's greeting; the daemon then waits
// until that program uses a device. Until the connection belongs to a client it occupies
// one of its user's places, and the daemon may close it to make room for a newer one of
// the same user. Connections that only wait are closed first, since their programs
// connect again when they need to.
package node
