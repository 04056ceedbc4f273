package simt

import (
	"math"
	"slices"

	"muster/ptx"
)

// geometry is how an instruction addresses a texture or a surface.
type geometry struct {
	dims    int // coordinates of an element
	layered bool
	cube    bool
	vector  int // elements of the operand with the coordinates; PTX ignores some of them
}

var geometries = map[string]geometry{
	"1d": {dims: 1, vector: 1}, "2d": {dims: 2, vector: 2}, "3d": {dims: 3, vector: 4},
	"a1d": {dims: 1, layered: true, vector: 2}, "a2d": {dims: 2, layered: true, vector: 4},
	"cube": {dims: 2, cube: true, vector: 4}, "acube": {dims: 2, layered: true, cube: true, vector: 4},
}

// used is how many elements of the vector are coordinates.
func (g geometry) used() int {
	n := g.dims
	if g.cube {
		n = 3
	}
	if g.layered {
		n++
	}
	return n
}

// textureOp is what tex, tld4, suld and sust do beyond their registers.
type textureOp struct {
	geometry
	integer bool // coordinates are integers
	level   string
	channel int // of tld4; -1 for tex
	clamp   string
	bytes   uint64 // of a channel, of surfaces
	query   string
}

// coordinates lowers the operand [handle, coordinates].
func (l *lowering) coordinates(o *ptx.Operand, g geometry, t ptx.Type) (handle reg, sources []reg) {
	handle = l.textureHandle(o)
	if len(o.Elements) != 1 {
		l.refuse("a handle and coordinates are wanted: separate samplers are not supported")
	}
	all := l.elements(&o.Elements[0])
	if len(all) < g.used() || len(all) > max(g.vector, g.used()) {
		l.refuse("%d coordinates where %d are wanted", len(all), g.used())
	}
	for i := range all[:g.used()] {
		et := t
		if g.layered && i == 0 {
			et = ptx.U32
		}
		sources = append(sources, l.src(&all[i], et))
	}
	return handle, sources
}

func (l *lowering) textureHandle(o *ptx.Operand) reg {
	if o.Kind != ptx.AddressOperand || o.Register == nil || o.Offset != 0 {
		l.refuse("a handle in a register is wanted: texture and surface references are not supported")
	}
	r := l.register(o.Register, o.Component)
	if r.class != bits64 {
		l.refuse("%s cannot hold a handle", o.Name)
	}
	return r
}

// textureAccess returns an instruction that reads or writes the texture or surface of a
// handle, at the place that the sources name.
func textureAccess(run func(*gang, *inst), x *textureOp, handle reg, sources []reg) op {
	o := newOp(run, handle)
	o.k = x
	for _, r := range sources {
		o.addSource(r)
	}
	return o
}

// tex lowers tex and tld4.
func (l *lowering) tex(in *ptx.Instruction) {
	x := textureOp{channel: -1}
	if in.Opcode == "tld4" {
		x.channel = -2
	}
	found := false
	for _, m := range in.Modifiers {
		g, ok := geometries[m]
		switch {
		case ok:
			x.geometry, found = g, true
		case ptx.TypeOf(m) != ptx.NoType || m == "v4":
		case x.channel == -1 && x.level == "" && (m == "base" || m == "level" || m == "grad"):
			x.level = m
		case x.channel == -2 && slices.Contains([]string{"r", "g", "b", "a"}, m):
			x.channel = slices.Index([]string{"r", "g", "b", "a"}, m)
		default:
			l.refuse("modifier .%s is not supported", m)
		}
	}
	if !found || x.channel == -2 || x.channel >= 0 && x.geometry != geometries["2d"] || x.level == "grad" && x.cube {
		l.refuse("this form is not supported")
	}
	if len(in.Types) != 2 || !slices.Contains([]ptx.Type{ptx.U32, ptx.S32, ptx.F32}, in.Types[0]) || in.Types[1] != ptx.S32 && in.Types[1] != ptx.F32 {
		l.refuse("values of .u32, .s32 or .f32 and coordinates of .s32 or .f32 are supported")
	}
	if in.Vector() != 4 {
		l.refuse("values must be .v4")
	}
	x.integer = in.Types[1] == ptx.S32
	if x.integer && (x.channel >= 0 || x.cube || x.level == "grad") {
		l.refuse("coordinates must be .f32")
	}
	l.wants(in, 2+map[string]int{"level": 1, "grad": 2}[x.level])
	handle, sources := l.coordinates(&in.Operands[1], x.geometry, in.Types[1])
	for i := range in.Operands[2:] {
		all := l.elements(&in.Operands[2+i])
		want := 1
		if x.level == "grad" {
			want = x.dims
		}
		if len(all) < want {
			l.refuse("%d derivatives where %d are wanted", len(all), want)
		}
		for j := range all[:want] {
			sources = append(sources, l.src(&all[j], in.Types[1]))
		}
	}
	o := textureAccess(runTexture, &x, handle, sources)
	l.written(&o, &in.Operands[0], 4, in.Types[0])
	l.emit(o)
}

// surface lowers suld.b and sust.b, which move the bytes of elements as they are.
func (l *lowering) surface(in *ptx.Instruction) {
	x := textureOp{integer: true}
	found, formatted := false, true
	for _, m := range in.Modifiers {
		g, ok := geometries[m]
		switch {
		case ok && !g.cube:
			x.geometry, found = g, true
		case m == "b":
			formatted = false
		case m == "clamp" || m == "zero" || m == "trap":
			x.clamp = m
		case ptx.TypeOf(m) != ptx.NoType || slices.Contains([]string{"v2", "v4", "ca", "cg", "cs", "cv", "wb", "wt"}, m):
		default:
			l.refuse("modifier .%s is not supported", m)
		}
	}
	if !found || formatted || x.clamp == "" || len(in.Types) != 1 {
		l.refuse("this form is not supported")
	}
	t := in.Types[0]
	if !slices.Contains([]ptx.Type{ptx.B8, ptx.B16, ptx.B32, ptx.B64}, t) {
		l.refuse("type .%v is not supported", t)
	}
	l.wants(in, 2)
	x.bytes = uint64(t.Size())
	place, value := &in.Operands[1], &in.Operands[0]
	if in.Opcode == "sust" {
		place, value = value, place
	}
	handle, sources := l.coordinates(place, x.geometry, ptx.S32)
	o := textureAccess(runSurfaceLoad, &x, handle, sources)
	all := l.elements(value)
	if len(all) != in.Vector() {
		l.refuse("%d values where %d are wanted", len(all), in.Vector())
	}
	o.listWritten = in.Opcode == "suld"
	if !o.listWritten {
		o.run = runSurfaceStore
	}
	register := t
	if t == ptx.B8 {
		register = ptx.B16 // PTX has no smaller registers
	}
	for i := range all {
		switch {
		case !o.listWritten:
			o.addElement(l.src(&all[i], register))
		case all[i].Kind == ptx.SinkOperand:
			o.addElement(noReg)
		default:
			o.addElement(l.dst(&all[i], register))
		}
	}
	l.emit(o)
}

var textureQueries = []string{"width", "height", "depth", "array_size", "num_mipmap_levels", "normalized_coords"}

// textureQuery lowers txq and suq.
func (l *lowering) textureQuery(in *ptx.Instruction) {
	x := textureOp{}
	for _, m := range in.Modifiers {
		switch {
		case m == "level" && in.Opcode == "txq":
			x.level = m
		case m == "b32":
		case x.query == "" && slices.Contains(textureQueries, m):
			x.query = m
		default:
			l.refuse("modifier .%s is not supported", m)
		}
	}
	if x.query == "" || in.Opcode == "suq" && (x.query == "num_mipmap_levels" || x.query == "normalized_coords") {
		l.refuse("this form is not supported")
	}
	var sources []reg
	if x.level == "level" {
		l.wants(in, 3)
		sources = append(sources, l.src(&in.Operands[2], ptx.B32))
	} else {
		l.wants(in, 2)
	}
	d, handle := l.dst(&in.Operands[0], ptx.B32), l.textureHandle(&in.Operands[1])
	o := textureAccess(runTextureQuery, &x, handle, sources)
	o.addElement(d)
	o.listWritten = true
	l.emit(o)
}

// texture returns the texture of a lane's handle, or stops the kernel.
func (g *gang) texture(in *inst, lane int, surface bool) *Texture {
	handle := g.r64.lane(in.a, lane)
	var t *Texture
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
func (g *gang) eachTexel(in *inst, read func(lane int) texel) {
	values := g.texels[:g.width]
	for lane := g.lo; lane < g.hi; lane++ {
		if g.mask.has(lane) {
			values[lane] = read(lane)
		}
	}
	for c, slot := range in.list {
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
	x := in.k.(*textureOp)
	g.needTexels()
	var lane int
	s := sampler{dims: x.dims, read: func(addr uint64, n int) []byte { return g.globalBytes(in, lane, addr, uint64(n)) }}
	g.eachTexel(in, func(at int) texel {
		lane = at
		s.t = g.texture(in, lane, false)
		return x.read(&s, func(i int) uint32 { return g.r32.lane(in.sources[i], lane) })
	})
}

// read reads a texture with the operands of an instruction.
func (x *textureOp) read(s *sampler, operand func(i int) uint32) texel {
	next := 0
	take := func() uint32 { next++; return operand(next - 1) }
	number := func() float32 { return math.Float32frombits(take()) }
	t := s.t
	s.layer = 0
	if x.layered {
		s.layer = int(take())
	}
	var place [3]float32
	var at [3]int64
	switch {
	case x.cube:
		vx, vy, vz := number(), number(), number()
		n, u, v := face(vx, vy, vz)
		s.layer = s.layer*6 + n
		place = [3]float32{u, v}
	case x.integer:
		for d := range x.dims {
			at[d] = int64(int32(take()))
		}
	default:
		for d := range x.dims {
			place[d] = number()
		}
	}
	layers := t.Levels[0].Depth
	s.layer = min(max(s.layer, 0), layers-1)
	if x.channel >= 0 {
		return s.gather(&t.Levels[0], place, x.channel)
	}
	lod := float32(0)
	switch {
	case x.level == "level" && x.integer:
		lod = float32(int32(take()))
	case x.level == "level":
		lod = number()
	case x.level == "grad":
		var dx, dy [3]float32
		for d := range x.dims {
			dx[d] = number()
		}
		for d := range x.dims {
			dy[d] = number()
		}
		lod = s.lodOf(dx, dy)
	}
	return s.mipmapped(lod, func(l *TextureLevel) texel {
		if x.integer {
			return s.fetch(l, at)
		}
		return s.sample(l, place)
	})
}

// surfacePlace returns where the bytes of a lane's access lie. Outside, .clamp takes the
// nearest place, and with .zero there is none.
func (g *gang) surfacePlace(in *inst, lane int) (addr uint64, ok bool) {
	x := in.k.(*textureOp)
	t := g.texture(in, lane, true)
	l := &t.Levels[0]
	n := x.bytes * uint64(len(in.list))
	var at [3]int64
	sources := in.sources
	layer := int64(0)
	if x.layered {
		layer = int64(int32(g.r32.lane(sources[0], lane)))
		sources = sources[1:]
	}
	for d := range x.dims {
		at[d] = int64(int32(g.r32.lane(sources[d], lane)))
	}
	if x.layered {
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
		case x.clamp == "trap" || most < 0:
			g.fault(in, lane, Trapped, 0, "outside the surface")
		case x.clamp == "zero":
			return 0, false
		}
		at[d] = min(max(at[d], 0), most)
	}
	return l.At + uint64(at[2])*l.Slice + uint64(at[1])*l.Pitch + uint64(at[0]), true
}

func runTextureQuery(g *gang, in *inst) {
	x := in.k.(*textureOp)
	g.needTexels()
	g.eachTexel(in, func(lane int) texel {
		t := g.texture(in, lane, in.text.Opcode == "suq")
		level := 0
		if len(in.sources) > 0 {
			level = min(int(g.r32.lane(in.sources[0], lane)), len(t.Levels)-1)
		}
		return texel{uint32(t.answer(x.query, &t.Levels[level]))}
	})
}

func (t *Texture) answer(query string, l *TextureLevel) int {
	switch query {
	case "width":
		return l.Width
	case "height":
		return l.Height
	case "depth":
		if t.Layered || t.Cube {
			return 1
		}
		return l.Depth
	case "array_size":
		switch {
		case t.Cube:
			return l.Depth / 6
		case t.Layered:
			return l.Depth
		}
		return 0
	case "num_mipmap_levels":
		return len(t.Levels)
	}
	if t.Normalised {
		return 1
	}
	return 0
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
