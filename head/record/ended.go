package record

import (
	"encoding/json"

	"muster/model"
	"muster/wire/api"
)

// Ended is a job that has ended, or tasks of an array that ended together: what users were last shown
// of it. Instants are in seconds since 1970, and spans in seconds.
// It has a field for each thing that is told.
type Ended struct {
	ID         uint64   `json:"job"`
	ArrayJob   uint64   `json:"array_job,omitempty"`
	ArrayTask  *uint32  `json:"array_task,omitempty"`
	ArrayTasks string   `json:"array_tasks,omitempty"`
	ArrayCount int      `json:"array_count,omitempty"`
	Name       string   `json:"name"`
	User       string   `json:"user"`
	Account    string   `json:"account,omitempty"`
	Partition  string   `json:"partition,omitempty"`
	QOS        string   `json:"qos,omitempty"`
	State      string   `json:"state"`
	Reason     string   `json:"reason,omitempty"`
	Why        string   `json:"why,omitempty"`
	Options    string   `json:"options"`
	Priority   int64    `json:"priority"`
	Held       bool     `json:"held,omitempty"`
	Submit     float64  `json:"submit_at"`
	Eligible   float64  `json:"eligible_at,omitempty"`
	Start      float64  `json:"start_at,omitempty"`
	End        float64  `json:"end_at,omitempty"`
	TimeLimit  float64  `json:"time_limit_s,omitempty"`
	Elapsed    float64  `json:"elapsed_s"`
	Attempt    uint32   `json:"attempt,omitempty"`
	Requeues   uint32   `json:"requeues,omitempty"`
	Nodes      []string `json:"nodes,omitempty"`
	NodeList   string   `json:"node_list,omitempty"`
	Before     []string `json:"nodes_before,omitempty"`

	Preempted []EndedPreemption `json:"preempted,omitempty"`

	Parts      []EndedPart    `json:"parts,omitempty"`
	Devices    []EndedDevice  `json:"devices,omitempty"`
	NumNodes   int            `json:"num_nodes"`
	Cores      int            `json:"cores"`
	Memory     int64          `json:"memory_bytes"`
	GPUs       int            `json:"gpus"`
	GPUShare   float64        `json:"gpu_share,omitempty"`
	ExitCode   int            `json:"exit_code"`
	Signal     int            `json:"signal,omitempty"`
	CPUTime    float64        `json:"cpu_s,omitempty"`
	Peak       int64          `json:"memory_peak_bytes,omitempty"`
	Measured   *EndedMeasured `json:"measured,omitempty"`
	Directory  string         `json:"directory,omitempty"`
	Output     string         `json:"output,omitempty"`
	Error      string         `json:"error,omitempty"`
	Command    []string       `json:"command,omitempty"`
	Comment    string         `json:"comment,omitempty"`
	Dependency string         `json:"dependency,omitempty"`
}

// EndedMeasured is what the programs of an ended job did.
type EndedMeasured struct {
	CPU       float64 `json:"cpu_s,omitempty"`
	GPU       float64 `json:"gpu_s,omitempty"`
	Waited    float64 `json:"waited_s,omitempty"`
	Moving    float64 `json:"moving_s,omitempty"`
	Kernels   uint64  `json:"kernels,omitempty"`
	CopiedIn  uint64  `json:"copied_in_bytes,omitempty"`
	CopiedOut uint64  `json:"copied_out_bytes,omitempty"`
	SwapIn    uint64  `json:"swap_in_bytes,omitempty"`
	SwapOut   uint64  `json:"swap_out_bytes,omitempty"`
}

// EndedPreemption is one time at which an ended job made way for another.
type EndedPreemption struct {
	At      float64  `json:"preempted_at"`
	By      string   `json:"by_job,omitempty"`
	ByUser  string   `json:"by_user,omitempty"`
	How     string   `json:"how"`
	Reason  string   `json:"reason"`
	Attempt uint32   `json:"attempt"`
	Start   float64  `json:"start_at"`
	Nodes   []string `json:"nodes"`
	Devices []string `json:"devices,omitempty"`
}

// EndedPart is what an ended job had of one node.
type EndedPart struct {
	Node   string `json:"node"`
	Cores  int    `json:"cores"`
	Memory int64  `json:"memory_bytes"`
	State  string `json:"state,omitempty"`
}

// EndedDevice is a GPU that an ended job had.
type EndedDevice struct {
	For      string `json:"for"`
	Node     string `json:"node"`
	Device   int    `json:"device"`
	Memory   int64  `json:"memory_bytes,omitempty"`
	Beyond   uint64 `json:"beyond_bytes,omitempty"`
	Reach    string `json:"reach,omitempty"`
	Borrowed bool   `json:"borrowed,omitempty"`
}

// EndedAs is the record of a job that has ended with this document.
func EndedAs(d *api.Job) *Ended {
	e := &Ended{
		State: string(d.State),
		ID:    d.ID, ArrayJob: d.ArrayJob, ArrayTask: d.ArrayTask, ArrayTasks: d.ArrayTasks, ArrayCount: d.ArrayCount, Name: d.Name, User: d.User, Account: d.Account,
		Partition: d.Partition, QOS: d.QOS, Reason: d.Reason, Why: d.Why, Options: d.Options, Priority: d.Priority, Held: d.Held, Submit: d.Submit,
		Eligible: d.Eligible, Start: d.Start, End: d.End, TimeLimit: d.TimeLimit, Elapsed: d.Elapsed, Attempt: d.Attempt, Requeues: d.Requeues, Nodes: d.Nodes,
		NodeList: d.NodeList, Before: d.Before, NumNodes: d.NumNodes, Cores: d.Cores, Memory: d.Memory, GPUs: d.GPUs, GPUShare: d.GPUShare, ExitCode: d.ExitCode, Signal: d.Signal,
		CPUTime: d.CPUTime, Peak: d.Peak, Directory: d.Directory, Output: d.Output, Error: d.Error, Command: d.Command, Comment: d.Comment, Dependency: d.Dependency,
		Measured: (*EndedMeasured)(d.Measured),
	}
	for _, p := range d.Preempted {
		e.Preempted = append(e.Preempted, EndedPreemption(p))
	}
	for _, p := range d.Parts {
		e.Parts = append(e.Parts, EndedPart(p))
	}
	for _, g := range d.Devices {
		e.Devices = append(e.Devices, EndedDevice(g))
	}
	return e
}

// ReadEnded reads the record of an ended job.
func ReadEnded(value []byte) (*Ended, error) {
	e := &Ended{}
	return e, json.Unmarshal(value, e)
}

// Document is the job as users see it.
func (e *Ended) Document() *api.Job {
	d := &api.Job{
		State: api.State(e.State),
		ID:    e.ID, ArrayJob: e.ArrayJob, ArrayTask: e.ArrayTask, ArrayTasks: e.ArrayTasks, ArrayCount: e.ArrayCount, Name: e.Name, User: e.User, Account: e.Account,
		Partition: e.Partition, QOS: e.QOS, Reason: e.Reason, Why: e.Why, Options: e.Options, Priority: e.Priority, Held: e.Held, Submit: e.Submit,
		Eligible: e.Eligible, Start: e.Start, End: e.End, TimeLimit: e.TimeLimit, Elapsed: e.Elapsed, Attempt: e.Attempt, Requeues: e.Requeues, Nodes: e.Nodes,
		NodeList: e.NodeList, Before: e.Before, NumNodes: e.NumNodes, Cores: e.Cores, Memory: e.Memory, GPUs: e.GPUs, GPUShare: e.GPUShare, ExitCode: e.ExitCode, Signal: e.Signal,
		CPUTime: e.CPUTime, Peak: e.Peak, Directory: e.Directory, Output: e.Output, Error: e.Error, Command: e.Command, Comment: e.Comment, Dependency: e.Dependency,
		Measured: (*model.Measured)(e.Measured),
	}
	for _, p := range e.Preempted {
		d.Preempted = append(d.Preempted, api.Preemption(p))
	}
	for _, p := range e.Parts {
		d.Parts = append(d.Parts, api.Part(p))
	}
	for _, g := range e.Devices {
		d.Devices = append(d.Devices, api.Device(g))
	}
	return d
}
