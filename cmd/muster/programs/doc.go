// Package programs has the commands for programs and the GPUs of this machine: thin, flags in, text or
// JSON out.
package programs
