// Package phased describes programs that alternate between phases on the CPU and
// kernels on a GPU: applications of many processes, and how long each phase of
// each process takes.
//
// It knows what programs do, and not what runs them: no device, no mapper, no
// simulator.
package phased

import (
	"time"
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
	// Kernel names the code. Equal names in one application are one kernel.
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

// Draw is one phase of each kind, of one process.
type Draw struct {
	Kernel   int32 // its number, in the whole workload
	CPU, GPU time.Duration
	In, Out  int64
}
