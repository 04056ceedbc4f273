package head

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/head/record"
	"muster/internal/indexset"
	"muster/model"
	"muster/model/slurmopt"
	"muster/policy"
	"muster/wire/agent"
	"muster/wire/api"
	"muster/wire/grant"
)

// job is a job that has not ended, or ended less than Config.Keep ago.
type job struct {
	id uint64
	// array is the number of the array that this job is a task of, and task its task number; 0 and
	// -1 for a single job.
	array uint64
	task  int64
	// rest is the places of the tasks for which this job stands, if it is the rest of an array; of
	// them, passed have passed the gates atArray and atLimit.
	rest   *indexset.Set
	passed int
	of     *job // the rest that this one is shown for; see stand

	*order  // what its user wants
	queued  // its way to the policy
	attempt // its present start, or else the last
	passage passage
	// preempted is when it made way for others, the last maxPreempted times.
	preempted []record.Preemption

	state    api.State
	submit   time.Duration
	heard    time.Duration // when the command of an allocation was last heard of
	requeues uint32
	limit    int // how many devices the job may use at a time; -1 is all

	dirty bool // the job is in outbox.dirty
	told  bool // the job is in outbox.tell
	gone  bool // the core has forgotten it
}

// order is what a user has submitted. It does not change, and the tasks of an array share it.
type order struct {
	user   string
	dir    string
	key    string
	secret string // the job's credentials are derived from it
	// options is what the user submitted, as one line, and asks what of it everybody may see; said is
	// the same, read.
	options string
	asks    string
	said    *slurmopt.Options
	command []string // the beginning of the command line, for display
	need    need     // how much it takes of its user's limits
}

// queued is how far a waiting job has come. It stands at a gate, or has passed all of them and is with
// the policy.
type queued struct {
	held     heldBy
	priority *int64 // set by an administrator; nil if none was
	nice     int64
	gate     gate
	eligible time.Duration
	number   policy.JobID // the policy's number for it; -1 if the policy does not have it
	turn     int64        // its place in the queue; see model.Job
	// offered says that it is counted in array.offered and user.offered.
	offered bool
	// notBefore is the earliest start that a term of the dependency allows (after:JOB+MINUTES), or the next try
	// after a start that failed.
	notBefore time.Duration
	rings     time.Duration // the latest instant for which there is a timer because the job may begin then
	unmet     []term        // the terms of its dependency that have not happened yet
	never     bool          // the dependency cannot be met any more
	looks     int           // entries of waitlist.waking that are about single tasks of other arrays
	// inArray and inLimit say that the job has passed the gates atArray and atLimit, and is counted
	// in array.admitted and user.taken.
	inArray, inLimit bool
	impossible       string // why no node can run it at the moment; "" if one can
}

// heldBy is a set: who holds a job back.
type heldBy uint8

const (
	heldByUser heldBy = 1 << iota
	heldByAdmin
)

// gate is a condition that a waiting job must meet before it is offered to the policy. Jobs pass
// the gates in this order (advanceJob).
type gate uint8

const (
	atHold gate = iota
	atDependency
	atBegin
	atArray
	atLimit
	atPolicy
)

// need is how much a job takes of its user's limits.
type need struct {
	gpus, cores int
	memory      int64
	licenses    int // of the licence that is counted
}

// name is the name of a job for people and for the policy: JOB, or ARRAY_TASK. A rest has that of its
// first task: see roster.restName.
func (j *job) name() string {
	if j.task < 0 {
		return strconv.FormatUint(j.id, 10)
	}
	return strconv.FormatUint(j.array, 10) + "_" + strconv.FormatInt(j.task, 10)
}

// bulk is the number under which the store has what the job runs; the tasks of an array share it.
func (j *job) bulk() uint64 {
	if j.array != 0 {
		return j.array
	}
	return j.id
}

// over says whether the job has ended.
func (j *job) over() bool { return j.state.Over() }

// active says whether it holds resources of the cluster.
func (j *job) active() bool { return len(j.tasks) > 0 && !j.over() }

// request is what the job asks for, or the alternative with which it was started.
func (j *job) request() *model.Request { return j.asked(j.alternative) }

// asked is one of the requests of a job: 0 is the main one.
func (o *order) asked(alternative int) *model.Request {
	if alternative > 0 && alternative <= len(o.said.Alternatives) {
		return &o.said.Alternatives[alternative-1]
	}
	return &o.said.Request
}

// hold is how the job has one of the devices that a part was given.
func (j *job) hold(part int, d model.Device, share int64) model.Hold {
	return j.said.GPU.Of(j.request(), share, d.Node != j.alloc.Parts[part].Node, j.usual)
}

// timeLimit is how long the job may run; 0 is no limit.
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

// aYear is how long the policy is told that jobs without a time limit run.
const aYear = 365 * 24 * time.Hour

// script says whether the job is a script, which runs on its first node alone.
func (o *order) script() bool { return len(o.command) > 0 && o.command[0] == scriptMark }

// scriptMark stands in for the script in job.command.
const scriptMark = "<script>"

// file expands a path as Slurm does: %j is the job, %A and %a the array and its task, %x the name,
// %u the user, %N the first node, %% a percent sign. Digits after the % pad numbers with zeros.
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

// output is the pattern of the file for the job's output.
func (j *job) output() string {
	switch {
	case j.said.Batch.Output != "":
		return j.said.Batch.Output
	case j.task >= 0:
		return "muster-%A_%a.out"
	}
	return "muster-%j.out"
}

// title is the job's name, as its user chose it or derived from the command.
func (o *order) title() string {
	switch {
	case o.said.Name != "":
		return o.said.Name
	case o.script():
		return "muster"
	case o.allocation() && len(o.command) == 1:
		return "interactive"
	case o.allocation():
		return path.Base(o.command[1])
	case len(o.command) > 0:
		return o.command[0][strings.LastIndexByte(o.command[0], '/')+1:]
	}
	return ""
}

// numbers appends the numbers of all tasks for which a job stands.
func (j *job) numbers(to []uint64) []uint64 {
	if j.rest == nil {
		return append(to, j.id)
	}
	to = slices.Grow(to, j.size())
	for place := range j.rest.All {
		to = append(to, j.array+uint64(place))
	}
	return to
}

// setPriority sets a job's priority outright; 0 has the head compute it.
func (j *job) setPriority(number int64) {
	j.priority = nil
	if number != 0 {
		j.priority = &number
	}
}

func (j *job) tally() tally {
	var n tally
	switch {
	case j.over():
		n.end(j.state, 1)
		return n
	case j.state == api.Pending:
		n.pending = 1
	}
	n.live = 1
	return n
}

// size is how many tasks a job stands for.
func (j *job) size() int {
	if j.rest == nil {
		return 1
	}
	return j.rest.Len()
}

// like says whether two rests of an array differ in their tasks alone.
func (j *job) like(o *job) bool {
	return j.state == api.Pending && j.held == o.held && j.nice == o.nice && equal(j.priority, o.priority) && j.notBefore == o.notBefore &&
		j.never == o.never && slices.Equal(j.unmet, o.unmet)
}

// taskName is the agents' name for a part of the job's present attempt.
func (j *job) taskName(part int) agent.Task {
	return agent.Task{Job: j.id, Attempt: j.nth, Part: int32(part)}
}

// credential is the secret of a part in the present attempt. It is derived from the job's secret,
// so it cannot be guessed, need not be stored, and differs in the next attempt.
func (j *job) credential(part int) grant.Credential {
	mac := hmac.New(sha256.New, []byte(j.secret))
	fmt.Fprint(mac, j.taskName(part))
	return grant.Credential(base64.RawURLEncoding.EncodeToString(mac.Sum(nil)))
}

// processes is how many processes a part runs, the rank of the first of them, and how many the job
// has.
func (j *job) processes(part int) (here, first, all int) {
	counts := j.perNode()
	for i, n := range counts {
		if i < part {
			first += n
		}
		all += n
	}
	return counts[part], first, all
}

// perNode is how many processes each part of a job runs.
func (j *job) perNode() []int {
	parts := j.alloc.Parts
	all := j.request().Processes
	counts := make([]int, len(parts))
	if all <= 0 {
		for i := range counts {
			counts[i] = 1
		}
		return counts
	}
	if j.request().Nodes > 0 {
		for i := range counts {
			counts[i] = all / len(parts)
			if i < all%len(parts) {
				counts[i]++
			}
		}
	} else {
		// The job asked for cores, not nodes: each part runs as many processes as fit its cores,
		// and the last part runs the remainder.
		each, left := max(1, int32(j.request().Threads())), all
		for i := range counts {
			counts[i] = min(left, int(parts[i].Cores/each))
			left -= counts[i]
		}
		counts[len(counts)-1] += left
	}
	return counts
}

// conclude decides how the job ended, and whether it is started anew.
func (j *job) conclude() (again bool) {
	moves := j.passage.from != "" // it does not begin anew, but goes on
	may := j.held&heldByAdmin == 0 || moves
	v := j.verdict(j.said.Batch.Requeue || moves, may, may && (moves || j.requeues < maxLaunches), moves)
	j.exit, j.signal, j.reason = v.exit, v.signal, v.reason
	if !v.again {
		j.state = v.state
	}
	return v.again
}
