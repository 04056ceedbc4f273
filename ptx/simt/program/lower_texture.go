package program

import (
	"slices"

	"muster/ptx"
)

var geometries = map[string]geometry{
	"1d": {Dims: 1, vector: 1}, "2d": {Dims: 2, vector: 2}, "3d": {Dims: 3, vector: 4},
	"a1d": {Dims: 1, Layered: true, vector: 2}, "a2d": {Dims: 2, Layered: true, vector: 4},
	"cube": {Dims: 2, Cube: true, vector: 4}, "acube": {Dims: 2, Layered: true, Cube: true, vector: 4},
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
		if g.Layered && i == 0 {
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
	if r.class != Bits64 {
		l.refuse("%s cannot hold a handle", o.Name)
	}
	return r
}

// textureAccess returns an instruction that reads or writes the texture or surface of a
// handle, at the place that the sources name.
func textureAccess(do Operation, x *TextureOp, handle reg, sources []reg) Op {
	o := newOp(do, handle)
	o.K = x
	for _, r := range sources {
		o.addSource(r)
	}
	return o
}

// tex lowers tex and tld4.
func (l *lowering) tex(in *ptx.Instruction) {
	x := TextureOp{Channel: -1}
	if in.Opcode == "tld4" {
		x.Channel = -2
	}
	found := false
	for _, m := range in.Modifiers {
		g, ok := geometries[m]
		switch {
		case ok:
			x.geometry, found = g, true
		case ptx.TypeOf(m) != ptx.NoType || m == "v4":
		case x.Channel == -1 && x.Level == "" && (m == "base" || m == "level" || m == "grad"):
			x.Level = m
		case x.Channel == -2 && slices.Contains([]string{"r", "g", "b", "a"}, m):
			x.Channel = slices.Index([]string{"r", "g", "b", "a"}, m)
		default:
			l.refuse("modifier .%s is not supported", m)
		}
	}
	if !found || x.Channel == -2 || x.Channel >= 0 && x.geometry != geometries["2d"] || x.Level == "grad" && x.Cube {
		l.refuse("this form is not supported")
	}
	if len(in.Types) != 2 || !slices.Contains([]ptx.Type{ptx.U32, ptx.S32, ptx.F32}, in.Types[0]) || in.Types[1] != ptx.S32 && in.Types[1] != ptx.F32 {
		l.refuse("values of .u32, .s32 or .f32 and coordinates of .s32 or .f32 are supported")
	}
	if in.Vector() != 4 {
		l.refuse("values must be .v4")
	}
	x.Integer = in.Types[1] == ptx.S32
	if x.Integer && (x.Channel >= 0 || x.Cube || x.Level == "grad") {
		l.refuse("coordinates must be .f32")
	}
	l.wants(in, 2+map[string]int{"level": 1, "grad": 2}[x.Level])
	handle, sources := l.coordinates(&in.Operands[1], x.geometry, in.Types[1])
	for i := range in.Operands[2:] {
		all := l.elements(&in.Operands[2+i])
		want := 1
		if x.Level == "grad" {
			want = x.Dims
		}
		if len(all) < want {
			l.refuse("%d derivatives where %d are wanted", len(all), want)
		}
		for j := range all[:want] {
			sources = append(sources, l.src(&all[j], in.Types[1]))
		}
	}
	o := textureAccess(OpTexture, &x, handle, sources)
	l.written(&o, &in.Operands[0], 4, in.Types[0])
	l.emit(o)
}

// surface lowers suld.b and sust.b, which move the bytes of elements as they are.
func (l *lowering) surface(in *ptx.Instruction) {
	x := TextureOp{Integer: true}
	found, formatted := false, true
	for _, m := range in.Modifiers {
		g, ok := geometries[m]
		switch {
		case ok && !g.Cube:
			x.geometry, found = g, true
		case m == "b":
			formatted = false
		case m == "clamp" || m == "zero" || m == "trap":
			x.Clamp = m
		case ptx.TypeOf(m) != ptx.NoType || slices.Contains([]string{"v2", "v4", "ca", "cg", "cs", "cv", "wb", "wt"}, m):
		default:
			l.refuse("modifier .%s is not supported", m)
		}
	}
	if !found || formatted || x.Clamp == "" || len(in.Types) != 1 {
		l.refuse("this form is not supported")
	}
	t := in.Types[0]
	if !slices.Contains([]ptx.Type{ptx.B8, ptx.B16, ptx.B32, ptx.B64}, t) {
		l.refuse("type .%v is not supported", t)
	}
	l.wants(in, 2)
	x.Bytes = uint64(t.Size())
	place, value := &in.Operands[1], &in.Operands[0]
	if in.Opcode == "sust" {
		place, value = value, place
	}
	handle, sources := l.coordinates(place, x.geometry, ptx.S32)
	o := textureAccess(OpSurfaceLoad, &x, handle, sources)
	all := l.elements(value)
	if len(all) != in.Vector() {
		l.refuse("%d values where %d are wanted", len(all), in.Vector())
	}
	o.listWritten = in.Opcode == "suld"
	if !o.listWritten {
		o.Do = OpSurfaceStore
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
	x := TextureOp{}
	for _, m := range in.Modifiers {
		switch {
		case m == "level" && in.Opcode == "txq":
			x.Level = m
		case m == "b32":
		case x.Query == "" && slices.Contains(textureQueries, m):
			x.Query = m
		default:
			l.refuse("modifier .%s is not supported", m)
		}
	}
	if x.Query == "" || in.Opcode == "suq" && (x.Query == "num_mipmap_levels" || x.Query == "normalized_coords") {
		l.refuse("this form is not supported")
	}
	var sources []reg
	if x.Level == "level" {
		l.wants(in, 3)
		sources = append(sources, l.src(&in.Operands[2], ptx.B32))
	} else {
		l.wants(in, 2)
	}
	d, handle := l.dst(&in.Operands[0], ptx.B32), l.textureHandle(&in.Operands[1])
	o := textureAccess(OpTextureQuery, &x, handle, sources)
	o.addElement(d)
	o.listWritten = true
	l.emit(o)
}
