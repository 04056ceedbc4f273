package clientcore

import (
	"encoding/binary"
	"errors"
	"fmt"

	"muster/device"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

// kept is how much room on the host a client keeps when it frees memory, so that a client which
// allocates and frees in turn need not ask the daemon each time. Other clients cannot use it
// meanwhile.
const kept = 16 << 20

// Commits is the state of the request for room in the swap area.
type Commits struct {
	Bytes   uint64 // requested; 0 if no request is open
	Refused string // why the last request of the current message was refused; "" if it was not
	TooMuch uint64 // the number of bytes that was refused
}

// room is the client's room in the node's swap area.
type room struct {
	*step
	roomState
	queue   *queue
	memory  *memory
	shared  *shared
	modules *modules
}

type roomState struct {
	Committed uint64 // bytes of room on the host that the daemon has committed
	Asked     Commits
}

func (r *room) save(to *State)   { to.roomState = r.roomState }
func (r *room) load(from *State) { r.roomState = from.roomState }

// free is how many bytes a client may keep on the host besides its memory without being charged: a
// program that allocates all it may have must still be able to load its kernels. The number of
// clients bounds the total.
const free = 16 << 20

// onHost is how many bytes of the host are charged to the client's user: all of its memory, which
// must have room in the swap area; images, which are kept for the next context; contents of
// variables; queued messages with their data.
func (r *room) onHost() uint64 { return r.onHostWith(0) }

// onHostWith is onHost with more bytes besides the memory.
func (r *room) onHostWith(more int) uint64 {
	beside := r.modules.Kept + r.modules.Contents + r.queue.Backlog.Bytes + more
	return r.memory.space.Chunked() + r.shared.sharedBytes() + uint64(max(0, beside-free))
}

// commit makes sure that the client has this many bytes of room on the host. It returns false while
// the daemon is asked.
func (r *room) commit(bytes uint64) (bool, error) {
	if bytes <= r.Committed {
		return true, nil
	}
	a := &r.Asked
	switch {
	case a.Refused != "" && a.TooMuch <= bytes:
		why := a.Refused
		*a = Commits{}
		return true, &Failure{Result: outOfMemory, Text: why}
	case a.Bytes == 0:
		*a = Commits{Bytes: bytes}
		r.say(control.Commit{Bytes: bytes})
	}
	return false, nil
}

// commitLess returns room that the client is far from using. The daemon never refuses that. While a
// request for more is open nothing is said: the daemon's answer must match the request.
func (r *room) commitLess(bytes uint64) {
	if r.Asked.Bytes == 0 && bytes < r.Committed && r.Committed-bytes > kept {
		r.Committed = bytes
		r.say(control.Commit{Bytes: bytes})
	}
}

// answeredCommit handles the daemon's answer, if it is to the open request.
func (r *room) answeredCommit(m control.Committed) {
	a := &r.Asked
	if a.Bytes == 0 || m.Bytes != a.Bytes {
		return
	}
	if m.Granted {
		r.Committed = m.Bytes
	}
	if m.Granted || r.queue.Head == nil {
		*a = Commits{}
	}
	if r.queue.Head == nil { // the message that asked was ended by a fault
		r.commitLess(r.onHost())
	}
	if m.Granted || r.queue.Head == nil {
		return
	}
	*a = Commits{Refused: m.Reason, TooMuch: m.Bytes}
	if a.Refused == "" {
		a.Refused = "the node has no swap room"
	}
}

// A guest is another node that uses this client as a device of its own (device/remote). It is a
// client like others: its memory is swapped, its kernels wait for a lease, limits hold. All memory
// that it has mapped is needed by each of its kernels: what a kernel may access is known only where
// its program runs.

// guests is a handler of messages that only guests may send.
func (s *step) guests(f handler) handler {
	return func(m *Message) (bool, error) {
		if !s.config.Guest {
			return true, fmt.Errorf("only a guest may send this: %w", ErrProtocol)
		}
		return f(m)
	}
}

// whole returns a range of a guest, which must be whole chunks.
func (s *setup) whole(addr, size uint64) (vmm.Range, error) {
	r := vmm.Range{Addr: addr, Size: size}
	if !s.isWhole(r) {
		return r, fmt.Errorf("%d bytes at %#x: give whole chunks of %d bytes in the arena: %w", size, addr, s.Chunk, device.ErrInvalidValue)
	}
	return r, nil
}

// isWhole says whether a range is whole chunks in the arena.
func (s *setup) isWhole(r vmm.Range) bool {
	return r.Size > 0 && (r.Addr|r.Size)%s.Chunk == 0 && r.Addr >= s.Arena.Addr && r.Size <= s.Arena.Size && r.Addr-s.Arena.Addr <= s.Arena.Size-r.Size
}

// chunked is how many bytes of chunks some ranges take; they must be in order.
func (s *setup) chunked(in []vmm.Range) (bytes uint64) {
	chunk, last := s.Chunk, uint64(0)
	for _, a := range in {
		from, to := max(a.Addr/chunk*chunk, last), (a.Addr+a.Size+chunk-1)/chunk*chunk
		if to > from {
			bytes += to - from
			last = to
		}
	}
	return bytes
}

// memMap gives a guest memory. Each chunk is an allocation of its own, so that the guest can return
// it in other pieces.
func (al *allocations) memMap(m *Message, d *wire.MemMap) (bool, error) {
	r, err := al.config.whole(d.Addr, d.Size)
	if err != nil {
		return true, err
	}
	if limit := al.config.Limit; limit > 0 && r.Size > limit-min(limit, al.memory.space.Allocated()) {
		return true, allocation(r.Size, al.memory.beyondLimit())
	}
	if ok, err := al.room.commit(al.room.onHost() + r.Size); !ok || err != nil {
		if err != nil {
			err = allocation(r.Size, err)
		}
		return ok, err
	}
	for at := r.Addr; at < r.Addr+r.Size; at += al.config.Chunk {
		if err := al.memory.space.Alloc(vmm.Range{Addr: at, Size: al.config.Chunk}); err != nil {
			_, wrong := al.freeChunks(vmm.Range{Addr: r.Addr, Size: at - r.Addr}) // nothing has used them, so there is no plan to perform
			if wrong != nil {
				return true, wrong
			}
			return true, err
		}
	}
	al.memory.reserve(Reserve, r)
	al.reply(m.Header.Slot, success, nil)
	return true, nil
}

// freeChunks frees the allocations of a guest in a range.
func (al *allocations) freeChunks(r vmm.Range) (plan vmm.Plan, err error) {
	for at := r.Addr; at < r.Addr+r.Size; at += al.config.Chunk {
		part, err := al.memory.space.Free(at)
		if err != nil {
			return plan, err
		}
		plan = append(plan, part...)
	}
	return plan, nil
}

// memUnmap takes memory away from a guest, without waiting for work that uses it.
func (al *allocations) memUnmap(_ *Message, d *wire.MemUnmap) (bool, error) {
	r, err := al.config.whole(d.Addr, d.Size)
	if err != nil {
		return true, err
	}
	if err := al.memory.space.Check(r); err != nil {
		return true, err
	}
	plan, err := al.freeChunks(r)
	if err != nil {
		return true, err
	}
	al.memory.reserve(GiveBack, r)
	al.room.commitLess(al.room.onHost())
	if len(plan) > 0 {
		al.ask(Op{Kind: Move, Plan: plan, Now: true})
	}
	return true, nil
}

// allocations gives the program memory, and takes it back.
type allocations struct {
	*standing
	verdicts *verdicts
	memory   *memory
	shared   *shared
	room     *room
}

func (al *allocations) register(h *handlers) {
	h[wire.OpMemAlloc] = decoding(al.memAlloc)
	h[wire.OpMemFree] = decoding(al.memFree)
	h[wire.OpMemNest] = decoding(al.memNest)
	h[wire.OpMemMap] = al.guests(decoding(al.memMap))
	h[wire.OpMemUnmap] = al.guests(decoding(al.memUnmap))
	h[wire.OpLimit] = decoding(al.limit)
}

func (al *allocations) memAlloc(m *Message, d *wire.MemAlloc) (bool, error) {
	if d.Addr == 0 {
		return true, allocation(d.Size, al.memory.noPlace(d.Size))
	}
	r := vmm.Range{Addr: d.Addr, Size: d.Size}
	if is, err := al.shared.allocShared(m, r); is {
		return true, err
	}
	if limit, has := al.config.Limit, al.memory.space.Allocated()+al.shared.sharedLive(); limit > 0 && has > al.memory.space.Allocated() && d.Size > limit-min(limit, has) {
		return true, allocation(d.Size, al.memory.beyondLimit())
	}
	if ok, err := al.allocate(r); !ok || err != nil {
		if ResultOf(err) == outOfMemory {
			err = allocation(d.Size, err)
		}
		return ok, err
	}
	al.reply(m.Header.Slot, success, nil)
	return true, nil
}

// allocate makes an allocation, with room on the host. It returns false if the message must wait.
func (al *allocations) allocate(r vmm.Range) (bool, error) {
	if err := al.memory.space.Alloc(r); err != nil {
		if errors.Is(err, vmm.ErrLimit) {
			err = al.memory.beyondLimit()
		}
		return true, err
	}
	if ok, err := al.room.commit(al.room.onHost()); !ok || err != nil {
		// Nothing has used it yet, so there is no plan to perform. While the daemon is asked for
		// room the allocation is not the client's.
		if _, wrong := al.memory.space.Free(r.Addr); wrong != nil {
			return true, wrong
		}
		return ok, err
	}
	al.memory.reserve(Reserve, r)
	return true, nil
}

func (al *allocations) memFree(_ *Message, d *wire.MemFree) (bool, error) {
	if is, err := al.shared.freeShared(d.Addr); is {
		return true, err
	}
	r, _ := al.memory.space.Find(d.Addr)
	if al.memory.Heap > 0 && r == al.memory.heap() {
		return true, fmt.Errorf("free of %#x, where the heap of the program's kernels is: %w", d.Addr, device.ErrInvalidValue)
	}
	shared := al.memory.space.SharedOn(r)
	plan, err := al.memory.space.Free(d.Addr)
	if err != nil {
		return true, err
	}
	al.memory.reserve(GiveBack, r)
	al.room.commitLess(al.room.onHost())
	// Where another allocation keeps a chunk on a device, no plan waits for that device. But the
	// program may reuse the addresses at once, so running kernels must end first. On a device that
	// maps nothing of the allocation no kernel can use it.
	for _, p := range shared {
		al.next(Drain).Place = p
	}
	if len(plan) > 0 {
		al.ask(Op{Kind: Move, Plan: plan})
	}
	return true, nil
}

func (al *allocations) memNest(_ *Message, d *wire.MemNest) (bool, error) {
	if len(d.Children)%8 != 0 {
		return true, fmt.Errorf("mem_nest with %d bytes of addresses: %w", len(d.Children), ErrProtocol)
	}
	children := make([]uint64, len(d.Children)/8)
	for i := range children {
		children[i] = binary.LittleEndian.Uint64(d.Children[8*i:])
	}
	return true, al.memory.space.Nest(d.Parent, children)
}

// The heap of kernels that call malloc (device.FunctionInfo.Heap). It is an allocation like those of
// the program, made before the first such launch: it counts against the program's limit, is swapped and
// saved, and follows the client to other devices. What kernels have allocated of it is written in it. A
// guest's heap is provided by the node on which its program runs.

var errHeapInUse = errors.New("the size of the heap was not changed: kernels that call malloc have run already, so set CU_LIMIT_MALLOC_HEAP_SIZE before")

// provideHeap makes the heap if there is none yet. It returns false if the message must wait.
func (al *allocations) provideHeap() (bool, error) {
	if al.memory.Heap > 0 || al.config.Guest {
		return true, nil
	}
	size := uint64(device.DefaultHeap)
	if set, ok := al.Limits[device.LimitHeap]; ok {
		size = set
	}
	r := al.config.heapFor(size)
	if r.Size == 0 {
		return true, fmt.Errorf("a heap of %s for kernels that call malloc: the program has no addresses for it: set a smaller CU_LIMIT_MALLOC_HEAP_SIZE: %w", sizeOf(size), device.ErrOutOfMemory)
	}
	if ok, err := al.allocate(r); err != nil {
		return true, fmt.Errorf("a heap of %s for kernels that call malloc: %w", sizeOf(size), err)
	} else if !ok {
		return false, nil
	}
	const head = 64 // bytes that must be zeros before the heap is first used
	if ok, err := al.memory.hostWrite(vmm.Range{Addr: r.Addr, Size: head}, line(r.Addr, head)); !ok || err != nil {
		return true, errors.Join(errors.New("new memory cannot be written"), err)
	}
	o := al.next(HostIn)
	o.To, o.Data = line(r.Addr, head), make([]byte, head)
	al.memory.Heap = r.Size
	return true, nil
}

// limit notes a limit that the program sets, and sets it in open contexts.
func (al *allocations) limit(_ *Message, d *wire.Limit) (bool, error) {
	const most = 16 // CUDA has fewer
	if d.Limit >= most {
		return true, fmt.Errorf("limit %d: %w", d.Limit, device.ErrInvalidValue)
	}
	if al.Limits == nil {
		al.Limits = map[uint32]uint64{}
	}
	if d.Limit == device.LimitHeap && al.memory.Heap > 0 && al.config.heapFor(d.Value) != al.memory.heap() {
		al.verdicts.explain(errHeapInUse)
		return true, nil
	}
	al.Limits[d.Limit] = d.Value
	for _, x := range al.Contexts {
		al.emit(Op{Kind: SetLimit, Place: x.Place, Limits: map[uint32]uint64{d.Limit: d.Value}})
	}
	return true, nil
}
