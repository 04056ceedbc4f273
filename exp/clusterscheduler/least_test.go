package clusterscheduler

import (
	"math"
	"testing"
)

// The bound by hand: a unit takes 0.2 s on a Quadro 2000 if it takes 0.1 s on a card of twice its speed, and a
// process alone begins after 0.11 s.
func TestLeastByHand(t *testing.T) {
	p := profileOf(0.1)
	one, slow := commodity.whole(), 0.1/commodity.machines[0].cards[0].Power()
	ratio := commodity.machines[7].cards[0].Power() / commodity.machines[0].cards[0].Power()
	work := &app{"MM", "pairs", 16, 2, 12, 0, false}
	for _, c := range []struct {
		jobs []job
		want float64
	}{
		{[]job{{app: work, processes: 1}}, 24 * slow / ratio},          // on the fastest
		{[]job{{app: work, processes: 3}}, 24 * slow / (3 * ratio)},    // on the three that are fast
		{[]job{{app: work, processes: 4}}, 24 * slow / (3*ratio + 1)},  // on those and a slow one, each in turn
		{[]job{{app: work, processes: 12}}, 24 * slow / (3*ratio + 5)}, // on all
		{[]job{{app: work, processes: 12}, {app: work, processes: 1}}, max(24*slow/ratio, 48*slow/(3*ratio+5))},
	} {
		if got := p.least(one, c.jobs); math.Abs(got-0.11-c.want) > 1e-9 {
			t.Errorf("%v: %v, want %v", c.jobs, got, 0.11+c.want)
		}
	}
}

// Nothing that was measured is faster than the bound, and nothing that the simulator says.
func TestNothingIsFasterThanTheBound(t *testing.T) {
	for _, file := range records {
		m, _ := recordedResult(t, file)
		for _, w := range study().Plan(m) {
			least := m.Profile.least(w.setting.hosts, w.jobs)
			if said := m.predicted[w.key].Seconds; said < least {
				t.Errorf("%s: %.3f s in the simulator, and the bound is %.3f s", w.key, said, least)
			}
			for _, was := range m.Seconds(w.key) {
				if was < least {
					t.Errorf("%s: it took %.3f s, and the bound is %.3f s", w.key, was, least)
				}
			}
		}
	}
}
