package mapping

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/internal/seeds"
)

// lines writes the choices of an account, times in milliseconds.
func lines(a Account) (list []string) {
	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	for _, c := range a.Choices {
		line := fmt.Sprintf("%d: %d queued, wait %g, transfer %g", c.Device, c.Queued, ms(c.Wait), ms(c.Transfer))
		switch {
		case a.Drawn:
			line = fmt.Sprintf("%d: %d queued, weight %.4f, %.2f %%", c.Device, c.Queued, c.Weight, 100*c.Chance)
		case c.Care > 0:
			line += fmt.Sprintf(", care %g", ms(c.Care))
		}
		if c.Run > 0 {
			line += fmt.Sprintf(", run %g", ms(c.Run))
		}
		if c.Held > 0 {
			line += fmt.Sprintf(", holds %d", c.Held)
		}
		list = append(list, line)
	}
	return list
}

// The cluster and the call of TestEquations1To7: 3 nodes of 2 devices, 100 ms there and 50 ms back.
func TestAccountsByHand(t *testing.T) {
	for _, test := range []struct {
		name, spec string
		prepare    func(*Table, *Call)
		wrong      *Wrong
		device     int32
		unseen     int
		want       []string
	}{
		{
			// As "the calls that come to a node" there: 100 x 3 + 50 to node 1, 100 + 50 to node 2.
			"ag", "ag", func(t *Table, _ *Call) {
				ran(t, 0, 151*time.Millisecond)
				put(t, 0, 0, 1)
				put(t, 0, 1, 2)
				put(t, 2, 2, 2)
			}, nil, 4, 0, []string{
				"4: 0 queued, wait 0, transfer 150", "5: 0 queued, wait 0, transfer 150", "0: 1 queued, wait 151, transfer 0",
				"1: 2 queued, wait 302, transfer 0", "3: 0 queued, wait 0, transfer 350", "2: 2 queued, wait 302, transfer 350",
			},
		},
		{
			// The scan ends at device 0, and the others are told of all the same.
			"ag, the first is as good as any", "ag:choices=1", func(t *Table, _ *Call) { put(t, 1, 2, 1); put(t, 1, 3, 1); put(t, 1, 4, 1); put(t, 1, 5, 1) },
			nil, 0, 0, []string{"0: 0 queued, wait 0, transfer 0", "1: 0 queued, wait 0, transfer 0", "DRAWN"},
		},
		{
			// Half the input is on 3, which is 50 ms: the busy 3 and the idle others are 150 and more.
			"ag, data are there", "ag:locality=yes", func(t *Table, c *Call) {
				ran(t, 0, time.Second)
				ran(t, 3, 40*time.Millisecond)
				put(t, 0, 0, 1)
				put(t, 0, 1, 1)
				put(t, 1, 3, 1)
				c.Resident = []Resident{{3, 5_000_000}}
			}, nil, 3, 0, []string{
				"3: 1 queued, wait 40, transfer 100, holds 5000000", "2: 0 queued, wait 0, transfer 150", "4: 0 queued, wait 0, transfer 150",
				"5: 0 queued, wait 0, transfer 150", "1: 1 queued, wait 520, transfer 0", "0: 1 queued, wait 1000, transfer 0",
			},
		},
		{
			// 2 is idle and seems to have a call, of the mean of all; 3 has one and seems idle. None can
			// seem better than that, so that it did not look at 4 and 5.
			"ag, all errs", "ag", func(t *Table, _ *Call) {
				ran(t, 0, 151*time.Millisecond)
				put(t, 0, 0, 1)
				put(t, 0, 1, 1)
				put(t, 1, 3, 1)
			},
			&Wrong{Positive: 1, Negative: 1}, 3, 2, []string{
				"3: 0 queued, wait 0, transfer 150", "0: 1 queued, wait 151, transfer 0", "1: 1 queued, wait 151, transfer 0", "2: 1 queued, wait 151, transfer 150",
			},
		},
		{
			// 3 calls wait behind others, on 6 devices: 4 x 3/6 = 2 times the time for input, 100 + 10 ms.
			"probe", "probe:choices=5:estimate=window", func(t *Table, _ *Call) {
				t.layout.Latency = 10 * time.Millisecond
				ran(t, 0, 400*time.Millisecond)
				put(t, 0, 0, 1)
				put(t, 0, 1, 4)
			}, nil, 2, 0, []string{
				"2: 0 queued, wait 0, transfer 160, care 220", "3: 0 queued, wait 0, transfer 160, care 220", "4: 0 queued, wait 0, transfer 160, care 220",
				"5: 0 queued, wait 0, transfer 160, care 220", "0: 1 queued, wait 400, transfer 0", "1: 4 queued, wait 1600, transfer 0",
			},
		},
		{
			// 400 ms at normal speed are 200 ms on device 2, and 800 ms on 1.
			"probe, unlike devices", "probe:choices=5:care=0", func(t *Table, _ *Call) {
				t.layout.Speed = []float64{1, 0.5, 2, 1, 1, 1}
				ran(t, 0, 400*time.Millisecond)
				put(t, 0, 0, 1)
			}, nil, 2, 0, []string{
				"2: 0 queued, wait 0, transfer 150, run 200", "3: 0 queued, wait 0, transfer 150, run 400", "4: 0 queued, wait 0, transfer 150, run 400",
				"5: 0 queued, wait 0, transfer 150, run 400", "0: 1 queued, wait 400, transfer 0, run 400", "1: 0 queued, wait 0, transfer 0, run 800",
			},
		},
		{
			// alpha is (12/2)/1000; beta is (15,000/1000)^2 x 3/100 = 6.75; the sum is 6.75 + 3 + 0.0405 + 0.006.
			"ar", "ar", func(t *Table, _ *Call) { ran(t, 0, time.Second); put(t, 0, 0, 1); put(t, 2, 4, 3) },
			nil, 1, 0, []string{
				"1: 0 queued, weight 6.7500, 68.90 %", "2: 0 queued, weight 1.0000, 10.21 %", "3: 0 queued, weight 1.0000, 10.21 %",
				"5: 0 queued, weight 1.0000, 10.21 %", "0: 1 queued, weight 0.0405, 0.41 %", "4: 3 queued, weight 0.0060, 0.06 %",
			},
		},
		{
			"ar, all errs, data are there", "ar:alpha=0.5:beta=2:locality=yes", func(t *Table, c *Call) {
				put(t, 0, 0, 1)
				put(t, 2, 4, 3)
				c.Resident = []Resident{{5, 5_000_000}}
			}, &Wrong{Positive: 1, Negative: 1}, -2, 0, []string{
				// 15 MB by the 10 that are left, squared, is more than beta.
				"1: 0 queued, weight 2.0000, 33.33 %", "0: 1 queued, weight 1.0000, 16.67 %", "4: 0 queued, weight 1.0000, 16.67 %",
				"5: 1 queued, weight 1.0000, 16.67 %, holds 5000000", "2: 1 queued, weight 0.5000, 8.33 %", "3: 1 queued, weight 0.5000, 8.33 %",
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			call := &Call{Node: 0, Home: 0, In: 10_000_000, Out: 5_000_000}
			l := even(3, 2, 1)
			table := NewTable(l, 10)
			if strings.Contains(test.name, "unlike") {
				table.Estimate = ByKernel
			}
			test.prepare(table, call)
			m, err := New(test.spec, l)
			if err != nil {
				t.Fatal(err)
			}
			v := sees(table)
			if test.wrong != nil {
				v.Wrong = test.wrong
				v.Wrong.Rand = rand.New(rand.NewPCG(1, 1))
			}
			a := Explain(m, call, v)
			got := lines(a)
			if i := slices.Index(test.want, "DRAWN"); i >= 0 && i < len(got) {
				test.want[i] = got[i]
			}
			if !slices.Equal(got, test.want) || a.Unseen != test.unseen {
				t.Errorf("got, with %d unseen,\n%s\nwant, with %d,\n%s", a.Unseen, strings.Join(got, "\n"), test.unseen, strings.Join(test.want, "\n"))
			}
			if test.device >= 0 && a.Device != test.device {
				t.Errorf("device %d, want %d", a.Device, test.device)
			}
		})
	}
}

func TestReasons(t *testing.T) {
	l := even(4, 2, 2)
	for _, test := range []struct {
		spec   string
		call   Call
		device int32
		want   string
	}{
		{"st", Call{Home: 1}, 1, "bound to this GPU of its own node"},
		{"st", Call{Home: -1, Process: 11}, 3, "bound to one elsewhere"},
		{"gr", Call{Home: 1}, Anywhere, "one queue"},
		{"gr:local=first", Call{Home: 1}, 0, "is idle"},
		{"split", Call{Home: 1, Rank: 1}, 4, "of the share"},
		{"split", Call{Home: 1, Rank: 2}, 1, "bound to this GPU of its own node"},
	} {
		m, err := New(test.spec, l)
		if err != nil {
			t.Fatal(err)
		}
		if a := Explain(m, &test.call, sees(NewTable(l, 10))); a.Device != test.device || !strings.Contains(a.Reason, test.want) || a.Choices != nil {
			t.Errorf("%s: %+v", test.spec, a)
		}
	}
}

// drawMapper is some mapper that compares devices.
func drawMapper(t *rapid.T, l *Layout, by Estimate) Mapper {
	r := drawReach(t, l.Nodes())
	r.choices = int32(rapid.IntRange(0, 4).Draw(t, "choices"))
	switch rapid.IntRange(0, 2).Draw(t, "mapper") {
	case 0:
		return newGreedy(l, r, by, network{plus: rapid.Bool().Draw(t, "plus")})
	case 1:
		return newGreedy(l, r, by, network{probe: true, care: int64(rapid.IntRange(0, 5).Draw(t, "care"))})
	}
	weights := []float64{0, 0, 0.1, 3}
	return newRandom(l, r, rapid.SampledFrom(weights).Draw(t, "alpha"), rapid.SampledFrom(weights).Draw(t, "beta"), rapid.Bool().Draw(t, "unbounded"))
}

// TestAccountsAreTrue: an account tells of the device that Map names, and why; with tables that are
// behind and views that err; and the decisions are those that are made without accounts.
func TestAccountsAreTrue(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		s := drawScene(t, rapid.SampledFrom([]Estimate{ByWindow, ByKernel, ByBytes}).Draw(t, "by"))
		seed := rapid.Uint64().Draw(t, "seed")
		share := rapid.SampledFrom([]float64{0, 0.3, 1})
		errs := rapid.Bool().Draw(t, "errs")
		positive, negative := share.Draw(t, "positive"), share.Draw(t, "negative")
		view := func() *View {
			v := *s.view
			v.Rand = rand.New(rand.NewPCG(seed, 1))
			if errs {
				v.Wrong = &Wrong{Positive: positive, Negative: negative, Rand: rand.New(rand.NewPCG(seed, 2))}
			}
			return &v
		}
		asked := drawMapper(t, s.layout, s.by)
		unasked := drawAgain(asked)
		v, plain := view(), view()
		for range 3 {
			a := Explain(asked, s.call, v)
			if d := unasked.Map(s.call, plain); d != a.Device {
				t.Fatalf("device %d, and %d when nobody asks", a.Device, d)
			}
			checkAccount(t, s, asked, v, a)
			s.call = drawCall(t, s.layout)
		}
	})
}

// drawAgain is the same mapper with scratch memory of its own.
func drawAgain(m Mapper) Mapper {
	switch m := m.(type) {
	case *greedy:
		return newGreedy(m.layout, m.candidates.reach, m.estimate, m.network)
	case *random:
		return newRandom(m.layout, m.candidates.reach, m.alpha, m.beta, m.unbounded)
	}
	panic("no such mapper")
}

func checkAccount(t *rapid.T, s *scene, m Mapper, v *View, a Account) {
	by := map[int32]*Choice{}
	for i := range a.Choices {
		c := &a.Choices[i]
		if by[c.Device] != nil {
			t.Fatalf("device %d is there twice: %+v", c.Device, a)
		}
		by[c.Device] = c
		truth := s.table
		if s.layout.NodeOf[c.Device] == s.call.Node {
			truth = s.local
		}
		queued := truth.queued(c.Device)
		if v.Wrong == nil && c.Queued != queued || c.Queued != queued && c.Queued > 1 {
			t.Fatalf("device %d seemed to have %d calls, and has %d", c.Device, c.Queued, queued)
		}
	}
	switch m := m.(type) {
	case *greedy:
		if a.Choices[0].Device != a.Device || a.Drawn {
			t.Fatalf("device %d, and the best is %+v", a.Device, a.Choices[0])
		}
		if all := len(flat(m.candidates.spans)); len(a.Choices)+a.Unseen != all || v.Wrong == nil && a.Unseen != 0 {
			t.Fatalf("%d choices and %d unseen of %d", len(a.Choices), a.Unseen, all)
		}
	case *random:
		weights, chances := 0.0, 0.0
		for i, d := range flat(m.candidates.spans) {
			weights += by[d].Weight
			chances += by[d].Chance
			if weights != m.upTo[i] {
				t.Fatalf("the weights up to device %d are %v, and it drew from %v", d, weights, m.upTo[i])
			}
		}
		if !a.Drawn || math.Abs(chances-1) > 1e-9 || weights > 0 && by[a.Device].Weight <= 0 || a.Unseen != 0 {
			t.Fatalf("chances sum up to %v; device %d: %+v", chances, a.Device, by[a.Device])
		}
	}
}

// A mapper that nobody asked pays nothing: asking is what takes memory.
func TestNobodyAskedNothingKept(t *testing.T) {
	table := NewTable(even(24, 3, 6), 10)
	for _, spec := range []string{"ag", "ar", "probe:estimate=window"} {
		m, err := New(spec, table.layout)
		if err != nil {
			t.Fatal(err)
		}
		v := sees(table)
		v.Wrong = &Wrong{Positive: 0.5, Rand: rand.New(rand.NewPCG(1, 1))}
		call := &Call{Node: 2, In: 1e6}
		if n := testing.AllocsPerRun(100, func() { m.Map(call, v) }); n != 0 || v.Wrong.seen != nil {
			t.Errorf("%s: %v allocations, %d sights kept", spec, n, len(v.Wrong.seen))
		}
	}
}
