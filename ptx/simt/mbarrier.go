package simt

import "muster/ptx/simt/program"

// mbarrier is the object that PTX's mbarrier instructions keep in eight bytes of
// shared memory. It has no other state, so a saved kernel contains its mbarriers
// with its shared memory. A phase is over when all its arrivals and all its
// expected bytes have come; the next phase then begins at once.
//
// From the lowest bit on: the parity of the current phase (1 bit), how many
// arrivals each phase has (20), how many the current one still misses (20), and
// the bytes that are expected and have not come (23, signed).
//
// No lock protects it: the blocks that share it are in one team, and one worker
// runs a team, one lane after the other.
type mbarrier uint64

const (
	countBits = 20
	maxCount  = 1<<countBits - 1
	txShift   = 1 + 2*countBits
	maxTx     = 1<<(63-txShift) - 1
)

func newMbarrier(phase, count, missing uint64, tx int64) mbarrier {
	return mbarrier(phase&1 | count&maxCount<<1 | missing&maxCount<<(1+countBits) | uint64(tx)<<txShift)
}

func (b mbarrier) phase() uint64   { return uint64(b) & 1 }
func (b mbarrier) count() uint64   { return uint64(b) >> 1 & maxCount }
func (b mbarrier) missing() uint64 { return uint64(b) >> (1 + countBits) & maxCount }
func (b mbarrier) tx() int64       { return int64(b) >> txShift }

// settle begins the next phase if no arrival and no byte is missing.
func (b mbarrier) settle() mbarrier {
	if b.missing() == 0 && b.tx() == 0 {
		return newMbarrier(b.phase()^1, b.count(), b.count(), 0)
	}
	return b
}

// expect adds to the bytes that must come before the phase can end; a negative
// number is bytes that have come. The sum may be negative for a while, since a
// copy may be done before a thread says that it expects it. It returns false if
// the sum does not fit.
func (b mbarrier) expect(bytes int64) (mbarrier, bool) {
	tx := b.tx() + bytes
	return newMbarrier(b.phase(), b.count(), b.missing(), tx), tx <= maxTx && tx >= -maxTx
}

// arrive subtracts n arrivals from the missing ones; false if fewer are missing.
func (b mbarrier) arrive(n uint64) (mbarrier, bool) {
	if n > b.missing() {
		return b, false
	}
	return newMbarrier(b.phase(), b.count(), b.missing()-n, b.tx()), true
}

// drop lowers the number of arrivals of later phases by n; false if that number
// is smaller than n.
func (b mbarrier) drop(n uint64) (mbarrier, bool) {
	if n > b.count() {
		return b, false
	}
	return newMbarrier(b.phase(), b.count()-n, b.missing(), b.tx()), true
}

// runMbarrier: a + imm: address; b: number (or -1); c: state (or -1); d: state, answer or number (or -1).
func runMbarrier(g *gang, in *inst) {
	if in.Mode == program.MbarrierTest || in.Mode == program.MbarrierParity {
		g.sync = true // a loop that tests waits for other threads: its rounds cost more
	}
	var states [maxWidth]uint64
	var over mask
	for lane := g.first; lane < g.end; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		addr := g.r64.lane(in.A, lane) + uint64(in.Imm)
		old := mbarrier(loadLane[uint64](g, in, lane, addr))
		now := old
		states[lane] = uint64(old)
		number := uint64(1)
		if in.B >= 0 {
			number = uint64(g.r32.lane(in.B, lane))
		}
		switch in.Mode {
		case program.MbarrierTest:
			number = uint64(g.r64.lane(in.C, lane))
			fallthrough
		case program.MbarrierParity:
			if old.phase() != number&1 {
				over.set(lane)
			}
		default:
			now = g.changeMbarrier(in, lane, addr, old, number)
			storeLane(g, in, lane, addr, uint64(now))
		}
		if check := g.team.x.check; check != nil {
			check.changesMbarrier(g, in, lane, addr, old, now, over.has(lane))
		}
	}
	switch {
	case in.D < 0:
	case in.Mode == program.MbarrierTest || in.Mode == program.MbarrierParity:
		g.setPredicate(in.D, over)
	default:
		d := g.r64.partial(g, in, in.D)
		for lane := g.first; lane < g.end; lane++ {
			if g.mask.has(lane) {
				d[lane] = states[lane]
			}
		}
	}
}

// changeMbarrier returns the mbarrier after an instruction, or stops the kernel
// with a fault if the instruction is not valid in its state.
func (g *gang) changeMbarrier(in *inst, lane int, addr uint64, b mbarrier, number uint64) mbarrier {
	wrong := func(what string) { g.fault(in, lane, IllegalCall, addr, what) }
	ok := true
	switch in.Mode {
	case program.MbarrierInit:
		if number == 0 || number > maxCount {
			wrong("an mbarrier has from 1 to 1048575 arrivals")
		}
		return newMbarrier(0, number, number, 0)
	case program.MbarrierInvalidate:
		return 0
	case program.MbarrierExpect, program.MbarrierComplete:
		bytes := int64(number)
		if in.Mode == program.MbarrierComplete {
			bytes = -bytes
		}
		return g.expectBytes(in, lane, addr, b, bytes)
	}
	if in.Mode&program.ArriveExpecting != 0 {
		if b, ok = b.expect(int64(number)); !ok {
			wrong("an mbarrier cannot expect more than 1048575 bytes")
		}
		number = 1
	}
	if b, ok = b.arrive(number); !ok {
		wrong("more threads arrive at the mbarrier than are missing")
	}
	if in.Mode&program.ArriveDropping != 0 {
		if b, ok = b.drop(number); !ok {
			wrong("more threads leave the mbarrier than it has")
		}
	}
	return b.settle()
}

// expectBytes returns the mbarrier after it expects more bytes, or fewer, and
// stops the kernel with a fault if their number does not fit.
func (g *gang) expectBytes(in *inst, lane int, addr uint64, b mbarrier, bytes int64) mbarrier {
	b, ok := b.expect(bytes)
	if !ok {
		g.fault(in, lane, IllegalCall, addr, "an mbarrier cannot expect more than 1048575 bytes")
	}
	return b.settle()
}

// bytesCame subtracts the bytes of a copy that is done from those that an
// mbarrier in shared memory expects.
func (g *gang) bytesCame(in *inst, lane int, addr, bytes uint64) {
	to := *in
	to.Space = sharedOr(addr)
	b := mbarrier(loadLane[uint64](g, &to, lane, addr))
	now := g.expectBytes(in, lane, addr, b, -int64(bytes))
	storeLane(g, &to, lane, addr, uint64(now))
	if check := g.team.x.check; check != nil {
		check.endsCopy(g, lane, addr, b, now)
	}
}

// runPendingCount: d: arrivals that were missing in state a.
func runPendingCount(g *gang, in *inst) {
	var d [maxWidth]uint32
	for lane := g.first; lane < g.end; lane++ {
		d[lane] = uint32(mbarrier(g.r64.lane(in.A, lane)).missing())
	}
	g.writeLanes32(in, in.D, &d)
}
