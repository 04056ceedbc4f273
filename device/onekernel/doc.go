// Package onekernel runs one kernel of a file on the software GPU, for muster ptx run. It finds
// the kernel, parses arguments as users write them, allocates buffers, and shows the results:
// buffers, defects, a profile, lowered and machine code, as text or as JSON.
//
// It knows no flags, no terminal and no exit codes: the command has those. A mistake of the user
// is a misuse.Error.
package onekernel
