package slurm

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"muster/model"
	"muster/model/slurmopt"
	"muster/slurm/words"
)

// Change is what a job asks for from now on, because the policy has chosen one of its alternatives.
// Slurm's record is changed to it, and the job keeps it, also when it is requeued.
type Change struct {
	Tasks, CPUs int
	// TimeLimit is 0 if it stays as it is.
	TimeLimit time.Duration
	// GPUs is how many of Slurm's own GPUs each node gives.
	GPUs int
	// Licences are the new ones; nil if they stay as they are.
	Licences *string
}

// rgpuOption matches --rgpu, which package slurmopt knows as --gres=rgpu.
var rgpuOption = regexp.MustCompile(`(^|\s)--rgpu[= ]`)

// ParseAlternative parses the value of --muster-or.
func ParseAlternative(options string) (model.Request, error) {
	o, err := slurmopt.Parse([]string{"sbatch", "--or=" + rgpuOption.ReplaceAllString(options, "$1--gres=rgpu:")})
	if err != nil {
		return model.Request{}, errors.New(strings.ReplaceAll(strings.ReplaceAll(err.Error(), "--or", "--muster-or"), "\n", "; "))
	}
	r := o.Alternatives[0]
	switch {
	case r.GPUMemory > 0:
		return r, errors.New("--muster-or: shares of GPUs are asked for with --rgpu=N:MEM")
	case r.Remote != nil && r.GPUs > 0:
		return r, errors.New("--muster-or: ask with either --rgpu or --gres=gpu, not with both")
	}
	return r, nil
}

// readAlternatives parses the alternatives in a job's comment. One that is wrong stays as an empty
// request, so that the others keep their numbers; the plug-in refuses wrong ones where it can.
func (rd *reader) readAlternatives(j *job) {
	j.ors = nil
	if !j.managed {
		return
	}
	for _, options := range j.comment.Request.Or {
		r, err := ParseAlternative(options)
		if err != nil {
			rd.out.note("job %s: its alternative %q is left out: %v", j.Ref, options, err)
			r = model.Request{}
		}
		j.ors = append(j.ors, r)
	}
}

// alternatives are the other requests that would do for a job. Their positions must stay those of
// the comment, so one that is not understood becomes a request that no node can satisfy.
func (rd *reader) alternatives(j *job) []model.Request {
	var list []model.Request
	for i := range j.ors {
		r, err := rd.alternative(j, &j.ors[i])
		if err != nil || j.ors[i].Cores+j.ors[i].CoresPerNode == 0 {
			r = model.Request{Nodes: 1, CoresPerNode: 1, NodeList: []string{"nowhere"}}
		}
		list = append(list, r)
	}
	return list
}

// alternative completes an alternative as the core reads Slurm's own fields of a job.
func (rd *reader) alternative(j *job, said *model.Request) (model.Request, error) {
	f := j.fact
	f.MinNodes, f.MaxNodes = said.Nodes, said.Nodes
	f.Tasks, f.TasksPerNode = max(1, said.Processes), 0
	f.CPUs = max(said.Cores, said.Nodes*said.CoresPerNode)
	f.CPUsPerTask, f.MinCPUsPerNode = max(1, said.CoresPerProcess), said.CoresPerNode
	f.MemoryPerNode, f.MemoryPerCPU = said.Memory, said.MemoryPerCore
	f.Exclusive, f.Contiguous = said.Exclusive, said.Contiguous
	f.Required = strings.Join(said.NodeList, ",")
	r, err := rd.requestOf(&f)
	if err != nil {
		return r, err
	}
	if r.NodeList, err = rd.nodesIn(&f, f.Required, r.Nodes); err != nil {
		return r, err
	}
	r.Processes, r.WallTime = f.Tasks, said.WallTime
	r.GPUs, r.GPUType, r.Remote = said.GPUs, said.GPUType, said.Remote
	return r, r.Validate()
}

// choose makes one of a job's alternatives what the job asks for. withdraw undoes it if the
// placement fails.
func (rd *reader) choose(j *job, alternative int) *Change {
	r := &j.spec.Alternatives[alternative-1]
	before := j.comment
	j.before = &before
	w := *j.comment.Request
	w.As, w.Or, w.GPUs, w.MemoryMB, w.Mode = alternative, nil, 0, 0, ""
	if r.Remote == nil {
		w.Terms = model.Terms{}
	} else {
		w.GPUs, w.MemoryMB = r.Remote.Count, r.Remote.Memory>>20
		if w.MemoryMB > 0 && !r.Remote.Shared {
			w.Mode = words.Exclusive
		}
	}
	j.comment.Request = &w
	j.borrower = w.GPUs > 0
	return &Change{Tasks: max(1, r.Processes), CPUs: r.Nodes * r.CoresPerNode, TimeLimit: r.WallTime, GPUs: r.GPUs, Licences: licences(j.fact.Licences, &w)}
}

// licences are the licences of a job when it borrows other GPUs: one rgpu for each whole GPU, if it
// had any rgpu.
func licences(had string, w *words.Request) *string {
	var list []string
	found := false
	for item := range strings.SplitSeq(had, ",") {
		if name, _, _ := strings.Cut(item, ":"); name == "rgpu" {
			found = true
		} else if item != "" {
			list = append(list, item)
		}
	}
	if !found {
		return nil
	}
	if w.GPUs > 0 && !w.Shares() {
		list = append(list, fmt.Sprintf("rgpu:%d", w.GPUs))
	}
	text := strings.Join(list, ",")
	return &text
}
