// Package nvmltest tests libnvidia-ml.so.1, which is in C, from outside: with a node
// that this package plays, good or bad. It has no code of its own.
package nvmltest
