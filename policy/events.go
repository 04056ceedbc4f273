package policy

import (
	"time"

	"muster/model"
)

// Event is something that a driver tells a State: one of the types below. They are values, so that
// what a state was told can be written down and told again (package history). The methods of State
// that have the events' names say the same in fewer words.
type Event interface {
	apply(s *State) Answer
}

// Answer is what a state says to an event.
type Answer struct {
	Job  JobID // Submitted and Adopted: the number that the job got, or -1
	Node int32 // NodeAdded: the number that the node got, or -1
	Plan *Plan // Stepped
	// Err says why the event was refused: the state is as it was before, but for Requeued.
	Err error
}

func refused(err error) Answer { return Answer{Err: err} }

// The events.
type (
	// Submitted is a new job in the queue. Nobody may change the job afterwards.
	Submitted struct{ Job *model.Job }
	// Adopted is a job that runs already, for instance after a restart of the driver. The allocation
	// is checked as for a start, except that its nodes may be draining or down: the job is there. A
	// suspended job must be adopted before the jobs that run in its place, and the driver must tell
	// at once that it is suspended.
	Adopted struct {
		Job         *model.Job
		Alternative int
		Alloc       *model.Allocation
		Started     time.Duration
	}
	// Cancelled is a waiting job that leaves the queue.
	Cancelled struct{ Job JobID }
	// Ended is a running or suspended job that is over; what it held is free. A job that holds
	// nothing is refused, which includes one whose end was told before.
	Ended struct{ Job JobID }
	// Requeued is a running or suspended job that is back in the queue, at the place it had before.
	// If it can no longer run on this cluster, it is over, and the error wraps ErrImpossible.
	Requeued struct{ Job JobID }
	// Suspended is a running job that the driver has suspended: others may have its cores and GPUs,
	// but not the memory of its nodes. A resume that was under way is void.
	Suspended struct{ Job JobID }
	// Parked is a suspended job that the policy is to leave alone: somebody has suspended it by hand, or its
	// driver saves it, to move it. The policy neither resumes nor moves it, and keeps nothing free for it, until
	// it is resumed or requeued, or Stays.
	Parked struct{ Job JobID }
	// Stays is a suspended job that was to be moved, and cannot be: it is where it was, and is not to be
	// moved any more before it has been requeued. It is parked no longer.
	Stays struct{ Job JobID }
	// Resumed is a suspended job that runs again, with everything it had. If other jobs have some of
	// that now it is refused, and the job stays suspended. Of a running job that was to be stopped,
	// it says that the driver did not stop it.
	Resumed struct{ Job JobID }
	// Measured is what the processes of a running or suspended job did since it was started. It changes no
	// decision by itself: policies that ask for it (Plan.Profile) see it in the view.
	Measured struct {
		Job      JobID
		Measured model.Measured
	}
	// Ranked moves a job in the queue: jobs with larger ranks are before all others, whatever the
	// policy orders by. Jobs start with rank 0. A running job keeps its rank, which counts when it
	// is requeued.
	Ranked struct {
		Job  JobID
		Rank int64
	}
	// NodeAdded is a node at the end of the order, up and idle. Its GPUs are indexes into Types or,
	// if there are none, into the types of the cluster. Types that the cluster does not have are
	// added to it.
	NodeAdded struct {
		Node  model.Node
		Types []model.GPUType
	}
	// DevicesAdded are devices of a node after those it has. GPUs and Types are as in NodeAdded.
	DevicesAdded struct {
		Node  int32
		GPUs  []int
		Types []model.GPUType
	}
	// NodeSet says what a node may be used for from now on. Jobs that run there are not touched: the
	// driver ends, requeues or suspends them, and tells that.
	NodeSet struct {
		Node  int32
		State NodeState
	}
	// NodeWeighed gives a node another weight; 0 is the default. Jobs get nodes with smaller weights first.
	NodeWeighed struct {
		Node   int32
		Weight int
	}
	// DeviceSet says whether a device of a node may be used from now on.
	DeviceSet struct {
		Node, Device int32
		Up           bool
	}
	// NodeConfigured says what the policy has said of a node before (Plan.Configure): for a state that is to be
	// what another one was.
	NodeConfigured struct {
		Node     int32
		Settings model.NodeSettings
	}
	// NodeHeard is what the driver knows of a node from the node itself. It changes no decision by itself:
	// policies that ask for it (Plan.Watch) see it in the view.
	NodeHeard struct {
		Node  int32
		Heard Heard
	}
	// WindowsSet replaces the windows, with effect from the next step.
	WindowsSet struct{ Windows []Window }
	// Stepped lets the policy decide. Its plan is applied line by line; one that the ledger refuses
	// carries its error.
	Stepped struct{ Now time.Duration }
)

// Apply takes an event in.
func (s *State) Apply(e Event) Answer { return tell(s, e) }

// SetRecorder has every event passed on, with the state's answer, as soon as it was taken in; nil
// ends that. The plan in an answer is valid until the next step.
func (s *State) SetRecorder(record func(Event, Answer)) { s.recorder = record }

// tell is the only way by which a state changes. The event becomes an interface, which costs memory,
// only if somebody records.
func tell[E Event](s *State, e E) Answer {
	a := e.apply(s)
	if s.recorder != nil {
		s.recorder(e, a)
	}
	return a
}

// Submit says Submitted, and returns the number that the job got.
func (s *State) Submit(j *model.Job) (JobID, error) {
	a := tell(s, Submitted{j})
	return a.Job, a.Err
}

// Adopt says Adopted, and returns the number that the job got.
func (s *State) Adopt(j *model.Job, alternative int, alloc *model.Allocation, started time.Duration) (JobID, error) {
	a := tell(s, Adopted{j, alternative, alloc, started})
	return a.Job, a.Err
}

// Cancel says Cancelled.
func (s *State) Cancel(id JobID) error { return tell(s, Cancelled{id}).Err }

// End says Ended.
func (s *State) End(id JobID) error { return tell(s, Ended{id}).Err }

// Requeue says Requeued.
func (s *State) Requeue(id JobID) error { return tell(s, Requeued{id}).Err }

// Suspended says Suspended.
func (s *State) Suspended(id JobID) error { return tell(s, Suspended{id}).Err }

// Parked says Parked.
func (s *State) Parked(id JobID) error { return tell(s, Parked{id}).Err }

// Stays says Stays.
func (s *State) Stays(id JobID) error { return tell(s, Stays{id}).Err }

// Resumed says Resumed.
func (s *State) Resumed(id JobID) error { return tell(s, Resumed{id}).Err }

// Rank says Ranked.
func (s *State) Rank(id JobID, rank int64) error { return tell(s, Ranked{id, rank}).Err }

// AddNode says NodeAdded, and returns the number that the node got.
func (s *State) AddNode(n model.Node, types ...model.GPUType) (int32, error) {
	a := tell(s, NodeAdded{n, types})
	return a.Node, a.Err
}

// AddDevices says DevicesAdded.
func (s *State) AddDevices(n int32, gpus []int, types ...model.GPUType) error {
	return tell(s, DevicesAdded{n, gpus, types}).Err
}

// SetNode says NodeSet.
func (s *State) SetNode(n int32, st NodeState) error { return tell(s, NodeSet{n, st}).Err }

// Weigh says NodeWeighed.
func (s *State) Weigh(n int32, weight int) error { return tell(s, NodeWeighed{n, weight}).Err }

// SetDevice says DeviceSet.
func (s *State) SetDevice(n, device int32, up bool) error {
	return tell(s, DeviceSet{n, device, up}).Err
}

// SetWindows says WindowsSet.
func (s *State) SetWindows(list []Window) error { return tell(s, WindowsSet{list}).Err }

// Step says Stepped, and returns the plan.
func (s *State) Step(now time.Duration) *Plan { return tell(s, Stepped{now}).Plan }
