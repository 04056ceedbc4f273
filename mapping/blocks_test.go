package mapping

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// A search that passes over blocks finds the device that one finds which looks at all, whatever has
// happened to them.
func TestBlocksHideNothing(t *testing.T) {
	passed := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 11))
		nodes := 1 + rng.IntN(200)*(1+rng.IntN(2))
		l := &Layout{First: []int32{0}, Bandwidth: 1e9}
		for n := range nodes {
			for range rng.IntN(4) {
				l.NodeOf, l.Speed = append(l.NodeOf, int32(n)), append(l.Speed, 1)
			}
			l.First, l.Cores, l.Owner = append(l.First, int32(len(l.NodeOf))), append(l.Cores, 1), append(l.Owner, -1)
		}
		if l.Devices() == 0 {
			continue
		}
		table := NewTable(l, 1+rng.IntN(3))
		type under struct {
			call Call
			on   int32
		}
		var calls []under
		begin := func(d int32) {
			c := Call{Node: l.NodeOf[d]}
			if rng.IntN(4) == 0 {
				c.Node = rng.Int32N(int32(nodes))
			}
			table.Assign(&c, d)
			calls = append(calls, under{c, d})
		}
		for d := range int32(l.Devices()) { // an idle device would win whatever blocks say
			begin(d)
			if rng.IntN(8) > 0 {
				table.remember(d, time.Duration(1+rng.IntN(9000))*time.Microsecond)
			}
		}
		for range 1000 {
			switch d := rng.Int32N(int32(l.Devices())); {
			case rng.IntN(20) == 0:
				table.Forget(d)
			case len(calls) > 0 && rng.IntN(3) == 0:
				i := rng.IntN(len(calls))
				if on := calls[i].on; table.Queued(on) == 1 {
					begin(on)
				}
				table.Finish(&calls[i].call, calls[i].on, 0, time.Duration(1+rng.IntN(9000))*time.Microsecond)
				calls = append(calls[:i], calls[i+1:]...)
			default:
				begin(d)
			}
			from := rng.Int32N(int32(l.Devices()))
			p := span{from, from + 1 + rng.Int32N(int32(l.Devices())-from)}
			if rng.IntN(2) == 0 {
				p = span{0, int32(l.Devices())}
			}
			w := wire{outbound: rng.Int32N(3), each: time.Duration(rng.IntN(3)) * time.Millisecond, always: time.Duration(rng.IntN(2))}
			ofAll := max(1, table.meanOfAll())
			least := time.Duration(math.MaxInt64)
			if rng.IntN(2) == 0 {
				least = time.Duration(rng.IntN(8)) * time.Millisecond
			}
			got := search{least: least, device: Anywhere}
			want := got
			got.scanBlocks(p, table, &w, ofAll)
			want.look(p, table, &w, ofAll)
			if got != want {
				t.Fatalf("seed %d, devices %v: %v on %d, among all %v on %d", seed, p, got.least, got.device, want.least, want.device)
			}
			if p.to-p.from > 6*blockSize {
				passed++
			}
		}
	}
	if passed < 1000 {
		t.Errorf("%d searches had blocks to pass over", passed)
	}
}
