package daemon

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"

	"muster/ivm/core"
	"muster/ivm/proto"
	"muster/wire"
)

// object is this node's copy of an object. The memory has one more page behind those of the object.
// Its first word becomes a core.Code when the object is gone, so that elements see it without a
// message.
type object struct {
	core.Object
	file *os.File
	all  []byte // mapped
	base []byte // the shadow or the twin

	life sync.RWMutex  // held for reading while the memory is used, for writing while it is unmapped
	gone *core.Failure // why the object is gone; nil before

	master *core.Master
	pages  [16]sync.Mutex // of a master: the locks that its pages share (lockPages)
	mirror *core.Mirror

	mu      sync.Mutex
	mirrors map[core.NodeID]bool // of a master: the nodes that have a mirror
	busy    spans                // of a mirror: the pages of exchanges under way
}

func (o *object) bytes() int { return core.Pages(o.Size) * core.Page }

// takes is what the object takes at most of this node's memory: itself, and the shadow or the twin.
func (o *object) takes() int64 { return 2 * int64(o.bytes()) }

// newObject makes this node's copy of an object.
func (m *member) newObject(is core.Object) (*object, error) {
	o := &object{Object: is, mirrors: map[core.NodeID]bool{}}
	bytes := o.bytes()
	if err := m.service.takeObject(m.share); err != nil {
		return nil, err
	}
	room := is.Size <= 1<<46 // beyond that takes overflows
	if room && uint64(m.service.used.Add(o.takes())) > m.service.cfg.Memory {
		m.service.used.Add(-o.takes())
		room = false
	}
	if !room {
		m.service.giveObject(m.share)
		return nil, &core.Failure{Code: core.NoMemory, Text: fmt.Sprintf("there is no room for %d bytes, and as many to compare them with: objects may take %d in all on node %s", is.Size, m.service.cfg.Memory, m.service.cfg.Name)}
	}
	err := o.allocate(bytes)
	if err != nil {
		o.release()
		m.service.used.Add(-o.takes())
		m.service.giveObject(m.share)
		return nil, &core.Failure{Code: core.NoMemory, Text: err.Error()}
	}
	if mem := o.all[:bytes:bytes]; is.Master == m.program.Self {
		o.master = core.NewMaster(mem, o.base)
	} else {
		o.mirror = core.NewMirror(mem, o.base)
	}
	o.busy.change = sync.NewCond(&o.mu)
	return o, nil
}

func (o *object) allocate(bytes int) (err error) {
	if o.file, err = wire.CreateMemory("muster-ivm", uint64(bytes)+core.Page); err != nil {
		return err
	}
	const readWrite = syscall.PROT_READ | syscall.PROT_WRITE
	if o.all, err = syscall.Mmap(int(o.file.Fd()), 0, bytes+core.Page, readWrite, syscall.MAP_SHARED); err != nil {
		return fmt.Errorf("mapping %d bytes: %w", bytes, err)
	}
	if o.base, err = syscall.Mmap(-1, 0, bytes, readWrite, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE); err != nil {
		return fmt.Errorf("mapping %d bytes: %w", bytes, err)
	}
	return nil
}

// release gives the memory back. Elements keep what they have mapped.
func (o *object) release() {
	if o.file != nil {
		o.file.Close()
	}
	if o.all != nil {
		_ = syscall.Munmap(o.all)
	}
	if o.base != nil {
		_ = syscall.Munmap(o.base)
	}
	o.file, o.all, o.base = nil, nil, nil
}

// use keeps the memory in place until done is called.
func (o *object) use() (done func(), err error) {
	o.life.RLock()
	if o.gone != nil {
		o.life.RUnlock()
		return nil, o.gone
	}
	return o.life.RUnlock, nil
}

// drop ends this node's copy of an object.
func (m *member) drop(is core.Object, why *core.Failure) {
	m.mu.Lock()
	o := m.objects[is.Number]
	delete(m.objects, is.Number)
	for name, known := range m.names {
		if known == is {
			delete(m.names, name)
		}
	}
	m.mu.Unlock()
	if o == nil {
		return
	}
	go func() { // waits for exchanges under way, which hold life for reading
		o.life.Lock()
		defer o.life.Unlock()
		if o.gone = why; o.all != nil {
			_ = wire.Guard(func() error { markGone(o.all[o.bytes():], why.Code); return nil })
			o.release()
			m.service.used.Add(-o.takes())
			m.service.giveObject(m.share)
		}
	}()
}

// abandon gives up this node's mirror of an object, for good.
func (m *member) abandon(o *object, why *core.Failure) {
	m.mu.Lock()
	m.abandoned[o.Number] = why
	m.mu.Unlock()
	m.drop(o.Object, why)
}

// markGone tells elements that have mapped an object that it is gone.
func markGone(page []byte, code core.Code) {
	binary.LittleEndian.PutUint32(page, uint32(code))
}

func (m *member) object(number uint64) (*object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.objects[number]; o != nil {
		return o, nil
	}
	if m.why != nil {
		return nil, m.why
	}
	if why := m.abandoned[number]; why != nil {
		return nil, why
	}
	if reason, lost := m.lost[core.NodeID(number>>objectNode)]; lost {
		return nil, lostMaster(core.NodeID(number>>objectNode), reason)
	}
	return nil, &core.Failure{Code: core.Freed, Text: "the object was freed, or is not mapped on this node"}
}

// objectNode is the bit from which on an object's number contains the node of the master; that node
// chooses the lower bits.
const objectNode = 40

// handleMemory does what a frame about objects asks for.
func (e *element) handleMemory(f *proto.Frame) (*proto.Frame, *os.File, error) {
	m := e.member
	switch f.Op {
	case proto.Malloc:
		return e.malloc(string(f.Tail), f.Args[0])
	case proto.Map:
		return e.mapObject(string(f.Tail), f.Args[0], f.Args[1])
	}
	o, err := m.object(f.Args[0])
	if err != nil {
		return nil, nil, err
	}
	moved := uint64(0)
	switch f.Op {
	case proto.Put, proto.Get:
		r, ok := core.Range{Offset: f.Args[1], Length: f.Args[2]}.Clip(o.Size)
		if !ok {
			return nil, nil, outside(o, f.Args[1])
		}
		how := get
		if f.Op == proto.Put {
			how = put + way(f.Args[3]&1)
		}
		moved, err = m.exchange(o, r, how)
	case proto.PutGroup, proto.GetGroup:
		var ranges []core.Range
		if ranges, err = clipped(o, f.Tail); err == nil {
			moved, err = m.group(o, ranges, f.Op == proto.GetGroup)
		}
	default:
		err = &core.Failure{Code: core.Invalid, Text: fmt.Sprintf("there is no request %d", f.Op)}
	}
	return proto.Done(f.Tag, moved), nil, err
}

func outside(o *object, offset uint64) *core.Failure {
	return &core.Failure{Code: core.Invalid, Text: fmt.Sprintf("byte %d is outside the object, which has %d, or the range is empty", offset, o.Size)}
}

// clipped reads ranges of an object.
func clipped(o *object, tail []byte) ([]core.Range, error) {
	ranges, err := proto.Ranges(tail)
	if err != nil {
		return nil, &core.Failure{Code: core.Invalid, Text: err.Error()}
	}
	for i, r := range ranges {
		var ok bool
		if ranges[i], ok = r.Clip(o.Size); !ok {
			return nil, outside(o, r.Offset)
		}
	}
	return ranges, nil
}

func (e *element) malloc(name string, size uint64) (*proto.Frame, *os.File, error) {
	m := e.member
	m.mu.Lock()
	m.made++
	is := core.Object{Number: uint64(m.program.Self)<<objectNode | m.made, Size: size, Master: m.program.Self}
	m.mu.Unlock()
	if size == 0 {
		return nil, nil, &core.Failure{Code: core.Invalid, Text: fmt.Sprintf("object %q has no bytes", name)}
	}
	o, err := m.newObject(is)
	if err != nil {
		return nil, nil, err
	}
	m.mu.Lock()
	m.objects[is.Number] = o // before the root can tell others of it
	m.mu.Unlock()
	if _, err := e.ask(func(c core.Caller) core.Event {
		return core.Malloc{Caller: c, Name: name, Size: size, Object: is.Number}
	}); err != nil {
		m.drop(is, failure(err))
		return nil, nil, err
	}
	return withFile(o, 0)
}

// withFile is the reply that gives an element an object's memory, of which bytes were fetched.
func withFile(o *object, fetched uint64) (*proto.Frame, *os.File, error) {
	done, err := o.use()
	if err != nil {
		return nil, nil, err
	}
	defer done()
	file, err := wire.CopyOf(o.file) // it may be dropped before the reply is sent
	if err != nil {
		return nil, nil, err
	}
	return proto.Done(0, o.Number, o.Size, fetched, 0, proto.WithFile), file, nil
}

func (e *element) mapObject(name string, offset, length uint64) (*proto.Frame, *os.File, error) {
	m := e.member
	is, err := e.lookup(name)
	if err != nil {
		return nil, nil, err
	}
	if length == 0 {
		length = is.Size
	}
	r, ok := core.Range{Offset: offset, Length: length}.Clip(is.Size)
	if !ok {
		return nil, nil, &core.Failure{Code: core.Invalid, Text: fmt.Sprintf("byte %d is outside object %q, which has %d", offset, name, is.Size)}
	}
	o, err := m.copyOf(is)
	if err != nil {
		return nil, nil, err
	}
	fetched := uint64(0)
	if o.mirror != nil {
		if fetched, err = m.fill(o, r); err != nil {
			return nil, nil, err
		}
	}
	m.remember(name, is)
	return withFile(o, fetched)
}

// lookup finds an object by its name: here, or at the root.
func (e *element) lookup(name string) (core.Object, error) {
	m := e.member
	m.mu.Lock()
	is, known := m.names[name]
	m.mu.Unlock()
	if known {
		return is, nil
	}
	a, err := e.ask(func(c core.Caller) core.Event { return core.Lookup{Caller: c, Name: name} })
	return a.Object, err
}

// copyOf is this node's copy of an object. The first element that maps it makes the copy.
func (m *member) copyOf(is core.Object) (*object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if o := m.objects[is.Number]; o != nil {
		return o, nil
	}
	switch reason, lost := m.lost[is.Master]; {
	case m.why != nil:
		return nil, m.why
	case m.abandoned[is.Number] != nil:
		return nil, m.abandoned[is.Number]
	case lost:
		return nil, lostMaster(is.Master, reason)
	case is.Master == m.program.Self:
		return nil, &core.Failure{Code: core.Freed, Text: "the object was freed"}
	}
	o, err := m.newObject(is)
	if err == nil {
		m.objects[is.Number] = o
	}
	return o, err
}

// remember notes what a name stands for, so that later maps need not ask.
func (m *member) remember(name string, is core.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects[is.Number] != nil {
		m.names[name] = is
	}
}

// spans are ranges of pages that are in use.
type spans struct {
	change *sync.Cond // of the object's mu
	held   []core.Range
}

// lock waits until no page of r is in use. The caller holds the object's mu.
func (s *spans) lock(r core.Range) core.Range {
	first, count := r.Pages()
	r = core.Range{Offset: uint64(first) * core.Page, Length: uint64(count) * core.Page}
	for slices.ContainsFunc(s.held, func(h core.Range) bool { return h.Offset < r.End() && r.Offset < h.End() }) {
		s.change.Wait()
	}
	s.held = append(s.held, r)
	return r
}

func (s *spans) unlock(r core.Range) {
	s.held = slices.Delete(s.held, slices.Index(s.held, r), slices.Index(s.held, r)+1)
	s.change.Broadcast()
}
