package history

import (
	"fmt"
	"time"

	"muster/policy"
)

// event is a line of a history behind its header.
type event interface {
	// check says what about the event makes no sense.
	check() error
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
	// told is what concerns one job and nothing else.
	told struct {
		head
		ID policy.JobID `json:"id"`
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
	deviceSet struct {
		head
		Number int32 `json:"number"`
		Device int32 `json:"device"`
		Up     bool  `json:"up"`
		answer
	}
	windowsSet struct {
		head
		Windows []window `json:"windows"`
		answer
	}
	stepped struct {
		head
		At   int64 `json:"at_ns"`
		Plan plan  `json:"plan"`
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
	resumedWord    = "resumed"
	rankWord       = "rank"
	addNodeWord    = "add-node"
	addDevicesWord = "add-devices"
	setNodeWord    = "set-node"
	setDeviceWord  = "set-device"
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
	case cancelWord, endWord, requeueWord, suspendedWord, resumedWord:
		return new(told)
	case rankWord:
		return new(ranked)
	case addNodeWord:
		return new(nodeAdded)
	case addDevicesWord:
		return new(devicesAdded)
	case setNodeWord:
		return new(nodeSet)
	case setDeviceWord:
		return new(deviceSet)
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

func (*told) check() error   { return nil }
func (*ranked) check() error { return nil }

// The state checks nodes and devices.
func (*nodeAdded) check() error    { return nil }
func (*devicesAdded) check() error { return nil }
func (*deviceSet) check() error    { return nil }

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

// tell says of a job what a word means.
func tell(s *policy.State, what string, id policy.JobID) error {
	switch what {
	case cancelWord:
		return s.Cancel(id)
	case endWord:
		return s.End(id)
	case requeueWord:
		return s.Requeue(id)
	case suspendedWord:
		return s.Suspended(id)
	case resumedWord:
		return s.Resumed(id)
	}
	return fmt.Errorf("nothing is known of %q", what)
}
