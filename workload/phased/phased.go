// Package phased describes programs that alternate between phases on the CPU and
// kernels on a GPU: applications of many processes, and how long each phase of
// each process takes.
//
// It knows what programs do, and not what runs them: no device, no mapper, no
// simulator.
package phased

import (
	"fmt"
	"slices"
	"time"

	"muster/model/strictyaml"
)

// Workload is applications that run at the same time.
type Workload struct {
	Name string
	Apps []App
}

// App is one application. It gets nodes of its own, as many of its processes on each.
type App struct {
	Name string
	// Nodes is how many nodes it has. Those of the first application come first.
	Nodes int
	// PerNode is how many processes run on each; 0 stands for as many as the node has cores.
	PerNode int
	// Steps are done in turn, again and again.
	Steps []Step
	// Iterations is how many steps each process makes before it ends; 0 is no end.
	Iterations int64
	// Barrier makes all processes wait for each other after each step, as with
	// MPI_Barrier.
	Barrier bool
	// Async lets a process begin its next step as soon as its kernel is launched.
	Async bool
	// Reuse is the part of a kernel's input, of 1, that stays on the device after it, and
	// that the next kernel of the process need not send there again.
	Reuse float64
	// Critical applications keep the GPUs of their nodes for themselves, where the
	// mapper protects them.
	Critical bool
}

// Step is a phase on the CPU, and the kernel that follows it.
type Step struct {
	// Kernel names the code; it may be empty. Equal names in one application are one
	// kernel.
	Kernel string
	CPU    Time
	GPU    Time
	// In is what a remote device is sent before the kernel, Out what it sends back.
	In, Out Size
}

// Size is an amount of data: some for each second of the kernel, or whatever
// its distribution says.
type Size struct {
	// PerSecond is bytes for each second that the kernel runs.
	PerSecond int64
	// Bytes are drawn where PerSecond is 0.
	Bytes Dist
}

// Time is a span of time that is drawn: a distribution of nanoseconds.
type Time struct{ Dist }

// Kernels names the kernels of the workload by their numbers, as "application" or
// "application/kernel": each name in each application has a number of its own.
func (w *Workload) Kernels() []string {
	var names []string
	for i := range w.Apps {
		a := &w.Apps[i]
		numbers, _ := a.kernels()
		first := len(names)
		for j, number := range numbers {
			if first+int(number) < len(names) {
				continue
			}
			name := a.Name
			if k := a.Steps[j].Kernel; k != "" {
				name += "/" + k
			}
			names = append(names, name)
		}
	}
	return names
}

// kernels numbers the kernels of an application's steps from 0, and counts those that
// are different.
func (a *App) kernels() (numbers []int32, different int32) {
	numbers = make([]int32, len(a.Steps))
	if len(a.Steps) == 1 {
		return numbers, 1
	}
	known := make(map[string]int32)
	for i := range a.Steps {
		number, ok := known[a.Steps[i].Kernel]
		if !ok {
			number = int32(len(known))
			known[a.Steps[i].Kernel] = number
		}
		numbers[i] = number
	}
	return numbers, int32(len(known))
}

// Nodes is how many all applications have together.
func (w *Workload) Nodes() int {
	n := 0
	for i := range w.Apps {
		n += w.Apps[i].Nodes
	}
	return n
}

// What a workload may have at most, so that a slip costs an error.
const (
	maxNodes     = 1 << 24
	maxProcesses = 1 << 16 // on a node
	maxApps      = 1000
	maxSteps     = 1000
)

// Validate says what makes no sense, on a cluster of some nodes; 0 stands for one
// that is large enough.
func (w *Workload) Validate(nodes int) error {
	if w.Name != "" {
		if err := strictyaml.CheckName(w.Name); err != nil {
			return fmt.Errorf("the name of a workload %w", err)
		}
	}
	if len(w.Apps) == 0 || len(w.Apps) > maxApps {
		return fmt.Errorf("a workload has from 1 to %d applications, not %d", maxApps, len(w.Apps))
	}
	for i := range w.Apps {
		a := &w.Apps[i]
		if err := strictyaml.CheckName(a.Name); err != nil {
			return fmt.Errorf("the name of application %d %w", i+1, err)
		}
		if slices.ContainsFunc(w.Apps[:i], func(b App) bool { return b.Name == a.Name }) {
			return fmt.Errorf("two applications are called %s: give each a name of its own", a.Name)
		}
		if err := a.validate(); err != nil {
			return fmt.Errorf("application %s: %w", a.Name, err)
		}
	}
	if all := w.Nodes(); nodes > 0 && all > nodes {
		return fmt.Errorf("the applications have %d nodes, and the cluster has %d: give them fewer, or take a larger cluster", all, nodes)
	}
	return nil
}

func (a *App) validate() error {
	switch {
	case a.Nodes < 1 || a.Nodes > maxNodes:
		return fmt.Errorf("it needs from 1 to %d nodes, not %d", maxNodes, a.Nodes)
	case a.PerNode < 0 || a.PerNode > maxProcesses:
		return fmt.Errorf("it may have up to %d processes on a node, not %d", maxProcesses, a.PerNode)
	case len(a.Steps) == 0 || len(a.Steps) > maxSteps:
		return fmt.Errorf("it needs from 1 to %d steps, not %d", maxSteps, len(a.Steps))
	case a.Iterations < 0:
		return fmt.Errorf("it cannot make %d steps: 0 is without end", a.Iterations)
	case !(a.Reuse >= 0 && a.Reuse <= 1):
		return fmt.Errorf("what it uses again must be from 0 to 1 of its input, not %v", a.Reuse)
	case a.Barrier && a.Async:
		return fmt.Errorf("it has barriers and launches asynchronously: a barrier waits for kernels, so choose one")
	}
	cpu, all := 0.0, 0.0
	for i := range a.Steps {
		s := &a.Steps[i]
		if err := s.validate(); err != nil {
			return fmt.Errorf("step %d: %w", i+1, err)
		}
		cpu += s.CPU.Mean
		all += s.CPU.Mean + s.GPU.Mean
	}
	if a.Iterations == 0 && all == 0 {
		return fmt.Errorf("its steps take no time and have no end: give them some, or a number of iterations")
	}
	if a.Iterations == 0 && a.Async && cpu == 0 {
		return fmt.Errorf("it would launch kernels without end at one instant: give it time on the CPU, or a number of iterations")
	}
	return nil
}

func (s *Step) validate() error {
	if s.Kernel != "" {
		if err := strictyaml.CheckName(s.Kernel); err != nil {
			return fmt.Errorf("the name of a kernel %w", err)
		}
	}
	for _, d := range []struct {
		what string
		dist *Dist
	}{{"cpu", &s.CPU.Dist}, {"gpu", &s.GPU.Dist}, {"upload", &s.In.Bytes}, {"download", &s.Out.Bytes}} {
		if err := d.dist.validate(); err != nil {
			return fmt.Errorf("%s: %w", d.what, err)
		}
	}
	for _, z := range []*Size{&s.In, &s.Out} {
		if z.PerSecond < 0 || z.PerSecond > maxPerSecond {
			return fmt.Errorf("data of %d bytes a second: give from 0 to %d", z.PerSecond, int64(maxPerSecond))
		}
		if z.PerSecond != 0 && z.Bytes != (Dist{}) {
			return fmt.Errorf("data are so much a second, or drawn, but not both")
		}
	}
	return nil
}

// Draw is one phase of each kind, of one process.
type Draw struct {
	Kernel   int32 // its number, in the whole workload
	CPU, GPU time.Duration
	In, Out  int64
}
