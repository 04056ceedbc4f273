package prices_test

import (
	"math/rand/v2"
	"testing"

	"muster/policy/prices"
)

// configurations calls do with every set of units that a node can hold.
func configurations(kinds []prices.Kind, n prices.Nodes, do func(units []int32)) {
	units := make([]int32, len(kinds))
	var rec func(i int, cores, gpus int32)
	rec = func(i int, cores, gpus int32) {
		if i == len(kinds) {
			do(units)
			return
		}
		for units[i] = 0; ; units[i]++ {
			rec(i+1, cores, gpus)
			if cores -= kinds[i].Cores; cores < 0 {
				break
			}
			if gpus -= kinds[i].GPUs; gpus < 0 {
				break
			}
		}
		units[i] = 0
	}
	rec(0, n.Cores, n.GPUs)
}

func random(rng *rand.Rand) ([]prices.Kind, []prices.Nodes) {
	var kinds []prices.Kind
	for range 1 + rng.IntN(5) {
		k := prices.Kind{Cores: rng.Int32N(6), GPUs: rng.Int32N(3), Demand: rng.Int64N(1000)}
		if k.Cores+k.GPUs > 0 {
			kinds = append(kinds, k)
		}
	}
	var nodes []prices.Nodes
	for range 1 + rng.IntN(3) {
		nodes = append(nodes, prices.Nodes{Cores: 1 + rng.Int32N(8), GPUs: rng.Int32N(4), Count: 1 + rng.Int64N(20)})
	}
	return kinds, nodes
}

// ratio is what prices prove: the worth of the work over that of all nodes.
func ratio(t *prices.Table, kinds []prices.Kind, nodes []prices.Nodes) float64 {
	work, all := 0.0, 0.0
	for i, k := range kinds {
		work += float64(t.Kind[i]) * float64(k.Demand)
	}
	for i, n := range nodes {
		all += float64(t.Node[i]) * float64(n.Count)
	}
	if all == 0 {
		return 0
	}
	return work / all
}

// TestNoConfigurationIsWorthMore: the worth of a node is exactly that of its best
// configuration, and so is that of any part of a node.
func TestNoConfigurationIsWorthMore(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		kinds, nodes := random(rng)
		table := prices.Solve(kinds, nodes)
		for i, n := range nodes {
			best := int64(0)
			configurations(kinds, n, func(units []int32) {
				sum := int64(0)
				for k, u := range units {
					sum += int64(u) * table.Kind[k]
				}
				best = max(best, sum)
			})
			if best != table.Node[i] {
				t.Fatalf("seed %d: a node of %+v is worth %d, its best configuration %d", seed, n, table.Node[i], best)
			}
			c, g := rng.Int32N(n.Cores+1), rng.Int32N(n.GPUs+1)
			part := int64(0)
			configurations(kinds, prices.Nodes{Cores: c, GPUs: g}, func(units []int32) {
				sum := int64(0)
				for k, u := range units {
					sum += int64(u) * table.Kind[k]
				}
				part = max(part, sum)
			})
			if part != table.Worth(c, g) {
				t.Fatalf("seed %d: %d cores and %d GPUs are worth %d, not %d", seed, c, g, part, table.Worth(c, g))
			}
			sum := int64(0)
			for k, u := range table.Configuration(kinds, n) {
				sum += int64(u) * table.Kind[k]
			}
			if sum != table.Node[i] {
				t.Fatalf("seed %d: the configuration told is worth %d of %d", seed, sum, table.Node[i])
			}
		}
		for i, k := range kinds {
			fits := false
			for _, n := range nodes {
				fits = fits || k.Cores <= n.Cores && k.GPUs <= n.GPUs
			}
			if !fits && table.Kind[i] != 0 {
				t.Fatalf("seed %d: work %+v fits nowhere and costs %d", seed, k, table.Kind[i])
			}
		}
	}
}

// TestNoPricesProveMore: whatever prices are tried, random ones or the found
// ones changed a little, they prove less, or hardly more.
func TestNoPricesProveMore(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 2))
		kinds, nodes := random(rng)
		for i := range kinds { // what fits nowhere would be worth anything
			fits := false
			for _, n := range nodes {
				fits = fits || kinds[i].Cores <= n.Cores && kinds[i].GPUs <= n.GPUs
			}
			if !fits {
				kinds[i].Demand = 0
			}
		}
		table := prices.Solve(kinds, nodes)
		found := ratio(table, kinds, nodes)
		for range 300 {
			try := make([]int64, len(kinds))
			for i := range try {
				switch rng.IntN(3) {
				case 0:
					try[i] = rng.Int64N(13) * prices.Unit / 12
				case 1:
					try[i] = max(0, table.Kind[i]+(rng.Int64N(65)-32)*prices.Unit/256)
				default:
					try[i] = table.Kind[i]
				}
			}
			if r := ratio(prices.With(kinds, nodes, try), kinds, nodes); r > found*1.005+1e-9 {
				t.Fatalf("seed %d: prices %v prove %v, those found (%v) %v; work %+v, nodes %+v", seed, try, r, table.Kind, found, kinds, nodes)
			}
		}
	}
}

// TestWorkloadV: on nodes of 8 cores and 2 GPUs, where GPUs are short, cores
// alone are free, a GPU is half a node, and 8 cores are all of it.
func TestWorkloadV(t *testing.T) {
	kinds := []prices.Kind{{1, 0, 4400}, {4, 0, 550}, {8, 0, 275}, {1, 1, 600}, {2, 1, 600}, {2, 2, 550}, {4, 2, 275}}
	table := prices.Solve(kinds, []prices.Nodes{{8, 2, 128}})
	want := []int64{0, 0, 2, 1, 1, 2, 2}
	for i, w := range want {
		if d := table.Kind[i] - w*table.Node[0]/2; d < -prices.Unit/1000 || d > prices.Unit/1000 {
			t.Errorf("work %+v costs %d of %d, want %d halves", kinds[i], table.Kind[i], table.Node[0], w)
		}
	}
}
