package vgpu

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// A small world for the core: processes that alternate between GPU and CPU,
// with a barrier among an application's processes after each GPU phase. It
// goes in steps of one millisecond. As in the figures, a GPU phase has its
// device for itself, in the order in which phases came there; leaving a slot
// takes swapTime.
const swapTime = 1

type phase struct{ gpu, cpu int } // in ms

type application struct {
	name      string
	processes [][]phase // of equal numbers of phases
}

type process struct {
	id      ClientID
	app     *running
	phases  []phase
	at      int
	left    int // of the GPU phase, or of the CPU phase
	doing   doing
	device  DeviceID
	bound   bool
	wanting bool
	leaves  int // ms until it has let go; 0: nobody asked
}

type doing uint8

const (
	onGPU doing = iota
	atBarrier
	onCPU
	finished
)

type running struct {
	processes []*process
}

type world struct {
	core  *Core
	ms    int
	procs []*process
	lines [][]*process // by device: who computes, and who waits for that
}

func newWorld(t *testing.T, cfg Config, apps []application) *world {
	t.Helper()
	core, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{core: core, lines: make([][]*process, len(cfg.Devices))}
	for _, a := range apps {
		app := &running{}
		for _, phases := range a.processes {
			p := &process{id: ClientID(len(w.procs) + 1), app: app, phases: phases, left: phases[0].gpu}
			app.processes = append(app.processes, p)
			w.procs = append(w.procs, p)
			w.perform(core.Step(0, Attach{Client: p.id, User: a.name, Weight: 1}))
		}
	}
	return w
}

func (w *world) now() Time { return Time(w.ms) * time.Millisecond }

func (w *world) perform(effects []Effect) {
	for _, e := range effects {
		p := w.procs[e.Client-1]
		switch e.Kind {
		case Grant:
			p.bound, p.wanting, p.device = true, false, e.Device
		case Revoke:
			p.leaves = swapTime
		case Watch:
			if e.On {
				w.report(p)
			}
		}
	}
}

func (w *world) report(p *process) {
	if p.doing == onGPU {
		w.perform(w.core.Step(w.now(), Busy{p.id}))
	} else {
		w.perform(w.core.Step(w.now(), Idle{Client: p.id}))
	}
}

// step lets one millisecond pass.
func (w *world) step() {
	for _, p := range w.procs {
		if p.leaves > 0 {
			if p.leaves--; p.leaves == 0 {
				p.bound = false
				w.perform(w.core.Step(w.now(), Released{Client: p.id, Keeps: 0}))
			}
		}
		if p.doing == onGPU && !p.bound && !p.wanting {
			p.wanting = true
			w.perform(w.core.Step(w.now(), Want{Client: p.id, Need: 10, Pinned: AnyDevice}))
		}
	}
	w.perform(w.core.Step(w.now(), Tick{}))
	for _, p := range w.procs {
		if p.doing == onGPU && p.bound && !slices.Contains(w.lines[p.device], p) {
			w.lines[p.device] = append(w.lines[p.device], p)
		}
	}
	w.ms++
	for i, line := range w.lines {
		if len(line) > 0 {
			w.compute(line[0], i)
		}
	}
	for _, p := range w.procs {
		if p.doing == onCPU {
			if p.left--; p.left == 0 {
				p.begin(w)
			}
		}
	}
	for _, p := range w.procs {
		p.passBarrier(w)
	}
}

func (w *world) compute(p *process, device int) {
	if p.left--; p.left == 0 {
		w.lines[device] = w.lines[device][1:]
		w.perform(w.core.Step(w.now(), Ran{p.id, 1, time.Duration(p.phases[p.at].gpu) * time.Millisecond}))
		p.doing = atBarrier
		w.report(p)
	}
}

func (p *process) passBarrier(w *world) {
	if p.doing != atBarrier || slices.ContainsFunc(p.app.processes, func(o *process) bool { return o.at == p.at && o.doing == onGPU }) ||
		slices.ContainsFunc(p.app.processes, func(o *process) bool { return o.at < p.at }) {
		return
	}
	for _, o := range p.app.processes {
		o.doing, o.left = onCPU, o.phases[o.at].cpu
		if o.left == 0 {
			o.begin(w)
		}
	}
}

// begin starts the next GPU phase.
func (p *process) begin(w *world) {
	if p.at++; p.at == len(p.phases) {
		p.doing = finished
		w.perform(w.core.Step(w.now(), Detach{p.id}))
		p.leaves = 0
		return
	}
	p.doing, p.left = onGPU, p.phases[p.at].gpu
	if p.bound {
		w.report(p)
	}
}

// run gives the time at which all have ended, or false if they never do.
func (w *world) run() (ms int, ok bool) {
	for w.ms < 100000 {
		if !slices.ContainsFunc(w.procs, func(p *process) bool { return p.doing != finished }) {
			return w.ms, true
		}
		w.step()
	}
	return w.ms, false
}

// batch is how a cluster's batch scheduler would do it: whole GPUs for as long
// as an application runs, applications in turn.
func batch(t *testing.T, gpus int, apps []application) int {
	t.Helper()
	free := make([]int, gpus)
	end := 0
	for _, a := range apps {
		n := len(a.processes)
		if n > gpus {
			t.Fatalf("application %s has more processes than there are GPUs", a.name)
		}
		slices.Sort(free)
		start := free[n-1]
		took := 0
		for k := range a.processes[0] {
			gpu, cpu := 0, 0
			for _, p := range a.processes {
				gpu, cpu = max(gpu, p[k].gpu), max(cpu, p[k].cpu)
			}
			took += gpu + cpu
		}
		for i := range n {
			free[i] = start + took
		}
		end = max(end, start+took)
	}
	return end
}

func gpus(n, slots int) (devices []Device) {
	for i := range n {
		devices = append(devices, Device{Name: fmt.Sprint("gpu", i), Slots: slots, Memory: 1000})
	}
	return devices
}

// Figure 3-2: processes of one application differ in length.
var figure32 = []application{
	{"A", [][]phase{{{40, 0}, {100, 0}}, {{60, 0}, {60, 0}}, {{160, 0}, {30, 0}}, {{60, 0}, {80, 0}}}},
	{"B", [][]phase{{{30, 0}}, {{80, 0}}}},
	{"C", [][]phase{{{120, 0}}, {{60, 0}}}},
}

// Figure 3-3: three processes each, four GPUs, work for the CPU at each barrier.
var figure33 = []application{
	{"A", [][]phase{{{60, 20}, {60, 20}, {60, 0}}, {{60, 20}, {60, 20}, {60, 0}}, {{60, 20}, {60, 20}, {60, 0}}}},
	{"B", [][]phase{{{80, 20}, {40, 20}, {60, 0}}, {{80, 20}, {40, 20}, {60, 0}}, {{80, 20}, {40, 20}, {60, 0}}}},
	{"C", [][]phase{{{50, 20}, {70, 20}, {50, 0}}, {{50, 20}, {70, 20}, {50, 0}}, {{50, 20}, {70, 20}, {50, 0}}}},
}

func TestFigures32And33PreemptionBeatsSharingBeatsBatch(t *testing.T) {
	for _, c := range []struct {
		name string
		apps []application
	}{{"figure 3-2", figure32}, {"figure 3-3", figure33}} {
		t.Run(c.name, func(t *testing.T) {
			play := func(slots int, idle time.Duration) int {
				ms, ok := newWorld(t, Config{Devices: gpus(4, slots), MaxIdle: idle}, c.apps).run()
				if !ok {
					t.Fatalf("%d slots, idle %v: it never ends", slots, idle)
				}
				return ms
			}
			inBatch := batch(t, 4, c.apps)
			shared := play(2, 0)
			preempted := play(1, 2*time.Millisecond)
			both := play(2, 2*time.Millisecond)
			t.Logf("batch %d ms, two-way sharing %d ms, preemption %d ms, both %d ms", inBatch, shared, preempted, both)
			if shared >= inBatch || preempted >= inBatch || both >= inBatch {
				t.Error("batch is not the slowest")
			}
			if min(preempted, both) > shared {
				t.Error("preemption does not help")
			}
		})
	}
}

// Scenario 3: more processes than virtual GPUs. Without preemption the first
// ones wait at the barrier for the others, who wait for them.
func TestScenario3(t *testing.T) {
	app := application{name: "A"}
	for range 11 {
		app.processes = append(app.processes, []phase{{5, 1}, {7, 1}, {3, 0}})
	}
	for _, policy := range []Policy{FCFS, SJF, Credit} {
		cfg := Config{Devices: gpus(2, 2), Policy: policy}
		if ms, ok := newWorld(t, cfg, []application{app}).run(); ok {
			t.Errorf("%v without preemption: it ended after %d ms", policy, ms)
		}
		cfg.MaxIdle = 10 * time.Millisecond
		if _, ok := newWorld(t, cfg, []application{app}).run(); !ok {
			t.Errorf("%v with preemption: it never ends", policy)
		}
		cfg.SlotLimit = 1
		if _, ok := newWorld(t, cfg, []application{app}).run(); !ok {
			t.Errorf("%v with a limit of one slot: it never ends", policy)
		}
	}
}

// Users who always want a GPU get time in proportion to their weights.
func TestCreditSharesConvergeToWeights(t *testing.T) {
	for _, weights := range [][]int{{1, 1}, {3, 1}, {1, 2, 5}, {10, 1, 1, 4}} {
		for _, slots := range []int{1, 2} {
			t.Run(fmt.Sprint(weights, " on ", slots), func(t *testing.T) {
				core, err := New(Config{Devices: gpus(1, slots), Policy: Credit, MaxIdle: 10 * time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				got := shares(core, weights, 2*slots, 60000)
				var all, sum float64
				for i, w := range weights {
					all += float64(w)
					sum += got[i]
				}
				for i, w := range weights {
					want, have := float64(w)/all, got[i]/sum
					if have < want*0.95 || have > want*1.05 {
						t.Errorf("user %d with weight %d has %.3f of the GPU, should have %.3f", i, w, have, want)
					}
				}
			})
		}
	}
}

// shares has each user keep so many clients that run kernels of 3 ms without
// a pause, and gives the GPU time of each user.
func shares(core *Core, weights []int, clients, ms int) []float64 {
	used := make([]float64, len(weights))
	bound := make([]bool, len(weights)*clients)
	leaving := make([]bool, len(bound))
	perform := func(effects []Effect) {
		for _, e := range effects {
			switch e.Kind {
			case Grant:
				bound[e.Client] = true
			case Revoke:
				leaving[e.Client] = true
			}
		}
	}
	for i := range bound {
		user := i / clients
		perform(core.Step(0, Attach{Client: ClientID(i), User: fmt.Sprint("user", user), Weight: weights[user]}))
		perform(core.Step(0, Want{Client: ClientID(i), Need: 1, Pinned: AnyDevice}))
	}
	for at := 3; at < ms; at += 3 {
		now := Time(at) * time.Millisecond
		for i := range bound {
			if !bound[i] {
				continue
			}
			used[i/clients] += 3
			perform(core.Step(now, Ran{ClientID(i), 1, 3 * time.Millisecond}))
			if leaving[i] {
				bound[i], leaving[i] = false, false
				perform(core.Step(now, Released{Client: ClientID(i), Keeps: 0}))
				perform(core.Step(now, Want{Client: ClientID(i), Need: 1, Pinned: AnyDevice}))
			}
		}
		perform(core.Step(now, Tick{}))
	}
	return used
}

// The shortest first makes the mean wait shorter than first come, first served.
func TestShortestJobFirstShortensWaits(t *testing.T) {
	mean := func(policy Policy) time.Duration {
		core, err := New(Config{Devices: gpus(1, 1), Policy: policy, MaxIdle: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		length := []int{90, 10, 50, 20, 70, 5}
		var current ClientID
		perform := func(effects []Effect) {
			for _, e := range effects {
				if e.Kind == Grant {
					current = e.Client
				}
			}
		}
		perform(core.Step(0, Attach{Client: 100, User: "ann", Weight: 1}))
		perform(core.Step(0, Want{Client: 100, Pinned: AnyDevice}))
		for i, ms := range length {
			perform(core.Step(0, Attach{Client: ClientID(i), User: "ann", Weight: 1}))
			perform(core.Step(0, Want{Client: ClientID(i), Estimate: time.Duration(ms) * time.Millisecond, Pinned: AnyDevice}))
		}
		var now, sum Time
		perform(core.Step(now, Released{Client: 100, Keeps: 0}))
		for range length {
			sum += now
			now += time.Duration(length[current]) * time.Millisecond
			perform(core.Step(now, Detach{current}))
		}
		return sum / Time(len(length))
	}
	if short, first := mean(SJF), mean(FCFS); short >= first {
		t.Errorf("the mean wait is %v, first come, first served gives %v", short, first)
	}
}
