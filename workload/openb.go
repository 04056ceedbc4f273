package workload

import (
	"slices"
	"strings"
	"time"

	"muster/model"
)

// openbShare is the memory that represents a thousandth of a GPU. The trace gives shares of GPUs in
// thousandths, independent of their memory. So the cluster should describe each GPU with 1000MiB.
const openbShare = 1 << 20

// openbDecoder reads the pod lists of Alibaba's cluster-trace-gpu-v2023 (openb).
//
// A pod is a job on one node. It runs from when it was scheduled to its deletion or, if it was
// never scheduled, from its creation. A list of GPU types (A|B) becomes alternative requests. In
// lists without times (5 columns) all pods are submitted at 0, in order, with a run time of 0,
// which is enough for filling a cluster once.
type openbDecoder struct {
	*batch
	table
	bound  bool
	column map[string]int
}

var openbColumns = []string{
	"name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli",
	"gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time",
}

func (d *openbDecoder) line(text []byte) *fault {
	cells, f := d.row(text)
	if f != nil || d.header == nil {
		return f
	}
	if !d.bound {
		return d.bind()
	}
	if cells == nil {
		return nil
	}
	return d.decode(cells)
}

// bind finds the columns. The first five must be present.
func (d *openbDecoder) bind() *fault {
	d.bound = true
	d.column = make(map[string]int)
	for i, name := range openbColumns {
		at := d.index(name)
		if at < 0 && i < 5 {
			return fatalf(1, "the column %q is missing: a pod list has %s", name, strings.Join(openbColumns[:5], ","))
		}
		d.column[name] = at
	}
	return nil
}

// cell is the value in a column; empty if the list does not have the column.
func (d *openbDecoder) cell(cells []cell, name string) cell {
	if at := d.column[name]; at >= 0 {
		return cells[at]
	}
	return cell{"", 1}
}

func (d *openbDecoder) decode(cells []cell) *fault {
	var n [5]int64
	for i, name := range openbColumns[1:5] {
		c := d.cell(cells, name)
		v, err := parseCount(c.text)
		if err != nil {
			return faultf(c.column, "%s: %v", name, err)
		}
		n[i] = v
	}
	milliCPU, mib, gpus, milliGPU := n[0], n[1], n[2], n[3]

	j := d.job()
	j.ID = d.id([]byte(d.cell(cells, "name").text))
	j.Queue = d.word([]byte(d.cell(cells, "qos").text))
	cores := milliCPU
	if !d.opt.MilliCores {
		cores = ceilDiv(milliCPU, 1000)
	}
	j.Request = model.Request{
		Nodes:  1,
		Cores:  int(max(1, cores)),
		Memory: mib << 20,
		GPUs:   int(gpus),
	}
	if gpus > 0 && milliGPU > 0 && milliGPU < 1000 {
		j.Request.GPUMemory = milliGPU * openbShare
		j.Intensity = float64(milliGPU) / 1000 // the trace's shares are shares of compute time
	}
	if spec := d.cell(cells, "gpu_spec").text; spec != "" && gpus > 0 {
		d.types(j, strings.Split(spec, "|"))
	}
	if f := d.times(j, cells); f != nil {
		d.drop()
		return f
	}
	return d.keep(1)
}

// types makes a request for each acceptable GPU type.
func (d *openbDecoder) types(j *model.Job, types []string) {
	slices.Sort(types)
	for i, t := range slices.Compact(types) {
		t = d.word([]byte(t))
		if i == 0 {
			j.Request.GPUType = t
			continue
		}
		r := j.Request
		r.GPUType = t
		j.Alternatives = append(j.Alternatives, r)
	}
}

func (d *openbDecoder) times(j *model.Job, cells []cell) *fault {
	if d.column["creation_time"] < 0 || d.column["deletion_time"] < 0 {
		d.note("without times: submitted at 0 with a run time of 0")
		return nil
	}
	var at [3]time.Duration
	for i, name := range []string{"creation_time", "deletion_time", "scheduled_time"} {
		c := d.cell(cells, name)
		v, err := parseSpan(c.text)
		if err != nil {
			return faultf(c.column, "%s: %v", name, err)
		}
		at[i] = v
	}
	created, deleted, scheduled := at[0], at[1], at[2]
	l := unlogged
	started := created
	if d.cell(cells, "scheduled_time").text != "" {
		started = scheduled
		l.Wait = max(0, scheduled-created)
	} else {
		d.note("never scheduled: taken to run from creation to deletion")
	}
	if deleted < started {
		return faultf(d.cell(cells, "deletion_time").column, "the pod is deleted before it starts")
	}
	j.Submit, j.Run = created, deleted-started
	switch d.cell(cells, "pod_phase").text {
	case "Succeeded":
		l.Status = model.StatusCompleted
	case "Failed":
		l.Status = model.StatusFailed
	}
	j.Logged = d.log(l)
	return nil
}
