package slurmopt

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/model"
)

// Submit is the tool whose jobs really run: `muster submit`. It has the options of sbatch. Those
// that a simulated job does not need go into Batch, and options without effect are named in a note
// instead of being ignored silently.
const Submit = "submit"

// Batch has what a real job may specify besides its request. It is zero for other tools than
// Submit.
type Batch struct {
	// Output, Error and Input are the files of the job's streams, with sbatch's patterns such as %j
	// unexpanded. Append keeps the content of existing files.
	Output, Error, Input string
	Append               bool
	// Directory is the job's working directory.
	Directory string
	// Export says which variables of the submitter the job gets: nil means all, NONE alone none,
	// otherwise names and NAME=VALUE assignments. ALL may be among them.
	Export []string
	Array  *Array
	// Dependency has the jobs that this one waits for; nil for none.
	Dependency *Dependency
	// Begin is the earliest start and Deadline the latest end.
	Begin, Deadline Moment
	Hold            bool
	// Nice lowers the priority if above 0.
	Nice int64
	// Requeue returns the job to the queue if its node fails. Unlike with sbatch it is off by
	// default, because a node that the head cannot reach may still run the job to its end.
	Requeue              bool
	Comment, Reservation string
	// Licenses are what the job takes of licences, each name once.
	Licenses []License
	// Constraint says which features the job's nodes must have; nil for none.
	Constraint *model.Constraint
	// Signal is the signal before the time limit; nil for none.
	Signal *Signal
}

// Client has the options for the submitting command itself; none of them concerns the job.
type Client struct {
	Parsable, Wait, TestOnly, Quiet, Help bool
	// PTY wants the command run on the user's terminal. What follows the options is a program then.
	PTY bool
	// Head and TLSDir select the head and the certificate to use.
	Head, TLSDir string
	// JSON asks for the answer as a document.
	JSON bool
	// Program says that Command is a program with its arguments, given after --. Wrap says that it
	// is a shell command from --wrap. Otherwise it is a script with its arguments.
	Program, Wrap bool
}

// ParseCommand parses a Submit command line as Parse does. job are the options that concern the job, each
// in its full form: a head parses them like the lines of a script.
func ParseCommand(argv []string) (o *Options, job []string, err error) {
	tool, words := toolOf(argv)
	p := &parser{options: Options{Tool: tool}, named: new(int), partial: true}
	o, err = p.parse(nil, words)
	return o, p.job, err
}

// MaxArrayTasks limits the number of tasks of an array, and MaxArrayTask their indices.
const (
	MaxArrayTasks = 100_000
	MaxArrayTask  = 4_000_000
)

// Array makes a job an array of tasks.
type Array struct {
	Tasks Tasks
	// Limit is how many may run at a time; 0 means any number.
	Limit int
}

// setArray reads 0-15,20,30-40:5%4.
func (p *parser) setArray(value string) error {
	a := &Array{}
	list, limit, limited := strings.Cut(value, "%")
	if limited {
		n, err := strconv.ParseUint(limit, 10, 31)
		if err != nil {
			return fmt.Errorf("%q: behind %% stands how many tasks run at a time, as in 1-10%%4", value)
		}
		a.Limit = int(n)
	}
	var err error
	if a.Tasks, err = ParseTasks(list); err != nil {
		return err
	}
	p.options.Batch.Array = a
	return nil
}

func arrayRange(item string) (first, last, step uint64, err error) {
	span, by, stepped := strings.Cut(item, ":")
	low, high, isRange := strings.Cut(span, "-")
	first, err = strconv.ParseUint(low, 10, 32)
	last, step = first, 1
	if err == nil && isRange {
		last, err = strconv.ParseUint(high, 10, 32)
	}
	if err == nil && stepped {
		step, err = strconv.ParseUint(by, 10, 32)
	}
	switch {
	case err != nil || step == 0 || stepped && !isRange:
		return 0, 0, 0, fmt.Errorf("%q is no task or range of tasks: write 1-10, 0-20:5 or 1,3,7", item)
	case last < first:
		return 0, 0, 0, fmt.Errorf("%q runs backwards: write %d-%d", item, last, first)
	case last > MaxArrayTask:
		return 0, 0, 0, fmt.Errorf("%q: tasks have numbers up to %d", item, MaxArrayTask)
	}
	return first, last, step, nil
}

// String writes the array as --array reads it.
func (a *Array) String() string {
	if a.Limit > 0 {
		return a.Tasks.String() + "%" + strconv.Itoa(a.Limit)
	}
	return a.Tasks.String()
}

// The kinds of a Term, as --dependency spells them.
const (
	After      = "after"      // the other has started, and Delay has passed since
	AfterAny   = "afterany"   // it has ended, in any way
	AfterOK    = "afterok"    // it has ended successfully
	AfterNotOK = "afternotok" // it has ended unsuccessfully
	AfterCorr  = "aftercorr"  // the task with the same index of the other array has ended successfully
	Singleton  = "singleton"  // no earlier job of the same name and user is left
)

var termKinds = []string{After, AfterAny, AfterOK, AfterNotOK, AfterCorr, Singleton}

// MaxTerms limits the terms of a dependency.
const MaxTerms = 1000

// Dependency is the condition for which a job waits: all of the terms, or any one of them.
type Dependency struct {
	Any   bool
	Terms []Term
}

// Term is one job to wait for.
type Term struct {
	Kind string
	// Job is its ID; 0 for a singleton.
	Job uint64
	// Task is the task of an array; -1 for the whole job.
	Task int64
	// Delay counts from the start of the other job; only for After.
	Delay time.Duration
}

// setDependency parses KIND:JOB[:JOB...], separated by commas, or by question marks if any one is
// sufficient. A number alone is afterany, as in Slurm.
func (p *parser) setDependency(value string) error {
	d := &Dependency{Any: strings.Contains(value, "?")}
	separator := ","
	if d.Any {
		separator = "?"
		if strings.Contains(value, ",") {
			return fmt.Errorf("%q mixes , and ?: either all of them are needed, or any", value)
		}
	}
	for item := range strings.SplitSeq(value, separator) {
		if err := d.add(item); err != nil {
			return err
		}
	}
	p.options.Batch.Dependency = d
	return nil
}

func (d *Dependency) add(item string) error {
	kind, jobs, _ := strings.Cut(item, ":")
	if kind == Singleton && jobs == "" && item == kind {
		return d.append(Term{Kind: Singleton, Task: -1})
	}
	if kind != "" && kind[0] >= '0' && kind[0] <= '9' {
		kind, jobs = AfterAny, item
	}
	if !slices.Contains(termKinds, kind) || kind == Singleton {
		return fmt.Errorf("%q is no dependency: write after:JOB, afterany:JOB, afterok:JOB, afternotok:JOB, aftercorr:JOB or singleton", item)
	}
	for job := range strings.SplitSeq(jobs, ":") {
		term, err := readTerm(kind, job)
		if err != nil {
			return err
		}
		if err := d.append(term); err != nil {
			return err
		}
	}
	return nil
}

func (d *Dependency) append(t Term) error {
	if slices.Contains(d.Terms, t) {
		return nil
	}
	if len(d.Terms) == MaxTerms {
		return fmt.Errorf("it names more than %d jobs", MaxTerms)
	}
	d.Terms = append(d.Terms, t)
	return nil
}

// readTerm reads JOB, JOB_TASK, JOB_* and, for after, JOB+MINUTES.
func readTerm(kind, text string) (Term, error) {
	t := Term{Kind: kind, Task: -1}
	bad := fmt.Errorf("%q is no number of a job: write %s:17 or, for a task of an array, %s:17_3", text, kind, kind)
	id, minutes, delayed := strings.Cut(text, "+")
	if delayed {
		n, err := strconv.ParseUint(minutes, 10, 31)
		switch {
		case kind != After:
			return t, fmt.Errorf("%q: only after:JOB+MINUTES waits for a while", text)
		case err != nil || time.Duration(n) > longest/time.Minute:
			return t, fmt.Errorf("%q: behind + stand minutes, as in after:17+5", text)
		}
		t.Delay = time.Duration(n) * time.Minute
	}
	job, task, hasTask := strings.Cut(id, "_")
	var err error
	if t.Job, err = strconv.ParseUint(job, 10, 63); err != nil || t.Job == 0 {
		return t, bad
	}
	if hasTask && task != "*" {
		n, err := strconv.ParseUint(task, 10, 32)
		if err != nil || n > MaxArrayTask {
			return t, bad
		}
		t.Task = int64(n)
	}
	return t, nil
}

// String writes the term as --dependency reads it.
func (t *Term) String() string {
	if t.Kind == Singleton {
		return t.Kind
	}
	text := t.Kind + ":" + strconv.FormatUint(t.Job, 10)
	if t.Task >= 0 {
		text += "_" + strconv.FormatInt(t.Task, 10)
	}
	if t.Delay > 0 {
		text += "+" + strconv.FormatInt(int64(t.Delay/time.Minute), 10)
	}
	return text
}

// String writes the dependency as --dependency reads it.
func (d *Dependency) String() string {
	separator := ","
	if d.Any {
		separator = "?"
	}
	terms := make([]string, len(d.Terms))
	for i := range d.Terms {
		terms[i] = d.Terms[i].String()
	}
	return strings.Join(terms, separator)
}

// Signal is a signal that a job gets some time before its time limit.
type Signal struct {
	Number int
	Before time.Duration
	// Batch sends it only to the script, not to the processes that the script has started.
	Batch bool
}

var signalNames = map[string]int{
	"HUP": 1, "INT": 2, "QUIT": 3, "ABRT": 6, "KILL": 9, "USR1": 10, "USR2": 12, "ALRM": 14, "TERM": 15, "CHLD": 17, "CONT": 18, "STOP": 19,
	"TSTP": 20, "TTIN": 21, "TTOU": 22, "URG": 23, "XCPU": 24, "XFSZ": 25, "VTALRM": 26, "PROF": 27, "WINCH": 28, "IO": 29, "PWR": 30, "SYS": 31,
}

// SignalNumber parses a signal, by number or by name with or without SIG.
func SignalNumber(s string) (int, error) {
	if n := signalNames[strings.TrimPrefix(strings.ToUpper(s), "SIG")]; n > 0 {
		return n, nil
	}
	if n, err := strconv.ParseUint(s, 10, 8); err == nil && n >= 1 && n <= 64 {
		return int(n), nil
	}
	return 0, fmt.Errorf("%q is no signal: write USR1, or a number from 1 to 64", s)
}

// setSignal reads [B:]SIGNAL[@SECONDS].
func (p *parser) setSignal(value string) error {
	s := &Signal{Before: time.Minute}
	text, seconds, timed := strings.Cut(value, "@")
	if flags, rest, ok := strings.Cut(text, ":"); ok {
		switch strings.ToUpper(flags) {
		case "B":
			s.Batch = true
		case "R", "RB", "BR":
			return fmt.Errorf("%q: there are no reservations, so R has no meaning here", value)
		default:
			return fmt.Errorf("%q: before the colon stands B, for the script alone", value)
		}
		text = rest
	}
	var err error
	if s.Number, err = SignalNumber(text); err != nil {
		return err
	}
	if timed {
		n, err := strconv.ParseUint(seconds, 10, 16)
		if err != nil {
			return fmt.Errorf("%q: behind @ stand seconds, from 0 to %d", value, math.MaxUint16)
		}
		s.Before = time.Duration(n) * time.Second
	}
	p.options.Batch.Signal = s
	return nil
}

func (s *Signal) String() string {
	text := ""
	if s.Batch {
		text = "B:"
	}
	return fmt.Sprintf("%s%d@%d", text, s.Number, int64(s.Before/time.Second))
}

// setExport reads NAME and NAME=VALUE, separated by commas; quotes protect commas.
func (p *parser) setExport(value string) error {
	items, err := exportItems(value)
	if err != nil {
		return err
	}
	for _, item := range items {
		name, _, assigned := strings.Cut(item, "=")
		switch {
		case name == "" || strings.ContainsAny(name, blanks) || strings.IndexByte(item, 0) >= 0:
			return fmt.Errorf("%q is no variable: write ALL, NONE, NAME or NAME=VALUE, separated by commas", item)
		case item == "NONE" && len(items) > 1:
			return errors.New("NONE stands alone")
		case assigned && (name == "ALL" || name == "NONE"):
			return fmt.Errorf("%q: ALL and NONE have no value", item)
		}
	}
	if len(items) == 1 && items[0] == "ALL" {
		items = nil
	}
	p.options.Batch.Export = items
	return nil
}

func exportItems(value string) ([]string, error) {
	var items []string
	var item []byte
	quote := byte(0)
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case quote == 0 && c == ',':
			items, item = append(items, string(item)), nil
		default:
			item = append(item, c)
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("%q has a quote that does not close", value)
	}
	return append(items, string(item)), nil
}

func exportText(items []string) string {
	quoted := make([]string, len(items))
	for i, item := range items {
		if strings.ContainsAny(item, `,'"`) {
			item = "'" + strings.ReplaceAll(item, "'", `'"'"'`) + "'"
		}
		quoted[i] = item
	}
	return strings.Join(quoted, ",")
}

// License is some of a licence that the head counts.
type License struct {
	Name  string
	Count int
}

// maxLicenses limits the licences of a job.
const maxLicenses = 32

// setLicenses reads NAME[:COUNT], separated by commas.
func (p *parser) setLicenses(value string) error {
	var list []License
	for item := range strings.SplitSeq(value, ",") {
		name, text, counted := strings.Cut(item, ":")
		count := uint64(1)
		var err error
		if counted {
			count, err = strconv.ParseUint(text, 10, 30)
		}
		if err != nil || count == 0 || model.CheckFeature(name) != nil {
			return fmt.Errorf("%q is no licence: write NAME or NAME:COUNT, separated by commas", item)
		}
		if slices.ContainsFunc(list, func(l License) bool { return l.Name == name }) {
			return fmt.Errorf("%q names %s twice", value, name)
		}
		list = append(list, License{name, int(count)})
	}
	if len(list) > maxLicenses {
		return fmt.Errorf("%d licences: a job may have %d", len(list), maxLicenses)
	}
	p.options.Batch.Licenses = list
	return nil
}

// licensesText writes licences as --licenses reads them.
func licensesText(list []License) string {
	words := make([]string, len(list))
	for i, l := range list {
		words[i] = fmt.Sprintf("%s:%d", l.Name, l.Count)
	}
	return strings.Join(words, ",")
}

func (p *parser) setConstraint(value string) (err error) {
	p.options.Batch.Constraint, err = model.ParseConstraint(value)
	return err
}

func (p *parser) setNice(value string) (err error) {
	p.options.Batch.Nice, err = ParseNice(value)
	return err
}

func (p *parser) setOpenMode(value string) error {
	switch {
	case value != "" && strings.HasPrefix("append", value):
		p.options.Batch.Append = true
	case value != "" && strings.HasPrefix("truncate", value):
		p.options.Batch.Append = false
	default:
		return fmt.Errorf("%q is neither append nor truncate", value)
	}
	return nil
}

func (p *parser) setWrap(value string) error {
	p.options.Command = []string{"sh", "-c", value}
	p.options.Client.Wrap = p.options.Tool == Submit
	return nil
}

// textOf stores a value unchanged.
func textOf(at func(*Options) *string) func(*parser, string) error {
	return func(p *parser, value string) error {
		if strings.IndexByte(value, 0) >= 0 {
			return errors.New("it has a zero byte (NUL): remove it")
		}
		*at(&p.options) = value
		return nil
	}
}

func switchOf(at func(*Options) *bool, to bool) func(*parser, string) error {
	return func(p *parser, _ string) error {
		*at(&p.options) = to
		return nil
	}
}

func momentOf(at func(*Batch) *Moment) func(*parser, string) error {
	return func(p *parser, value string) error {
		m, err := ParseMoment(value)
		*at(&p.options.Batch) = m
		return err
	}
}

// batchTable has the options that only Submit has, or that it treats differently from other tools.
func batchTable() []option {
	onOff := func(long string, short byte, at func(*Options) *bool, to bool) option {
		return option{long: long, short: short, set: switchOf(at, to)}
	}
	text := func(long string, short byte, example string, at func(*Options) *string) option {
		return attribute(long, short, example, textOf(at))
	}
	local := func(o option) option { o.local = true; return o }
	ofCommand := func(o option) option { o.ofCommand = true; return local(o) }
	return []option{
		text("output", 'o', "out-%j.txt", func(o *Options) *string { return &o.Batch.Output }),
		text("error", 'e', "err-%j.txt", func(o *Options) *string { return &o.Batch.Error }),
		text("input", 'i', "FILE", func(o *Options) *string { return &o.Batch.Input }),
		attribute("open-mode", 0, "append", (*parser).setOpenMode),
		text("chdir", 'D', "DIRECTORY", func(o *Options) *string { return &o.Batch.Directory }),
		attribute("export", 0, "ALL,NAME=VALUE", (*parser).setExport),
		attribute("array", 'a', "1-10%4", (*parser).setArray),
		attribute("dependency", 'd', "afterok:17", (*parser).setDependency),
		attribute("begin", 'b', "now+1hour", momentOf(func(b *Batch) *Moment { return &b.Begin })),
		attribute("deadline", 0, "2026-11-30T18:00", momentOf(func(b *Batch) *Moment { return &b.Deadline })),
		onOff("hold", 'H', func(o *Options) *bool { return &o.Batch.Hold }, true),
		{long: "nice", arg: optional, set: (*parser).setNice, unlessGiven: "100"},
		onOff("requeue", 0, func(o *Options) *bool { return &o.Batch.Requeue }, true),
		onOff("no-requeue", 0, func(o *Options) *bool { return &o.Batch.Requeue }, false),
		text("comment", 0, "TEXT", func(o *Options) *string { return &o.Batch.Comment }),
		text("reservation", 0, "NAME", func(o *Options) *string { return &o.Batch.Reservation }),
		attribute("licenses", 'L', "matlab:2", (*parser).setLicenses),
		attribute("constraint", 'C', "a100&ib", (*parser).setConstraint),
		attribute("signal", 0, "USR1@60", (*parser).setSignal),
		attribute("run", 0, "", nil).refuse("is for simulated jobs: give a time limit with -t"),

		local(attribute("wrap", 0, "COMMAND", (*parser).setWrap)),
		local(onOff("parsable", 0, func(o *Options) *bool { return &o.Client.Parsable }, true)),
		local(onOff("wait", 'W', func(o *Options) *bool { return &o.Client.Wait }, true)),
		ofCommand(onOff("pty", 0, func(o *Options) *bool { return &o.Client.PTY }, true)),
		local(onOff("test-only", 0, func(o *Options) *bool { return &o.Client.TestOnly }, true)),
		local(onOff("quiet", 'Q', func(o *Options) *bool { return &o.Client.Quiet }, true)),
		local(option{long: "verbose", short: 'v', set: func(*parser, string) error { return nil }}),
		ofCommand(onOff("help", 'h', func(o *Options) *bool { return &o.Client.Help }, true)),
		ofCommand(onOff("json", 0, func(o *Options) *bool { return &o.Client.JSON }, true)),
		ofCommand(text("head", 0, "HOST[:PORT]", func(o *Options) *string { return &o.Client.Head })),
		ofCommand(text("tls-dir", 0, "DIR", func(o *Options) *string { return &o.Client.TLSDir })),
	}
}

// batchWords are the options that a Batch is written as.
func batchWords(b *Batch) []string {
	var words []string
	option := func(name, value string) {
		if value != "" {
			words = append(words, name+value)
		}
	}
	option("--output=", b.Output)
	option("--error=", b.Error)
	option("--input=", b.Input)
	if b.Append {
		words = append(words, "--open-mode=append")
	}
	option("--chdir=", b.Directory)
	option("--export=", exportText(b.Export))
	if b.Array != nil {
		option("--array=", b.Array.String())
	}
	if b.Dependency != nil {
		option("--dependency=", b.Dependency.String())
	}
	option("--begin=", b.Begin.String())
	option("--deadline=", b.Deadline.String())
	if b.Hold {
		words = append(words, "--hold")
	}
	if b.Nice != 0 {
		words = append(words, "--nice="+strconv.FormatInt(b.Nice, 10))
	}
	if b.Requeue {
		words = append(words, "--requeue")
	}
	option("--comment=", b.Comment)
	option("--reservation=", b.Reservation)
	option("--licenses=", licensesText(b.Licenses))
	option("--constraint=", b.Constraint.String())
	if b.Signal != nil {
		option("--signal=", b.Signal.String())
	}
	return words
}

// clientWords are the options that a Client is written as.
func clientWords(c *Client) []string {
	var words []string
	for _, f := range []struct {
		on   bool
		name string
	}{{c.Parsable, "--parsable"}, {c.Wait, "--wait"}, {c.TestOnly, "--test-only"}, {c.Quiet, "--quiet"}, {c.PTY, "--pty"}, {c.JSON, "--json"}, {c.Help, "--help"}} {
		if f.on {
			words = append(words, f.name)
		}
	}
	if c.Head != "" {
		words = append(words, "--head="+c.Head)
	}
	if c.TLSDir != "" {
		words = append(words, "--tls-dir="+c.TLSDir)
	}
	return words
}
