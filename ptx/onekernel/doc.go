// Package onekernel runs one kernel of a file on the software GPU, for muster ptx run. It finds
// the kernel, parses arguments and the launch as users write them, allocates buffers, runs the kernel
// once, and shows the results: buffers, defects, a profile, lowered and machine code, as text or as JSON.
//
// It knows no terminal, no signals and no exit codes: the command has those, and the values of flags. A
// mistake of the user is a misuse.Error, which may name the flag.
package onekernel
