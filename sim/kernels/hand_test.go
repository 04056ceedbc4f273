package kernels

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/mapping"
	"muster/model"
	"muster/workload/phased"
)

// Runs that are short enough to be worked out by hand. A port carries 1 MB/s, so
// that 1000 bytes take 1 ms, where nothing else is said.

// handCluster has a node for each of its arguments: cores, then the speeds of its GPUs.
func handCluster(nodes ...[]float64) *model.Cluster {
	c := &model.Cluster{Remote: model.Remote{Latency: time.Millisecond}}
	for i, n := range nodes {
		node := model.Node{Name: fmt.Sprint("n", i), Cores: int(n[0]), Link: model.Link{Bandwidth: 1_000_000}}
		for _, speed := range n[1:] {
			node.GPUs = append(node.GPUs, len(c.GPUTypes))
			c.GPUTypes = append(c.GPUTypes, model.GPUType{Name: fmt.Sprint("g", len(c.GPUTypes)), Speed: speed})
		}
		c.Nodes = append(c.Nodes, node)
	}
	return c
}

// handApp has steps of one kind, with times in milliseconds.
func handApp(nodes, perNode int, iterations int64, cpu, gpu float64, in, out int64) phased.App {
	step := phased.Step{}
	step.CPU.Dist = phased.ConstantOf(time.Duration(cpu * 1e6))
	step.GPU.Dist = phased.ConstantOf(time.Duration(gpu * 1e6))
	step.In.Bytes, step.Out.Bytes = phased.ConstantOf(in), phased.ConstantOf(out)
	return phased.App{Nodes: nodes, PerNode: perNode, Iterations: iterations, Steps: []phased.Step{step}}
}

func handWorkload(apps ...phased.App) *phased.Workload {
	for i := range apps {
		apps[i].Name = fmt.Sprint("a", i)
	}
	return &phased.Workload{Apps: apps}
}

// script answers with these devices, one call after the other.
func script(devices ...int32) func(*mapping.Layout) (mapping.Mapper, error) {
	return func(*mapping.Layout) (mapping.Mapper, error) {
		next := 0
		return mapperFunc(func(*mapping.Call, *mapping.View) int32 {
			next++
			return devices[(next-1)%len(devices)]
		}), nil
	}
}

// handLog writes a line for each call: its process and device, and when it had each stage.
type handLog struct{ lines []string }

func (l *handLog) Event(e Event) {
	if e.Stage == Launched {
		l.lines = append(l.lines, fmt.Sprintf("p%d", e.Process))
	}
	if e.Stage == Queued && e.Device >= 0 {
		return // as the next to come: holding, or waiting for it
	}
	line := &l.lines[e.Call]
	if e.Stage == Holding {
		*line += fmt.Sprintf(" d%d", e.Device)
	}
	*line += fmt.Sprintf(" %s %g", stageNames[e.Stage], float64(e.At)/1e6)
	if e.Stage == Sending || e.Stage == Returning {
		*line += fmt.Sprintf(" (%d)", e.Bytes)
	}
}

func (l *handLog) Rate(time.Duration, int64, int64) {}

type handRun struct {
	name   string
	config Config
	want   string
}

var handRuns = []handRun{
	{
		// Latency: 1 ms, and 0.25 ms of the caller's link. 2000 bytes take 2 ms, 500 take 0.5 ms.
		// The device is free when the kernel ends, and the second step begins with the results.
		name: "a remote call",
		config: Config{
			Cluster: func() *model.Cluster {
				c := handCluster([]float64{1}, []float64{1, 1})
				c.Nodes[0].Link.Latency = 250 * time.Microsecond
				c.Nodes[1].Link.Latency = 7 * time.Second // of a link that no call begins at
				return c
			}(),
			Workload: handWorkload(handApp(1, 1, 2, 5, 10, 2000, 500)),
			Mapper:   script(0),
		},
		want: `
p0 launched 5 d0 holding 5 sending 6.25 (2000) running 8.25 released 18.25 returning 18.25 (500) done 18.75
p0 launched 23.75 d0 holding 23.75 sending 25 (2000) running 27 released 37 returning 37 (500) done 37.5`,
	},
	{
		// The output of the first call travels from 13 to 15 ms, while the second has the device.
		name: "the device is free while results travel",
		config: Config{
			Cluster:  handCluster([]float64{2}, []float64{1, 1}),
			Workload: handWorkload(handApp(1, 2, 1, 1, 10, 1000, 2000)),
			Mapper:   script(0),
		},
		want: `
p0 launched 1 d0 holding 1 sending 2 (1000) running 3 released 13 returning 13 (2000) done 15
p1 launched 1 d0 holding 13 sending 14 (1000) running 15 released 25 returning 25 (2000) done 27`,
	},
	{
		name: "the device is held while results travel",
		config: Config{
			Cluster:     handCluster([]float64{2}, []float64{1, 1}),
			Workload:    handWorkload(handApp(1, 2, 1, 1, 10, 1000, 2000)),
			Mapper:      script(0),
			HoldResults: true,
		},
		want: `
p0 launched 1 d0 holding 1 sending 2 (1000) running 3 returning 13 (2000) released 15 done 15
p1 launched 1 d0 holding 15 sending 16 (1000) running 17 returning 27 (2000) released 29 done 29`,
	},
	{
		// Both go to node 2. The first has its port from 2 to 3 ms, and sends 1000 of 3000 bytes. From
		// then on each has half: the second, with 1000, is through at 5 ms. The first has
		// 1000 left, and all of the port: 6 ms.
		name: "two uploads share a port",
		config: Config{
			Cluster: handCluster([]float64{1}, []float64{1}, []float64{1, 1, 1}),
			Workload: handWorkload(
				handApp(1, 1, 1, 1, 4, 3000, 0), handApp(1, 1, 1, 2, 4, 1000, 0),
			),
			Mapper: script(0, 1),
		},
		want: `
p0 launched 1 d0 holding 1 sending 2 (3000) running 6 released 10 returning 10 (0) done 10
p1 launched 2 d1 holding 2 sending 3 (1000) running 5 released 9 returning 9 (0) done 9`,
	},
	{
		// The port of node 0 carries 250 KB/s, so that of the 1 MB/s of node 2 the other call has 750.
		name: "what one cannot use the other has",
		config: Config{
			Cluster: func() *model.Cluster {
				c := handCluster([]float64{1}, []float64{1}, []float64{1, 1, 1})
				c.Nodes[0].Link.Bandwidth = 250_000
				return c
			}(),
			Workload: handWorkload(
				handApp(1, 1, 1, 1, 4, 1000, 0), handApp(1, 1, 1, 1, 4, 3000, 0),
			),
			Mapper: script(0, 1),
		},
		want: `
p0 launched 1 d0 holding 1 sending 2 (1000) running 6 released 10 returning 10 (0) done 10
p1 launched 1 d1 holding 1 sending 2 (3000) running 6 released 10 returning 10 (0) done 10`,
	},
	{
		// Data out of a node do not hinder those into it: both nodes send 2000 bytes from 2
		// to 4 ms, and receive as many.
		name: "ports are full duplex",
		config: Config{
			Cluster: handCluster([]float64{1, 1}, []float64{1, 1}),
			Workload: handWorkload(
				handApp(1, 1, 1, 1, 4, 2000, 0), handApp(1, 1, 1, 1, 4, 2000, 0),
			),
			Mapper: script(1, 0),
		},
		want: `
p0 launched 1 d1 holding 1 sending 2 (2000) running 4 released 8 returning 8 (0) done 8
p1 launched 1 d0 holding 1 sending 2 (2000) running 4 released 8 returning 8 (0) done 8`,
	},
	{
		// Far nodes: 1.5 times the latency of 1 ms, and 1.1 x 1.5 times the bytes.
		name: "overhead, and another switch",
		config: Config{
			Cluster: func() *model.Cluster {
				c := handCluster([]float64{1}, []float64{1, 1}, []float64{1, 1})
				c.Remote.Overhead, c.Remote.Far = 1.1, 1.5
				c.Nodes[2].Switch = "other"
				return c
			}(),
			Workload: handWorkload(handApp(1, 1, 2, 1, 2, 2000, 1000)),
			Mapper:   script(0, 1),
		},
		want: `
p0 launched 1 d0 holding 1 sending 2 (2200) running 4.2 released 6.2 returning 6.2 (1100) done 7.3
p0 launched 8.3 d1 holding 8.3 sending 9.8 (3300) running 13.1 released 15.1 returning 15.1 (1650) done 16.75`,
	},
	{
		// Three quarters of the input stay where the call before was: device 0 has them for the
		// second step, but not device 1 for the third.
		name: "data used again",
		config: Config{
			Cluster: handCluster([]float64{1}, []float64{1, 1, 1}),
			Workload: func() *phased.Workload {
				a := handApp(1, 1, 4, 1, 2, 4000, 0)
				a.Reuse = 0.75
				return handWorkload(a)
			}(),
			Mapper: script(0, 0, 1, 1),
		},
		want: `
p0 launched 1 d0 holding 1 sending 2 (4000) running 6 released 8 returning 8 (0) done 8
p0 launched 9 d0 holding 9 sending 10 (1000) running 11 released 13 returning 13 (0) done 13
p0 launched 14 d1 holding 14 sending 15 (4000) running 19 released 21 returning 21 (0) done 21
p0 launched 22 d1 holding 22 sending 23 (1000) running 24 released 26 returning 26 (0) done 26`,
	},
	{
		// The GPU of node 1 is twice as fast, but its process waits for the other.
		name: "a barrier",
		config: Config{
			Cluster: handCluster([]float64{1, 1}, []float64{1, 2}),
			Workload: func() *phased.Workload {
				a := handApp(2, 1, 2, 1, 6, 0, 0)
				a.Barrier = true
				return handWorkload(a)
			}(),
			Mapper: script(0, 1),
		},
		want: `
p0 launched 1 d0 holding 1 running 1 released 7 done 7
p1 launched 1 d1 holding 1 running 1 released 4 done 4
p0 launched 8 d0 holding 8 running 8 released 14 done 14
p1 launched 8 d1 holding 8 running 8 released 11 done 11`,
	},
	{
		// One core for three processes: they launch at 2, 4 and 6 ms. The first is back at
		// 5 ms, while the third computes, and has the core from 6 to 8 ms; and so on.
		name: "processes wait for a core",
		config: Config{
			Cluster:  handCluster([]float64{1, 1, 1, 1}),
			Workload: handWorkload(handApp(1, 3, 2, 2, 3, 0, 0)),
			Mapper:   script(0, 1, 2),
		},
		want: `
p0 launched 2 d0 holding 2 running 2 released 5 done 5
p1 launched 4 d1 holding 4 running 4 released 7 done 7
p2 launched 6 d2 holding 6 running 6 released 9 done 9
p0 launched 8 d0 holding 8 running 8 released 11 done 11
p1 launched 10 d1 holding 10 running 10 released 13 done 13
p2 launched 12 d2 holding 12 running 12 released 15 done 15`,
	},
	{
		// Device 0 serves its own queue, call 1, before the shared one, call 3. At 11 ms both devices
		// are free; call 1 was launched before call 2, so that device 0 is free first.
		name: "own queue first",
		config: Config{
			Cluster:  handCluster([]float64{4, 1, 0.5}),
			Workload: handWorkload(handApp(1, 4, 1, 1, 5, 0, 0)),
			Mapper:   script(0, 0, mapping.Anywhere, mapping.Anywhere),
		},
		want: `
p0 launched 1 d0 holding 1 running 1 released 6 done 6
p1 launched 1 d0 holding 6 running 6 released 11 done 11
p2 launched 1 d1 holding 1 running 1 released 11 done 11
p3 launched 1 queued 1 d0 holding 11 running 11 released 16 done 16`,
	},
	{
		// All are idle from the beginning: the first takes the first call. It is idle again at
		// 2 ms, after the two that have never run anything.
		name: "the device that has been idle longest",
		config: Config{
			Cluster:  handCluster([]float64{1, 1, 1, 1}),
			Workload: handWorkload(handApp(1, 1, 4, 1, 1, 0, 0)),
			Mapper:   script(mapping.Anywhere),
		},
		want: `
p0 launched 1 d0 holding 1 running 1 released 2 done 2
p0 launched 3 d1 holding 3 running 3 released 4 done 4
p0 launched 5 d2 holding 5 running 5 released 6 done 6
p0 launched 7 d0 holding 7 running 7 released 8 done 8`,
	},
	{
		name: "launches that wait for nothing",
		config: Config{
			Cluster: handCluster([]float64{1, 1}),
			Workload: func() *phased.Workload {
				a := handApp(1, 1, 3, 1, 3, 0, 0)
				a.Async = true
				return handWorkload(a)
			}(),
			Mapper: script(0),
		},
		want: `
p0 launched 1 d0 holding 1 running 1 released 4 done 4
p0 launched 2 d0 holding 4 running 4 released 7 done 7
p0 launched 3 d0 holding 7 running 7 released 10 done 10`,
	},
	{
		// Both inputs share the port out from 2 ms on and are there at 4 ms. They join the queue in the order of
		// launch, and the device is not held before.
		name: "sent ahead, data are there before the device is free",
		config: Config{
			Cluster:   handCluster([]float64{2}, []float64{1, 1}),
			Workload:  handWorkload(handApp(1, 2, 1, 1, 10, 1000, 2000)),
			Mapper:    script(0),
			SendAhead: true,
		},
		want: `
p0 launched 1 sending 2 (1000) d0 holding 4 running 4 released 14 returning 14 (2000) done 16
p1 launched 1 sending 2 (1000) d0 holding 14 running 14 released 24 returning 24 (2000) done 26`,
	},
	{
		// The device is held until the results of the first are there, at 16 ms.
		name: "sent ahead, the device is held while results travel",
		config: Config{
			Cluster:     handCluster([]float64{2}, []float64{1, 1}),
			Workload:    handWorkload(handApp(1, 2, 1, 1, 10, 1000, 2000)),
			Mapper:      script(0),
			SendAhead:   true,
			HoldResults: true,
		},
		want: `
p0 launched 1 sending 2 (1000) d0 holding 4 running 4 returning 14 (2000) released 16 done 16
p1 launched 1 sending 2 (1000) d0 holding 16 running 16 returning 26 (2000) released 28 done 28`,
	},
	{
		// The kernel of the device's own node ends at 5 ms, and the device is idle until the data are there at 8 ms.
		name: "sent ahead, the device is idle when data arrive",
		config: Config{
			Cluster: handCluster([]float64{1}, []float64{1, 1}),
			Workload: handWorkload(
				handApp(1, 1, 1, 2, 4, 5000, 0), handApp(1, 1, 1, 1, 4, 0, 0),
			),
			Mapper:    script(0),
			SendAhead: true,
		},
		want: `
p1 launched 1 d0 holding 1 running 1 released 5 done 5
p0 launched 2 sending 3 (5000) d0 holding 8 running 8 released 12 returning 12 (0) done 12`,
	},
	{
		// The same with a second kernel of the device's own node at 6 ms, which finds the device idle: what is on its way
		// has no place in the queue.
		name: "sent ahead, a later call has the device while data travel",
		config: Config{
			Cluster: handCluster([]float64{1}, []float64{1, 1}),
			Workload: handWorkload(
				handApp(1, 1, 1, 2, 4, 5000, 0), handApp(1, 1, 2, 1, 4, 0, 0),
			),
			Mapper:    script(0),
			SendAhead: true,
		},
		want: `
p1 launched 1 d0 holding 1 running 1 released 5 done 5
p0 launched 2 sending 3 (5000) d0 holding 10 running 10 released 14 returning 14 (0) done 14
p1 launched 6 d0 holding 6 running 6 released 10 done 10`,
	},
	{
		// The first has sent 1000 of its 5000 bytes at 3 ms, when the second takes half of the port in. That is through
		// at 5 ms, and runs; the first has 3000 left, is there at 8 ms, and waits.
		name: "sent ahead, smaller data overtake",
		config: Config{
			Cluster: handCluster([]float64{1}, []float64{1}, []float64{1, 1}),
			Workload: handWorkload(
				handApp(1, 1, 1, 1, 4, 5000, 0), handApp(1, 1, 1, 2, 4, 1000, 0),
			),
			Mapper:    script(0),
			SendAhead: true,
		},
		want: `
p0 launched 1 sending 2 (5000) d0 holding 9 running 9 released 13 returning 13 (0) done 13
p1 launched 2 sending 3 (1000) d0 holding 5 running 5 released 9 returning 9 (0) done 9`,
	},
	{
		// The first has an idle device at its launch, the second none before 13 ms: both hold it from then on, and their
		// latency begins.
		name: "calls that are left to any device are not sent ahead",
		config: Config{
			Cluster:   handCluster([]float64{2}, []float64{1, 1}),
			Workload:  handWorkload(handApp(1, 2, 1, 1, 10, 1000, 2000)),
			Mapper:    script(mapping.Anywhere),
			SendAhead: true,
		},
		want: `
p0 launched 1 d0 holding 1 sending 2 (1000) running 3 released 13 returning 13 (2000) done 15
p1 launched 1 queued 1 d0 holding 13 sending 14 (1000) running 15 released 25 returning 25 (2000) done 27`,
	},
	{
		// Three quarters of the second input stay where the first went, though that is still on its way. The second
		// takes half of the port from 3 to 5 ms, and runs first; the first, of which 3000 bytes were left, is there at 7 ms. The third goes
		// to the device of its own node.
		name: "sent ahead, by launches that wait for nothing and use data again",
		config: Config{
			Cluster: handCluster([]float64{1, 1}, []float64{1, 1}),
			Workload: func() *phased.Workload {
				a := handApp(1, 1, 3, 1, 10, 4000, 0)
				a.Async, a.Reuse = true, 0.75
				return handWorkload(a)
			}(),
			Mapper:    script(1, 1, 0),
			SendAhead: true,
		},
		want: `
p0 launched 1 sending 2 (4000) d1 holding 15 running 15 released 25 returning 25 (0) done 25
p0 launched 2 sending 3 (1000) d1 holding 5 running 5 released 15 returning 15 (0) done 15
p0 launched 3 d0 holding 3 running 3 released 13 done 13`,
	},
	{
		// Nothing after 9 ms: the second call is under way for 2 of its 4 ms.
		name: "the span is over",
		config: Config{
			Cluster:  handCluster([]float64{1, 1}),
			Workload: handWorkload(handApp(1, 1, 0, 1.5, 4, 0, 0)),
			Mapper:   script(0),
			Span:     9 * time.Millisecond,
		},
		want: `
p0 launched 1.5 d0 holding 1.5 running 1.5 released 5.5 done 5.5
p0 launched 7 d0 holding 7 running 7`,
	},
}

func TestRunsWorkedOutByHand(t *testing.T) {
	for _, run := range handRuns {
		t.Run(run.name, func(t *testing.T) {
			l := &handLog{}
			c := run.config
			c.Observe = l
			if _, err := Run(context.Background(), c); err != nil {
				t.Fatal(err)
			}
			if got, want := strings.Join(l.lines, "\n"), strings.TrimSpace(run.want); got != want {
				t.Errorf("got\n%s\nnot\n%s", got, want)
			}
		})
	}
}

// TestResultWorkedOutByHand adds up "a remote call" above, to the end and until 26 ms, where 1 of 2 ms of its second
// upload are over.
func TestResultWorkedOutByHand(t *testing.T) {
	const ms = time.Millisecond
	c := handRuns[0].config
	r, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	wantApp := AppResult{
		Name: "a0", Processes: 1, Launched: 2, Done: 2, Remote: 2,
		Transfer: 2 * 3750 * time.Microsecond, Run: 20 * ms, Ended: 1, LastEnd: 37500 * time.Microsecond,
	}
	wantDevice := DeviceResult{Node: 1, Busy: 20 * ms, Held: 26500 * time.Microsecond, Kernels: 2}
	if r.End != 37500*time.Microsecond || r.Apps[0] != wantApp || r.Devices[0] != wantDevice ||
		r.Nodes[0] != (NodeResult{4000, 1000}) || r.Nodes[1] != (NodeResult{1000, 4000}) {
		t.Errorf("%+v", *r)
	}
	if u := r.Utilisation(); u < 0.5333 || u > 0.5334 { // 20 of 37.5
		t.Errorf("utilisation %v", u)
	}
	if r.Wait() != 3750*time.Microsecond {
		t.Errorf("wait %v", r.Wait())
	}

	c.Span = 26 * ms
	if r, err = Run(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	wantApp = AppResult{
		Name: "a0", Processes: 1, Launched: 2, Done: 1, Remote: 1, Transfer: 3750 * time.Microsecond, Run: 10 * ms,
	}
	// Held: 5 to 18.25, and 23.75 to 26.
	wantDevice = DeviceResult{Node: 1, Busy: 10 * ms, Held: 15500 * time.Microsecond, Kernels: 1}
	if r.End != 26*ms || r.Apps[0] != wantApp || r.Devices[0] != wantDevice ||
		r.Nodes[0] != (NodeResult{3000, 500}) || r.Nodes[1] != (NodeResult{500, 3000}) {
		t.Errorf("until 26 ms: %+v", *r)
	}
}

// TestResultOfSendingAheadByHand adds up two of the runs above. All until the device is held is queueing, the way of the
// input too.
func TestResultOfSendingAheadByHand(t *testing.T) {
	const ms = time.Millisecond
	for _, want := range []struct {
		run     string
		span    time.Duration
		app     AppResult
		device  DeviceResult
		ofNodes []NodeResult
	}{
		{
			run: "sent ahead, data are there before the device is free",
			app: AppResult{
				Name: "a0", Processes: 2, Launched: 2, Done: 2, Remote: 2,
				Queue: (3 + 13) * ms, Transfer: (2 + 2) * ms, Run: 20 * ms, Ended: 2, LastEnd: 26 * ms,
			},
			device: DeviceResult{Node: 1, Busy: 20 * ms, Held: 20 * ms, Kernels: 2}, ofNodes: []NodeResult{{2000, 4000}, {4000, 2000}},
		},
		{
			run: "sent ahead, the device is idle when data arrive",
			app: AppResult{
				Name: "a0", Processes: 1, Launched: 1, Done: 1, Remote: 1, Queue: 6 * ms, Run: 4 * ms, Ended: 1, LastEnd: 12 * ms,
			},
			device: DeviceResult{Node: 1, Busy: 8 * ms, Held: 8 * ms, Kernels: 2}, ofNodes: []NodeResult{{5000, 0}, {0, 5000}},
		},
		{
			// What has travelled of the input counts.
			run: "sent ahead, the device is idle when data arrive", span: 4 * ms,
			app:    AppResult{Name: "a0", Processes: 1, Launched: 1},
			device: DeviceResult{Node: 1, Busy: 3 * ms, Held: 3 * ms}, ofNodes: []NodeResult{{1000, 0}, {0, 1000}},
		},
	} {
		at := slices.IndexFunc(handRuns, func(r handRun) bool { return r.name == want.run })
		c := handRuns[at].config
		c.Span = want.span
		r, err := Run(context.Background(), c)
		if err != nil {
			t.Fatal(err)
		}
		if r.Apps[0] != want.app || r.Devices[0] != want.device || !slices.Equal(r.Nodes, want.ofNodes) {
			t.Errorf("%s until %v: %+v", want.run, want.span, *r)
		}
	}
}

// TestStatusIsLate: a call is given to the device at 1 ms. With a delay of 3 ms, other nodes
// believe that it is idle until 4 ms; its own node knows immediately.
func TestStatusIsLate(t *testing.T) {
	var saw []string
	c := Config{
		Cluster: handCluster([]float64{1}, []float64{1, 1}),
		Workload: handWorkload(
			handApp(1, 1, 1, 1, 11, 0, 0),
			handApp(1, 1, 30, 1, 0, 0, 0), // looks each millisecond
		),
		Status: Status{Delay: 3 * time.Millisecond},
	}
	c.Workload.Apps[1].Async = true
	c.Mapper = func(*mapping.Layout) (mapping.Mapper, error) {
		return mapperFunc(func(call *mapping.Call, v *mapping.View) int32 {
			if call.Node == 0 {
				return 0
			}
			saw = append(saw, fmt.Sprint(v.Table.Queued(0), v.Local.Queued(0)))
			return mapping.Anywhere
		}), nil
	}
	if _, err := Run(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	// The first is seen at 1 ms, just after the launch. Calls that look wait in the shared queue until 13 ms,
	// and are on no device.
	want := strings.Repeat("0 1,", 3) + strings.Repeat("1 1,", 9)
	if got := strings.Join(saw[:12], ",") + ","; got != want {
		t.Errorf("saw %s, not %s", got, want)
	}
}

func TestRunRefuses(t *testing.T) {
	ctx := context.Background()
	over, cancel := context.WithCancel(ctx)
	cancel()
	ours := errors.New("no mapper today")
	for _, r := range []struct {
		what  string
		ctx   context.Context
		wrong func(*Config)
		is    error // nil is any
	}{
		{"more nodes than there are", ctx, func(c *Config) { c.Workload.Apps[0].Nodes = 3 }, nil},
		{"no end", ctx, func(c *Config) { c.Workload.Apps[0].Iterations = 0 }, nil},
		{"a barrier and launches that wait for nothing", ctx, func(c *Config) {
			c.Workload.Apps[0].Barrier, c.Workload.Apps[0].Async = true, true
		}, nil},
		{"a device that is not there", ctx, func(c *Config) { c.Mapper = script(1) }, nil},
		{"a window that needs too much memory", ctx, func(c *Config) { c.Window = 1<<27 + 1 }, nil}, // of 8 bytes
		{"a window beyond all numbers", ctx, func(c *Config) { c.Window = math.MaxInt }, nil},
		{"a share above 1", ctx, func(c *Config) { c.Status.FalsePositive = 1.5 }, nil},
		{"no mapper", ctx, func(c *Config) {
			c.Mapper = func(*mapping.Layout) (mapping.Mapper, error) { return nil, ours }
		}, ours},
		{"nobody waits for it", over, func(*Config) {}, context.Canceled},
	} {
		c := Config{
			Cluster:  handCluster([]float64{1}, []float64{1, 1}),
			Workload: handWorkload(handApp(1, 1, 1_000_000, 1, 1, 1000, 0)),
			Mapper:   script(0),
		}
		r.wrong(&c)
		if _, err := Run(r.ctx, c); err == nil || r.is != nil && !errors.Is(err, r.is) {
			t.Errorf("%s: %v", r.what, err)
		}
	}
}

func TestProgressIsTold(t *testing.T) {
	var told []time.Duration
	c := openQueue(1, millis(1), millis(0.5), 20_000)
	c.Progress = func(now time.Duration) { told = append(told, now) }
	r, err := Run(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	if len(told) < 2 || len(told) > 1000 || !slices.IsSorted(told) || told[len(told)-1] > r.End || told[len(told)-1] < r.End/2 {
		t.Errorf("told %d times, %v, of %v", len(told), told[:min(5, len(told))], r.End)
	}
}

// Windows may have 1 GiB, which is 2^27 run times; the value that the error recommends is accepted.
func TestWindowsAreBounded(t *testing.T) {
	e := &engine{Config: Config{Cluster: handCluster([]float64{1, 1, 1}, []float64{1, 1}), Window: 1<<27/3 + 1}}
	err := e.checkWindow()
	if err == nil || !strings.HasSuffix(err.Error(), "have one of 44739242 at most") {
		t.Fatalf("got %v", err)
	}
	if e.Window = 44739242; e.checkWindow() != nil {
		t.Errorf("the window that it asked for is refused: %v", e.checkWindow())
	}
	// Late reports need a second table.
	if e.Status.Delay = time.Second; e.checkWindow() == nil {
		t.Error("two tables of 1 GiB are let pass")
	}
}

// Sums that no number holds are refused, not wrong.
func TestEndlessWaiting(t *testing.T) {
	_, err := Run(context.Background(), Config{
		Cluster:  handCluster([]float64{1, 1}),
		Workload: handWorkload(handApp(1, 2000, 0, 1, 3.6e8, 0, 0)), // 2,000 processes, kernels of 100 h
		Mapper:   script(0),
		Span:     1_000_000 * time.Hour,
	})
	if err == nil || !strings.Contains(err.Error(), "simulate a shorter time") {
		t.Errorf("got %v", err)
	}
}
