// Package mps runs NVIDIA's Multi-Process Service for a node's workers, or finds the one that the
// site runs. It says how a worker uses the service. It knows nothing of clients: who may share a GPU,
// and what becomes of those that saw a fault, is decided elsewhere (node/fate).
package mps
