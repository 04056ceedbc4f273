package memcheck

import (
	"math/bits"

	"muster/ptx/simt/shape"
)

// Shadow memory: what a checker knows about each byte, in pages of 4 KiB. One bit per
// byte says whether it was written. Three records say which threads used a word of 4
// bytes in the running launch. In pages where a thread has used less than a word, there
// are three records for each byte.

const (
	PageBytes = 4096
	pageWords = PageBytes / 4
)

// Page is the shadow of a page of memory.
type Page struct {
	Init [PageBytes / 64]uint64 // a bit for each byte that was written
	Full bool                   // all of init is set
	Uses *Uses                  // nil if no launch has used the page
	Used Record                 // an upper bound of the records in uses; see reclaim
}

// Uses records which threads used the words or bytes of a page: the last writer, and two
// different readers since. Two readers suffice to find that a later write races with a
// read: at least one of them is not the writer itself.
type Uses struct {
	Shift               uint // 2: an entry for each word; 0: for each byte
	Write, Read, Reread []Record
}

func newUses(shift uint) *Uses {
	n := PageBytes >> shift
	all := make([]Record, 3*n)
	return &Uses{Shift: shift, Write: all[:n:n], Read: all[n : 2*n : 2*n], Reread: all[2*n:]}
}

func (u *Uses) bytes() int {
	if u == nil {
		return 0
	}
	return 3 * 8 * len(u.Write)
}

// split returns the same records with an entry for each byte.
func (u *Uses) split() *Uses {
	s := newUses(0)
	for i := range PageBytes {
		s.Write[i], s.Read[i], s.Reread[i] = u.Write[i/4], u.Read[i/4], u.Reread[i/4]
	}
	return s
}

func (p *Page) bytes() int {
	if p == nil {
		return 0
	}
	return PageBytes/8 + 64 + p.Uses.bytes()
}

// Write marks bytes as written.
func (p *Page) Write(from, n int) {
	if p.Full {
		return
	}
	for i, end := from, from+n; i < end; {
		k := min(64-i%64, end-i)
		p.Init[i/64] |= (1<<k - 1) << (i % 64)
		if k == 64 {
			p.Init[i/64] = ^uint64(0)
		}
		i += k
	}
	if n >= 64 {
		p.Settle()
	}
}

// Settle sets full if all of a page is written.
func (p *Page) Settle() {
	for _, b := range p.Init {
		if b != ^uint64(0) {
			return
		}
	}
	p.Full = true
}

// Unwritten returns the index of the first of n bytes that was never written, or -1.
func (p *Page) Unwritten(from, n int) int {
	if p.Full {
		return -1
	}
	for i, end := from, from+n; i < end; {
		k := min(64-i%64, end-i)
		m := uint64(1<<k - 1)
		if k == 64 {
			m = ^uint64(0)
		}
		if missing := ^(p.Init[i/64] >> (i % 64)) & m; missing != 0 {
			return i + bits.TrailingZeros64(missing)
		}
		i += k
	}
	return -1
}

// forget marks a page of shared memory as unwritten, for the next block.
func (p *Page) forget() { p.Init, p.Full = [PageBytes / 64]uint64{}, false }

// Record says who used a word, when, and with which instruction: the number of the
// block (22 bits, the highest), the clock of its warp (16), the thread (11) and the
// instruction's site (15). Threads from MaxThreads on are copy engines (check_async.go of package simt).
//
// The order of the fields makes comparisons cheap. Numbers of blocks grow from launch to
// launch, so all records of earlier launches are below those of this one. Within a block
// all records from before a moment at which all its warps were ordered are below
// Block.settled. One comparison with such a floor rules most records out.
type Record uint64

const (
	ThreadShift = 15
	ClockShift  = 26
	BlockShift  = 42
	MaxSites    = 1<<15 - 1
	maxWho      = 1<<11 - 1
	maxClock    = 1<<16 - 1
	maxBlockIDs = 1<<22 - 1

	BlockMask = Record(1<<64 - 1<<BlockShift)
	ClockMask = Record(maxClock << ClockShift)
	WhoMask   = BlockMask | maxWho<<ThreadShift
)

func (r Record) Block() uint32 { return uint32(r >> BlockShift) }
func (r Record) Thread() int   { return int(r >> ThreadShift & maxWho) }
func (r Record) Warp() int     { return r.Thread() / shape.WarpSize }
func (r Record) clock() uint16 { return uint16(r >> ClockShift) }
func (r Record) Site() int     { return int(r & MaxSites) }
