package workload

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/units"
	"muster/model"
)

// sacctCommand exports all columns that the decoder reads.
const sacctCommand = "sacct -a -X -P -S 2024-01-01 -o JobID,User,Group,Account,Partition,JobName,Submit,Start,End,ElapsedRaw,TimelimitRaw,NNodes,NCPUS,ReqMem,ReqTRES,AllocTRES,State,Priority,TotalCPU"

// sacctDecoder reads the output of Slurm's sacct with -P (or -p): a header line and a line per job,
// with | between the values, in any order of columns.
//
// It reads only jobs that ended, and ignores the lines of job steps (123.batch, 123.0). Elements of
// arrays (123_4) and components of heterogeneous jobs (123+0) are jobs of their own. If the log has
// no numbers of nodes, the cores are spread, or put on nodes of ReadOptions.CoresPerNode. What a
// job was given (NCPUS, AllocTRES) takes precedence over what it asked for, because that is what
// other jobs could not use. Times without a zone are taken as UTC.
type sacctDecoder struct {
	*batch
	header []string
	values []cell
}

func (d *sacctDecoder) line(text []byte) *fault {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	d.split(text)
	if d.header == nil {
		for _, v := range d.values {
			d.header = append(d.header, strings.ToLower(strings.TrimSpace(v.text)))
		}
		if f := checkColumns(len(d.header)); f != nil {
			return f
		}
		return d.needed()
	}
	if len(d.values) != len(d.header) {
		return faultf(len(text)+1, "the line has %s, the header names %d", units.Plural(len(d.values), "value"), len(d.header))
	}
	return d.decode()
}

func (d *sacctDecoder) split(text []byte) {
	d.values = d.values[:0]
	for start := 0; start <= len(text); {
		end := bytes.IndexByte(text[start:], '|')
		if end < 0 {
			end = len(text) - start
		}
		d.values = append(d.values, cell{string(text[start : start+end]), start + 1})
		start += end + 1
	}
	if last := len(d.values) - 1; last > 0 && d.values[last].text == "" && (d.header == nil || len(d.values) == len(d.header)+1) {
		d.values = d.values[:last] // sacct -p ends each line with |
	}
}

// needed reports an essential column that the log lacks.
func (d *sacctDecoder) needed() *fault {
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(d.header, n) })
	}
	missing := ""
	switch {
	case !has("jobid", "jobidraw"):
		missing = "JobID"
	case !has("submit"):
		missing = "Submit"
	case !has("elapsedraw", "elapsed") && !(has("start") && has("end")):
		missing = "ElapsedRaw (or Elapsed, or Start and End)"
	case !has("nnodes", "allocnodes", "reqnodes", "ncpus", "alloccpus", "reqcpus", "alloctres", "reqtres"):
		missing = "NNodes and NCPUS"
	}
	if missing != "" {
		return fatalf(1, "the column %s is missing: export the log with %s", missing, sacctCommand)
	}
	return nil
}

// value is the first of these columns that exists and is not empty.
func (d *sacctDecoder) value(names ...string) cell {
	for _, name := range names {
		if i := slices.Index(d.header, name); i >= 0 {
			if text := strings.TrimSpace(d.values[i].text); text != "" {
				return cell{text, d.values[i].column}
			}
		}
	}
	return cell{"", 1}
}

func (d *sacctDecoder) decode() *fault {
	id := d.value("jobid", "jobidraw")
	if strings.Contains(id.text, ".") {
		return nil // a step of a job
	}
	if id.text == "" {
		return faultf(1, "the JobID is empty")
	}
	state, _, _ := strings.Cut(strings.ToUpper(d.value("state").text), " ")
	state = strings.TrimSuffix(state, "+")
	switch state {
	case "PENDING", "PD":
		d.note("still waiting left out")
		return nil
	case "RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "REQUEUED", "RESIZING", "STOPPED", "SIGNALING", "STAGE_OUT":
		d.note("still running left out (their run time is not known)")
		return nil
	}
	submit, known, f := d.instant("submit")
	if f != nil {
		return f
	}
	if !known {
		return faultf(d.value("submit").column, "the submit time is not known")
	}
	start, started, f := d.instant("start")
	if f != nil {
		return f
	}
	run, ran, f := d.run(start, started)
	if f != nil {
		return f
	}
	if !ran || (slices.Contains(d.header, "start") && !started) || (run == 0 && status(state) == model.StatusCancelled) {
		d.note("that never started left out")
		return nil
	}

	j := d.job()
	if f := d.fill(j); f != nil {
		d.drop()
		return f
	}
	j.ID = d.id([]byte(id.text))
	j.Submit, j.Run = submit, run
	d.originKnown = true
	l := unlogged
	l.Status = status(state)
	l.Executable = d.shared("jobname")
	if started && start >= submit {
		l.Wait = start - submit
	}
	if cpu, err := units.ParseDuration(d.value("totalcpu").text); err == nil {
		l.CPUTime = cpu / time.Duration(max(1, j.Request.TotalCores()))
	}
	j.Logged = d.log(l)
	return d.keep(1)
}

func (d *sacctDecoder) shared(names ...string) string { return d.word([]byte(d.value(names...).text)) }

func (d *sacctDecoder) instant(name string) (time.Duration, bool, *fault) {
	v := d.value(name)
	at, known, err := parseInstant(v.text)
	if err != nil {
		return 0, false, faultf(v.column, "%s: %v", name, err)
	}
	return at, known, nil
}

// run is the run time of the job: its elapsed time, or the time from start to end.
func (d *sacctDecoder) run(start time.Duration, started bool) (time.Duration, bool, *fault) {
	if v := d.value("elapsedraw", "elapsed"); v.text != "" {
		run, err := parseSpan(v.text)
		if err != nil {
			return 0, false, faultf(v.column, "elapsed: %v", err)
		}
		return run, true, nil
	}
	end, ended, f := d.instant("end")
	if f != nil || !started || !ended {
		return 0, false, f
	}
	if end < start {
		return 0, false, faultf(d.value("end").column, "the job ends before it starts")
	}
	return end - start, true, nil
}

// fill sets the request of the job.
func (d *sacctDecoder) fill(j *model.Job) *fault {
	j.User = d.shared("user", "uid")
	j.Group = d.shared("group", "account", "gid")
	j.Queue = d.shared("partition")
	j.QOS = d.shared("qos")
	if v := d.value("priority"); v.text != "" {
		n, err := strconv.ParseInt(v.text, 10, 64)
		if err != nil {
			return faultf(v.column, "priority: %q is not a whole number", v.text)
		}
		j.Priority = n
	}
	var f *fault
	if j.WallTime, f = d.wallTime(); f != nil {
		return f
	}
	res := d.value("alloctres", "reqtres")
	tres, err := parseTRES(res.text)
	if err != nil {
		return faultf(res.column, "%v", err)
	}
	nodes, f := d.count(tres.nodes, "nnodes", "allocnodes", "reqnodes")
	if f != nil {
		return f
	}
	cores, f := d.count(tres.cpus, "ncpus", "alloccpus", "reqcpus")
	if f != nil {
		return f
	}
	r := &j.Request
	r.Nodes, r.Cores = int(nodes), int(cores)
	switch n := int64(d.opt.CoresPerNode); {
	case nodes == 0 && n > 0:
		r.Nodes = int(ceilDiv(cores, n))
	case nodes == 0 && (cores == 0 || tres.gpus > 0):
		r.Nodes = 1
	}
	if r.Nodes > 0 {
		r.GPUs = int(ceilDiv(tres.gpus, int64(r.Nodes)))
	}
	if r.GPUs > 0 {
		r.GPUMemory = tres.memory
	}
	r.GPUType = d.word([]byte(tres.gpuType))
	if tres.remote > 0 {
		r.Remote = &model.RemoteGPUs{Count: int(tres.remote), Memory: tres.remoteMemory, Shared: tres.remoteMemory > 0}
	}
	return d.memory(r)
}

func (d *sacctDecoder) count(otherwise int64, names ...string) (int64, *fault) {
	v := d.value(names...)
	if v.text == "" || v.text == "0" {
		return otherwise, nil
	}
	// sacct may abbreviate large counts, as 4K.
	n, err := strconv.ParseInt(v.text, 10, 64)
	if err != nil {
		n, err = units.ParseSize(v.text)
	}
	if err != nil || !atMost(n) {
		return 0, faultf(v.column, "%q is not a number of nodes or CPUs", v.text)
	}
	return n, nil
}

// wallTime reads TimelimitRaw, in minutes, or Timelimit; 0 means no limit.
func (d *sacctDecoder) wallTime() (time.Duration, *fault) {
	raw := d.value("timelimitraw")
	if minutes, err := strconv.ParseInt(raw.text, 10, 64); err == nil && 0 <= minutes && minutes <= maxSeconds/60 {
		return time.Duration(minutes) * time.Minute, nil
	}
	v := d.value("timelimit", "timelimitraw")
	switch strings.ToLower(v.text) {
	case "", "partition_limit", "none", "invalid":
		return 0, nil
	}
	limit, err := parseSpan(v.text)
	if err != nil && !errors.Is(err, units.ErrUnlimited) {
		return 0, faultf(v.column, "time limit: %v", err)
	}
	return limit, nil
}

// memory reads ReqMem: 4Gn is per node, 4Gc per core and, since Slurm 21.08, 16G for the whole job.
// The units are powers of 1024, and M is the default.
func (d *sacctDecoder) memory(r *model.Request) *fault {
	v := d.value("reqmem")
	text := strings.TrimSuffix(v.text, "?")
	if text == "" || text == "0" {
		return nil
	}
	number, per := text, byte(0)
	if last := text[len(text)-1]; last == 'n' || last == 'c' {
		number, per = text[:len(text)-1], last
	}
	if last := number[max(0, len(number)-1):]; last != "" && last[0] <= '9' {
		number += "M"
	}
	n, err := units.ParseSize(number)
	if err != nil {
		return faultf(v.column, "ReqMem: %v", err)
	}
	switch {
	case per == 'c':
		r.MemoryPerCore = n
	case r.Nodes == 0: // the number of nodes is unknown
		r.MemoryPerCore = ceilDiv(n, int64(r.Cores))
	case per == 'n':
		r.Memory = n
	default:
		r.Memory = ceilDiv(n, int64(r.Nodes))
	}
	return nil
}

// tres are the total trackable resources of a job.
type tres struct {
	cpus, nodes, gpus int64
	gpuType           string
	memory            int64 // of the job on each GPU of its nodes, 0 for all of it
	// remote GPUs may be on any nodes. remoteMemory is the job's memory on each, 0 for all of it.
	remote, remoteMemory int64
}

// parseTRES parses cpu=16,mem=64G,node=2,gres/gpu=4,gres/gpu:a100=4. If only typed GPUs are
// counted, it adds them up. gres/rgpu=4,gres/rgpumem=1G are remote GPUs, and gres/gpumem=1G are shares of
// the others, as muster history writes them.
func parseTRES(text string) (tres, error) {
	var t tres
	var typed int64
	if text == "" {
		return t, nil
	}
	for item := range strings.SplitSeq(text, ",") {
		key, value, _ := strings.Cut(item, "=")
		kind, isTyped := strings.CutPrefix(key, "gres/gpu:")
		switch {
		case key == "cpu", key == "node", key == "gres/gpu", key == "gres/rgpu", isTyped:
		case key == "gres/rgpumem", key == "gres/gpumem":
			size, err := units.ParseSize(value)
			if err != nil || size < 0 {
				return t, fmt.Errorf("%q is not a share of a GPU's memory", item)
			}
			if key == "gres/rgpumem" {
				t.remoteMemory = size
			} else {
				t.memory = size
			}
			continue
		default:
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			n, err = units.ParseSize(value)
		}
		if err != nil || !atMost(n) {
			return t, fmt.Errorf("%q is not a count of a resource", item)
		}
		switch {
		case key == "cpu":
			t.cpus = n
		case key == "node":
			t.nodes = n
		case key == "gres/rgpu":
			t.remote = n
		case isTyped:
			if typed > 0 && kind != t.gpuType {
				kind = "" // a request has one type; for several, none is set
			}
			typed += n
			t.gpuType = kind
		default:
			t.gpus = n
		}
	}
	t.gpus = max(t.gpus, typed)
	return t, nil
}

// status translates Slurm's states of jobs that ended.
func status(state string) model.Status {
	switch state {
	case "COMPLETED", "CD":
		return model.StatusCompleted
	case "CANCELLED", "CA", "PREEMPTED", "REVOKED":
		return model.StatusCancelled
	case "TIMEOUT", "TO", "DEADLINE":
		return model.StatusTimeout
	case "":
		return model.StatusUnknown
	}
	return model.StatusFailed
}
