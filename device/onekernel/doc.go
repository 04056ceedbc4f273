// Package onekernel runs one kernel of a file on the software GPU, as muster ptx run does. It finds
// the kernel, reads arguments as people write them, gives buffers their memory, and shows what came
// of the run: buffers, defects, a profile, lowered and machine code, as text or as JSON.
//
// It knows no flags, no terminal and no exit codes: the command has those. A mistake of the user's is
// a *Misuse.
package onekernel
