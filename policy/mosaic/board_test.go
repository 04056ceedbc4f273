package mosaic

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	needs "muster/internal/need"
	"muster/policy/prices"
)

// node is what is free of one node, for the slow versions below.
type node struct {
	cores, gpus int32
	memory      int64
}

func unfold(segs []seg) []node {
	var out []node
	for _, s := range segs {
		for int32(len(out)) < s.to {
			out = append(out, node{s.cores, s.gpus, s.memory})
		}
	}
	return out
}

var testKinds = []prices.Kind{{Cores: 1}, {Cores: 4}, {Cores: 8}, {Cores: 1, GPUs: 1}, {Cores: 2, GPUs: 2}}

func testWorth() *prices.Table {
	return prices.With(testKinds, []prices.Nodes{{Cores: 8, GPUs: 2, Count: 1}}, []int64{3, 14, 100, 50, 100})
}

// randomBoard takes random pieces from idle nodes.
func randomBoard(rng *rand.Rand, nodes int32) (*board, []piece) {
	b := &board{segs: []seg{{to: nodes, cores: 8, gpus: 2, memory: 16}}}
	var taken []piece
	for range rng.IntN(12) {
		from := rng.Int32N(nodes)
		p := piece{from, from + 1 + rng.Int32N(nodes-from), rng.Int32N(3), rng.Int32N(2), rng.Int64N(4)}
		free := true
		for _, n := range unfold(b.segs)[p.from:p.to] {
			free = free && n.cores >= p.cores && n.gpus >= p.gpus && n.memory >= p.memory
		}
		if free {
			b.take(&p)
			taken = append(taken, p)
		}
	}
	return b, taken
}

// TestBoardChanges: taking pieces and giving them back node by node comes to
// the same, and equal neighbours are one stretch.
func TestBoardChanges(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 1))
		nodes := 1 + rng.Int32N(40)
		b, taken := randomBoard(rng, nodes)
		want := make([]node, nodes)
		for i := range want {
			want[i] = node{8, 2, 16}
		}
		for _, p := range taken {
			for i := p.from; i < p.to; i++ {
				want[i].cores -= p.cores
				want[i].gpus -= p.gpus
				want[i].memory -= p.memory
			}
		}
		got := unfold(b.segs)
		if len(got) != len(want) {
			t.Fatalf("seed %d: %d nodes of %d", seed, len(got), nodes)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("seed %d: node %d has %+v free, want %+v", seed, i, got[i], want[i])
			}
		}
		for i := 1; i < len(b.segs); i++ {
			if b.segs[i].like(&b.segs[i-1]) || b.segs[i].to <= b.segs[i-1].to {
				t.Fatalf("seed %d: stretches %+v and %+v", seed, b.segs[i-1], b.segs[i])
			}
		}
		rng.Shuffle(len(taken), func(i, j int) { taken[i], taken[j] = taken[j], taken[i] })
		for i := range taken {
			b.give(&taken[i])
		}
		if len(b.segs) != 1 || b.segs[0] != (seg{nodes, 8, 2, 16}) {
			t.Fatalf("seed %d: all given back, and there is %+v", seed, b.segs)
		}
	}
}

func randomTask(rng *rand.Rand, nodes int32) (need, task) {
	n := need{cores: 1 + rng.Int32N(8), gpus: rng.Int32N(3), memory: rng.Int64N(3)}
	t := task{width: 1 + rng.Int32N(nodes), run: time.Duration(1 + rng.IntN(20))}
	switch rng.IntN(4) {
	case 0:
		n = need{cores: 1 + rng.Int32N(2), spread: true, memory: rng.Int64N(3), nodeMemory: rng.Int64N(3)}
		t.width = n.cores * (1 + rng.Int32N(4*nodes))
	case 1:
		n.gpus, n.remote = 0, true
		t.devices = 1 + rng.Int32N(2*nodes)
	}
	return n, t
}

// fitsAt is the slow version of looking at one place: does a block that begins
// at a node do, and what do others lose by it?
func fitsAt(free []node, n *need, t *task, at int) (lost int64, ok bool) {
	worth := testWorth()
	left := t.width
	for i := at; i < len(free) && left > 0; i++ {
		f := free[i]
		take := n.cores
		if n.spread {
			take = f.cores
			for take > 0 && (int64(take)*n.memory+n.nodeMemory > f.memory || take%n.cores != 0) {
				take--
			}
			if take = min(take, left); take == 0 {
				return 0, false
			}
			left -= take
		} else {
			if f.cores < n.cores || f.gpus < n.gpus || f.memory < n.memory {
				return 0, false
			}
			left--
		}
		lost += worth.Worth(f.cores, f.gpus) - worth.Worth(f.cores-take, f.gpus-n.gpus)
	}
	return lost, left == 0
}

// TestFind: a place is found exactly where there is one; it is free, in one
// block, has what was asked for, and for whole nodes nobody loses less elsewhere.
func TestFind(t *testing.T) {
	worth := testWorth()
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		nodes := 1 + rng.Int32N(30)
		b, _ := randomBoard(rng, nodes)
		n, k := randomTask(rng, nodes)
		free := unfold(b.segs)
		devices, exists, least := int32(0), false, int64(1<<62)
		for i := range free {
			devices += free[i].gpus
			if lost, ok := fitsAt(free, &n, &k, i); ok {
				exists, least = true, min(least, lost)
			}
		}
		exists = exists && devices >= k.devices
		got := b.find(&n, &k, worth, nil)
		if n.has(b.segs, &k) != exists || (len(got) > 0) != exists {
			t.Fatalf("seed %d: %+v %+v on %+v: exists %v, has %v, found %+v", seed, n, k, b.segs, exists, n.has(b.segs, &k), got)
		}
		checkSplit(t, seed, b, &n, &k)
		if !exists {
			continue
		}
		lost, sum, granted := int64(0), int32(0), int32(0)
		hosts := map[int32]bool{}
		for _, p := range got {
			for i := p.from; i < p.to; i++ {
				f := &free[i]
				if p.cores > f.cores || p.gpus > f.gpus || p.memory > f.memory {
					t.Fatalf("seed %d: piece %+v is not free", seed, p)
				}
				if p.cores > 0 {
					lost += worth.Worth(f.cores, f.gpus) - worth.Worth(f.cores-p.cores, f.gpus-p.gpus)
					hosts[i] = true
					sum += p.cores
				} else {
					granted += p.gpus
				}
				f.cores -= p.cores
				f.gpus -= p.gpus
				f.memory -= p.memory
			}
		}
		from, to := block(got)
		if int(to-from) != len(hosts) {
			t.Fatalf("seed %d: %d hosts between %d and %d", seed, len(hosts), from, to)
		}
		if n.spread && sum != k.width || !n.spread && int32(len(hosts)) != k.width || granted != k.devices {
			t.Fatalf("seed %d: asked for %+v %+v, found %+v", seed, n, k, got)
		}
		if !n.spread && lost != least {
			t.Fatalf("seed %d: others lose %d by %+v, they could lose %d", seed, lost, got, least)
		}
	}
}

// checkSplit: in several blocks a task fits exactly where all nodes together have
// enough, and one block is one block.
func checkSplit(t *testing.T, seed uint64, b *board, n *need, k *task) {
	t.Helper()
	free := unfold(b.segs)
	sum, devices := int32(0), int32(0)
	one := task{width: 1}
	for i, f := range free {
		devices += f.gpus
		if n.spread {
			for c := f.cores; c > 0; c-- {
				if c%n.cores == 0 && int64(c)*n.memory+n.nodeMemory <= f.memory {
					sum += c
					break
				}
			}
		} else if _, ok := fitsAt(free[i:i+1], n, &one, 0); ok {
			sum++
		}
	}
	exists := sum >= k.width && devices >= k.devices
	got := b.findSplit(n, k, nil)
	if n.hasSplit(b.segs, k) != exists || (len(got) > 0) != exists {
		t.Fatalf("seed %d: %+v %+v on %+v in several blocks: exists %v, found %+v", seed, n, k, b.segs, exists, got)
	}
	hosts, cores, granted := int32(0), int32(0), int32(0)
	for _, p := range got {
		for i := p.from; i < p.to; i++ {
			f := &free[i]
			if p.cores > f.cores || p.gpus > f.gpus || p.memory > f.memory {
				t.Fatalf("seed %d: piece %+v is not free", seed, p)
			}
			f.cores -= p.cores
			f.gpus -= p.gpus
			f.memory -= p.memory
			if p.cores > 0 {
				hosts++
				cores += p.cores
			} else {
				granted += p.gpus
			}
		}
	}
	if exists && (n.spread && cores != k.width || !n.spread && hosts != k.width || granted != k.devices) {
		t.Fatalf("seed %d: asked for %+v %+v, found %+v", seed, n, k, got)
	}
}

// TestTimelineInsert: tasks get the earliest start that a search of every instant
// finds, and what they are given is free then; taking them out again leaves
// nothing behind.
func TestTimelineInsert(t *testing.T) {
	worth := testWorth()
	cases := uint64(needs.Rounds(80, 200))
	for seed := range cases {
		rng := rand.New(rand.NewPCG(seed, 3))
		nodes := 1 + rng.Int32N(12)
		const horizon = 400
		// free[t] is what is free at each instant.
		free := make([][]node, horizon)
		for i := range free {
			free[i] = make([]node, nodes)
			for k := range free[i] {
				free[i][k] = node{8, 2, 16}
			}
		}
		var l timeline
		l.reset(0, []seg{{to: nodes, cores: 8, gpus: 2, memory: 16}})
		type held struct {
			pieces []piece
			from   time.Duration
			run    time.Duration
		}
		var all []held
		kinds := map[need]int32{}
		for range 20 {
			n, k := randomTask(rng, nodes)
			if _, known := kinds[n]; !known {
				kinds[n] = int32(len(kinds))
			}
			k.kind = kinds[n]
			want := time.Duration(-1)
			for at := time.Duration(0); at+k.run < horizon && want < 0; at++ {
				low := make([]node, nodes)
				copy(low, free[at])
				for u := at; u < at+k.run; u++ {
					for i := range low {
						low[i] = node{min(low[i].cores, free[u][i].cores), min(low[i].gpus, free[u][i].gpus), min(low[i].memory, free[u][i].memory)}
					}
				}
				devices := int32(0)
				for i := range low {
					devices += low[i].gpus
				}
				for i := range low {
					if _, ok := fitsAt(low, &n, &k, i); ok && devices >= k.devices {
						want = at
					}
				}
			}
			got, pieces := l.insert(&n, &k, worth, nil)
			if got != want {
				t.Fatalf("seed %d: %+v %+v starts at %v, could at %v", seed, n, k, got, want)
			}
			if got < 0 {
				continue
			}
			all = append(all, held{pieces, got, k.run})
			for u := got; u < got+k.run; u++ {
				for _, p := range pieces {
					for i := p.from; i < p.to; i++ {
						f := &free[u][i]
						if f.cores -= p.cores; f.cores < 0 {
							t.Fatalf("seed %d: cores given twice", seed)
						}
						if f.gpus -= p.gpus; f.gpus < 0 {
							t.Fatalf("seed %d: devices given twice", seed)
						}
						if f.memory -= p.memory; f.memory < 0 {
							t.Fatalf("seed %d: memory given twice", seed)
						}
					}
				}
			}
		}
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		for _, h := range all {
			l.free(h.pieces, h.from, h.from+h.run)
		}
		if len(l.at) != 1 {
			t.Fatalf("seed %d: all is free, and there are points at %v", seed, l.at)
		}
	}
}

// TestCandidates: what is put out of the question is part of no place, so that
// the same one is found without it.
func TestCandidates(t *testing.T) {
	worth := testWorth()
	left, none := 0, 0
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 5))
		nodes := 1 + rng.Int32N(40)
		early, _ := randomBoard(rng, nodes)
		late, _ := randomBoard(rng, nodes)
		n, task := randomTask(rng, nodes)
		if n.remote {
			continue
		}
		all := board{segs: narrow(nil, early.segs, late.segs)}
		want := all.find(&n, &task, worth, nil)

		var some board
		some.segs, _ = n.candidates(slices.Clone(early.segs), task.width)
		narrowed := narrow(nil, some.segs, late.segs)
		if end := narrowed[len(narrowed)-1].to; end != nodes {
			t.Fatalf("seed %d: %d nodes of %d are left", seed, end, nodes)
		}
		var fits bool
		some.segs, fits = n.candidates(narrowed, task.width)
		if fits != n.has(all.segs, &task) {
			t.Fatalf("seed %d: fits %v among the candidates, %v among all of %+v", seed, fits, !fits, all.segs)
		}
		if got := some.find(&n, &task, worth, nil); !slices.Equal(got, want) {
			t.Fatalf("seed %d: found %+v among the candidates, %+v among all of %+v", seed, got, want, all.segs)
		}
		if fits {
			left++
		} else {
			none++
		}
	}
	if left < 100 || none < 100 {
		t.Fatalf("%d tasks fit and %d do not: too few of one", left, none)
	}
}

// TestAlone: the only task that waits gets the place that a whole search gives it.
func TestAlone(t *testing.T) {
	const now = 100
	fits := 0
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 6))
		nodes := 1 + rng.Int32N(40)
		b, taken := randomBoard(rng, nodes)
		n, one := randomTask(rng, nodes)
		one.first, one.free = rng.IntN(4) == 0, rng.IntN(2) == 0
		if whole := (board{segs: []seg{{nodes, 8, 2, 16}}}); !n.has(whole.segs, &one) {
			continue
		}
		p := &problem{needs: []need{n}, tasks: []task{one}, worth: testWorth(), balance: 50, patience: rng.Int64N(3) - 1, meanRun: one.run}
		p.now.reset(now, b.segs)
		at := time.Duration(now)
		for i := range taken {
			at += time.Duration(1 + rng.IntN(10)) // what runs ends later than now
			p.now.release(at, taken[i:i+1])
		}
		quick, slow := searcher{problem: p, b: *b}, searcher{problem: p}
		quickRanks, slowRanks := []int{-1}, []int{-1}
		found := quick.alone(quickRanks, now)
		slow.solve(slowRanks, 0, rng)
		if !found { // the search goes on: later, or in several blocks
			continue
		}
		fits++
		if slow.best.start[0] != now || !slices.Equal(quick.best.pieces[0], slow.best.pieces[0]) || quickRanks[0] != slowRanks[0] {
			t.Fatalf("seed %d: %+v of rank %d now, and the search says %+v of rank %d at %d",
				seed, quick.best.pieces[0], quickRanks[0], slow.best.pieces[0], slowRanks[0], slow.best.start[0])
		}
	}
	if fits < 200 {
		t.Fatalf("%d tasks fit: too few", fits)
	}
}
