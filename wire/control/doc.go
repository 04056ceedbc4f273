// Package control is the conversation between the node daemon and a worker: one
// type for each message, and the two ends of the connection.
//
// A message is a ToWorker, which the daemon sends, or a ToDaemon, which a worker
// sends; the compiler keeps the two apart. Each end sends the one and receives
// the other. A test holds the sources of the daemon and of the worker to this:
// every kind of message is sent by one of them and handled by the other.
//
// The daemon gives a worker its client with Serve and, in answer to Want, a
// device with Grant. Revoke takes the device back; the worker answers with
// Released, or with Failed if a fault ended what ran. Leases are numbered, so
// that a Released that crosses a newer Grant on its way is recognised as stale.
// Ping is answered with Pong at once, whatever else the worker is doing.
//
// A worker whose connection ends without End has lost its daemon. It comes to the
// next one on the node's socket (Introduce) and, once adopted, begins with Standing.
//
// Both processes are of one build or, after an upgrade, of builds with the same messages
// (Protocol), so a message is JSON, one packet each on a SOCK_SEQPACKET socket, {"kind": ...,
// "message": ...}; descriptors travel beside Serve, AddDevice, Hold, Probe, Prepare, Checkpoint and
// Restore. The daemon does not trust a worker more than a program, and therefore decoding is strict:
// unknown kinds and fields, anything behind the message, and negative times and counts are refused
// (ErrRefused).
//
// The package knows no scheduling and no device. Whether what a worker says
// fits what the daemon has granted is for the daemon to judge.
package control
