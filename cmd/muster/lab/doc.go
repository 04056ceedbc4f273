// Package lab has the commands that need no daemon: logs and what-ifs in virtual time, the papers'
// experiments, and kernels by themselves.
package lab
