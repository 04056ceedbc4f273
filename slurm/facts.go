package slurm

import (
	"slices"
	"time"

	"muster/model"
)

// Picture is Slurm's answer at one time.
type Picture struct {
	// Asked is when the listing was requested: everything that happened before is in it.
	Asked time.Duration
	// Jobs are all that Slurm knows, including those that ended recently. If nothing has changed
	// since the last listing, Same is true and there are none.
	Jobs []Job
	Same bool
	// Nodes, Partitions and Reservations are nil if the driver did not ask for them.
	Nodes        []Node
	Partitions   []Partition
	Reservations []Reservation
	// Accounting is nil if the driver did not ask, or if there is no accounting database.
	Accounting *Accounting
	// Lenders are the nodes that are connected and lend their GPUs; nil if the driver did not ask.
	Lenders []Lender
}

// Lender is a node that lends its GPUs.
type Lender struct {
	Node string
	GPUs []LentGPU
}

// LentGPU is a GPU that a node lends.
type LentGPU struct {
	Name   string
	Memory int64
	Speed  float64
	// Up says that it is usable.
	Up bool
}

// Job is a job as Slurm knows it. Times are counted from 1970; 0 is unknown.
// It has a field for each fact that is used.
type Job struct {
	ID        uint64
	Name      string
	User      string
	UID       int
	Account   string
	QOS       string
	Partition string
	// State is the base state: PENDING, RUNNING, SUSPENDED, COMPLETED... Completing says that the
	// job has ended and its nodes are not free yet.
	State      string
	Completing bool
	Reason     string
	// Held says that its priority is 0.
	Held     bool
	Restarts int
	Nice     int64
	// NoRequeue says that it must not be started a second time (sbatch --no-requeue).
	NoRequeue bool

	Comment, AdminComment string

	Submitted, Eligible, Started time.Duration
	// TimeLimit is 0 if there is none.
	TimeLimit time.Duration

	MinNodes, MaxNodes int
	CPUs               int
	Tasks              int
	CPUsPerTask        int
	TasksPerNode       int
	MinCPUsPerNode     int
	MemoryPerNode      int64 // bytes
	MemoryPerCPU       int64
	Exclusive          bool
	Contiguous         bool
	Required, Excluded string // node lists
	Features           string
	TRESPerJob         string
	TRESPerNode        string
	TRESPerTask        string
	TRESPerSocket      string

	Dependency  string
	Reservation string
	Licences    string
	// ArrayJob is the number of the array, 0 for none. Tasks that have no record of their own yet
	// share one: ArrayTasks names them ("1-4%2"). ArrayTask is the number of a single task.
	ArrayJob   uint64
	ArrayTask  int
	ArrayTasks string
	ArrayLimit int
	HetJob     uint64

	// Nodes is the list of the job's nodes, also after its end; Uses is what it has on them while
	// it runs.
	Nodes string
	Uses  []Use
}

// Use is what a job has of one node.
type Use struct {
	Node   string
	CPUs   int
	Memory int64
	// GPUs is the set of the node's GPUs, by their numbers; if Slurm does not number them, Count is
	// how many.
	GPUs  uint64
	Count int
}

// Node is a node as Slurm knows it.
type Node struct {
	Name   string
	CPUs   int
	Memory int64
	// Threads is how many processors each core has.
	Threads int
	// GPUs is how many there are, GPUType Slurm's name for them.
	GPUs    int
	GPUType string
	// States are Slurm's words: IDLE, MIXED, DRAIN, NOT_RESPONDING...
	States []string
	Reason string
}

// Partition is a partition as Slurm knows it.
type Partition struct {
	Name  string
	Nodes string // a node list
	Up    bool
	// MaxTime and DefaultTime are 0 if there is none.
	MaxTime, DefaultTime time.Duration
	// Exclusive partitions allocate whole nodes.
	Exclusive bool
	// Factor is the partition's factor in the priority of its jobs (PriorityJobFactor). Jobs of a
	// higher Tier come first, and may preempt others (PriorityTier).
	Factor, Tier int
}

// Reservation is a reservation as Slurm knows it.
type Reservation struct {
	Name            string
	From, Until     time.Duration
	Nodes           string
	Users, Accounts []string
}

// Ended says whether a job holds and needs nothing any more.
func (j *Job) Ended() bool {
	switch j.State {
	case "PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "RESIZING", "STOPPED", "SIGNALING", "STAGE_OUT", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT":
		return false
	}
	return !j.Completing
}

// pending says whether a job waits, for Slurm or for Muster.
func (j *Job) pending() bool { return j.State == "PENDING" && !j.Completing }

// holds says whether a job has nodes, or may get some from Slurm at any time.
func (j *Job) holds() bool { return !j.Ended() && !(j.pending() && j.Held) }

// turn is the round of Observe in which a job is handled: 0 if it has no nodes, 1 if it is
// suspended, 2 if it has nodes or may get some.
func (j *Job) turn() int {
	switch {
	case !j.holds():
		return 0
	case j.State == "SUSPENDED":
		return 1
	}
	return 2
}

// several says whether a record stands for more than one task of an array.
func (j *Job) several() bool { return len(j.tasks(2)) > 1 }

// tasks lists the first most tasks of an array that have no record of their own.
func (j *Job) tasks(most int) []int { return arrayTasks(j.ArrayTasks, most) }

// up says whether a policy may place jobs on a node.
func (n *Node) up() bool {
	for _, s := range n.States {
		switch s {
		case "IDLE", "MIXED", "ALLOCATED", "COMPLETING", "PLANNED", "RESERVED", "CLOUD", "DYNAMIC_NORM", "POWERED_DOWN", "POWERING_UP", "POWER_UP", "BLOCKED":
		default:
			return false
		}
	}
	return len(n.States) > 0
}

func (n *Node) down() bool {
	return slices.ContainsFunc(n.States, func(s string) bool { return s == "DOWN" || s == "ERROR" || s == "UNKNOWN" || s == "FUTURE" })
}

// names expands a node list; one that cannot be parsed names no node.
func names(list string) []string {
	if list == "" {
		return nil
	}
	all, err := model.ExpandNodes(list)
	if err != nil {
		return nil
	}
	return all
}
