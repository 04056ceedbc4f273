package core

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// script plays lines against a program of three nodes and compares what comes of each.
func TestProgram(t *testing.T) {
	c := func(e ElementID, tag uint64) Caller { return Caller{e, tag} }
	gpu := func(n NodeID, number int) Device { return Device{n, GPU, number} }
	for _, test := range []struct {
		name  string
		steps []any // events, and then what came of the last one
	}{
		{"creation waits for the processes", []any{
			Create{c(0, 1), Device{1, CPU, 0}, 2}, "start 1 on 1, start 2 on 1",
			Started{1}, "", Started{2}, "answer 0/1 [1 2]",
		}},
		{"a process that does not start", []any{
			Create{c(0, 1), Device{1, CPU, 0}, 2}, "start 1 on 1, start 2 on 1",
			StartFailed{1, "no such file"}, "", Started{2}, "fail 0/1 code 7 no such file",
		}},
		{"beyond the greatest number nothing is created", []any{
			SetMax{c(0, 1), 1}, "answer 0/1 []",
			Create{c(0, 2), Device{0, CPU, 0}, 2}, "start 1 on 0", Started{1}, "answer 0/2 [1]",
			Create{c(1, 3), Device{0, CPU, 0}, 1}, "answer 1/3 []",
		}},
		{"any GPU is the one with the fewest elements", []any{
			Create{c(0, 1), gpu(Any, Any), 3}, "start 1 on 1, start 2 on 1, start 3 on 2",
		}},
		{"a GPU that is not there", []any{Create{c(0, 1), gpu(0, 0), 1}, "fail 0/1 code 1 no node has the device that is asked for (node 0, gpu 0; -1 is any)"}},
		{"who wants no more than the latest signal is told all at once", []any{
			Create{c(0, 1), Device{0, CPU, 0}, 1}, "start 1 on 0", Started{1}, "answer 0/1 [1]",
			Signal{c(0, 2)}, "answer 0/2 []", Signal{c(0, 3)}, "answer 0/3 []",
			WaitLatest{c(1, 1), 0}, "answer 1/1 [0]", WaitLatest{c(1, 2), 0}, "", Signal{c(0, 4)}, "answer 0/4 [], answer 1/2 [0]",
			WaitLatest{c(1, 3), 0}, "", Signal{c(0, 5)}, "answer 0/5 [], answer 1/3 [0]", Wait{c(1, 4), 0}, "",
		}},
		{"signals are counted, for each who waits", []any{
			Create{c(0, 1), Device{0, CPU, 0}, 1}, "start 1 on 0", Started{1}, "answer 0/1 [1]",
			Signal{c(1, 1)}, "answer 1/1 []", Signal{c(1, 2)}, "answer 1/2 []",
			Wait{c(0, 2), 1}, "answer 0/2 [1]", Wait{c(0, 3), 1}, "answer 0/3 [1]", Wait{c(0, 4), 1}, "",
			Exit{1}, "", Ended{1, ""}, "answer 0/4 [1]",
			Wait{c(0, 5), 1}, "answer 0/5 [1]",
		}},
		{"WaitAny hears a signal, and an end once", []any{
			Create{c(0, 1), Device{0, CPU, 0}, 1}, "start 1 on 0", Started{1}, "answer 0/1 [1]",
			WaitAny{c(0, 2)}, "", Signal{c(1, 1)}, "answer 1/1 [], answer 0/2 [1]",
			Ended{1, "signal 9"}, "", WaitAny{c(0, 3)}, "fail 0/3 code 4 signal 9 [1]", WaitAny{c(0, 4)}, "fail 0/4 code 10 no other element is left",
		}},
		{"a wait that was given up is told no signal, and one that was answered stays answered", []any{
			Create{c(0, 1), Device{0, CPU, 0}, 1}, "start 1 on 0", Started{1}, "answer 0/1 [1]",
			Wait{c(0, 2), 1}, "", Cancel{c(0, 2)}, "fail 0/2 code 11 the element no longer waits", Signal{c(1, 1)}, "answer 1/1 []",
			Wait{c(0, 3), 1}, "answer 0/3 [1]", Cancel{c(0, 3)}, "", Cancel{c(7, 1)}, "",
		}},
		{"a barrier that was given up", []any{
			Create{c(0, 1), Device{1, CPU, 0}, 2}, "start 1 on 1, start 2 on 1",
			Barrier{c(1, 1)}, "", Cancel{c(1, 1)}, "fail 1/1 code 11 the element no longer waits", Barrier{c(2, 1)}, "",
			Barrier{c(1, 2)}, "answer 1/2 [], answer 2/1 []",
		}},
		{"a barrier, and one who dies before it", []any{
			Create{c(0, 1), Device{1, CPU, 0}, 3}, "start 1 on 1, start 2 on 1, start 3 on 1",
			Barrier{c(1, 1)}, "", Barrier{c(2, 1)}, "", Barrier{c(3, 1)}, "answer 1/1 [], answer 2/1 [], answer 3/1 []",
			Barrier{c(1, 2)}, "", Ended{3, "oom"}, "fail 1/2 code 4 element 3 of the group died: oom",
			Barrier{c(2, 2)}, "fail 2/2 code 4 element 3 of the group died: oom",
			Barrier{c(1, 3)}, "", Barrier{c(2, 3)}, "answer 1/3 [], answer 2/3 []",
		}},
		{"a node is lost", []any{
			Create{c(0, 1), Device{1, CPU, 0}, 1}, "start 1 on 1", Started{1}, "answer 0/1 [1]",
			Malloc{c(1, 1), "A", 8, 77}, "answer 1/1 [] object 77",
			Wait{c(0, 2), 1}, "", Create{c(0, 3), Device{1, CPU, 0}, 1}, "start 2 on 1",
			NodeLost{1, "gone"}, "gone 1, fail 0/2 code 4 node 1 is lost: gone [1], answer 0/3 [2]",
			Lookup{c(0, 4), "A"}, `fail 0/4 code 5 object "A" was on node 1, which is lost: allocate it again`,
			Create{c(0, 5), Device{1, CPU, 0}, 1}, "fail 0/5 code 5 node 1 is lost: create the elements elsewhere",
			Malloc{c(0, 6), "A", 8, 78}, "answer 0/6 [] object 78",
		}},
		{"names", []any{
			Lookup{c(0, 1), "A"}, `fail 0/1 code 2 there is no object "A": one element must allocate it first`,
			Malloc{c(0, 2), "A", 8, 1}, "answer 0/2 [] object 1",
			Malloc{c(0, 3), "A", 8, 2}, `fail 0/3 code 3 there is an object "A" already: free it first, or map it`,
			Free{c(0, 4), "A"}, "answer 0/4 [], drop 1",
			Free{c(0, 5), "A"}, `fail 0/5 code 2 there is no object "A"`,
		}},
		{"killing, and the end", []any{
			Create{c(0, 1), Device{2, CPU, 0}, 2}, "start 1 on 2, start 2 on 2", Started{1}, "", Started{2}, "answer 0/1 [1 2]",
			Wait{c(2, 1), 1}, "", Kill{c(0, 2), []ElementID{1}}, "answer 0/2 [], stop 1, fail 2/1 code 4 element 1 was killed by element 0 [1]",
			Barrier{c(2, 2)}, "answer 2/2 []",
			Wait{c(2, 3), 0}, "", Exit{0}, "", Ended{0, ""}, "fail 2/3 code 8 the program's first element has ended, stop 2, finish",
			Signal{c(2, 4)}, "fail 2/4 code 8 the program is over",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := threeNodes()
			for i := 0; i < len(test.steps); i += 2 {
				if got := said(r.Step(test.steps[i].(Event))); got != test.steps[i+1] {
					t.Fatalf("%#v\ngot  %q\nwant %q", test.steps[i], got, test.steps[i+1])
				}
			}
		})
	}
}

func threeNodes() *Root {
	r := NewRoot(3)
	for n, gpus := range []int{0, 2, 1} {
		r.Step(Joined{NodeID(n), NodeInfo{Cores: 2, GPUs: gpus}})
	}
	return r
}

func said(effects []Effect) string {
	var words []string
	for _, e := range effects {
		switch e := e.(type) {
		case Answer:
			w := fmt.Sprintf("answer %d/%d %v", e.To.Element, e.To.Tag, e.Values)
			if e.Object.Number != 0 {
				w += fmt.Sprint(" object ", e.Object.Number)
			}
			if e.Failure != nil {
				if w = fmt.Sprintf("fail %d/%d code %d %s", e.To.Element, e.To.Tag, e.Failure.Code, e.Failure.Text); len(e.Values) > 0 && e.Failure.Code == Dead {
					w += fmt.Sprint(" ", e.Values)
				}
			}
			words = append(words, w)
		case Start:
			words = append(words, fmt.Sprintf("start %d on %d", e.Element, e.Node))
		case Stop:
			words = append(words, fmt.Sprintf("stop %d", e.Element))
		case Drop:
			words = append(words, fmt.Sprintf("drop %d", e.Object.Number))
		case Gone:
			words = append(words, fmt.Sprintf("gone %d", e.Node))
		case Finish:
			words = append(words, "finish")
		}
	}
	return strings.Join(words, ", ")
}

// Whatever happens in whatever order, each request of an element that lives is answered once, at
// the latest when everybody else has ended or is lost.
func TestNobodyWaitsForEver(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 7))
		r := threeNodes()
		open := map[Caller]bool{}
		alive := map[ElementID]NodeID{0: 0}
		tag := uint64(0)
		var begin func(e Event)
		begin = func(e Event) {
			if by, ok := callerOf(e); ok {
				open[by] = true
			}
			for _, effect := range r.Step(e) {
				switch effect := effect.(type) {
				case Answer:
					if !open[effect.To] {
						t.Fatalf("seed %d: %v was answered twice, or never asked", seed, effect.To)
					}
					delete(open, effect.To)
				case Start:
					alive[effect.Element] = effect.Node
				case Stop:
					delete(alive, effect.Element)
				}
			}
		}
		anyone := func() ElementID {
			var ids []ElementID
			for id := range alive {
				ids = append(ids, id)
			}
			slices.Sort(ids)
			return ids[rng.IntN(len(ids))]
		}
		forget := func(id ElementID) {
			delete(alive, id)
			for by := range open {
				if by.Element == id {
					delete(open, by)
				}
			}
		}
		for range 60 {
			tag++
			by := Caller{anyone(), tag}
			other := ElementID(rng.IntN(len(r.elements) + 1))
			switch rng.IntN(12) {
			case 0, 1:
				begin(Create{by, Device{NodeID(rng.IntN(4) - 1), Kind(rng.IntN(2)), rng.IntN(3) - 1}, 1 + rng.IntN(3)})
			case 2:
				begin(Wait{by, other})
			case 3:
				begin(WaitAny{by})
			case 4:
				begin(Signal{by})
			case 5:
				begin(Barrier{by})
			case 6:
				begin(Started{other})
			case 7:
				if x := r.find(other); x != nil && !x.started && !x.ended {
					forget(other)
					begin(StartFailed{other, "no"})
				}
			case 8:
				if x := r.find(other); x != nil && other != 0 && alive[other] == x.device.Node {
					forget(other)
					begin(Ended{other, "crash"})
				}
			case 9:
				begin(Malloc{by, fmt.Sprint(rng.IntN(3)), 8, tag})
			case 10:
				begin(Lookup{by, fmt.Sprint(rng.IntN(3))})
			case 11:
				if n := NodeID(1 + rng.IntN(2)); rng.IntN(8) == 0 {
					for id, at := range alive {
						if at == n {
							forget(id)
						}
					}
					begin(NodeLost{n, "lost"})
				}
			}
		}
		for id := range ElementID(len(r.elements)) {
			if id != 0 {
				forget(id)
				begin(Ended{id, "the end"})
			}
		}
		for by := range open {
			t.Fatalf("seed %d: %v is not answered", seed, by)
		}
	}
}
