package model

import (
	"errors"
	"fmt"
	"math"
	"time"
)

// Job is what a user submits.
type Job struct {
	ID    string
	User  string
	Group string
	Queue string
	// QOS is the class of the job, for priorities and for policies that let one class preempt
	// another.
	QOS string
	// Reservation names a reservation of nodes and time by an administrator. The job runs only
	// inside it.
	Reservation string

	// Fixed says that the job must not be stopped in favour of others, for example because it
	// belongs to another scheduler.
	Fixed bool

	// Submit is when the job enters the queue, counted from the start of the workload.
	Submit time.Duration
	// Run is the run time on devices of speed 1 in the job's own nodes, without competing traffic.
	// The actual time is an outcome.
	Run time.Duration
	// WallTime is the user's estimate and a limit: a job that reaches it is killed. 0 means that
	// none was given.
	WallTime time.Duration
	// Priority: jobs with larger values go first, in policies that consider it.
	Priority int64
	// Turn orders jobs that are equal to a policy: smaller ones go first, whichever was submitted
	// first. A driver gives it to all jobs, or to none.
	Turn int64

	// GPU says how the job has its GPUs. Policies do not see it: it concerns what nodes do.
	GPU Terms

	Request Request
	// Alternatives are other acceptable requests; one of all requests is granted.
	Alternatives []Request

	Traffic Traffic
	// Intensity is the fraction of its run time in which the job keeps its GPUs busy, from 0 to 1.
	// 0 means not given, which is 1, so that jobs do not share devices for free.
	Intensity float64

	// Logged is what an accounting log said beyond this; nil if nothing.
	Logged *Logged
}

// Request is what a job asks for.
type Request struct {
	// Nodes is the number of nodes; 0 lets the cores be spread over any nodes.
	Nodes int
	// Cores is the total number of cores. If Nodes is set, each node gives Cores/Nodes, rounded up,
	// unless CoresPerNode is set.
	Cores        int
	CoresPerNode int
	// CoresPerProcess keeps this many cores together if cores are spread: each node gives a
	// multiple of it. 0 means 1.
	CoresPerProcess int
	// Processes is the total number of processes that the job starts; 0 means one per node.
	Processes int

	// Memory is per node. MemoryPerCore is added for every core taken there.
	Memory        int64
	MemoryPerCore int64

	// GPUs is per node: each node that gives cores gives this many. GPUMemory > 0 asks for that
	// much memory of each instead of the whole device. GPUType restricts them to one type.
	GPUs      int
	GPUMemory int64
	// MoreGPUs lets a node give such shares on more than GPUs of its devices, up to one per process
	// of the job there. Policies that do not support it give exactly GPUs.
	MoreGPUs bool
	GPUType  string

	// Remote asks for GPUs on any nodes of the cluster; nil for none.
	Remote *RemoteGPUs

	// Contiguous asks for adjacent nodes.
	Contiguous bool
	// Exclusive asks for nodes without other jobs.
	Exclusive bool
	// NodeList restricts the nodes to these names.
	NodeList []string
	// Lenders restricts the nodes that give it GPUs to these names, its own nodes among them.
	Lenders []string

	// Run and WallTime replace those of the job if this request is granted; 0 keeps them. On cores
	// alone a job may take longer than with GPUs.
	Run, WallTime time.Duration
}

// RemoteGPUs asks for devices decoupled from the job's nodes.
type RemoteGPUs struct {
	Count int
	// Memory of each; 0 means the whole device.
	Memory int64
	// Shared allows other jobs on the same devices.
	Shared bool
}

// Traffic is what a job moves, per node, as in Table 1 of the TSUBAME paper.
type Traffic struct {
	NetBytes int64 // between its nodes
	NetConns int64
	GPUBytes int64 // between the GPUs of one node
	GPUConns int64
}

// Status is how a job ended according to its log.
type Status string

// The outcomes that accounting logs distinguish.
const (
	StatusUnknown   Status = ""
	StatusCompleted Status = "completed"
	StatusFailed    Status = "failed"
	StatusCancelled Status = "cancelled"
	StatusTimeout   Status = "timeout"
)

// Logged is what an accounting log said about a job beyond its request. Policies read only the name
// of the program.
type Logged struct {
	Wait       time.Duration // -1 if unknown
	CPUTime    time.Duration // mean per core, -1 if unknown
	UsedMemory int64         // per core, -1 if unknown
	Status     Status
	Executable string
	Partition  string
	Preceding  string // ID of the job that this one followed
	ThinkTime  time.Duration
}

// Estimate is the run time that a scheduler must expect for the main request: the wall time or, if
// the log has none, the true run time.
func (j *Job) Estimate() time.Duration {
	switch {
	case j.Request.WallTime > 0:
		return j.Request.WallTime
	case j.WallTime > 0:
		return j.WallTime
	case j.Request.Run > 0:
		return j.Request.Run
	}
	return j.Run
}

// As is the job with one of its requests: 0 is the main one, i is Alternatives[i-1]. The caller
// must not change the result.
func (j *Job) As(alternative int) *Job {
	r := &j.Request
	if alternative > 0 {
		r = &j.Alternatives[alternative-1]
	}
	if alternative == 0 && r.Run == 0 && r.WallTime == 0 {
		return j
	}
	out := *j
	out.Request = *r
	if r.Run > 0 {
		out.Run = r.Run
	}
	if r.WallTime > 0 {
		out.WallTime = r.WallTime
	}
	return &out
}

// GPULoad is the fraction of a device's time that the job needs when it runs alone.
func (j *Job) GPULoad() float64 {
	if j.Intensity == 0 {
		return 1
	}
	return j.Intensity
}

// CoresOnNode is the number of cores that each node gives to a request with nodes: at least one,
// because a job's processes must run somewhere.
func (r *Request) CoresOnNode() int {
	if r.CoresPerNode > 0 || r.Nodes == 0 {
		return r.CoresPerNode
	}
	return max(1, (r.Cores+r.Nodes-1)/r.Nodes)
}

// MemoryOnNode is the memory that a node gives together with the given number of cores.
func (r *Request) MemoryOnNode(cores int) int64 {
	return r.Memory + r.MemoryPerCore*int64(cores)
}

// TotalCores is the total number of cores of the request.
func (r *Request) TotalCores() int {
	if r.Nodes == 0 {
		return r.Cores
	}
	return r.Nodes * r.CoresOnNode()
}

// Threads is the number of cores of each process, as far as the request says.
func (r *Request) Threads() int {
	switch {
	case r.CoresPerProcess > 0:
		return r.CoresPerProcess
	case r.Processes > 0:
		return max(1, r.TotalCores()/r.Processes)
	}
	return 1
}

// TotalGPUs is the total number of GPUs of the request, including remote ones. If cores are spread
// over any nodes, it is the minimum.
func (r *Request) TotalGPUs() int {
	n := max(1, r.Nodes) * r.GPUs
	if r.Remote != nil {
		n += r.Remote.Count
	}
	return n
}

// limit keeps sums and products of sizes far below overflow.
const limit = math.MaxInt32

// Validate reports the first error in the job by itself. It does not check whether the job fits a
// cluster.
func (j *Job) Validate() error {
	if j.ID == "" {
		return errors.New("a job needs an ID")
	}
	if j.Submit < 0 || j.Run < 0 || j.WallTime < 0 {
		return fmt.Errorf("job %s: submit, run and wall time must not be negative", j.ID)
	}
	if t := j.Traffic; t.NetBytes < 0 || t.NetConns < 0 || t.GPUBytes < 0 || t.GPUConns < 0 {
		return fmt.Errorf("job %s: traffic must not be negative", j.ID)
	}
	if !(j.Intensity >= 0 && j.Intensity <= 1) {
		return fmt.Errorf("job %s: the intensity must be a number from 0 to 1, not %v", j.ID, j.Intensity)
	}
	if err := j.Request.Validate(); err != nil {
		return fmt.Errorf("job %s: %w", j.ID, err)
	}
	for i := range j.Alternatives {
		if err := j.Alternatives[i].Validate(); err != nil {
			return fmt.Errorf("job %s, alternative %d: %w", j.ID, i+1, err)
		}
	}
	return nil
}

// Validate reports the first error in the request.
func (r *Request) Validate() error {
	for _, f := range []struct {
		name  string
		value int
	}{
		{"nodes", r.Nodes}, {"cores", r.Cores}, {"cores per node", r.CoresPerNode},
		{"cores per process", r.CoresPerProcess}, {"processes", r.Processes}, {"GPUs", r.GPUs},
	} {
		if f.value < 0 || f.value > limit {
			return fmt.Errorf("%s must be between 0 and %d, not %d", f.name, limit, f.value)
		}
	}
	if r.Memory < 0 || r.MemoryPerCore < 0 || r.GPUMemory < 0 {
		return errors.New("memory must not be negative")
	}
	if r.Run < 0 || r.WallTime < 0 {
		return errors.New("run and wall time must not be negative")
	}
	// This prevents overflow of MemoryPerCore x cores + Memory.
	if cores := int64(max(1, r.Cores, r.CoresOnNode())); r.MemoryPerCore > math.MaxInt64/2/cores || r.Memory > math.MaxInt64/2 {
		return errors.New("the memory of a node adds up to more than any machine has")
	}
	switch {
	case r.Nodes == 0 && r.Cores == 0:
		return errors.New("it asks for no nodes and no cores: give one of them")
	case r.Nodes == 0 && r.CoresPerNode > 0:
		return errors.New("cores per node need a number of nodes")
	case r.Nodes == 0 && r.Exclusive:
		return errors.New("exclusive nodes need a number of nodes")
	case r.Nodes == 0 && r.CoresPerProcess > 0 && r.Cores%r.CoresPerProcess != 0:
		return fmt.Errorf("%d cores are no multiple of %d a process", r.Cores, r.CoresPerProcess)
	case r.Nodes > 0 && r.CoresPerProcess > 0:
		return errors.New("cores per process are for cores on any nodes: with a number of nodes give cores per node")
	case r.Nodes > 0 && r.Cores > 0 && r.CoresPerNode > 0 && r.Cores > r.Nodes*r.CoresPerNode:
		return fmt.Errorf("%d cores do not fit in %d nodes x %d cores", r.Cores, r.Nodes, r.CoresPerNode)
	case r.MoreGPUs && (r.GPUMemory == 0 || r.Remote != nil):
		return errors.New("more GPUs than asked for are given as shares of the job's own nodes: say how much memory of each, and ask for no remote ones")
	case r.GPUMemory > 0 && r.GPUs == 0:
		return errors.New("GPU memory without GPUs: say how many")
	case r.GPUs > MaxGPUsPerNode:
		return fmt.Errorf("%d GPUs a node, at most %d are supported", r.GPUs, MaxGPUsPerNode)
	}
	if m := r.Remote; m != nil && (m.Count <= 0 || m.Count > limit || m.Memory < 0 || (m.Shared && m.Memory == 0)) {
		return errors.New("remote GPUs need a count above 0, memory that is not negative, and a memory size when they are shared")
	}
	return nil
}
