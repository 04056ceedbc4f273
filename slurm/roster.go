package slurm

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/model"
	"muster/policy"
	"muster/slurm/words"
)

// roster is the jobs that have not ended. It knows who waits for whom, and how many tasks of arrays there
// are.
type roster struct {
	jobs    map[uint64]*job
	active  map[uint64]int // by array: its tasks in the policy's book
	members map[uint64]int // by array: its tasks with a record of their own
	listing uint64
}

// Ref names a job as Slurm's commands do: by its number, or its array and task.
type Ref struct {
	ID    uint64
	Array uint64
	Task  int
}

func (r Ref) String() string {
	if r.Array != 0 {
		return fmt.Sprintf("%d_%d", r.Array, r.Task)
	}
	return strconv.FormatUint(r.ID, 10)
}

// phase is the stage of a job of Muster.
type phase uint8

const (
	aside     phase = iota // not offered to the policy
	waiting                // in the policy's queue
	placing                // a request to place it is in progress, or its outcome is unknown
	placed                 // Slurm was told, and has not started it yet
	running                // Slurm has started it
	recalling              // it is to be held again
	leaving                // it is being handed to Slurm's scheduler
	slurms                 // it is Slurm's own
)

func (p phase) String() string {
	return [...]string{"aside", "waiting", "placing", "placed", "running", "recalling", "leaving", "slurm's"}[p]
}

// job is what the core knows of a job that has not ended.
type job struct {
	Ref
	fact Job
	wish
	place
	stopping
	phase phase
	why   string
	until time.Duration // it stands aside until then
	since time.Duration // when this phase began
	// told is when the latest request about the job was answered: a listing that was requested
	// before that may not show the effect, and is ignored. While busy is true, a request has not
	// been answered.
	told time.Duration
	busy bool
	// said is the comment's sentence, saidAt when it was written.
	said    string
	saidAt  time.Duration
	mark    uint64 // the latest listing that contains it
	counted bool   // it is counted in roster.active
	member  bool   // it is counted in roster.members
	tries   int    // how often it was recalled or refused since it last ran
	nice    int64  // the nice value that the policy was told
	ranked  bool   // it is in the book of priorities
}

// wish is what a job asks for.
type wish struct {
	comment words.Comment
	managed bool
	spec    *model.Job
	// before is the comment before choose changed what the job asks for; nil if it did not.
	before   *words.Comment
	ors      []model.Request // its alternatives, as they were written
	borrower bool            // it asks for GPUs on any node
}

// place is what a job has in the policy's book.
type place struct {
	number policy.JobID   // its number in the policy's state, or -1 if it is not there
	parts  []policy.JobID // the policy's jobs for its uses of single nodes, where one job could not describe them
	plan   *words.Answer
	uses   []Use         // what the book has for it while it runs
	grants []model.Grant // GPUs lent to it, while uncrowd enters it again
	// short: the book lacks some of the GPUs that it has, because their nodes have not said yet what
	// they lend.
	short  bool
	spread bool // no processors per node are pinned: Slurm takes whatever is free on its nodes
}

// sorted lists the numbers of some jobs, ascending.
func (r *roster) sorted(which func(*job) bool) []uint64 {
	var ids []uint64
	for id, j := range r.jobs {
		if which(j) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func refOf(f *Job) Ref {
	if f.ArrayJob == 0 || f.several() {
		return Ref{ID: f.ID}
	}
	task := f.ArrayTask
	if list := f.tasks(1); len(list) == 1 {
		task = list[0]
	}
	return Ref{ID: f.ID, Array: f.ArrayJob, Task: task}
}

// borrows says whether a job asks for GPUs on any node.
func (j *job) borrows() bool {
	return j.managed && (j.comment.Request.GPUs > 0 || strings.Contains(j.fact.TRESPerNode+j.fact.TRESPerJob, "rgpu"))
}

// member counts the tasks of arrays that have a record of their own.
func (r *roster) member(j *job, array uint64, is bool) {
	if is == j.member {
		return
	}
	j.member = is
	if is {
		r.members[array]++
	} else if r.members[array]--; r.members[array] == 0 {
		delete(r.members, array)
	}
}

// count counts the tasks of arrays that are in the policy's book.
func (r *roster) count(j *job) {
	in := j.number >= 0 || len(j.parts) > 0
	if in == j.counted || j.fact.ArrayJob == 0 {
		return
	}
	j.counted = in
	if in {
		r.active[j.fact.ArrayJob]++
	} else if r.active[j.fact.ArrayJob]--; r.active[j.fact.ArrayJob] == 0 {
		delete(r.active, j.fact.ArrayJob)
	}
}

// suspended is 1 for a suspended job, 0 for others, for sorting.
func (j *job) suspended() int {
	if j.fact.State == "SUSPENDED" {
		return 1
	}
	return 0
}
