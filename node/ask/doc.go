// Package ask asks a running node: how it is, to change something, and for checkpoints of its
// clients. It has the documents of the requests, which the daemon reads, and waits for a node or a
// device where a command has to. It knows nothing about how the daemon carries requests out.
package ask
