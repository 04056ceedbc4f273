// Package recording writes what the dispatcher is told and decides to a file, which can be replayed.
// It never makes the daemon's loop wait for the disk.
package recording
