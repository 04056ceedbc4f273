package slurmopt

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"muster/model"
)

// The files of testdata say how a real Slurm 22.05 took option lines on 8 nodes of
// 12 cores; record.sh makes them. These tests hold the parser to them. What is
// meant to differ is listed here, and must differ: the lists cannot grow stale.

type row map[string]string

func readTable(t *testing.T, path string) []row {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	var rows []row
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if names == nil {
			names = fields
			continue
		}
		if len(fields) != len(names) {
			t.Fatalf("%s: %q has %d fields, not %d", path, line, len(fields), len(names))
		}
		r := row{}
		for i, name := range names {
			r[name] = fields[i]
		}
		rows = append(rows, r)
	}
	return rows
}

// Options that Slurm 22.05 does not have.
var (
	// These are our own, or of the paper on remote GPUs.
	ownOptions = []string{"rcuda-mode", "or", "run", "gpu-reach", "gpu-beyond", "gpu-class", "gpu-weight", "mapping"}
	// These are of later releases, or left out of some builds.
	otherReleases = []string{"container-id", "tres-bind", "extra", "x11"}
	// These make a tool exit immediately, so record.sh does not try them.
	notRecorded = []string{"help", "usage", "version"}
)

// TestOptionsOfSlurm: each tool has the options that it has in Slurm, with values
// where they have some, and the same beginnings of their names are enough.
func TestOptionsOfSlurm(t *testing.T) {
	kinds := map[string]argument{"none": none, "required": required, "optional": optional}
	real := map[string][]string{}
	letters := map[string]string{}
	for _, r := range readTable(t, "testdata/real-slurm-options.tsv") {
		tool, kind := r["tool"], kinds[r["argument"]]
		name, long := strings.CutPrefix(r["option"], "--")
		if !long {
			letters[tool] += name[1:]
			if o := findShort(tool, name[1]); o == nil || o.arg != kind {
				t.Errorf("%s %s (%s): got %+v", tool, name, r["argument"], o)
			}
			continue
		}
		real[tool] = append(real[tool], name)
		o, err := findLong(tool, name)
		switch {
		case err != nil:
			t.Errorf("%s --%s: %v", tool, name, err)
		case o.long != name:
			t.Errorf("%s --%s is taken for --%s", tool, name, o.long)
		case name == "pty": // a later release gave it a value that may be left out
		case o.arg != kind:
			t.Errorf("%s --%s: its value is %s", tool, name, r["argument"])
		}
	}
	for _, tool := range tools {
		if len(real[tool]) < 80 {
			t.Fatalf("%s has %d options: record.sh missed some", tool, len(real[tool]))
		}
		known := slices.Concat(real[tool], ownOptions, otherReleases, notRecorded)
		for i := range table {
			o := &table[i]
			if !o.of(tool) {
				continue
			}
			if !slices.Contains(known, o.long) {
				t.Errorf("%s has no option --%s", tool, o.long)
			}
			if o.short != 0 && o.short != 'h' && o.short != 'V' && strings.IndexByte(letters[tool], o.short) < 0 {
				t.Errorf("%s has no option -%c", tool, o.short)
			}
		}
		checkBeginnings(t, tool, slices.Concat(real[tool], notRecorded))
	}
}

// checkBeginnings tries every beginning of every option by getopt's rule.
func checkBeginnings(t *testing.T, tool string, names []string) {
	added := slices.Concat(ownOptions, otherReleases)
	for _, name := range names {
		for n := 1; n < len(name); n++ {
			stem := name[:n]
			begins := func(s string) bool { return strings.HasPrefix(s, stem) }
			if slices.Contains(names, stem) || slices.ContainsFunc(added, begins) {
				continue
			}
			unique := len(slices.DeleteFunc(slices.Clone(names), func(s string) bool { return !begins(s) })) == 1
			o, err := findLong(tool, stem)
			if unique && (err != nil || o.long != name) {
				t.Errorf("%s --%s for --%s: got %v, %v", tool, stem, name, o, err)
			}
			if !unique && err == nil {
				t.Errorf("%s --%s is taken for --%s: it may be others", tool, stem, o.long)
			}
		}
	}
}

// ofTheCluster are the reasons for which Slurm refuses what its small cluster does
// not have. Whether a request can be met is no question of a parser.
var ofTheCluster = []string{
	"Batch job submission failed: Invalid partition name specified",
	"Batch job submission failed: Invalid node name specified",
}

// differences are the lines that Muster takes otherwise on purpose.
var differences = []struct {
	why   string
	lines []string
}{
	{"numbers that Slurm lets overflow, and words that it takes for numbers", []string{
		`-n 4294967296`, `-c 65536`, `--mem=9999999999T`, `-t -2`, `-t 2147483647`, `-t 4294967295`, `-t 99999999999999`, `-t 36500-0`, `-t 9999999999-0`,
		`--priority=TOP`, `--priority=x`,
	}},
	{"no nodes, or a range without its beginning: Slurm takes it, and such a job never starts or starts as nobody would guess", []string{
		`-N 0`, `-N 0k`, `-N 0-2`, `-N 2-0`, `-N -1`, `-N -4`,
	}},
	{"blanks and commas at odd places", []string{
		`-N '2 - 4'`, `-w ''`, `-w ,`, `-w n1,`, `-w 'n1 n2'`, `-x ''`,
	}},
	{"jobs do not stretch: of a range they get the fewest nodes. Slurm knows how large its nodes are, and lifts the fewest to what the tasks need", []string{
		`-N2-4 -n48`, `-N2-3 -n30`, `-N1-2 -n30`,
	}},
	{"the tasks do not fit: Slurm accepts the job, which then waits for ever", []string{
		`-N2 -n10 --ntasks-per-node=4`, `-N4 -n10 --ntasks-per-node=2`, `-N1-2 -n10 --ntasks-per-node=3`,
	}},
	{"srun drops --ntasks-per-node where the tasks do not fit", []string{
		`srun -N2 -n10 --ntasks-per-node=4`,
	}},
	{"all the memory of a node is not modelled", []string{
		`--mem=0`, `--mem=0K`, `--mem-per-cpu=0`, `srun --mem=0`,
	}},
	{"no count of GPUs: Slurm accepts it, and the job waits for ever or gets none", []string{
		`--gres=gpu:-1`, `--gpus-per-node=-1`, `-G -1`, `--gpus-per-node=`,
	}},
	{"1024 GPUs on a node are more than a request can have", []string{
		`--gres=gpu:1k`, `--gres=gpu:1K`,
	}},
	{"one count and one type of GPUs on every node", []string{
		`--gres=gpu:1,gpu:2`, `--gres=gpu:k20:1,gpu:k20:1`, `--gres=gpu:k20:1,gpu:2080ti:1`, `--gpus-per-node=k20:1,2080ti:1`, `--gpus=k20:1,2080ti:1`,
	}},
	{"GPUs asked for in two ways: where these agree Slurm derives nodes and tasks, else it takes one of them", []string{
		`--gpus=2 --gres=gpu:2`, `--gpus=2 --gres=gpu:1`, `--gpus=2 --gpus-per-node=2`, `--gres=gpu:1 --gpus-per-node=2`, `--gres=gpu:1 --gpus-per-node=1`,
		`--gpus=4 --gpus-per-node=2`, `--gpus=4 --gpus-per-node=2 -N2`, `--gpus=2 --gpus-per-task=1`, `--gpus=2 --gpus-per-task=1 -n2`,
		`#!/bin/sh\n#SBATCH --gpus=2 | --gres=gpu:1`, `#!/bin/sh\n#SBATCH --gres=gpu:2 | --gpus-per-node=1`,
		`#!/bin/sh\n#SBATCH --gpus=2 | --gpus-per-node=1`,
	}},
	{"GPUs of a job are divided evenly over its nodes, which must be known; Slurm fills the first node", []string{
		`-N4 -G8`, `-N4 --gpus=8`, `-N2 -G3`, `srun -N2 -G3`, `-n2 -G2`, `-n4 -G4`, `-n2 --gpus-per-task=1`, `srun --gpus-per-task=1 -n2`,
	}},
	{"the paper's remote GPUs with memory: plain Slurm takes the count for a type, and the memory for a count", []string{
		`--gres=rgpu:4:1G`, `--gres=rgpu:1:1686M`, `--gres=rgpu:4:512`,
	}},
	{"the paper's option, and our own", []string{
		`--rcuda-mode=excl --gres=rgpu:4`, `--or='-n1'`, `--run=5`,
	}},
	{"an option of later releases, which this one takes for the beginning of --extra-node-info", []string{
		`--extra=x`,
	}},
	{"--nodelist names all the nodes; Slurm adds others where they are too few", []string{
		`-w n[1-3] -N4`, `-w n1 -N2`, `-w n[1-3] -n6 --ntasks-per-node=1`, `--contiguous -w n1,n3`,
	}},
	{"Slurm knows that a node has 12 cores, and adds another", []string{
		`-w n1 -n13`, `-w n1 -n24`,
	}},
	{"whole nodes: how many must be said; Slurm chooses by their size", []string{
		`--exclusive -n13`, `--exclusive -n2`, `srun --exclusive -n2`, `salloc --exclusive -n2`,
	}},
	{"whole nodes that others of the same user may share are taken as whole nodes, with a note", []string{
		`--exclusive=user`, `--exclusive=mcs`, `--exclusive --exclusive=user`,
	}},
	{"the word after --exclusive is the command: Slurm cannot open it", []string{
		`--exclusive user`,
	}},
	{"how much is said does not matter", []string{
		`-vvQn3`, `-Qvc2`,
	}},
	{"what is not modelled is refused, not ignored", []string{
		`-sn3`, `-s`, `--oversubscribe`, `-O -n2`, `--overcommit -N2 -n30`, `--nice -n2`, `--nice=5 -n2`, `--hold`, `-H`, `-a 1-3`, `--begin=now+60`,
		`--deadline=2099-01-01`, `--time-min=5`, `--time-min=5 -t 10`, `--switches=1`, `--spread-job`, `--use-min-nodes`, `--mincpus=4`, `--mincpus=4 -n2`,
		`-B 1:2:1`, `-B 2`, `--sockets-per-node=2`, `--cores-per-socket=6`, `--threads-per-core=1`, `--ntasks-per-core=1`, `--ntasks-per-socket=2 -n4`,
		`--ntasks-per-gpu=2 --gpus=2`, `--cpus-per-gpu=2 --gpus=2`, `--mem-per-gpu=1G --gpus=2`, `--gpus-per-socket=1 --sockets-per-node=1 --gpus=1`,
		`-S 1`, `--thread-spec=1`, `--tmp=1`, `--reboot`,
	}},
	{"a script has its command itself; Slurm overlooks a --wrap in it", []string{
		`#!/bin/sh\n#SBATCH --wrap=date | `,
	}},
	{"scripts are quoted as in a shell; in Slurm a blank ends a word even behind a backslash, and empty quotes are no word", []string{
		`#!/bin/sh\n#SBATCH --job-name=a\\ b | `, `#!/bin/sh\n#SBATCH -J '' | `,
	}},
	{"directives of other systems are comments", []string{
		`#!/bin/sh\n#PBS -l nodes=2 | `,
	}},
}

func TestRealSlurm(t *testing.T) {
	rows := readTable(t, "testdata/real-slurm.tsv")
	if len(rows) < 600 {
		t.Fatalf("%d lines only: record.sh missed some", len(rows))
	}
	why := map[string]string{}
	for _, d := range differences {
		for _, line := range d.lines {
			why[line] = d.why
		}
	}
	seen := map[string]bool{}
	for _, r := range rows {
		line := r["options"]
		if r["script"] != "" {
			line = r["script"] + " | " + line
		}
		if seen[line] {
			t.Errorf("%s is there twice", line)
		}
		seen[line] = true
		reason := compare(r)
		_, listed := why[line]
		switch {
		case reason != "" && !listed:
			t.Errorf("%s\n\t%s", line, reason)
		case reason == "" && listed:
			t.Errorf("%s is as in Slurm, though listed: %s", line, why[line])
		}
	}
	for line := range why {
		if !seen[line] {
			t.Errorf("%s is listed, but was not recorded", line)
		}
	}
}

func parseRow(r row) (*Options, error) {
	words, err := Words(r["options"])
	if err != nil {
		return nil, err
	}
	var argv []string
	for _, w := range words {
		argv = append(argv, w.Text)
	}
	if len(argv) == 0 || !slices.Contains(tools, argv[0]) {
		argv = append([]string{"sbatch"}, argv...)
	}
	// record.sh submits this script, where the line has no command of its own.
	if !strings.Contains(r["options"], "--wrap") {
		argv = append(argv, "job")
	}
	if script := r["script"]; script != "" {
		// As printf's %b, for what is in lines.txt.
		return ParseScript(strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\\`, `\`).Replace(script), argv)
	}
	return Parse(argv)
}

// compare says how the parser and Slurm differ about a line.
func compare(r row) string {
	o, err := parseRow(r)
	if r["answer"] == "refused" {
		if err != nil || slices.Contains(ofTheCluster, r["reason"]) {
			return ""
		}
		return fmt.Sprintf("Slurm refuses it (%s), the parser gives %+v", r["reason"], o.Request)
	}
	if err != nil {
		return fmt.Sprintf("Slurm accepts it, the parser says: %v", err)
	}
	for _, check := range []func(*Options, row) error{compareSize, compareMemory, compareGPUs, compareTime, comparePlace} {
		if err := check(o, r); err != nil {
			return fmt.Sprintf("%v: the parser gives %+v", err, *o)
		}
	}
	return ""
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return -1
	}
	return n
}

// compareSize compares nodes, tasks and cores. Before a job runs scontrol estimates
// its nodes, unless -N gave a range; what it then got is sure.
func compareSize(o *Options, r row) error {
	q := &o.Request
	least, top, given := strings.Cut(r["nodes"], "-")
	got := number(r["gotNodes"])
	switch {
	case given && q.Nodes != number(least) && (q.Nodes != got || q.Nodes > number(top)):
		return fmt.Errorf("%s nodes", r["nodes"])
	case given && top != least && len(o.Notes) == 0:
		return fmt.Errorf("%s nodes, and no note", r["nodes"])
	case !given && q.Nodes > 0 && got > 0 && q.Nodes != got:
		return fmt.Errorf("it got %d nodes", got)
	}
	tasks, cpus := number(r["tasks"]), number(r["cpusPerTask"])
	if q.Processes != tasks {
		return fmt.Errorf("%d tasks", tasks)
	}
	if q.Nodes == 0 {
		if q.Cores != number(r["cpus"]) || q.CoresPerProcess != cpus {
			return fmt.Errorf("%s cores, %d a task", r["cpus"], cpus)
		}
		return nil
	}
	cores, err := coresOfNodes(r["gotCPUsPerNode"])
	switch {
	case err != nil:
		return err
	case q.Exclusive: // whole nodes, whatever was asked for
	case len(cores) == q.Nodes && slices.Min(cores) == slices.Max(cores) && q.CoresPerNode != cores[0]:
		return fmt.Errorf("it got %d cores on each node", cores[0])
	case q.CoresPerNode < int(ceilDiv(int64(tasks), int64(q.Nodes)))*cpus:
		return fmt.Errorf("too few cores for %d tasks of %d", tasks, cpus)
	case q.CoresPerNode*q.Nodes < number(r["cpus"]):
		return fmt.Errorf("%s cores", r["cpus"])
	}
	return nil
}

// coresOfNodes reads Slurm's 12(x2),6.
func coresOfNodes(s string) ([]int, error) {
	var cores []int
	if s == "" {
		return nil, nil
	}
	for item := range strings.SplitSeq(s, ",") {
		count, times, repeated := strings.Cut(strings.TrimSuffix(item, ")"), "(x")
		n := 1
		if repeated {
			n = number(times)
		}
		if number(count) < 1 || n < 1 {
			return nil, fmt.Errorf("%q is no list of cores", s)
		}
		cores = append(cores, slices.Repeat([]int{number(count)}, n)...)
	}
	return cores, nil
}

func compareMemory(o *Options, r row) error {
	want := int64(number(strings.TrimSuffix(r["memory"], "M"))) * megabyte
	perNode, perCPU := want, int64(0)
	if r["memoryPerCPU"] == "yes" {
		perNode, perCPU = 0, want
	}
	if o.Request.Memory != perNode || o.Request.MemoryPerCore != perCPU {
		return fmt.Errorf("memory %s, per node %q, per CPU %q", r["memory"], r["memoryPerNode"], r["memoryPerCPU"])
	}
	return nil
}

// compareGPUs compares what scontrol shows as TresPerNode=gres:gpu:k20:2. Remote GPUs
// are for the job in the paper, and for each node in plain Slurm: only their number
// is compared.
func compareGPUs(o *Options, r row) error {
	q := &o.Request
	gpus, kind, remote := 0, "", 0
	for field := range strings.FieldsSeq(r["gpusAndLike"]) {
		of, list, _ := strings.Cut(field, "=")
		for item := range strings.SplitSeq(list, ",") {
			parts := strings.Split(item, ":")[1:]
			count := 1
			if last := parts[len(parts)-1]; len(parts) > 1 && last[0] >= '0' && last[0] <= '9' || last[0] == '+' {
				count, parts = number(last), parts[:len(parts)-1]
			}
			if parts[0] == "rgpu" {
				remote += count
				continue
			}
			if len(parts) > 1 {
				kind = parts[1]
			}
			nodes := max(1, q.Nodes)
			switch of {
			case "TresPerJob":
				count /= nodes
			case "TresPerTask":
				count *= q.Processes / nodes
			}
			gpus += count
		}
	}
	if gpus == 0 {
		kind = ""
	}
	asked := 0
	if q.Remote != nil {
		asked = q.Remote.Count
	}
	if q.GPUs != gpus || remote != asked || (gpus > 0 && q.GPUType != kind) {
		return fmt.Errorf("%s", r["gpusAndLike"])
	}
	// What it got is said of its first node.
	if got := number(r["gotGPUs"]); got >= 0 && got != q.GPUs && !q.Exclusive {
		return fmt.Errorf("it got %d GPUs", got)
	}
	return nil
}

func compareTime(o *Options, r row) error {
	if r["time"] == "UNLIMITED" {
		if o.Time != 0 {
			return fmt.Errorf("no time limit")
		}
		return nil
	}
	var want time.Duration
	days, clock, ok := strings.Cut(r["time"], "-")
	if !ok {
		days, clock = "0", r["time"]
	}
	for i, part := range append([]string{days}, strings.Split(clock, ":")...) {
		want += time.Duration(number(part)) * []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second}[i]
	}
	if o.Time != want || o.Unlimited {
		return fmt.Errorf("a time limit of %s", r["time"])
	}
	return nil
}

func comparePlace(o *Options, r row) error {
	q := &o.Request
	for _, c := range []struct {
		name string
		got  []string
	}{{"nodeList", q.NodeList}, {"exclude", o.Exclude}} {
		var want []string
		if text := r[c.name]; text != "(null)" {
			var err error
			if want, err = model.ExpandNodes(text); err != nil {
				return err
			}
		}
		if got := slices.Sorted(slices.Values(c.got)); !slices.Equal(got, want) {
			return fmt.Errorf("%s %q", c.name, want)
		}
	}
	shared := r["shared"]
	switch {
	case q.Contiguous != (r["contiguous"] == "1"):
		return fmt.Errorf("contiguous %s", r["contiguous"])
	case q.Exclusive != (shared == "NO"), shared != "NO" && shared != "OK":
		return fmt.Errorf("OverSubscribe %s", shared)
	case o.Name != "" && o.Name != r["name"]:
		return fmt.Errorf("name %q", r["name"])
	case o.Name == "" && !slices.Contains([]string{"", "job", "wrap", "interactive", "no-shell"}, r["name"]):
		return fmt.Errorf("name %q", r["name"])
	case o.Partition != "" && o.Partition != r["partition"], o.Partition == "" && r["partition"] != "main":
		return fmt.Errorf("partition %q", r["partition"])
	case o.Account != "" && o.Account != r["account"], o.Account == "" && r["account"] != "(null)":
		return fmt.Errorf("account %q", r["account"])
	}
	return nil
}
