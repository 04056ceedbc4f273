// Package survival is what the next daemon must know of a node and its clients, should this one be killed
// or hand over: the documents, when they are written, and how they are read again. It knows nothing about
// what a daemon does with its clients, or with those that it inherits.
package survival
