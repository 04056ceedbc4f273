// Package phased describes programs that alternate between phases on the CPU and kernels on a GPU:
// applications of many processes, and the length of each phase of each process.
//
// It knows what programs do, and not what executes them: no device, no mapper, no simulator.
package phased

import (
	"fmt"
	"slices"
	"time"

	"muster/model/strictyaml"
)

// Workload is a set of applications that run at the same time.
type Workload struct {
	Name string
	Apps []App
}

// App is one application. It has nodes of its own, with the same number of processes on each.
type App struct {
	Name string
	// Nodes is the number of its nodes. The nodes of the first application come first.
	Nodes int
	// PerNode is the number of processes per node; 0 means one per core.
	PerNode int
	// Steps are executed in turn, repeatedly.
	Steps []Step
	// Iterations is the number of steps that each process makes before it ends; 0 means no end.
	Iterations int64
	// Barrier makes all processes wait for each other after each step, as with
	// MPI_Barrier.
	Barrier bool
	// Async lets a process begin its next step as soon as its kernel is launched.
	Async bool
	// Reuse is the fraction of a kernel's input that stays on the device, so that the next kernel
	// of the process need not send it there again.
	Reuse float64
	// Critical applications have exclusive use of the GPUs of their nodes, if the mapper supports
	// that.
	Critical bool
}

// Step is a phase on the CPU, and the kernel that follows it.
type Step struct {
	// Kernel is the name of the code; it may be empty. Equal names in one application are the same
	// kernel.
	Kernel string
	CPU    Time
	GPU    Time
	// In is what a remote device receives before the kernel, Out what it sends back.
	In, Out Size
}

// Size is an amount of data: in proportion to the kernel's run time, or drawn from a distribution.
type Size struct {
	// PerSecond is the number of bytes per second of the kernel's run time.
	PerSecond int64
	// Bytes is the distribution if PerSecond is 0.
	Bytes Dist
}

// Time is a span of time that is drawn: a distribution of nanoseconds.
type Time struct{ Dist }

// Kernels names the kernels of the workload by their numbers, as "application" or
// "application/kernel". Each name in each application has its own number.
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

// kernels numbers the kernels of an application's steps from 0, and counts the distinct ones.
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

// Nodes is the total number of nodes of all applications.
func (w *Workload) Nodes() int {
	n := 0
	for i := range w.Apps {
		n += w.Apps[i].Nodes
	}
	return n
}

// Limits of a workload, so that a typo causes an error.
const (
	maxNodes     = 1 << 24
	maxProcesses = 1 << 16 // on a node
	maxApps      = 1000
	maxSteps     = 1000
)

// Validate reports what is invalid on a cluster with the given number of nodes; 0 means one that is
// large enough.
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

// Draw is one step of a process: a CPU phase and a kernel.
type Draw struct {
	Kernel   int32 // its number in the whole workload
	CPU, GPU time.Duration
	In, Out  int64
}
