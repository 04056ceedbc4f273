package head

import (
	"fmt"
	"muster/head/notices"
	"time"

	"muster/model"
	"muster/policy/priority"
	"muster/wire/agent"
	"muster/wire/api"
)

// All instants are durations since 1970.

// Config is what an administrator decides.
type Config struct {
	Cluster string
	// Heads and Term say to agents which head leads since when, if there are several (agent.Welcome).
	Heads string
	Term  uint64
	// Admins may change the jobs of all users, and nodes.
	Admins []string
	// Limits are those of every user; Users has those of single users, which replace them.
	Limits Limits
	// Accounts and QOS have the limits of all jobs of an account or class together, whoever's they are.
	Accounts map[string]Limits
	// Licenses is how many of each licence jobs may have together.
	Licenses map[string]int
	QOS      map[string]QOSLimits
	Users    map[string]Limits
	// MaxJobCount is how many jobs may not have ended at a time, an array counting as one; a user may
	// have half of them. MaxArraySize is how many tasks an array may have. 0 is no limit.
	MaxJobCount, MaxArraySize int
	// NodeTimeout is how long a node may be away before it counts as down and its
	// jobs as lost.
	NodeTimeout time.Duration
	// Silence is how long either end of an agent's connection may send nothing before the other
	// gives it up; agents are told.
	Silence time.Duration
	// Grace is the time between SIGTERM and SIGKILL.
	Grace time.Duration
	// TimeLimit is the time limit of jobs that ask for none; 0 is no limit.
	TimeLimit time.Duration
	// InactiveLimit is how long the command of an allocation may be silent before the allocation is
	// cancelled; 0 is no limit.
	InactiveLimit time.Duration
	// Keep is how long an ended job is listed among the others.
	Keep time.Duration
	// KeepOutput is for how long the head has nodes read what a job wrote that has ended.
	KeepOutput time.Duration
	// Priority makes the head order the queue, as Slurm does; nil leaves the order to the policy.
	Priority *priority.Config
	Windows  []Window
	// Partitions divide the nodes. Without any, a job may name any partition, and has all nodes.
	Partitions []model.Partition
	// NodeRules is what administrators say of nodes: later ones go before earlier ones.
	NodeRules []NodeRule
	// Authority vouches for the gateways of nodes: certificates in PEM form.
	Authority string
	// Holds is how jobs have their GPUs if their users say nothing.
	Holds model.Holds
	// Zone is the time zone of the times of day that users write; nil is UTC.
	Zone *time.Location
}

// Limits bound what one user may have, or one account or class; 0 is no limit.
type Limits struct {
	Jobs    int   // jobs that have not ended, each task of an array
	Running int   // jobs that run
	GPUs    int   // GPUs of jobs that run
	Cores   int   // cores of jobs that run
	Memory  int64 // memory on the nodes of jobs that run
	// licenses is how many of a licence jobs may have.
	licenses int
	// Deny refuses jobs that would have to wait for one of these limits.
	Deny bool
	// Latency lets a job's programs be of class latency, and Weight is the most that they may have; 0
	// counts as 1. Nodes give programs what their grant says, whatever their own limits are.
	Latency bool
	Weight  int
}

// QOSLimits bound what the jobs of a class have together, and those of each user in it.
type QOSLimits struct {
	Limits
	PerUser Limits
}

// Session is one connection of an agent. The daemon numbers them.
type Session uint64

// Request is one request of a user. The daemon numbers them.
type Request uint64

// Caller is the request, and the user who makes it.
type Caller struct {
	Request Request
	User    string
}

// Event is an input of the core: one of the types below.
type Event interface{ event() }

type (
	// Submit is a new job. Secret is a random text from which the job's credentials are derived.
	Submit struct {
		Caller
		Submission api.Submission
		Secret     string
	}
	// Cancel ends jobs, or sends them Signal if that is not 0.
	Cancel struct {
		Caller
		Jobs   Ref
		Signal int
	}
	// Change is one of the other actions on jobs.
	Change struct {
		Caller
		Jobs     Ref
		Action   Action
		Priority api.Priority // Prioritise
		Limit    int          // LimitDevices
	}
	// Keep says that the command of an allocation is there.
	Keep struct {
		Caller
		Job Ref
	}
	// Finish says that the command of an allocation has ended, and with which status.
	Finish struct {
		Caller
		Job  Ref
		Exit int
	}
	// Node is an administrator's action on nodes.
	Node struct {
		Caller
		Nodes  []string
		Action NodeAction
		Reason string            // DrainNode
		Force  bool              // RemoveNode: even if it is connected or has jobs, which are lost
		Name   string            // RenameNode
		Labels map[string]string // LabelNode: an empty value takes a label away
	}
	// Greeted: an agent has connected.
	Greeted struct {
		Session Session
		Hello   agent.Hello
	}
	// Said: an agent has sent a message other than its greeting.
	Said struct {
		Session Session
		Message agent.ToHead
	}
	// Unsent: a message that the core wanted sent was not, because its agent would refuse it.
	Unsent struct {
		Session Session
		Message agent.ToAgent
		Reason  string
	}
	// HungUp: an agent's connection has ended, for a reason that people are told.
	HungUp struct {
		Session Session
		Reason  string
	}
	// Tick: time has passed. See Core.Next.
	Tick struct{}
)

func (Submit) event()  {}
func (Cancel) event()  {}
func (Change) event()  {}
func (Keep) event()    {}
func (Finish) event()  {}
func (Node) event()    {}
func (Greeted) event() {}
func (Said) event()    {}
func (Unsent) event()  {}
func (HungUp) event()  {}
func (Tick) event()    {}

// Ref names a job, or tasks of an array.
type Ref struct {
	Job  uint64
	Task int64 // -1: the job, or all tasks of the array
	// Tasks names several tasks of the array, as --array does; Task is -1 then.
	Tasks string
}

// Action is an action on a job.
type Action string

// The actions.
const (
	Hold         Action = "hold"
	Release      Action = "release"
	SuspendJob   Action = "suspend"
	ResumeJob    Action = "resume"
	MoveJob      Action = "move"
	RequeueJob   Action = "requeue"
	Prioritise   Action = "priority"
	LimitDevices Action = "limit"
)

// NodeAction is an action on a node.
type NodeAction string

// The actions.
const (
	DrainNode  NodeAction = "drain"
	ResumeNode NodeAction = "resume"
	RemoveNode NodeAction = "remove"
	RenameNode NodeAction = "rename"
	LabelNode  NodeAction = "label"
)

// Effects is what the daemon must do, in the order of the fields.
type Effects struct {
	Records []Record
	Sends   []Send
	Answers []Answer
	Changes []api.Change
	// HangUps are sessions that the daemon closes once everything queued for them was sent.
	HangUps []Session
	// Notices are the notices of nodes that begin and end, for the log.
	Notices []notices.Change
}

// Send is a message to an agent. The daemon must first fill in what a Start
// runs (script, arguments and environment) from the job's bulk record: see FillIn. The core
// does not keep these in memory.
type Send struct {
	Session Session
	Message agent.ToAgent
}

// Answer is the answer to a request: Result is *api.Submitted or *api.Changed, or Err says why the
// request was refused.
type Answer struct {
	Request Request
	Result  any
	Err     *Refusal
}

// Refusal is why a request was refused.
type Refusal struct {
	Status int // an HTTP status
	Reason string
}

func (r *Refusal) Error() string { return r.Reason }

// Record is one entry of the store; a Record without a value deletes the entry.
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
	Jobs  Bucket = "jobs"  // jobs that have not ended, by number
	Bulk  Bucket = "bulk"  // what jobs run, by number
	Ended Bucket = "ended" // jobs that have ended, by number
	// Arrays is how the tasks of arrays have ended (Ends), by the arrays' numbers. It is kept as long
	// as Ended is.
	Arrays Bucket = "arrays"
	Nodes  Bucket = "nodes" // by name
	Keys   Bucket = "keys"  // keys of submissions, by user and key
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

func refusal(status int, format string, args ...any) *Refusal {
	return &Refusal{Status: status, Reason: fmt.Sprintf(format, args...)}
}

// Window is a reservation or a maintenance window: a time in which only the users and accounts
// listed may use the nodes; if none are listed, none may. Without Nodes, it covers all nodes.
type Window struct {
	Name            string
	From, Until     time.Duration
	Nodes           []string
	Users, Accounts []string
}

// NodeRule is what an administrator says of nodes: how they serve programs, their weight, or 0 to say nothing of
// it, and features that they have beside those of other rules. If none are named it is said of all.
type NodeRule struct {
	Nodes    []string
	Weight   int
	Features []string
	Settings model.NodeSettings
}
