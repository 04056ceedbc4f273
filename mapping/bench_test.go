package mapping_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"muster/mapping"
)

// loaded is a mapper over nodes of 3 devices under load: all have run, calls are under way between nodes, and
// all devices are busy, or but for some.
func loaded(t testing.TB, spec string, nodes int, all bool) (mapping.Mapper, *mapping.Table, *mapping.View) {
	return loadedOn(t, spec, cluster(nodes, 3), all)
}

func loadedOn(t testing.TB, spec string, l *mapping.Layout, all bool) (mapping.Mapper, *mapping.Table, *mapping.View) {
	m, err := mapping.New(spec, l)
	if err != nil {
		t.Fatal(err)
	}
	table := mapping.NewTable(l, 10)
	table.Estimate = mapping.EstimateOf(m)
	rng := rand.New(rand.NewPCG(1, 2))
	for d := range int32(l.Devices()) {
		own := &mapping.Call{Node: l.NodeOf[d], App: l.Owner[l.NodeOf[d]], Kernel: l.Owner[l.NodeOf[d]], In: rng.Int64N(2e7), Out: rng.Int64N(1e7)}
		for range 3 {
			expected := table.Assign(own, d)
			table.Finish(own, d, expected, time.Second+time.Duration(rng.Int64N(int64(time.Second))))
		}
		calls := 1 + rng.IntN(4)
		if !all && d%20 == 0 {
			calls = 0
		}
		for range calls {
			from := *own
			if rng.IntN(2) == 0 {
				from.Node = rng.Int32N(int32(l.Nodes()))
			}
			table.Begin(d, table.Assign(&from, d), 0)
		}
	}
	v := &mapping.View{Now: time.Second, Table: table, Local: table, Rand: rand.New(rand.NewPCG(3, 4))}
	return m, table, v
}

func someCalls(l *mapping.Layout) []mapping.Call {
	rng := rand.New(rand.NewPCG(5, 6))
	calls := make([]mapping.Call, 1024)
	for i := range calls {
		n := rng.Int32N(int32(l.Nodes()))
		in := rng.Int64N(2e7)
		calls[i] = mapping.Call{
			Node: n, App: l.Owner[n], Kernel: l.Owner[n], Process: int32(i), Rank: int32(i), Home: l.First[n], In: in, Out: in / 2,
			Resident: []mapping.Resident{{Device: rng.Int32N(int32(l.Devices())), Bytes: in / 2}},
		}
	}
	return calls
}

// BenchmarkMap is the cost of one decision, by mapper and number of devices.
func BenchmarkMap(b *testing.B) {
	for _, spec := range []string{"st", "gr", "split", "ag", "ag:estimate=kernel", "ag:group=24", "ag:choices=2", "ar", "ar:group=24", "ar:choices=8", "probe"} {
		for _, load := range []string{"some-idle", "all-busy"} {
			for _, devices := range []int{72, 720, 7_200, 30_000} {
				b.Run(fmt.Sprintf("%s/%s/%d", spec, load, devices), func(b *testing.B) {
					m, table, v := loaded(b, spec, devices/3, load == "all-busy")
					calls := someCalls(table.Layout())
					i := 0
					for b.Loop() {
						m.Map(&calls[i%len(calls)], v)
						i++
					}
				})
			}
		}
	}
}

// BenchmarkUnlike is the cost of a decision where nodes differ in how they are reached: 24 neighbours on
// each switch, or links that differ from node to node.
func BenchmarkUnlike(b *testing.B) {
	for _, spec := range []string{"ag", "ag:estimate=kernel", "ar", "probe"} {
		for _, unlike := range []string{"switches", "links"} {
			for _, devices := range []int{144, 7_200} {
				b.Run(fmt.Sprintf("%s/%s/%d", spec, unlike, devices), func(b *testing.B) {
					l := cluster(devices/3, 3)
					l.Far = 2
					for n := range l.Cores {
						l.Switch = append(l.Switch, int32(n/24))
						if unlike == "links" {
							l.Links = append(l.Links, int64(100e6+n))
						}
					}
					m, table, v := loadedOn(b, spec, l, true)
					calls := someCalls(table.Layout())
					i := 0
					for b.Loop() {
						m.Map(&calls[i%len(calls)], v)
						i++
					}
				})
			}
		}
	}
}

// BenchmarkTable is the cost of telling a table of one call: Assign, Begin, Finish.
func BenchmarkTable(b *testing.B) {
	for _, spec := range []string{"ag", "ag:estimate=kernel", "ag:estimate=bytes"} {
		for _, devices := range []int{72, 30_000} {
			b.Run(fmt.Sprintf("%s/%d", spec, devices), func(b *testing.B) {
				_, table, _ := loaded(b, spec, devices/3, true)
				calls := someCalls(table.Layout())
				i := 0
				for b.Loop() {
					c := &calls[i%len(calls)]
					d := c.Resident[0].Device
					expected := table.Assign(c, d)
					table.Begin(d, expected, time.Second)
					table.Finish(c, d, expected, time.Second)
					i++
				}
			})
		}
	}
}
