package slurmopt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"muster/model"
)

var tools = []string{"srun", "sbatch", "salloc"}

type argument int

const (
	none argument = iota
	required
	optional // value only as --name=value or -xvalue
)

// option is one option of Slurm.
type option struct {
	long  string
	short byte
	arg   argument
	// only lists the tools that have it; "" for all.
	only string
	// ofRequest marks options that --or may contain.
	ofRequest bool
	// ofCommand marks options that are not allowed in scripts, and local those that concern only
	// the command, not the job.
	ofCommand, local bool
	// set stores the value. If it is nil the option is accepted and ignored, because it does not
	// affect where and when a job runs.
	set         func(p *parser, value string) error
	unlessGiven string // the value if an optional one is omitted
	// refused explains why an option that would affect that is not supported, and what to do
	// instead.
	refused string
	example string
}

func (o *option) valueName() string {
	if o.example != "" {
		return o.example
	}
	return "VALUE"
}

// flag, value and maybe make options that are accepted and ignored.
func flag(long string, short byte) option  { return option{long: long, short: short} }
func value(long string, short byte) option { return option{long: long, short: short, arg: required} }
func maybe(long string, short byte) option { return option{long: long, short: short, arg: optional} }

func (o option) in(tools string) option { o.only = tools; return o }

func (o option) refuse(why string) option { o.refused = why; return o }

// read makes an option of a request.
func read(long string, short byte, example string, set func(p *parser, value string) error) option {
	return option{long: long, short: short, arg: required, ofRequest: true, set: set, example: example}
}

// attribute makes an option of the job.
func attribute(long string, short byte, example string, set func(p *parser, value string) error) option {
	o := read(long, short, example, set)
	o.ofRequest = false
	return o
}

const (
	notModelled = "is not modelled: leave it out"
	giveCores   = "is not modelled: say how many cores a task needs with -c"
	giveTasks   = "is not modelled: use --ntasks-per-node and --gpus-per-node"
	oneCluster  = "is not modelled: there is one cluster"
)

// whyRefused is the reason for refusing an option. For real jobs it does not mention the
// simulator's model.
func (o *option) whyRefused(tool string) string {
	if tool == Submit {
		return strings.Replace(o.refused, "is not modelled", "is not supported", 1)
	}
	return o.refused
}

// table has Slurm's options. submitTable has those of the tool Submit: sbatch's, preceded by its
// own. Both are initialized in init, because the option --or refers to them.
var table, submitTable []option

func init() {
	table = []option{
		// The request of a job.
		read("nodes", 'N', "4", (*parser).setNodes),
		read("ntasks", 'n', "16", countOf(func(g *given) *setting { return &g.tasks })),
		read("ntasks-per-node", 0, "8", countOf(func(g *given) *setting { return &g.tasksPerNode })),
		read("tasks-per-node", 0, "8", countOf(func(g *given) *setting { return &g.tasksPerNode })),
		read("cpus-per-task", 'c', "6", countOf(func(g *given) *setting { return &g.cpus })),
		read("mem", 0, "4G", (*parser).setMemory),
		read("mem-per-cpu", 0, "2G", (*parser).setMemoryPerCPU),
		read("gres", 0, "gpu:2", (*parser).setGres),
		read("gpus", 'G', "4", gpusOf(func(g *given) *setting { return &g.gpus })),
		read("gpus-per-node", 0, "2", gpusOf(func(g *given) *setting { return &g.gpusPerNode })),
		read("gpus-per-task", 0, "1", gpusOf(func(g *given) *setting { return &g.gpusPerTask })),
		read("rcuda-mode", 0, "excl", (*parser).setMode),
		{long: "contiguous", ofRequest: true, set: func(p *parser, _ string) error { p.requested.contiguous = true; return nil }},
		{long: "exclusive", arg: optional, ofRequest: true, set: (*parser).setExclusive},
		read("nodelist", 'w', "n[1-4]", (*parser).setNodeList),
		read("time", 't', "1:30:00", (*parser).setTime),
		read("run", 0, "165", (*parser).setRun),
		attribute("or", 0, "'-n 64 -t 2:00:00'", (*parser).or),

		// Other attributes of a job.
		attribute("exclude", 'x', "n[1-4]", (*parser).setExclude),
		attribute("priority", 0, "100", (*parser).setPriority),
		attribute("job-name", 'J', "NAME", func(p *parser, v string) error { p.options.Name = v; return nil }),
		attribute("partition", 'p', "NAME", func(p *parser, v string) error { p.options.Partition = v; return nil }),
		attribute("account", 'A', "NAME", func(p *parser, v string) error { p.options.Account = v; return nil }),
		attribute("qos", 'q', "NAME", func(p *parser, v string) error { p.options.QOS = v; return nil }),
		attribute("wrap", 0, "COMMAND", (*parser).setWrap).in("sbatch"),

		// Options that would change where or when a job runs, and are not supported.
		value("array", 'a').in("sbatch").refuse("is not modelled: submit the jobs one by one"),
		value("begin", 'b').refuse("is not modelled: submit the job when it may begin"),
		value("deadline", 0).refuse(notModelled),
		value("dependency", 'd').refuse("is not modelled: submit the job when those it waits for have ended"),
		flag("hold", 'H').refuse("is not modelled: submit the job when it may start"),
		value("time-min", 0).refuse("is not modelled: give -t alone"),
		maybe("nice", 0).refuse("is not modelled: give --priority"),
		value("constraint", 'C').refuse("is not modelled: name nodes with -w, or a GPU type with --gres=gpu:TYPE:1"),
		value("prefer", 0).refuse(notModelled),
		value("cluster-constraint", 0).refuse(notModelled),
		value("clusters", 'M').refuse(oneCluster),
		value("cluster", 0).refuse(oneCluster),
		value("licenses", 'L').refuse(notModelled),
		value("reservation", 0).refuse(notModelled),
		value("switches", 0).refuse("is not modelled: ask for neighbouring nodes with --contiguous"),
		flag("spread-job", 0).refuse(notModelled),
		flag("use-min-nodes", 0).refuse(notModelled),
		value("nodefile", 'F').refuse("is not read: name the nodes with -w"),
		value("relative", 'r').in("srun").refuse("is for steps of a job"),
		value("jobid", 0).in("srun").refuse("is for steps of a job"),
		value("het-group", 0).in("srun").refuse("is for steps of a job"),
		value("pack-group", 0).in("srun").refuse("is for steps of a job"),
		value("mincpus", 0).refuse(giveCores),
		value("extra-node-info", 'B').refuse(giveCores),
		value("sockets-per-node", 0).refuse(giveCores),
		value("cores-per-socket", 0).refuse(giveCores),
		value("threads-per-core", 0).refuse(giveCores),
		value("ntasks-per-core", 0).refuse("is not modelled: use --ntasks-per-node"),
		value("ntasks-per-socket", 0).refuse("is not modelled: use --ntasks-per-node"),
		value("ntasks-per-gpu", 0).refuse(giveTasks),
		value("ntasks-per-tres", 0).refuse(giveTasks),
		value("cpus-per-gpu", 0).refuse(giveCores),
		value("mem-per-gpu", 0).refuse("is not modelled: give --mem"),
		value("gpus-per-socket", 0).refuse("is not modelled: give --gpus-per-node"),
		value("core-spec", 'S').refuse(notModelled),
		value("thread-spec", 0).refuse(notModelled),
		value("tmp", 0).refuse(notModelled),
		flag("overcommit", 'O').refuse("is not modelled: ask for as many cores as the tasks need"),
		flag("oversubscribe", 's').refuse("is not modelled: jobs share nodes but not cores"),
		value("bb", 0).refuse(notModelled),
		value("bbf", 0).refuse(notModelled),
		flag("no-allocate", 'Z').in("srun").refuse(notModelled),
		flag("reboot", 0).refuse("is not modelled: for nodes of its own a job asks with --exclusive"),
		flag("test-only", 0).in("sbatch srun").refuse("asks for no job"),
		flag("help", 'h').refuse("asks for no job: see the manual"),
		flag("usage", 0).refuse("asks for no job: see the manual"),
		flag("version", 'V').refuse("asks for no job"),

		// Options without effect here.
		value("chdir", 'D'), value("comment", 0), value("extra", 0), value("mail-type", 0), value("mail-user", 0),
		value("output", 'o').in("sbatch srun"), value("error", 'e').in("sbatch srun"), value("input", 'i').in("sbatch srun"),
		value("open-mode", 0).in("sbatch srun"), value("export", 0).in("sbatch srun"), value("export-file", 0).in("sbatch"),
		maybe("get-user-env", 0).in("sbatch salloc"), flag("requeue", 0).in("sbatch"), flag("no-requeue", 0).in("sbatch"),
		maybe("no-kill", 'k'), flag("parsable", 0).in("sbatch"),
		flag("quiet", 'Q'), flag("verbose", 'v'), value("uid", 0), value("gid", 0), value("wckey", 0), value("signal", 0), value("context", 0),
		flag("wait", 'W').in("sbatch"), value("wait", 'W').in("srun"), value("wait-all-nodes", 0).in("sbatch salloc"),
		maybe("immediate", 'I').in("srun salloc"), maybe("kill-on-bad-exit", 'K').in("srun"), maybe("kill-command", 'K').in("salloc"),
		flag("label", 'l').in("srun"), flag("unbuffered", 'u').in("srun"), flag("disable-status", 'X').in("srun"),
		flag("preserve-env", 'E').in("srun"), value("threads", 'T').in("srun"), maybe("pty", 0).in("srun"), flag("multi-prog", 0).in("srun"),
		value("mpi", 0).in("srun"), value("prolog", 0).in("srun"), value("epilog", 0).in("srun"), value("task-prolog", 0).in("srun"),
		value("task-epilog", 0).in("srun"), maybe("bcast", 0).in("srun"), value("bcast-exclude", 0).in("srun"), maybe("send-libs", 0).in("srun"),
		maybe("compress", 0).in("srun"), value("slurmd-debug", 0).in("srun"), flag("debugger-test", 0).in("srun"), flag("interactive", 0).in("srun"),
		value("msg-timeout", 0).in("srun"), flag("exact", 0).in("srun"), flag("whole", 0).in("srun"), maybe("overlap", 0).in("srun"),
		flag("quit-on-interrupt", 0).in("srun"), maybe("resv-ports", 0).in("srun"),
		flag("no-shell", 0).in("salloc"), flag("bell", 0).in("salloc"), flag("no-bell", 0).in("salloc"),
		maybe("x11", 0).in("srun salloc"), flag("ignore-pbs", 0).in("sbatch"), value("batch", 0).in("sbatch"), maybe("propagate", 0).in("sbatch srun"),
		value("distribution", 'm'), value("cpu-bind", 0).in("srun"), value("cpu_bind", 0).in("srun"), value("accel-bind", 0).in("srun"),
		value("mem-bind", 0), value("gpu-bind", 0), value("tres-bind", 0), value("gres-flags", 0), value("hint", 0),
		value("cpu-freq", 0), value("gpu-freq", 0), value("network", 0), value("profile", 0), value("acctg-freq", 0), value("power", 0),
		value("delay-boot", 0), value("container", 0), value("container-id", 0), value("mcs-label", 0),
	}
	table = append(table, termsTable()...)
}

func init() {
	submitTable = batchTable()
	own := len(submitTable)
	for _, o := range table {
		if o.of("sbatch") && !slices.ContainsFunc(submitTable[:own], func(s option) bool { return s.long == o.long }) {
			o.only = ""
			submitTable = append(submitTable, o)
		}
	}
}

func tableOf(tool string) []option {
	if tool == Submit {
		return submitTable
	}
	return table
}

func (o *option) of(tool string) bool {
	return tool == "" || o.only == "" || slices.Contains(strings.Fields(o.only), tool)
}

// findLong finds an option by its name, or by an unambiguous prefix.
func findLong(tool, name string) (*option, error) {
	var found []*option
	var known []string
	options := tableOf(tool)
	for i := range options {
		o := &options[i]
		if !o.of(tool) {
			continue
		}
		if o.long == name {
			return o, nil
		}
		if strings.HasPrefix(o.long, name) && name != "" && !slices.ContainsFunc(found, func(f *option) bool { return f.long == o.long }) {
			found = append(found, o)
		}
		known = append(known, o.long)
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		var names []string
		for _, o := range found {
			names = append(names, "--"+o.long)
		}
		return nil, fmt.Errorf("--%s may be any of %s: write more of it", name, strings.Join(names, ", "))
	}
	if near := model.Nearest(name, known); near != "" {
		return nil, fmt.Errorf("--%s is no option: did you mean --%s?", name, near)
	}
	return nil, fmt.Errorf("--%s is no option that is known here: see %s", name, manualOf(tool))
}

func findShort(tool string, letter byte) *option {
	options := tableOf(tool)
	for i := range options {
		if o := &options[i]; o.short == letter && o.of(tool) {
			return o
		}
	}
	return nil
}

func manualOf(tool string) string {
	if tool == Submit {
		return "muster submit --help"
	}
	return "the manual of " + cmp.Or(tool, "sbatch")
}
