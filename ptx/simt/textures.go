package simt

import (
	"math"

	"muster/ptx/simt/program"
	"muster/ptx/simt/texture"
)

// texture returns the texture of a lane's handle, or stops the kernel.
func (g *gang) texture(in *inst, lane int, surface bool) *texture.Texture {
	handle := g.r64.lane(in.A, lane)
	var t *texture.Texture
	if from := g.team.x.launch.Textures; from != nil {
		t = from.Texture(handle)
	}
	switch {
	case t == nil:
		g.fault(in, lane, IllegalAddress, handle, "no texture or surface object has this handle")
	case t.Surface && !surface:
		g.fault(in, lane, IllegalAddress, handle, "the handle is that of a surface object")
	case surface && !t.Surface:
		g.fault(in, lane, IllegalAddress, handle, "the handle is that of a texture object")
	}
	return t
}

// eachTexel calls read for all active lanes and writes what it returns to the list's
// registers. A source may be a destination, so it writes after all lanes have read.
func (g *gang) eachTexel(in *inst, read func(lane int) texture.Texel) {
	values := g.texels[:g.width]
	for lane := g.lo; lane < g.hi; lane++ {
		if g.mask.has(lane) {
			values[lane] = read(lane)
		}
	}
	for c, slot := range in.List {
		if slot < 0 {
			continue
		}
		d := g.r32.partial(g, in, slot)
		for lane := g.lo; lane < g.hi; lane++ {
			if g.mask.has(lane) {
				d[lane] = values[lane][c]
			}
		}
	}
}

func runTexture(g *gang, in *inst) {
	x := in.K.(*program.TextureOp)
	g.needTexels()
	var lane int
	s := texture.Sampler{Dims: x.Dims, Read: func(addr uint64, n int) []byte { return g.globalBytes(in, lane, addr, uint64(n)) }}
	g.eachTexel(in, func(at int) texture.Texel {
		lane = at
		s.T = g.texture(in, lane, false)
		return readTexture(x, &s, func(i int) uint32 { return g.r32.lane(in.Sources[i], lane) })
	})
}

// readTexture reads a texture with the operands of an instruction.
func readTexture(x *program.TextureOp, s *texture.Sampler, operand func(i int) uint32) texture.Texel {
	next := 0
	take := func() uint32 { next++; return operand(next - 1) }
	number := func() float32 { return math.Float32frombits(take()) }
	t := s.T
	s.Layer = 0
	if x.Layered {
		s.Layer = int(take())
	}
	var place [3]float32
	var at [3]int64
	switch {
	case x.Cube:
		vx, vy, vz := number(), number(), number()
		n, u, v := texture.Face(vx, vy, vz)
		s.Layer = s.Layer*6 + n
		place = [3]float32{u, v}
	case x.Integer:
		for d := range x.Dims {
			at[d] = int64(int32(take()))
		}
	default:
		for d := range x.Dims {
			place[d] = number()
		}
	}
	layers := t.Levels[0].Depth
	s.Layer = min(max(s.Layer, 0), layers-1)
	if x.Channel >= 0 {
		return s.Gather(&t.Levels[0], place, x.Channel)
	}
	lod := float32(0)
	switch {
	case x.Level == "level" && x.Integer:
		lod = float32(int32(take()))
	case x.Level == "level":
		lod = number()
	case x.Level == "grad":
		var dx, dy [3]float32
		for d := range x.Dims {
			dx[d] = number()
		}
		for d := range x.Dims {
			dy[d] = number()
		}
		lod = s.LodOf(dx, dy)
	}
	return s.Mipmapped(lod, func(l *texture.Level) texture.Texel {
		if x.Integer {
			return s.Fetch(l, at)
		}
		return s.Sample(l, place)
	})
}

// surfacePlace returns where the bytes of a lane's access lie. Outside, .clamp takes the
// nearest place, and with .zero there is none.
func (g *gang) surfacePlace(in *inst, lane int) (addr uint64, ok bool) {
	x := in.K.(*program.TextureOp)
	t := g.texture(in, lane, true)
	l := &t.Levels[0]
	n := x.Bytes * uint64(len(in.List))
	var at [3]int64
	sources := in.Sources
	layer := int64(0)
	if x.Layered {
		layer = int64(int32(g.r32.lane(sources[0], lane)))
		sources = sources[1:]
	}
	for d := range x.Dims {
		at[d] = int64(int32(g.r32.lane(sources[d], lane)))
	}
	if x.Layered {
		at[2] = layer
	}
	row := int64(l.Width * t.Element())
	if at[0]&int64(n-1) != 0 {
		g.fault(in, lane, MisalignedAddress, uint64(at[0]), "the first coordinate of a surface counts bytes, and must be a multiple of the access")
	}
	limit := [3]int64{row - int64(n), int64(l.Height) - 1, int64(l.Depth) - 1}
	for d, most := range limit {
		if at[d] >= 0 && at[d] <= most {
			continue
		}
		switch {
		case x.Clamp == "trap" || most < 0:
			g.fault(in, lane, Trapped, 0, "outside the surface")
		case x.Clamp == "zero":
			return 0, false
		}
		at[d] = min(max(at[d], 0), most)
	}
	return l.At + uint64(at[2])*l.Slice + uint64(at[1])*l.Pitch + uint64(at[0]), true
}

func runTextureQuery(g *gang, in *inst) {
	x := in.K.(*program.TextureOp)
	g.needTexels()
	g.eachTexel(in, func(lane int) texture.Texel {
		t := g.texture(in, lane, in.Text.Opcode == "suq")
		level := 0
		if len(in.Sources) > 0 {
			level = min(int(g.r32.lane(in.Sources[0], lane)), len(t.Levels)-1)
		}
		return texture.Texel{uint32(t.Answer(x.Query, &t.Levels[level]))}
	})
}

// needTexels makes room for what the lanes of a gang read before they write.
func (g *gang) needTexels() {
	if len(g.texels) < g.width {
		g.texels = make([]texture.Texel, g.width)
	}
}

func runSurfaceLoad(g *gang, in *inst) {
	x := in.K.(*program.TextureOp)
	size, n := int(x.Bytes), x.Bytes*uint64(len(in.List))
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
		for c := range in.List {
			for i := size - 1; i >= 0; i-- {
				values[lane][c] = values[lane][c]<<8 | uint64(b[c*size+i])
			}
		}
	}
	for c, slot := range in.List {
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
	x := in.K.(*program.TextureOp)
	size, n := int(x.Bytes), x.Bytes*uint64(len(in.List))
	for lane := g.lo; lane < g.hi; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		addr, ok := g.surfacePlace(in, lane)
		if !ok {
			continue
		}
		b := g.globalBytes(in, lane, addr, n)
		for c, slot := range in.List {
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
