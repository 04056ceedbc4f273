package ivm_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"muster/ivm"
)

const vector = 5000

func init() {
	// Listing 5-1: each child adds its half. The ranges of its puts are longer than that, as printed.
	scenarios["vectoradd"] = func(ctx context.Context, e *ivm.Element) error {
		a, err := ivm.Map[int32](ctx, e, "VECA")
		if err != nil {
			return err
		}
		b, err := ivm.Map[int32](ctx, e, "VECB")
		if err != nil {
			return err
		}
		c, err := ivm.Map[int32](ctx, e, "VECC")
		if err != nil {
			return err
		}
		start := int(e.ID()-1) * vector / 2
		for i := start; i < start+vector/2; i++ {
			c.Data[i] = a.Data[i] + b.Data[i]
		}
		if err := c.Put(ctx, start, len(c.Data)); err != nil {
			return err
		}
		return e.Signal(ctx)
	}
	scenarios["idle"] = func(ctx context.Context, e *ivm.Element) error {
		if err := e.Signal(ctx); err != nil {
			return err
		}
		return e.Wait(ctx, 0) // the first element ends the program
	}
	scenarios["signals when asked"] = func(ctx context.Context, e *ivm.Element) error {
		asked, err := ivm.Map[int64](ctx, e, "asked")
		if err != nil {
			return err
		}
		for signals := false; ; {
			if err := asked.Get(ctx, 0, 1); err != nil {
				return err
			}
			if asked.Data[0] == 1 == signals { // it signals once when it is there, and once when asked
				if err := e.Signal(ctx); err != nil {
					return err
				}
				signals = true
			}
			if err := e.Wait(ctx, 0); err != nil {
				return err
			}
		}
	}
	scenarios["crash"] = func(ctx context.Context, e *ivm.Element) error {
		os.Exit(3)
		return nil
	}
	scenarios["return"] = func(ctx context.Context, e *ivm.Element) error { return nil }
	scenarios["ends"] = func(ctx context.Context, e *ivm.Element) error {
		fmt.Printf("element %d of group %d on node %d\n", e.ID(), e.Group(), e.Node())
		return nil
	}
	scenarios["barrier"] = func(ctx context.Context, e *ivm.Element) error {
		n, err := ivm.Map[int64](ctx, e, "arrived")
		if err != nil {
			return err
		}
		n.Data[e.ID()] = 1
		if err := n.Put(ctx, int(e.ID()), int(e.ID())+1); err != nil {
			return err
		}
		if err := e.Barrier(ctx); err != nil {
			return err
		}
		if err := n.Get(ctx, 0, len(n.Data)); err != nil {
			return err
		}
		for i := 1; i < len(n.Data); i++ {
			if n.Data[i] != 1 {
				return fmt.Errorf("element %d passed the barrier before element %d came", e.ID(), i)
			}
		}
		return nil
	}
	scenarios["barrierdies"] = func(ctx context.Context, e *ivm.Element) error {
		if e.ID() == 1 {
			os.Exit(9)
		}
		if err := e.Barrier(ctx); !errors.Is(err, ivm.ErrDead) {
			return fmt.Errorf("the barrier said %v", err)
		}
		return nil
	}
}

func TestListing51VectorAddition(t *testing.T) {
	ctx, e := begin(t, cluster(t, 2), "vectoradd")
	a := must[*ivm.Slice[int32]](t)(ivm.Malloc[int32](ctx, e, "VECA", vector))
	b := must[*ivm.Slice[int32]](t)(ivm.Malloc[int32](ctx, e, "VECB", vector))
	c := must[*ivm.Slice[int32]](t)(ivm.Malloc[int32](ctx, e, "VECC", vector))
	for i := range vector {
		a.Data[i], b.Data[i] = int32(i), int32(3*i)
	}
	here := must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(0), 1))
	there := must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(1), 1))
	check(t, e.Wait(ctx, here[0]))
	check(t, e.Wait(ctx, there[0]))
	for i, v := range c.Data {
		if v != int32(4*i) {
			t.Fatalf("value %d is %d", i, v)
		}
	}
}

func TestObjectsAndTheirNames(t *testing.T) {
	ctx, e := begin(t, cluster(t, 1), "")
	if _, err := ivm.Map[int32](ctx, e, "A"); !errors.Is(err, ivm.ErrNoObject) {
		t.Errorf("mapping what is not there: %v", err)
	}
	a := must[*ivm.Slice[int32]](t)(ivm.Malloc[int32](ctx, e, "A", 10))
	if _, err := ivm.Malloc[int32](ctx, e, "A", 10); !errors.Is(err, ivm.ErrTaken) {
		t.Errorf("allocating twice: %v", err)
	}
	again := must[*ivm.Slice[int32]](t)(ivm.MapSubset[int32](ctx, e, "A", 2, 3))
	if a.Data[3] = 7; again.Data[1] != 7 || len(again.Data) != 3 {
		t.Error("a subset is another memory")
	}
	if _, err := ivm.MapSubset[int32](ctx, e, "A", 10, 1); err == nil {
		t.Error("a subset outside was mapped")
	}
	if _, err := ivm.Malloc[*int32](ctx, e, "P", 10); err == nil {
		t.Error("pointers were shared")
	}
	if _, err := ivm.Malloc[int64](ctx, e, "huge", 1<<40); !errors.Is(err, ivm.ErrNoMemory) {
		t.Errorf("more than there is: %v", err)
	}
	check(t, e.Free(ctx, "A"))
	if err := e.Free(ctx, "A"); !errors.Is(err, ivm.ErrNoObject) {
		t.Errorf("freeing twice: %v", err)
	}
	if a.Data[0] = 1; a.Data[3] != 7 {
		t.Error("memory that is mapped must stay")
	}
	must[*ivm.Slice[int64]](t)(ivm.Malloc[int64](ctx, e, "A", 3))
	check(t, e.Unmap("A"))
}

func TestElementsAreToldOfEachOthersEnd(t *testing.T) {
	for _, node := range []int{0, 1} {
		for _, c := range []struct {
			scenario string
			want     error
		}{{"crash", ivm.ErrDead}, {"return", nil}} {
			t.Run(fmt.Sprint(c.scenario, " on node ", node), func(t *testing.T) {
				ctx, e := begin(t, cluster(t, 2), c.scenario)
				ids := must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(node), 1))
				if err := e.Wait(ctx, ids[0]); !errors.Is(err, c.want) {
					t.Errorf("Wait says %v", err)
				}
			})
		}
	}
}

// Waits that were given up, more of them than are served at a time, are told nothing: the signal is
// for the next one.
func TestWaitsThatWereGivenUp(t *testing.T) {
	for _, node := range []int{0, 1} {
		ctx, e := begin(t, cluster(t, 2), "signals when asked")
		asked := must[*ivm.Slice[int64]](t)(ivm.Malloc[int64](ctx, e, "asked", 1))
		id := must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(node), 1))[0]
		check(t, e.Wait(ctx, id)) // it is there
		for i := range 100 {
			short, cancel := context.WithCancel(ctx)
			given := make(chan error, 1)
			go func() {
				if i%2 == 0 {
					given <- e.Wait(short, id)
					return
				}
				_, err := e.WaitAny(short)
				given <- err
			}()
			if i%3 > 0 { // else it may be given up before it was asked for
				check(t, e.Signal(ctx))
			}
			cancel()
			if err := <-given; !errors.Is(err, context.Canceled) {
				t.Fatalf("wait %d, given up, says %v", i, err)
			}
		}
		asked.Data[0] = 1
		check(t, asked.Put(ctx, 0, 1))
		check(t, e.Signal(ctx))
		check(t, e.Wait(ctx, id))
	}
}

// Waits that are given up while more of them wait than are served at a time all end, and the element
// is served again.
func TestManyWaitsThatWereGivenUp(t *testing.T) {
	ctx, e := begin(t, cluster(t, 1), "idle")
	id := must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(0), 1))[0]
	check(t, e.Wait(ctx, id)) // it is there, and signals no more
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	const waits = 200
	given, asked := make(chan error), make(chan struct{}, waits)
	for range waits {
		go func() { given <- e.Wait(lookedAt{short, asked}, id) }()
	}
	for range waits {
		<-asked
	}
	cancel()
	for i := range waits {
		if err := <-given; !errors.Is(err, context.Canceled) {
			t.Fatalf("the end of wait %d says %v", i, err)
		}
	}
	check(t, e.Signal(ctx))
}

// lookedAt is a context that tells when its end is waited for.
type lookedAt struct {
	context.Context
	told chan<- struct{}
}

func (l lookedAt) Done() <-chan struct{} {
	l.told <- struct{}{}
	return l.Context.Done()
}

// A copy of an object has another one, to compare with: both count.
func TestObjectsCountWithWhatIsKeptBesideThem(t *testing.T) {
	ctx, e := begin(t, cluster(t, 1), "")
	if _, err := ivm.Malloc[byte](ctx, e, "much", 5<<29); !errors.Is(err, ivm.ErrNoMemory) {
		t.Errorf("2.5 GiB and as much to compare with, of 4 GiB: %v", err)
	}
	for range 3 { // what is refused is not given back
		if _, err := ivm.Malloc[byte](ctx, e, "too much", 1<<47); !errors.Is(err, ivm.ErrNoMemory) {
			t.Errorf("128 TiB: %v", err)
		}
	}
	if _, err := ivm.Malloc[byte](ctx, e, "much", 5<<29); !errors.Is(err, ivm.ErrNoMemory) {
		t.Errorf("2.5 GiB after that: %v", err)
	}
	must[*ivm.Slice[byte]](t)(ivm.Malloc[byte](ctx, e, "less", 3<<29))
}

func TestKillAndMaximum(t *testing.T) {
	ctx, e := begin(t, cluster(t, 2), "idle")
	check(t, e.SetMaxPEsID(ctx, 3))
	ids := must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(ivm.Any), 5))
	if len(ids) != 3 {
		t.Fatalf("%d elements were created, the greatest number is 3", len(ids))
	}
	if more := must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(0), 1)); len(more) != 0 {
		t.Errorf("element %d was created beyond the greatest number", more)
	}
	for _, id := range ids {
		check(t, e.Wait(ctx, id))
	}
	check(t, e.KillPEs(ctx, ids...))
	for _, id := range ids {
		if err := e.Wait(ctx, id); !errors.Is(err, ivm.ErrDead) {
			t.Errorf("waiting for element %d that was killed: %v", id, err)
		}
	}
	if err := e.Wait(ctx, 77); !errors.Is(err, ivm.ErrNoElement) {
		t.Errorf("waiting for one that never was: %v", err)
	}
	if _, err := e.CreatePEs(ctx, ivm.CPU(9), 1); !errors.Is(err, ivm.ErrInvalid) {
		t.Errorf("on a node that is not there: %v", err)
	}
}

func TestBarrierOfAGroup(t *testing.T) {
	ctx, e := begin(t, cluster(t, 3), "barrier")
	must[*ivm.Slice[int64]](t)(ivm.Malloc[int64](ctx, e, "arrived", 7))
	for _, id := range must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(ivm.Any), 6)) {
		check(t, e.Wait(ctx, id))
	}
}

func TestBarrierOfWhichOneDies(t *testing.T) {
	ctx, e := begin(t, cluster(t, 2), "barrierdies")
	for i, id := range must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(1), 3)) {
		if err := e.Wait(ctx, id); (err != nil) != (i == 0) {
			t.Errorf("element %d: %v", id, err)
		}
	}
}

func TestALostNodeIsAnErrorAndTheProgramGoesOn(t *testing.T) {
	nodes := cluster(t, 3)
	ctx, e := begin(t, nodes, "idle")
	there := must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(1), 2))
	for _, id := range there {
		check(t, e.Wait(ctx, id))
	}
	told := make(chan error, 1)
	go func() { told <- e.Wait(ctx, there[0]) }()
	nodes[1].die()
	if err := <-told; !errors.Is(err, ivm.ErrDead) {
		t.Errorf("whoever waited was told %v", err)
	}
	if err := e.Wait(ctx, there[1]); !errors.Is(err, ivm.ErrDead) {
		t.Errorf("whoever waits now is told %v", err)
	}
	if _, err := e.CreatePEs(ctx, ivm.CPU(1), 1); !errors.Is(err, ivm.ErrLost) {
		t.Errorf("creating there: %v", err)
	}
	more := must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(2), 1))
	check(t, e.Wait(ctx, more[0]))
}

func TestALostRootIsAnErrorEverywhere(t *testing.T) {
	nodes := cluster(t, 2)
	ctx, e := begin(t, nodes, "idle")
	ids := must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(1), 1))
	check(t, e.Wait(ctx, ids[0]))
	told := make(chan error, 1)
	go func() { told <- e.Wait(ctx, ids[0]) }()
	nodes[0].die()
	if err := <-told; !errors.Is(err, ivm.ErrOver) {
		t.Errorf("the first element was told %v", err)
	}
	if _, err := ivm.Malloc[int32](ctx, e, "A", 1); !errors.Is(err, ivm.ErrOver) {
		t.Errorf("a later call: %v", err)
	}
}

// Whoever gives up a wait can still exit.
func TestExitDoesNotWaitForWhatWasGivenUp(t *testing.T) {
	ctx, e := begin(t, cluster(t, 1), "idle")
	ids := must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(0), 1))
	check(t, e.Wait(ctx, ids[0]))
	gone, cancel := context.WithCancel(ctx)
	cancel()
	if err := e.Wait(gone, ids[0]); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	check(t, e.Exit())
}

// What elements on other nodes print last comes out before the first element's Exit returns.
func TestOutputOfOtherNodes(t *testing.T) {
	for range 2 {
		r, w, err := os.Pipe()
		check(t, err)
		stdout := os.Stdout
		os.Stdout = w
		ctx, e := begin(t, cluster(t, 2), "ends")
		os.Stdout = stdout
		for _, id := range must[[]ivm.ID](t)(e.CreatePEs(ctx, ivm.CPU(1), 2)) {
			check(t, e.Wait(ctx, id))
		}
		check(t, e.Exit())
		w.Close()
		text := make([]byte, 4096)
		n := 0
		for {
			more, err := r.Read(text[n:])
			if n += more; err != nil {
				break
			}
		}
		r.Close()
		for _, want := range []string{"element 1 of group 1 on node 1\n", "element 2 of group 1 on node 1\n"} {
			if !strings.Contains(string(text[:n]), want) {
				t.Errorf("%q is missing in %q", want, text[:n])
			}
		}
	}
}

func TestTheFirstNodeMayBeNamed(t *testing.T) {
	nodes := cluster(t, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	self := must[string](t)(os.Executable())
	e, err := ivm.EnterWith(ctx, ivm.Options{
		Socket: nodes[0].socket.Addr().String(), Nodes: []string{nodes[1].port.Addr().String(), "n0", nodes[0].port.Addr().String()},
		Executable: self, Args: []string{self}, Environment: []string{"A=1"},
	})
	check(t, err)
	there, err := e.Nodes(ctx)
	check(t, err)
	if len(there) != 2 || there[0].Name != "n0" || there[1].Name != "n1" {
		t.Errorf("the nodes are %v", there)
	}
	check(t, e.Exit())
}

func TestARefusalNamesTheNode(t *testing.T) {
	nodes := cluster(t, 1)
	self := must[string](t)(os.Executable())
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	_, err := ivm.EnterWith(ctx, ivm.Options{
		Socket: nodes[0].socket.Addr().String(), Nodes: []string{"127.0.0.1:1"}, Executable: self, Args: []string{self}, Environment: []string{"A=1"},
	})
	if !errors.Is(err, ivm.ErrRefused) && !errors.Is(err, ivm.ErrLost) {
		t.Errorf("a node that is not there: %v", err)
	}
}
