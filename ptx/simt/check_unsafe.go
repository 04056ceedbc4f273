package simt

import "muster/ptx"

// peek reads n bytes of shared or global memory for a checker; false if they are not mapped or the
// address is not a multiple of n.
func (g *gang) peek(lane int, space ptx.Space, addr, n uint64) (uint64, bool) {
	v := g.sharedView(lane)
	if space == ptx.GlobalSpace {
		found := false
		if v, found = g.globalView(addr); !found {
			return 0, false
		}
	}
	p := v.span(addr, n)
	if p == nil || addr%n != 0 {
		return 0, false
	}
	switch n {
	case 1:
		return uint64(*(*uint8)(p)), true
	case 2:
		return uint64(*(*uint16)(p)), true
	case 4:
		return uint64(*(*uint32)(p)), true
	}
	return *(*uint64)(p), true
}
