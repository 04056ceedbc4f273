// Package proc is what the system says of processes and of the files that they have open: whether
// one runs, whose it is, and which descriptors it holds. A process is known by its number and the time
// of its start, a file by its device and inode. It knows nothing about what processes are for.
package proc
