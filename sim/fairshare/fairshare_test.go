package fairshare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// reference divides the ports by plain progressive filling in floating point,
// all of them at once: another way to the one max-min fair division.
func reference(capacity []int64, flows map[Flow][2]int32) map[Flow]float64 {
	rates := make(map[Flow]float64, len(flows))
	open := make(map[Flow]bool, len(flows))
	for f := range flows {
		open[f] = true
	}
	for len(open) > 0 {
		// How far can all open flows rise together?
		rise := math.Inf(1)
		users := make([]int, len(capacity))
		used := make([]float64, len(capacity))
		for f, ports := range flows {
			for _, p := range ports {
				if p >= 0 {
					used[p] += rates[f]
					if open[f] {
						users[p]++
					}
				}
			}
		}
		for p := range capacity {
			if users[p] > 0 {
				rise = min(rise, (float64(capacity[p])-used[p])/float64(users[p]))
			}
		}
		for f := range open {
			rates[f] += rise
		}
		for p := range capacity {
			if users[p] > 0 && (float64(capacity[p])-used[p])/float64(users[p]) <= rise*(1+1e-12)+1e-9 {
				for f, ports := range flows {
					if ports[0] == int32(p) || ports[1] == int32(p) {
						delete(open, f)
					}
				}
			}
		}
	}
	return rates
}

// TestMaxMinFair adds and removes flows at random, and compares with the
// reference after each settlement. Divisions are rounded down, so that a rate
// may be short by a unit for each flow that was divided before it.
func TestMaxMinFair(t *testing.T) {
	for seed := range uint64(200) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			capacity := make([]int64, 2+rng.IntN(10))
			for i := range capacity {
				capacity[i] = (1 + rng.Int64N(10)) << 30
			}
			n := New(capacity)
			flows := map[Flow][2]int32{}
			var names []Flow
			for range 60 {
				for range 1 + rng.IntN(3) {
					if len(names) > 0 && rng.IntN(5) < 2 {
						i := rng.IntN(len(names))
						n.Remove(names[i])
						delete(flows, names[i])
						names = append(names[:i], names[i+1:]...)
						continue
					}
					a, b := int32(rng.IntN(len(capacity))), int32(rng.IntN(len(capacity)+2)-2)
					if a == b {
						b = -1
					}
					f := n.Add(a, b)
					flows[f] = [2]int32{a, max(b, -1)}
					names = append(names, f)
				}
				before := map[Flow]int64{}
				for f := range flows {
					before[f] = n.Rate(f)
				}
				changed := map[Flow]bool{}
				for _, f := range n.Settle() {
					changed[f] = true
				}
				want := reference(capacity, flows)
				for f := range flows {
					if d := math.Abs(float64(n.Rate(f)) - want[f]); d > 1000 {
						t.Fatalf("flow %d through %v gets %d, not %.1f", f, flows[f], n.Rate(f), want[f])
					}
					if changed[f] != (n.Rate(f) != before[f]) {
						t.Fatalf("flow %d went from %d to %d, told: %v", f, before[f], n.Rate(f), changed[f])
					}
				}
				conserved(t, n, capacity, flows)
			}
		})
	}
}

// conserved checks that no port carries more than it can.
func conserved(t *testing.T, n *Network, capacity []int64, flows map[Flow][2]int32) {
	t.Helper()
	used := make([]int64, len(capacity))
	for f, ports := range flows {
		for _, p := range ports {
			if p >= 0 {
				used[p] += n.Rate(f)
			}
		}
	}
	for p := range used {
		if used[p] > capacity[p] {
			t.Fatalf("port %d carries %d of %d", p, used[p], capacity[p])
		}
	}
}

// TestEqualUsers is equation (2) of the TSUBAME paper: n users of one port get
// an n-th each.
func TestEqualUsers(t *testing.T) {
	n := New([]int64{9000})
	for users := int64(1); users <= 9; users++ {
		f := n.Add(0, -1)
		n.Settle()
		if n.Rate(f) != 9000/users {
			t.Errorf("%d users: %d", users, n.Rate(f))
		}
	}
}

func BenchmarkSettle(b *testing.B) {
	for _, ports := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprint("ports=", ports), func(b *testing.B) {
			rng := rand.New(rand.NewPCG(1, 1))
			capacity := make([]int64, ports)
			for i := range capacity {
				capacity[i] = 10 << 40
			}
			n := New(capacity)
			var flows []Flow
			add := func() Flow { return n.Add(int32(rng.IntN(ports)), int32(rng.IntN(ports))) }
			for range 2 * ports {
				flows = append(flows, add())
			}
			n.Settle()
			for b.Loop() {
				i := rng.IntN(len(flows))
				n.Remove(flows[i])
				flows[i] = add()
				n.Settle()
			}
		})
	}
}
