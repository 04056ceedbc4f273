package mapping

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/internal/seeds"
)

// The second implementation of what is known of kernels: it keeps every call that finished, and weighs them all
// anew whenever it is asked, as docs/mapping.md says.

type finished struct {
	kernel     int32
	bytes, ran float64 // at normal speed
	expected   float64 // on its device
	took       float64
}

// weightOf is how much the i-th of n counts, from 0: the first 64 share what later ones have left, and each later one
// takes 1/64 of all.
func weightOf(i, n int) float64 {
	if n <= 64 {
		return 1 / float64(n)
	}
	since := n - 1 - max(i, 63)
	return math.Pow(63./64, float64(since)) / 64
}

func weigh(calls []finished, of func(finished) float64) (sum float64) {
	for i, c := range calls {
		sum += weightOf(i, len(calls)) * of(c)
	}
	return sum
}

// expectNaively is what a call should take at normal speed; 0 where nothing is known.
func expectNaively(past []finished, kernel int32, bytes float64, by Estimate) float64 {
	var alike []finished
	for _, c := range past {
		if c.kernel == kernel {
			alike = append(alike, c)
		}
	}
	if len(alike) == 0 {
		alike = past
	}
	ran := weigh(alike, func(c finished) float64 { return c.ran })
	if by == ByKernel || len(alike) < 8 {
		return ran
	}
	// The line of least squares, unless all have the same bytes, but for what is nothing beside them.
	middle := weigh(alike, func(c finished) float64 { return c.bytes })
	spread := weigh(alike, func(c finished) float64 { return (c.bytes - middle) * (c.bytes - middle) })
	if spread <= 1e-9*weigh(alike, func(c finished) float64 { return c.bytes * c.bytes }) {
		return ran
	}
	slope := weigh(alike, func(c finished) float64 { return (c.bytes - middle) * (c.ran - ran) }) / spread
	return math.Min(1<<50, math.Max(0, ran+slope*(bytes-middle)))
}

// leastNaively is what a call must have before it, of which so much was expected, however long it has run.
func leastNaively(past []finished, expected float64) float64 {
	var known []finished
	for _, c := range past {
		if c.expected > 1 {
			known = append(known, c)
		}
	}
	v := 1.0
	if len(known) > 0 {
		v = weigh(known, func(c finished) float64 { return (c.took - c.expected) * (c.took - c.expected) }) /
			weigh(known, func(c finished) float64 { return c.expected * c.expected })
	}
	return math.Max(math.Min(1, expected), math.Min(1<<50, math.Min(1, v)*(1+v)/4*expected))
}

// near allows for rounding to nanoseconds, and for that of sums of times up to the longest. A line
// through calls that differ by few bytes of many loses half of the digits.
func near(got time.Duration, want, longest float64) bool {
	return math.Abs(float64(got)-want) <= 3+1e-6*want+1e-7*longest
}

// kind is what calls of one kernel are like.
type kind struct {
	bytes, more int64 // they move so much, and up to 9 times more besides
	fixed, rate float64
	noise       float64
}

// TestHistoryAgainstNaive follows a few hundred calls of some kernels, one after the other, on devices of different
// speed: what is expected of each at its launch, and of its rest when it has run for very long.
func TestHistoryAgainstNaive(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		by := rapid.SampledFrom([]Estimate{ByKernel, ByBytes}).Draw(t, "by")
		l := even(2, 2, 1)
		l.Speed = []float64{1, rapid.SampledFrom([]float64{1, 0.5, 3}).Draw(t, "speed"), 1, 1}
		kinds := make([]kind, rapid.IntRange(1, 4).Draw(t, "kernels"))
		for i := range kinds {
			kinds[i] = kind{
				bytes: rapid.SampledFrom([]int64{0, 1_000_000, 100_000_000}).Draw(t, "bytes"),
				// 1 to 9 of 1,000,000 are nothing; 60 to 540 are something.
				more:  rapid.SampledFrom([]int64{0, 1, 60, 400, 1_000_000}).Draw(t, "more"),
				fixed: rapid.SampledFrom([]float64{1e3, 1e6, 1e9}).Draw(t, "fixed"),
				rate:  rapid.SampledFrom([]float64{0, 1, -30, 1000}).Draw(t, "rate"),
				noise: rapid.SampledFrom([]float64{0, 0.1, 1, 20}).Draw(t, "noise"),
			}
		}
		draw := rapid.Uint64().Draw(t, "draw") // rapid's own draws are too slow for so many calls
		next := func(n uint64) uint64 {
			draw = draw*6364136223846793005 + 1442695040888963407
			return (draw >> 33) % n
		}

		table := NewTable(l, 3)
		table.Estimate = by
		var past []finished
		longest := 0.0
		for i := range rapid.IntRange(150, 300).Draw(t, "calls") {
			// Half are of the first kernel; the last kernel comes late, when others are known.
			kernel := int32(0)
			if i > 20 && next(2) == 0 {
				kernel = int32(next(uint64(len(kinds))))
			}
			k, d := kinds[kernel], int32(next(4))
			bytes := k.bytes + k.more*int64(next(10))
			c := &Call{Kernel: kernel, In: bytes / 3, Out: bytes - bytes/3}

			speed := l.Speed[d]
			want := math.Max(1, math.Floor(expectNaively(past, kernel, float64(bytes), by)+1e-6)/speed)
			expected := table.Assign(c, d)
			if !near(expected, want, longest) {
				t.Fatalf("call %d of kernel %d: %v are expected, want %v", i, kernel, expected, time.Duration(want))
			}
			start := time.Duration(i) * time.Second
			table.Begin(d, expected, start)
			if got, want := table.Backlog(d, start+time.Hour*1e5), leastNaively(past, float64(expected)); !near(got, want, 0) {
				t.Fatalf("call %d of kernel %d, of which %v were expected: %v at the least, want %v", i, kernel, expected, got, time.Duration(want))
			}

			took := math.Max(0, k.fixed+k.rate*float64(bytes))
			took = math.Floor(took * (1 + k.noise*float64(next(1000))/1000))
			if next(40) == 0 {
				took *= 10 // an outlier
			}
			table.Finish(c, d, expected, time.Duration(took))
			longest = max(longest, took*speed)
			past = append(past, finished{kernel, float64(bytes), math.Floor(took * speed), float64(expected), took})
		}
	})
}

// TestTimesStayTimes: no speed, size or number makes a time negative.
func TestTimesStayTimes(t *testing.T) {
	for _, speed := range []float64{1e-300, 1e-12, 1e12, 1e300} {
		l := even(2, 1, 1)
		l.Speed = []float64{speed, 1}
		for _, by := range []Estimate{ByWindow, ByKernel, ByBytes} {
			table := NewTable(l, 10)
			table.Estimate = by
			for i := range int64(20) {
				for d := range int32(2) {
					c := &Call{Node: d, In: i}
					table.Finish(c, d, table.Assign(c, d), time.Hour)
				}
			}
			for i := range 100 {
				table.Begin(0, table.Assign(&Call{Node: 0, In: 1 << 40}, 0), time.Duration(i))
			}
			c := &Call{Node: 0, In: 1 << 40}
			if got := table.Expect(c, 0); got < 0 || got > forever {
				t.Errorf("speed %v, estimate %d: %v are expected", speed, by, got)
			}
			if got := table.Backlog(0, 0); got < 0 || by != ByWindow && got == 0 {
				t.Errorf("speed %v, estimate %d: a backlog of %v", speed, by, got)
			}
			v := sees(table)
			v.Now = time.Hour
			for _, n := range []network{{}, {probe: true, care: 1000}} {
				for _, choice := range Explain(newGreedy(l, reach{}, by, n), c, v).Choices {
					if choice.Wait < 0 || choice.Run < 0 || choice.Transfer < 0 || choice.Care < 0 || choice.Sum() < 0 {
						t.Errorf("speed %v, estimate %d: %+v", speed, by, choice)
					}
				}
			}
		}
	}
}

// TestManyLongCalls: 70,000 calls of 10 years each wait on device 1, and as many whose data take for ever are under way to its node.
// That is more than any number holds, and still more than what device 2 has.
func TestManyLongCalls(t *testing.T) {
	l := even(3, 1, 1)
	l.Bandwidth = 1
	c := &Call{Node: 0, Home: 0, In: 1 << 40, Out: 1 << 40}
	for _, by := range []Estimate{ByWindow, ByKernel} {
		table := NewTable(l, 10)
		table.Estimate = by
		for d := range int32(3) {
			ran(table, d, 10*365*24*time.Hour)
		}
		put(table, 0, 0, 70_000)
		put(table, 2, 1, 70_000)
		put(table, 2, 2, 3)
		v := sees(table)
		m := newGreedy(l, reach{}, by, network{})
		if got := m.Map(c, v); got != 2 {
			t.Errorf("estimate %d: device %d", by, got)
		}
		for _, choice := range Explain(m, c, v).Choices {
			if choice.Wait <= 0 || choice.Transfer < 0 || choice.Sum() < 0 {
				t.Errorf("estimate %d: %+v", by, choice)
			}
		}
		if got := table.Mean(1); got != 10*365*24*time.Hour {
			t.Errorf("estimate %d: the mean has become %v", by, got)
		}
	}
}

// TestMeanOfVeryMany: 100 devices that ran for 10 years each have run for longer than 64 bits can count.
func TestMeanOfVeryMany(t *testing.T) {
	const year = 365 * 24 * time.Hour
	table := NewTable(even(101, 1, 1), 1)
	for range 2 { // the second time, windows are full
		for d := range int32(100) {
			ran(table, d, 10*year)
		}
	}
	if got := table.Mean(100); got != 10*year {
		t.Errorf("a device that has run nothing has %v, want 10 years", got)
	}
}

// TestWideWindows: 30,000 devices with windows of 100,000.
func TestWideWindows(t *testing.T) {
	table := &Table{window: 100_000, devices: make([]device, 30_000)}
	table.devices[29_999].next = 99_999
	if got := table.place(29_999); got != 2_999_999_999 {
		t.Errorf("the last place is %d, want 2,999,999,999", got)
	}
}

// A device whose run times are forgotten counts as one that has run nothing: by the mean of the others.
func TestForget(t *testing.T) {
	l := &Layout{NodeOf: []int32{0, 1}, First: []int32{0, 1, 2}, Cores: []int32{1, 1}, Speed: []float64{1, 1}, Owner: []int32{0, 0}, Critical: []bool{false}}
	table := NewTable(l, 3)
	for d, times := range [][]time.Duration{{10, 20}, {1000, 2000, 3000, 4000}} {
		for _, took := range times {
			c := &Call{Node: int32(d)}
			table.Finish(c, int32(d), table.Assign(c, int32(d)), took)
		}
	}
	if got := table.Mean(1); got != 3000 {
		t.Fatalf("the mean is %v", got)
	}
	table.Forget(1)
	if got := table.Mean(1); got != 15 {
		t.Errorf("a device whose times were forgotten has mean %v", got)
	}
	table.Forget(0)
	if got := table.Mean(1); got != 0 {
		t.Errorf("where nothing is known the mean is %v", got)
	}
}
