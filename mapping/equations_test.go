package mapping

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestEquations1To7 follows AG by hand: 3 nodes of 2 devices (0,1 | 2,3 | 4,5), a link of
// 100 KB/ms. The call sends 10,000 KB, which takes 100 ms alone, and gets back 5,000 KB, 50 ms.
func TestEquations1To7(t *testing.T) {
	call := &Call{Node: 0, Home: 0, In: 10_000_000, Out: 5_000_000}
	for _, test := range []struct {
		name    string
		prepare func(*Table)
		reach   reach
		plus    bool
		want    int32
	}{
		{"all idle: the first local one", func(*Table) {}, reach{}, false, 0},
		{"nothing has run: a local one, with the shorter queue", func(t *Table) { put(t, 0, 0, 3); put(t, 0, 1, 2) }, reach{}, false, 1},
		{"a local idle one", func(t *Table) { put(t, 0, 0, 1); ran(t, 3, time.Second) }, reach{}, false, 1},
		{
			// 0 and 1 wait 1 x 149 ms. Elsewhere 100 x (max(0,0)+1) + 50 x max(1, 0/6) = 150.
			"a local one that waits a little less than data travel", func(t *Table) {
				ran(t, 0, 149*time.Millisecond)
				put(t, 0, 0, 1)
				put(t, 0, 1, 2)
			}, reach{}, false, 0,
		},
		{
			// The same at 150 ms: a tie, which is for the local one.
			"a tie", func(t *Table) { ran(t, 0, 150*time.Millisecond); put(t, 0, 0, 1); put(t, 0, 1, 2) }, reach{}, false, 0,
		},
		{
			// At 151 ms it is the next node's first device.
			"a local one that waits more", func(t *Table) { ran(t, 0, 151*time.Millisecond); put(t, 0, 0, 1); put(t, 0, 1, 2) }, reach{}, false, 2,
		},
		{
			// With the other reading of (6) results take 50 x (0/6 + 1) = 50: the same without traffic.
			"plus without traffic", func(t *Table) { ran(t, 0, 151*time.Millisecond); put(t, 0, 0, 1); put(t, 0, 1, 2) }, reach{}, true, 2,
		},
		{
			// Node 2 has given 2 calls to device 2: I = 2 there, so 100 x 3, and its queue. Devices 4, 5: 100 x 1. Node 2's O is 2, for
			// each of its 2 devices: the sum of (6) is 0+0+2+2 = 4, of 6 devices: 50 x max(1, 4/6) = 50. So 150 for device 4.
			"the calls that come to a node", func(t *Table) {
				ran(t, 0, 151*time.Millisecond)
				put(t, 0, 0, 1)
				put(t, 0, 1, 2)
				put(t, 2, 2, 2)
			}, reach{}, false, 4,
		},
		{
			// The same with the other reading: 50 x (4/6 + 1) = 83: 183 for device 4, more than 151.
			"plus with traffic", func(t *Table) {
				ran(t, 0, 151*time.Millisecond)
				put(t, 0, 0, 1)
				put(t, 0, 1, 2)
				put(t, 2, 2, 2)
			}, reach{}, true, 0,
		},
		{
			// Node 0 has 2 calls at device 5: O = 2, so 100 x 3 + 50 = 350 anywhere else. Locals wait 1 x 349.
			"the calls that left the caller's node", func(t *Table) {
				ran(t, 0, 349*time.Millisecond)
				put(t, 0, 0, 1)
				put(t, 0, 1, 1)
				put(t, 0, 5, 2)
			}, reach{}, false, 0,
		},
		{
			// As before with 351 ms: 2 has 350.
			"and a longer queue", func(t *Table) {
				ran(t, 0, 351*time.Millisecond)
				put(t, 0, 0, 1)
				put(t, 0, 1, 1)
				put(t, 0, 5, 2)
			}, reach{}, false, 2,
		},
		{
			// Node 0 serves 6 calls of node 1: I_l = 6, so (6) sums max(O, 6) = 6 over 4 devices: 24/6 = 4: 50 x 4 = 200, and
			// 100 x 1 there: 300 to node 2. Locals wait at least 3 x 100 = 300.
			"the calls that come to the caller's node", func(t *Table) {
				ran(t, 0, 100*time.Millisecond)
				ran(t, 1, 100*time.Millisecond)
				put(t, 1, 0, 3)
				put(t, 1, 1, 3)
			}, reach{}, false, 0,
		},
		{
			// One more: locals wait 400; I_l = 8, 8 x 4 / 6 = 5.33: 50 x 5.33 = 266.67, and 100: 366.67.
			"and one more each", func(t *Table) {
				ran(t, 0, 100*time.Millisecond)
				ran(t, 1, 100*time.Millisecond)
				put(t, 1, 0, 4)
				put(t, 1, 1, 4)
			}, reach{}, false, 2,
		},
		{
			// Node 0 has a call at each of 3 and 5, node 2 one at 3: O = 2, I = 2 and 1: the busier port has 2 in either case.
			"the busier of two ports", func(t *Table) {
				ran(t, 0, 10*time.Second)
				put(t, 0, 0, 1)
				put(t, 0, 1, 1)
				put(t, 0, 3, 1)
				put(t, 0, 5, 1)
				put(t, 2, 3, 1)
			}, reach{}, false, 2,
		},
		{
			// Device 2 has a call of 1 ns: 150 ms and 1 ns. Device 3 has none.
			"a nanosecond counts", func(t *Table) {
				ran(t, 0, 10*time.Second)
				ran(t, 2, 1)
				put(t, 0, 0, 1)
				put(t, 0, 1, 1)
				put(t, 1, 2, 1)
			}, reach{}, false, 3,
		},
	} {
		table := NewTable(even(3, 2, 1), 10)
		test.prepare(table)
		if got := newGreedy(table.layout, test.reach, ByWindow, network{plus: test.plus}).Map(call, sees(table)); got != test.want {
			t.Errorf("%s: device %d, want %d", test.name, got, test.want)
		}
	}
}

// TestCareForThoseWhoWait: data travel 100 + 50 ms. 6 devices have 3 calls with another before them: with care 4 the
// 100 ms in which a device is held for data count 4 x 3/6 times more: 350 in all.
func TestCareForThoseWhoWait(t *testing.T) {
	call := &Call{Node: 0, Home: 0, In: 10_000_000, Out: 5_000_000}
	for _, test := range []struct {
		care int64
		wait time.Duration // of a call on both local devices, which have 3 and 2
		want int32
	}{{0, 75, 1}, {0, 76, 2}, {4, 175, 1}, {4, 176, 2}} {
		table := NewTable(even(3, 2, 1), 10)
		ran(table, 0, test.wait*time.Millisecond)
		put(table, 0, 0, 3)
		put(table, 0, 1, 2)
		put(table, 2, 5, 1)
		if got := newGreedy(table.layout, reach{}, ByWindow, network{probe: true, care: test.care}).Map(call, sees(table)); got != test.want {
			t.Errorf("care %d, %d ms: device %d, want %d", test.care, test.wait, got, test.want)
		}
		// Who waits elsewhere is known when others tell.
		late := NewTable(table.layout, 10)
		v := &View{Table: late, Local: table}
		if got := newGreedy(table.layout, reach{}, ByWindow, network{probe: true, care: 4}).Map(call, v); (got == 1) != (test.wait <= 75) {
			t.Errorf("%d ms, late: device %d", test.wait, got)
		}
	}
}

// TestResidentDataNeedNotTravel: 9,000 of 10,000 KB are on device 5, so that it takes 10 + 50 ms instead of 100 + 50.
func TestResidentDataNeedNotTravel(t *testing.T) {
	call := &Call{Node: 0, Home: 0, In: 10_000_000, Out: 5_000_000, Resident: []Resident{{5, 9_000_000}}}
	for _, test := range []struct {
		reach reach
		wait  time.Duration // on both local devices
		want  int32
	}{
		{reach{}, 100, 0},
		{reach{locality: true}, 60, 0},
		{reach{locality: true}, 61, 5},
		{reach{}, 151, 2},
		{reach{locality: true}, 151, 5},
		{reach{locality: true, choices: 1}, 61, 5},
		{reach{locality: true, group: 1}, 61, 0}, // it is in no group of node 0
	} {
		table := NewTable(even(3, 2, 1), 10)
		for d := range int32(2) {
			ran(table, d, test.wait*time.Millisecond)
			put(table, 0, d, 1)
		}
		if got := newGreedy(table.layout, test.reach, ByWindow, network{}).Map(call, sees(table)); got != test.want {
			t.Errorf("%+v, %d ms: device %d, want %d", test.reach, test.wait, got, test.want)
		}
		// A device that holds none of it is one like any other.
		none := *call
		none.Resident = []Resident{{5, 0}}
		want := int32(0)
		if test.wait > 150 {
			want = 2
		}
		if got := newGreedy(table.layout, test.reach, ByWindow, network{}).Map(&none, sees(table)); got != want {
			t.Errorf("%+v, %d ms, nothing resident: device %d, want %d", test.reach, test.wait, got, want)
		}
	}
}

// TestEquations8To11 follows AR by hand, on the paper's cluster: M/K = 12/3 = 4, N = 24, B = 100 KB/ms.
func TestEquations8To11(t *testing.T) {
	l := even(24, 3, 6)
	for _, test := range []struct {
		name      string
		tau       time.Duration
		bytes     int64
		m         random
		alpha     float64
		beta      float64
		unbounded bool
	}{
		// alpha = 4/2250; beta = (33,750/2,250)^2 x 24/100 = 225 x 0.24 = 54.
		{"a heavy kernel", 2250 * time.Millisecond, 33_750_000, random{}, 4.0 / 2250, 54, false},
		// alpha = 4/2 = 2, bounded to 1; beta = (1/2)^2 x 0.24 = 0.06, bounded to 1.
		{"a tiny one", 2 * time.Millisecond, 1000, random{}, 1, 1, false},
		{"a tiny one, as the equations say", 2 * time.Millisecond, 1000, random{}, 2, 0.06, true},
		{"fixed weights", 2250 * time.Millisecond, 33_750_000, random{alpha: 0.5, beta: 7}, 0.5, 7, false},
		{"nothing has run", 0, 33_750_000, random{}, 1, 1e12, true},
		{"nothing has run, nothing to send", 0, 0, random{}, 1, 1, true},
	} {
		m := newRandom(l, reach{}, test.m.alpha, test.m.beta, test.unbounded)
		w := m.factors(&Call{Node: 3, In: test.bytes / 3 * 2, Out: test.bytes - test.bytes/3*2})
		if a, b := w.penalty(test.tau), w.bonus(test.tau); math.Abs(a-test.alpha) > 1e-12 || math.Abs(b-test.beta) > 1e-9 {
			t.Errorf("%s: alpha %v, beta %v; want %v, %v", test.name, a, b, test.alpha, test.beta)
		}
	}
}

// TestResidentDataWeigh: of D = 6,000 KB the device holds some; beta = (6000/100)^2 x 0.24 = 864, or fixed.
func TestResidentDataWeigh(t *testing.T) {
	for _, test := range []struct {
		resident int64
		beta     float64
		want     float64
	}{
		{0, 0, 1},
		{3_000_000, 0, 4},        // half of it is left: 2^2
		{4_000_000, 0, 9},        // a third is left; it is all of In
		{9_000_000, 0, 9},        // no more than In counts
		{4_000_000, 5, 5},        // no more than a local device would weigh
		{4_000_000, 0.5, 1},      // and never less than without
		{5_900_000_000, 1e9, 9},  // as above
		{1_000_000, 0, 36. / 25}, // 6/5
	} {
		table := NewTable(even(24, 3, 6), 10)
		ran(table, 70, 100*time.Millisecond)
		c := &Call{In: 4_000_000, Out: 2_000_000, Resident: []Resident{{70, test.resident}}}
		w := newRandom(table.layout, reach{}, 0, test.beta, true).factors(c)
		if got := w.holds(c, 70, table.Mean(70)); math.Abs(got-test.want) > 1e-12 {
			t.Errorf("%d resident, beta %v: %v, want %v", test.resident, test.beta, got, test.want)
		}
	}
	// Where everything is there already it weighs as much as a local device.
	table := NewTable(even(24, 3, 6), 10)
	ran(table, 70, 100*time.Millisecond)
	c := &Call{In: 6_000_000, Resident: []Resident{{70, 6_000_000}}}
	w := newRandom(table.layout, reach{}, 0, 0, false).factors(c)
	if got := w.holds(c, 70, table.Mean(70)); math.Abs(got-864) > 1e-9 {
		t.Errorf("all data resident: %v, want beta, 864", got)
	}
}

// TestSplit: 3 of every 4 processes of application 0 go to the 6 devices of nodes 1 to 3, node by node.
func TestSplit(t *testing.T) {
	l := even(4, 2, 1)
	m := newSplit(l, 3, 4, 0, 1)
	// floor((r+1) x 3/4) > floor(r x 3/4) for r = 1, 2, 3, and again from 4 on.
	want := []int32{0, 2, 4, 6, 0, 3, 5, 7, 0, 2, 4, 6}
	for rank, d := range want {
		if got := m.Map(&Call{Rank: int32(rank), Home: 0}, nil); got != d {
			t.Errorf("rank %d: device %d, want %d", rank, got, d)
		}
	}
	if got := m.Map(&Call{Rank: 1, App: 1, Home: 3}, nil); got != 3 {
		t.Errorf("the other application: device %d", got)
	}
}

// TestSplitOfThePaper: nodes of 3 GPUs and 12 processes. Of the 12 of node 0 every fourth stays; the other 9 have the 6
// GPUs of nodes 1 and 2, so that some have a GPU together.
func TestSplitOfThePaper(t *testing.T) {
	m := newSplit(even(3, 3, 1), 3, 4, 0, 1)
	want := []int32{
		0, 3, 6, 4, // the first GPU of node 1, of node 2, the second of node 1
		1, 7, 5, 8,
		2, 3, 6, 4, // and once more from the first
	}
	for rank, d := range want {
		if got := m.Map(&Call{Rank: int32(rank), Home: int32(rank % 3)}, nil); got != d {
			t.Errorf("rank %d: device %d, want %d", rank, got, d)
		}
	}

	// W4: half of the 72 processes of 6 nodes have 36 of the 54 GPUs of 18 others, each its own, two on each node.
	l := even(24, 3, 6)
	m = newSplit(l, 1, 2, 0, 1)
	users, onNode := map[int32]int{}, map[int32]int{}
	for rank := range int32(72) {
		if d := m.Map(&Call{Rank: rank, Home: rank / 12 * 3}, nil); d >= 18 {
			users[d]++
			onNode[l.NodeOf[d]]++
		}
	}
	for node := int32(6); node < 24; node++ {
		if onNode[node] != 2 || users[3*node] != 1 || users[3*node+1] != 1 {
			t.Errorf("node %d has %d processes, its GPUs %d, %d and %d", node, onNode[node], users[3*node], users[3*node+1], users[3*node+2])
		}
	}
}

// TestOutboundCallsAreForgotten: what the sum of equation 6 costs is up to what is under way now.
func TestOutboundCallsAreForgotten(t *testing.T) {
	l := even(3, 1, 1)
	l.NodeOf, l.Speed, l.First = l.NodeOf[:2], l.Speed[:2], []int32{0, 1, 2, 2} // node 2 has none
	table := NewTable(l, 10)
	put(table, 0, 1, 1000)
	put(table, 2, 1, 1000)
	if got := len(table.outbound); got != 1001 {
		t.Fatalf("1000 calls of node 0 are under way, and %d numbers are kept", got)
	}
	for range 997 {
		table.Finish(&Call{Node: 0}, 1, 0, 1)
	}
	if got := len(table.outbound); got != 4 || table.sumOfBusier(1, 0) != 3 {
		t.Errorf("3 calls of node 0 are under way: %d numbers are kept, the sum is %d", got, table.sumOfBusier(1, 0))
	}
	put(table, 0, 1, 2)
	if got := table.sumOfBusier(1, 0); got != 5 {
		t.Errorf("then 5: the sum is %d", got)
	}
}

// TestBandwidths: 100 KB/ms, 6 GPUs. Node 0 has given away 3 calls, and serves 2; node 1 serves 4, of which 3 are node 0's.
func TestBandwidths(t *testing.T) {
	table := NewTable(even(3, 2, 1), 10)
	put(table, 0, 2, 3)
	put(table, 2, 3, 1)
	put(table, 1, 0, 2)
	v := sees(table)
	for _, test := range []struct {
		what string
		got  float64
		want float64
	}{
		{"0 to 1: max(3, 4) + 1", v.OutboundBandwidth(0, 1), 100e6 / 5},
		{"0 to 2: max(3, 0) + 1", v.OutboundBandwidth(0, 2), 100e6 / 4},
		{"2 to 0: max(1, 2) + 1", v.OutboundBandwidth(2, 0), 100e6 / 3},
		// Over 2 GPUs of node 1 max(2, 2), over 2 of node 2 max(1, 2): 8, of 6 GPUs.
		{"back to 0", v.InboundBandwidth(0, 1, false), 100e6 * 6 / 8},
		{"back to 0, the other reading", v.InboundBandwidth(0, 1, true), 100e6 * 6 / 14},
		// Over 2 GPUs of node 0 max(3, 0), over 2 of node 1 max(2, 0): 10.
		{"back to 2", v.InboundBandwidth(2, 1, false), 100e6 * 6 / 10},
	} {
		if math.Abs(test.got-test.want) > 1 {
			t.Errorf("%s: %v, want %v", test.what, test.got, test.want)
		}
	}
	if v := sees(NewTable(even(2, 2, 1), 10)); v.InboundBandwidth(0, 1, false) != 100e6 {
		t.Errorf("on an idle network results have %v", v.InboundBandwidth(0, 1, false))
	}
}

// TestRandomFollowsItsWeights draws often and asks chi-square; the same draws must
// not pass for weights that are a little different.
func TestRandomFollowsItsWeights(t *testing.T) {
	const draws = 200_000
	table := NewTable(even(24, 3, 6), 10)
	for d := range int32(72) {
		ran(table, d, time.Duration(5+d)*time.Millisecond)
		if d%3 > 0 {
			put(table, table.layout.NodeOf[d], d, int(d%3))
		}
	}
	call := &Call{Node: 7, In: 200_000, Out: 100_000}
	m, v := newRandom(table.layout, reach{}, 0, 0, false), sees(table)
	count := make([]float64, 72)
	for range draws {
		count[m.Map(call, v)]++
	}
	chi := func(busier float64) (sum float64) {
		weights, all := make([]float64, 72), 0.0
		for d := range 72 {
			w := 1.0
			if d%3 > 0 {
				w = busier * 4 / float64(5+d) // equation 10
			}
			if d/3 == 7 {
				w *= max(1, 300/float64(5+d)*300/float64(5+d)*24/100) // equation 11
			}
			weights[d], all = w, all+w
		}
		for d, w := range weights {
			e := draws * w / all
			sum += (count[d] - e) * (count[d] - e) / e
		}
		return sum
	}
	// 71 degrees of freedom: the mean is 71, its deviation 12.
	if got := chi(1); got > 71+4*12 {
		t.Errorf("chi-square %.1f of 71 degrees of freedom", got)
	}
	if got := chi(1.1); got < 71+4*12 {
		t.Errorf("weights that are 10 %% wrong would pass: %.1f", got)
	}
}

func TestHowOftenTheViewIsWrong(t *testing.T) {
	table := NewTable(even(2, 1, 1), 10)
	put(table, 1, 1, 3)
	v := sees(table)
	v.Wrong = &Wrong{Positive: 0.3, Negative: 0.1, Rand: rand.New(rand.NewPCG(3, 4))}
	const times = 100_000
	positive, negative := 0, 0
	for range times {
		switch v.Queued(0) {
		case 0:
		case 1:
			positive++
		default:
			t.Fatal("an idle device seems to have more than one call")
		}
		switch v.Queued(1) {
		case 0:
			negative++
		case 3:
		default:
			t.Fatal("a busy device seems to have another number of calls")
		}
	}
	// Deviations are 145 and 95.
	if math.Abs(float64(positive)-30_000) > 5*145 || math.Abs(float64(negative)-10_000) > 5*95 {
		t.Errorf("of %d: %d false positives, %d false negatives", times, positive, negative)
	}
}

// TestWrongViews: what a mapper does when all that it knows of others is the opposite.
func TestWrongViews(t *testing.T) {
	call := &Call{Node: 0, Home: 0, In: 1000, Out: 1000}
	for _, by := range []Estimate{ByWindow, ByKernel} {
		table := NewTable(even(2, 1, 1), 10)
		table.Estimate = by
		ran(table, 0, time.Second)
		ran(table, 1, time.Second)
		m, v := newGreedy(table.layout, reach{}, by, network{}), sees(table)
		put(table, 0, 0, 1)
		if got := m.Map(call, v); got != 1 {
			t.Errorf("an idle device elsewhere: %d", got)
		}
		v.Wrong = &Wrong{Positive: 1, Rand: rand.New(rand.NewPCG(3, 4))}
		if got := m.Map(call, v); got != 0 {
			t.Errorf("it seems busy, for one kernel: %d", got)
		}
		put(table, 1, 1, 5)
		v.Wrong = &Wrong{Negative: 1, Rand: rand.New(rand.NewPCG(3, 4))}
		if got := m.Map(call, v); got != 1 {
			t.Errorf("a busy one seems idle: %d", got)
		}
		v.Wrong.Negative = 0
		if got := m.Map(call, v); got != 0 {
			t.Errorf("it is busy: %d", got)
		}
	}
}

func TestWrongWeights(t *testing.T) {
	table := NewTable(even(2, 1, 1), 10)
	m, v := newRandom(table.layout, reach{}, 1e-9, 1, false), sees(table)
	put(table, 0, 0, 1) // the local one is busy: nearly all calls go to the other, which is idle
	for _, test := range []struct {
		wrong Wrong
		more  bool // does the other still get nearly all?
	}{{Wrong{}, true}, {Wrong{Positive: 1}, false}, {Wrong{Negative: 1}, true}} {
		test.wrong.Rand = rand.New(rand.NewPCG(5, 6))
		v.Wrong = &test.wrong
		there := 0
		for range 1000 {
			there += int(m.Map(&Call{}, v))
		}
		if (there > 990) != test.more {
			t.Errorf("%v, %v: %d of 1000 on the other", test.wrong.Positive, test.wrong.Negative, there)
		}
	}
}

// TestOwnNodeIsKnownAtOnce: what a node does itself it knows before others tell it. Two calls of
// node 0 are at device 5, and it serves two of node 1; the table does not know yet.
func TestOwnNodeIsKnownAtOnce(t *testing.T) {
	late, now := NewTable(even(3, 2, 1), 10), NewTable(even(3, 2, 1), 10)
	for _, table := range []*Table{late, now} {
		for d := range int32(2) {
			ran(table, d, 320*time.Millisecond)
		}
	}
	put(now, 0, 5, 2)
	put(now, 1, 0, 1)
	put(now, 1, 1, 1)
	call := &Call{Node: 0, In: 10_000_000, Out: 5_000_000}
	// 320 ms here; there 100 x (2+1) + 50 x max(1, 2 x 4/6) = 366.
	v := sees(now)
	if got := newGreedy(now.layout, reach{}, ByWindow, network{}).Map(call, v); got != 0 {
		t.Errorf("device %d, want 0", got)
	}
	v.Table = late
	if got := newGreedy(now.layout, reach{}, ByWindow, network{}).Map(call, v); got != 0 {
		t.Errorf("with a late table: device %d, want 0", got)
	}
	// With results alone: 300 x 8/6 = 400, of which the late table would make 300.
	call = &Call{Node: 0, Out: 30_000_000}
	if got := newGreedy(now.layout, reach{}, ByWindow, network{}).Map(call, v); got != 0 {
		t.Errorf("with a late table, and results: device %d, want 0", got)
	}
}

func TestHistory(t *testing.T) {
	h := &history{}
	if got := h.expect(&Call{Kernel: 3}, ByKernel); got != 0 {
		t.Errorf("nothing is known, yet %v", got)
	}
	// Kernel 0: 5 ms and 1 ms a byte. Kernel 1: always 7 ms.
	for i := range int64(9) {
		h.observe(&Call{Kernel: 0, In: i, Out: i}, time.Duration(5+2*i)*time.Millisecond)
		h.observe(&Call{Kernel: 1, In: 100}, 7*time.Millisecond)
	}
	near := func(what string, got, want time.Duration) {
		t.Helper()
		if d := got - want; d < -time.Microsecond || d > time.Microsecond {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	near("mean of kernel 0", h.expect(&Call{Kernel: 0, In: 50}, ByKernel), 13*time.Millisecond)
	near("line of kernel 0", h.expect(&Call{Kernel: 0, In: 50}, ByBytes), 55*time.Millisecond)
	near("kernel 1 has no line", h.expect(&Call{Kernel: 1, In: 900}, ByBytes), 7*time.Millisecond)
	near("a new kernel is like all", h.expect(&Call{Kernel: 9}, ByKernel), 10*time.Millisecond)

	// What was long ago fades: after 63 more at 20 ms, and 1000, the mean nears 20.
	for range 1000 {
		h.observe(&Call{Kernel: 1, In: 100}, 20*time.Millisecond)
	}
	near("kernel 1, changed", h.expect(&Call{Kernel: 1}, ByKernel), 20*time.Millisecond)
}

// TestBacklogCountsDown: a call of 10 ms runs, and one of 20 ms waits behind it. An earlier one, of which 10 ms were
// expected too, ran for so long: v is the square of its error, of 10.
func TestBacklogCountsDown(t *testing.T) {
	for _, test := range []struct {
		name string
		ran  time.Duration
		left map[time.Duration]float64 // after so long, in ms
	}{
		{"always the same: v is 0, and in the end it may be over at any moment", 10, map[time.Duration]float64{0: 30, 4: 26, 10: 20.000001, 30: 20.000001}},
		{"v is 1/4: at least 1/4 x (5/4)/4 of it is left", 15, map[time.Duration]float64{0: 30, 9: 21, 10: 20.78125, 30: 20.78125}},
		{"v is 1, as if memoryless: at least half of it", 20, map[time.Duration]float64{0: 30, 4: 26, 5: 25, 30: 25}},
		{"v is 9: what runs is likely to be a long one", 40, map[time.Duration]float64{0: 45, 30: 45}},
		{"nothing is known of errors: as memoryless", 0, map[time.Duration]float64{0: 30, 30: 25}},
	} {
		table := NewTable(even(1, 1, 1), 10)
		table.Estimate = ByKernel
		long, short := &Call{Kernel: 0}, &Call{Kernel: 1}
		table.history.observe(long, 20*time.Millisecond)
		table.history.observe(short, 10*time.Millisecond)
		if test.ran > 0 {
			table.misses.observe(10*time.Millisecond, test.ran*time.Millisecond)
		}
		table.misses.observe(0, time.Hour) // nothing was expected, so that it was no error
		first := table.Assign(short, 0)
		table.Assign(long, 0)
		table.Begin(0, first, time.Second)
		for after, want := range test.left {
			if got := table.Backlog(0, time.Second+after*time.Millisecond); got != time.Duration(want*1e6) {
				t.Errorf("%s; after %d ms: %v, want %v ms", test.name, after, got, want)
			}
		}
		if table.Finish(short, 0, first, time.Millisecond); table.Backlog(0, time.Hour) != 20*time.Millisecond {
			t.Errorf("%s; it is over, and %v are left", test.name, table.Backlog(0, time.Hour))
		}
	}
}

// TestBusyIsNotIdle: devices 0 and 1 of node 0. Where nothing is known the shorter queue is better, and kernels that take no time count too.
func TestBusyIsNotIdle(t *testing.T) {
	for _, by := range []Estimate{ByWindow, ByKernel, ByBytes} {
		for name, prepare := range map[string]func(*Table){
			"nothing is known": func(t *Table) { put(t, 0, 0, 3); put(t, 0, 1, 2) },
			"no time":          func(t *Table) { ran(t, 0, 0); ran(t, 1, 0); put(t, 0, 0, 1) },
			"overdue": func(t *Table) {
				for range 100 {
					ran(t, 0, time.Second)
				}
				t.Begin(0, t.Assign(&Call{}, 0), 0)
			},
		} {
			table := NewTable(even(1, 2, 1), 10)
			table.Estimate = by
			prepare(table)
			v := sees(table)
			v.Now = time.Hour
			for _, n := range []network{{}, {probe: true, care: 4}} {
				if got := newGreedy(table.layout, reach{}, by, n).Map(&Call{}, v); got != 1 {
					t.Errorf("%s, estimate %d: device %d", name, by, got)
				}
			}
		}
	}
}

// TestErrorsFade: what calls are like lately counts.
func TestErrorsFade(t *testing.T) {
	var m misses
	for range 1000 {
		m.observe(10, 40)
	}
	if got := m.rest(1000); got != 2500 {
		t.Errorf("v is 9, and of 1000 are left %d", got)
	}
	for range 1000 {
		m.observe(10, 10)
	}
	if got := m.rest(1000); got > 1 {
		t.Errorf("there are no more errors, and of 1000 are left %d", got)
	}
	if m.observe(2, math.MaxInt64); m.rest(math.MaxInt64) != longest {
		t.Errorf("the rest has no bounds: %d", m.rest(math.MaxInt64))
	}
}

// TestRoads follows calls by hand: node 0 has 100 KB/ms, 1 has 10, 2 has 1000, 3 no limit; 2 and 3 hang on another
// switch. 10,000 KB go there and 5,000 come back, with an overhead of half; far is 4; latencies are 8 ms from node 0 and 2 from others.
func TestRoads(t *testing.T) {
	l := even(4, 1, 1)
	l.Links = []int64{100e6, 10e6, 1000e6, 0}
	l.Switch = []int32{7, 7, 3, 3}
	l.Latencies = []time.Duration{8e6, 2e6, 2e6, 2e6}
	l.Overhead, l.Far = 1.5, 4
	for _, test := range []struct {
		from, to int32
		ms       time.Duration
	}{
		{0, 1, 8 + 1500 + 750},       // by the slower link, of the GPU
		{1, 0, 2 + 1500 + 750},       // or of the caller
		{0, 2, 4 * (8 + 150 + 75)},   // another switch
		{0, 3, 4 * (8 + 150 + 75)},   // no limit there
		{3, 2, 2 + 15 + 7},           // nor here; 7.5, see below
		{1, 3, 4 * (2 + 1500 + 750)}, // both
	} {
		want := test.ms * time.Millisecond
		if test.from == 3 {
			want += 500 * time.Microsecond
		}
		// Both have run kernels of which 7 wait at home: it is worth it if those take more.
		for _, more := range []time.Duration{-1, 1} {
			table := NewTable(l, 10)
			ran(table, test.from, want/7+more)
			put(table, test.from, test.from, 7)
			for d := range int32(4) {
				if d != test.from && d != test.to {
					put(table, l.NodeOf[d], d, 1000)
				}
			}
			m := newGreedy(l, reach{}, ByWindow, network{probe: true})
			call := &Call{Node: test.from, In: 10_000_000, Out: 5_000_000}
			if got := m.Map(call, sees(table)); (got == test.to) != (more > 0) {
				t.Errorf("%d to %d, %v of waiting at home: device %d", test.from, test.to, want+7*more, got)
			}
		}
	}
	// Behind a slower link, or on another switch, a device weighs less: (D/tau)^2 is 10,000, so that beta by the way
	// from 0 is 400 to itself, 4000 to 1 and 4 x 400 to 2 and 3; from 3, which has no limit, it is 1, and 4 x 4000, 4000, 40.
	for _, test := range []struct {
		from, to int32
		want     float64
	}{{0, 1, 0.1}, {0, 2, 0.25}, {0, 3, 0.25}, {1, 0, 1}, {3, 0, 1. / 1600}, {3, 1, 1. / 16000}, {3, 2, 1. / 40}} {
		call := &Call{Node: test.from, In: 1_000_000}
		for beta, want := range map[float64]float64{0: test.want, 7: 1} {
			w := newRandom(l, reach{}, 0, beta, false).factors(call)
			if got := w.behind(call, test.to, 10*time.Millisecond); math.Abs(got-want) > 1e-12 {
				t.Errorf("from %d, device %d, beta %v: %v, want %v", test.from, test.to, beta, got, want)
			}
		}
	}
	// So the first, whose own link counts 400, draws from these sums.
	table := NewTable(l, 10)
	for d := range int32(4) {
		ran(table, d, 10*time.Millisecond)
	}
	m := newRandom(l, reach{}, 0, 0, false)
	m.Map(&Call{Node: 0, In: 1_000_000}, sees(table))
	for i, want := range []float64{400, 400.1, 400.35, 400.6} {
		if math.Abs(m.upTo[i]-want) > 1e-9 {
			t.Errorf("AR draws from %v", m.upTo)
			break
		}
	}
	l.Links[2] = 0
	unlimited := &Call{Node: 3, In: 1_000_000}
	if w := m.factors(unlimited); w.behind(unlimited, 2, 10*time.Millisecond) != 1 {
		t.Error("a link without limit takes weight away")
	}
	// Equation 11 has the caller's own link: (30/10)^2 x 4/B.
	for node, want := range []float64{36. / 100, 36. / 10, 0, 0} {
		w := newRandom(l, reach{}, 0, 0, true).factors(&Call{Node: int32(node), In: 30_000})
		if got := w.bonus(10 * time.Millisecond); math.Abs(got-want) > 1e-12 {
			t.Errorf("beta of node %d: %v, want %v", node, got, want)
		}
	}
}

// TestNodesThatAreReachedAlike: neighbours that are alike are scanned at once, and clusters of such nodes alone as before.
func TestNodesThatAreReachedAlike(t *testing.T) {
	l := even(5, 2, 1)
	l.Switch, l.Latencies = []int32{0, 0, 1, 1, 0}, make([]time.Duration, 5)
	if r := newRoads(l); r.until != nil {
		t.Errorf("switches make no difference without far, yet %v", r.until)
	}
	l.Links = []int64{5, 5, 5, 5, 5}
	if r := newRoads(l); r.until != nil {
		t.Errorf("all links are alike, yet %v", r.until)
	}
	l.Links[3], l.Far = 6, 2
	r := newRoads(l)
	var got []span
	for p := (span{1, 10}); p.from < p.to; {
		q := r.alike(p)
		got = append(got, q)
		p.from = q.to
	}
	if want := []span{{1, 4}, {4, 6}, {6, 8}, {8, 10}}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestFasterDevices: where devices differ in speed, mappers that know kernels count the call itself too.
func TestFasterDevices(t *testing.T) {
	l := even(2, 1, 1)
	l.Speed[1] = 4
	table := NewTable(l, 10)
	table.Estimate = ByKernel
	call := &Call{Node: 0, In: 100_000, Out: 100_000} // 1 ms each way
	table.history.observe(call, 100*time.Millisecond)
	if got := newGreedy(l, reach{}, ByKernel, network{}).Map(call, sees(table)); got != 1 {
		t.Errorf("100 ms here, 25 + 2 ms there: device %d", got)
	}
	table.history = history{}
	table.history.observe(call, 2*time.Millisecond)
	if got := newGreedy(l, reach{}, ByKernel, network{}).Map(call, sees(table)); got != 0 {
		t.Errorf("2 ms here, 0.5 + 2 ms there: device %d", got)
	}
}
