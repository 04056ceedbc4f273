package catalog_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/need"
	"muster/model"
	"muster/policy"
	"muster/policy/catalog"
	"muster/policy/history"
)

// TestClustersLive drives every policy through all that can happen to a cluster, in
// random order: jobs come, end, are cancelled, requeued, suspended, resumed, adopted
// and ranked, nodes and devices come, drain, fail and return. A naive second book
// holds every plan to what there is, and the view to what is free. A recording of it,
// played again, gives the same plans; and when all is well again nobody is left waiting.
func TestClustersLive(t *testing.T) {
	seeds := uint64(need.Rounds(1, 30))
	for _, e := range catalog.Entries {
		t.Run(e.Name, func(t *testing.T) {
			for seed := range seeds {
				if err := live(e.Name, seed); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

// book is the naive one: it adds everything up each time.
type book struct {
	c      *model.Cluster
	state  []policy.NodeState
	broken []uint64
	held   map[policy.JobID]*holding
}

type holding struct {
	alloc     model.Allocation
	suspended bool
}

func newBook(c *model.Cluster) *book {
	return &book{c: c, state: make([]policy.NodeState, len(c.Nodes)), broken: make([]uint64, len(c.Nodes)), held: map[policy.JobID]*holding{}}
}

// free is what is left of a node, whatever its state.
func (b *book) free(n int32) (cores int32, memory int64, whole uint64, shares []int64, closed bool) {
	node := &b.c.Nodes[n]
	cores, memory, whole = int32(node.Cores), node.Memory, 1<<len(node.GPUs)-1
	shares = make([]int64, len(node.GPUs))
	for d, t := range node.GPUs {
		shares[d] = b.c.GPUTypes[t].Memory
	}
	for _, h := range b.held {
		for _, p := range h.alloc.Parts {
			if p.Node != n {
				continue
			}
			memory -= p.Memory
			if h.suspended {
				continue
			}
			cores -= p.Cores
			closed = closed || p.Exclusive
			for d := range shares {
				if p.GPUs>>d&1 != 0 {
					shares[d] -= b.c.GPUTypes[node.GPUs[d]].Memory
				}
			}
			if whole&p.GPUs != p.GPUs {
				cores = -1000 // a device is held twice
			}
			whole &^= p.GPUs
		}
		for _, g := range h.alloc.Grants {
			if g.Node != n || h.suspended {
				continue
			}
			if g.Memory == 0 {
				if whole>>g.Device&1 == 0 {
					cores = -1000
				}
				shares[g.Device] -= b.c.GPUTypes[node.GPUs[g.Device]].Memory
			} else {
				shares[g.Device] -= g.Memory
			}
		}
	}
	for d := range shares {
		if shares[d] < b.c.GPUTypes[node.GPUs[d]].Memory {
			whole &^= 1 << d
		}
	}
	return cores, memory, whole, shares, closed
}

// check holds the view to the book, and the book to what there is.
func (b *book) check(v *policy.View) error {
	for n := range int32(len(b.c.Nodes)) {
		cores, memory, whole, shares, closed := b.free(n)
		if cores < 0 || memory < 0 || slices.ContainsFunc(shares, func(s int64) bool { return s < 0 }) {
			return fmt.Errorf("node %d is oversubscribed: %d cores, %d bytes, shares %v left", n, cores, memory, shares)
		}
		if b.state[n] != policy.NodeUp {
			cores, memory, whole = 0, 0, 0
			clear(shares)
		}
		whole &^= b.broken[n]
		if v.FreeCores(n) != cores || v.FreeMemory(n) != memory || v.FreeGPUs(n) != whole || v.Closed(n) != closed {
			return fmt.Errorf("node %d: the view has %d cores, %d bytes, devices %b, closed %v; the book %d, %d, %b, %v",
				n, v.FreeCores(n), v.FreeMemory(n), v.FreeGPUs(n), v.Closed(n), cores, memory, whole, closed)
		}
		for d := range shares {
			if b.broken[n]>>d&1 != 0 {
				shares[d] = 0
			}
			if got := v.FreeShare(n, int32(d)); got != shares[d] {
				return fmt.Errorf("GPU %d of node %d: the view has %d bytes, the book %d", d, n, got, shares[d])
			}
		}
	}
	return nil
}

// starts holds a start to the nodes that are up.
func (b *book) starts(st *policy.Start) error {
	if st.Err != nil {
		return st.Err
	}
	for _, p := range st.Alloc.Parts {
		if b.state[p.Node] != policy.NodeUp || p.GPUs&b.broken[p.Node] != 0 {
			return fmt.Errorf("job %d was started on node %d, which is %v, devices %b broken", st.Job, p.Node, b.state[p.Node], b.broken[p.Node])
		}
	}
	for _, g := range st.Alloc.Grants {
		if b.state[g.Node] != policy.NodeUp || b.broken[g.Node]>>g.Device&1 != 0 {
			return fmt.Errorf("job %d was given device %d of node %d, which is %v", st.Job, g.Device, g.Node, b.state[g.Node])
		}
	}
	b.held[st.Job] = &holding{alloc: clone(st.Alloc)}
	return nil
}

func clone(a *model.Allocation) model.Allocation {
	return model.Allocation{Parts: slices.Clone(a.Parts), Grants: slices.Clone(a.Grants)}
}

// life is one random run.
type life struct {
	*policy.State
	record  *history.Recorder
	book    *book
	rng     *rand.Rand
	now     time.Duration
	wake    time.Duration
	waiting []policy.JobID
	jobs    map[policy.JobID]*model.Job
}

func live(name string, seed uint64) error {
	rng := rand.New(rand.NewPCG(seed, 17))
	c := &model.Cluster{GPUTypes: []model.GPUType{{Name: "g", Memory: 8, Speed: 1}}}
	for i := range rng.IntN(5) {
		c.Nodes = append(c.Nodes, randomNode(rng, i))
	}
	p, err := catalog.New(name)
	if err != nil {
		return err
	}
	s := policy.NewState(c, p)
	var written bytes.Buffer
	l := &life{State: s, record: history.Record(&written, history.Header{Policy: name}, s), book: newBook(s.Cluster()), rng: rng, wake: policy.Never, jobs: map[policy.JobID]*model.Job{}}
	for i := range 250 {
		l.now += time.Duration(rng.IntN(3)) * time.Second
		if err := l.something(); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		if rng.IntN(4) == 0 {
			continue // several things between two steps
		}
		if err := l.step(); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		if i%50 == 7 {
			if err := l.again(name); err != nil {
				return fmt.Errorf("event %d: %w", i, err)
			}
		}
	}
	if err := l.windUp(); err != nil {
		return err
	}
	if err := scriptFailure(p); err != nil {
		return err
	}
	if l.record.Err() != nil {
		return l.record.Err()
	}
	return replays(name, &written)
}

// replays plays a history again, and sets it beside what another policy would do.
func replays(name string, written *bytes.Buffer) error {
	text := written.String()
	got, err := history.Replay(written, catalog.New)
	if err != nil {
		return err
	}
	if d := got.Difference; d != nil {
		return fmt.Errorf("line %d: %s was decided, and is %s now", d.Line, d.Then, d.Now)
	}
	c, err := history.Compare(strings.NewReader(text), catalog.New, name, 3)
	if err != nil {
		return fmt.Errorf("compared with itself: %w", err)
	}
	if c.Different > 0 && name != "random-fit" && name != "mosaic" {
		return fmt.Errorf("compared with itself: %+v", c.First[0])
	}
	c, err = history.Compare(strings.NewReader(text), catalog.New, "first-fit", 3)
	if err != nil || c.Starts != got.Starts || c.Same+c.Elsewhere+c.Waits != c.Starts {
		return fmt.Errorf("compared with first-fit: %+v, %v", c, err)
	}
	return nil
}

// again makes the state a second time from a snapshot. A recording that begins
// there writes the same snapshot of it.
func (l *life) again(name string) error {
	var first, second bytes.Buffer
	if err := history.Snapshot(&first, history.Header{Policy: name}, l.State); err != nil {
		return err
	}
	s, err := history.Restore(bytes.NewReader(first.Bytes()), catalog.New)
	if err != nil {
		return fmt.Errorf("a snapshot cannot be played: %w", err)
	}
	if err := history.Snapshot(&second, history.Header{Policy: name}, s); err != nil {
		return err
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		return fmt.Errorf("a snapshot of a snapshot is another one:\n%s\n%s", &first, &second)
	}
	return l.book.check(s.View())
}

func randomNode(rng *rand.Rand, i int) model.Node {
	return model.Node{Name: fmt.Sprint("n", i), Cores: 1 + rng.IntN(6), Memory: 10, GPUs: make([]int, rng.IntN(4))}
}

func (l *life) step() error {
	plan := l.Step(l.now)
	l.wake = plan.Wake
	for i := range plan.Starts {
		st := &plan.Starts[i]
		if err := l.book.starts(st); err != nil {
			return err
		}
		l.waiting = slices.DeleteFunc(l.waiting, func(id policy.JobID) bool { return id == st.Job })
	}
	if l.Waiting() != len(l.waiting) {
		return fmt.Errorf("%d jobs wait, not %d", l.Waiting(), len(l.waiting))
	}
	for _, id := range l.waiting {
		if l.Why(id) == "" {
			return fmt.Errorf("no reason why job %d waits", id)
		}
	}
	return l.book.check(plan.View())
}

// holders lists the jobs that hold something, in order.
func (l *life) holders(suspended bool) []policy.JobID {
	var list []policy.JobID
	for id, h := range l.book.held {
		if h.suspended == suspended {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

func (l *life) pick(list []policy.JobID) policy.JobID { return list[l.rng.IntN(len(list))] }

func (l *life) gone(id policy.JobID) {
	delete(l.book.held, id)
	l.waiting = slices.DeleteFunc(l.waiting, func(w policy.JobID) bool { return w == id })
}

// something happens.
func (l *life) something() error {
	running, still := l.holders(false), l.holders(true)
	switch what := l.rng.IntN(24); {
	case what < 8:
		return l.submit()
	case what < 9 && len(l.waiting) > 0:
		id := l.pick(l.waiting)
		l.gone(id)
		return l.Cancel(id)
	case what < 12 && len(running) > 0:
		id := l.pick(running)
		l.gone(id)
		return l.End(id)
	case what < 14 && len(running) > 0:
		return l.requeue(l.pick(running))
	case what < 15 && len(running) > 0:
		id := l.pick(running)
		l.book.held[id].suspended = true
		return l.Suspended(id)
	case what < 16 && len(still) > 0:
		return l.resume(l.pick(still))
	case what < 17 && len(still) > 0:
		id := l.pick(still)
		if l.rng.IntN(2) == 0 {
			return l.requeue(id)
		}
		l.gone(id)
		return l.End(id)
	case what < 18 && len(l.waiting) > 0:
		return l.Rank(l.pick(l.waiting), int64(l.rng.IntN(4)))
	case what < 19 && len(l.book.c.Nodes) < 9:
		return l.addNode()
	case what < 22 && len(l.book.c.Nodes) > 0:
		return l.trouble()
	case what < 23:
		return l.adopt()
	}
	return l.nonsense()
}

func (l *life) submit() error {
	j := &model.Job{ID: "j", Run: time.Duration(l.rng.IntN(9)) * time.Second, Priority: l.rng.Int64N(3), Submit: l.now, Request: request(l.rng)}
	if k := len(l.book.c.Nodes); l.rng.IntN(8) == 0 && k > 0 && j.Request.Nodes > 0 {
		for range j.Request.Nodes {
			if name := fmt.Sprint("n", l.rng.IntN(k+1)); !slices.Contains(j.Request.NodeList, name) {
				j.Request.NodeList = append(j.Request.NodeList, name)
			}
		}
	}
	if k := len(l.book.c.Nodes); l.rng.IntN(8) == 0 && k > 0 { // as a partition does
		var nodes, lenders []string
		for i := range k {
			if name := fmt.Sprint("n", i); l.rng.IntN(2) == 0 {
				nodes, lenders = append(nodes, name), append(lenders, name)
			} else if l.rng.IntN(3) == 0 {
				lenders = append(lenders, name)
			}
		}
		if len(nodes) > 0 {
			j.Confine(nodes, lenders)
		}
	}
	if l.rng.IntN(8) == 0 && j.Request.GPUs > 0 {
		j.Request.GPUType = []string{"g", "new"}[l.rng.IntN(2)]
	}
	id, err := l.Submit(j)
	if err == nil {
		l.waiting, l.jobs[id] = append(l.waiting, id), j
	} else if !errors.Is(err, policy.ErrImpossible) {
		return err
	}
	return nil
}

func (l *life) requeue(id policy.JobID) error {
	l.gone(id)
	err := l.Requeue(id)
	if errors.Is(err, policy.ErrImpossible) { // under the policy that decides now: it is over
		delete(l.jobs, id)
		return nil
	}
	l.waiting = append(l.waiting, id)
	return err
}

// resume tells that a job runs again, and expects what the book says.
func (l *life) resume(id policy.JobID) error {
	h := l.book.held[id]
	fits := true
	for _, p := range h.alloc.Parts {
		cores, _, whole, _, closed := l.book.free(p.Node)
		all := bits.OnesCount64(whole) == len(l.book.c.Nodes[p.Node].GPUs)
		if closed || l.book.state[p.Node] == policy.NodeDown || cores < p.Cores || whole&p.GPUs != p.GPUs || p.GPUs&l.book.broken[p.Node] != 0 ||
			p.Exclusive && !all {
			fits = false
		}
	}
	for _, g := range h.alloc.Grants {
		_, _, whole, shares, closed := l.book.free(g.Node)
		if closed || l.book.state[g.Node] == policy.NodeDown || l.book.broken[g.Node]>>g.Device&1 != 0 ||
			shares[g.Device] < g.Memory || g.Memory == 0 && whole>>g.Device&1 == 0 {
			fits = false
		}
	}
	if err := l.Resumed(id); (err == nil) != fits {
		return fmt.Errorf("resumed job %d: %v, though it fits: %v", id, err, fits)
	}
	h.suspended = !fits
	return nil
}

func (l *life) addNode() error {
	n := randomNode(l.rng, len(l.book.c.Nodes))
	var err error
	if l.rng.IntN(2) == 0 {
		_, err = l.AddNode(n, model.GPUType{Name: []string{"g", "new"}[l.rng.IntN(2)], Memory: 8, Speed: 1})
	} else {
		_, err = l.AddNode(n)
	}
	l.book.state, l.book.broken = append(l.book.state, policy.NodeUp), append(l.book.broken, 0)
	return err
}

// trouble comes to a node or a device, or goes.
func (l *life) trouble() error {
	n := int32(l.rng.IntN(len(l.book.c.Nodes)))
	k := int32(len(l.book.c.Nodes[n].GPUs))
	switch {
	case l.rng.IntN(5) == 0 && k < 5:
		return l.AddDevices(n, make([]int, 1+l.rng.IntN(2)))
	case l.rng.IntN(3) == 0 && k > 0:
		d, up := l.rng.Int32N(k), l.rng.IntN(2) == 0
		l.book.broken[n] &^= 1 << d
		if !up {
			l.book.broken[n] |= 1 << d
		}
		return l.SetDevice(n, d, up)
	}
	st := policy.NodeState(l.rng.IntN(3))
	if l.rng.IntN(2) == 0 {
		st = policy.NodeUp
	}
	l.book.state[n] = st
	return l.SetNode(n, st)
}

// adopt takes in a job that runs somewhere, up or not.
func (l *life) adopt() error {
	if len(l.book.c.Nodes) == 0 {
		return nil
	}
	n := int32(l.rng.IntN(len(l.book.c.Nodes)))
	cores, memory, whole, _, closed := l.book.free(n)
	j := &model.Job{ID: "a", Run: 5 * time.Second, Request: model.Request{Nodes: 1, CoresPerNode: 1, Memory: 1}}
	a := model.Allocation{Parts: []model.Part{{Node: n, Cores: 1, Memory: 1}}}
	if whole != 0 {
		j.Request.GPUs, a.Parts[0].GPUs = 1, whole&-whole
	}
	id, err := l.Adopt(j, 0, &a, max(0, l.now-time.Second))
	if fits := cores > 0 && memory > 0 && !closed; (err == nil) != fits {
		return fmt.Errorf("adopted on node %d: %v, though it fits: %v", n, err, fits)
	}
	if err == nil {
		l.book.held[id], l.jobs[id] = &holding{alloc: clone(&a)}, j
	}
	return nil
}

// nonsense is what a driver that is late or confused would say.
func (l *life) nonsense() error {
	ids := []policy.JobID{-1, 1 << 30, policy.JobID(l.rng.IntN(300))}
	if len(l.waiting) > 0 {
		ids = append(ids, l.pick(l.waiting))
	}
	for _, id := range ids {
		if l.book.held[id] != nil {
			continue
		}
		for _, tell := range []func(policy.JobID) error{l.End, l.Requeue, l.Suspended, l.Resumed} {
			if tell(id) == nil {
				return fmt.Errorf("job %d holds nothing, and something was made of it", id)
			}
		}
		if !slices.Contains(l.waiting, id) && (l.Cancel(id) == nil || l.Rank(id, 1) == nil || l.Allocation(id) != nil || l.Why(id) == "") {
			return fmt.Errorf("job %d is over, and something was made of it", id)
		}
	}
	k := int32(len(l.book.c.Nodes))
	if l.SetNode(k, policy.NodeUp) == nil || l.SetNode(-1, policy.NodeUp) == nil || l.SetDevice(k, 0, true) == nil ||
		l.AddDevices(k, []int{0}) == nil || k > 0 && l.SetDevice(0, 64, true) == nil || k > 0 && l.SetNode(0, 9) == nil {
		return errors.New("nodes and devices that do not exist were changed")
	}
	return nil
}

// windUp makes everything well, and lets everybody end.
func (l *life) windUp() error {
	for n := range int32(len(l.book.c.Nodes)) {
		l.book.state[n], l.book.broken[n] = policy.NodeUp, 0
		if err := l.SetNode(n, policy.NodeUp); err != nil {
			return err
		}
		for d := range int32(len(l.book.c.Nodes[n].GPUs)) {
			if err := l.SetDevice(n, d, true); err != nil {
				return err
			}
		}
	}
	for first := true; first || len(l.book.held) > 0 || l.wake != policy.Never; first = false {
		l.now += time.Minute
		for _, id := range append(l.holders(false), l.holders(true)...) {
			l.gone(id)
			if err := l.End(id); err != nil {
				return err
			}
		}
		if err := l.step(); err != nil {
			return err
		}
	}
	for _, id := range l.waiting {
		if _, err := l.Submit(l.jobs[id]); errors.Is(err, policy.ErrImpossible) {
			continue // devices that came have sent first fit to nodes where it finds less
		}
		return fmt.Errorf("%d jobs are left waiting on an idle cluster; job %d: %s", l.Waiting(), id, l.Why(id))
	}
	return nil
}
