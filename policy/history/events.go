package history

import (
	"fmt"
	"time"

	"muster/model"
	"muster/policy"
)

// event is a line of a history behind its header.
type event interface {
	// check says what about the event makes no sense.
	check() error
	// told is the event for a state.
	told() policy.Event
	// answered is the line's answer.
	answered() *answer
}

// head is the word for an event.
type head struct {
	Do string `json:"do"`
}

// answer is what a state said: "" where it did what it was told. It is part of
// each event, so that a difference is seen where it begins.
type answer struct {
	Error string `json:"error,omitempty"`
}

func (a *answer) answered() *answer { return a }

// The events as they stand in the file.
type (
	submitted struct {
		head
		Job job          `json:"job"`
		ID  policy.JobID `json:"id"` // -1 where there was an error
		answer
	}
	adopted struct {
		head
		Job         job          `json:"job"`
		Alternative int          `json:"alternative,omitempty"`
		Alloc       allocation   `json:"alloc"`
		Started     int64        `json:"started_ns"`
		ID          policy.JobID `json:"id"`
		answer
	}
	// changed is what concerns one job and nothing else.
	changed struct {
		head
		ID policy.JobID `json:"id"`
		answer
	}
	measured struct {
		head
		ID       policy.JobID   `json:"id"`
		Measured model.Measured `json:"measured"`
		answer
	}
	ranked struct {
		head
		ID   policy.JobID `json:"id"`
		Rank int64        `json:"rank"`
		answer
	}
	nodeAdded struct {
		head
		Node   node      `json:"node"`
		Types  []gpuType `json:"gpu_types,omitempty"`
		Number int32     `json:"number"`
		answer
	}
	devicesAdded struct {
		head
		Number int32     `json:"number"`
		GPUs   []int     `json:"gpus"`
		Types  []gpuType `json:"gpu_types,omitempty"`
		answer
	}
	nodeSet struct {
		head
		Number int32  `json:"number"`
		State  string `json:"state"`
		answer
	}
	nodeWeighed struct {
		head
		Number int32 `json:"number"`
		Weight int   `json:"weight,omitempty"`
		answer
	}
	deviceSet struct {
		head
		Number int32 `json:"number"`
		Device int32 `json:"device"`
		Up     bool  `json:"up"`
		answer
	}
	configured struct {
		head
		Number   int32              `json:"number"`
		Settings model.NodeSettings `json:"settings"`
		answer
	}
	heard struct {
		head
		Number   int32 `json:"number"`
		Alive    bool  `json:"alive,omitempty"`
		At       int64 `json:"at_ns"`
		Reported int64 `json:"reported_ns"`
		Assigned int   `json:"assigned,omitempty"`
		Waiting  int   `json:"waiting,omitempty"`
		answer
	}
	windowsSet struct {
		head
		Windows []window `json:"windows"`
		answer
	}
	stepped struct {
		head
		At     int64      `json:"at_ns"`
		Plan   plan       `json:"plan"`
		answer `json:"-"` // there is none besides the plan
	}
)

// The words for events.
const (
	submitWord     = "submit"
	adoptWord      = "adopt"
	cancelWord     = "cancel"
	endWord        = "end"
	requeueWord    = "requeue"
	suspendedWord  = "suspended"
	staysWord      = "stays"
	parkedWord     = "parked"
	resumedWord    = "resumed"
	measuredWord   = "measured"
	rankWord       = "rank"
	addNodeWord    = "add-node"
	addDevicesWord = "add-devices"
	setNodeWord    = "set-node"
	weighNodeWord  = "weigh-node"
	setDeviceWord  = "set-device"
	configureWord  = "configure-node"
	heardWord      = "heard-node"
	setWindowsWord = "set-windows"
	stepWord       = "step"
)

// newEvent makes an empty event of a kind; nil if there is no such.
func newEvent(word string) event {
	switch word {
	case submitWord:
		return new(submitted)
	case adoptWord:
		return new(adopted)
	case cancelWord, endWord, requeueWord, suspendedWord, staysWord, parkedWord, resumedWord:
		return new(changed)
	case measuredWord:
		return new(measured)
	case rankWord:
		return new(ranked)
	case addNodeWord:
		return new(nodeAdded)
	case addDevicesWord:
		return new(devicesAdded)
	case setNodeWord:
		return new(nodeSet)
	case weighNodeWord:
		return new(nodeWeighed)
	case setDeviceWord:
		return new(deviceSet)
	case configureWord:
		return new(configured)
	case heardWord:
		return new(heard)
	case setWindowsWord:
		return new(windowsSet)
	case stepWord:
		return new(stepped)
	}
	return nil
}

// latest is the last instant of a history: sums of times stay in range.
const latest = time.Duration(1) << 61

func (e *submitted) check() error { return e.Job.model().Validate() }

func (e *adopted) check() error {
	if at := time.Duration(e.Started); at < -latest || at > latest {
		return fmt.Errorf("started_ns %d is out of range", e.Started)
	}
	return e.Job.model().Validate()
}

func (*changed) check() error { return nil }
func (*ranked) check() error  { return nil }

// The state checks what was measured.
func (*measured) check() error { return nil }

// The state checks nodes and devices.
func (*nodeAdded) check() error    { return nil }
func (*devicesAdded) check() error { return nil }
func (*nodeWeighed) check() error  { return nil }
func (*deviceSet) check() error    { return nil }
func (*configured) check() error   { return nil }

func (e *heard) check() error {
	for _, at := range [...]int64{e.At, e.Reported} {
		if at := time.Duration(at); at < 0 || at > latest && at != policy.Never {
			return fmt.Errorf("the time %d is out of range", at)
		}
	}
	return nil
}

func (e *nodeSet) check() error {
	_, err := policy.ParseNodeState(e.State)
	return err
}

func (e *windowsSet) check() error {
	for _, w := range e.Windows {
		for _, at := range [...]int64{w.From, w.Until} {
			if at := time.Duration(at); at < -latest || at > latest {
				return fmt.Errorf("window %.64q: the time %d is out of range", w.Name, at)
			}
		}
	}
	return nil
}

func (e *stepped) check() error {
	if at := time.Duration(e.At); at < 0 || at > latest {
		return fmt.Errorf("at_ns %d is out of range", e.At)
	}
	return nil
}

// lineOf is the line for an event and its answer; nil for one that makes no sense in a file. number
// says which numbers jobs have there.
func lineOf(e policy.Event, a policy.Answer, number func(policy.JobID) policy.JobID) event {
	is := answer{text(a.Err)}
	of := func(word string, id policy.JobID) event { return &changed{head{word}, number(id), is} }
	switch e := e.(type) {
	case policy.Submitted:
		return &submitted{head{submitWord}, jobOf(e.Job), number(a.Job), is}
	case policy.Adopted:
		return &adopted{head{adoptWord}, jobOf(e.Job), e.Alternative, allocationOf(e.Alloc), int64(e.Started), number(a.Job), is}
	case policy.Cancelled:
		return of(cancelWord, e.Job)
	case policy.Ended:
		return of(endWord, e.Job)
	case policy.Requeued:
		return of(requeueWord, e.Job)
	case policy.Suspended:
		return of(suspendedWord, e.Job)
	case policy.Stays:
		return of(staysWord, e.Job)
	case policy.Parked:
		return of(parkedWord, e.Job)
	case policy.Resumed:
		return of(resumedWord, e.Job)
	case policy.Measured:
		return &measured{head{measuredWord}, number(e.Job), e.Measured, is}
	case policy.Ranked:
		return &ranked{head{rankWord}, number(e.Job), e.Rank, is}
	case policy.NodeAdded:
		return &nodeAdded{head{addNodeWord}, nodeOf(&e.Node), typesOf(e.Types), a.Node, is}
	case policy.DevicesAdded:
		return &devicesAdded{head{addDevicesWord}, e.Node, e.GPUs, typesOf(e.Types), is}
	case policy.NodeSet:
		if e.State <= policy.NodeDown {
			return &nodeSet{head{setNodeWord}, e.Node, e.State.String(), is}
		}
	case policy.NodeWeighed:
		return &nodeWeighed{head{weighNodeWord}, e.Node, e.Weight, is}
	case policy.DeviceSet:
		return &deviceSet{head{setDeviceWord}, e.Node, e.Device, e.Up, is}
	case policy.NodeConfigured:
		return &configured{head{configureWord}, e.Node, e.Settings, is}
	case policy.NodeHeard:
		h := &e.Heard
		return &heard{head{heardWord}, e.Node, h.Alive, int64(h.At), int64(h.Reported), h.Assigned, h.Waiting, is}
	case policy.WindowsSet:
		return &windowsSet{head{setWindowsWord}, windowsOf(e.Windows), is}
	case policy.Stepped:
		return &stepped{head: head{stepWord}, At: int64(e.Now), Plan: planOf(a.Plan, number)}
	}
	return nil
}

func (e *submitted) told() policy.Event { return policy.Submitted{Job: e.Job.model()} }

func (e *adopted) told() policy.Event {
	return policy.Adopted{Job: e.Job.model(), Alternative: e.Alternative, Alloc: e.Alloc.model(), Started: time.Duration(e.Started)}
}

func (e *changed) told() policy.Event { return e.of(e.ID) }

// of says the same of a job that has another number.
func (e *changed) of(id policy.JobID) policy.Event {
	switch e.Do {
	case cancelWord:
		return policy.Cancelled{Job: id}
	case endWord:
		return policy.Ended{Job: id}
	case requeueWord:
		return policy.Requeued{Job: id}
	case suspendedWord:
		return policy.Suspended{Job: id}
	case staysWord:
		return policy.Stays{Job: id}
	case parkedWord:
		return policy.Parked{Job: id}
	}
	return policy.Resumed{Job: id}
}

func (e *measured) told() policy.Event { return policy.Measured{Job: e.ID, Measured: e.Measured} }

func (e *ranked) told() policy.Event { return policy.Ranked{Job: e.ID, Rank: e.Rank} }

func (e *nodeAdded) told() policy.Event {
	return policy.NodeAdded{Node: e.Node.model(), Types: modelTypes(e.Types)}
}

func (e *devicesAdded) told() policy.Event {
	return policy.DevicesAdded{Node: e.Number, GPUs: e.GPUs, Types: modelTypes(e.Types)}
}

func (e *nodeSet) told() policy.Event {
	st, _ := policy.ParseNodeState(e.State) // it was checked
	return policy.NodeSet{Node: e.Number, State: st}
}

func (e *nodeWeighed) told() policy.Event {
	return policy.NodeWeighed{Node: e.Number, Weight: e.Weight}
}

func (e *deviceSet) told() policy.Event {
	return policy.DeviceSet{Node: e.Number, Device: e.Device, Up: e.Up}
}

func (e *configured) told() policy.Event {
	return policy.NodeConfigured{Node: e.Number, Settings: e.Settings}
}

func (e *heard) told() policy.Event {
	return policy.NodeHeard{Node: e.Number, Heard: policy.Heard{
		Alive: e.Alive, At: time.Duration(e.At), Reported: time.Duration(e.Reported), Assigned: e.Assigned, Waiting: e.Waiting,
	}}
}

func (e *windowsSet) told() policy.Event {
	return policy.WindowsSet{Windows: policyWindows(e.Windows)}
}

func (e *stepped) told() policy.Event { return policy.Stepped{Now: time.Duration(e.At)} }
