package head

import (
	"time"

	"muster/head/api"
	"muster/policy/priority"
	"muster/wire/agent"
)

// Instants are since 1970.

// Config is what an administrator decides.
type Config struct {
	Cluster string
	// Admins may touch everybody's jobs, and nodes.
	Admins []string
	// Limits of each user, and those of single users instead.
	Limits Limits
	Users  map[string]Limits
	// NodeTimeout is how long a node may be away before it counts as down and its
	// jobs as lost.
	NodeTimeout time.Duration
	// Silence is told to agents: how long either side may say nothing.
	Silence time.Duration
	// Grace is the time between SIGTERM and SIGKILL.
	Grace time.Duration
	// TimeLimit is for jobs that ask for none; 0 is none.
	TimeLimit time.Duration
	// Keep is how long ended jobs are listed among the others.
	Keep time.Duration
	// Priority orders the queue, as Slurm does; nil leaves that to the policy.
	Priority *priority.Config
	Windows  []Window
	// Authority vouches for the gateways of nodes: certificates in PEM form.
	Authority string
	// Zone is where users' times of day are meant; nil is UTC.
	Zone *time.Location
}

// Limits bound what one user may have; 0 is no limit.
type Limits struct {
	Jobs    int   // that have not ended
	Running int   // that run
	GPUs    int   // of jobs that run
	Cores   int   // likewise
	Memory  int64 // likewise, of their nodes
}

// Session is one connection of an agent. The daemon numbers them.
type Session uint64

// Request is one request of a user. The daemon numbers them.
type Request uint64

// Caller is who asks.
type Caller struct {
	Request Request
	User    string
}

// Event is what the core is told. It is one of the types below.
type Event interface{ event() }

type (
	// Submit is a new job. Secret is a random text from which its credentials are made.
	Submit struct {
		Caller
		Submission api.Submission
		Secret     string
	}
	// Cancel ends jobs; with a Signal they are sent that instead.
	Cancel struct {
		Caller
		Jobs   []Ref
		Signal int
	}
	// Change is one of the other things that can be done to jobs.
	Change struct {
		Caller
		Jobs     []Ref
		Action   Action
		Priority api.Priority // Prioritise
		Limit    int          // LimitDevices
	}
	// Node is something that an administrator does to nodes.
	Node struct {
		Caller
		Nodes  []string
		Action NodeAction
		Reason string
	}
	// Greeted: an agent has connected.
	Greeted struct {
		Session Session
		Hello   agent.Hello
	}
	// Said: an agent said something after its greeting.
	Said struct {
		Session Session
		Message agent.ToHead
	}
	// HungUp: an agent's connection has ended.
	HungUp struct{ Session Session }
	// Tick: what time it is. See Core.Next.
	Tick struct{}
)

func (Submit) event()  {}
func (Cancel) event()  {}
func (Change) event()  {}
func (Node) event()    {}
func (Greeted) event() {}
func (Said) event()    {}
func (HungUp) event()  {}
func (Tick) event()    {}

// Ref names a job, or one task of an array.
type Ref struct {
	Job  uint64
	Task int64 // -1: all of it
}

// Action is what can be done to a job.
type Action string

// The actions.
const (
	Hold         Action = "hold"
	Release      Action = "release"
	SuspendJob   Action = "suspend"
	ResumeJob    Action = "resume"
	RequeueJob   Action = "requeue"
	Prioritise   Action = "priority"
	LimitDevices Action = "limit"
)

// NodeAction is what can be done to a node.
type NodeAction string

// The actions.
const (
	DrainNode  NodeAction = "drain"
	ResumeNode NodeAction = "resume"
	RemoveNode NodeAction = "remove"
)

// Effects is what must be done, in the order of its fields.
type Effects struct {
	Records []Record
	Sends   []Send
	Answers []Answer
	Changes []api.Change
	// HangUps are sessions to be closed when what was sent to them has left.
	HangUps []Session
}

// Send is a message to an agent. What Start runs (script, arguments and environment)
// is not in it if Bulk is not 0: the daemon puts in what was submitted as that job.
type Send struct {
	Session Session
	Message agent.ToAgent
	Bulk    uint64
}

// Answer is what a request is answered with: Result is *api.Submitted or
// *api.Changed, or Err says why not.
type Answer struct {
	Request Request
	Result  any
	Err     *Refusal
}

// Refusal is why a request was refused.
type Refusal struct {
	Status int // as HTTP counts them
	Reason string
}

func (r *Refusal) Error() string { return r.Reason }

// Record is one entry of the store; one without a value is deleted.
type Record struct {
	Bucket Bucket
	Key    []byte
	Value  []byte
}

// Bucket is a part of the store.
type Bucket string

// The buckets.
const (
	Meta  Bucket = "meta"  // single values
	Jobs  Bucket = "jobs"  // that have not ended, by number
	Bulk  Bucket = "bulk"  // what they run, by number
	Ended Bucket = "ended" // that have, by number
	Nodes Bucket = "nodes" // by name
	Keys  Bucket = "keys"  // of submissions, by user and key
	// NodeLog is what nodes could be used for, by time and number; see NodeTurn.
	NodeLog Bucket = "node_log"
	// WhatIf is what other policies would have made of the last day and week, by name.
	// The core neither writes nor reads it.
	WhatIf Bucket = "whatif"
)

// What Refusal.Status may be: the numbers are HTTP's.
const (
	statusBadRequest          = 400
	statusForbidden           = 403
	statusNotFound            = 404
	statusConflict            = 409
	statusUnprocessableEntity = 422
	statusTooManyRequests     = 429
	statusServiceUnavailable  = 503
)
