//go:build linux && amd64

package native

import (
	"encoding/binary"
	"math/bits"

	"muster/ptx/simt/native/asm"
)

// Loads and stores. The code before the loop checks bounds and alignment of all
// active lanes; the loop then accesses memory without a check. The check of global
// memory is against the view of the instruction, which simt's learn has filled in;
// an empty view fails every check.

// bounds prepares the check of an access: rdx gets the address of its view, rdi what
// to add to an address to get its offset in the view, and rax the largest offset at
// which span bytes fit. It fails if the view is shorter than span.
func (c *compiler) bounds(s *step, more int64, span int64) {
	c.Set(asm.RDI, uint64(s.Imm+more))
	if s.Space == Global {
		c.view(s)
		c.Legacy(true, asm.OpSub, asm.RDI, asm.At(asm.RDX, 0))
		c.Legacy(true, asm.OpMov, asm.RAX, asm.At(asm.RDX, 8))
	} else {
		c.Legacy(true, asm.OpMov, asm.RAX, asm.At(regFrame, offSharedSize))
	}
	c.Immediate(true, 5, asm.InReg(asm.RAX), int32(span))
	c.JumpIf(asm.Below, c.failed())
}

// view gets the address of an access's view into rdx.
func (c *compiler) view(s *step) {
	v := c.code.views[s.index]
	if v < 0 {
		v = int32(c.code.count)
		c.code.count++
		c.code.views[s.index] = v
	}
	c.Legacy(true, asm.OpMov, asm.RDX, asm.At(regFrame, offViews))
	if v > 0 {
		c.Immediate(true, 0, asm.InReg(asm.RDX), v*int32(viewBytes))
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
		c.Legacy(true, asm.OpAdd, asm.RDI, home(r))
		c.Legacy(true, asm.OpCmp, asm.RDI, asm.InReg(asm.RAX))
		c.JumpIf(asm.Above, c.failed())
		if n > 1 {
			c.Legacy(false, []byte{0xf7}, 0, asm.InReg(asm.RDI), binary.LittleEndian.AppendUint32(nil, uint32(n-1))...) // test
			c.JumpIf(asm.NotEqual, c.failed())
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
	c.Legacy(true, asm.OpAdd, asm.RDI, home(r))
	for i, lane := range [...]int{offFirstLane, offLastLane} {
		end := [...]int{asm.RCX, asm.RSI}[i]
		c.timesStride(true, end, lane, k)
		c.Legacy(true, asm.OpAdd, end, asm.InReg(asm.RDI))
		c.Legacy(true, asm.OpCmp, end, asm.InReg(asm.RAX))
		c.JumpIf(asm.Above, c.failed())
	}
	if n > 1 { // strides are multiples of n
		c.Legacy(false, []byte{0xf7}, 0, asm.InReg(asm.RDI), binary.LittleEndian.AppendUint32(nil, uint32(n-1))...) // test
		c.JumpIf(asm.NotEqual, c.failed())
	}
	if s.Space == Global {
		c.Legacy(true, asm.OpAdd, asm.RDI, asm.At(asm.RDX, 16))
	} else {
		c.Legacy(true, asm.OpAdd, asm.RDI, asm.At(regFrame, offShared))
	}
	c.Legacy(true, asm.OpStore, asm.RDI, asm.At(regFrame, offPointers+8*s.pointer))
}

// checkChunks compares the offsets of all active chunks. It stores where their first lanes
// reach in the frame, for the loop.
func (c *compiler) checkChunks(s *step) {
	r, k, n := s.Op.Sources[0], s.sources[0], s.bytesOf()
	least := min(0, 15*k.Stride) // from a chunk's first lane to the one with the least address
	c.bounds(s, least, max(k.Stride, -k.Stride)*15+n)
	c.EVEX(asm.FromGPR64, asm.ZMM, zmmT0, 0, asm.InReg(asm.RAX), asm.Masked{})
	c.EVEX(asm.FromGPR64, asm.ZMM, zmmT1, 0, asm.InReg(asm.RDI), asm.Masked{})
	for half := range 2 {
		c.EVEX(asm.Vpaddq, asm.ZMM, zmmT2, zmmT1, bases(r, half), asm.Masked{})
		c.EVEX(asm.Vpcmpuq, asm.ZMM, 4+half, zmmT2, asm.InReg(zmmT0), asm.Masked{}, 6)
		c.EVEX(asm.Vptestmq, asm.ZMM, 6+half, zmmT2, c.Word64(uint64(n-1)), asm.Masked{})
	}
	c.VEX(asm.Kunpckbw, true, 4, 5, asm.InReg(4))
	c.VEX(asm.Kunpckbw, true, 6, 7, asm.InReg(6))
	c.VEX(asm.Korw, true, 4, 4, asm.InReg(6))
	c.VEX(asm.KmovwToR, false, asm.RAX, 0, asm.InReg(4))
	c.Legacy(true, asm.OpAnd, asm.RAX, asm.At(regFrame, offActiveChunks))
	c.JumpIf(asm.NotEqual, c.failed())
	if least != 0 {
		c.Immediate(true, 5, asm.InReg(asm.RDI), int32(least))
	}
	if s.Space == Global {
		c.Legacy(true, asm.OpAdd, asm.RDI, asm.At(asm.RDX, 16))
	} else {
		c.Legacy(true, asm.OpAdd, asm.RDI, asm.At(regFrame, offShared))
	}
	c.EVEX(asm.FromGPR64, asm.ZMM, zmmT1, 0, asm.InReg(asm.RDI), asm.Masked{})
	for half := range 2 {
		c.EVEX(asm.Vpaddq, asm.ZMM, zmmT2, zmmT1, bases(r, half), asm.Masked{})
		if s.Space == Shared {
			c.EVEX(asm.Vpaddq, asm.ZMM, zmmT2, zmmT2, asm.At(regFrame, offSharedOffset+64*half), asm.Masked{})
		}
		c.EVEX(asm.Vstore64, asm.ZMM, zmmT2, 0, asm.At(regFrame, offChunkPtrs+(8*s.pointer*ChunkPitch)+64*half), asm.Masked{})
	}
}

// checkLanes compares the offsets of all active lanes, also of those without the guard: the guard
// may be computed by the loop behind the check, so the check must not rely on it.
func (c *compiler) checkLanes(s *step, r Ref, n int64) {
	c.EVEX(asm.FromGPR64, asm.ZMM, zmmT0, 0, asm.InReg(asm.RAX), asm.Masked{})
	c.EVEX(asm.FromGPR64, asm.ZMM, zmmT1, 0, asm.InReg(asm.RDI), asm.Masked{})
	c.VEX(asm.Kxorw, true, 4, 4, asm.InReg(4)) // kxorw: nothing failed yet
	c.rounds(func() {
		c.guardMask(s)
		for part := range 4 {
			k := c.quarter(kMask, part)
			c.EVEX(asm.Vpaddq, asm.ZMM, zmmT2, zmmT1, lanes(r, part), asm.Masked{})
			c.EVEX(asm.Vpcmpuq, asm.ZMM, 5, zmmT2, asm.InReg(zmmT0), asm.Masked{K: k}, 6)
			c.EVEX(asm.Vptestmq, asm.ZMM, 6, zmmT2, c.Word64(uint64(n-1)), asm.Masked{K: k})
			c.VEX(asm.Korw, true, 4, 4, asm.InReg(5))
			c.VEX(asm.Korw, true, 4, 4, asm.InReg(6))
		}
	})
	c.VEX(asm.Kortestw, false, 4, 0, asm.InReg(4))
	c.JumpIf(asm.NotEqual, c.failed())
}

// loadUniform loads, once, the values that all lanes read from one place.
func (c *compiler) loadUniform(s *step) {
	// rdi has the offset and rdx the view, from checkMemory.
	if s.Space == Global {
		c.Legacy(true, asm.OpAdd, asm.RDI, asm.At(asm.RDX, 16))
	} else {
		c.Legacy(true, asm.OpAdd, asm.RDI, asm.At(regFrame, offShared))
	}
	for e, r := range s.Elements {
		from := asm.At(asm.RDI, e*s.Size)
		switch {
		case s.Size == 1 && s.Signed:
			c.Legacy(false, asm.OpSx8, asm.RAX, from)
		case s.Size == 1:
			c.Legacy(false, asm.OpZx8, asm.RAX, from)
		case s.Size == 2 && s.Signed:
			c.Legacy(false, asm.OpSx16, asm.RAX, from)
		case s.Size == 2:
			c.Legacy(false, asm.OpZx16, asm.RAX, from)
		default:
			c.Legacy(s.Size == 8, asm.OpMov, asm.RAX, from)
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
		c.Legacy(true, asm.OpMov, asm.RAX, asm.Indexed(regFrame, regChunk, 3, offChunkPtrs+8*s.pointer*ChunkPitch))
		c.Legacy(true, asm.OpMov, asm.RDI, asm.Indexed(regFrame, regChunk, 3, offChunkPtrs+8*s.pointer*ChunkPitch+8))
		return
	}
	if s.Space == Global {
		c.view(s)
		c.Legacy(true, asm.OpMov, asm.RAX, asm.At(asm.RDX, 16))
		c.Legacy(true, asm.OpSub, asm.RAX, asm.At(asm.RDX, 0))
		c.Legacy(true, asm.OpMov, asm.RDI, asm.InReg(asm.RAX))
	} else {
		c.Legacy(true, asm.OpMov, asm.RAX, asm.At(regFrame, offShared))
		c.Legacy(true, asm.OpMov, asm.RDI, asm.InReg(asm.RAX))
		c.Legacy(true, asm.OpAdd, asm.RAX, asm.Indexed(regFrame, regChunk, 3, offSharedOffset))
		c.Legacy(true, asm.OpAdd, asm.RDI, asm.Indexed(regFrame, regChunk, 3, offSharedOffset+8))
	}
	if s.sources[0].Form == Uniform {
		c.Legacy(true, asm.OpAdd, asm.RAX, home(r))
		c.Legacy(true, asm.OpAdd, asm.RDI, home(r))
	}
}

// linearPointer computes, in rax, the address that the round's first lane accesses,
// without Imm, which checkEnds has included in the pointer. If the gang has several blocks,
// rdi gets that of the round's second chunk.
func (c *compiler) linearPointer(s *step) {
	c.Legacy(true, asm.OpMov, asm.RAX, asm.At(regFrame, offPointers+8*s.pointer))
	if c.Several {
		c.Legacy(true, asm.OpMov, asm.RDI, asm.InReg(asm.RAX))
		if s.Space == Shared {
			c.Legacy(true, asm.OpAdd, asm.RAX, asm.Indexed(regFrame, regChunk, 3, offSharedOffset))
			c.Legacy(true, asm.OpAdd, asm.RDI, asm.Indexed(regFrame, regChunk, 3, offSharedOffset+8))
		}
		return
	}
	if scale := bits.TrailingZeros64(uint64(s.sources[0].Stride)) - 2; scale >= 0 && scale <= 3 && s.sources[0].Stride == 4<<scale {
		c.Legacy(true, asm.OpLea, asm.RAX, asm.Indexed(asm.RAX, regLane, uint8(scale), 0))
		return
	}
	c.Legacy(true, []byte{0x69}, asm.RDI, asm.InReg(regChunk), binary.LittleEndian.AppendUint32(nil, uint32(16*s.sources[0].Stride))...) // imul
	c.Legacy(true, asm.OpAdd, asm.RAX, asm.InReg(asm.RDI))
}

// prefetch asks for what the same lanes of the worker's next block will load, if blocks
// go through memory one behind the other. The processor itself sees less: it prefetches
// within a page, and learns each stream anew. In a loop the next block is far away.
func (c *compiler) prefetch(s *step) {
	n := s.bytesOf()
	if !c.chained || s.Name != "ld" || s.Space != Global || s.sources[0].Stride != n || n < 4 || c.inLoop[s.index] {
		return
	}
	c.timesStride(true, asm.RDI, offAhead, s.sources[0])
	for line := range int(n) / 2 {
		c.Legacy(false, []byte{0x0f, 0x18}, 1, asm.Indexed(asm.RAX, asm.RDI, 0, line*64)) // prefetcht0
	}
}

// strides is the constant vector of 16 lane numbers times a stride.
func (c *compiler) strides(stride int64) asm.Place { return c.stridesFrom(0, stride) }

// stridesFrom is strides of the lanes from a first one on.
func (c *compiler) stridesFrom(first int, stride int64) asm.Place {
	b := make([]byte, 0, 64)
	for l := range int64(16) {
		b = binary.LittleEndian.AppendUint32(b, uint32((int64(first)+l)*stride))
	}
	return c.Constant(b)
}

// chunkBase returns the register in which pointers has put the address of a part's
// chunk, and what to add to it for an element of a lane.
func (c *compiler) chunkBase(s *step, part, parts, element int) (base, offset int) {
	offset = element * s.Size
	switch form := s.sources[0].Form; {
	case !s.hasPointer():
		offset += int(s.Imm)
	case form == Linear && part >= parts/2 && !c.Several:
		return asm.RAX, offset + int(16*s.sources[0].Stride)
	}
	if part < parts/2 {
		return asm.RAX, offset
	}
	return asm.RDI, offset
}

// wholeOrHalf emits a gather or scatter at a linear address: of whole chunks, or of their lower
// or upper 8 lanes, which takes half the time, where all active lanes of the gang are among
// these. That is known only of a gang with several blocks, and AVX2 goes by 8 lanes anyway.
func (c *compiler) wholeOrHalf(s *step, whole, lower, upper func()) {
	if !c.Several || c.Narrow || s.sources[0].Form != Linear {
		whole()
		return
	}
	var low, high, done asm.Label
	c.Immediate(true, 7, asm.At(regFrame, offLastLane), 8)
	c.JumpIf(asm.Below, &low)
	c.Immediate(true, 7, asm.At(regFrame, offFirstLane), 8)
	c.JumpIf(asm.AboveEqual, &high)
	whole()
	c.Jump(&done)
	c.Bind(&low)
	lower()
	c.Jump(&done)
	c.Bind(&high)
	upper()
	c.Bind(&done)
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
			c.VEX(asm.Kmovw, false, 7, 0, asm.InReg(int(c.half(guard, part))))
			c.EVEX(asm.Vpgatherdd, asm.ZMM, reg, 0, asm.VectorIndexed(base, zmmT1, 0, offset), asm.Masked{K: 7})
		case k.Form == Vector:
			for half := range 2 {
				m := c.quarter(guard, part*2+half)
				to := reg
				if half == 1 {
					to = zmmT0
				}
				c.VEX(asm.Kmovw, false, 7, 0, asm.InReg(int(m))) // kmovw: the gather clears it
				c.EVEX(asm.Vpgatherqd, asm.ZMM, to, 0, asm.VectorIndexed(base, addresses[part*2+half], 0, offset), asm.Masked{K: 7})
			}
			c.EVEX(asm.Vinserti64x4, asm.ZMM, reg, reg, asm.InReg(zmmT0), asm.Masked{}, 1)
		case k.Form == Uniform || k.Stride == 0:
			c.EVEX(asm.Vpbroadcastd, asm.ZMM, reg, 0, asm.At(base, offset), asm.Masked{K: c.half(guard, part), Zero: true})
		case s.Size < 4:
			op := asm.Vpmovzxbd
			if s.Size == 2 {
				op.Op = 0x33
			}
			if s.Signed {
				op.Op -= 0x10
			}
			c.EVEX(op, asm.ZMM, reg, 0, asm.At(base, offset), asm.Masked{K: c.half(guard, part), Zero: true})
		case k.Stride == 4:
			c.EVEX(asm.Vload32, asm.ZMM, reg, 0, asm.At(base, offset), asm.Masked{K: c.half(guard, part), Zero: true})
		default:
			gather := func(length uint8, to, first int, mask uint8) {
				c.EVEX(asm.Vload32, asm.ZMM, zmmT0, 0, c.stridesFrom(first, k.Stride), asm.Masked{})
				c.VEX(asm.Kmovw, false, 7, 0, asm.InReg(int(mask)))
				c.EVEX(asm.Vpgatherdd, length, to, 0, asm.VectorIndexed(base, zmmT0, 0, offset), asm.Masked{K: 7})
			}
			c.wholeOrHalf(s, func() {
				gather(asm.ZMM, reg, 0, c.half(guard, part))
			}, func() {
				gather(asm.YMM, reg, 0, c.half(guard, part))
			}, func() {
				gather(asm.YMM, zmmT1, 8, c.quarter(guard, 2*part+1))
				c.EVEX(asm.Vinserti64x4, asm.ZMM, reg, reg, asm.InReg(zmmT1), asm.Masked{}, 1)
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
			c.VEX(asm.Kmovw, false, 7, 0, asm.InReg(int(m)))
			c.EVEX(asm.Vpgatherqq, asm.ZMM, reg, 0, asm.VectorIndexed(base, addresses[part], 0, offset), asm.Masked{K: 7})
		case k.Form == Uniform || k.Stride == 0:
			c.EVEX(asm.Vpbroadcastq, asm.ZMM, reg, 0, asm.At(base, offset), asm.Masked{K: m, Zero: true})
		case k.Stride == 8:
			c.EVEX(asm.Vload64, asm.ZMM, reg, 0, asm.At(base, offset+part%2*64), asm.Masked{K: m, Zero: true})
		default:
			c.EVEX(asm.Vload32, asm.ZMM, zmmT0, 0, c.strides(k.Stride), asm.Masked{})
			c.VEX(asm.Kmovw, false, 7, 0, asm.InReg(int(m)))
			c.EVEX(asm.Vpgatherdq, asm.ZMM, reg, 0, asm.VectorIndexed(base, zmmT0, 0, offset+part%2*8*int(k.Stride)), asm.Masked{K: 7})
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
					c.EVEX(asm.Vextracti64x4, asm.ZMM, reg, 0, asm.InReg(from), asm.Masked{}, 1)
				}
				c.VEX(asm.Kmovw, false, 7, 0, asm.InReg(int(c.quarter(guard, part*2+half))))
				c.EVEX(asm.Vpscatterqd, asm.ZMM, from, 0, asm.VectorIndexed(base, addresses[part*2+half], 0, offset), asm.Masked{K: 7})
			}
		case s.Size < 4:
			op := asm.Vpmovdb
			if s.Size == 2 {
				op.Op = 0x33
			}
			c.EVEX(op, asm.ZMM, reg, 0, asm.At(base, offset), asm.Masked{K: c.half(guard, part)})
		case k.Form != Vector && k.Stride == 4:
			c.EVEX(asm.Vstore32, asm.ZMM, reg, 0, asm.At(base, offset), asm.Masked{K: c.half(guard, part)})
		default: // also if all lanes store to one place: a scatter writes in order, so the last lane wins
			scatter := func(length uint8, from, first int, mask uint8) {
				c.EVEX(asm.Vload32, asm.ZMM, zmmT0, 0, c.stridesFrom(first, k.Stride), asm.Masked{})
				c.VEX(asm.Kmovw, false, 7, 0, asm.InReg(int(mask)))
				c.EVEX(asm.Vpscatterdd, length, from, 0, asm.VectorIndexed(base, zmmT0, 0, offset), asm.Masked{K: 7})
			}
			c.wholeOrHalf(s, func() {
				scatter(asm.ZMM, reg, 0, c.half(guard, part))
			}, func() {
				scatter(asm.YMM, reg, 0, c.half(guard, part))
			}, func() {
				c.EVEX(asm.Vextracti64x4, asm.ZMM, reg, 0, asm.InReg(zmmT1), asm.Masked{}, 1)
				scatter(asm.YMM, zmmT1, 8, c.quarter(guard, 2*part+1))
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
			c.VEX(asm.Kmovw, false, 7, 0, asm.InReg(int(m)))
			c.EVEX(asm.Vpscatterqq, asm.ZMM, reg, 0, asm.VectorIndexed(base, addresses[part], 0, offset), asm.Masked{K: 7})
		case k.Form != Vector && k.Stride == 8:
			c.EVEX(asm.Vstore64, asm.ZMM, reg, 0, asm.At(base, offset+part%2*64), asm.Masked{K: m})
		default:
			c.EVEX(asm.Vload32, asm.ZMM, zmmT0, 0, c.strides(k.Stride), asm.Masked{})
			c.VEX(asm.Kmovw, false, 7, 0, asm.InReg(int(m)))
			c.EVEX(asm.Vpscatterdq, asm.ZMM, reg, 0, asm.VectorIndexed(base, zmmT0, 0, offset+part%2*8*int(k.Stride)), asm.Masked{K: 7})
		}
	}
}
