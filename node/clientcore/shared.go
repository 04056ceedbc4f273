package clientcore

import (
	"errors"
	"fmt"
	"slices"

	"muster/device"
	"muster/vmm"
	"muster/wire"
)

// Name is how other clients of the user find shared memory: whom to ask, and a secret.
type Name [4]uint64

// Shared is memory that several clients have at once, in whole chunks. The directory does not know
// of it: it never moves, every context has it mapped, and all clients that have it see the same
// contents.
type Shared struct {
	Addr, Size uint64
	Name       Name
	Imported   bool
	// Live are the allocations in memory that this client has shared, in order. The memory is
	// closed with the last one.
	Live []vmm.Range
}

// shared is the memory that the client shares with others.
type shared struct {
	*standing
	Shared  []Shared
	queue   *queue
	memory  *memory
	room    *room
	arrival *arrival
}

func (sh *shared) register(h *handlers) {
	h[wire.OpMemShare] = decoding(sh.memShare)
	h[wire.OpMemImport] = decoding(sh.memImport)
}

func (sh *shared) save(to *State)   { to.Shared = sh.Shared }
func (sh *shared) load(from *State) { sh.Shared = from.Shared }

// Extent is the address range of the memory.
func (s *Shared) Extent() vmm.Range { return vmm.Range{Addr: s.Addr, Size: s.Size} }

// mostShared bounds what a program can make its worker remember.
const mostShared = 1 << 12

// sharedAt returns the shared memory at an address; nil if there is none.
func (sh *shared) sharedAt(addr uint64) *Shared {
	for i := range sh.Shared {
		if s := &sh.Shared[i]; addr-s.Addr < s.Size {
			return s
		}
	}
	return nil
}

// sharesRange says whether a range is completely in shared memory.
func (sh *shared) sharesRange(r vmm.Range) bool {
	s := sh.sharedAt(r.Addr)
	return s != nil && r.Size <= s.Size-(r.Addr-s.Addr)
}

// sharedBytes is how much shared memory the client has, its own and that of others. Others' memory
// counts too: the client that made it may be gone, and then those that have it keep it alive.
// Memory that the client has at two addresses counts once.
func (sh *shared) sharedBytes() (bytes uint64) {
	seen := make(map[Name]bool, len(sh.Shared))
	for i := range sh.Shared {
		if s := &sh.Shared[i]; !seen[s.Name] {
			seen[s.Name] = true
			bytes += s.Size
		}
	}
	return bytes
}

// sharedLive is how much shared memory the client has allocated.
func (sh *shared) sharedLive() (bytes uint64) {
	for i := range sh.Shared {
		for _, a := range sh.Shared[i].Live {
			bytes += a.Size
		}
	}
	return bytes
}

func (sh *shared) checkShared(addr, size uint64) (vmm.Range, error) {
	r := vmm.Range{Addr: addr, Size: size}
	if !sh.config.isWhole(r) {
		return r, fmt.Errorf("shared memory of %d bytes at %#x: %w", size, addr, ErrProtocol)
	}
	if len(sh.Shared) >= mostShared {
		return r, fmt.Errorf("%d pieces of memory are shared: close some: %w", mostShared, device.ErrOutOfMemory)
	}
	return r, nil
}

func overlap(a, b vmm.Range) bool { return a.Addr < b.Addr+b.Size && b.Addr < a.Addr+a.Size }

// allocationsIn returns the allocations in a range. None may lie in it only in part.
func (sh *shared) allocationsIn(r vmm.Range) ([]vmm.Range, error) {
	var in []vmm.Range
	for _, a := range sh.memory.space.Allocations() {
		if !overlap(a, r) {
			continue
		}
		if a.Addr < r.Addr || a.Addr+a.Size > r.Addr+r.Size {
			return nil, fmt.Errorf("memory at %#x is only half in what is to be shared: %w", a.Addr, ErrProtocol)
		}
		in = append(in, a)
	}
	for i := range sh.Shared {
		if overlap(sh.Shared[i].Extent(), r) {
			return nil, fmt.Errorf("memory at %#x is shared already: %w", sh.Shared[i].Addr, ErrProtocol)
		}
	}
	return in, nil
}

// memShare turns what the client has in some chunks into memory that other clients can have, at the
// same addresses, and answers with its name. In order: a device makes the shared memory; the host
// copies are made valid; the shared memory replaces the client's own, with the contents of the host
// copies.
func (sh *shared) memShare(m *Message, d *wire.MemShare) (bool, error) {
	if s := sh.sharedAt(d.Addr); s != nil && s.Addr == d.Addr && s.Size == d.Size {
		sh.reply(m.Header.Slot, success, (&wire.MemShareReply{A: s.Name[0], B: s.Name[1], C: s.Name[2], D: s.Name[3]}).Append(nil))
		return true, nil
	}
	r, err := sh.checkShared(d.Addr, d.Size)
	if err != nil {
		return true, err
	}
	in, err := sh.allocationsIn(r)
	if err != nil {
		return true, err
	}
	if len(in) == 0 {
		return true, fmt.Errorf("shared memory at %#x: nothing is allocated there: %w", d.Addr, device.ErrInvalidValue)
	}
	if sh.queue.found() == nil { // the range may be larger than what the program has in it
		if ok, err := sh.room.commit(sh.room.onHost() + r.Size - sh.config.chunked(in)); !ok || err != nil {
			return ok, sharing(r.Size, err)
		}
	}
	if ok, err := sh.arrival.ready(need{}); !ok || err != nil {
		return ok, err
	}
	if sh.queue.found() == nil {
		sh.ask(Op{Kind: MakeShared, Place: sh.place(), Range: r})
		return false, nil
	}
	if err := sh.queue.Head.found.Err; err != nil {
		sh.room.commitLess(sh.room.onHost())
		return true, err
	}
	for _, a := range in {
		if ok, err := sh.memory.hostRead(a); !ok || err != nil {
			return ok, err
		}
	}
	var plan vmm.Plan
	for _, a := range in {
		freed, err := sh.memory.space.Free(a.Addr)
		if err != nil {
			return true, err
		}
		plan = append(plan, freed...)
	}
	s := Shared{Addr: r.Addr, Size: r.Size, Name: sh.queue.Head.found.Name, Live: in}
	sh.Shared = append(sh.Shared, s)
	sh.ask(Op{Kind: Share, Place: sh.place(), Range: r, Ranges: in, Plan: plan, Share: s.Name, On: sh.config.Reserves})
	return false, nil
}

// sharing adds to an error what failed.
func sharing(size uint64, err error) error {
	if err != nil {
		err = fmt.Errorf("shared memory of %s: %w", sizeOf(size), err)
	}
	return err
}

// memImport maps memory that another client has shared at an address.
func (sh *shared) memImport(m *Message, d *wire.MemImport) (bool, error) {
	r, err := sh.checkShared(d.Addr, d.Size)
	if err != nil {
		return true, err
	}
	in, err := sh.allocationsIn(r)
	if err != nil {
		return true, err
	}
	if len(in) > 0 {
		return true, fmt.Errorf("shared memory at %#x: something is allocated there: %w", d.Addr, ErrProtocol)
	}
	s := Shared{Addr: r.Addr, Size: r.Size, Name: Name{d.A, d.B, d.C, d.D}, Imported: true}
	if sh.queue.found() == nil {
		if !slices.ContainsFunc(sh.Shared, func(o Shared) bool { return o.Name == s.Name }) {
			if ok, err := sh.room.commit(sh.room.onHost() + r.Size); !ok || err != nil {
				return ok, sharing(r.Size, err)
			}
		}
		if ok, err := sh.arrival.ready(need{}); !ok || err != nil { // a context checks whether the size is true
			return ok, err
		}
		sh.ask(Op{Kind: OpenShared, Range: r, Share: s.Name})
		return false, nil
	}
	if err := sh.queue.Head.found.Err; err != nil {
		sh.room.commitLess(sh.room.onHost())
		return true, err
	}
	sh.Shared = append(sh.Shared, s)
	sh.reply(m.Header.Slot, success, nil)
	return true, nil
}

// allocShared notes an allocation in shared memory, whose address the program chose before it knew
// that the memory is shared. It says whether the address is in shared memory.
func (sh *shared) allocShared(m *Message, r vmm.Range) (bool, error) {
	s := sh.sharedAt(r.Addr)
	if s == nil {
		return false, nil
	}
	if s.Imported || r.Size == 0 || !sh.sharesRange(r) || slices.ContainsFunc(s.Live, func(a vmm.Range) bool { return overlap(a, r) }) {
		return true, fmt.Errorf("%d bytes at %#x: something is there: %w", r.Size, r.Addr, device.ErrInvalidValue)
	}
	s.Live = append(s.Live, r)
	sh.reply(m.Header.Slot, success, nil)
	return true, nil
}

// freeShared frees an allocation in shared memory, or unmaps another client's memory. It says
// whether the address is in shared memory.
func (sh *shared) freeShared(addr uint64) (bool, error) {
	s := sh.sharedAt(addr)
	if s == nil {
		return false, nil
	}
	i := slices.IndexFunc(s.Live, func(a vmm.Range) bool { return a.Addr == addr })
	switch {
	case s.Imported && addr != s.Addr, !s.Imported && i < 0:
		return true, fmt.Errorf("no memory begins at %#x: %w", addr, device.ErrInvalidValue)
	case !s.Imported:
		s.Live = slices.Delete(s.Live, i, i+1)
	}
	if len(s.Live) > 0 {
		return true, nil
	}
	sh.drainAll()
	sh.emit(Op{Kind: CloseShared, Range: s.Extent(), Share: s.Name})
	sh.Shared = slices.DeleteFunc(sh.Shared, func(o Shared) bool { return o.Addr == s.Addr })
	sh.room.commitLess(sh.room.onHost())
	return true, nil
}

// closeAllShared closes all shared memory.
func (sh *shared) closeAllShared() {
	for i := range sh.Shared {
		sh.emit(Op{Kind: CloseShared, Range: sh.Shared[i].Extent(), Share: sh.Shared[i].Name})
	}
	sh.Shared = nil
}

// Alone returns why a client cannot be saved that shares memory: it would not exist where the
// client goes on.
func (sh *shared) Alone() error {
	if len(sh.Shared) > 0 {
		return errSharesMemory
	}
	return nil
}

// check checks the memory that the client shares with others.
func (sh *shared) check() error {
	all := sh.Shared
	sh.Shared = nil
	defer func() { sh.Shared = all }()
	for i, s := range all {
		sh.Shared = all[:i]
		r, err := sh.checkShared(s.Addr, s.Size)
		if err != nil {
			return err
		}
		in, err := sh.allocationsIn(r)
		if err != nil {
			return err
		}
		outside := func(a vmm.Range) bool {
			return a.Size == 0 || a.Addr < s.Addr || a.Size > s.Size || a.Addr-s.Addr > s.Size-a.Size
		}
		if len(in) > 0 || s.Imported == (len(s.Live) > 0) || slices.ContainsFunc(s.Live, outside) {
			return fmt.Errorf("shared memory at %#x has what it cannot have", s.Addr)
		}
	}
	return nil
}

var errSharesMemory = errors.New("it shares memory with other programs, which nobody but they can keep: have it free or close that memory first")
