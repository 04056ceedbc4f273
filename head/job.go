package head

import (
	"strconv"
	"strings"
	"time"

	"muster/head/api"
	"muster/model"
	"muster/model/slurmopt"
	"muster/policy"
	"muster/wire/agent"
)

// job is a job that has not ended, or ended less than Config.Keep ago.
type job struct {
	id uint64
	// array is the number of the job that a user submitted as an array, and task which
	// of it this is; 0 and -1 for a single job.
	array uint64
	task  int64

	user   string
	dir    string
	key    string
	secret string // its credentials are derived from it
	// options is what was submitted, as one line; jobs of an array share it and said.
	options string
	said    *slurmopt.Options
	command []string // the beginning of what it runs, for display

	state    api.State
	held     heldBy
	priority *int64 // set by an administrator; nil if none was
	nice     int64
	submit   time.Duration
	eligible time.Duration
	start    time.Duration
	end      time.Duration
	attempt  uint32
	requeues uint32
	limit    int // devices that it may use at a time; -1 is all

	// A waiting job stands at a gate, or the policy has it.
	gate   gate
	number policy.JobID // the policy's number for it; -1 if the policy does not have it
	need   need         // what it takes of its user's limits
	// notBefore is when it may begin, as a term of its dependency says.
	notBefore time.Duration
	unmet     []term // what it depends on and has not happened yet
	never     bool   // what it depends on cannot happen any more
	// inArray and inLimit say that it has passed these gates, and counts in the array
	// and for the user.
	inArray, inLimit bool
	impossible       string // why no node could run it, at the moment

	// What it has, while it has something; afterwards what it had.
	alloc       *model.Allocation
	alternative int
	tasks       []task
	loans       []loan
	lending     bool // it waits for nodes to lend
	// suspend says that it should be suspended: its tasks follow later.
	suspend bool
	// asleep says that all tasks are suspended, and the policy may give its cores and
	// GPUs to others.
	asleep bool
	// stop is why its tasks are being stopped; nil if they are not.
	stop *stop
	// suspended is how long it was suspended in this attempt, and since when it is.
	suspended      time.Duration
	suspendedSince time.Duration

	exit, signal int
	reason       string // why it ended so
	cpu          time.Duration
	peak         int64

	dirty bool // its record must be written
	told  bool // listeners must be told of it
}

// heldBy is who holds a job back.
type heldBy uint8

const (
	heldByUser heldBy = 1 << iota
	heldByAdmin
)

// gate is what a waiting job must pass before the policy sees it.
type gate uint8

const (
	atHold gate = iota
	atDependency
	atBegin
	atArray
	atLimit
	atPolicy
)

// need is what a job takes of its user's limits.
type need struct {
	gpus, cores int
	memory      int64
}

// task is a job's part on one node.
type task struct {
	node *node
	// incarnation is that of the node when the task was started.
	incarnation string
	state       agent.State // Unknown until the agent has said something
	end         *agent.End
}

// loan is what a node lends to a part of the job.
type loan struct {
	node *node
	part int32
	lent bool
}

// stop is why a job's tasks are to end.
type stop struct {
	Cause   agent.Cause `json:"cause"`
	Reason  string      `json:"reason,omitempty"`
	Outcome api.State   `json:"outcome,omitempty"` // the job's final state; "": it follows from its tasks
	Requeue bool        `json:"requeue,omitempty"`
}

// name is how people and the policy name a job.
func (j *job) name() string {
	if j.task < 0 {
		return strconv.FormatUint(j.id, 10)
	}
	return strconv.FormatUint(j.array, 10) + "_" + strconv.FormatInt(j.task, 10)
}

// bulk is the number under which the store has what the job runs.
func (j *job) bulk() uint64 {
	if j.array != 0 {
		return j.array
	}
	return j.id
}

// over says whether it has ended.
func (j *job) over() bool { return j.state.Over() }

// active says whether it holds resources of the cluster.
func (j *job) active() bool { return len(j.tasks) > 0 && !j.over() }

// request is what it asks for, or what it was given of its alternatives.
func (j *job) request() *model.Request {
	if j.alternative > 0 && j.alternative <= len(j.said.Alternatives) {
		return &j.said.Alternatives[j.alternative-1]
	}
	return &j.said.Request
}

// timeLimit is how long it may run; 0 is without limit.
func (j *job) timeLimit(otherwise time.Duration) time.Duration {
	switch r := j.request(); {
	case r.WallTime > 0:
		return r.WallTime
	case j.said.Time > 0:
		return j.said.Time
	case j.said.Unlimited:
		return 0
	}
	return otherwise
}

// aYear is how long a policy must expect a job without a limit to run.
const aYear = 365 * 24 * time.Hour

// script says whether the job is a script, which runs on its first node alone.
func (j *job) script() bool { return len(j.command) > 0 && j.command[0] == scriptMark }

// scriptMark stands for the script among what a job runs.
const scriptMark = "<script>"

// file fills in a path as Slurm does: %j is the job, %A and %a the array and its
// task, %x the name, %u the user, %N the first node, %% a percent sign.
func (j *job) file(pattern, node string) string {
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		if pattern[i] != '%' || i+1 == len(pattern) {
			b.WriteByte(pattern[i])
			continue
		}
		i++
		digits := i
		for i < len(pattern)-1 && pattern[i] >= '0' && pattern[i] <= '9' {
			i++
		}
		width, _ := strconv.Atoi(pattern[digits:i])
		switch pattern[i] {
		case '%':
			b.WriteByte('%')
		case 'j':
			b.WriteString(padded(strconv.FormatUint(j.id, 10), width))
		case 'A':
			b.WriteString(padded(strconv.FormatUint(j.bulk(), 10), width))
		case 'a':
			b.WriteString(padded(strconv.FormatInt(max(0, j.task), 10), width))
		case 'x':
			b.WriteString(j.title())
		case 'u':
			b.WriteString(j.user)
		case 'N':
			b.WriteString(node)
		default:
			b.WriteString(pattern[digits-1 : i+1])
		}
	}
	return b.String()
}

func padded(number string, width int) string {
	if width = min(width, 10); len(number) < width {
		return strings.Repeat("0", width-len(number)) + number
	}
	return number
}

// output is where its output goes.
func (j *job) output() string {
	switch {
	case j.said.Batch.Output != "":
		return j.said.Batch.Output
	case j.task >= 0:
		return "muster-%A_%a.out"
	}
	return "muster-%j.out"
}

// title is its name.
func (j *job) title() string {
	switch {
	case j.said.Name != "":
		return j.said.Name
	case j.script():
		return "muster"
	case len(j.command) > 0:
		return j.command[0][strings.LastIndexByte(j.command[0], '/')+1:]
	}
	return ""
}
