package agent

import (
	"cmp"
	"fmt"
	"time"

	"muster/model"
)

// LoadPeriod is how often an agent measures how busy its node is. With what the head takes to gather loads, no
// report that the head has is a second old.
const LoadPeriod = 750 * time.Millisecond

// Load is how busy a node is. The agent measures it every LoadPeriod, and sends it only if it differs from what
// it sent last: its numbers are coarse, so that an idle cluster says nothing. A head that hears nothing more
// from a connected agent goes by the last.
type Load struct {
	// Use is the part of the time since the last measurement in which kernels ran on each device, in percent. The devices are
	// those of Inventory, in its order. So are those of Used, the MiB that programs have there, and
	// Guaranteed, the MiB that grants keep. Lists of numbers, since a head reads thousands of them a second.
	Use        []int `json:"use,omitempty"`
	Used       []int `json:"used,omitempty"`
	Guaranteed []int `json:"guaranteed,omitempty"`
	// Assigned is how many programs have a device now, and Waiting how many want one and have none.
	Assigned int `json:"assigned,omitempty"`
	Waiting  int `json:"waiting,omitempty"`
	// Longest is how long the first of those that wait has been waiting, rounded down to 1, 2 or 5 times
	// a power of ten seconds.
	Longest time.Duration `json:"longest,omitempty"`
	// SwapIn and SwapOut are the bytes of programs' memory that were moved to devices and from them, a
	// second, to two digits.
	SwapIn  uint64 `json:"swap_in,omitempty"`
	SwapOut uint64 `json:"swap_out,omitempty"`
}

// Profiles are what the programs of tasks measured, of those of which it has changed since the last Profiles.
// The agent sends them at the profiling period, and that of a task once more when the task ends.
type Profiles struct {
	Tasks []Profile `json:"tasks"`
}

// Profile is what was measured of a task on the agent's node: of its processes if they are there, and of its
// programs on the node's devices, also if these are lent to it.
type Profile struct {
	Task     Task           `json:"task"`
	Measured model.Measured `json:"measured"`
}

func (Load) Kind() string     { return "load" }
func (Profiles) Kind() string { return "profiles" }
func (Load) toHead()          {}
func (Profiles) toHead()      {}

// MaxPrograms is more programs than a node serves at a time.
const MaxPrograms = 1 << 20

func (l Load) check() error {
	switch {
	case len(l.Use) > model.MaxGPUsPerNode || len(l.Used) != len(l.Use) || len(l.Guaranteed) != len(l.Use):
		return fmt.Errorf("the use of %d devices, and the memory of %d and %d", len(l.Use), len(l.Used), len(l.Guaranteed))
	case min(l.Assigned, l.Waiting) < 0 || max(l.Assigned, l.Waiting) > MaxPrograms:
		return fmt.Errorf("%d and %d programs", l.Assigned, l.Waiting)
	case l.Longest < 0:
		return fmt.Errorf("a wait of %v", l.Longest)
	case max(l.SwapIn, l.SwapOut) > maxBytes:
		return fmt.Errorf("%d and %d bytes a second", l.SwapIn, l.SwapOut)
	}
	for i, use := range l.Use {
		if use < 0 || use > 100 || min(l.Used[i], l.Guaranteed[i]) < 0 || max(l.Used[i], l.Guaranteed[i]) > maxBytes>>20 {
			return fmt.Errorf("a device used to %d %%, %d and %d MiB", use, l.Used[i], l.Guaranteed[i])
		}
	}
	return nil
}

// maxBytes is more than any node moves or has: sums of them do not overflow.
const maxBytes = 1 << 60

func (p Profiles) check() error {
	if len(p.Tasks) > MaxTasks+MaxLoans {
		return fmt.Errorf("%d tasks", len(p.Tasks))
	}
	seen := make(map[Task]bool, len(p.Tasks))
	for i := range p.Tasks {
		if err := cmp.Or(p.Tasks[i].Task.check(), p.Tasks[i].Measured.Check()); err != nil {
			return err
		}
		if seen[p.Tasks[i].Task] { // the head would look for what it knows of a large job again and again
			return fmt.Errorf("task %v twice", p.Tasks[i].Task)
		}
		seen[p.Tasks[i].Task] = true
	}
	return nil
}
