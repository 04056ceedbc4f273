package slurm

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/model"
	"muster/wire/grant"
)

// reader understands what jobs ask for, in terms of the fleet. It changes nothing but a job's own wish.
type reader struct {
	ground
}

// understand turns Slurm's record of a job into a request, or says what of it the policies have no
// words for.
//
// Each node gives as many processors as the largest share needs: see trim. A job without -N gets as
// few nodes as can hold it.
func (rd *reader) understand(j *job) (*model.Job, error) {
	f := &j.fact
	switch {
	case f.HetJob != 0:
		return nil, errors.New("heterogeneous jobs start all their parts at once, which only Slurm's scheduler does")
	case f.Features != "":
		return nil, fmt.Errorf("it asks for features of nodes (%s)", f.Features)
	case strings.Contains(f.Partition, ","):
		return nil, errors.New("it names several partitions")
	case f.TRESPerSocket != "":
		return nil, errors.New("it asks for GPUs by socket")
	}
	r, err := rd.requestOf(f)
	if err != nil {
		return nil, err
	}
	if r.NodeList, err = rd.nodesFor(j, r.Nodes); err != nil {
		return nil, err
	}
	if err := rd.addGPUs(j, &r); err != nil {
		return nil, err
	}
	if rd.spreads(f, &r, j.borrower) {
		r.Nodes, r.CoresPerNode, r.Cores, r.CoresPerProcess = 0, 0, f.CPUs, max(1, f.CPUsPerTask)
	}
	spec := &model.Job{ID: j.Ref.String(), User: f.User, Group: f.Account, Queue: f.Partition, QOS: rd.class(f), Reservation: f.Reservation,
		WallTime: rd.expected(f), Request: r, Alternatives: rd.alternatives(j), Submit: max(0, rd.policyTime(f.Submitted))}
	return spec, spec.Validate()
}

// class is the name of a job's class, for policies in which classes preempt each other.
func (rd *reader) class(f *Job) string {
	if rd.cfg.ClassByPartition {
		return f.Partition
	}
	return f.QOS
}

// requestOf reads nodes, processors and memory.
func (rd *reader) requestOf(f *Job) (model.Request, error) {
	nodes := max(1, f.MinNodes)
	if f.CPUs > nodes*rd.fleet.largest && rd.fleet.largest > 0 && (f.MaxNodes == 0 || f.MaxNodes > nodes) {
		nodes = (f.CPUs + rd.fleet.largest - 1) / rd.fleet.largest
	}
	cpt := max(1, f.CPUsPerTask)
	cpus := max((f.CPUs+nodes-1)/nodes, f.MinCPUsPerNode)
	if f.Tasks > 0 {
		cpus = max(cpus, (f.Tasks+nodes-1)/nodes*cpt)
	}
	cpus = max(cpus, f.TasksPerNode*cpt, 1)
	if t := max(1, rd.fleet.threads); cpus%t != 0 {
		cpus += t - cpus%t // Slurm allocates whole cores
	}
	r := model.Request{Nodes: nodes, CoresPerNode: cpus, Contiguous: f.Contiguous, Exclusive: f.Exclusive || rd.cfg.WholeNodes}
	if p := rd.fleet.partitions[f.Partition]; p != nil && p.Exclusive {
		r.Exclusive = true
	}
	if rd.cfg.Memory {
		switch {
		case f.MemoryPerNode > 0:
			r.Memory = f.MemoryPerNode
		case f.MemoryPerCPU > 0:
			r.Memory = f.MemoryPerCPU * int64(cpus)
			if r.Exclusive { // Slurm counts all processors of the node
				r.Memory = max(r.Memory, min(f.MemoryPerCPU*int64(rd.fleet.largest), rd.fleet.leastMem))
			}
		default:
			r.Memory = rd.fleet.leastMem // Slurm allocates all memory of the node
		}
	}
	return r, nil
}

// nodesFor are the nodes that a job may use; nil is all. The nodes that a placement wrote into the
// record are not the user's wish: that is in the comment (Was).
func (rd *reader) nodesFor(j *job, nodes int) ([]string, error) {
	required := j.fact.Required
	if j.comment.Request.Placed {
		required = j.comment.Request.Was
	}
	return rd.nodesIn(&j.fact, required, nodes)
}

// nodesIn are the nodes of a job's partition, or those that it requires, without those that it
// excludes; nil is all.
func (rd *reader) nodesIn(f *Job, required string, nodes int) ([]string, error) {
	var list []string
	if p := rd.fleet.partitions[f.Partition]; p != nil {
		if list = p.names; required == "" && f.Excluded == "" {
			if len(list) >= len(rd.fleet.byName) {
				return nil, nil
			}
			return list, nil
		}
		list = slices.Clone(list)
	} else {
		for _, n := range rd.fleet.nodes {
			list = append(list, n.Name)
		}
	}
	if required != "" {
		must := names(required)
		if len(must) != nodes {
			return nil, fmt.Errorf("it names %d of its %d nodes", len(must), nodes)
		}
		list = must
	}
	for _, out := range names(f.Excluded) {
		if i := slices.Index(list, out); i >= 0 {
			list = slices.Delete(list, i, i+1)
		}
	}
	if len(list) == 0 {
		return nil, errors.New("no node is left for it to use")
	}
	return list, nil
}

// addGPUs reads the GPUs that a job asks for, on its nodes and on any node.
func (rd *reader) addGPUs(j *job, r *model.Request) error {
	f, w := &j.fact, j.comment.Request
	perNode, err := gresOf(f.TRESPerNode)
	if err != nil {
		return err
	}
	perJob, err := gresOf(f.TRESPerJob)
	if err != nil {
		return err
	}
	perTask, err := gresOf(f.TRESPerTask)
	if err != nil {
		return err
	}
	if perJob.gpus%r.Nodes != 0 {
		return fmt.Errorf("its %d GPUs cannot be divided equally among %d nodes", perJob.gpus, r.Nodes)
	}
	if perTask.gpus > 0 && f.Tasks%r.Nodes != 0 {
		return fmt.Errorf("its %d tasks, each with GPUs, cannot be divided equally among %d nodes", f.Tasks, r.Nodes)
	}
	tasks := (max(1, f.Tasks) + r.Nodes - 1) / r.Nodes
	r.GPUs = perNode.gpus + perJob.gpus/r.Nodes + perTask.gpus*tasks
	for _, g := range []gres{perNode, perJob, perTask} {
		if g.kind != "" {
			r.GPUType = g.kind
		}
	}
	count := w.GPUs
	if count == 0 {
		count = perNode.remote*r.Nodes + perJob.remote
	}
	switch {
	case count == 0:
		return nil
	case r.GPUs > 0:
		return errors.New("GPUs of its own nodes (--gres=gpu) besides")
	case count > grant.MaxDevices*r.Nodes:
		return fmt.Errorf("a program has at most %d of them, not %d", grant.MaxDevices, (count+r.Nodes-1)/r.Nodes)
	}
	r.Remote = &model.RemoteGPUs{Count: count, Memory: w.MemoryMB << 20, Shared: w.Shares()}
	return nil
}

// gres is the GPUs that a TRES specification asks for.
type gres struct {
	gpus, remote int
	kind         string
}

// gresOf parses "gres/gpu:1", "gres:gpu:a100:2", "cpu=2,gres/gpu=1", "gres/rgpu:2". Any other
// resource is an error.
func gresOf(text string) (gres, error) {
	var g gres
	if text == "" {
		return g, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		if strings.HasPrefix(item, "cpu") {
			continue
		}
		item = strings.TrimPrefix(strings.TrimPrefix(item, "gres/"), "gres:")
		f := strings.FieldsFunc(item, func(r rune) bool { return r == ':' || r == '=' })
		n := 1
		if len(f) > 1 {
			if k, err := strconv.Atoi(f[len(f)-1]); err == nil {
				n, f = k, f[:len(f)-1]
			}
		}
		switch {
		case len(f) == 1 && f[0] == "rgpu":
			g.remote += n
		case len(f) >= 1 && len(f) <= 2 && f[0] == "gpu":
			g.gpus += n
			if len(f) == 2 {
				g.kind = f[1]
			}
		default:
			return g, fmt.Errorf("it asks for %s", item)
		}
	}
	return g, nil
}

// expected is how long a job may run.
func (rd *reader) expected(f *Job) time.Duration {
	if f.TimeLimit > 0 {
		return f.TimeLimit
	}
	if p := rd.fleet.partitions[f.Partition]; p != nil && p.MaxTime > 0 {
		return p.MaxTime
	}
	return year
}
