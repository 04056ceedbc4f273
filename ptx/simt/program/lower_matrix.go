package program

import (
	"fmt"
	"slices"
	"strings"

	"muster/ptx"
	"muster/ptx/simt/matrix"
	"muster/ptx/simt/shape"
	"muster/ptx/simt/tensor"
)

// moveMatrix lowers movmatrix: the transpose of a matrix of 8 by 8 halves that
// the lanes of a warp hold.
func (l *lowering) moveMatrix(in *ptx.Instruction) {
	if in.Name() != "movmatrix.sync.aligned.m8n8.trans.b16" {
		l.refuse("this form is not supported")
	}
	l.wants(in, 2)
	a, d := l.src(&in.Operands[1], ptx.B32), l.dst(&in.Operands[0], ptx.B32)
	l.wholeWarp(newOp(OpMoveMatrix, a).to(d))
}

// storeMatrix lowers stmatrix of one, two or four matrices of 8 by 8 halves.
func (l *lowering) storeMatrix(in *ptx.Instruction) {
	l.only(in, "sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta")
	count := int(l.one(in, map[string]uint8{"x1": 1, "x2": 2, "x4": 4}))
	if !in.Has("sync") || !in.Has("aligned") || !in.Has("m8n8") || len(in.Types) != 1 || in.Type(0) != ptx.B16 {
		l.refuse("this form is not supported")
	}
	l.wants(in, 2)
	values := l.elements(&in.Operands[1])
	if len(values) != count {
		l.refuse("%d values where %d are wanted", len(values), count)
	}
	o := newOp(OpStoreMatrix)
	o.Touch, o.Space = TouchMatrix, in.Space()
	if in.Has("trans") {
		o.Mode = Transposed
	}
	for i := range values {
		o.addElement(l.src(&values[i], ptx.B32))
	}
	o.setAddress(l.address(&in.Operands[0]))
	l.wholeWarp(o)
}

// loadMatrix lowers ldmatrix of one, two or four matrices of 8 by 8 halves.
func (l *lowering) loadMatrix(in *ptx.Instruction) {
	l.only(in, "sync", "aligned", "m8n8", "x1", "x2", "x4", "trans", "shared", "shared::cta")
	count := int(l.one(in, map[string]uint8{"x1": 1, "x2": 2, "x4": 4}))
	if !in.Has("sync") || !in.Has("aligned") || !in.Has("m8n8") || len(in.Types) != 1 || in.Type(0) != ptx.B16 {
		l.refuse("this form is not supported")
	}
	l.wants(in, 2)
	o := newOp(OpLoadMatrix)
	o.Touch, o.Space = TouchRows, in.Space()
	if in.Has("trans") {
		o.Mode = Transposed
	}
	l.written(&o, &in.Operands[0], count, ptx.B32)
	o.setAddress(l.address(&in.Operands[1]))
	l.wholeWarp(o)
}

// written makes the registers of a vector the list that an instruction writes.
func (l *lowering) written(o *Op, v *ptx.Operand, want int, t ptx.Type) {
	all := l.elements(v)
	if len(all) != want {
		l.refuse("%d destinations where %d are wanted", len(all), want)
	}
	for i := range all {
		if all[i].Kind == ptx.SinkOperand {
			o.addElement(noReg)
			continue
		}
		o.addElement(l.dst(&all[i], t))
	}
	o.listWritten = true
}

// read adds the registers of a vector to those that an instruction reads.
func (l *lowering) read(o *Op, v *ptx.Operand, want int, t ptx.Type) {
	all := l.elements(v)
	if len(all) != want {
		l.refuse("%d values where %d are wanted", len(all), want)
	}
	for i := range all {
		o.addSource(l.src(&all[i], t))
	}
}

var tensorFormats = map[ptx.Type]tensor.Format{
	ptx.F16: tensor.F16, ptx.BF16: tensor.BF16, ptx.TF32: tensor.TF32, ptx.F32: tensor.F32, ptx.F64: tensor.F64, ptx.S32: tensor.S32,
	ptx.S8: tensor.S8, ptx.U8: tensor.U8, ptx.S4: tensor.S4, ptx.U4: tensor.U4, ptx.B1: tensor.B1, ptx.E4M3: tensor.E4M3, ptx.E5M2: tensor.E5M2,
}

// productShapes are the sizes of mma, by the type of A.
var productShapes = map[ptx.Type]string{
	ptx.F16: "m16n8k8 m16n8k16", ptx.BF16: "m16n8k8 m16n8k16", ptx.TF32: "m16n8k4 m16n8k8", ptx.F64: "m8n8k4 m16n8k4 m16n8k8 m16n8k16",
	ptx.S8: "m8n8k16 m16n8k16 m16n8k32", ptx.U8: "m8n8k16 m16n8k16 m16n8k32", ptx.S4: "m8n8k32 m16n8k32 m16n8k64", ptx.U4: "m8n8k32 m16n8k32 m16n8k64",
	ptx.B1: "m8n8k128 m16n8k128 m16n8k256", ptx.E4M3: "m16n8k16 m16n8k32", ptx.E5M2: "m16n8k16 m16n8k32",
}

// tileShapes are those of wmma.
var tileShapes = map[ptx.Type]string{
	ptx.F16: "m16n16k16 m8n32k16 m32n8k16", ptx.BF16: "m16n16k16 m8n32k16 m32n8k16", ptx.TF32: "m16n16k8", ptx.F64: "m8n8k4",
	ptx.S8: "m16n16k16 m8n32k16 m32n8k16", ptx.U8: "m16n16k16 m8n32k16 m32n8k16", ptx.S4: "m8n8k32", ptx.U4: "m8n8k32", ptx.B1: "m8n8k128",
}

// shape returns the sizes that an instruction names, one of those in words.
func (l *lowering) shape(in *ptx.Instruction, known string) (m, n, k int) {
	for _, x := range strings.Fields(known) {
		if in.Has(x) {
			fmt.Sscanf(x, "m%dn%dk%d", &m, &n, &k)
			return m, n, k
		}
	}
	l.refuse("this size is not supported with these types")
	return 0, 0, 0
}

// productTypes checks that factors and sums go together.
func (l *lowering) productTypes(d, a, b, c ptx.Type) {
	same := func(all ...ptx.Type) bool { return slices.Contains(all, a) && slices.Contains(all, b) }
	sums := []ptx.Type{ptx.F32}
	switch {
	case a == ptx.F16 && b == a, same(ptx.E4M3, ptx.E5M2):
		sums = append(sums, ptx.F16)
	case (a == ptx.BF16 || a == ptx.TF32) && b == a:
	case a == ptx.F64 && b == a:
		sums = []ptx.Type{ptx.F64}
	case same(ptx.S8, ptx.U8), same(ptx.S4, ptx.U4), same(ptx.B1):
		sums = []ptx.Type{ptx.S32}
	default:
		l.refuse("matrices of .%v and .%v are not supported", a, b)
	}
	if !slices.Contains(sums, d) || !slices.Contains(sums, c) {
		l.refuse("sums of .%v and .%v are not supported with matrices of .%v", d, c, a)
	}
}

// product describes a product without its fragments.
func (l *lowering) product(in *ptx.Instruction, d, a, b, c ptx.Type, shapes map[ptx.Type]string) tensor.Product {
	l.productTypes(d, a, b, c)
	p := tensor.Product{A: tensorFormats[a], B: tensorFormats[b], C: tensorFormats[c], D: tensorFormats[d]}
	p.M, p.N, p.K = l.shape(in, shapes[a])
	p.Saturate, p.And = in.Has("satfinite"), in.Has("and")
	if p.Saturate && (p.A.Float() || a == ptx.B1) {
		l.refuse("modifier .satfinite is not supported with .%v", a)
	}
	if a == ptx.B1 {
		l.one(in, map[string]uint8{"xor": 0, "and": 1})
	}
	if bits := a == ptx.B1; bits != in.Has("popc") || !bits && (in.Has("xor") || in.Has("and")) {
		l.refuse("this form is not supported")
	}
	return p
}

// mma lowers mma: a product of matrices that a warp holds.
func (l *lowering) mma(in *ptx.Instruction) {
	if in.Has("sp") || in.Has("sp::ordered_metadata") {
		l.sparseProduct(in)
		return
	}
	l.only(in, append([]string{"sync", "aligned", "row", "col", "satfinite", "xor", "and", "popc", "rn"}, strings.Fields(productShapes[in.Type(1)])...)...)
	if len(in.Types) != 4 || !in.Has("sync") || !in.Has("aligned") || !in.Has("row") || !in.Has("col") || in.Has("rn") && in.Type(1) != ptx.F64 {
		l.refuse("this form is not supported")
	}
	l.wants(in, 4)
	p := l.product(in, in.Types[0], in.Types[1], in.Types[2], in.Types[3], productShapes)
	l.multiply(in, matrix.Dense(p))
}

// sparseShapes are the sizes of mma.sp, by the type of A.
var sparseShapes = map[ptx.Type]string{
	ptx.F16: "m16n8k16 m16n8k32", ptx.BF16: "m16n8k16 m16n8k32", ptx.TF32: "m16n8k8 m16n8k16", ptx.S8: "m16n8k32 m16n8k64", ptx.U8: "m16n8k32 m16n8k64", ptx.S4: "m16n8k64 m16n8k128", ptx.U4: "m16n8k64 m16n8k128", ptx.E4M3: "m16n8k64", ptx.E5M2: "m16n8k64",
}

// sparseProduct lowers mma.sp: a product with a matrix of which half the elements of every
// row are left out.
func (l *lowering) sparseProduct(in *ptx.Instruction) {
	l.only(in, append([]string{"sp", "sp::ordered_metadata", "sync", "aligned", "row", "col", "satfinite"}, strings.Fields(sparseShapes[in.Type(1)])...)...)
	if len(in.Types) != 4 || !in.Has("sync") || !in.Has("aligned") || !in.Has("row") || !in.Has("col") || sparseShapes[in.Types[1]] == "" {
		l.refuse("this form is not supported")
	}
	l.wants(in, 6)
	p := l.product(in, in.Types[0], in.Types[1], in.Types[2], in.Types[3], sparseShapes)
	k := &matrix.SparseProduct{WarpProduct: matrix.Sparse(p), Places: l.places(&p, &in.Operands[5])}
	o := newOp(OpSparseProduct)
	o.K = k
	for i, f := range []*matrix.Fragment{k.Left, k.Right, k.Sum} {
		l.read(&o, &in.Operands[i+1], f.Registers, ptx.B32)
	}
	o.addSource(l.src(&in.Operands[4], ptx.B32))
	l.written(&o, &in.Operands[0], k.Result.Registers, ptx.B32)
	l.wholeWarp(o)
}

// places returns which threads hold the places of the elements of a sparse matrix; o is
// the selector.
func (l *lowering) places(p *tensor.Product, o *ptx.Operand) matrix.Places {
	k := matrix.Places{Format: p.A, Rows: p.M, Cols: p.K}
	selector, ok := o.Literal.Int()
	if o.Kind != ptx.ImmediateOperand || !ok || selector < 0 || int(selector) >= k.Selectors() {
		l.refuse("operand %s is not supported here", o)
	}
	k.Selector = int(selector)
	return k
}

// multiply emits a product with the operands d, a, b and c.
func (l *lowering) multiply(in *ptx.Instruction, k *matrix.WarpProduct) {
	o := newOp(OpProduct)
	o.K = k
	t := ptx.B32
	if k.A == tensor.F64 {
		o.Wide, t = true, ptx.B64
	}
	for i, f := range []*matrix.Fragment{k.Left, k.Right, k.Sum} {
		l.read(&o, &in.Operands[i+1], f.Registers, t)
	}
	l.written(&o, &in.Operands[0], k.Result.Registers, t)
	l.wholeWarp(o)
}

// wmma lowers wmma.load, wmma.mma and wmma.store. PTX does not say which thread
// holds which element. Here the elements lie in the threads one behind the other,
// row by row, those of B column by column; if the registers have twice as many
// places as there are elements, each element is there twice.
func (l *lowering) wmma(in *ptx.Instruction) {
	if len(in.Modifiers) < 2 || !in.Has("sync") || !in.Has("aligned") {
		l.refuse("this form is not supported")
	}
	what := in.Modifiers[0]
	which := ""
	if what == "load" || what == "store" {
		which = in.Modifiers[1]
	}
	switch what + which {
	case "mma":
		l.multiplyTiles(in)
	case "loada", "loadb", "loadc", "stored":
		l.moveTile(in, which)
	default:
		l.refuse("this form is not supported")
	}
}

func (l *lowering) multiplyTiles(in *ptx.Instruction) {
	types := in.Types
	if len(types) == 2 {
		types = []ptx.Type{types[0], ptx.F16, ptx.F16, types[1]}
	}
	if len(types) != 4 {
		l.refuse("this form is not supported")
	}
	l.only(in, append([]string{"mma", "sync", "aligned", "row", "col", "satfinite", "xor", "and", "popc", "rn"}, strings.Fields(tileShapes[types[1]])...)...)
	l.wants(in, 4)
	if in.Has("rn") && types[1] != ptx.F64 {
		l.refuse("this form is not supported")
	}
	p := l.product(in, types[0], types[1], types[2], types[3], tileShapes)
	p.Tile = true
	l.multiply(in, matrix.Tiled(p))
}

// moveTile lowers wmma.load and wmma.store.
func (l *lowering) moveTile(in *ptx.Instruction, which string) {
	if len(in.Types) != 1 {
		l.refuse("this form is not supported")
	}
	t := in.Types[0]
	factors := []ptx.Type{t} // the types of A whose sizes are allowed
	switch sum := which == "c" || which == "d"; {
	case sum && t == ptx.F32:
		factors = []ptx.Type{ptx.F16, ptx.TF32}
	case sum && t == ptx.S32:
		factors = []ptx.Type{ptx.S8, ptx.S4, ptx.B1}
	case sum && t != ptx.F16 && t != ptx.F64, !sum && tileShapes[t] == "":
		l.refuse("type .%v is not supported", t)
	}
	known := ""
	for _, f := range factors {
		known += tileShapes[f] + " "
	}
	l.only(in, append([]string{"load", "store", "a", "b", "c", "d", "sync", "aligned", "row", "col", "shared", "shared::cta", "global"}, strings.Fields(known)...)...)
	m, n, k := l.shape(in, known)
	f := tensorFormats[t]
	access := &matrix.Access{ByColumns: l.one(in, map[string]uint8{"row": 0, "col": 1}) == 1}
	switch which {
	case "a":
		access.Fragment = matrix.FactorTile(f, m, k, false)
	case "b":
		access.Fragment = matrix.FactorTile(f, k, n, true)
	default:
		access.Fragment = matrix.Tile(f, m, n, false)
	}
	if f.Bits() < 8 && access.ByColumns != (which == "b") {
		l.refuse("matrices of .%v lie row by row, as B column by column", t)
	}
	if n := len(in.Operands); n != 2 && n != 3 {
		l.refuse("%d operands are not supported", n)
	}
	o := newOp(OpLoadFragment)
	o.K, o.X, o.Space, o.Touch = access, int32(access.Cols), in.Space(), TouchLoadTile
	if access.ByColumns {
		o.X = int32(access.Rows)
	}
	rt := ptx.B32
	if t == ptx.F64 {
		o.Wide, rt = true, ptx.B64
	}
	at := &in.Operands[1]
	if which == "d" {
		at = &in.Operands[0]
		o.Do, o.Touch = OpStoreFragment, TouchStoreTile
		l.read(&o, &in.Operands[1], access.Registers, rt)
	} else {
		l.written(&o, &in.Operands[0], access.Registers, rt)
	}
	if len(in.Operands) == 3 {
		o.setB(l.src(&in.Operands[2], ptx.U32))
	}
	o.setAddress(l.address(at))
	l.wholeWarp(o)
}

// groupShapes are the depths k of wgmma, by the type of A. It always has 64 rows and
// up to 256 columns.
var groupShapes = map[ptx.Type]int{ptx.F16: 16, ptx.BF16: 16, ptx.TF32: 8, ptx.E4M3: 32, ptx.E5M2: 32, ptx.S8: 32, ptx.U8: 32}

// wgmma lowers the instructions of warpgroups. A product is done where it is issued,
// so fence, commit_group and wait_group have nothing to do.
func (l *lowering) wgmma(in *ptx.Instruction) {
	if len(in.Modifiers) < 3 || !in.Has("sync") || !in.Has("aligned") {
		l.refuse("this form is not supported")
	}
	switch in.Modifiers[0] {
	case "fence", "commit_group", "wait_group":
		l.only(in, "fence", "commit_group", "wait_group", "sync", "aligned")
		l.emit(newOp(OpNothing))
	case "mma_async":
		l.groupProduct(in)
	default:
		l.refuse("this form is not supported")
	}
}

func (l *lowering) groupProduct(in *ptx.Instruction) {
	if len(in.Types) != 3 || groupShapes[in.Types[1]] == 0 {
		l.refuse("these types are not supported")
	}
	d, a, b := in.Types[0], in.Types[1], in.Types[2]
	l.productTypes(d, a, b, d)
	p := tensor.Product{M: shape.WarpSize / 2, A: tensorFormats[a], B: tensorFormats[b], C: tensorFormats[d], D: tensorFormats[d], K: groupShapes[a], Saturate: in.Has("satfinite")}
	p.Short = a == ptx.E4M3 || a == ptx.E5M2
	sparse, depth := in.Has("sp"), p.K // of A, depth columns are stored
	if sparse {
		p.K = 2 * p.K
	}
	shape := ""
	for n := 8; n <= 256; n += 8 {
		if name := fmt.Sprintf("m64n%dk%d", n, p.K); in.Has(name) {
			p.N, shape = n, name
		}
	}
	if p.N == 0 || p.Saturate && p.A.Float() || !p.A.Float() && p.N > 32 && p.N%16 != 0 {
		l.refuse("this size is not supported with these types")
	}
	l.only(in, "mma_async", "sp", "sync", "aligned", "satfinite", shape)
	k := &matrix.GroupProduct{WarpProduct: *matrix.Group(p, depth)}
	ops := in.Operands
	inMemory := len(ops) > 1 && ops[1].Kind != ptx.VectorOperand
	flags := []*bool{}
	if p.A.Float() {
		flags = append(flags, &k.NegateA, &k.NegateB)
	}
	if transposable := a == ptx.F16 || a == ptx.BF16; transposable {
		if inMemory {
			flags = append(flags, &k.ByColumnsA)
		}
		flags = append(flags, &k.ByColumnsB)
	}
	first := 4 // of the flags
	if sparse {
		first = 6
	}
	l.wants(in, first+len(flags))
	o := newOp(OpGroupProduct)
	o.Touch, o.K = TouchProduct, k
	if inMemory {
		o.setA(l.src(&ops[1], ptx.B64))
	} else {
		l.read(&o, &ops[1], k.Left.Registers, ptx.B32)
	}
	o.setB(l.src(&ops[2], ptx.B64))
	if sparse {
		places := l.places(&p, &ops[4])
		k.Places = &places
	}
	adds, not := l.pred(&ops[first-1])
	o.setC(adds)
	o.Negated = not
	for i, flag := range flags {
		at := &ops[first+i]
		v, ok := at.Literal.Int()
		scale := i < 2
		if at.Kind != ptx.ImmediateOperand || !ok || scale && v != 1 && v != -1 || !scale && v != 0 && v != 1 {
			l.refuse("operand %s is not supported here", at)
		}
		*flag = v == -1 || !scale && v == 1
	}
	l.read(&o, &ops[0], k.Sum.Registers, ptx.B32)
	if sparse {
		o.addSource(l.src(&ops[3], ptx.B32))
	}
	l.written(&o, &ops[0], k.Result.Registers, ptx.B32)
	l.wholeWarp(o)
}
