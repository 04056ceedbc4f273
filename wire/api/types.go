package api

import "muster/model"

// MaxSubmission is how many bytes a submission may have: script, arguments and
// environment together.
const MaxSubmission = 8 << 20

// MaxBatch is how many submissions one request may have.
const MaxBatch = 10_000

// Submission is a job to be run.
type Submission struct {
	// Options are words as of a command line: ["-n4", "--gres=gpu:1"]. Those in the
	// script's #MUSTER and #SBATCH lines count too; these win.
	Options []string `json:"options,omitempty"`
	// Script is run once, on the first node, with Arguments. Without one, Arguments
	// are the command that all of the job's processes run.
	Script    string   `json:"script,omitempty"`
	Arguments []string `json:"arguments,omitempty"`
	// Allocation makes a job that runs nothing by itself, and has its nodes for the commands that are run
	// there (exec). Arguments say what for. It must be kept (keep), or is cancelled.
	Allocation bool `json:"allocation,omitempty"`
	// Directory is where it is run and what paths are relative to.
	Directory   string   `json:"directory"`
	Environment []string `json:"environment,omitempty"`
	// User may be given by administrators alone: whose job it is.
	User string `json:"user,omitempty"`
	// Key, if given, makes repeating harmless: a second submission of the same user
	// with the same key is the first one again.
	Key string `json:"key,omitempty"`
}

// Submitted answers a submission.
type Submitted struct {
	Job uint64 `json:"job"`
	// Tasks is how many jobs an array became; 0 if it is none.
	Tasks int `json:"tasks,omitempty"`
	// Notes tell where something is taken otherwise than it was written.
	Notes []string `json:"notes,omitempty"`
	// Error says why it was refused; of a list, others may have been taken.
	Error string `json:"error,omitempty"`
}

// State is how a job is, in Slurm's words.
type State string

// The states of jobs.
const (
	Pending     State = "PENDING"
	Running     State = "RUNNING"
	Suspended   State = "SUSPENDED"
	Completing  State = "COMPLETING"
	Completed   State = "COMPLETED"
	Failed      State = "FAILED"
	Cancelled   State = "CANCELLED"
	Timeout     State = "TIMEOUT"
	NodeFail    State = "NODE_FAIL"
	OutOfMemory State = "OUT_OF_MEMORY"
	Preempted   State = "PREEMPTED"
)

// JobLaunchFailure is the Reason of a job that has failed because a node could not start it. Its Signal is 53, as
// with Slurm, if its directory, input or output could not be opened there.
const JobLaunchFailure = "JobLaunchFailure"

// Over says whether a job in this state has ended.
func (s State) Over() bool {
	switch s {
	case Pending, Running, Suspended, Completing:
		return false
	}
	return true
}

// Jobs is a list of jobs.
type Jobs struct {
	Jobs []Job `json:"jobs"`
	// Next is what ?after= must be to go on; 0 at the end.
	Next uint64 `json:"next,omitempty"`
}

// Job is one job. What does not apply is left out.
// It has a field for each thing that is told of one.
type Job struct {
	ID uint64 `json:"job"`
	// ArrayJob and ArrayTask are of one task of an array.
	ArrayJob  uint64  `json:"array_job,omitempty"`
	ArrayTask *uint32 `json:"array_task,omitempty"`
	// ArrayTasks and ArrayCount are in place of ArrayTask where one document stands for several tasks
	// that have not started: their numbers, as --array has them, and how many they are. ID is the number
	// of the first.
	ArrayTasks string `json:"array_tasks,omitempty"`
	ArrayCount int    `json:"array_count,omitempty"`
	Name       string `json:"name"`
	User       string `json:"user"`
	Account    string `json:"account,omitempty"`
	Partition  string `json:"partition,omitempty"`
	QOS        string `json:"qos,omitempty"`
	State      State  `json:"state"`
	// Reason is one word of Slurm's for why it is so; Why is a sentence, from the policy
	// itself where it decided.
	Reason string `json:"reason,omitempty"`
	Why    string `json:"why,omitempty"`

	// Options is what it asks of the cluster, as one line, without what is private: files, folders,
	// variables and comment.
	Options   string  `json:"options"`
	Priority  int64   `json:"priority"`
	Held      bool    `json:"held,omitempty"`
	Submit    float64 `json:"submit_at"`
	Eligible  float64 `json:"eligible_at,omitempty"`
	Start     float64 `json:"start_at,omitempty"`
	End       float64 `json:"end_at,omitempty"`
	TimeLimit float64 `json:"time_limit_s,omitempty"`
	// Elapsed is how long it has run, or ran, without times of suspension.
	Elapsed float64 `json:"elapsed_s"`
	// Attempt counts how often it was started.
	Attempt  uint32 `json:"attempt,omitempty"`
	Requeues uint32 `json:"requeues,omitempty"`

	// Nodes is what it has, or had, in the order of its parts.
	Nodes    []string `json:"nodes,omitempty"`
	NodeList string   `json:"node_list,omitempty"`
	// Before is where it was before it was moved, the first node first.
	Before []string `json:"nodes_before,omitempty"`
	// Preempted is when and why it made way for others, the last times.
	Preempted []Preemption `json:"preempted,omitempty"`
	Parts     []Part       `json:"parts,omitempty"`
	Devices   []Device     `json:"devices,omitempty"`
	// What it asks for in all, or has.
	NumNodes int     `json:"num_nodes"`
	Cores    int     `json:"cores"`
	Memory   int64   `json:"memory_bytes"`
	GPUs     int     `json:"gpus"`
	GPUShare float64 `json:"gpu_share,omitempty"` // of whole devices, in sum

	ExitCode int     `json:"exit_code"`
	Signal   int     `json:"signal,omitempty"`
	CPUTime  float64 `json:"cpu_s,omitempty"`
	Peak     int64   `json:"memory_peak_bytes,omitempty"`
	// Measured is what its programs did, in the last attempt, as its nodes said last; nil if they said nothing.
	Measured *model.Measured `json:"measured,omitempty"`

	// These, and Why once the job has started, are for its user and for administrators: see
	// ForOthers.
	Directory string   `json:"directory,omitempty"`
	Output    string   `json:"output,omitempty"`
	Error     string   `json:"error,omitempty"`
	Command   []string `json:"command,omitempty"`
	Comment   string   `json:"comment,omitempty"`
	// Dependency is what it waits for, as it was written.
	Dependency string `json:"dependency,omitempty"`
}

// Preemption is one time at which the policy stopped a job that ran.
type Preemption struct {
	At float64 `json:"preempted_at"`
	// By is the job that was to get its place, as 17 or 18_3, and ByUser its user; "" for none in particular.
	By     string `json:"by_job,omitempty"`
	ByUser string `json:"by_user,omitempty"`
	// How is suspend, move, requeue or cancel, and Reason a sentence.
	How    string `json:"how"`
	Reason string `json:"reason"`
	// Attempt and Start are those of the attempt that was stopped, Nodes where it ran, and Devices its GPUs, as n1:0.
	Attempt uint32   `json:"attempt"`
	Start   float64  `json:"start_at"`
	Nodes   []string `json:"nodes"`
	Devices []string `json:"devices,omitempty"`
}

// ForOthers is the job as everybody may see it who neither owns it nor administers the cluster. It
// is the one place that decides what of a job is private: what it runs, where it runs and writes,
// what its user notes on it, and why it ended, since that sentence may quote any of these.
func (j Job) ForOthers() Job {
	j.Command, j.Directory, j.Output, j.Error, j.Comment = nil, "", "", "", ""
	if j.State != Pending || len(j.Before) > 0 { // why it cannot go on may quote what it has open
		j.Why = ""
	}
	return j
}

// ExitStatus is the exit status that tells how a job ended, as a shell does.
func (j *Job) ExitStatus() int {
	switch {
	case j.Signal > 0 && j.Reason != JobLaunchFailure: // else no process had it
		return 128 + j.Signal
	case j.ExitCode != 0:
		return j.ExitCode
	case j.State != Completed:
		return 1
	}
	return 0
}

// Part is what a job has of one node.
type Part struct {
	Node   string `json:"node"`
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory_bytes"`
	State  string `json:"state,omitempty"`
}

// Device is a GPU that a job has.
type Device struct {
	// For is the node whose processes use it; Node is where it is.
	For    string `json:"for"`
	Node   string `json:"node"`
	Device int    `json:"device"`
	// Memory is the share; 0 is the whole device.
	Memory int64 `json:"memory_bytes,omitempty"`
	// Beyond is how much more the job may use of it while that is free, and Reach how far from it the
	// node may bind the job's programs: device, node or cluster.
	Beyond   uint64 `json:"beyond_bytes,omitempty"`
	Reach    string `json:"reach,omitempty"`
	Borrowed bool   `json:"borrowed,omitempty"`
}

// Changed answers what changes jobs: those that it changed.
type Changed struct {
	Jobs []uint64 `json:"jobs"`
}

// Kept answers the word that the command of an allocation is there.
type Kept struct {
	// Lapses is within which time that must be said again; 0 is no limit.
	Lapses float64 `json:"lapses_s"`
}

// Finished says with which status the command of an allocation has ended.
type Finished struct {
	ExitCode int `json:"exit_code"`
}

// Priority sets a job's priority outright (administrators), or its nice value.
type Priority struct {
	// Priority is from 1 to 4294967293; 0 has the head compute it again.
	Priority *int64 `json:"priority,omitempty"`
	// Nice is from -2147483645 to 2147483645, and taken off the priority that the head computes.
	Nice *int64 `json:"nice,omitempty"`
}

// Limit changes how many of its devices a running job may use at a time; -1 is all.
type Limit struct {
	Devices int `json:"devices"`
}

// Nodes is all nodes of the cluster.
type Nodes struct {
	Nodes []Node `json:"nodes"`
	// Refused are nodes that want to be of it and that the head does not take. It may know them from
	// before.
	Refused []RefusedNode `json:"refused,omitempty"`
}

// RefusedNode is a node that the head does not take.
type RefusedNode struct {
	Name   string  `json:"node"`
	Reason string  `json:"reason"`
	At     float64 `json:"refused_at"` // when it tried last
}

// NodeState is how a node is.
type NodeState string

// The states of nodes.
const (
	NodeIdle     NodeState = "IDLE"
	NodeMixed    NodeState = "MIXED"
	NodeAlloc    NodeState = "ALLOCATED"
	NodeDraining NodeState = "DRAINING"
	NodeDrained  NodeState = "DRAINED"
	NodeDown     NodeState = "DOWN"
)

// Node is one node.
type Node struct {
	Name  string    `json:"node"`
	State NodeState `json:"state"`
	// Reason is why it is drained or down, as when the head refuses it, or does not take what the head asks of it.
	Reason    string `json:"reason,omitempty"`
	Connected bool   `json:"connected"`
	// Left is why the node's last connection ended.
	Left       string       `json:"left,omitempty"`
	Since      float64      `json:"since_at"` // when that began
	Cores      int          `json:"cores"`
	CoresUsed  int          `json:"cores_used"`
	Memory     int64        `json:"memory_bytes"`
	MemoryUsed int64        `json:"memory_used_bytes"`
	Devices    []NodeDevice `json:"devices,omitempty"`
	Gateway    string       `json:"gateway,omitempty"`
	// Weight orders nodes: jobs get those with smaller weights first. Without it, it is 1.
	Weight int `json:"weight,omitempty"`
	// Features are those by which jobs choose it (--constraint).
	Features    []string `json:"features,omitempty"`
	User        string   `json:"user,omitempty"`
	Incarnation string   `json:"incarnation,omitempty"`
	// Labels are what administrators noted of it.
	Labels map[string]string `json:"labels,omitempty"`
	// Partitions are those that have it.
	Partitions []string `json:"partitions,omitempty"`
	// Jobs are those that have something of it, lent devices included.
	Jobs []uint64 `json:"jobs,omitempty"`
	// Load is how busy it is, less than a second old; nil while its agent is away.
	Load *NodeLoad `json:"load,omitempty"`
	// Notices are bounds that what the node reports crosses.
	Notices []Notice `json:"notices,omitempty"`
	// Settings is how it serves programs; nil while its agent is away, or has not said it.
	Settings *NodeSettings `json:"settings,omitempty"`
}

// Notice says that a node has crossed a bound.
type Notice struct {
	Name  string  `json:"name"` // of the bound: gpu-memory, wait or swap
	Text  string  `json:"text"` // what is so now
	Since float64 `json:"since_at"`
}

// NodeSettings is how a node serves programs, as far as the head may say so.
type NodeSettings struct {
	// InForce is how it does, and Asked what the head asks of it, for its administrators or the policy; nil for
	// nothing.
	InForce *model.NodeSettings `json:"in_force,omitempty"`
	Asked   *model.NodeSettings `json:"asked,omitempty"`
	// Error is why the node is not as it was asked to be.
	Error string `json:"error,omitempty"`
}

// NodeLoad is how busy a node is.
type NodeLoad struct {
	// Assigned is how many programs have a device, and Waiting how many want one and have none; Longest is
	// how long the first of these has been waiting, rounded down.
	Assigned int     `json:"assigned"`
	Waiting  int     `json:"waiting"`
	Longest  float64 `json:"longest_wait_s"`
	// SwapIn and SwapOut are the bytes of programs' memory that are moved to devices and from them.
	SwapIn  uint64 `json:"swap_in_bytes_per_s"`
	SwapOut uint64 `json:"swap_out_bytes_per_s"`
}

// DeviceLoad is how busy a GPU is.
type DeviceLoad struct {
	Use        int   `json:"use_pct"`          // the part of the time since the last report in which kernels ran
	Used       int64 `json:"used_bytes"`       // that programs have
	Guaranteed int64 `json:"guaranteed_bytes"` // that grants keep
}

// NodeDevice is a GPU of a node.
type NodeDevice struct {
	Name   string  `json:"name"`
	Memory int64   `json:"memory_bytes"`
	Speed  float64 `json:"speed"`
	Up     bool    `json:"up"`
	// Lender is the node that lends it. Where that is a node of the cluster, which has the device in
	// its own list, it is not up here.
	Lender string `json:"lender,omitempty"`
	// Used is the memory that jobs have of it; all of it for a whole device.
	Used int64    `json:"memory_used_bytes"`
	Jobs []uint64 `json:"jobs,omitempty"`
	// Load is how busy it is; nil if its node has not said so.
	Load *DeviceLoad `json:"load,omitempty"`
}

// Drain takes a node out of use: what runs there goes on.
type Drain struct {
	Reason string `json:"reason"`
}

// Reloaded is what a configuration that was read again has changed.
type Reloaded struct {
	// Changed are the settings that have changed, by their names in the file, and Restart those of which the
	// change takes effect only when the head starts again.
	Changed []string `json:"changed"`
	Restart []string `json:"needs_restart"`
}

// RemoveNode has the head forget a node. With Force it does so even if the node is connected or has jobs, which
// are lost.
type RemoveNode struct {
	Force bool `json:"force,omitempty"`
}

// RenameNode gives a node that is away another name.
type RenameNode struct {
	Name string `json:"node"`
}

// LabelNode sets labels of a node; an empty value takes one away.
type LabelNode struct {
	Labels map[string]string `json:"labels"`
}

// Partitions are the partitions of the cluster; none if it is not divided.
type Partitions struct {
	List []Partition `json:"partitions"`
}

// Partition is a set of nodes, and what jobs that are submitted to it may ask for. A limit of 0 is none.
type Partition struct {
	Name    string `json:"partition"`
	Default bool   `json:"default,omitempty"`
	State   string `json:"state"` // up, down, drain or inactive
	// NodeList are its nodes as n[1-4], unless AllNodes; those that have not come yet, too. Lenders are further
	// nodes whose GPUs its jobs may borrow.
	NodeList string `json:"node_list,omitempty"`
	AllNodes bool   `json:"all_nodes,omitempty"`
	Lenders  string `json:"lending_nodes,omitempty"`
	// Nodes counts those that the head knows, with their cores and GPUs. RemoteGPUs counts the GPUs that its jobs
	// may have, those of lenders included.
	Nodes         int      `json:"nodes"`
	Cores         int      `json:"cores"`
	GPUs          int      `json:"gpus"`
	RemoteGPUs    int      `json:"rgpus"`
	MaxTime       float64  `json:"max_time_s,omitempty"`
	DefaultTime   float64  `json:"default_time_s,omitempty"`
	MinNodes      int      `json:"min_nodes,omitempty"`
	MaxNodes      int      `json:"max_nodes,omitempty"`
	MaxCores      int      `json:"max_cores,omitempty"`
	MaxGPUs       int      `json:"max_gpus,omitempty"`
	Tier          int      `json:"priority_tier"`
	Factor        int      `json:"priority_job_factor,omitempty"`
	PreemptMode   string   `json:"preempt_mode,omitempty"` // how its jobs are stopped for those of a higher tier; "" if they are not
	AllowUsers    []string `json:"allow_users,omitempty"`
	AllowAccounts []string `json:"allow_accounts,omitempty"`
	AllowQOS      []string `json:"allow_qos,omitempty"`
	DenyAccounts  []string `json:"deny_accounts,omitempty"`
	DenyQOS       []string `json:"deny_qos,omitempty"`
}

// Usage is what users and accounts used, decayed as the configuration says.
type Usage struct {
	Lines []UsageLine `json:"usage"`
}

// UsageLine is one user or account.
type UsageLine struct {
	Account string `json:"account"`
	User    string `json:"user,omitempty"` // "" for the account as a whole
	// Shares is the part that it should have, Used the part that it had.
	Shares float64 `json:"shares"`
	Used   float64 `json:"used"`
	// Factor is what follows for a user's jobs, from 0 to 1. An account as a whole has none, since
	// every job is a user's.
	Factor *float64 `json:"factor,omitempty"`
	// Raw is seconds of billing units (cores, unless the file of priorities weighs them), of
	// which older ones count less.
	Raw float64 `json:"raw_usage_s"`
}

// Priorities says why the queue stands as it does.
type Priorities struct {
	Jobs []JobPriority `json:"jobs"`
}

// JobPriority is a waiting job's priority and what it is made of.
type JobPriority struct {
	Job      uint64           `json:"job"`
	User     string           `json:"user"`
	Account  string           `json:"account,omitempty"`
	Priority int64            `json:"priority"`
	Factors  map[string]int64 `json:"factors,omitempty"`
}

// Cluster is what cluster this is.
type Cluster struct {
	Name    string  `json:"cluster"`
	Version string  `json:"version"`
	Policy  string  `json:"policy"`
	Now     float64 `json:"now_at"`
	Up      float64 `json:"up_s"`
	// User is who asks, and Admin whether he administers the cluster.
	User  string `json:"user"`
	Admin bool   `json:"admin"`
	Nodes int    `json:"nodes"`
	// Counts of jobs that have not ended.
	Pending int `json:"pending"`
	Running int `json:"running"`
	// What the connected nodes report: how many GPUs are in use, in sum, and how many programs wait for one.
	Busy    float64 `json:"gpus_busy"`
	Waiting int     `json:"programs_waiting"`
	// Problems are what an administrator should look at.
	Problems []string `json:"problems,omitempty"`
}

// Change is one change, as server-sent events tell it: what it is about has changed,
// and this is how it is now.
type Change struct {
	// At counts changes; a client that missed some asks anew.
	At   uint64 `json:"at"`
	Job  *Job   `json:"job,omitempty"`
	Node *Node  `json:"node,omitempty"`
}

// Page is a one-time address of the head's page.
type Page struct {
	Address string `json:"address"`
	// Local says that it can be opened on the head's machine alone, or through a tunnel.
	Local bool `json:"local"`
	// Expires is in how many seconds it can no longer be opened.
	Expires int `json:"expires_s"`
}

// Error is why a request was refused.
type Error struct {
	Error string `json:"error"`
}

// Heads are the heads of a cluster.
type Heads struct {
	Heads []Head `json:"heads"`
}

// Head is one of the heads of a cluster. A head that is alone has no address.
type Head struct {
	Address string `json:"address,omitempty"`
	// Leads says that it decides. The others have what it has on disk, and wait.
	Leads bool `json:"leads"`
	// Votes says that it counts for a majority. A head that joins does not until it has all.
	Votes bool `json:"votes"`
	// Leader is who leads, as far as it knows.
	Leader string `json:"leader,omitempty"`
	// Term counts the times that a head began to lead.
	Term uint64 `json:"term,omitempty"`
	// Applied and Written are the last entries of the common log that it has in its store, and in its log.
	Applied uint64 `json:"applied,omitempty"`
	Written uint64 `json:"written,omitempty"`
	Version string `json:"version,omitempty"`
	// Error is why it could not be asked.
	Error string `json:"error,omitempty"`
}

// JoinHeads asks, with the certificate of a head, to be taken in.
type JoinHeads struct {
	// Address is where other heads reach it.
	Address string `json:"address"`
	// Vote says that it has all that the others have, and is to count for a majority.
	Vote bool `json:"vote"`
}

// Exec is a command to run among a job's processes; in the query, as
// ?node=&arg=...&dir=&env=...&terminal=24x80
type Exec struct {
	Node        string   `json:"node,omitempty"` // "" is its first
	Arguments   []string `json:"arguments"`
	Directory   string   `json:"directory,omitempty"`
	Environment []string `json:"environment,omitempty"`
	// Terminal has the command run on a terminal with so many rows and columns, as 24x80; "" for none.
	Terminal string `json:"terminal,omitempty"`
}

// WhatIf is what other policies would have made of the cluster's own history.
type WhatIf struct {
	Periods []WhatIfPeriod `json:"periods"`
	// Next is when the head looks again by itself; 0 if it does not.
	Next float64 `json:"next_at,omitempty"`
}

// WhatIfPeriod is the last day or week. Measured is what happened; all figures of Policies
// are simulated.
type WhatIfPeriod struct {
	Name string  `json:"name"` // day or week
	From float64 `json:"from_at,omitempty"`
	To   float64 `json:"to_at,omitempty"`
	// Jobs is how many are counted: those that waited, or began, in the period.
	Jobs int `json:"jobs"`
	// MadeAt is when the simulations ended; 0 if there are none yet.
	MadeAt float64 `json:"made_at,omitempty"`
	// Running says that others are on their way, and Progress, from 0 to 1, how far.
	Running  bool    `json:"running"`
	Progress float64 `json:"progress,omitempty"`
	// Error says why the last attempt came to nothing; what is shown is older then.
	Error string `json:"error,omitempty"`

	Policy   string          `json:"policy,omitempty"` // the one in force
	Measured WhatIfFigures   `json:"measured"`
	Policies []WhatIfPolicy  `json:"policies"`
	Model    *WhatIfAccuracy `json:"prediction_error,omitempty"`
	// Notes say what the simulation does not know, or takes otherwise than it was.
	Notes []string `json:"notes,omitempty"`
}

// WhatIfFigures are what a policy means for wait, use and users. A wait is from the
// submission to the start, or to the end of the period for jobs that had not started.
type WhatIfFigures struct {
	MeanWait     float64 `json:"mean_wait_s"`
	MedianWait   float64 `json:"median_wait_s"`
	P95Wait      float64 `json:"p95_wait_s"`
	MeanSlowdown float64 `json:"mean_slowdown"` // bounded: runs count as 10 s at least
	// Use and CoreUse are the parts of all GPUs and cores that jobs held, from 0 to 1.
	Use     float64 `json:"use"`
	CoreUse float64 `json:"core_use"`
	// Makespan is from the beginning of the period to the last end of a job in it.
	Makespan float64 `json:"makespan_s"`
	// Unfinished jobs wait or run at the end of the period; Impossible ones could not even
	// run on the idle cluster, and count nowhere else.
	Unfinished int `json:"unfinished"`
	Impossible int `json:"impossible,omitempty"`
}

// WhatIfPolicy is one policy, simulated.
type WhatIfPolicy struct {
	Policy  string `json:"policy"`
	InForce bool   `json:"in_force,omitempty"` // it is the one that decided: its figures should be those measured
	// Figures are left out where Error says why there are none.
	Figures *WhatIfFigures `json:"figures,omitempty"`
	Users   []WhatIfUser   `json:"users,omitempty"`
	// UsersLeftOut counts users with few jobs who are not listed.
	UsersLeftOut int     `json:"users_left_out,omitempty"`
	Error        string  `json:"error,omitempty"`
	Took         float64 `json:"took_s"` // of the processor
}

// WhatIfUser is what a policy means for one user.
type WhatIfUser struct {
	User             string  `json:"user"`
	Jobs             int     `json:"jobs"`
	MeanWait         float64 `json:"mean_wait_s"` // simulated
	MeanWaitMeasured float64 `json:"mean_wait_measured_s"`
}

// WhatIfAccuracy is how far the simulation of the policy in force is from what it did:
// simulated minus measured.
type WhatIfAccuracy struct {
	MeanWait     float64 `json:"mean_wait_s"`
	MedianWait   float64 `json:"median_wait_s"`
	P95Wait      float64 `json:"p95_wait_s"`
	MeanSlowdown float64 `json:"mean_slowdown"`
	Use          float64 `json:"use"`
	CoreUse      float64 `json:"core_use"`
	Unfinished   int     `json:"unfinished"`
	// StartedTogether is the part of the jobs, from 0 to 1, that started within a second of
	// when they really did.
	StartedTogether float64 `json:"started_together"`
}

// WhatIfWanted asks for simulations now. What is left out is everything.
type WhatIfWanted struct {
	Period   string   `json:"period,omitempty"`   // day or week
	Policies []string `json:"policies,omitempty"` // as muster sim takes them; files only if the configuration names them
}
