package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/slurm"
)

// number is a number in any of Slurm's spellings: 5, "5", null, or {"set","infinite","number"}.
// Absent, infinite and Slurm's NO_VAL are 0.
type number float64

// noValue says whether a number is one of Slurm's values for "not set" or "infinite", of 32 or 64
// bits.
func noValue(n float64) bool {
	return n < 0 || n == math.MaxUint32 || n == math.MaxUint32-1 || n >= math.MaxUint64-4096
}

// UnmarshalJSON is called some thirty times per job, so plain numbers are parsed directly.
func (n *number) UnmarshalJSON(b []byte) error {
	*n = 0
	f, given := 0.0, false
	switch b[0] {
	case '{':
		var v struct {
			Set, Infinite bool
			Number        json.RawMessage
		}
		if err := json.Unmarshal(b, &v); err != nil {
			return err
		}
		if v.Set && !v.Infinite {
			f, given = plainNumber(v.Number)
		}
	case '"':
		f, given = plainNumber(b[1 : len(b)-1])
	default:
		f, given = plainNumber(b)
	}
	if given && !noValue(f) {
		*n = number(f)
	}
	return nil
}

func plainNumber(b []byte) (float64, bool) {
	f, err := strconv.ParseFloat(string(b), 64)
	return f, err == nil && !math.IsNaN(f)
}

// short is a number that Slurm keeps in 16 bits. These have values of their own for "not set" and
// "infinite", which are 0 too. A longer number may well be as large as these are.
type short struct{ number }

// The values of 16 bits that are none.
const (
	notSet16   = math.MaxUint16 - 1
	infinite16 = math.MaxUint16
)

func (n *short) UnmarshalJSON(b []byte) error {
	err := n.number.UnmarshalJSON(b)
	if n.number == notSet16 || n.number == infinite16 {
		n.number = 0
	}
	return err
}

func (n number) int() int { return int(min(n, math.MaxInt32)) }
func (n number) moment() time.Duration {
	return time.Duration(min(float64(n), math.MaxInt32*4)) * time.Second
}
func (n number) minutes() time.Duration {
	return time.Duration(min(float64(n), math.MaxInt32)) * time.Minute
}
func (n number) megabytes() int64 { return int64(min(float64(n), 1<<40)) << 20 }

// list is a JSON list of words, or a single word.
type list []string

func (l *list) UnmarshalJSON(b []byte) error {
	var v any
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*l = nil
	switch v := v.(type) {
	case string:
		if v != "" {
			*l = list{v}
		}
	case []any:
		for _, item := range v {
			if s, ok := item.(string); ok {
				*l = append(*l, s)
			}
		}
	}
	return nil
}

func (l list) has(word string) bool {
	return slices.ContainsFunc(l, func(s string) bool { return strings.EqualFold(s, word) })
}

// text is a string that may be null.
type text = string

// signed is a number that may be negative.
type signed float64

func (n *signed) UnmarshalJSON(b []byte) error {
	var f float64
	if json.Unmarshal(b, &f) == nil {
		*n = signed(f)
	}
	return nil
}

// jobDocument is a job as REST describes it, in all versions.
// It has a field for each of Slurm's that is read.
type jobDocument struct {
	ID           uint64  `json:"job_id"`
	Name         text    `json:"name"`
	User         text    `json:"user_name"`
	UID          number  `json:"user_id"`
	Account      text    `json:"account"`
	QOS          text    `json:"qos"`
	Partition    text    `json:"partition"`
	State        list    `json:"job_state"`
	Reason       text    `json:"state_reason"`
	Priority     *number `json:"priority"`
	Restarts     short   `json:"restart_cnt"`
	Nice         signed  `json:"nice"`
	Requeue      *bool   `json:"requeue"`
	Comment      text    `json:"comment"`
	AdminComment text    `json:"admin_comment"`
	Submitted    number  `json:"submit_time"`
	Eligible     number  `json:"eligible_time"`
	Started      number  `json:"start_time"`
	TimeLimit    number  `json:"time_limit"`

	NodeCount      number `json:"node_count"`
	MaxNodes       number `json:"max_nodes"`
	CPUs           number `json:"cpus"`
	Tasks          number `json:"tasks"`
	CPUsPerTask    short  `json:"cpus_per_task"`
	TasksPerNode   short  `json:"tasks_per_node"`
	MinCPUsPerNode short  `json:"minimum_cpus_per_node"`
	MemoryPerNode  number `json:"memory_per_node"`
	MemoryPerCPU   number `json:"memory_per_cpu"`
	Shared         list   `json:"shared"`
	Contiguous     bool   `json:"contiguous"`
	Required       text   `json:"required_nodes"`
	Excluded       text   `json:"excluded_nodes"`
	Features       text   `json:"features"`
	TRESPerJob     text   `json:"tres_per_job"`
	TRESPerNode    text   `json:"tres_per_node"`
	TRESPerTask    text   `json:"tres_per_task"`
	TRESPerSocket  text   `json:"tres_per_socket"`

	Dependency  text   `json:"dependency"`
	Reservation text   `json:"resv_name"`
	Licences    text   `json:"licenses"`
	ArrayJob    number `json:"array_job_id"`
	ArrayTask   number `json:"array_task_id"`
	ArrayTasks  text   `json:"array_task_string"`
	ArrayLimit  number `json:"array_max_tasks"`
	HetJob      number `json:"het_job_id"`

	Nodes      text               `json:"nodes"`
	GRESDetail list               `json:"gres_detail"`
	Resources  *resourcesDocument `json:"job_resources"`
}

// resourcesDocument is a job's allocation. Since 23.11 nodes is a document, before it is a string.
type resourcesDocument struct {
	Nodes json.RawMessage   `json:"nodes"`
	Old   []oldNodeDocument `json:"allocated_nodes"`
}

type oldNodeDocument struct {
	Name    string `json:"nodename"`
	Memory  number `json:"memory_allocated"`
	Sockets map[string]struct {
		Cores map[string]string `json:"cores"`
	} `json:"sockets"`
}

type newNodesDocument struct {
	Allocation []struct {
		Name string `json:"name"`
		CPUs struct {
			Count number `json:"count"`
		} `json:"cpus"`
		Memory struct {
			Allocated number `json:"allocated"`
		} `json:"memory"`
	} `json:"allocation"`
}

// job converts a document for the core. threads is how many processors each core of a node has.
func (d *jobDocument) job(threads map[string]int) slurm.Job {
	j := slurm.Job{
		ID: d.ID, Name: d.Name, User: d.User, UID: d.UID.int(), Account: d.Account, QOS: d.QOS, Partition: d.Partition,
		Reason: d.Reason, Held: d.Priority != nil && *d.Priority == 0, Restarts: d.Restarts.int(), Nice: int64(d.Nice),
		NoRequeue: d.Requeue != nil && !*d.Requeue,
		Comment:   d.Comment, AdminComment: d.AdminComment,
		Submitted: d.Submitted.moment(), Eligible: d.Eligible.moment(), Started: d.Started.moment(), TimeLimit: d.TimeLimit.minutes(),
		MinNodes: d.NodeCount.int(), MaxNodes: d.MaxNodes.int(), CPUs: d.CPUs.int(), Tasks: d.Tasks.int(),
		CPUsPerTask: d.CPUsPerTask.int(), TasksPerNode: d.TasksPerNode.int(), MinCPUsPerNode: d.MinCPUsPerNode.int(),
		MemoryPerNode: d.MemoryPerNode.megabytes(), MemoryPerCPU: d.MemoryPerCPU.megabytes(),
		Exclusive: d.Shared.has("none"), Contiguous: d.Contiguous, Required: d.Required, Excluded: d.Excluded,
		Features: d.Features, TRESPerJob: d.TRESPerJob, TRESPerNode: d.TRESPerNode, TRESPerTask: d.TRESPerTask, TRESPerSocket: d.TRESPerSocket,
		Nodes: d.Nodes, Dependency: d.Dependency, Reservation: d.Reservation, Licences: d.Licences, HetJob: uint64(d.HetJob),
		ArrayJob: uint64(d.ArrayJob), ArrayTask: d.ArrayTask.int(), ArrayTasks: d.ArrayTasks, ArrayLimit: d.ArrayLimit.int(),
	}
	for _, s := range d.State {
		switch s {
		case "COMPLETING":
			j.Completing = true
		default:
			if j.State == "" {
				j.State = s
			}
		}
	}
	j.Uses = d.uses(threads)
	fillIn(&j)
	return j
}

// fillIn corrects what 22.05 says of a waiting job: its guess of the number of nodes may exceed
// what the job allows, and it omits the processors per task.
func fillIn(j *slurm.Job) {
	if j.MaxNodes > 0 {
		j.MinNodes = min(j.MinNodes, j.MaxNodes)
	}
	if j.CPUsPerTask == 0 && j.Tasks > 0 && j.CPUs%j.Tasks == 0 {
		j.CPUsPerTask = j.CPUs / j.Tasks
	}
}

// uses lists what a job has on each of its nodes.
func (d *jobDocument) uses(threads map[string]int) []slurm.Use {
	if d.Resources == nil {
		return nil
	}
	var list []slurm.Use
	var fresh newNodesDocument
	if json.Unmarshal(d.Resources.Nodes, &fresh) == nil {
		for _, n := range fresh.Allocation {
			list = append(list, slurm.Use{Node: n.Name, CPUs: n.CPUs.Count.int(), Memory: n.Memory.Allocated.megabytes()})
		}
	}
	for _, n := range d.Resources.Old {
		cores := 0
		for _, s := range n.Sockets {
			cores += len(s.Cores)
		}
		list = append(list, slurm.Use{Node: n.Name, CPUs: cores * max(1, threads[n.Name]), Memory: n.Memory.megabytes()})
	}
	for i := range list {
		if i < len(d.GRESDetail) {
			list[i].GPUs, list[i].Count = gpuSet(d.GRESDetail[i])
		}
	}
	return list
}

// gpuSet parses a node's part of gres_detail: "gpu:a100:2(IDX:0-1),rgpu:1(CNT:1)".
func gpuSet(detail string) (set uint64, count int) {
	for rest := detail; rest != ""; {
		var item string
		if end := strings.IndexByte(rest, ')'); end >= 0 {
			item, rest = rest[:end], strings.TrimPrefix(rest[end+1:], ",")
		} else {
			item, rest = rest, ""
		}
		name, indexes, _ := strings.Cut(item, "(")
		if !strings.HasPrefix(name, "gpu:") {
			continue
		}
		n, _ := strconv.Atoi(name[strings.LastIndexByte(name, ':')+1:])
		count += n
		if ids, ok := strings.CutPrefix(indexes, "IDX:"); ok {
			set |= indexSet(ids)
		}
	}
	return set, count
}

// indexSet parses "0-1,3".
func indexSet(text string) (set uint64) {
	for item := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(item, "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			continue
		}
		to := from
		if ranged {
			to, _ = strconv.Atoi(last)
		}
		for i := from; i <= to && i < 64; i++ {
			set |= 1 << i
		}
	}
	return set
}

// Listing is all jobs. Stamp is for the next request: if nothing has changed since, Same is true
// and there are no jobs.
type Listing struct {
	Jobs  []slurm.Job
	Same  bool
	Stamp int64
}

// Jobs lists the jobs. since is the Stamp of an earlier listing, or 0. threads comes from Nodes.
func (e *Engine) Jobs(ctx context.Context, since int64, threads map[string]int) (Listing, error) {
	var doc struct {
		notices
		Jobs   []jobDocument `json:"jobs"`
		Update number        `json:"last_update"`
	}
	path := "/jobs"
	if since > 0 && e.release.Words.WrappedNumbers {
		path += "?update_time=" + strconv.FormatInt(since, 10)
	}
	text, err := e.listing(ctx, path, "jobs")
	if err != nil {
		return Listing{}, err
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return Listing{}, fmt.Errorf("reading Slurm's jobs: %w", err)
	}
	if doc.unchanged() {
		return Listing{Same: true, Stamp: since}, nil
	}
	// An empty list counts only if Slurm itself says that there are no jobs: the core would take
	// all jobs for ended.
	if err := doc.fault(); err != nil && !doc.none() && (len(doc.Errors) > 0 || len(doc.Jobs) == 0) {
		return Listing{}, fmt.Errorf("reading Slurm's jobs: %w", err)
	}
	l := Listing{Jobs: make([]slurm.Job, len(doc.Jobs)), Stamp: int64(doc.Update)}
	for i := range doc.Jobs {
		l.Jobs[i] = doc.Jobs[i].job(threads)
	}
	return l, nil
}

// listing asks REST, or a command that prints the same document.
func (e *Engine) listing(ctx context.Context, path, what string) ([]byte, error) {
	if e.REST() {
		text, err := e.ask(ctx, path, nil)
		if err == nil && len(text) == 0 {
			err = fmt.Errorf("slurmrestd answered nothing: is slurmctld running?")
		}
		if err != nil {
			return nil, fmt.Errorf("reading Slurm's %s: %w", what, err)
		}
		return text, nil
	}
	if !e.release.Words.WrappedNumbers {
		return nil, fmt.Errorf("Slurm %s cannot be read without slurmrestd: start it (muster slurm setup shows how), and give its address", e.site.Version)
	}
	out, err := e.scontrol(ctx, "show", what, "--json="+e.release.API)
	return []byte(out), err
}

// Nodes lists the nodes, in Slurm's order.
func (e *Engine) Nodes(ctx context.Context) ([]slurm.Node, error) {
	var doc struct {
		notices
		Nodes []struct {
			Name      string `json:"name"`
			CPUs      short  `json:"cpus"`
			Effective short  `json:"effective_cpus"`
			Memory    number `json:"real_memory"`
			Special   number `json:"specialized_memory"`
			Threads   short  `json:"threads"`
			GRES      text   `json:"gres"`
			State     list   `json:"state"`
			Flags     list   `json:"state_flags"`
			Reason    text   `json:"reason"`
		} `json:"nodes"`
	}
	if err := e.read(ctx, "nodes", &doc, &doc.notices); err != nil {
		return nil, err
	}
	var nodes []slurm.Node
	for _, d := range doc.Nodes {
		n := slurm.Node{Name: d.Name, CPUs: d.CPUs.int(), Memory: (d.Memory - d.Special).megabytes(), Threads: max(1, d.Threads.int()), Reason: d.Reason}
		if e := d.Effective.int(); e > 0 {
			n.CPUs = e
		}
		n.GPUs, n.GPUType = gpusOf(d.GRES)
		for _, s := range append(d.State, d.Flags...) {
			n.States = append(n.States, strings.ToUpper(s))
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// gpusOf parses the GPUs in a node's gres: "gpu:a100:4(S:0-1),rgpu:8". If there are several types,
// all are named after the first.
func gpusOf(gres string) (count int, kind string) {
	for item := range strings.SplitSeq(gres, ",") {
		item, _, _ = strings.Cut(item, "(")
		f := strings.Split(item, ":")
		if f[0] != "gpu" {
			continue
		}
		n, err := strconv.Atoi(f[len(f)-1])
		if err != nil {
			n = 1
		}
		count += n
		if len(f) == 3 && kind == "" {
			kind = f[1]
		}
	}
	return min(count, 64), kind
}

func (e *Engine) read(ctx context.Context, what string, doc any, n *notices) error {
	text, err := e.listing(ctx, "/"+what, what)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, doc); err != nil {
		return fmt.Errorf("reading Slurm's %s: %w", what, err)
	}
	if err := n.fault(); len(n.Errors) > 0 {
		return fmt.Errorf("reading Slurm's %s: %w", what, err)
	}
	return nil
}

// Partitions lists the partitions.
func (e *Engine) Partitions(ctx context.Context) ([]slurm.Partition, error) {
	var doc struct {
		notices
		Partitions []struct {
			Name     string          `json:"name"`
			Nodes    json.RawMessage `json:"nodes"`
			OldState text            `json:"state"`
			State    struct {
				State list `json:"state"`
			} `json:"partition"`
			OldFactor short `json:"priority_job_factor"`
			OldTier   short `json:"priority_tier"`
			Priority  struct {
				Factor short `json:"job_factor"`
				Tier   short `json:"tier"`
			} `json:"priority"`
			OldMax   number `json:"max_time_limit"`
			OldUsual number `json:"default_time_limit"`
			Usual    struct {
				Time number `json:"time"`
			} `json:"defaults"`
			Most struct {
				Time   number  `json:"time"`
				Shares *number `json:"shares"`
			} `json:"maximums"`
		} `json:"partitions"`
	}
	if err := e.read(ctx, "partitions", &doc, &doc.notices); err != nil {
		return nil, err
	}
	var all []slurm.Partition
	for _, d := range doc.Partitions {
		p := slurm.Partition{Name: d.Name, Up: d.OldState == "UP" || d.State.State.has("UP"),
			MaxTime: max(d.OldMax, d.Most.Time).minutes(), DefaultTime: max(d.OldUsual, d.Usual.Time).minutes(),
			Exclusive: d.Most.Shares != nil && *d.Most.Shares == 0,
			Factor:    max(d.OldFactor.int(), d.Priority.Factor.int()), Tier: max(d.OldTier.int(), d.Priority.Tier.int())}
		var fresh struct {
			Configured string `json:"configured"`
		}
		if json.Unmarshal(d.Nodes, &p.Nodes) != nil && json.Unmarshal(d.Nodes, &fresh) == nil {
			p.Nodes = fresh.Configured
		}
		all = append(all, p)
	}
	return all, nil
}

// Reservations lists the reservations.
func (e *Engine) Reservations(ctx context.Context) ([]slurm.Reservation, error) {
	var doc struct {
		notices
		Reservations []struct {
			Name     string `json:"name"`
			From     number `json:"start_time"`
			Until    number `json:"end_time"`
			Nodes    text   `json:"node_list"`
			Users    text   `json:"users"`
			Accounts text   `json:"accounts"`
		} `json:"reservations"`
	}
	if err := e.read(ctx, "reservations", &doc, &doc.notices); err != nil {
		return nil, err
	}
	all := []slurm.Reservation{}
	for _, d := range doc.Reservations {
		all = append(all, slurm.Reservation{Name: d.Name, From: d.From.moment(), Until: d.Until.moment(), Nodes: d.Nodes, Users: fields(d.Users), Accounts: fields(d.Accounts)})
	}
	return all, nil
}

func fields(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}
