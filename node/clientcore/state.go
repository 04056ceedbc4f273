package clientcore

import "muster/wire"

// State is what changes of a client, but for the directory of its memory.
type State struct {
	Now   Time   // of the last event
	World uint64 // counts resets: what is found out about an earlier world is over

	Lease    Lease
	Release  *Release   // the lease is on its way back
	Contexts []*Context // open now: at the lease's device, and then at further ones
	Further  []Further  `json:",omitempty"` // devices that were lent beside that of the lease, or asked for
	Together bool       `json:",omitempty"` // no launch is mapped any more
	Made     uint64     // contexts so far

	Current wire.Header // of the message that was handled last: an operation of its may fail
	Head    *Head       // the message that waits; nil if none does
	Parked  *Head       // the same, of a client that was restored as a whole and has not gone on
	Backlog Backlog

	Modules  Modules
	Streams  Streams
	Events   map[uint32]*Event
	Graphs   map[uint32]*Graph `json:",omitempty"`
	Limits   map[uint32]uint64 // that the program has set, by number
	Textures Textures
	Hosts    Hosts
	Mapped   []Mapping // memory of the program's that kernels reach
	Shared   []Shared  // memory that other clients have, too

	// Failure is a result that the next synchronising call answers with, once:
	// what a program would have been told by the launch itself.
	Failure Result
	// Sticky is the result that every call answers with after a fault, until a
	// reset; Faulted says why.
	Sticky  Result
	Faulted *Failure
	Told    []string // reasons that the user was told in this world

	Committed uint64 // bytes that the daemon has room for on the host
	Asked     Commits
	Activity  Activity

	// What the operation that asks is about.
	opening   *Context
	leaving   *Op // or backing up
	loading   uint64
	loadingAt *Context // a further one; nil: at home
	making    []Textured
}

// Head is a message that waits.
type Head struct {
	Message Message
	Made    bool // its module was made, of which only a device can tell what it holds

	Finished bool // what ran before it has ended

	Step int `json:",omitempty"` // of a graph's: how many were done

	found  *Outcome // what its image holds
	linked *Outcome // what was made of its images

	described *Outcome // what its kernel is like

	replacement *replacement // it is no message, but a client that takes this one's place
}
