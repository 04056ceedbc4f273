// Package socket is the daemon's socket on its machine: it opens it where nobody else can put one, in
// the place of one that a killed daemon left, and says who is at the other end of a connection.
package socket
