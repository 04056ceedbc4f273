// Package mps runs NVIDIA's Multi-Process Service for a node's workers, or finds the one that the
// site runs. Service runs it, and says how a worker uses it; Sharing says who is served by it, and
// keeps the book of package fate about those that saw a fault. It knows no worker and no program.
package mps
