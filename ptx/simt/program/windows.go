package program

import "muster/ptx"

// Windows in the generic address space: what lies below GlobalEnd is global
// memory (and constants); each window of 4 GiB above it holds one state space.
const (
	GlobalEnd    = uint64(1) << 48
	sharedWindow = GlobalEnd
	localWindow  = GlobalEnd + 1<<32
	paramWindow  = GlobalEnd + 2<<32
	codeWindow   = GlobalEnd + 3<<32
)

// Window returns the state space of a generic address, and the address in that
// space; NoSpace if it is in none.
func Window(addr uint64) (ptx.Space, uint64) {
	if addr < GlobalEnd {
		return ptx.GlobalSpace, addr
	}
	switch addr >> 32 {
	case sharedWindow >> 32:
		return ptx.SharedSpace, addr & (1<<32 - 1)
	case localWindow >> 32:
		return ptx.LocalSpace, addr & (1<<32 - 1)
	case paramWindow >> 32:
		return ptx.ParamSpace, addr & (1<<32 - 1)
	}
	return ptx.NoSpace, addr
}
