// Package record is what a head writes to its disk, as types of its own: jobs, nodes, what jobs run,
// how they ended. What the wire says may change with it; these change only with a new version of the
// store, because earlier records must be read for as long as they lie there. It knows neither the
// core of the head, which makes and reads the records, nor the store, which keeps their bytes.
//
// Jobs that have not ended, nodes and keys are read strictly: a head does not go on from what it does
// not understand. A job that has ended (Ended) is read leniently.
package record

import (
	"time"

	"muster/internal/indexset"
)

// Job is a job that has not ended.
// It has a field for each thing that a head must know again.
type Job struct {
	Job      uint64        `json:"job"`
	Array    uint64        `json:"array,omitempty"`
	Task     int64         `json:"task"`
	Of       int           `json:"of,omitempty"`   // how many tasks the array has
	Rest     *indexset.Set `json:"rest,omitempty"` // the places of the tasks for which it stands
	User     string        `json:"user"`
	Dir      string        `json:"dir"`
	Key      string        `json:"key,omitempty"`
	Secret   string        `json:"secret"`
	Options  string        `json:"options"`
	Command  []string      `json:"command,omitempty"`
	State    string        `json:"state"`
	Held     uint8         `json:"held,omitempty"` // bits: by its user, by an administrator
	Priority *int64        `json:"priority,omitempty"`
	Nice     int64         `json:"nice,omitempty"`
	Submit   time.Duration `json:"submit"`
	Eligible time.Duration `json:"eligible,omitempty"`
	Start    time.Duration `json:"start,omitempty"`
	Attempt  uint32        `json:"attempt,omitempty"`
	Requeues uint32        `json:"requeues,omitempty"`
	Limit    int           `json:"limit"`
	// Unmet are the terms of the dependency that have not happened yet.
	Unmet     []Term        `json:"unmet,omitempty"`
	Never     bool          `json:"never,omitempty"`
	NotBefore time.Duration `json:"not_before,omitempty"`

	Alternative    int           `json:"alternative,omitempty"`
	Parts          []Part        `json:"parts,omitempty"`
	Grants         []Grant       `json:"grants,omitempty"`
	Lending        bool          `json:"lending,omitempty"`
	Relays         []Relay       `json:"relays,omitempty"`
	Usual          *Holds        `json:"usual,omitempty"` // how it has devices of which its user says nothing
	Suspend        bool          `json:"suspend,omitempty"`
	ByHand         bool          `json:"by_hand,omitempty"` // a user wants it suspended, and not the policy
	Asleep         bool          `json:"asleep,omitempty"`
	Stop           *Stop         `json:"stop,omitempty"`
	Suspended      time.Duration `json:"suspended,omitempty"`
	SuspendedSince time.Duration `json:"suspended_since,omitempty"`
	CPU            time.Duration `json:"cpu,omitempty"`
	Peak           int64         `json:"peak,omitempty"`
	Passage        *Passage      `json:"passage,omitempty"`
	Preempted      []Preemption  `json:"preempted,omitempty"`
}

// Preemption is one time at which a job made way for another.
type Preemption struct {
	At      time.Duration `json:"at"`
	By      string        `json:"by,omitempty"` // the other job's name
	ByUser  string        `json:"by_user,omitempty"`
	How     string        `json:"how"`
	Reason  string        `json:"reason"`
	Attempt uint32        `json:"attempt"`
	Start   time.Duration `json:"start"`
	Nodes   []string      `json:"nodes"`
	Devices []string      `json:"devices,omitempty"`
}

// Passage is a job's way from one node to another with what it has done so far.
type Passage struct {
	Wanted  bool          `json:"wanted,omitempty"` // it is to be saved
	Stays   string        `json:"stays,omitempty"`  // why it could not be
	Saves   int           `json:"saves,omitempty"`  // how often it was to be
	From    string        `json:"from,omitempty"`   // the folder in which it was saved
	Used    string        `json:"used,omitempty"`   // one from which it went on
	Shared  string        `json:"shared,omitempty"` // where these are
	Attempt uint32        `json:"attempt,omitempty"`
	Ran     time.Duration `json:"ran,omitempty"`
	Granted int           `json:"granted,omitempty"` // which of the job's requests
	Origin  string        `json:"origin,omitempty"`
	Before  []string      `json:"before,omitempty"` // nodes
	Not     []string      `json:"not,omitempty"`
	Retry   time.Duration `json:"retry,omitempty"`
	Rounds  int           `json:"rounds,omitempty"`
}

// Term is one condition of a job's dependency.
type Term struct {
	Kind  string
	Job   uint64
	Task  int64
	Delay time.Duration
}

// Part is what a job has on a node. Node is a number, since names are reused.
type Part struct {
	Node        int32  `json:"node"`
	Incarnation string `json:"incarnation"`
	Cores       int32  `json:"cores"`
	Memory      int64  `json:"memory,omitempty"`
	GPUs        uint64 `json:"gpus,omitempty"`
	Exclusive   bool   `json:"exclusive,omitempty"`
	State       string `json:"state"`
	End         *End   `json:"end,omitempty"`
}

// End is how a task ended.
type End struct {
	Cause  string        `json:"cause"`
	Exit   int           `json:"exit"`
	Signal int           `json:"signal,omitempty"`
	Reason string        `json:"reason,omitempty"`
	Began  time.Duration `json:"began,omitempty"`
	Ended  time.Duration `json:"ended,omitempty"`
	CPU    time.Duration `json:"cpu,omitempty"`
	Memory int64         `json:"memory,omitempty"`
}

// Relay says why a part uses devices of other nodes by relays.
type Relay struct {
	Part   int32  `json:"part"`
	Reason string `json:"reason"`
}

// Grant is a device that a part of a job has, or a share of it.
type Grant struct {
	For    int32 `json:"for"`
	Node   int32 `json:"node"`
	Device int32 `json:"device"`
	Memory int64 `json:"memory,omitempty"`
}

// Holds is how a job has its devices: whole ones, shares, and those that it asked for on any nodes.
type Holds struct {
	Whole  Hold `json:"whole"`
	Shares Hold `json:"shares"`
	Remote Hold `json:"remote"`
}

// Hold is how far from a device a job may be bound, and how much it may use beyond its share.
type Hold struct {
	Reach  string `json:"reach"`
	Beyond uint64 `json:"beyond,omitempty"`
}

// Stop is why the tasks of a job are being stopped.
type Stop struct {
	Cause   string `json:"cause"`
	Reason  string `json:"reason,omitempty"`
	Outcome string `json:"outcome,omitempty"`
	Requeue bool   `json:"requeue,omitempty"`
	Exit    int    `json:"exit,omitempty"`
}

// Node is a node, by its number.
type Node struct {
	Number      int32    `json:"number"`
	Name        string   `json:"name"`
	Incarnation string   `json:"incarnation"`
	User        string   `json:"user,omitempty"`
	Cores       int      `json:"cores"`
	Memory      int64    `json:"memory"`
	Devices     []Device `json:"devices,omitempty"`
	Gateway     string   `json:"gateway,omitempty"`
	Down        bool     `json:"down,omitempty"`
	Drained     bool     `json:"drained,omitempty"`
	Removed     bool     `json:"removed,omitempty"`
	Reason      string   `json:"reason,omitempty"`
	// Labels are what an administrator noted of it.
	Labels map[string]string `json:"labels,omitempty"`
	Since  time.Duration     `json:"since"`
}

// Device is a GPU of a node.
type Device struct {
	Name   string  `json:"name"`
	Memory int64   `json:"memory"`
	Speed  float64 `json:"speed"`
	Up     bool    `json:"up"`
	Lender string  `json:"lender,omitempty"`
}

// Meta is what there is once per cluster: the start of the policy's clock, and the next job number.
type Meta struct {
	Began time.Duration `json:"began"`
	Next  uint64        `json:"next"`
}

// Bulk is what a job runs: large, and not kept in memory.
type Bulk struct {
	Script      string   `json:"script,omitempty"`
	Arguments   []string `json:"arguments,omitempty"`
	Environment []string `json:"environment,omitempty"`
}

// Key is the key of a submission, with the answer that it got.
type Key struct {
	At     time.Duration `json:"at"`
	Answer Answer        `json:"answer"`
}

// Answer is what a submission became. Earlier heads wrote the notes of the answer, too.
type Answer struct {
	Job   uint64   `json:"job"`
	Tasks int      `json:"tasks,omitempty"`
	Notes []string `json:"notes,omitempty"`
	Error string   `json:"error,omitempty"`
}
