package daemon

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"

	"muster/ivm/core"
	"muster/ivm/proto"
	"muster/wire"
)

// Puts and gets are pipelined in blocks: while one is on its way, the next is compared.
const (
	blockBytes   = proto.BlockPages * core.Page
	segmentPages = 16 << 10 // pages of one request, which carries their versions
	unanswered   = 16       // blocks of a put that may wait for an answer
)

// lock reserves the pages of a range of a mirror for one exchange, as package core requires.
func (o *object) lock(r core.Range) (unlock func()) {
	o.mu.Lock()
	held := o.busy.lock(r)
	o.mu.Unlock()
	return func() {
		o.mu.Lock()
		o.busy.unlock(held)
		o.mu.Unlock()
	}
}

// mapped is the parts of a range that elements of this node have mapped.
func (o *object) mapped(r core.Range) []core.Range {
	defer o.lock(r)()
	return o.mirror.Mapped(r)
}

// lockPages reserves neighbouring pages of a master, as package core requires: the pages of a block
// at most. Pages share locks, so that a master may serve several connections at a time.
func (o *object) lockPages(first, count int) (unlock func()) {
	a, b := first/proto.BlockPages%len(o.pages), (first+count-1)/proto.BlockPages%len(o.pages)
	if a == b {
		o.pages[a].Lock()
		return o.pages[a].Unlock
	}
	a, b = min(a, b), max(a, b) // everybody takes them in this order
	o.pages[a].Lock()
	o.pages[b].Lock()
	return func() {
		o.pages[b].Unlock()
		o.pages[a].Unlock()
	}
}

// way is what an exchange does with a range of this node's mirror.
type way int

const (
	get       way = iota
	put           // sends the changed bytes to the master
	overwrite     // sends all bytes to the master
)

// exchange puts a range of this node's mirror to the master, or gets it from there. On the master's
// node it has no effect.
func (m *member) exchange(o *object, r core.Range, how way) (moved uint64, err error) {
	if o.mirror == nil {
		return 0, nil
	}
	done, err := o.use()
	if err != nil {
		return 0, err
	}
	defer done()
	defer o.lock(r)()
	defer func() { m.note(how, moved) }()
	if how == get {
		return inLanes(r, func(r core.Range) (uint64, error) { return m.get(o, r, o.mirror.Update, true) })
	}
	if missing, some := o.mirror.Missing(r); some {
		return 0, &core.Failure{Code: core.Invalid, Text: fmt.Sprintf("bytes %d to %d of the object are not mapped: map what is put", missing.Offset, missing.End())}
	}
	patches := o.mirror.Changes
	if how == overwrite {
		patches = o.mirror.All
	}
	return inLanes(r, func(r core.Range) (uint64, error) { return m.put(o, r, patches) })
}

// A connection keeps one core busy at each end, with encryption, and does not fill a fast link. So a
// long range is divided over several connections where a node has cores for them.
const (
	laneBytes = 4 << 20 // of a range, for each connection
	laneCores = 4       // of this node, for each connection: to compare, copy and encrypt, and for others
	mostLanes = 4
)

// inLanes calls exchange for parts of a range at the same time. Each part begins with a page. The
// error is that of the first part that failed.
func inLanes(r core.Range, exchange func(core.Range) (uint64, error)) (moved uint64, err error) {
	lanes := max(1, min(runtime.GOMAXPROCS(0)/laneCores, mostLanes, int(r.Length/laneBytes)))
	first, count := r.Pages()
	type result struct {
		moved uint64
		err   error
	}
	results := make([]result, lanes)
	var all sync.WaitGroup
	for lane := range lanes {
		from := max(r.Offset, uint64(first+count*lane/lanes)*core.Page)
		to := min(r.End(), uint64(first+count*(lane+1)/lanes)*core.Page)
		part := func() {
			n, err := exchange(core.Range{Offset: from, Length: to - from})
			results[lane] = result{n, err}
		}
		if lane == lanes-1 {
			part()
		} else {
			all.Go(part)
		}
	}
	all.Wait()
	for _, is := range results {
		moved += is.moved
		if err == nil {
			err = is.err
		}
	}
	return moved, err
}

// fill fetches the pages of a range that were never fetched.
func (m *member) fill(o *object, r core.Range) (moved uint64, err error) {
	done, err := o.use()
	if err != nil {
		return 0, err
	}
	defer done()
	defer o.lock(r)()
	missing, some := o.mirror.Missing(r)
	if !some {
		return 0, nil
	}
	take := func(_ core.Range, page int, version uint32, data []byte) { o.mirror.Fill(page, version, data) }
	moved, err = inLanes(missing, func(r core.Range) (uint64, error) { return m.get(o, r, take, false) })
	m.note(get, moved)
	return moved, err
}

// get asks the master for the pages of a range that have other versions there, and passes them to
// take. With revert, the pages that the master did not send are reverted to its contents.
func (m *member) get(o *object, r core.Range, take func(core.Range, int, uint32, []byte), revert bool) (moved uint64, err error) {
	c, err := m.data(o.Master, exchanging)
	if err != nil {
		return 0, err
	}
	defer func() { c.leave(err == nil) }()
	first, count := r.Pages()
	have := o.mirror.Have(r)
	asked := make(chan error, 1)
	go func() { asked <- c.askFor(o.Number, first, have) }()
	next := first
	reverted := func(until int) {
		for ; revert && next < until; next++ {
			o.mirror.Revert(r, next)
		}
	}
	arrived := 0 // pages of requests that were answered in full
	err = c.readAhead(count, func(tail []byte, last bool) error {
		moved += uint64(len(tail))
		err := proto.ReadBlocks(tail, func(page int, version uint32, data []byte) error {
			if page < next || page >= first+count || version == 0 {
				return errors.New("the master sent a page that was not asked for")
			}
			reverted(page)
			take(r, page, version, data)
			next = page + 1
			return nil
		})
		if last {
			arrived = min(arrived+segmentPages, count)
			reverted(first + arrived)
			next = max(next, first+arrived)
		}
		return err
	})
	if err == nil {
		err = <-asked
	}
	return moved, m.broken(o.Master, err)
}

// readAhead calls take for each reply to requests for that many pages, while the next replies are
// read. It puts a byte before each block that says whether it is the last of its request.
func (c *dataConn) readAhead(pages int, take func(tail []byte, last bool) error) error {
	requests := (pages + segmentPages - 1) / segmentPages
	replies := requests * (segmentPages/proto.BlockPages + 1) // at most: the master may lie
	return ahead(func(buffer []byte) ([]byte, bool, error) {
		if requests == 0 {
			return nil, false, nil
		}
		if replies--; replies < 0 {
			return nil, false, errors.New("the master does not stop sending pages")
		}
		buffer = roomFor(buffer, pages)
		f, err := proto.ReadInto(c.in, buffer[1:cap(buffer)])
		if err == nil {
			err = f.Err()
		}
		if err != nil {
			return nil, false, err
		}
		if len(f.Tail) >= cap(buffer) {
			return nil, false, errors.New("a block of pages is too long")
		}
		last := truth(f.Args[1] == 1)
		requests -= int(last)
		buffer = buffer[:1+len(f.Tail)] // what was read is there already
		buffer[0] = byte(last)
		return buffer, true, nil
	}, func(block []byte) error {
		taken := false
		defer func() { // also if the object's memory has no page (guarded)
			if !taken {
				c.Close() // ends the goroutine that reads
			}
		}()
		err := take(block[1:], block[0] == 1)
		taken = err == nil
		return err
	})
}

// askFor sends the requests for pages.
func (c *dataConn) askFor(object uint64, first int, have []uint32) error {
	for len(have) > 0 {
		n := min(segmentPages, len(have))
		f := proto.Frame{Op: proto.GetPages, Args: [6]uint64{object, uint64(first)}}
		for _, v := range have[:n] {
			f.Tail = binary.LittleEndian.AppendUint32(f.Tail, v)
		}
		if err := f.Write(c.Conn); err != nil {
			return err
		}
		first, have = first+n, have[n:]
	}
	return nil
}

// put sends the master patches of the pages of a range. One goroutine makes and sends them; this
// one reads the replies and confirms the versions. The twin already counts the bytes as put. So if
// the connection breaks it is unknown what has arrived, and this node abandons its mirror: a mirror
// that is wrong about the master would never repair itself.
func (m *member) put(o *object, r core.Range, of patches) (moved uint64, err error) {
	c, err := m.data(o.Master, exchanging)
	if err != nil {
		return 0, err
	}
	defer func() {
		c.leave(err == nil)
		if err != nil {
			m.abandon(o, failure(err))
		}
	}()
	frames := make(chan struct{}, unanswered)
	sent := make(chan error, 1)
	go func() {
		n, err := c.sendPatches(o, r, of, frames)
		moved = n
		close(frames)
		sent <- err
	}()
	for range frames {
		f, err := c.read()
		if err != nil {
			c.Close() // ends the sender, too
			for range frames {
			}
			<-sent
			return moved, m.broken(o.Master, err)
		}
		first, count := r.Pages()
		for t := f.Tail; len(t) >= 8; t = t[8:] { // other pages may be those of another exchange
			if page := int(binary.LittleEndian.Uint32(t)); page >= first && page < first+count {
				o.mirror.Confirm(page, binary.LittleEndian.Uint32(t[4:]))
			}
		}
	}
	return moved, m.broken(o.Master, <-sent)
}

// patches makes the patch of a page of a range, if there is one. The caller has reserved the page.
type patches func(r core.Range, page int, p *core.Patch) bool

// sendPatches sends the patches of a range. It sends to frames before each frame: that limits the
// number of unanswered ones.
func (c *dataConn) sendPatches(o *object, r core.Range, of patches, frames chan<- struct{}) (moved uint64, err error) {
	next, count := r.Pages()
	end := next + count
	var p core.Patch
	err = ahead(func(buffer []byte) ([]byte, bool, error) {
		buffer = proto.Room(roomFor(buffer, end-next))
		empty := len(buffer)
		for ; next < end && len(buffer) < blockBytes; next++ {
			if of(r, next, &p) {
				buffer = p.Append(buffer)
			}
		}
		if len(buffer) == empty {
			return nil, false, nil
		}
		moved += uint64(len(buffer) - empty)
		return proto.Seal(buffer, proto.Frame{Op: proto.PutPages, Args: [6]uint64{o.Number}}), true, nil
	}, func(buffer []byte) error {
		frames <- struct{}{}
		_, err := c.Write(buffer)
		return err
	})
	return moved, err
}

// ahead runs produce in a goroutine while this one uses earlier blocks, until produce says that there
// are no more, or either fails. Both may use memory of objects, for which the system may have no page.
// The blocks circulate between the two, so that their buffers are used
// again. ahead returns only when the goroutine has ended, so neither function runs afterwards.
func ahead[T any](produce func(block T) (next T, more bool, err error), use func(T) error) error {
	type made struct {
		block T
		err   error
	}
	blocks, free := make(chan made), make(chan T, buffers)
	for range buffers {
		free <- *new(T)
	}
	stop := make(chan struct{})
	go func() {
		defer close(blocks)
		for block := range free {
			var more bool
			err := guarded(func() (err error) {
				block, more, err = produce(block)
				return err
			})
			if !more && err == nil {
				return
			}
			select {
			case blocks <- made{block, err}:
			case <-stop:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	var failed error
	for m := range blocks {
		if failed = m.err; failed == nil {
			failed = guarded(func() error { return use(m.block) })
		}
		if failed != nil {
			break
		}
		free <- m.block
	}
	close(stop)
	close(free)
	for range blocks { // until the goroutine has ended
	}
	return failed
}

// guarded calls a function that uses memory of objects. If the system has no page for it, only what
// the function was for fails, and not the daemon: what it holds it must release by defer.
func guarded(do func() error) error {
	err := wire.Guard(do)
	if errors.Is(err, wire.ErrNoPage) {
		return &core.Failure{Code: core.NoMemory, Text: err.Error()}
	}
	return err
}

// roomFor is a buffer for a block of at most that many pages: the given one if it has been used
// before, otherwise a new one.
func roomFor(buffer []byte, pages int) []byte {
	if cap(buffer) > 0 {
		return buffer
	}
	return make([]byte, 0, (min(pages, proto.BlockPages)+2)*core.MaxPatch)
}

// buffers is the number of blocks of an exchange in memory at a time.
const buffers = 3

// group makes all mirrors of an object get ranges from the master, or put them to it.
func (m *member) group(o *object, ranges []core.Range, toMaster bool) (moved uint64, err error) {
	f := proto.Frame{Op: proto.AskGroup, Args: [6]uint64{o.Number, truth(toMaster)}, Tail: proto.AppendRanges(nil, ranges)}
	if o.mirror != nil {
		return m.call(o.Master, &f)
	}
	return m.syncMirrors(o, &f)
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// syncMirrors does a group put or get on the master's node. It skips mirrors on lost nodes.
func (m *member) syncMirrors(o *object, f *proto.Frame) (moved uint64, err error) {
	order := proto.Frame{Op: proto.SyncGroup, Args: f.Args, Tail: f.Tail}
	o.mu.Lock()
	var nodes []core.NodeID
	for n := range o.mirrors {
		nodes = append(nodes, n)
	}
	o.mu.Unlock()
	type result struct {
		moved uint64
		err   error
	}
	results := make(chan result)
	for _, n := range nodes {
		go func() {
			moved, err := m.call(n, &order)
			results <- result{moved, err}
		}()
	}
	for range nodes {
		r := <-results
		moved += r.moved
		if r.err != nil && failure(r.err).Code != core.Lost {
			err = r.err
		}
	}
	return moved, err
}

// syncMirror does this mirror's part of a group's put or get: on what is mapped here.
func (m *member) syncMirror(f *proto.Frame) (moved uint64, err error) {
	o, err := m.object(f.Args[0])
	if err != nil {
		return 0, err
	}
	ranges, err := clipped(o, f.Tail)
	if err != nil || o.mirror == nil {
		return 0, err
	}
	how := get
	if f.Args[1] == 1 {
		how = put
	}
	for _, r := range ranges {
		for _, part := range o.mapped(r) {
			n, err := m.exchange(o, part, how)
			if moved += n; err != nil {
				return moved, err
			}
		}
	}
	return moved, nil
}

// --- connections between members ------------------------------------------------

// dataConn is a connection to another member, for one exchange at a time.
type dataConn struct {
	net.Conn
	in     *bufio.Reader
	pool   *pool
	buffer []byte
}

// read reads a reply. Its tail is valid until the next read.
func (c *dataConn) read() (*proto.Frame, error) {
	f, err := proto.ReadInto(c.in, c.buffer)
	if err != nil {
		return nil, err
	}
	return f, f.Err()
}

// broken is the error of an exchange whose connection broke: the node counts as lost.
func (m *member) broken(n core.NodeID, err error) error {
	var f *core.Failure
	switch {
	case err == nil || errors.As(err, &f):
		return err
	case m.isOver() != nil:
		return m.isOver()
	}
	return &core.Failure{Code: core.Lost, Text: fmt.Sprintf("node %d (%s) cannot be reached: %v", n, m.program.Nodes[n], err)}
}

func (m *member) isOver() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.why == nil {
		return nil
	}
	return m.why
}

// data is a connection to another member, for an exchange or for a request of a kind.
func (m *member) data(n core.NodeID, kind proto.Op) (*dataConn, error) {
	m.mu.Lock()
	if m.why != nil {
		defer m.mu.Unlock()
		return nil, m.why
	}
	reason, lost := m.lost[n]
	to := purpose{n, kind}
	p := m.pools[to]
	if p == nil {
		p = &pool{links: m.service.linksTo(m.share, reached{m.program.Nodes[n], kind}), all: map[*dataConn]bool{}}
		m.pools[to] = p
	}
	m.mu.Unlock()
	if lost {
		return nil, lostMaster(n, reason)
	}
	c, err := p.take(func() (*dataConn, error) { return m.dial(n, p) })
	return c, m.broken(n, err)
}

func (m *member) dial(n core.NodeID, p *pool) (*dataConn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), joinTime)
	defer cancel()
	conn, err := m.service.cfg.Dial(ctx, m.program.Nodes[n])
	if err != nil {
		return nil, err
	}
	c := &dataConn{Conn: conn, in: bufio.NewReaderSize(conn, 64<<10), pool: p, buffer: make([]byte, proto.MaxTail)}
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	hello := proto.Frame{Op: proto.Data, Args: [6]uint64{m.program.ID, proto.Version, uint64(m.program.Self)}, Tail: []byte(m.program.Key)}
	if err = hello.Write(conn); err == nil {
		_, err = c.read()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return c, nil
}

// call sends another member a request that has one reply.
func (m *member) call(n core.NodeID, f *proto.Frame) (moved uint64, err error) {
	c, err := m.data(n, f.Op)
	if err != nil {
		return 0, err
	}
	defer func() { c.leave(err == nil) }()
	if err := f.Write(c.Conn); err != nil {
		return 0, m.broken(n, err)
	}
	r, err := c.read()
	if err != nil {
		return 0, m.broken(n, err)
	}
	return r.Args[1], nil
}

// serveData does what another member asks for, one request after the other.
func (m *member) serveData(conn net.Conn, from core.NodeID) {
	stop := make(chan struct{})
	defer close(stop)
	go func() { // closes the connection when the program is over, which ends the read below
		select {
		case <-m.over:
			conn.Close()
		case <-stop:
		}
	}()
	in := bufio.NewReaderSize(conn, 64<<10)
	type request struct {
		frame  *proto.Frame
		buffer []byte
	}
	// The next request is read, and decrypted, while this one is done.
	_ = ahead(func(r request) (request, bool, error) {
		if r.buffer == nil {
			r.buffer = make([]byte, (proto.BlockPages+2)*core.MaxPatch)
		}
		var err error
		r.frame, err = proto.ReadInto(in, r.buffer)
		return r, true, err
	}, func(r request) error {
		err := m.serveOne(conn, r.frame, from)
		if err != nil {
			conn.Close() // ends the goroutine that reads
		}
		return err
	})
}

// serveOne does one request. It fails if the connection does.
func (m *member) serveOne(conn net.Conn, f *proto.Frame, from core.NodeID) (err error) {
	var reply *proto.Frame
	switch f.Op {
	case proto.PutPages:
		err = guarded(func() (err error) {
			reply, err = m.takePages(f)
			return err
		})
	case proto.GetPages:
		return m.sendPages(conn, f, from)
	case proto.SyncGroup:
		var moved uint64
		moved, err = m.syncMirror(f)
		reply = proto.Done(f.Tag, moved)
	case proto.AskGroup:
		var o *object
		var moved uint64
		if o, err = m.object(f.Args[0]); err == nil {
			moved, err = m.syncMirrors(o, f)
		}
		reply = proto.Done(f.Tag, moved)
	default:
		return fmt.Errorf("there is no request %d", f.Op)
	}
	if err != nil {
		reply = proto.Failed(f.Tag, failure(err))
	}
	return reply.Write(conn)
}

// masterOf is the master of an object. Its memory stays mapped until done is called.
func (m *member) masterOf(number uint64) (o *object, done func(), err error) {
	if o, err = m.object(number); err != nil {
		return nil, nil, err
	}
	if o.master == nil {
		return nil, nil, &core.Failure{Code: core.Invalid, Text: "the object's master is on another node"}
	}
	done, err = o.use()
	return o, done, err
}

// takePages changes the master as a put says.
func (m *member) takePages(f *proto.Frame) (*proto.Frame, error) {
	o, done, err := m.masterOf(f.Args[0])
	if err != nil {
		return nil, err
	}
	defer done()
	reply := proto.Done(f.Tag)
	var p core.Patch
	for rest := f.Tail; len(rest) > 0; {
		if rest, err = p.Parse(rest, core.Pages(o.Size)); err != nil {
			return nil, &core.Failure{Code: core.Invalid, Text: err.Error()}
		}
		version := o.apply(&p)
		le := binary.LittleEndian
		reply.Tail = le.AppendUint32(le.AppendUint32(reply.Tail, uint32(p.Page)), version)
	}
	return reply, nil
}

// apply changes a page of a master, and returns its version.
func (o *object) apply(p *core.Patch) uint32 {
	defer o.lockPages(p.Page, 1)()
	return o.master.Apply(p)
}

// since gathers the pages of a master of which a mirror has other versions.
func (o *object) since(first int, have []uint32, b *block) {
	defer o.lockPages(first, len(have))()
	_ = o.master.Since(first, have, b.add)
	b.flush()
}

// sendPages sends the pages of which a mirror has other versions.
func (m *member) sendPages(conn net.Conn, f *proto.Frame, from core.NodeID) error {
	first, count := int(f.Args[1]), len(f.Tail)/4
	o, done, err := m.masterOf(f.Args[0])
	if err == nil && (f.Args[1] > uint64(core.Pages(o.Size)) || first+count > core.Pages(o.Size) || count > segmentPages) {
		done()
		err = &core.Failure{Code: core.Invalid, Text: "a get of pages that the object does not have"}
	}
	if err != nil {
		return proto.Failed(f.Tag, failure(err)).Write(conn)
	}
	defer done()
	have := make([]uint32, count)
	for i := range have {
		have[i] = binary.LittleEndian.Uint32(f.Tail[4*i:])
	}
	o.mu.Lock()
	o.mirrors[from] = true
	o.mu.Unlock()
	return ahead(func(buffer []byte) ([]byte, bool, error) {
		if len(have) == 0 {
			return nil, false, nil
		}
		n := min(proto.BlockPages, len(have))
		b := &block{out: proto.Room(roomFor(buffer, len(have)))}
		o.since(first, have[:n], b)
		first, have = first+n, have[n:]
		return proto.Seal(b.out, proto.Frame{Op: proto.Reply, Tag: f.Tag, Args: [6]uint64{0, truth(len(have) == 0)}}), true, nil
	}, func(buffer []byte) error {
		_, err := conn.Write(buffer)
		return err
	})
}

// block gathers neighbouring pages of one kind.
type block struct {
	out      []byte
	first    int
	versions []uint32
	pages    [][]byte
	zeros    bool
}

func (b *block) add(page int, version uint32, data []byte) error {
	if len(b.versions) > 0 && (page != b.first+len(b.versions) || b.zeros != (data == nil)) {
		b.flush()
	}
	if len(b.versions) == 0 {
		b.first, b.zeros = page, data == nil
	}
	b.versions = append(b.versions, version)
	if data != nil {
		b.pages = append(b.pages, data)
	}
	return nil
}

// flush writes the block.
func (b *block) flush() {
	if len(b.versions) == 0 {
		return
	}
	b.out = proto.AppendBlock(b.out, b.first, b.versions, b.pages)
	b.versions, b.pages = b.versions[:0], b.pages[:0]
}
