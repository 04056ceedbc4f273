package balance

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Devices of the paper's three hosts, relative to a C2050: K40c, C2075, C2070; four GTX 480; K20c,
// C2050. The numbers are cores times clock.
var hosts = []float64{4.9, 1, 1, 1.3, 1.3, 1.3, 1.3, 3.4, 1}

func sum(v []float64) (s float64) {
	for _, x := range v {
		s += x
	}
	return s
}

// guide plays a Guide in virtual time: noise makes pieces take longer or shorter at random.
func guide(items int, speeds []float64, ask, noise float64, rng *rand.Rand) (end float64, pieces int) {
	return round(NewGuide(items, len(speeds)), items, speeds, make([]float64, len(speeds)), ask, noise, rng)
}

// round has a guide hand out all items once; fixed is what each piece takes whatever its size.
func round(g *Guide, items int, speeds, fixed []float64, ask, noise float64, rng *rand.Rand) (end float64, pieces int) {
	at, took := make([]float64, len(speeds)), make([]float64, len(speeds))
	busy := make([]bool, len(speeds))
	for i := range busy {
		busy[i] = true
	}
	covered := 0
	for {
		next := -1
		for i := range at {
			if busy[i] && (next < 0 || at[i] < at[next]) {
				next = i
			}
		}
		if next < 0 {
			if covered != items {
				panic("items were lost")
			}
			return slices.Max(at), pieces
		}
		from, to, ok := g.Next(next, took[next])
		if busy[next] = ok; !ok {
			continue
		}
		if from != covered {
			panic("a piece does not follow the last")
		}
		covered = to
		pieces++
		took[next] = (fixed[next] + float64(to-from)/speeds[next]) * (1 + noise*(2*rng.Float64()-1))
		at[next] += took[next] + ask
	}
}

// spawn plays DS-LB: whoever is done first takes the next portion.
func spawn(portions int, work float64, speeds []float64, create float64) float64 {
	at := make([]float64, len(speeds))
	for range portions {
		next := slices.Index(at, slices.Min(at))
		at[next] += create + work/float64(portions)/speeds[next]
	}
	return slices.Max(at)
}

// monitor plays OM-LB: elements on one device share it. It returns the time of the last iteration.
func monitor(iterations, most int, threshold, work float64, speeds []float64) float64 {
	var on []int // the device of each element
	for i := range speeds {
		on = append(on, i)
	}
	last := 0.0
	for i := range iterations {
		count := make([]int, len(speeds))
		for _, d := range on {
			count[d]++
		}
		times := make([]float64, len(on))
		for j, d := range on {
			times[j] = work / float64(len(on)) * float64(count[d]) / speeds[d]
		}
		if last = slices.Max(times); i == iterations-1 {
			break
		}
		for _, j := range Grow(times, threshold) {
			if len(on) < most {
				on = append(on, on[j])
			}
		}
	}
	return last
}

func TestGuidedIsWithinFivePercentOfTheSumOfSpeeds(t *testing.T) {
	const seed = 5
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, c := range []struct {
		name  string
		items int
		noise float64
	}{{"many items", 1_000_000, 0}, {"few items", 5000, 0}, {"noise", 100_000, 0.2}} {
		bound := float64(c.items) / sum(hosts)
		end, pieces := guide(c.items, hosts, bound/2000, c.noise, rng)
		if bound/end < 0.95 || pieces > 64*len(hosts) {
			t.Errorf("seed %d, %s: %.3f of what the speeds allow, in %d pieces", seed, c.name, bound/end, pieces)
		}
	}
}

func TestGuidedNeedsNoKnowledgeOfSpeeds(t *testing.T) {
	const seed = 6
	rng := rand.New(rand.NewPCG(seed, 1))
	for range 200 {
		speeds := make([]float64, 1+rng.IntN(20))
		for i := range speeds {
			speeds[i] = 0.1 + 10*rng.Float64()
		}
		items := 20_000 * len(speeds)
		bound := float64(items) / sum(speeds)
		if end, _ := guide(items, speeds, 0, 0, rng); bound/end < 0.9 {
			t.Errorf("seed %d: speeds %.2f: %.3f of what they allow", seed, speeds, bound/end)
		}
	}
}

// Cores beside a GPU must never make it slower, however slow they are, and however coarse the items.
func TestGuidedWithCoresBesideAGPU(t *testing.T) {
	const seed = 7
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, ratio := range []float64{10, 100, 1000} {
		speeds := []float64{ratio}
		for range 16 {
			speeds = append(speeds, 1)
		}
		for _, items := range []int{16_384, 1_000_000} {
			alone, bound := float64(items)/ratio, float64(items)/sum(speeds)
			end, pieces := guide(items, speeds, alone/5000, 0.1, rng)
			if bound/end < 0.9 || end > alone*1.05 {
				t.Errorf("seed %d: GPU %g times a core, %d items: %.3f of what the speeds allow, %.3f of the GPU's time alone, in %d pieces", seed, ratio, items, bound/end, end/alone, pieces)
			}
		}
	}
}

// A GPU whose kernels take the same time whatever their size, until it is full, gets its share in one
// piece; cores beside it make no round longer than the GPU alone, and help where they can.
func TestGuidedKnowsWhatAPieceCosts(t *testing.T) {
	const seed, items = 8, 131_072
	for _, c := range []struct {
		name              string
		gpu, fixed        float64 // items a second, and seconds of a piece
		core, coreFixed   float64
		cores             int
		slower            float64 // what the GPU takes longer while cores work
		helps, notSlower  float64 // of the GPU's time alone
		piecesOfGPUAtMost int
	}{
		{"bodies on an H200", 10e6, 0.021, 2600, 0.0003, 12, 1, 1.02, 1.02, 2},
		{"a tenth by cores", 1e6, 0.01, 9000, 0.0003, 12, 1, 1.02, 1.02, 99},
		{"a third by cores", 1e6, 0.001, 30_000, 0.0003, 16, 1, 0.85, 1.02, 99},
		{"cores that slow the GPU down", 1e6, 0.001, 9000, 0.0003, 12, 1.3, 1.02, 1.02, 99},
	} {
		rng := rand.New(rand.NewPCG(seed, 1))
		g := NewGuide(items, 1+c.cores)
		speeds, fixed := []float64{c.gpu}, []float64{c.fixed}
		for range c.cores {
			speeds, fixed = append(speeds, c.core), append(fixed, c.coreFixed)
		}
		alone := c.fixed + items/c.gpu
		for i := range 20 {
			g.Again()
			now := slices.Clone(speeds)
			if !g.fewer {
				now[0] /= c.slower
			}
			end, pieces := round(g, items, now, fixed, 20e-6, 0.02, rng)
			if i < 4 || g.rounds%retry == 0 { // it learns, or tries again
				continue
			}
			if end > c.notSlower*alone*1.02 || end > c.helps*alone*1.02 {
				t.Errorf("seed %d: %s: round %d takes %.3f of the GPU's time alone, in %d pieces", seed, c.name, i, end/alone, pieces)
			}
			if pieces > c.piecesOfGPUAtMost+8*c.cores {
				t.Errorf("seed %d: %s: round %d has %d pieces", seed, c.name, i, pieces)
			}
		}
	}
}

// One worker gets everything at once: nobody else could correct anything.
func TestGuidedAlone(t *testing.T) {
	g := NewGuide(1000, 1)
	if from, to, ok := g.Next(0, 0); from != 0 || to != 1000 || !ok {
		t.Errorf("from %d to %d, %v", from, to, ok)
	}
}

// The paper's balancers do what it says: more portions balance better, until creating costs more.
func TestTheListingsInVirtualTime(t *testing.T) {
	const work = 1000
	static := work / float64(len(hosts)) / slices.Min(hosts)
	even := spawn(len(hosts), work, hosts, 0)
	if even != static {
		t.Errorf("one portion a device takes %.2f, static division %.2f", even, static)
	}
	balanced := spawn(49, work, hosts, 0.1)
	if static/balanced < 1.5 {
		t.Errorf("49 portions are %.2f times as fast as static division: the paper has 1.5 and more", static/balanced)
	}
	if small := spawn(64, work/100, hosts, 1); small < spawn(9, work/100, hosts, 1) {
		t.Error("small inputs must lose where creating an element costs much")
	}
	if om := monitor(10, 36, 2, work, hosts); static/om < 1.3 {
		t.Errorf("OM-LB is %.2f times as fast as static division: the paper has up to 1.34", static/om)
	}
}

func TestGrowFollowsTheListing(t *testing.T) {
	for _, c := range []struct {
		times []float64
		want  []int
	}{{nil, nil}, {[]float64{1, 1.9, 2, 4}, []int{0, 1}}, {[]float64{3}, []int{0}}, {[]float64{0, 1}, []int{0}}} {
		if got := Grow(c.times, 2); !slices.Equal(got, c.want) {
			t.Errorf("Grow(%v) is %v", c.times, got)
		}
	}
}

func TestShareHasAll(t *testing.T) {
	for items := range 50 {
		for parts := 1; parts < 8; parts++ {
			next := 0
			for p := range parts {
				from, to := Share(items, p, parts)
				if from != next {
					t.Fatalf("%d items in %d parts: part %d begins at %d", items, parts, p, from)
				}
				next = to
			}
			if next != items {
				t.Fatalf("%d items in %d parts end at %d", items, parts, next)
			}
		}
	}
}

// A worker whose clock says nonsense makes the pieces of the others neither tiny nor endless.
func TestGuideWithAWrongClock(t *testing.T) {
	for _, wrong := range []float64{math.NaN(), math.Inf(1), math.Inf(-1), -1, 5e-324, math.MaxFloat64} {
		const items = 1_000_000
		g := NewGuide(items, 3)
		pieces, done := 0, 0
		for busy := true; busy; {
			busy = false
			for worker, seconds := range []float64{wrong, 0.001, 0.002} {
				from, to, ok := g.Next(worker, seconds)
				if !ok {
					continue
				}
				if busy = true; from != done || to <= from || to > items {
					t.Fatalf("%v: after %d items those from %d to %d", wrong, done, from, to)
				}
				if done = to; pieces > 10_000 {
					t.Fatalf("%v: %d items are handed out in %d pieces", wrong, done, pieces)
				}
				pieces++
			}
		}
		if done != items {
			t.Errorf("%v: %d items of %d are handed out", wrong, done, items)
		}
	}
}

// Shares of very many items are those of few, and without parts there are none.
func TestShareOfManyItems(t *testing.T) {
	const items, parts = math.MaxInt64, 1000
	next := 0
	for p := range parts {
		from, to := Share(items, p, parts)
		if from != next || to-from < items/parts || to-from > items/parts+1 {
			t.Fatalf("part %d is from %d to %d", p, from, to)
		}
		next = to
	}
	if next != items {
		t.Errorf("they end at %d", next)
	}
	if from, to := Share(10, 0, 0); from != 0 || to != 0 {
		t.Errorf("from %d to %d of no part", from, to)
	}
}
