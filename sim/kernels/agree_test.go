package kernels

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"muster/mapping"
)

// recorder is an observer that keeps all events.
type recorder struct {
	events []Event
	rates  []oracleRate
}

func (r *recorder) Event(e Event) { r.events = append(r.events, e) }
func (r *recorder) Rate(at time.Duration, call, rate int64) {
	r.rates = append(r.rates, oracleRate{at, call, rate})
}

// mapperNames are those under which engine and oracle must agree: some that do what
// no sensible mapper does, and all of the catalogue.
var mapperNames = []string{
	"anywhere", "home", "random", "random by kernel", "random by bytes", "shortest",
	"st", "gr", "gr:local=first", "split:share=1/3", "split:share=1:from=1:to=0",
	"ag", "ag:reading=plus", "ag:estimate=kernel:locality=yes", "ag:estimate=bytes:protect=yes", "ag:group=2", "ag:choices=2:idle=first",
	"ar", "ar:bounds=none:locality=yes", "ar:alpha=0.3:beta=2", "ar:group=2:groups=block:protect=yes", "ar:choices=2",
	"probe", "probe:choices=1:estimate=bytes:protect=yes",
}

func namedMapper(name string, l *mapping.Layout) (mapping.Mapper, error) {
	switch name {
	case "anywhere":
		return anywhere, nil
	case "home":
		return atHome, nil
	case "random":
		return atRandom, nil
	case "random by kernel":
		return byHistory{atRandom, mapping.ByKernel}, nil
	case "random by bytes":
		return byHistory{atRandom, mapping.ByBytes}, nil
	case "shortest":
		return shortest, nil
	}
	return mapping.New(name, l)
}

// TestEngineAgreesWithOracle compares the engine with the plain second
// implementation, event by event, on small random runs.
func TestEngineAgreesWithOracle(t *testing.T) {
	runs := 4000
	switch {
	case os.Getenv("MUSTER_SOAK") != "":
		runs = 30000
	case testing.Short():
		runs = 2000
	}
	compared, failures, ahead := 0, 0, aheadSeen{}
	for seed := range uint64(runs) {
		choose := randomly(rand.New(rand.NewPCG(seed, 77)))
		config := smallConfig(choose)
		if seed%200 == 199 {
			enlarge(&config, 7, 1)
		}
		name := pick(choose, "mapper", mapperNames...)
		if _, err := namedMapper(name, oracleLayout(config.Cluster, config.Workload)); err != nil {
			continue // a split needs two applications with GPUs
		}
		compared++
		if err := compare(config, name, &ahead); err != nil {
			t.Errorf("seed %d, mapper %s: %v", seed, name, err)
			if failures++; failures > 5 {
				return
			}
		}
	}
	if compared < runs*9/10 {
		t.Errorf("only %d of %d runs were compared", compared, runs)
	}
	if ahead.lacks(runs / 200) {
		t.Errorf("of calls that were sent ahead, too few were compared: %+v", ahead)
	}
}

// aheadSeen counts calls that were sent ahead, by what may go wrong.
type aheadSeen struct {
	// When their data arrived: the device was held, or idle; or a call that was launched later, with less to send, was there already.
	waited, idle, overtaken int
	// Of applications that reuse data, or launch without waiting; on devices that are held for results.
	reuse, async, hold int
}

func (a *aheadSeen) lacks(least int) bool {
	return min(a.waited, a.idle, a.overtaken, a.reuse, a.async, a.hold) < least
}

func (a *aheadSeen) count(o *oracle) {
	for _, c := range o.calls {
		if !c.ahead || c.state < oRunning {
			continue
		}
		if c.at[Holding] > c.joined {
			a.waited++
		} else {
			a.idle++
		}
		if slices.ContainsFunc(o.calls[c.number+1:], func(later *oracleCall) bool {
			return later.ahead && later.device == c.device && later.state >= oRunning && later.joined < c.joined
		}) {
			a.overtaken++
		}
		if r := c.call.Resident; len(r) > 0 && r[0].Device == c.device && r[0].Bytes > 0 {
			a.reuse++
		}
		if o.Workload.Apps[c.call.App].Async {
			a.async++
		}
		if o.HoldResults {
			a.hold++
		}
	}
}

func compare(config Config, mapper string, ahead *aheadSeen) error {
	var layout *mapping.Layout
	var shown *watchedMapper
	make := func(l *mapping.Layout) (mapping.Mapper, error) {
		inner, err := namedMapper(mapper, l)
		layout, shown = l, watched(inner, config.Seed)
		return shown, err
	}
	config.Mapper = make
	var got recorder
	config.Observe = &got
	result, err := Run(context.Background(), config)
	if err != nil {
		return err
	}
	engineSaw := shown.seen
	want := oracleLayout(config.Cluster, config.Workload)
	if !reflect.DeepEqual(want, layout) {
		return fmt.Errorf("layout %+v, not %+v", *layout, *want)
	}
	o, err := newOracle(config, want)
	if err != nil {
		return err
	}
	expected := o.run()
	ahead.count(o)
	if err := sameEvents(got.events, o.events); err != nil {
		return err
	}
	if err := sameRates(got.rates, o.rates); err != nil {
		return err
	}
	for i := range min(len(engineSaw), len(shown.seen)) {
		if !reflect.DeepEqual(engineSaw[i], shown.seen[i]) {
			return fmt.Errorf("call %d: the mapper saw\n%+v, not\n%+v", i, engineSaw[i], shown.seen[i])
		}
	}
	result.Events = 0
	if !reflect.DeepEqual(result, expected) {
		return fmt.Errorf("result\n%+v, not\n%+v", *result, *expected)
	}
	return nil
}

// sameEvents compares what happened, in order.
func sameEvents(got, want []Event) error {
	for i := range max(len(got), len(want)) {
		switch {
		case i == len(got):
			return fmt.Errorf("%d events: %+v and what follows is missing", len(got), want[i])
		case i == len(want):
			return fmt.Errorf("%d events, but also %+v", len(want), got[i])
		case got[i] != want[i]:
			return fmt.Errorf("event %d is %+v, not %+v; before: %+v", i, got[i], want[i], want[max(0, i-4):i])
		}
	}
	return nil
}

// sameRates compares how fast data travelled. Rates of one instant have no order.
func sameRates(got, want []oracleRate) error {
	byCall := func(a, b oracleRate) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.call, b.call)) }
	slices.SortStableFunc(got, byCall)
	slices.SortStableFunc(want, byCall)
	if !slices.Equal(got, want) {
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				return fmt.Errorf("rate %d is %+v, not %+v", i, got[i], want[i])
			}
		}
		return fmt.Errorf("%d rates, not %d", len(got), len(want))
	}
	return nil
}
