package clientcore

import "muster/wire"

// State is the part of a client that changes, except the directory of its memory.
type State struct {
	Now   Time   // of the last event
	World uint64 // the number of resets; what is found out about an earlier world does not count

	Lease    Lease
	Release  *Release   // the lease is being returned
	Contexts []*Context // open now: first the one at home, then further ones
	Further  []Further  `json:",omitempty"` // devices lent besides that of the lease, or asked for
	Together bool       `json:",omitempty"` // launches are no longer mapped
	Made     uint64     // number of contexts so far

	Current wire.Header // of the message handled last, one of whose operations may still fail
	Head    *Head       // the message that waits; nil if none does
	Parked  *Head       // the same in a client that was restored with its program and is held
	Backlog Backlog

	Modules  Modules
	Streams  Streams
	Events   map[uint32]*Event
	Graphs   map[uint32]*Graph `json:",omitempty"`
	Limits   map[uint32]uint64 // set by the program, by number
	Heap     uint64            `json:",omitempty"` // bytes of the heap of kernels that call malloc; 0: there is none yet
	Textures Textures
	Hosts    Hosts
	Mapped   []Mapping // memory of the program that kernels access
	Shared   []Shared  // memory shared with other clients

	// Failure is the result of the next synchronising call, once: what a real driver would have
	// returned from the launch itself.
	Failure Result
	// Sticky is the result of every call after a fault, until a reset; Faulted says why.
	Sticky  Result
	Faulted *Failure
	Told    []string // reasons that the user was told in this world

	Committed uint64 // bytes of room on the host that the daemon has committed
	Asked     Commits
	Activity  Activity

	// What the operation that asks is about.
	opening   *Context
	leaving   *Op // a Leave or a Backup
	loading   uint64
	loadingAt *Context // a further one; nil: the one at home
	making    []Textured
}

// Head is a message that waits.
type Head struct {
	Message Message
	Made    bool // its module is made, but only a device can tell what the module contains

	Finished bool // all earlier work has ended

	Step int `json:",omitempty"` // of a graph launch: number of steps done

	found  *Outcome // what its image contains
	linked *Outcome // the result of its link

	described *Outcome // its kernel's attributes

	replacement *replacement // not a message, but a client that is to replace this one
}
