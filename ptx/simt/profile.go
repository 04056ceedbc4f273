package simt

import (
	"maps"
	"slices"
	"sync/atomic"

	"muster/ptx"
	"muster/ptx/simt/native"
)

// This file says where a kernel spends its time, and what it was compiled to.
//
// A launch that is profiled or listed has an image of its own: it shares the
// instructions with the kernel's image, but not the compiled code, which is made
// with counters, or is written down. Other launches do not notice.

// Profile counts what a launch does, by the lines of the PTX. Sample may be called
// by another goroutine while the launch runs; Lines only when it does not.
type Profile struct {
	x     *Execution
	spots []spot   // of the workers
	seen  []uint64 // samples by instruction: the interpreter ran it
	spent []uint64 // and: compiled code ran the section that begins there
}

// spot is what one worker tells a profile. It has cache lines of its own: workers
// write it all the time.
type spot struct {
	_      [64]byte
	place  uint32         // the instruction that runs, with native.InCode in compiled code; noPlace if none does
	counts []native.Count // of basic blocks, by the instruction from which on they ran
	steps  []native.Count // of single instructions, less those of counts that did not run
	_      [64]byte
}

// noPlace is the place of a worker that runs nothing.
const noPlace = ^uint32(0)

// ProfileLine is what was done for an instruction of the PTX.
type ProfileLine struct {
	Pos          ptx.Pos
	Text         string
	Instructions uint64  // as in Stats
	LaneOps      uint64  // as in Stats
	Samples      float64 // how often Sample found a worker here
	Compiled     float64 // those of Samples that were in compiled code
}

// Sample notes where each worker is. Compiled code only says which section it is in,
// so all instructions of the section share the sample.
//
// It returns how many workers ran something.
func (p *Profile) Sample() (busy int) {
	for i := range p.spots {
		at := atomic.LoadUint32(&p.spots[i].place)
		switch {
		case at == noPlace:
			continue
		case at&native.InCode != 0:
			p.spent[at&^native.InCode]++
		default:
			p.seen[at]++
		}
		busy++
	}
	return busy
}

// attach makes the profile that of an execution, whose workers are there.
func (p *Profile) attach(x *Execution) {
	n := len(x.image.code)
	*p = Profile{x: x, spots: make([]spot, len(x.workers)), seen: make([]uint64, n), spent: make([]uint64, n)}
	for i, w := range x.workers {
		p.spots[i] = spot{place: noPlace, counts: make([]native.Count, n), steps: make([]native.Count, n)}
		w.spot = &p.spots[i]
	}
}

// count notes that a basic block runs from an instruction on.
func (s *spot) count(pc int32, lanes int) {
	s.counts[pc].Times++
	s.counts[pc].Lanes += uint64(lanes)
}

// single notes that one instruction runs.
func (s *spot) single(pc int32, lanes int) {
	s.steps[pc].Times++
	s.steps[pc].Lanes += uint64(lanes)
	s.at(pc)
}

// takeBack notes that the rest of a basic block, which count has counted, did not run. The
// numbers may wrap around: Lines adds up.
func (s *spot) takeBack(pc, end int32, lanes int) {
	for ; pc <= end; pc++ {
		s.steps[pc].Times--
		s.steps[pc].Lanes -= uint64(lanes)
	}
}

// at notes which instruction runs.
func (s *spot) at(pc int32) { atomic.StoreUint32(&s.place, uint32(pc)) }

// Lines returns what was counted for each line of the PTX with code, in the order of
// the code.
func (p *Profile) Lines() []ProfileLine {
	code := p.x.image.code
	var lines []ProfileLine
	index := map[*ptx.Instruction]int{}
	of := make([]int, len(code))
	for pc := range code {
		text := code[pc].Text
		if text == nil { // what the engine added, as at the begin of a function, belongs to what follows
			of[pc] = max(0, len(lines)-1)
			continue
		}
		i, ok := index[text]
		if !ok {
			i = len(lines)
			index[text] = i
			lines = append(lines, ProfileLine{Pos: text.Pos, Text: text.String()})
		}
		of[pc] = i
	}
	if len(lines) == 0 {
		return nil
	}
	for i := range p.spots {
		for pc, c := range p.spots[i].steps {
			lines[of[pc]].Instructions += c.Times
			lines[of[pc]].LaneOps += c.Lanes
		}
		for first, c := range p.spots[i].counts {
			for pc := first; c.Times > 0 && pc <= int(code[first].End); pc++ {
				lines[of[pc]].Instructions += c.Times
				lines[of[pc]].LaneOps += c.Lanes
			}
		}
	}
	for pc := range code {
		lines[of[pc]].Samples += float64(p.seen[pc])
		if p.spent[pc] == 0 {
			continue
		}
		end := p.sectionEnd(int32(pc))
		share := float64(p.spent[pc]) / float64(end-int32(pc))
		for i := int32(pc); i < end; i++ {
			lines[of[i]].Samples += share
			lines[of[i]].Compiled += share
		}
	}
	return lines
}

// sectionEnd returns the instruction behind a section of compiled code.
func (p *Profile) sectionEnd(first int32) int32 {
	end := p.x.image.code[first].End + 1
	for _, m := range p.x.image.machines.all() {
		if c := m.code.Load(); c != nil {
			for pc := first + 1; pc < end; pc++ {
				if c.Enters(pc, false) || c.Interprets(pc) {
					end = pc
				}
			}
		}
	}
	return end
}

// ListingLine is an instruction of machine code, beside what it is for.
type ListingLine struct {
	Offset int
	Bytes  []byte
	Text   string  // the instruction of the processor
	Role   string  // what it does beside computing the result
	Pos    ptx.Pos // the line of the PTX
	For    string  // the instruction there; empty if it is for none
}

// Listing is what a kernel was compiled to, for one shape of its blocks.
type Listing struct {
	Instructions, Compiled int // of the kernel, and those that machine code runs
	Lines                  []ListingLine
}

// Listings returns the machine code of a launch with List, after it has run. There is
// more than one if the blocks at the end of the grid look different, and none if
// nothing was compiled.
func (x *Execution) Listings() []Listing {
	var all []Listing
	code := x.image.code
	for _, m := range x.image.machines.all() {
		c := m.code.Load()
		if c == nil {
			continue
		}
		l := Listing{Instructions: len(code), Compiled: c.Compiled()}
		for _, n := range c.Listing() {
			line := ListingLine{Offset: n.Offset, Bytes: n.Bytes, Text: n.Text, Role: n.Role}
			if n.Op >= 0 && int(n.Op) < len(code) && code[n.Op].Text != nil {
				line.Pos, line.For = code[n.Op].Text.Pos, code[n.Op].Text.String()
			}
			l.Lines = append(l.Lines, line)
		}
		all = append(all, l)
	}
	return all
}

// all returns the machines in a fixed order.
func (ms *machines) all() []*machine {
	ms.mu.Lock()
	defer ms.mu.Unlock()
	keys := slices.Sorted(maps.Keys(ms.byLook))
	list := make([]*machine, len(keys))
	for i, k := range keys {
		list[i] = ms.byLook[k]
	}
	return list
}

// apart returns the image with machines of its own.
func (m *image) apart() *image {
	return &image{code: m.code, Layout: m.Layout}
}
