package daemon

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"muster/ivm/core"
	"muster/ivm/proto"
	"muster/wire"
)

// member is a node's part of one program.
type member struct {
	service    *Service
	program    *proto.Program
	credential *syscall.Credential
	share      *share // of its user
	root       *root  // on the program's first node, otherwise nil
	toRoot     rootLink
	over       chan struct{} // closed when the program is over
	ended      chan struct{} // closed when nothing of the program is left on this node
	outputs    sync.WaitGroup
	moved      traffic

	mu       sync.Mutex
	why      *core.Failure // why the program is over; nil before
	elements map[core.ElementID]*element
	objects  map[uint64]*object
	names    map[string]core.Object // a cache of names that elements have looked up
	lost     map[core.NodeID]string
	// abandoned are the mirrors that this node has given up, with the reasons.
	abandoned map[uint64]*core.Failure
	answers   map[core.Caller]chan core.Answer
	pools     map[purpose]*pool
	made      uint64 // objects
	tags      uint64
}

// element is one of the program on this node.
type element struct {
	member *member
	id     core.ElementID
	group  uint64
	device core.Device
	key    string
	gone   chan struct{} // closed when the element has ended

	// member.mu guards what follows.
	entered, exited, isGone, stopped bool
	process                          *os.Process
	conn                             *net.UnixConn
	requests                         map[uint64]*request // by the element's tags

	writing sync.Mutex
}

func newMember(s *Service, p *proto.Program, credential *syscall.Credential) *member {
	return &member{
		service: s, program: p, credential: credential, share: s.share(p.User), over: make(chan struct{}), ended: make(chan struct{}),
		elements: map[core.ElementID]*element{}, objects: map[uint64]*object{}, names: map[string]core.Object{},
		abandoned: map[uint64]*core.Failure{}, lost: map[core.NodeID]string{}, answers: map[core.Caller]chan core.Answer{}, pools: map[purpose]*pool{},
	}
}

func (m *member) element(id core.ElementID) *element {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.elements[id]
}

// tell sends an event to the root. If the root cannot be reached, the program is over on this node.
func (m *member) tell(e core.Event) {
	if err := m.toRoot.tell(e); err != nil {
		m.finish("the root daemon is lost: " + err.Error())
	}
}

// follow performs the effects that the root sends, until the root is lost or the program is over.
func (m *member) follow(conn net.Conn, root *remoteRoot) {
	err := m.service.hear(conn, func() { _ = root.write(&proto.Frame{Op: proto.Beat}) }, func(f *proto.Frame) error {
		if f.Op != proto.FromRoot {
			return fmt.Errorf("message %d is none of the root daemon's", f.Op)
		}
		e, err := proto.DecodeEffect(f.Tail)
		if err == nil {
			m.perform(e)
		}
		return err
	})
	m.finish("the root daemon is lost: " + err.Error())
}

// perform does what the root has decided for this node.
func (m *member) perform(e core.Effect) {
	switch e := e.(type) {
	case core.Answer:
		m.mu.Lock()
		c := m.answers[e.To]
		delete(m.answers, e.To)
		m.mu.Unlock()
		if c != nil {
			c <- e
		}
	case core.Start:
		x := &element{member: m, id: e.Element, group: e.Group, device: e.Device, key: rand.Text(), gone: make(chan struct{}), requests: map[uint64]*request{}}
		m.mu.Lock()
		refused := m.elements[e.Element] != nil || !take(&m.share.elements, maxElementsOfUser)
		if m.why == nil && !refused {
			m.elements[e.Element] = x
		}
		m.mu.Unlock()
		if refused {
			m.tell(core.StartFailed{Element: e.Element, Reason: fmt.Sprintf("node %s has %d elements of the user's programs, as many as it may, or this one already", m.service.cfg.Name, maxElementsOfUser)})
			return
		}
		go func() {
			defer m.share.elements.Add(-1) // when the process has ended
			m.start(e, x.key)
		}()
	case core.Stop:
		if x := m.element(e.Element); x != nil {
			m.end(x)
		}
	case core.Drop:
		m.drop(e.Object, &core.Failure{Code: core.Freed, Text: "the object was freed"})
	case core.Gone:
		m.loseNode(e.Node, e.Reason)
	case core.Finish:
		m.finish(e.Reason)
	}
}

// loseNode ends what depends on another node.
func (m *member) loseNode(n core.NodeID, reason string) {
	m.mu.Lock()
	m.lost[n] = reason
	var dropped []core.Object
	for _, o := range m.objects {
		if o.Master == n {
			dropped = append(dropped, o.Object)
		}
	}
	var pools []*pool
	for to, p := range m.pools {
		if to.node == n {
			pools = append(pools, p)
		}
	}
	m.mu.Unlock()
	for _, p := range pools {
		p.close()
	}
	for _, o := range dropped {
		m.drop(o, lostMaster(n, reason))
	}
}

func lostMaster(n core.NodeID, reason string) *core.Failure {
	return &core.Failure{Code: core.Lost, Text: fmt.Sprintf("the object's master was on node %d, which is lost: %s", n, reason)}
}

// finish ends the program on this node.
func (m *member) finish(reason string) {
	m.mu.Lock()
	if m.why != nil {
		m.mu.Unlock()
		return
	}
	m.why = &core.Failure{Code: core.Over, Text: reason}
	close(m.over)
	elements := slices.Collect(maps.Values(m.elements))
	var objects []core.Object
	for _, o := range m.objects {
		objects = append(objects, o.Object)
	}
	pools := slices.Collect(maps.Values(m.pools))
	m.mu.Unlock()
	for _, e := range elements {
		m.end(e)
	}
	for _, p := range pools {
		p.close()
	}
	for _, o := range objects {
		m.drop(o, m.why)
	}
	m.service.remove(m)
	within(lastWords, m.outputs.Wait)
	m.toRoot.close()
	close(m.ended)
	go func() {
		if m.root != nil {
			m.root.listening.Wait() // output that no process reads may keep threads
		}
		m.service.settled(m)
	}()
}

// lastWords is how long output of a program that is over may take to arrive.
const lastWords = time.Second

// within waits for something, but not longer than that.
func within(most time.Duration, wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait()
	}()
	select {
	case <-done:
	case <-time.After(most):
	}
}

// end ends an element of this node, without telling the root. The process of an element that has
// called Exit may go on.
func (m *member) end(e *element) (first bool) {
	m.mu.Lock()
	first = !e.isGone
	e.isGone = true
	if first {
		close(e.gone)
	}
	conn, exited := e.conn, e.exited
	m.mu.Unlock()
	if !exited {
		e.kill()
	}
	if conn != nil && first { // the element still gets pending answers, and then the end of the connection
		_ = conn.CloseRead()
	}
	return first
}

// noteEnd notes the end of an element, and tells the root.
func (m *member) noteEnd(e *element, reason string) {
	m.mu.Lock()
	exited := e.exited
	m.mu.Unlock()
	if !m.end(e) {
		return
	}
	if exited {
		m.tell(core.Exit{Element: e.id})
	}
	m.tell(core.Ended{Element: e.id, Reason: reason})
}

// maxRequests is how many requests of an element are served at a time. Those that wait for other
// elements are not among them, since they may last as long as the program: the element must be heard
// meanwhile, also to give them up. There may be maxWaits of them.
const maxRequests, maxWaits = 64, 4096

// waits says whether a request waits for other elements.
func waits(op proto.Op) bool {
	return op == proto.Wait || op == proto.WaitAny || op == proto.Barrier
}

// serve answers an element's requests until its connection ends.
func (e *element) serve(conn *net.UnixConn, in *fileReader, tag uint64) {
	m := e.member
	m.mu.Lock()
	e.conn = conn
	gone := e.isGone
	m.mu.Unlock()
	if gone {
		return
	}
	_ = e.reply(proto.Done(tag, uint64(e.id), e.group, uint64(e.device.Kind), uint64(e.device.Number), uint64(m.program.Self)))
	places := make(chan struct{}, maxRequests)
	var all sync.WaitGroup
	for {
		f, err := proto.Read(in)
		for _, file := range in.take() {
			file.Close() // no request has descriptors
		}
		if err != nil {
			break
		}
		if f.Op == proto.Exit {
			m.mu.Lock()
			e.exited = true
			m.mu.Unlock()
			e.leave() // answers the requests that still wait
			all.Wait()
			if e.id == 0 { // the program ends with its first element, after all output was written
				<-m.ended
			}
			_ = e.reply(proto.Done(f.Tag))
			break
		}
		if f.Op == proto.Cancel {
			e.cancel(f.Args[0])
			continue
		}
		if !waits(f.Op) {
			places <- struct{}{}
			all.Go(func() {
				defer func() { <-places }()
				e.answer(f)
			})
			continue
		}
		if !e.begin(f.Tag) {
			_ = e.reply(proto.Failed(f.Tag, &core.Failure{Code: core.Invalid, Text: fmt.Sprintf("the element waits %d times at once, or the user's elements on this node %d times, as often as they may, or it gave two waits one tag", maxWaits, maxWaitsOfUser)}))
			continue
		}
		f.Tail = nil // a wait has none, and may last
		all.Go(func() {
			e.answer(f)
			e.forget(f.Tag)
		})
	}
	e.leave()
	all.Wait()
}

// leave notes that an element's connection has ended. If the element has not called Exit, its
// process is killed, and how it ended is the reason that waiting elements get.
func (e *element) leave() {
	m := e.member
	m.mu.Lock()
	crashed := e.key != "" && !e.exited // start has a process, and tells how it ended
	m.mu.Unlock()
	if crashed {
		e.awaitCrash()
		return
	}
	m.noteEnd(e, fmt.Sprintf("element %d ended its connection without ivmExit", e.id))
}

// reply sends an answer, with descriptors.
func (e *element) reply(f *proto.Frame, files ...*os.File) error {
	e.writing.Lock()
	defer e.writing.Unlock()
	return wire.SendFiles(e.conn, f.Append(nil), files...)
}

// answer does what an element asks for.
func (e *element) answer(f *proto.Frame) {
	r, file, err := e.handle(f)
	switch {
	case err != nil:
		_ = e.reply(proto.Failed(f.Tag, failure(err)))
	case file != nil:
		defer file.Close()
		r.Tag = f.Tag
		_ = e.reply(r, file)
	default:
		r.Tag = f.Tag
		_ = e.reply(r)
	}
}

// request is what an element waits for and was not answered yet. The member's mu protects it.
type request struct {
	caller    core.Caller // as the root knows it, once it was told
	told      bool        // the root
	cancelled bool        // before the root was told
}

// begin notes a wait, unless there are too many, or its tag is that of another.
func (e *element) begin(tag uint64) bool {
	e.member.mu.Lock()
	defer e.member.mu.Unlock()
	if len(e.requests) >= maxWaits || e.requests[tag] != nil || !take(&e.member.share.waits, maxWaitsOfUser) {
		return false
	}
	e.requests[tag] = &request{}
	return true
}

func (e *element) pending(tag uint64) *request {
	e.member.mu.Lock()
	defer e.member.mu.Unlock()
	if r := e.requests[tag]; r != nil {
		return r
	}
	return &request{} // it waits for no other element, and cannot be cancelled
}

func (e *element) forget(tag uint64) {
	e.member.mu.Lock()
	defer e.member.mu.Unlock()
	delete(e.requests, tag)
	e.member.share.waits.Add(-1)
}

// cancel tells the root that an element no longer waits. The root must know of the wait first, so a
// request that is still on its way is only marked, and askFor tells the root.
func (e *element) cancel(tag uint64) {
	m := e.member
	m.mu.Lock()
	r := e.requests[tag]
	if r == nil || !r.told {
		if r != nil {
			r.cancelled = true
		}
		m.mu.Unlock()
		return
	}
	m.mu.Unlock()
	m.tell(core.Cancel{Of: r.caller})
}

// ask asks the root, and waits for its answer.
func (e *element) ask(event func(core.Caller) core.Event) (core.Answer, error) {
	return e.askFor(&request{}, event)
}

// askFor is ask for a request that the element may cancel.
func (e *element) askFor(r *request, event func(core.Caller) core.Event) (core.Answer, error) {
	m := e.member
	m.mu.Lock()
	if m.why != nil {
		defer m.mu.Unlock()
		return core.Answer{}, m.why
	}
	m.tags++
	caller := core.Caller{Element: e.id, Tag: m.tags}
	c := make(chan core.Answer, 1)
	m.answers[caller] = c
	m.mu.Unlock()
	m.tell(event(caller))
	m.mu.Lock()
	r.caller, r.told = caller, true
	cancelled := r.cancelled
	m.mu.Unlock()
	if cancelled {
		m.tell(core.Cancel{Of: caller})
	}
	select {
	case a := <-c:
		if a.Failure != nil {
			return a, a.Failure
		}
		return a, nil
	case <-m.over:
		return core.Answer{}, m.why
	case <-e.gone:
		m.mu.Lock()
		delete(m.answers, caller)
		m.mu.Unlock()
		return core.Answer{}, &core.Failure{Code: core.Over, Text: "the element is no more"}
	}
}

// handle does what a frame asks for, and returns the reply and a descriptor for it.
func (e *element) handle(f *proto.Frame) (*proto.Frame, *os.File, error) {
	done := proto.Done(f.Tag)
	var event func(core.Caller) core.Event
	switch f.Op {
	case proto.Create:
		d := core.Device{Node: core.NodeID(int64(f.Args[0])), Kind: core.Kind(f.Args[1]), Number: int(int64(f.Args[2]))}
		count := int(min(f.Args[3], core.MaxCreate+1))
		a, err := e.ask(func(c core.Caller) core.Event { return core.Create{Caller: c, Device: d, Count: count} })
		done.Tail = proto.AppendNumbers(nil, a.Values...)
		return done, nil, err
	case proto.Kill:
		numbers, err := proto.Numbers(f.Tail)
		if err != nil {
			return nil, nil, &core.Failure{Code: core.Invalid, Text: err.Error()}
		}
		var ids []core.ElementID
		for _, n := range numbers {
			ids = append(ids, core.ElementID(n))
		}
		event = func(c core.Caller) core.Event { return core.Kill{Caller: c, Elements: ids} }
	case proto.SetMax:
		event = func(c core.Caller) core.Event { return core.SetMax{Caller: c, Max: core.ElementID(f.Args[0])} }
	case proto.Wait:
		event = func(c core.Caller) core.Event {
			if f.Args[1] == 1 {
				return core.WaitLatest{Caller: c, For: core.ElementID(f.Args[0])}
			}
			return core.Wait{Caller: c, For: core.ElementID(f.Args[0])}
		}
	case proto.WaitAny:
		event = func(c core.Caller) core.Event { return core.WaitAny{Caller: c} }
	case proto.Signal:
		event = func(c core.Caller) core.Event { return core.Signal{Caller: c} }
	case proto.Barrier:
		event = func(c core.Caller) core.Event { return core.Barrier{Caller: c} }
	case proto.Free:
		event = func(c core.Caller) core.Event { return core.Free{Caller: c, Name: string(f.Tail)} }
	case proto.Nodes, proto.Devices:
		return e.nodes(done, f.Op)
	default:
		return e.handleMemory(f)
	}
	a, err := e.askFor(e.pending(f.Tag), event)
	if len(a.Values) > 0 { // the element that Wait or WaitAny is answered with, also if it died
		done.Args[1] = a.Values[0]
	}
	if err != nil {
		why := failure(err)
		done.Args[0], done.Tail = uint64(why.Code), []byte(why.Text)
	}
	return done, nil, nil
}

// nodes returns the cores and GPUs of the program's nodes. Only the root knows them.
func (e *element) nodes(done *proto.Frame, op proto.Op) (*proto.Frame, *os.File, error) {
	r := e.member.root
	if r == nil {
		return nil, nil, &core.Failure{Code: core.Invalid, Text: "only elements on node 0 can ask what the nodes have"}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if op == proto.Nodes {
		done.Tail, _ = json.Marshal(r.infos)
		return done, nil, nil
	}
	for _, i := range r.infos {
		done.Tail = proto.AppendNumbers(done.Tail, uint64(i.Cores), uint64(i.GPUs))
	}
	return done, nil, nil
}
