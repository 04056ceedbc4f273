// Package client sends requests to a cluster's head, over its HTTP interface, on behalf of a user:
// one method for each kind of request, and some that wait, or ask for many. It also makes the
// submission of a job from a command line in Slurm's words and a script.
//
// On the same machine a head is reached through its Unix socket, where the kernel identifies the
// user; from other machines over TLS, with a certificate of `muster cert`.
//
// The package knows the documents (wire/api, and wire/status of the nodes) and the frames of streams
// (wire/agent), and nothing of how a head decides. It prints nothing.
package client
