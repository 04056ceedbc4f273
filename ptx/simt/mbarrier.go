package simt

// mbarrier is the object that PTX's mbarrier instructions keep in eight bytes of
// shared memory. It is a value in memory like any other, so that it needs no
// place of its own in a kernel's state. From the lowest bit on: the phase (1 bit),
// how many arrivals a phase has (20), how many are missing (20), and the bytes
// that are expected and have not come (23, signed).
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

// settle begins the next phase if nothing is missing.
func (b mbarrier) settle() mbarrier {
	if b.missing() == 0 && b.tx() == 0 {
		return newMbarrier(b.phase()^1, b.count(), b.count(), 0)
	}
	return b
}

// expect adds bytes that are to come; they may have come already.
func (b mbarrier) expect(bytes int64) (mbarrier, bool) {
	tx := b.tx() + bytes
	return newMbarrier(b.phase(), b.count(), b.missing(), tx), tx <= maxTx && tx >= -maxTx
}

// arrive takes arrivals off; false if so many are not missing.
func (b mbarrier) arrive(n uint64) (mbarrier, bool) {
	if n > b.missing() {
		return b, false
	}
	return newMbarrier(b.phase(), b.count(), b.missing()-n, b.tx()), true
}

// drop makes later phases have fewer arrivals; false if they have not so many.
func (b mbarrier) drop(n uint64) (mbarrier, bool) {
	if n > b.count() {
		return b, false
	}
	return newMbarrier(b.phase(), b.count()-n, b.missing(), b.tx()), true
}

// The operations of mbarrier. Those that arrive are any of the flags besides.
const (
	mbarrierInit uint8 = iota
	mbarrierInvalidate
	mbarrierExpect
	mbarrierComplete
	mbarrierTest   // whether the phase of a state is over
	mbarrierParity // whether the phase of a parity is over
	mbarrierPending
	mbarrierArrive
	arriveExpecting = 1 << 4 // b is bytes to expect, else the number of arrivals
	arriveDropping  = 1 << 5
)

// runMbarrier: a + imm: address; b: number (or -1); c: state (or -1); d: state, answer or number (or -1).
func runMbarrier(g *gang, in *inst) {
	if in.mode == mbarrierTest || in.mode == mbarrierParity {
		g.sync = true // a loop with it waits
	}
	var states [maxWidth]uint64
	var over mask
	for lane := g.first; lane < g.end; lane++ {
		if !g.mask.has(lane) {
			continue
		}
		addr := g.r64.lane(in.a, lane) + uint64(in.imm)
		old := mbarrier(loadLane[uint64](g, in, lane, addr))
		states[lane] = uint64(old)
		number := uint64(1)
		if in.b >= 0 {
			number = uint64(g.r32.lane(in.b, lane))
		}
		switch in.mode {
		case mbarrierTest:
			number = uint64(g.r64.lane(in.c, lane))
			fallthrough
		case mbarrierParity:
			if old.phase() != number&1 {
				over.set(lane)
			}
		default:
			storeLane(g, in, lane, addr, uint64(g.changeMbarrier(in, lane, addr, old, number)))
		}
	}
	switch {
	case in.d < 0:
	case in.mode == mbarrierTest || in.mode == mbarrierParity:
		g.setPredicate(in.d, over)
	default:
		d := g.r64.partial(g, in, in.d)
		for lane := g.first; lane < g.end; lane++ {
			if g.mask.has(lane) {
				d[lane] = states[lane]
			}
		}
	}
}

// changeMbarrier returns what an instruction makes of an mbarrier, or stops the
// kernel if it cannot be.
func (g *gang) changeMbarrier(in *inst, lane int, addr uint64, b mbarrier, number uint64) mbarrier {
	wrong := func(what string) { g.fault(in, lane, IllegalCall, addr, what) }
	ok := true
	switch in.mode {
	case mbarrierInit:
		if number == 0 || number > maxCount {
			wrong("an mbarrier has from 1 to 1048575 arrivals")
		}
		return newMbarrier(0, number, number, 0)
	case mbarrierInvalidate:
		return 0
	case mbarrierExpect, mbarrierComplete:
		bytes := int64(number)
		if in.mode == mbarrierComplete {
			bytes = -bytes
		}
		return g.expectBytes(in, lane, addr, b, bytes)
	}
	if in.mode&arriveExpecting != 0 {
		if b, ok = b.expect(int64(number)); !ok {
			wrong("an mbarrier cannot expect more than 1048575 bytes")
		}
		number = 1
	}
	if b, ok = b.arrive(number); !ok {
		wrong("more threads arrive at the mbarrier than are missing")
	}
	if in.mode&arriveDropping != 0 {
		if b, ok = b.drop(number); !ok {
			wrong("more threads leave the mbarrier than it has")
		}
	}
	return b.settle()
}

// expectBytes returns an mbarrier that expects more bytes, or fewer.
func (g *gang) expectBytes(in *inst, lane int, addr uint64, b mbarrier, bytes int64) mbarrier {
	b, ok := b.expect(bytes)
	if !ok {
		g.fault(in, lane, IllegalCall, addr, "an mbarrier cannot expect more than 1048575 bytes")
	}
	return b.settle()
}

// bytesCame tells an mbarrier in shared memory that a copy is done.
func (g *gang) bytesCame(in *inst, lane int, addr, bytes uint64) {
	to := *in
	to.space = sharedOr(addr)
	b := mbarrier(loadLane[uint64](g, &to, lane, addr))
	storeLane(g, &to, lane, addr, uint64(g.expectBytes(in, lane, addr, b, -int64(bytes))))
}

// runPendingCount: d: arrivals that were missing in state a.
func runPendingCount(g *gang, in *inst) {
	var d [maxWidth]uint32
	for lane := g.first; lane < g.end; lane++ {
		d[lane] = uint32(mbarrier(g.r64.lane(in.a, lane)).missing())
	}
	g.writeLanes32(in, in.d, &d)
}
