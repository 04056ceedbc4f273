// Package stack holds the tests of the whole system: real daemons, real workers and real programs
// in C, and everything that can go wrong with them.
//
// It knows Muster as its users do: by its commands, its library libcuda.so.1 and the node's status.
// Where that cannot do enough harm, it speaks the protocol.
package stack
