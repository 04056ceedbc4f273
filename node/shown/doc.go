// Package shown is what programs are shown of a node's devices: no more than all of the devices can
// do that may serve them, and where their addresses lie. It is also what tools that watch GPUs are
// answered. It knows neither the devices' state nor who asks.
package shown
