package simt

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"muster/ptx/simt/program"
	"muster/ptx/simt/shape"
)

// The state of a stopped execution as bytes: what was launched, then every
// team that has begun, with all registers, masks and memories of its lanes, and
// a checksum at the end. Global memory is not part of it: the caller saves that.
//
// Resume must accept a state from an untrusted file. The checksum finds damage,
// not malice, so the decoder checks every number that is used as an index.

const (
	stateMagic   = "muster.simt"
	stateVersion = 4
)

// Save returns the state of an execution that is not running.
func (x *Execution) Save() ([]byte, error) {
	if x.fault != nil {
		return nil, fmt.Errorf("a kernel that failed has no state to save: %w", x.fault)
	}
	e := &encoder{}
	e.bytes = append(e.bytes, stateMagic...)
	e.u32(stateVersion)
	kernel := x.kernel.Sum()
	e.bytes = append(e.bytes, kernel[:]...)
	l := &x.launch
	for _, d := range []shape.Dim{l.Grid, l.Block, l.Cluster} {
		e.u32(d.X)
		e.u32(d.Y)
		e.u32(d.Z)
	}
	e.u32(uint32(l.Shared))
	e.u32(uint32(l.Width))
	e.u32(uint32(l.Stack))
	e.bool(l.Cooperative)
	e.u32(uint32(x.perGang))
	e.u64(min(x.next.Load(), x.teams))
	e.block(x.paramBytes)
	var stats Stats
	var teams []*team
	for _, w := range x.workers {
		teams = append(teams, w.teams...)
		stats.Instructions += w.stats.Instructions
		stats.LaneOps += w.stats.LaneOps
	}
	e.u64(stats.Instructions)
	e.u64(stats.LaneOps)
	e.u32(uint32(len(teams)))
	for _, t := range teams {
		e.team(t)
	}
	sum := sha256.Sum256(e.bytes)
	return append(e.bytes, sum[:]...), nil
}

// Resume makes an execution from a saved state of the same kernel. Grid, block, cluster,
// sizes of memory, width, parameters and Cooperative come from the state. All else comes
// from l: Memory, Textures, Heap, Print, Complain, Workers, Order, Engine, and what
// observes the run. Resume refuses a state that it does not understand.
func (k *Kernel) Resume(l Launch, state []byte) (*Execution, error) {
	x, err := k.resume(l, state)
	if err != nil {
		return nil, fmt.Errorf("kernel %s: state of %d bytes: %w", k.Name, len(state), err)
	}
	return x, nil
}

func (k *Kernel) resume(l Launch, state []byte) (*Execution, error) {
	if len(state) < len(stateMagic)+sha256.Size || string(state[:len(stateMagic)]) != stateMagic {
		return nil, errors.New("this is not the state of a kernel")
	}
	body := state[:len(state)-sha256.Size]
	if sha256.Sum256(body) != [sha256.Size]byte(state[len(body):]) {
		return nil, errors.New("the state is damaged: its checksum does not match")
	}
	d := &decoder{bytes: body[len(stateMagic):]}
	if v := d.u32(); v != stateVersion {
		return nil, fmt.Errorf("version %d of the state is not understood, only %d", v, stateVersion)
	}
	if kernel := k.Sum(); string(d.take(len(kernel))) != string(kernel[:]) {
		return nil, errors.New("the state is that of another kernel, or of another version of it")
	}
	l.Grid = shape.Dim{X: d.u32(), Y: d.u32(), Z: d.u32()}
	l.Block = shape.Dim{X: d.u32(), Y: d.u32(), Z: d.u32()}
	l.Cluster = shape.Dim{X: d.u32(), Y: d.u32(), Z: d.u32()}
	l.Shared, l.Width, l.Stack = int(d.u32()), int(d.u32()), int(d.u32())
	l.Cooperative = d.bool()
	perGang, next := int(d.u32()), d.u64()
	l.Params = d.block(k.ParamSize)
	if d.err != nil {
		return nil, d.err
	}
	x, err := k.Start(l)
	if err != nil {
		return nil, err
	}
	x.perGang = perGang
	if perGang < 1 || perGang > max(x.cluster, x.width/x.stride) || perGang%x.cluster != 0 {
		return nil, errors.New("the state contradicts itself")
	}
	x.teams = ceil(x.blocks, uint64(perGang))
	if next > x.teams {
		return nil, errors.New("the state contradicts itself")
	}
	x.next.Store(next)
	x.workers[0].stats = Stats{d.u64(), d.u64()}
	n := int(d.u32())
	if uint64(n) > next {
		return nil, errors.New("the state contradicts itself")
	}
	for i := 0; i < n && d.err == nil; i++ {
		t := x.newTeam()
		d.team(t)
		w := x.workers[i%len(x.workers)]
		w.teams = append(w.teams, t)
	}
	if d.err == nil && len(d.bytes) != 0 {
		d.err = errors.New("there are bytes behind its end")
	}
	return x, d.err
}

type encoder struct{ bytes []byte }

func (e *encoder) u32(v uint32) { e.bytes = binary.LittleEndian.AppendUint32(e.bytes, v) }
func (e *encoder) u64(v uint64) { e.bytes = binary.LittleEndian.AppendUint64(e.bytes, v) }

func (e *encoder) bool(b bool) {
	if b {
		e.u32(1)
	} else {
		e.u32(0)
	}
}

func (e *encoder) block(b []byte) {
	e.u32(uint32(len(b)))
	e.bytes = append(e.bytes, b...)
}

func (e *encoder) mask(m *mask) {
	for _, w := range m {
		e.u64(w)
	}
}

func (e *encoder) team(t *team) {
	e.u64(t.number)
	e.u32(uint32(t.at))
	e.u32(uint32(t.idle))
	e.u32(uint32(t.yields))
	for b := range t.blocks {
		e.u64(t.blocks[b])
		e.u32(uint32(t.live[b]))
		for _, bar := range t.bars[b] {
			e.u32(uint32(bar.arrived))
			e.u32(uint32(bar.expected))
			e.u32(uint32(bar.holds))
		}
	}
	e.block(t.bytes)
	for _, g := range t.gangs {
		e.gang(g)
	}
}

func (e *encoder) gang(g *gang) {
	e.mask(&g.live)
	e.mask(&g.cc)
	e.mask(&g.arrived)
	e.u32(uint32(g.cur))
	e.u32(uint32(g.favour))
	e.u32(uint32(g.spin))
	e.u32(uint32(g.rounds))
	e.u64(g.stamp)
	e.u64(g.ticks)
	e.bool(g.sync)
	e.bool(g.partial)
	e.u32(uint32(len(g.groups)))
	for i := range g.groups {
		grp := &g.groups[i]
		e.u32(uint32(grp.pc))
		e.u32(uint32(grp.state) | uint32(grp.bar)<<8)
		e.mask(&grp.lanes)
		e.u64(grp.stamp)
	}
	for i := range g.p {
		e.mask(&g.p[i])
	}
	fixed := g.team.x.image.fixed()
	encodeFile(e, &g.r32, program.Bits32, fixed)
	encodeFile(e, &g.r64, program.Bits64, fixed)
	used := len(g.local) // without the zeros at the end, which a new gang has anyway
	for used > 0 && g.local[used-1] == 0 {
		used--
	}
	e.u32(uint32(used))
	for _, v := range g.local[:used] {
		e.u32(v)
	}
}

// encodeFile writes the registers of a width, each in one of its valid forms.
// Constants are left out: the launch fills them in again.
func encodeFile[T regval](e *encoder, r *file[T], c program.Class, fixed map[slot]bool) {
	for i, f := range r.form {
		if fixed[slot{c, int32(i)}] {
			continue
		}
		e.u32(uint32(f.bits))
		encodeValue(e, f.stride)
		encodeValue(e, f.base)
		for _, v := range r.stored(int32(i), f.bits) {
			encodeValue(e, v)
		}
	}
}

// stored returns the array that a state must contain for a register in this form; nil
// if base and stride are enough.
func (r *file[T]) stored(slot int32, bits uint8) []T {
	switch {
	case bits&scalar != 0:
		return nil
	case bits&compressed != 0:
		return r.bases[slot]
	}
	return r.values[slot]
}

func encodeValue[T regval](e *encoder, v T) {
	if T(0)-1 == T(1<<32-1) {
		e.u32(uint32(v))
	} else {
		e.u64(uint64(v))
	}
}

// slot names a register.
type slot struct {
	class  program.Class
	number int32
}

// fixed returns the slots of constants.
func (m *image) fixed() map[slot]bool {
	fixed := map[slot]bool{}
	for _, list := range [][]program.Constant{m.Constants, m.PerBlock} {
		for _, c := range list {
			fixed[slot{c.Class, c.Slot}] = true
		}
	}
	return fixed
}

// decoder reads what encoder wrote. After an error it returns zeros, so that
// callers need to look at err only once.
type decoder struct {
	bytes []byte
	err   error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
	d.bytes = nil
}

func (d *decoder) take(n int) []byte {
	if n < 0 || n > len(d.bytes) {
		d.fail("the state ends too early")
		return make([]byte, min(max(n, 8), 64))
	}
	b := d.bytes[:n]
	d.bytes = d.bytes[n:]
	return b
}

func (d *decoder) u32() uint32 { return binary.LittleEndian.Uint32(d.take(4)) }
func (d *decoder) u64() uint64 { return binary.LittleEndian.Uint64(d.take(8)) }

func (d *decoder) bool() bool { return d.u32() != 0 }

// number reads a number that must be below a limit; else it fails.
func (d *decoder) number(limit int) int {
	n := d.u32()
	if d.err == nil && uint64(n) >= uint64(limit) {
		d.fail("the state contradicts itself")
		return 0
	}
	return int(n)
}

func (d *decoder) block(want int) []byte {
	n := int(d.u32())
	if d.err == nil && n != want {
		d.fail("the state contradicts itself")
	}
	if d.err != nil {
		return nil
	}
	return d.take(n)
}

func (d *decoder) mask() (m mask) {
	for i := range m {
		m[i] = d.u64()
	}
	return m
}

func (d *decoder) team(t *team) {
	t.begin(0)
	t.check = nil // what it knows is of a team that begins: resume makes it anew
	t.number = d.u64()
	t.at, t.idle, t.yields = d.number(len(t.gangs)), d.number(len(t.gangs)), d.number(len(t.gangs)+1)
	for b := range t.blocks {
		t.blocks[b] = d.u64()
		t.live[b] = d.number(shape.MaxThreads + 1)
		if t.blocks[b] >= t.x.blocks {
			d.fail("the state contradicts itself")
			t.blocks[b] = 0
		}
		for i := range t.bars[b] {
			t.bars[b][i] = barrier{d.number(shape.MaxThreads + 1), d.number(shape.MaxThreads + 1), d.number(shape.MaxThreads + 1)}
		}
	}
	t.arrivals = true
	copy(t.bytes, d.block(len(t.bytes)))
	for _, g := range t.gangs {
		d.gang(g)
	}
}

func (d *decoder) gang(g *gang) {
	m := g.team.x.image
	for _, c := range m.PerBlock {
		g.fill(&c)
	}
	var all mask
	for i := range g.lanesOf {
		all = all.or(&g.lanesOf[i])
	}
	inside := func(m mask) mask {
		if out := m.without(&all); !out.empty() {
			d.fail("the state contradicts itself")
		}
		return m
	}
	g.live = inside(d.mask())
	g.cc = d.mask()
	g.arrived = inside(d.mask())
	g.cur, g.favour, g.spin, g.rounds = d.number(maxWidth+1), d.number(1<<30), d.number(1<<30), d.number(1<<30)
	g.stamp, g.ticks = d.u64(), d.u64()
	g.sync, g.partial = d.bool(), d.bool()
	n := d.number(maxWidth + 1)
	g.groups = g.groups[:0]
	for range n {
		grp := group{pc: int32(d.number(len(m.code)))}
		state := d.u32()
		grp.state, grp.bar = groupState(state&0xff), uint8(state>>8)
		grp.lanes, grp.stamp = inside(d.mask()), d.u64()
		waits := map[groupState]program.Flow{atBar: program.FlowBarrier, atWarp: program.FlowWarp, atWarpBar: program.FlowWarpWait}[grp.state]
		if grp.state > atWarpBar || grp.bar > clusterBarrier || grp.lanes.empty() || grp.state != ready && m.code[grp.pc].Flow != waits {
			d.fail("the state contradicts itself")
		}
		g.groups = append(g.groups, grp)
	}
	if g.partial && g.cur >= len(g.groups) {
		d.fail("the state contradicts itself")
	}
	for i := range g.p {
		g.p[i] = d.mask()
	}
	fixed := m.fixed()
	decodeFile(d, &g.r32, program.Bits32, fixed)
	decodeFile(d, &g.r64, program.Bits64, fixed)
	used := d.number(len(g.local) + 1)
	for i := range used {
		g.local[i] = d.u32()
	}
}

// decodeFile reads what encodeFile wrote.
func decodeFile[T regval](d *decoder, r *file[T], c program.Class, fixed map[slot]bool) {
	for i := range r.form {
		if fixed[slot{c, int32(i)}] {
			continue
		}
		f := form[T]{uint8(d.number(64)), decodeValue[T](d), decodeValue[T](d)}
		switch {
		case f.bits&scalar != 0:
			f.bits &= scalar
		case f.bits&compressed != 0:
			f.bits = compressed
		default:
			f.bits = expanded
		}
		values := r.stored(int32(i), f.bits)
		for j := range values {
			values[j] = decodeValue[T](d)
		}
		r.form[i] = f
	}
}

func decodeValue[T regval](d *decoder) T {
	if T(0)-1 == T(1<<32-1) {
		return T(d.u32())
	}
	return T(d.u64())
}
