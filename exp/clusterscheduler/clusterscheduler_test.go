package clusterscheduler

import (
	"math"
	"strings"
	"testing"

	"muster/exp/bench"
	"muster/exp/exptest"
	"muster/model"
)

// profileOf is a profile in which a unit of any work takes the same time on a card of speed 1.
func profileOf(unit float64) profile {
	p := profile{Unit: map[string]map[string]float64{}, Start: 0.1, EachStarts: 0.01}
	for _, a := range profiled {
		p.Unit[a.name] = map[string]float64{}
		for _, h := range kinds() {
			p.Unit[a.name][h.cards[0].Name] = unit / h.cards[0].Power()
		}
	}
	return p
}

// made gives every workload of all figures a time: seconds in the first run, and twice that in the
// second. All jobs take that time.
func made(seconds func(key string) float64) *measured {
	m := newMeasured([]uint64{1, 2})
	m.Figures, m.Profile = study().FigureNames(), profileOf(0.01)
	for _, f := range study().Figures() {
		for _, w := range f.Plan(m) {
			for run := 1; run <= 2; run++ {
				o := outcome{Timing: bench.Timing{Seconds: float64(run) * seconds(w.key)}}
				for i := range w.jobs {
					o.Jobs = append(o.Jobs, jobOutcome{w.jobs[i].app.name, w.jobs[i].processes, 0, o.Seconds, "1x1"})
				}
				m.Outcomes[w.key] = append(m.Outcomes[w.key], o)
			}
		}
	}
	return m
}

// With made-up times, every figure has rows and a picture, ratios are not inverted, and the paper's
// numbers are shown beside ours.
func TestShown(t *testing.T) {
	m := made(func(key string) float64 {
		switch {
		case strings.Contains(key, "_batch"):
			return 3
		case strings.Contains(key, "_dedicated_"):
			return 0.5
		case strings.HasSuffix(key, "_3nodes"), strings.HasSuffix(key, "_wg1"):
			return 4
		}
		return 2
	})
	r, err := study().Result(m)
	if err != nil {
		t.Fatal(err)
	}
	page := exptest.Page(t, r)
	for _, f := range study().Figures() {
		if !strings.Contains(page, f.Part) {
			t.Errorf("%s is not on the page", f.Part)
		}
	}
	for metric, want := range map[string]float64{
		"fig4_2_mm_8_0_0_s": 3, "fig4_3_highend_mm_3nodes_over_1node": 2, "fig4_3_commodity_nw_2nodes_over_1node": 1, "fig4_4_highend_adfa_wg3_over_wg1": 2,
		"fig4_5_highend_colocation_throughput": 1.5, "fig4_5_commodity_latency_throughput": 1.5, "fig4_5_highend_colocation_qos_short": 4,
		"claim_4_5_highend_colocation": 1, "claim_4_5_commodity_colocation": 0.5, "claim_4_4_wg2_align": 0, "claim_4_4_wg2_pairs": 1, "claim_4_2_adfa_scales": 0,
	} {
		if got := exptest.Row(t, r, metric); math.Abs(got.Ours-want) > 1e-9 {
			t.Errorf("%s is %v, want %v (%s)", metric, got.Ours, want, got.Note)
		}
	}
	for metric, want := range map[string]float64{"fig4_5_highend_colocation_throughput": 1.5, "fig4_5_highend_latency_throughput": 1.2, "fig4_5_commodity_colocation_throughput": 2.5,
		"fig4_5_commodity_latency_throughput": 2.45, "scale_mm_rows": 1600} {
		if got := exptest.Row(t, r, metric); got.Paper == nil || *got.Paper != want {
			t.Errorf("%s is %v in the paper", metric, got.Paper)
		}
	}
}

// An interrupt leaves what is complete: the figures of the first seed, or the first seeds.
func TestKeep(t *testing.T) {
	m := made(func(string) float64 { return 1 })
	delete(m.Outcomes, mixKey(&commodity, &quick))
	for key, list := range m.Outcomes {
		if strings.HasPrefix(key, "fig4_3") {
			m.Outcomes[key] = list[:1]
		}
	}
	if !study().Keep(m) || len(m.Figures) != 4 || len(m.Seeds) != 1 || m.Missing != "figures 4-5; the last 1 seed" {
		t.Errorf("%v, %v, %q", m.Figures, m.Seeds, m.Missing)
	}
	if err := study().Frame().Check(m); err != nil {
		t.Error(err)
	}
	none := newMeasured([]uint64{1})
	none.Figures = study().FigureNames()
	if study().Keep(none) {
		t.Error("nothing was measured, and it is kept")
	}
}

// A file that --save wrote is read again, and no other.
func TestSaved(t *testing.T) {
	m := made(func(string) float64 { return 1 })
	path := t.TempDir() + "/saved.json"
	if err := bench.Save(path, m); err != nil {
		t.Fatal(err)
	}
	again, err := study().Frame().Load(path)
	if err != nil || len(again.Outcomes) != len(m.Outcomes) {
		t.Fatal(err)
	}
	for what, spoil := range map[string]func(m *measured){
		"version 2":               func(m *measured) { m.Version = 2 },
		"nothing was measured":    func(m *measured) { m.Figures = nil },
		"no figure":               func(m *measured) { m.Figures = []string{"4-9"} },
		"measured 0 times":        func(m *measured) { delete(m.Outcomes, mixKey(&highEnd, &batch)) },
		"nothing for a GTX 460":   func(m *measured) { delete(m.Profile.Unit["NW"], bench.GTX460.Name) },
		"fig4_2_mm_8_0_0: ":       func(m *measured) { m.Outcomes["fig4_2_mm_8_0_0"][1].Seconds = 0 },
		"has 0 jobs, not 1":       func(m *measured) { m.Outcomes["fig4_2_mm_8_0_0"][1].Jobs = nil },
		"a start of -1 s and 0.0": func(m *measured) { m.Profile.Start = -1 },
	} {
		m := made(func(string) float64 { return 1 })
		spoil(m)
		if err := bench.Save(path, m); err != nil {
			t.Fatal(err)
		}
		if _, err := study().Frame().Load(path); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, text := range []string{"", "{}", `{"version":1,"more":2}`, `{"version":1} {}`} {
		if _, err := study().Frame().Decode([]byte(text)); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}

// What a job takes alone, by hand: the processes of a node are dealt out to its devices, the
// fullest device and the bytes to other machines count.
func TestAloneByHand(t *testing.T) {
	p := profileOf(0.1)
	hosts := highEnd.whole()
	j := job{app: &app{"MM", "pairs", 16, 2, 12, 1000, false}, processes: 6}
	// Four processes on two GTX 480 of node 1, and two on the K40c and the C2075 of node 2.
	a := &model.Allocation{
		Parts:  []model.Part{{Node: 0, Cores: 4}, {Node: 1, Cores: 2}},
		Grants: []model.Grant{{For: 0, Node: 0, Device: 0, Memory: 1}, {For: 0, Node: 0, Device: 1, Memory: 1}, {For: 1, Node: 1, Device: 0, Memory: 1}, {For: 1, Node: 1, Device: 1, Memory: 1}},
	}
	got := p.alone(&j, hosts, a)
	// Two units a process in a round: 4 on each GTX 480, 2 on the others.
	round := 2*2*1000/link + max(4*0.1/gtx480.Power(), 2*0.1)
	want := 0.1 + 6*0.01 + 2*round
	if math.Abs(got.Time.Seconds()-want) > 1e-6 {
		t.Errorf("%v, want %v s", got.Time, want)
	}
	for i, load := range []float64{2 * 4 * 0.1 / gtx480.Power(), 2 * 4 * 0.1 / gtx480.Power(), 2 * 2 * 0.1 / bench.K40c.Power(), 2 * 2 * 0.1} {
		if math.Abs(got.Load[i]-load/want) > 1e-6 {
			t.Errorf("load %d is %v, want %v", i, got.Load[i], load/want)
		}
	}
	// Two nodes share a device: it does the work of both, and each share has its own part of that.
	shared := p.alone(&j, hosts, &model.Allocation{
		Parts:  []model.Part{{Node: 0, Cores: 4}, {Node: 1, Cores: 2}},
		Grants: []model.Grant{{For: 0, Node: 1, Device: 1, Memory: 1}, {For: 1, Node: 1, Device: 1, Memory: 1}},
	})
	want = 0.1 + 6*0.01 + 2*(2*2*1000/link+12*0.1)
	if math.Abs(shared.Time.Seconds()-want) > 1e-6 || math.Abs(shared.Load[0]-2*8*0.1/want) > 1e-6 || math.Abs(shared.Load[1]-2*4*0.1/want) > 1e-6 {
		t.Errorf("%v with loads %v, want %v s", shared.Time, shared.Load, want)
	}
	// On slots of one machine there is no network.
	slots := highEnd.slots()
	j.processes = 2
	j.app = &app{"MM", "pairs", 16, 1, 2, 1000, false}
	near := p.alone(&j, slots, &model.Allocation{Parts: []model.Part{{Node: 0, Cores: 1, GPUs: 1}, {Node: 3, Cores: 1, GPUs: 1}}})
	if slots[3].name != "node1-1" || math.Abs(near.Time.Seconds()-(0.12+0.1/gtx480.Power())) > 1e-6 {
		t.Errorf("%s: %v", slots[3].name, near.Time)
	}
}

// The clusters are those of Tables 4-3 and 4-4, and the jobs those of Table 4-5.
func TestTables(t *testing.T) {
	counts := func(c *cluster) (text string) {
		for _, m := range c.machines {
			text += string(rune('0' + len(m.cards)))
		}
		return text
	}
	if counts(&highEnd) != "432" || counts(&commodity) != "11111111" {
		t.Error(counts(&highEnd), counts(&commodity))
	}
	names := func(c *cluster) (text string) {
		for _, j := range sequence(c) {
			text += j.String() + " "
		}
		return text
	}
	if got := names(&highEnd); got != "ADFA[8] MM[4] NW[4] MM[4] NW[4] MM[4] " {
		t.Error(got)
	}
	if got := names(&commodity); got != "ADFA[8] MM[4] NW[4] MM[4] NW[4] ADFA[8] NW[4] NW[4] " {
		t.Error(got)
	}
	var order []string
	for _, h := range highEnd.slots() {
		order = append(order, h.name)
	}
	if got := strings.Join(order, " "); got != "node1-0 node2-0 node3-0 node1-1 node2-1 node3-1 node1-2 node2-2 node1-3" {
		t.Error(got)
	}
}
