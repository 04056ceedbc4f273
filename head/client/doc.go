// Package client asks a cluster's head, over its HTTP interface, on behalf of a
// user: one method for each thing that can be asked.
//
// A head is reached through its Unix socket on the same machine, where the kernel
// says who asks, or over TLS from others, where a certificate of `muster cert` does.
//
// The package knows the documents (head/api) and the frames of streams (wire/agent),
// and nothing of how a head decides. It prints nothing.
package client
