package simt

import "unsafe"

// globalBytes returns n bytes of global memory, or stops the kernel with a fault.
func (g *gang) globalBytes(in *inst, lane int, addr, n uint64) []byte {
	v, _ := g.globalView(addr)
	p := v.span(addr, n)
	if p == nil {
		g.fault(in, lane, IllegalAddress, addr, "memory of a texture or surface")
	}
	return unsafe.Slice((*byte)(p), n)
}
