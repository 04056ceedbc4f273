package core

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// A little program: W object byte value, R object byte, P(ut) object, G(et) object.
type instruction struct {
	op            byte
	object, index int
	value         byte
}

func parse(text string) (program []instruction) {
	for _, word := range strings.Fields(text) {
		i := instruction{op: word[0], object: int(word[1] - '0')}
		if len(word) > 2 {
			i.index = int(word[2] - '0')
		}
		if len(word) > 3 {
			i.value = word[3] - '0'
		}
		program = append(program, i)
	}
	return program
}

// reference is the memory model: put and get happen at once, a byte at a time.
type reference struct {
	masters   []int
	mem, base [][][]byte // by node and object
}

func newReference(nodes, bytes int, masters []int) *reference {
	r := &reference{masters: masters}
	for range nodes {
		var mem, base [][]byte
		for range masters {
			mem, base = append(mem, make([]byte, bytes)), append(base, make([]byte, bytes))
		}
		r.mem, r.base = append(r.mem, mem), append(r.base, base)
	}
	return r
}

// put says whether anything was put.
func (r *reference) put(node, object int, in Range) (changed bool) {
	if r.masters[object] == node {
		return false
	}
	mem, base, master := r.mem[node][object], r.base[node][object], r.mem[r.masters[object]][object]
	for i := in.Offset; i < in.End(); i++ {
		if mem[i] != base[i] {
			master[i], base[i], changed = mem[i], mem[i], true
		}
	}
	return changed
}

func (r *reference) get(node, object int, in Range) {
	if r.masters[object] == node {
		return
	}
	master := r.mem[r.masters[object]][object][in.Offset:in.End()]
	copy(r.mem[node][object][in.Offset:in.End()], master)
	copy(r.base[node][object][in.Offset:in.End()], master)
}

// explorer runs programs, one a node, in every order of their steps. A node that is mortal may die
// before any of them: nothing of what it had under way arrives then. (What arrives before it dies is
// another order.)
type explorer struct {
	programs [][]instruction
	mortal   int // -1: none
	seen     map[string]bool
	outcomes map[string]bool
	states   int
	spare    []*cluster // to be used again
}

// clone is a copy of a cluster of whose pages only the first bytes are used.
func (e *explorer) clone(c *cluster) *cluster {
	if len(e.spare) == 0 {
		e.spare = append(e.spare, newCluster(len(c.copies), c.size, c.masters...))
	}
	last := len(e.spare) - 1
	to := e.spare[last]
	e.spare = e.spare[:last]
	to.assign(c, exploredBytes)
	return to
}

const exploredBytes = 4

// run is one node's place in its program.
type run struct {
	at    int
	flies *exchange
	stage int
	read  string
	dead  bool
}

// die ends a node's run.
func (r *run) die() { *r = run{dead: true, read: "dead"} }

func (e *explorer) explore(c *cluster, runs []run) {
	key := fmt.Sprint(c.print(exploredBytes), describe(runs))
	if e.seen[key] {
		return
	}
	e.seen[key] = true
	e.states++
	moved := false
	for n := range runs {
		if runs[n].dead || runs[n].at == len(e.programs[n]) && runs[n].flies == nil {
			continue
		}
		moved = true
		c2, runs2 := e.clone(c), cloneRuns(runs)
		e.step(c2, n, runs2)
		e.explore(c2, runs2)
		e.spare = append(e.spare, c2)
	}
	if e.mortal >= 0 && !runs[e.mortal].dead {
		runs2 := cloneRuns(runs)
		runs2[e.mortal].die()
		e.explore(c, runs2)
	}
	if !moved {
		e.outcomes[outcome(runs, c.masters, func(object int) []byte { return c.mem(c.masters[object], object)[:exploredBytes] })] = true
	}
}

func (e *explorer) step(c *cluster, n int, runs []run) {
	r := &runs[n]
	lost := func(object int) bool { return runs[c.masters[object]].dead }
	if r.flies != nil && lost(r.flies.object) { // the connection broke: nothing of it has happened here
		r.read += "lost"
		r.flies = nil
		return
	}
	if r.flies != nil {
		if r.stage == 1 {
			c.serve(r.flies)
			r.stage = 2
			return
		}
		c.end(r.flies)
		r.flies = nil
		return
	}
	i := e.programs[n][r.at]
	r.at++
	switch i.op {
	case 'W':
		c.mem(n, i.object)[i.index] = i.value
	case 'R':
		r.read += fmt.Sprint(c.mem(n, i.object)[i.index])
	default:
		if lost(i.object) {
			r.read += "lost"
			return
		}
		x := &exchange{node: n, object: i.object, r: Range{0, Page}, put: i.op == 'P'}
		if c.begin(x) {
			r.flies, r.stage = x, 1
		}
	}
}

func cloneRuns(runs []run) []run {
	to := slices.Clone(runs)
	for i, r := range to {
		if r.flies != nil {
			x := *r.flies
			x.pages, x.confirms = slices.Clone(x.pages), slices.Clone(x.confirms)
			to[i].flies = &x
		}
	}
	return to
}

func describe(runs []run) string {
	var b strings.Builder
	for _, r := range runs {
		fmt.Fprintf(&b, "|%d %d %s %v", r.at, r.stage, r.read, r.dead)
		if r.flies != nil {
			fmt.Fprintf(&b, " %x %v %v", r.flies.sent, r.flies.have, r.flies.confirms)
			for _, p := range r.flies.pages {
				fmt.Fprintf(&b, " %d %x", p.version, p.data[:min(len(p.data), exploredBytes)])
			}
		}
	}
	return b.String()
}

func outcome(runs []run, masters []int, master func(object int) []byte) string {
	var b strings.Builder
	for _, r := range runs {
		fmt.Fprintf(&b, "%s;", r.read)
	}
	for o, at := range masters {
		if runs[at].dead {
			b.WriteString(" lost")
		} else {
			fmt.Fprintf(&b, " %x", master(o))
		}
	}
	return b.String()
}

// death, plus the nodes that do not hear of their last put, as bits, stands for the end of the mortal
// node in an order of steps: a put may have been done although it fails.
const death = 100

// atomically collects the outcomes of the same programs in the reference.
func atomically(programs [][]instruction, masters []int, mortal int) map[string]bool {
	outcomes, seen := map[string]bool{}, map[string]bool{}
	var explore func(order []int)
	explore = func(order []int) {
		ref := newReference(len(programs), exploredBytes, masters)
		runs := make([]run, len(programs))
		unsure := 0 // nodes that did nothing since they put to the mortal one
		for _, n := range order {
			if n >= death {
				runs[mortal].die()
				for other := range runs {
					if (n-death)>>other&1 == 1 {
						runs[other].read += "lost"
					}
				}
				continue
			}
			i := programs[n][runs[n].at]
			unsure &^= 1 << n
			runs[n].at++
			if runs[masters[i.object]].dead && (i.op == 'P' || i.op == 'G') {
				runs[n].read += "lost"
				continue
			}
			switch all := (Range{0, exploredBytes}); i.op {
			case 'W':
				ref.mem[n][i.object][i.index] = i.value
			case 'R':
				runs[n].read += fmt.Sprint(ref.mem[n][i.object][i.index])
			case 'P':
				if ref.put(n, i.object, all) && masters[i.object] == mortal {
					unsure |= 1 << n
				}
			case 'G':
				ref.get(n, i.object, all)
			}
		}
		if key := fmt.Sprint(ref.mem, ref.base, describe(runs), unsure); seen[key] {
			return
		} else {
			seen[key] = true
		}
		ended := true
		for n := range programs {
			if !runs[n].dead && runs[n].at < len(programs[n]) {
				ended = false
				explore(append(slices.Clone(order), n))
			}
		}
		if mortal >= 0 && !runs[mortal].dead {
			for deaf := range 1 << len(programs) {
				if deaf&^unsure == 0 {
					explore(append(slices.Clone(order), death+deaf))
				}
			}
		}
		if ended {
			outcomes[outcome(runs, masters, func(object int) []byte { return ref.mem[masters[object]][object] })] = true
		}
	}
	explore(nil)
	return outcomes
}

// Every order of the protocol's steps on three nodes with two objects gives what put and get give
// that happen at once, and each of those outcomes is found; and so it is if one of the nodes dies,
// before any step: what others put and get of the objects that it had fails, and all else goes on.
func TestEveryInterleavingIsThatOfAtomicPutsAndGets(t *testing.T) {
	masters := []int{0, 1}
	for _, test := range []struct {
		name     string
		programs [3]string
		never    string // no outcome begins so
	}{
		{"message passing", [3]string{"", "W001 P0 W101 ", "G1 R10 G0 R00"}, ";;10"},
		{"store buffering", [3]string{"G1 R10", "W001 P0", "W111 P1 G0 R00"}, ""},
		{"store buffering, each at the other's master", [3]string{"W101 P1 G0 R00", "W001 P0 G1 R10", ""}, "0;0;"},
		{"independent readers", [3]string{"W001", "G0 R00 G0 R00", "G0 R00 G0 R00"}, ";10;"},
		{"neighbours", [3]string{"W001", "W011 P0 G0", "W021 P0 G0"}, ""},
		{"racing puts", [3]string{"G1 R10", "W001 P0", "W002 P0"}, ""},
		{"put and get of one object", [3]string{"W001 W012", "W021 P0 G0 R00", "W031 P0 G0 R02"}, ""},
		{"two objects", [3]string{"W001 W101 P1", "W013 P0 G0 R00", "G0 R00 G1 R10 W113 P1"}, ""},
		{"again and again", [3]string{"W001 W002", "G0 W011 P0 G0 R00", "G0 W021 P0 G0 R01"}, ""},
		{"what was read is no write", [3]string{"W001", "W001 P0 G0 R00", "W000 P0 G0 R00"}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var programs [][]instruction
			for _, text := range test.programs {
				programs = append(programs, parse(text))
			}
			for mortal := -1; mortal < 3; mortal++ {
				found, states := explored(programs, masters, mortal)
				if want := atomically(programs, masters, mortal); !maps.Equal(found, want) {
					t.Errorf("node %d dies (-1: none): outcomes\n%v\nbut atomic ones are\n%v", mortal, slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(want)))
				}
				for o := range found {
					if test.never != "" && strings.HasPrefix(o, test.never) {
						t.Errorf("node %d dies (-1: none): there is the outcome %q, which must never be", mortal, o)
					}
				}
				t.Logf("node %d dies (-1: none): %d states, %d outcomes", mortal, states, len(found))
			}
		})
	}
}

// explored is the outcomes of programs in every order of the protocol's steps.
func explored(programs [][]instruction, masters []int, mortal int) (outcomes map[string]bool, states int) {
	c := newCluster(3, Page, masters...)
	for n := range 3 {
		for o := range masters {
			c.mapAll(n, o, whole(Page))
		}
	}
	e := &explorer{programs: programs, mortal: mortal, seen: map[string]bool{}, outcomes: map[string]bool{}}
	e.explore(c, make([]run, 3))
	return e.outcomes, e.states
}

// Random programs on larger objects, with ranges that cross pages, against the reference. The
// reference does each exchange when the master serves it.
func TestRandomProgramsAgreeWithTheReference(t *testing.T) {
	const seed = 20
	rng := rand.New(rand.NewPCG(seed, 1))
	for round := range 200 {
		size := uint64(1 + rng.IntN(3*Page))
		masters := []int{0, 1}
		c, ref := newCluster(3, size, masters...), newReference(3, Pages(size)*Page, masters)
		for n := range 3 {
			for o := range masters {
				c.mapAll(n, o, whole(size))
			}
		}
		flies := make([]*exchange, 3)
		served := make([]bool, 3)
		for range 120 {
			n := rng.IntN(3)
			switch x := flies[n]; {
			case x != nil && served[n]:
				c.end(x)
				flies[n] = nil
				compare(t, seed, round, c, ref, n, x.object)
			case x != nil:
				c.serve(x)
				if served[n] = true; x.put {
					ref.put(n, x.object, x.r)
				} else {
					ref.get(n, x.object, x.r)
				}
			case rng.IntN(2) == 0:
				object, at := rng.IntN(2), rng.IntN(int(size))
				for i := at; i < min(at+rng.IntN(300), int(size)); i++ {
					v := byte(rng.IntN(4))
					c.mem(n, object)[i], ref.mem[n][object][i] = v, v
				}
			default:
				r, ok := Range{uint64(rng.IntN(int(size))), 1 + uint64(rng.IntN(int(size)))}.Clip(size)
				x := &exchange{node: n, object: rng.IntN(2), r: r, put: rng.IntN(2) == 0}
				if ok && c.begin(x) {
					flies[n], served[n] = x, false
				}
			}
		}
	}
}

func compare(t *testing.T, seed, round int, c *cluster, ref *reference, n, object int) {
	t.Helper()
	for i, got := range c.mem(n, object) {
		if want := ref.mem[n][object][i]; got != want {
			t.Fatalf("seed %d, round %d: byte %d of object %d on node %d is %d, the reference has %d", seed, round, i, object, n, got, want)
		}
	}
}

func FuzzPatch(f *testing.F) {
	var p Patch
	p.mask[3] = 5
	f.Add(p.Append(nil))
	f.Add(make([]byte, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		var p, q Patch
		if _, err := p.Parse(b, 4); err != nil {
			return
		}
		if rest, err := q.Parse(p.Append(nil), 4); err != nil || len(rest) != 0 || !same(&q, &p) {
			t.Errorf("%v: what was written is read as another patch", err)
		}
	})
}

// same compares what patches change.
func same(a, b *Patch) bool {
	var x, y [2][Page]byte
	for i := range Page {
		x[1][i], y[1][i] = 0xff, 0xff
	}
	for i := range 2 {
		a.write(x[i][:])
		b.write(y[i][:])
	}
	return a.Page == b.Page && a.Had == b.Had && x == y
}

// Each form is what is shortest, and is read as it was written.
func TestPatchForms(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(i int) bool
		most int
	}{
		{"all", func(int) bool { return true }, Page + 16},
		{"one byte", func(i int) bool { return i == 77 }, 32},
		{"a byte in four", func(i int) bool { return i%4 == 0 }, Page/4 + 512 + 16},
		{"all but a few", func(i int) bool { return i%256 != 9 }, Page + 128},
	} {
		p := Patch{Page: 1, Had: 4}
		for i := range Page {
			if c.set(i) {
				p.mask[i/64] |= 1 << (i % 64)
				p.data[i] = byte(i)
			}
		}
		if p.isWhole() {
			p.whole = p.data[:]
		}
		b := p.Append(nil)
		var q Patch
		rest, err := q.Parse(append(b, 1, 2), 2)
		if err != nil || !same(&q, &p) || len(rest) != 2 || len(b) > c.most {
			t.Errorf("%s: %d bytes, at most %d expected; %v", c.name, len(b), c.most, err)
		}
	}
}
