//go:build linux && amd64

package native

import (
	"encoding/binary"
	"math/bits"
)

// Loads and stores. The code before the loop checks bounds and alignment of all
// active lanes; the loop then accesses memory without a check. The check of global
// memory is against the view of the instruction, which simt's learn has filled in;
// an empty view fails every check.

// bounds prepares the check of an access: rdx gets the address of its view, rdi what
// to add to an address to get its offset in the view, and rax the largest offset at
// which span bytes fit. It fails if the view is shorter than span.
func (c *compiler) bounds(s *step, more int64, span int64) {
	c.set(rdi, uint64(s.Imm+more))
	if s.Space == Global {
		c.view(s)
		c.legacy(true, opSub, rdi, at(rdx, 0))
		c.legacy(true, opMov, rax, at(rdx, 8))
	} else {
		c.legacy(true, opMov, rax, at(regFrame, offSharedSize))
	}
	c.immediate(true, 5, inReg(rax), int32(span))
	c.jumpIf(ccBelow, c.failed())
}

// view gets the address of an access's view into rdx.
func (c *compiler) view(s *step) {
	v := c.code.views[s.index]
	if v < 0 {
		v = int32(c.code.count)
		c.code.count++
		c.code.views[s.index] = v
	}
	c.legacy(true, opMov, rdx, at(regFrame, offViews))
	if v > 0 {
		c.immediate(true, 0, inReg(rdx), v*int32(viewBytes))
	}
}

// bytesOf is how many bytes a lane accesses.
func (s *step) bytesOf() int64 { return int64(s.Size * len(s.Elements)) }

// checkMemory emits the check of an access.
func (c *compiler) checkMemory(s *step) {
	r, k := s.Op.Sources[0], s.sources[0]
	n := s.bytesOf()
	switch k.Form {
	case Uniform:
		c.bounds(s, 0, n)
		c.legacy(true, opAdd, rdi, home(r))
		c.legacy(true, opCmp, rdi, inReg(rax))
		c.jumpIf(ccAbove, c.failed())
		if n > 1 {
			c.legacy(false, []byte{0xf7}, 0, inReg(rdi), binary.LittleEndian.AppendUint32(nil, uint32(n-1))...) // test
			c.jumpIf(ccNotEqual, c.failed())
		}
	case Linear:
		c.checkEnds(s)
	case Chunked:
		c.checkChunks(s)
	default:
		c.bounds(s, 0, n)
		c.checkLanes(s, r, n)
	}
}

// checkEnds checks an access at a linear address: if the first and the last active lane
// are within the view, all between are. It stores where lane 0 reaches in the frame, for
// the loop. If the gang has several blocks, that is where lane 0 of the first one reaches:
// all of them use the same addresses, and have shared memories of one size.
func (c *compiler) checkEnds(s *step) {
	r, k, n := s.Op.Sources[0], s.sources[0], s.bytesOf()
	c.bounds(s, 0, n)
	c.legacy(true, opAdd, rdi, home(r))
	for i, lane := range [...]int{offFirstLane, offLastLane} {
		end := [...]int{rcx, rsi}[i]
		c.timesStride(true, end, lane, k)
		c.legacy(true, opAdd, end, inReg(rdi))
		c.legacy(true, opCmp, end, inReg(rax))
		c.jumpIf(ccAbove, c.failed())
	}
	if n > 1 { // strides are multiples of n
		c.legacy(false, []byte{0xf7}, 0, inReg(rdi), binary.LittleEndian.AppendUint32(nil, uint32(n-1))...) // test
		c.jumpIf(ccNotEqual, c.failed())
	}
	if s.Space == Global {
		c.legacy(true, opAdd, rdi, at(rdx, 16))
	} else {
		c.legacy(true, opAdd, rdi, at(regFrame, offShared))
	}
	c.legacy(true, opStore, rdi, at(regFrame, offPointers+8*s.pointer))
}

// checkChunks compares the offsets of all active chunks. It stores where their first lanes
// reach in the frame, for the loop.
func (c *compiler) checkChunks(s *step) {
	r, k, n := s.Op.Sources[0], s.sources[0], s.bytesOf()
	least := min(0, 15*k.Stride) // from a chunk's first lane to the one with the least address
	c.bounds(s, least, max(k.Stride, -k.Stride)*15+n)
	c.evex(fromGPR64, zmm, zmmT0, 0, inReg(rax), masked{})
	c.evex(fromGPR64, zmm, zmmT1, 0, inReg(rdi), masked{})
	for half := range 2 {
		c.evex(vpaddq, zmm, zmmT2, zmmT1, bases(r, half), masked{})
		c.evex(vpcmpuq, zmm, 4+half, zmmT2, inReg(zmmT0), masked{}, 6)
		c.evex(vptestmq, zmm, 6+half, zmmT2, c.word64(uint64(n-1)), masked{})
	}
	c.vex(coding{1, 1, 0, 0x4b}, true, 4, 5, inReg(4)) // kunpckbw
	c.vex(coding{1, 1, 0, 0x4b}, true, 6, 7, inReg(6))
	c.vex(coding{0, 1, 0, 0x45}, true, 4, 4, inReg(6))    // korw
	c.vex(coding{0, 1, 0, 0x93}, false, rax, 0, inReg(4)) // kmovw
	c.legacy(true, opAnd, rax, at(regFrame, offActiveChunks))
	c.jumpIf(ccNotEqual, c.failed())
	if least != 0 {
		c.immediate(true, 5, inReg(rdi), int32(least))
	}
	if s.Space == Global {
		c.legacy(true, opAdd, rdi, at(rdx, 16))
	} else {
		c.legacy(true, opAdd, rdi, at(regFrame, offShared))
	}
	c.evex(fromGPR64, zmm, zmmT1, 0, inReg(rdi), masked{})
	for half := range 2 {
		c.evex(vpaddq, zmm, zmmT2, zmmT1, bases(r, half), masked{})
		if s.Space == Shared {
			c.evex(vpaddq, zmm, zmmT2, zmmT2, at(regFrame, offSharedOffset+64*half), masked{})
		}
		c.evex(vstore64, zmm, zmmT2, 0, at(regFrame, offChunkPtrs+(8*s.pointer*ChunkPitch)+64*half), masked{})
	}
}

// checkLanes compares the offsets of all active lanes, also of those without the guard: the guard
// may be computed by the loop behind the check, so the check must not rely on it.
func (c *compiler) checkLanes(s *step, r Ref, n int64) {
	c.evex(fromGPR64, zmm, zmmT0, 0, inReg(rax), masked{})
	c.evex(fromGPR64, zmm, zmmT1, 0, inReg(rdi), masked{})
	c.vex(coding{0, 1, 0, 0x47}, true, 4, 4, inReg(4)) // kxorw: nothing failed yet
	c.rounds(func() {
		c.guardMask(s)
		for part := range 4 {
			k := c.quarter(kMask, part)
			c.evex(vpaddq, zmm, zmmT2, zmmT1, lanes(r, part), masked{})
			c.evex(vpcmpuq, zmm, 5, zmmT2, inReg(zmmT0), masked{k: k}, 6)
			c.evex(vptestmq, zmm, 6, zmmT2, c.word64(uint64(n-1)), masked{k: k})
			c.vex(coding{0, 1, 0, 0x45}, true, 4, 4, inReg(5))
			c.vex(coding{0, 1, 0, 0x45}, true, 4, 4, inReg(6))
		}
	})
	c.vex(coding{0, 1, 0, 0x98}, false, 4, 0, inReg(4)) // kortestw
	c.jumpIf(ccNotEqual, c.failed())
}

// loadUniform loads, once, the values that all lanes read from one place.
func (c *compiler) loadUniform(s *step) {
	// rdi has the offset and rdx the view, from checkMemory.
	if s.Space == Global {
		c.legacy(true, opAdd, rdi, at(rdx, 16))
	} else {
		c.legacy(true, opAdd, rdi, at(regFrame, offShared))
	}
	for e, r := range s.Elements {
		from := at(rdi, e*s.Size)
		switch {
		case s.Size == 1 && s.Signed:
			c.legacy(false, opSx8, rax, from)
		case s.Size == 1:
			c.legacy(false, opZx8, rax, from)
		case s.Size == 2 && s.Signed:
			c.legacy(false, opSx16, rax, from)
		case s.Size == 2:
			c.legacy(false, opZx16, rax, from)
		default:
			c.legacy(s.Size == 8, opMov, rax, from)
		}
		k := Kind{Form: Uniform}
		if c.isCarried(r) {
			k = c.kindOf(r)
		}
		c.setUniform(r, k)
	}
}

// supportedAccess says whether a load or store can be compiled: elements as wide as
// the register, or bytes and halves that lie one behind the other.
func (c *compiler) supportedAccess(s *step) bool {
	k := s.sources[0]
	if s.Space != Global && (s.Space != Shared || c.NoShared) || len(s.Elements) == 0 {
		return false
	}
	if s.Imm != int64(int32(s.Imm)) || s.Imm > 1<<30 || s.Imm < -1<<30 {
		return false
	}
	class := Class(None)
	for _, r := range s.Elements {
		if r.Slot < 0 {
			return false
		}
		if s.Name == "ld" && r == s.Op.Sources[0] && len(s.Elements) > 1 {
			return false // the first element would overwrite the address
		}
		class = r.Class
	}
	if s.Size == 8 && class != Bits64 || s.Size < 8 && class != Bits32 {
		return false
	}
	if k.Form != Vector && k.Stride%s.bytesOf() != 0 {
		return false
	}
	if s.Size >= 4 {
		return true
	}
	// Bytes and halves have no gather.
	return len(s.Elements) == 1 && (k.Form == Uniform && s.scalar() || k.Form != Vector && k.Stride == int64(s.Size))
}

// pointers gets, into rax and rdi, the addresses to which the lanes of the round's
// two chunks add their offsets; the base of the chunk, or the uniform address, is
// included. Where the access's check has computed them, Imm is included, too.
func (c *compiler) pointers(s *step) {
	r := s.Op.Sources[0]
	switch s.sources[0].Form {
	case Linear:
		c.linearPointer(s)
		c.prefetch(s)
		return
	case Chunked:
		c.legacy(true, opMov, rax, indexed(regFrame, regChunk, 3, offChunkPtrs+8*s.pointer*ChunkPitch))
		c.legacy(true, opMov, rdi, indexed(regFrame, regChunk, 3, offChunkPtrs+8*s.pointer*ChunkPitch+8))
		return
	}
	if s.Space == Global {
		c.view(s)
		c.legacy(true, opMov, rax, at(rdx, 16))
		c.legacy(true, opSub, rax, at(rdx, 0))
		c.legacy(true, opMov, rdi, inReg(rax))
	} else {
		c.legacy(true, opMov, rax, at(regFrame, offShared))
		c.legacy(true, opMov, rdi, inReg(rax))
		c.legacy(true, opAdd, rax, indexed(regFrame, regChunk, 3, offSharedOffset))
		c.legacy(true, opAdd, rdi, indexed(regFrame, regChunk, 3, offSharedOffset+8))
	}
	if s.sources[0].Form == Uniform {
		c.legacy(true, opAdd, rax, home(r))
		c.legacy(true, opAdd, rdi, home(r))
	}
}

// linearPointer computes, in rax, the address that the round's first lane accesses,
// without Imm, which checkEnds has included in the pointer. If the gang has several blocks,
// rdi gets that of the round's second chunk.
func (c *compiler) linearPointer(s *step) {
	c.legacy(true, opMov, rax, at(regFrame, offPointers+8*s.pointer))
	if c.Several {
		c.legacy(true, opMov, rdi, inReg(rax))
		if s.Space == Shared {
			c.legacy(true, opAdd, rax, indexed(regFrame, regChunk, 3, offSharedOffset))
			c.legacy(true, opAdd, rdi, indexed(regFrame, regChunk, 3, offSharedOffset+8))
		}
		return
	}
	if scale := bits.TrailingZeros64(uint64(s.sources[0].Stride)) - 2; scale >= 0 && scale <= 3 && s.sources[0].Stride == 4<<scale {
		c.legacy(true, opLea, rax, indexed(rax, regLane, uint8(scale), 0))
		return
	}
	c.legacy(true, []byte{0x69}, rdi, inReg(regChunk), binary.LittleEndian.AppendUint32(nil, uint32(16*s.sources[0].Stride))...) // imul
	c.legacy(true, opAdd, rax, inReg(rdi))
}

// prefetch asks for what the same lanes of the worker's next block will load, if blocks
// go through memory one behind the other. The processor itself sees less: it prefetches
// within a page, and learns each stream anew. In a loop the next block is far away.
func (c *compiler) prefetch(s *step) {
	n := s.bytesOf()
	if !c.chained || s.Name != "ld" || s.Space != Global || s.sources[0].Stride != n || n < 4 || c.inLoop[s.index] {
		return
	}
	c.timesStride(true, rdi, offAhead, s.sources[0])
	for line := range int(n) / 2 {
		c.legacy(false, []byte{0x0f, 0x18}, 1, indexed(rax, rdi, 0, line*64)) // prefetcht0
	}
}

// strides is the constant vector of 16 lane numbers times a stride.
func (c *compiler) strides(stride int64) place { return c.stridesFrom(0, stride) }

// stridesFrom is strides of the lanes from a first one on.
func (c *compiler) stridesFrom(first int, stride int64) place {
	b := make([]byte, 0, 64)
	for l := range int64(16) {
		b = binary.LittleEndian.AppendUint32(b, uint32((int64(first)+l)*stride))
	}
	return c.constant(b)
}

// chunkBase returns the register in which pointers has put the address of a part's
// chunk, and what to add to it for an element of a lane.
func (c *compiler) chunkBase(s *step, part, parts, element int) (base, offset int) {
	offset = element * s.Size
	switch form := s.sources[0].Form; {
	case !s.hasPointer():
		offset += int(s.Imm)
	case form == Linear && part >= parts/2 && !c.Several:
		return rax, offset + int(16*s.sources[0].Stride)
	}
	if part < parts/2 {
		return rax, offset
	}
	return rdi, offset
}

// wholeOrHalf emits a gather or scatter at a linear address: of whole chunks, or of their lower
// or upper 8 lanes, which takes half the time, where all active lanes of the gang are among
// these. That is known only of a gang with several blocks, and AVX2 goes by 8 lanes anyway.
func (c *compiler) wholeOrHalf(s *step, whole, lower, upper func()) {
	if !c.Several || c.narrow || s.sources[0].Form != Linear {
		whole()
		return
	}
	var low, high, done label
	c.immediate(true, 7, at(regFrame, offLastLane), 8)
	c.jumpIf(ccBelow, &low)
	c.immediate(true, 7, at(regFrame, offFirstLane), 8)
	c.jumpIf(ccAboveEqual, &high)
	whole()
	c.jump(&done)
	c.bind(&low)
	lower()
	c.jump(&done)
	c.bind(&high)
	upper()
	c.bind(&done)
}

// loadVector emits a load in the loop.
func (c *compiler) loadVector(s *step) {
	k := s.sources[0]
	var addresses []int
	if k.Form == Vector {
		addresses = c.get(s.Op.Sources[0], k)
	}
	guard := c.guardMask(s)
	c.pointers(s)
	for e, r := range s.Elements {
		d := c.fresh(r)
		if r.Class == Bits64 {
			c.load64(s, d, addresses, guard, e)
		} else {
			c.load32(s, d, addresses, guard, e)
		}
		if s.Guard >= 0 {
			s.old = s.olds[e]
		}
		c.settle(s, r, d)
	}
}

func (c *compiler) load32(s *step, d, addresses []int, guard uint8, element int) {
	k := s.sources[0]
	for part, reg := range d {
		base, offset := c.chunkBase(s, part, 2, element)
		switch {
		case k.Form == Vector && s.Space == Shared:
			// The check has found all active addresses within a block's shared memory, so
			// their lower halves say all. A gather of 16 lanes takes the time of one of 8.
			c.lowerHalves(zmmT1, addresses[2*part:])
			c.vex(coding{0, 1, 0, 0x90}, false, 7, 0, inReg(int(c.half(guard, part))))
			c.evex(coding{1, 2, 0, 0x90}, zmm, reg, 0, vectorIndexed(base, zmmT1, 0, offset), masked{k: 7})
		case k.Form == Vector:
			for half := range 2 {
				m := c.quarter(guard, part*2+half)
				to := reg
				if half == 1 {
					to = zmmT0
				}
				c.vex(coding{0, 1, 0, 0x90}, false, 7, 0, inReg(int(m))) // kmovw: the gather clears it
				c.evex(coding{1, 2, 0, 0x91}, zmm, to, 0, vectorIndexed(base, addresses[part*2+half], 0, offset), masked{k: 7})
			}
			c.evex(coding{1, 3, 1, 0x3a}, zmm, reg, reg, inReg(zmmT0), masked{}, 1) // vinserti64x4
		case k.Form == Uniform || k.Stride == 0:
			c.evex(vpbroadcastd, zmm, reg, 0, at(base, offset), masked{c.half(guard, part), true})
		case s.Size < 4:
			op := coding{1, 2, 0, 0x31} // vpmovzxbd
			if s.Size == 2 {
				op.op = 0x33
			}
			if s.Signed {
				op.op -= 0x10
			}
			c.evex(op, zmm, reg, 0, at(base, offset), masked{c.half(guard, part), true})
		case k.Stride == 4:
			c.evex(vload32, zmm, reg, 0, at(base, offset), masked{c.half(guard, part), true})
		default:
			gather := func(length uint8, to, first int, mask uint8) {
				c.evex(vload32, zmm, zmmT0, 0, c.stridesFrom(first, k.Stride), masked{})
				c.vex(coding{0, 1, 0, 0x90}, false, 7, 0, inReg(int(mask)))
				c.evex(coding{1, 2, 0, 0x90}, length, to, 0, vectorIndexed(base, zmmT0, 0, offset), masked{k: 7})
			}
			c.wholeOrHalf(s, func() {
				gather(zmm, reg, 0, c.half(guard, part))
			}, func() {
				gather(ymm, reg, 0, c.half(guard, part))
			}, func() {
				gather(ymm, zmmT1, 8, c.quarter(guard, 2*part+1))
				c.evex(coding{1, 3, 1, 0x3a}, zmm, reg, reg, inReg(zmmT1), masked{}, 1) // vinserti64x4
			})
		}
	}
}

func (c *compiler) load64(s *step, d, addresses []int, guard uint8, element int) {
	k := s.sources[0]
	for part, reg := range d {
		base, offset := c.chunkBase(s, part, 4, element)
		m := c.quarter(guard, part)
		switch {
		case k.Form == Vector:
			c.vex(coding{0, 1, 0, 0x90}, false, 7, 0, inReg(int(m)))
			c.evex(coding{1, 2, 1, 0x91}, zmm, reg, 0, vectorIndexed(base, addresses[part], 0, offset), masked{k: 7})
		case k.Form == Uniform || k.Stride == 0:
			c.evex(vpbroadcastq, zmm, reg, 0, at(base, offset), masked{m, true})
		case k.Stride == 8:
			c.evex(vload64, zmm, reg, 0, at(base, offset+part%2*64), masked{m, true})
		default:
			c.evex(vload32, zmm, zmmT0, 0, c.strides(k.Stride), masked{})
			c.vex(coding{0, 1, 0, 0x90}, false, 7, 0, inReg(int(m)))
			c.evex(coding{1, 2, 1, 0x90}, zmm, reg, 0, vectorIndexed(base, zmmT0, 0, offset+part%2*8*int(k.Stride)), masked{k: 7})
		}
	}
}

// storeVector emits a store in the loop.
func (c *compiler) storeVector(s *step) {
	k := s.sources[0]
	var addresses []int
	if k.Form == Vector {
		addresses = c.get(s.Op.Sources[0], k)
	}
	guard := c.guardMask(s)
	for e, r := range s.Elements {
		v := c.get(r, s.sources[1+e])
		if e == 0 {
			c.pointers(s)
		}
		if r.Class == Bits64 {
			c.store64(s, v, addresses, guard, e)
		} else {
			c.storeOf32(s, v, addresses, guard, e)
		}
	}
}

func (c *compiler) storeOf32(s *step, v, addresses []int, guard uint8, element int) {
	k := s.sources[0]
	for part, reg := range v {
		base, offset := c.chunkBase(s, part, 2, element)
		switch {
		case k.Form == Vector:
			for half := range 2 {
				from := reg
				if half == 1 {
					from = zmmT0
					c.evex(coding{1, 3, 1, 0x3b}, zmm, reg, 0, inReg(from), masked{}, 1) // vextracti64x4
				}
				c.vex(coding{0, 1, 0, 0x90}, false, 7, 0, inReg(int(c.quarter(guard, part*2+half))))
				c.evex(coding{1, 2, 0, 0xa1}, zmm, from, 0, vectorIndexed(base, addresses[part*2+half], 0, offset), masked{k: 7})
			}
		case s.Size < 4:
			op := coding{2, 2, 0, 0x31} // vpmovdb
			if s.Size == 2 {
				op.op = 0x33
			}
			c.evex(op, zmm, reg, 0, at(base, offset), masked{k: c.half(guard, part)})
		case k.Form != Vector && k.Stride == 4:
			c.evex(vstore32, zmm, reg, 0, at(base, offset), masked{k: c.half(guard, part)})
		default: // also if all lanes store to one place: a scatter writes in order, so the last lane wins
			scatter := func(length uint8, from, first int, mask uint8) {
				c.evex(vload32, zmm, zmmT0, 0, c.stridesFrom(first, k.Stride), masked{})
				c.vex(coding{0, 1, 0, 0x90}, false, 7, 0, inReg(int(mask)))
				c.evex(coding{1, 2, 0, 0xa0}, length, from, 0, vectorIndexed(base, zmmT0, 0, offset), masked{k: 7})
			}
			c.wholeOrHalf(s, func() {
				scatter(zmm, reg, 0, c.half(guard, part))
			}, func() {
				scatter(ymm, reg, 0, c.half(guard, part))
			}, func() {
				c.evex(coding{1, 3, 1, 0x3b}, zmm, reg, 0, inReg(zmmT1), masked{}, 1) // vextracti64x4
				scatter(ymm, zmmT1, 8, c.quarter(guard, 2*part+1))
			})
		}
	}
}

func (c *compiler) store64(s *step, v, addresses []int, guard uint8, element int) {
	k := s.sources[0]
	for part, reg := range v {
		base, offset := c.chunkBase(s, part, 4, element)
		m := c.quarter(guard, part)
		switch {
		case k.Form == Vector:
			c.vex(coding{0, 1, 0, 0x90}, false, 7, 0, inReg(int(m)))
			c.evex(coding{1, 2, 1, 0xa1}, zmm, reg, 0, vectorIndexed(base, addresses[part], 0, offset), masked{k: 7})
		case k.Form != Vector && k.Stride == 8:
			c.evex(vstore64, zmm, reg, 0, at(base, offset+part%2*64), masked{k: m})
		default:
			c.evex(vload32, zmm, zmmT0, 0, c.strides(k.Stride), masked{})
			c.vex(coding{0, 1, 0, 0x90}, false, 7, 0, inReg(int(m)))
			c.evex(coding{1, 2, 1, 0xa0}, zmm, reg, 0, vectorIndexed(base, zmmT0, 0, offset+part%2*8*int(k.Stride)), masked{k: 7})
		}
	}
}
