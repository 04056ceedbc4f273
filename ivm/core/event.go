package core

// ElementID is an element's number: 0 is the one that the program began with.
type ElementID uint64

// NodeID is a node's place in the list of the program's nodes. The root daemon is on node 0.
type NodeID int

// Kind is what an element runs on.
type Kind uint32

// The kinds of devices.
const (
	CPU Kind = iota
	GPU
)

func (k Kind) String() string {
	if k == GPU {
		return "gpu"
	}
	return "cpu"
}

// Any stands for any node, or for any device of a kind.
const Any = -1

// Device is where elements are created.
type Device struct {
	Node   NodeID // or Any
	Kind   Kind
	Number int // of the GPU on its node, or Any
}

// NodeInfo is what a node has.
type NodeInfo struct {
	Name        string
	Cores, GPUs int
}

// Code says what kind of failure there was. The numbers are part of the protocol and of ivm.h.
type Code uint32

// The codes.
const (
	OK        Code = iota
	Invalid        // the call makes no sense: a bug of the program
	NoObject       // there is no object of that name
	Taken          // there is one already
	Dead           // an element that was waited for crashed, was killed, or lost its node
	Lost           // what is asked for was on a node that is lost
	Freed          // the object was freed
	Refused        // the node may not, or cannot, do it
	Over           // the program is over
	NoMemory       // there is no room
	NoElement      // there is no element of that number
	Cancelled      // the element no longer waits; programs in Go see the error of their context
)

// Failure is the reason why a request failed.
type Failure struct {
	Code Code
	Text string
}

func (f *Failure) Error() string { return f.Text }

// Caller names a request: the element that made it, and the number it gave to it.
type Caller struct {
	Element ElementID
	Tag     uint64
}

// Event is an input of Root. Each event with a Caller is answered by exactly one Answer.
type Event interface{ event() }

// The events.
type (
	// Exit says that an element has announced its end.
	Exit struct{ Element ElementID }
	// Ended says that an element's process has ended, or lost its connection. It is a crash if
	// the element has not said Exit.
	Ended struct {
		Element ElementID
		Reason  string
	}
	// Started says that an element's process runs; StartFailed, that it does not.
	Started     struct{ Element ElementID }
	StartFailed struct {
		Element ElementID
		Reason  string
	}
	// Joined says what a node has; NodeLost, that it is gone for good.
	Joined struct {
		Node NodeID
		Info NodeInfo
	}
	NodeLost struct {
		Node   NodeID
		Reason string
	}

	// Create asks for n elements on a device: one group.
	Create struct {
		Caller
		Device Device
		Count  int
	}
	// Kill ends elements.
	Kill struct {
		Caller
		Elements []ElementID
	}
	// SetMax sets the greatest number that an element may get.
	SetMax struct {
		Caller
		Max ElementID
	}
	// Wait waits for the next signal of an element, or its end.
	Wait struct {
		Caller
		For ElementID
	}
	// WaitLatest is Wait that counts all signals of the element so far as told.
	WaitLatest struct {
		Caller
		For ElementID
	}
	// WaitAny waits for the next signal or end of any other element.
	WaitAny struct{ Caller }
	// Signal answers the elements that wait for the caller.
	Signal struct{ Caller }
	// Barrier waits until all living elements of the caller's group have called it.
	Barrier struct{ Caller }
	// Cancel says that the element no longer waits for the answer to one of its Waits or Barriers.
	// Cancel has no answer of its own: the Wait is answered as Cancelled, unless it was answered
	// before. So the element knows whether it was told a signal.
	Cancel struct{ Of Caller }
	// Malloc registers an object under a name. Its master is on the caller's node, which chose
	// the number.
	Malloc struct {
		Caller
		Name   string
		Size   uint64
		Object uint64
	}
	// Free ends an object.
	Free struct {
		Caller
		Name string
	}
	// Lookup asks for an object.
	Lookup struct {
		Caller
		Name string
	}
)

func (Exit) event()        {}
func (Ended) event()       {}
func (Started) event()     {}
func (StartFailed) event() {}
func (Joined) event()      {}
func (NodeLost) event()    {}
func (Create) event()      {}
func (Kill) event()        {}
func (SetMax) event()      {}
func (Wait) event()        {}
func (WaitLatest) event()  {}
func (WaitAny) event()     {}
func (Signal) event()      {}
func (Barrier) event()     {}
func (Cancel) event()      {}
func (Malloc) event()      {}
func (Free) event()        {}
func (Lookup) event()      {}

// Object is what is known of a named object everywhere.
type Object struct {
	Number uint64
	Size   uint64
	Master NodeID
}

// Effect is something that the driver performs.
type Effect interface{ effect() }

// The effects.
type (
	// Answer answers a request, on the caller's node.
	Answer struct {
		Node    NodeID
		To      Caller
		Failure *Failure // nil if it was done
		Values  []uint64 // elements that were created; the element that WaitAny found
		Object  Object   // that Lookup found
	}
	// Start starts an element's process on a node.
	Start struct {
		Node    NodeID
		Element ElementID
		Group   uint64
		Device  Device // with a node and, of a GPU, a number
	}
	// Stop ends an element's process.
	Stop struct {
		Node    NodeID
		Element ElementID
	}
	// Drop ends all copies of an object, on every node.
	Drop struct{ Object Object }
	// Gone tells every node that one is lost, and with it the masters that were there.
	Gone struct {
		Node   NodeID
		Reason string
	}
	// Finish ends the program everywhere.
	Finish struct{ Reason string }
)

func (Answer) effect() {}
func (Start) effect()  {}
func (Stop) effect()   {}
func (Drop) effect()   {}
func (Gone) effect()   {}
func (Finish) effect() {}
