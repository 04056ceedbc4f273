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

// needTexels makes room for what the lanes of a gang read before they write.
func (g *gang) needTexels() {
	if len(g.texels) < g.width {
		g.texels = make([]texel, g.width)
	}
}

func runSurfaceLoad(g *gang, in *inst) {
	x := in.k.(*textureOp)
	size, n := int(x.bytes), x.bytes*uint64(len(in.list))
	values := make([][4]uint64, g.width) // the coordinates may be overwritten
	for lane := g.lo; lane < g.hi; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		addr, ok := g.surfacePlace(in, lane)
		if !ok {
			continue
		}
		b := g.globalBytes(in, lane, addr, n)
		for c := range in.list {
			for i := size - 1; i >= 0; i-- {
				values[lane][c] = values[lane][c]<<8 | uint64(b[c*size+i])
			}
		}
	}
	for c, slot := range in.list {
		switch {
		case slot < 0:
		case size == 8:
			put(g, in, g.r64.partial(g, in, slot), values, c)
		default:
			put(g, in, g.r32.partial(g, in, slot), values, c)
		}
	}
}

func put[D regval](g *gang, _ *inst, d []D, values [][4]uint64, c int) {
	for lane := g.lo; lane < g.hi; lane++ {
		if g.mask.has(lane) {
			d[lane] = D(values[lane][c])
		}
	}
}

func runSurfaceStore(g *gang, in *inst) {
	x := in.k.(*textureOp)
	size, n := int(x.bytes), x.bytes*uint64(len(in.list))
	for lane := g.lo; lane < g.hi; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		addr, ok := g.surfacePlace(in, lane)
		if !ok {
			continue
		}
		b := g.globalBytes(in, lane, addr, n)
		for c, slot := range in.list {
			var v uint64
			if size == 8 {
				v = g.r64.lane(slot, lane)
			} else {
				v = uint64(g.r32.lane(slot, lane))
			}
			for i := range size {
				b[c*size+i] = byte(v >> (8 * i))
			}
		}
	}
}
