// Package stack holds the tests of everything together: real daemons, real
// workers and real programs in C, and everything that can go wrong with them.
//
// It knows Muster as its users do: by its commands, its library libcuda.so.1
// and what a node says of itself. Where that cannot do enough harm, it speaks
// the protocol.
package stack
