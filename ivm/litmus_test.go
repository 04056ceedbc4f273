package ivm_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"muster/ivm"
)

// Elements that do what the first one orders, one step at a time: the litmus tests of docs/ivm.md and
// random programs run on daemons and processes as they do in ivm/core without them.

const litmusBytes = 3*4096 + 100

var litmusObjects = []string{"x", "y"}

// order is a step of an element: a store of the same value to bytes, a put, a get, or a look at what
// there is. Each element has its own, in an object.
type order struct {
	Number, Op, Object, From, To, Value int64
}

const (
	litmusStore = iota + 1
	litmusPut
	litmusGet
	litmusOverwrite
	litmusLook // the answer is a number for all bytes
	litmusEnd
)

// sum tells contents of memory apart.
func sum(b []byte) int64 {
	h := uint64(14695981039346656037)
	for _, c := range b {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return int64(h)
}

// obey does a step on this node's copies.
func obey(ctx context.Context, o order, copies []*ivm.Slice[byte]) (answer int64, err error) {
	s := copies[o.Object]
	part := s.Data[o.From:o.To]
	switch o.Op {
	case litmusStore:
		for i := range part {
			part[i] = byte(o.Value)
		}
	case litmusPut:
		err = s.Put(ctx, int(o.From), int(o.To))
	case litmusOverwrite:
		err = s.Overwrite(ctx, int(o.From), int(o.To))
	case litmusGet:
		err = s.Get(ctx, int(o.From), int(o.To))
	case litmusLook:
		answer = sum(part)
	}
	return answer, err
}

func init() {
	scenarios["litmus"] = func(ctx context.Context, e *ivm.Element) error {
		orders, err := ivm.Map[order](ctx, e, "orders")
		if err != nil {
			return err
		}
		answers, err := ivm.Map[int64](ctx, e, "answers")
		if err != nil {
			return err
		}
		var copies []*ivm.Slice[byte]
		for i, name := range litmusObjects {
			s, err := ivm.Map[byte](ctx, e, name)
			if i == e.Node() { // its master is here
				s, err = ivm.Malloc[byte](ctx, e, name, litmusBytes)
			}
			if err != nil {
				return err
			}
			copies = append(copies, s)
		}
		if err := e.Signal(ctx); err != nil {
			return err
		}
		me := int(e.ID())
		for last := int64(0); ; {
			if err := e.Wait(ctx, 0); err != nil {
				return err
			}
			if err := orders.Get(ctx, me, me+1); err != nil {
				return err
			}
			o := orders.Data[me]
			if o.Number == last { // the signal was for another one
				continue
			}
			if last = o.Number; o.Op == litmusEnd {
				return nil
			}
			if answers.Data[me], err = obey(ctx, o, copies); err != nil {
				return err
			}
			if err := answers.Put(ctx, me, me+1); err != nil {
				return err
			}
			if err := e.Signal(ctx); err != nil {
				return err
			}
		}
	}
}

// laboratory is three nodes with an element on each, and what their copies must contain.
type laboratory struct {
	t       *testing.T
	ctx     context.Context
	e       *ivm.Element
	orders  *ivm.Slice[order]
	answers *ivm.Slice[int64]
	own     []*ivm.Slice[byte] // node 0's copies
	number  int64
	// mem and twin are the model: what a node's copy contains, and what it had from the master.
	mem, twin [3][2][]byte
}

func newLaboratory(t *testing.T) *laboratory {
	ctx, e := begin(t, cluster(t, 3), "litmus")
	l := &laboratory{t: t, ctx: ctx, e: e}
	l.orders = must[*ivm.Slice[order]](t)(ivm.Malloc[order](ctx, e, "orders", 3))
	l.answers = must[*ivm.Slice[int64]](t)(ivm.Malloc[int64](ctx, e, "answers", 3))
	l.own = append(l.own, must[*ivm.Slice[byte]](t)(ivm.Malloc[byte](ctx, e, "x", litmusBytes)))
	for n := 1; n < 3; n++ {
		ids := must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(n), 1))
		check(t, e.Wait(ctx, ids[0])) // it has mapped, or allocated
	}
	l.own = append(l.own, must[*ivm.Slice[byte]](t)(ivm.Map[byte](ctx, e, "y")))
	for n := range l.mem {
		for o := range l.mem[n] {
			l.mem[n][o], l.twin[n][o] = make([]byte, litmusBytes), make([]byte, litmusBytes)
		}
	}
	return l
}

// do does a step on a node, and on the model.
func (l *laboratory) do(node int, o order) {
	l.t.Helper()
	mem, twin, master := l.mem[node][o.Object], l.twin[node][o.Object], l.mem[o.Object][o.Object] // object 0 is node 0's, 1 node 1's
	for i := o.From; i < o.To; i++ {
		switch {
		case o.Op == litmusStore:
			mem[i] = byte(o.Value)
		case node == int(o.Object):
		case o.Op == litmusPut && mem[i] != twin[i], o.Op == litmusOverwrite:
			master[i], twin[i] = mem[i], mem[i]
		case o.Op == litmusGet:
			mem[i], twin[i] = master[i], master[i]
		}
	}
	if node == 0 {
		answer, err := obey(l.ctx, o, l.own)
		check(l.t, err)
		l.answers.Data[0] = answer
	} else {
		l.number++
		o.Number = l.number
		l.orders.Data[node] = o
		check(l.t, l.e.Signal(l.ctx))
		if err := l.e.Wait(l.ctx, ivm.ID(node)); o.Op != litmusEnd {
			check(l.t, err)
		}
	}
	if o.Op == litmusLook && l.answers.Data[node] != sum(mem[o.From:o.To]) {
		l.t.Fatalf("bytes %d to %d of object %s on node %d are not what the memory model says", o.From, o.To, litmusObjects[o.Object], node)
	}
}

// script plays words: NODE:OBJECT followed by FROM-TO, or all, and !=VALUE, !> (put), !* (overwrite), !< (get) or !?VALUE.
func (l *laboratory) script(text string) {
	l.t.Helper()
	for _, word := range strings.Fields(text) {
		node, object := int(word[0]-'0'), int64(strings.IndexByte("xy", word[2]))
		at, op, _ := strings.Cut(word[3:], "!")
		o := order{Object: object, To: litmusBytes}
		if at != "" {
			_, err := fmt.Sscanf(at, "%d-%d", &o.From, &o.To)
			check(l.t, err)
		}
		value, _ := strconv.Atoi(op[1:])
		switch op[0] {
		case '=':
			o.Op, o.Value = litmusStore, int64(value)
		case '>':
			o.Op = litmusPut
		case '*':
			o.Op = litmusOverwrite
		case '<':
			o.Op = litmusGet
		case '?':
			o.Op = litmusLook
			for _, b := range l.mem[node][object][o.From:o.To] {
				if b != byte(value) {
					l.t.Fatalf("%s: the model has %d", word, b)
				}
			}
		}
		l.do(node, o)
	}
}

// The litmus tests of docs/ivm.md on daemons and processes.
func TestLitmus(t *testing.T) {
	for _, c := range []struct{ name, script string }{
		{"1 what was put is got", "1:x5000-5001!=7 1:x5000-5001!> 2:x5000-5001!< 2:x5000-5001!?7 0:x5000-5001!?7"},
		{"2 without a get a mirror stays", "1:x0-1!=1 1:x!> 2:x!?0 0:x0-1!?1"},
		{"3 neighbours", "1:x0-1!=1 2:x1-2!=2 1:x0-4096!> 2:x0-4096!> 0:x0-1!?1 0:x1-2!?2 0:x2-4096!?0"},
		{"4 ranges that are too long", "1:x0-6000!=1 2:x6000-12388!=2 2:x!> 1:x!> 0:x0-6000!?1 0:x6000-12388!?2"},
		{"5 a get drops what was not put, in its range", "1:x0-1!=9 1:x100-101!=9 0:x200-201!=5 1:x100-201!< 1:x0-1!?9 1:x100-101!?0 1:x200-201!?5 1:x!> 0:x0-1!?9 0:x100-101!?0"},
		{"8 two objects with masters on two nodes", "0:y!=1 1:x!=2 0:y!> 1:x!> 2:x!< 2:y!< 2:x!?2 2:y!?1"},
		{"9 a store of what the mirror has is no change", "1:x0-1!=1 1:x!> 2:x!< 2:x0-1!=2 2:x!> 1:x0-1!=1 1:x!> 0:x0-1!?2 1:x0-1!* 0:x0-1!?1"},
		{"10 a value that is put again after it was overwritten", "1:x0-8!=1 1:x!> 2:x0-8!=2 2:x!> 1:x0-8!=3 1:x!> 0:x0-8!?3 2:x!< 2:x0-8!?3"},
	} {
		t.Run(c.name, func(t *testing.T) { newLaboratory(t).script(c.script) })
	}
}

// Random steps of three nodes, one after the other, leave what the model says in every copy.
func TestRandomProgramsOnDaemons(t *testing.T) {
	const seed = 31
	steps := 400
	if testing.Short() {
		steps = 100
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	l := newLaboratory(t)
	t.Logf("seed %d", seed)
	for range steps {
		o := order{Op: 1 + rng.Int64N(5), Object: rng.Int64N(2), From: rng.Int64N(litmusBytes), Value: rng.Int64N(256)}
		if o.To = min(litmusBytes, o.From+1+rng.Int64N(6000)); o.Op == litmusStore {
			o.To = min(o.To, o.From+300)
		}
		l.do(rng.IntN(3), o)
	}
	for n := range 3 {
		for o := range litmusObjects {
			l.do(n, order{Op: litmusLook, Object: int64(o), To: litmusBytes})
		}
	}
}

const (
	mergeValues   = 5000
	mergeElements = 6
	mergeRounds   = 12
)

// merged is a program without races, which every element makes anew from the same seed: who owns which
// values in a round, and what they store there.
func merged(rng *rand.Rand, values []int32) (owner []int) {
	owner = make([]int, mergeValues)
	at := 0
	for at < mergeValues {
		who, n := rng.IntN(mergeElements+1), 1+rng.IntN(200) // one more: nobody's
		for ; n > 0 && at < mergeValues; n-- {
			if owner[at] = who; who < mergeElements {
				values[at] = rng.Int32()
			}
			at++
		}
	}
	return owner
}

func init() {
	// Each element stores what is its own, puts ranges that overlap with the others', meets them, gets,
	// and must see what all have stored.
	scenarios["merge"] = func(ctx context.Context, e *ivm.Element) error {
		s, err := ivm.Map[int32](ctx, e, "values")
		if err != nil {
			return err
		}
		seed, _ := strconv.ParseUint(os.Getenv("MUSTER_IVM_SEED"), 10, 64)
		me := int(e.ID()) - 1
		program, own := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, uint64(e.ID())))
		want := make([]int32, mergeValues)
		for round := range mergeRounds {
			owner := merged(program, want)
			for from := 0; from < mergeValues; { // what others have put is got before it is stored to
				to := from + 1
				for to < mergeValues && owner[to] == owner[from] {
					to++
				}
				if owner[from] == me {
					if err := s.Get(ctx, from, to); err != nil {
						return err
					}
					copy(s.Data[from:to], want[from:to])
				}
				from = to
			}
			var puts []<-chan error
			for at := 0; at < mergeValues; { // all is covered, some of it twice
				to := min(mergeValues, at+1+own.IntN(3000))
				puts = append(puts, s.PutAsync(ctx, max(0, at-own.IntN(500)), to))
				at = to
			}
			for _, p := range puts {
				if err := <-p; err != nil {
					return err
				}
			}
			if err := e.Barrier(ctx); err != nil {
				return err
			}
			from := own.IntN(mergeValues)
			to := from + 1 + own.IntN(mergeValues-from)
			if round == mergeRounds-1 {
				from, to = 0, mergeValues
			}
			if err := s.Get(ctx, from, to); err != nil {
				return err
			}
			for i := from; i < to; i++ {
				if s.Data[i] != want[i] {
					return fmt.Errorf("seed %d, round %d: value %d is %d at element %d, not %d", seed, round, i, s.Data[i], e.ID(), want[i])
				}
			}
			if err := e.Barrier(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// Programs without races see one memory, whatever is put and got at the same time.
func TestProgramsWithoutRacesSeeOneMemory(t *testing.T) {
	const seed = 17
	t.Setenv("MUSTER_IVM_SEED", fmt.Sprint(seed))
	ctx, e := begin(t, cluster(t, 3), "merge")
	s := must[*ivm.Slice[int32]](t)(ivm.Malloc[int32](ctx, e, "values", mergeValues))
	for _, id := range must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(ivm.Any), mergeElements)) {
		check(t, e.Wait(ctx, id))
	}
	want := make([]int32, mergeValues)
	program := rand.New(rand.NewPCG(seed, 1))
	for range mergeRounds {
		merged(program, want)
	}
	for i, v := range want {
		if s.Data[i] != v {
			t.Fatalf("seed %d: value %d of the master is %d, not %d", seed, i, s.Data[i], v)
		}
	}
}
