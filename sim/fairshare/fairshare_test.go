package fairshare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// kind is a kind of network.
type kind struct {
	name     string
	capacity func(*rand.Rand) int64
	flow     func(rng *rand.Rand, ports int) [2]int32 // the second is -1 for none
}

var kinds = []kind{
	{"nodes", equal, outAndIn},
	{"unequal nodes", unequal, outAndIn},
	{"any ports", unequal, anyPorts},
	// Nearly all is ties and rests of divisions.
	{"slow nodes", slow, outAndIn},
	{"slow ports", slow, anyPorts},
	{"busy ports", unequal, func(rng *rand.Rand, ports int) [2]int32 {
		// Few ports have most of the flows.
		most := 1 + rng.IntN(ports/2)
		return [2]int32{int32(rng.IntN(most)), int32(ports/2 + rng.IntN(most))}
	}},
}

func equal(*rand.Rand) int64       { return 100_000_000 << 20 }
func unequal(rng *rand.Rand) int64 { return 1 + rng.Int64N(1<<40) }
func slow(rng *rand.Rand) int64    { return rng.Int64N(13) }

// outAndIn goes out of a node and into another: nodes have two ports.
func outAndIn(rng *rand.Rand, ports int) [2]int32 {
	nodes := ports / 2
	return [2]int32{int32(rng.IntN(nodes)), int32(nodes + rng.IntN(nodes))}
}

func anyPorts(rng *rand.Rand, ports int) [2]int32 {
	a, b := int32(rng.IntN(ports)), int32(rng.IntN(ports+2)-2)
	if a == b {
		b = -1
	}
	return [2]int32{a, max(b, -1)}
}

// fill is the division as the package's comment describes it: all rates rise, and of the ports that
// are full first the one with the lowest number stops its flows.
func fill(capacity []int64, flows map[Flow][2]int32) map[Flow]int64 {
	rates := make(map[Flow]int64, len(flows))
	for len(rates) < len(flows) {
		full, rate := -1, int64(math.MaxInt64)
		for p := range capacity {
			left, open := capacity[p], int64(0)
			for f, ports := range flows {
				if ports[0] != int32(p) && ports[1] != int32(p) {
					continue
				}
				if r, stopped := rates[f]; stopped {
					left -= r
				} else {
					open++
				}
			}
			if open > 0 && left/open < rate {
				full, rate = p, left/open
			}
		}
		for f, ports := range flows {
			if _, stopped := rates[f]; !stopped && (ports[0] == int32(full) || ports[1] == int32(full)) {
				rates[f] = rate
			}
		}
	}
	return rates
}

// TestFill adds and removes flows at random, one or a few before each settlement, and compares with
// a division of the whole network from scratch. The results must be equal, because the history must
// leave no trace.
func TestFill(t *testing.T) {
	seeds, steps := uint64(600), 80
	if testing.Short() {
		seeds = 120
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		kind := kinds[seed%uint64(len(kinds))]
		capacity := make([]int64, 2*(1+rng.IntN(8)))
		for p := range capacity {
			capacity[p] = kind.capacity(rng)
		}
		n := New(capacity)
		flows := map[Flow][2]int32{}
		var names []Flow
		most := 1 + rng.IntN(4*len(capacity))
		for range steps {
			before := map[Flow]int64{}
			for f := range flows {
				before[f] = n.Rate(f)
			}
			for range 1 + rng.IntN(3)*rng.IntN(3) {
				if len(names) > 0 && rng.IntN(most) < len(names) {
					i := rng.IntN(len(names))
					n.Remove(names[i])
					delete(flows, names[i])
					delete(before, names[i])
					names = append(names[:i], names[i+1:]...)
					continue
				}
				ports := kind.flow(rng, len(capacity))
				f := n.Add(ports[0], ports[1])
				if _, taken := flows[f]; taken {
					t.Fatalf("seed %d, %s: two flows are named %d", seed, kind.name, f)
				}
				flows[f] = ports
				names = append(names, f)
			}
			told, last := map[Flow]bool{}, Flow(-1)
			for _, f := range n.Settle() {
				if f <= last {
					t.Fatalf("seed %d, %s: flow %d is told after %d", seed, kind.name, f, last)
				}
				told[f], last = true, f
			}
			want := fill(capacity, flows)
			for f, ports := range flows {
				if n.Rate(f) != want[f] {
					t.Fatalf("seed %d, %s: flow %d through %v gets %d, not %d", seed, kind.name, f, ports, n.Rate(f), want[f])
				}
				was, old := before[f]
				if changed := !old || was != want[f]; told[f] != changed {
					t.Fatalf("seed %d, %s: flow %d went from %d to %d, told: %v", seed, kind.name, f, was, want[f], told[f])
				}
				delete(told, f)
			}
			if len(told) > 0 {
				t.Fatalf("seed %d, %s: told of flows that are gone: %v", seed, kind.name, told)
			}
			certify(t, fmt.Sprintf("seed %d, %s", seed, kind.name), n, capacity, flows)
		}
	}
}

// certify checks what max-min fair means: no port carries more than it can, and
// every flow has a port that is full, but for the rest of a division, and on which no
// flow is faster.
func certify(t *testing.T, name string, n *Network, capacity []int64, flows map[Flow][2]int32) {
	t.Helper()
	left := append([]int64{}, capacity...)
	fastest, users := make([]int64, len(capacity)), make([]int64, len(capacity))
	for f, ports := range flows {
		for _, p := range ports {
			if p >= 0 {
				left[p] -= n.Rate(f)
				fastest[p] = max(fastest[p], n.Rate(f))
				users[p]++
			}
		}
	}
	for p := range left {
		if left[p] < 0 {
			t.Fatalf("%s: port %d carries %d more than its %d", name, p, -left[p], capacity[p])
		}
	}
	for f, ports := range flows {
		stopped := false
		for _, p := range ports {
			stopped = stopped || p >= 0 && left[p] < users[p] && n.Rate(f) == fastest[p]
		}
		if !stopped {
			t.Fatalf("%s: flow %d through %v gets %d, and nothing stops it", name, f, ports, n.Rate(f))
		}
	}
}

// TestLarge does the same with a network that is too large for the plain way: the
// rates are certified, and are those of a new network that was never changed.
func TestLarge(t *testing.T) {
	nodes, steps := 1500, 15_000
	if testing.Short() {
		nodes, steps = 300, 3000
	}
	for seed, kind := range kinds {
		rng := rand.New(rand.NewPCG(uint64(seed), 3))
		capacity := make([]int64, 2*nodes)
		for p := range capacity {
			capacity[p] = kind.capacity(rng)
		}
		n := New(capacity)
		flows := map[Flow][2]int32{}
		var names []Flow
		add := func() Flow {
			ports := kind.flow(rng, len(capacity))
			f := n.Add(ports[0], ports[1])
			flows[f] = ports
			return f
		}
		for range 3 * nodes {
			names = append(names, add())
			n.Settle()
		}
		for range steps {
			i := rng.IntN(len(names))
			n.Remove(names[i])
			delete(flows, names[i])
			if rng.IntN(2) == 0 {
				n.Settle()
			}
			names[i] = add()
			n.Settle()
		}
		certify(t, kind.name, n, capacity, flows)
		fresh := New(capacity)
		again := map[Flow]Flow{}
		for _, i := range rng.Perm(len(names)) {
			ports := flows[names[i]]
			again[names[i]] = fresh.Add(ports[0], ports[1])
		}
		fresh.Settle()
		for _, f := range names {
			if got, want := n.Rate(f), fresh.Rate(again[f]); got != want {
				t.Fatalf("%s: flow %d through %v gets %d, %d in a new network", kind.name, f, flows[f], got, want)
			}
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

// TestOnePortTwice has a flow whose two ports are the same: it counts once.
func TestOnePortTwice(t *testing.T) {
	n := New([]int64{9000})
	f, g := n.Add(0, 0), n.Add(0, -1)
	n.Settle()
	if n.Rate(f) != 4500 || n.Rate(g) != 4500 {
		t.Errorf("%d and %d", n.Rate(f), n.Rate(g))
	}
	n.Remove(f)
	if changed := n.Settle(); len(changed) != 1 || changed[0] != g || n.Rate(g) != 9000 {
		t.Errorf("%v changed, the other gets %d", changed, n.Rate(g))
	}
	if changed := n.Settle(); len(changed) != 0 {
		t.Errorf("nothing was done, and %v changed", changed)
	}
}

// TestOrder checks that ports leave the queue slowest first. In another order the rates would be
// right, too, but only after much more work.
func TestOrder(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 4))
		n := New(nil)
		last := step{-1, -1}
		for range 200 {
			if len(n.queue) == 0 || rng.IntN(2) == 0 {
				// As in Settle, no step is pushed that precedes the one popped last.
				s := step{max(last.rate, 0) + rng.Int64N(8), int32(rng.IntN(8))}
				if last.before(s) {
					n.push(s)
				}
				continue
			}
			s := n.pop()
			if s.before(last) {
				t.Fatalf("seed %d: %v comes out after %v", seed, s, last)
			}
			last = s
		}
	}
}

// BenchmarkSettle has nodes with a port out and one in: a flow goes, the rates are
// settled, another comes, they are settled again.
func BenchmarkSettle(b *testing.B) {
	for _, c := range []struct {
		nodes, flows int
		capacity     func(*rand.Rand) int64
	}{
		{24, 20, equal}, {24, 60, equal}, {24, 60, unequal},
		{1000, 3000, equal}, {10_000, 10_000, equal}, {10_000, 30_000, equal}, {10_000, 30_000, unequal},
	} {
		name := fmt.Sprintf("nodes=%d/flows=%d", c.nodes, c.flows)
		rng := rand.New(rand.NewPCG(1, 1))
		capacity := make([]int64, 2*c.nodes)
		for p := range capacity {
			capacity[p] = c.capacity(rng)
		}
		if capacity[0] != capacity[1] {
			name += "/unequal"
		}
		b.Run(name, func(b *testing.B) {
			n := New(capacity)
			add := func() Flow {
				ports := outAndIn(rng, len(capacity))
				return n.Add(ports[0], ports[1])
			}
			flows := make([]Flow, c.flows)
			for i := range flows {
				flows[i] = add()
			}
			n.Settle()
			changed := 0
			for b.Loop() {
				i := rng.IntN(len(flows))
				n.Remove(flows[i])
				changed += len(n.Settle())
				flows[i] = add()
				changed += len(n.Settle())
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/settle")
			b.ReportMetric(float64(changed)/float64(2*b.N), "changed/settle")
		})
	}
}

// BenchmarkAll divides a whole network, in which one fast port has a flow from every other port,
// and each of these its own capacity.
func BenchmarkAll(b *testing.B) {
	const ports = 10_000
	rng := rand.New(rand.NewPCG(1, 1))
	capacity := make([]int64, ports+1)
	for p := range ports {
		capacity[p] = unequal(rng)
	}
	capacity[ports] = ports << 40
	for b.Loop() {
		n := New(capacity)
		for p := range int32(ports) {
			n.Add(p, ports)
		}
		n.Settle()
	}
}
