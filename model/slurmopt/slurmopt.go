// Package slurmopt parses what users ask Slurm for: the options of srun, sbatch and salloc command
// lines and of the #SBATCH lines in scripts, exactly in Slurm's spelling, with the paper's
// additions for remote GPUs (--gres=rgpu:4:1G, --rcuda-mode) and Muster's own (--or, --run, and
// --gpu-reach with its like: terms.go). It converts them to a request and the attributes of a job, and back to a canonical line of options.
//
// `muster submit` is another tool, with sbatch's options: its jobs really run, so it also accepts
// what a simulated job does not need (arrays, dependencies, files).
//
// testdata records what a real Slurm says about each line, and a test compares the parser with it.
//
// It is the one parser for simulated and real submissions. It must not know any cluster, file or
// queue: whether a request can be met is decided elsewhere.
package slurmopt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"muster/model"
)

// Options is the content of one submission.
type Options struct {
	// Tool is srun, sbatch, salloc or Submit; "" if only options were given.
	Tool string

	Request model.Request
	// Alternatives are the requests of --or, in order.
	Alternatives []model.Request

	Name, Partition, Account, QOS string
	// Time is the wall time in whole minutes, as Slurm keeps it; 0 means none.
	Time time.Duration
	// Unlimited says that the user explicitly asked for no limit.
	Unlimited bool
	Priority  int64
	// Exclude are nodes that must not be used. A request cannot express that; see Avoid.
	Exclude []string
	// GPU says how the job has its GPUs, whichever of the requests is granted.
	GPU model.Terms

	// Command is what follows the options.
	Command []string
	// Batch and Client are only for the tool Submit.
	Batch  Batch
	Client Client
	// Notes say where a request is interpreted differently from how it is written.
	Notes []string
}

// Error is an error in one word.
type Error struct {
	// Word is the index of the wrong word in the arguments.
	Word int
	// Line and Column are its position in a script or line, from 1; 0 if it is in neither.
	Line, Column int
	Reason       string
}

func (e *Error) Error() string {
	switch {
	case e.Line > 0:
		return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Reason)
	case e.Column > 0:
		return fmt.Sprintf("column %d: %s", e.Column, e.Reason)
	}
	return e.Reason
}

// Parse parses a command line given as words, as a program receives it. The first word may be srun,
// sbatch, salloc or Submit; the options end at the first word that is not one.
func Parse(argv []string) (*Options, error) {
	tool, words := toolOf(argv)
	return parse(tool, nil, words)
}

// ParseSubmitted parses the options of a submitted job, as Format writes them behind Submit.
func ParseSubmitted(line string) (*Options, error) {
	words, err := Words(line)
	if err != nil {
		return nil, err
	}
	argv := []string{Submit}
	for _, w := range words {
		argv = append(argv, w.Text)
	}
	return Parse(argv)
}

// ParseLine parses a command line with quotes, as a shell would. Errors give the column. It is for
// simulated jobs, and does not accept the tool Submit.
func ParseLine(line string) (*Options, error) {
	words, err := Words(line)
	if err != nil {
		return nil, err
	}
	tool := ""
	if len(words) > 0 {
		if tool = slurmTool(words[0].Text); tool != "" {
			words = words[1:]
		}
	}
	return parse(tool, nil, words)
}

// ParseScript parses the #SBATCH lines at the beginning of a script, and then the options of the
// command that submits it. If both have the same option, that of the command takes precedence. For
// the tool Submit there are also #MUSTER lines, which take precedence over #SBATCH lines.
func ParseScript(script string, argv []string) (*Options, error) {
	tool, words := toolOf(argv)
	if tool != Submit && tool != "sbatch" {
		tool, words = "sbatch", wordsOf(argv) // a script is always submitted with sbatch
	}
	lines, err := scriptLines(script, tool)
	if err != nil {
		return nil, err
	}
	return parse(tool, lines, words)
}

func wordsOf(argv []string) []Word {
	words := make([]Word, len(argv))
	for i, text := range argv {
		words[i] = Word{Text: text, index: i}
	}
	return words
}

// toolOf separates the tool from the rest of a command line.
func toolOf(argv []string) (tool string, rest []Word) {
	rest = wordsOf(argv)
	if len(argv) == 0 {
		return "", rest
	}
	if argv[0] == Submit {
		return Submit, rest[1:]
	}
	if tool = slurmTool(argv[0]); tool != "" {
		rest = rest[1:]
	}
	return tool, rest
}

// slurmTool is the Slurm tool that a word names, with or without a folder.
func slurmTool(word string) string {
	name := word[strings.LastIndexByte(word, '/')+1:]
	if slices.Contains(tools, name) {
		return name
	}
	return ""
}

// Apply applies the options to a job. It keeps what they do not set.
func (o *Options) Apply(j *model.Job) {
	j.Request, j.Alternatives = o.Request, o.Alternatives
	j.WallTime, j.Priority, j.GPU = o.Time, o.Priority, o.GPU
	if o.Request.Run > 0 {
		j.Run, j.Request.Run = o.Request.Run, 0
	}
	if o.Partition != "" {
		j.Queue = o.Partition
	}
	if o.Account != "" {
		j.Group = o.Account
	}
	if o.QOS != "" {
		j.QOS = o.QOS
	}
	if o.Batch.Reservation != "" {
		j.Reservation = o.Batch.Reservation
	}
}

// Avoid restricts the requests to those of all nodes that -x does not exclude.
func (o *Options) Avoid(all []string) error {
	if len(o.Exclude) == 0 {
		return nil
	}
	excluded := make(map[string]bool, len(o.Exclude))
	for _, name := range o.Exclude {
		excluded[name] = true
	}
	known := make(map[string]bool, len(all))
	for _, name := range all {
		known[name] = true
	}
	for _, name := range o.Exclude {
		if !known[name] {
			return fmt.Errorf("--exclude: there is no node %q", name)
		}
	}
	requests := []*model.Request{&o.Request}
	for i := range o.Alternatives {
		requests = append(requests, &o.Alternatives[i])
	}
	for _, r := range requests {
		from := r.NodeList
		if len(from) == 0 {
			from = all
		}
		left := slices.DeleteFunc(slices.Clone(from), func(name string) bool { return excluded[name] })
		switch {
		case len(r.NodeList) > 0 && len(left) < len(r.NodeList):
			return errors.New("--exclude names nodes that --nodelist asks for: leave them out of one")
		case len(left) == 0:
			return errors.New("--exclude leaves no node: exclude fewer")
		}
		r.NodeList = left
	}
	return nil
}

// parser collects the settings; the last word for a setting wins.
type parser struct {
	options   Options
	inOr      bool
	inScript  bool
	at        Word // the current word
	requested given
	named     *int     // number of nodes named so far, including --or
	job       []string // the job's options on the command line; see ParseCommand
	partial   bool     // a script has more of the job's options
	terms     said     // an option about the job's GPUs, the last
	beyondAt  *Word
}

// setting is an optional number with the word that set it.
type setting struct {
	n  int64
	at *Word
}

func (s *setting) set() bool { return s.at != nil }

// given has the settings for one request.
// It has a field for each option.
type given struct {
	nodes, mostNodes, tasks, tasksPerNode, cpus    setting
	memory, memoryPerCPU                           setting
	gresGPUs, gpusPerNode, gpus, gpusPerTask, rgpu setting
	gpuType                                        string
	gresType                                       string
	gpuMemory, rgpuMemory                          int64
	moreGPUs                                       bool
	mode                                           string
	modeAt                                         *Word
	contiguous, exclusive                          bool
	exclusiveAt                                    *Word
	nodeList                                       []string
	nodeListAt                                     *Word
	time, run                                      time.Duration
	unlimited                                      bool
}

func parse(tool string, script [][]Word, argv []Word) (*Options, error) {
	p := &parser{options: Options{Tool: tool}, named: new(int)}
	return p.parse(script, argv)
}

// parse parses the lines of a script, and then a command line.
func (p *parser) parse(script [][]Word, argv []Word) (*Options, error) {
	p.inScript = true
	for _, line := range script {
		rest, err := p.words(line)
		if err != nil {
			return nil, err
		}
		if len(rest) > 0 {
			return nil, rest[0].errorf("%q is no option: a line that starts with %s has options alone", rest[0].Text, rest[0].directive())
		}
	}
	p.inScript = false
	rest, err := p.words(argv)
	if err != nil {
		return nil, err
	}
	if len(rest) > 0 && p.options.Command != nil {
		return nil, rest[0].errorf("%q: --wrap has the command already, so there is none after the options", rest[0].Text)
	}
	for _, w := range rest {
		p.options.Command = append(p.options.Command, w.Text)
	}
	o := &p.options
	o.Client.Program = o.Client.Program || o.Client.PTY && len(o.Command) > 0 && !o.Client.Wrap
	if o.Request, err = p.request(); err != nil {
		return nil, err
	}
	o.Time, o.Unlimited = p.requested.time, p.requested.unlimited
	o.Request.Run = p.requested.run
	if err := o.Request.Validate(); err != nil {
		return nil, &Error{Reason: err.Error()}
	}
	if !p.partial || o.Client.Program || o.Client.Wrap {
		err = p.checkTerms()
	}
	return o, err
}

// words parses options up to the first word that is not one, and returns the rest.
func (p *parser) words(words []Word) ([]Word, error) {
	for len(words) > 0 {
		w := words[0]
		switch {
		case w.Text == "--":
			p.options.Client.Program = p.options.Tool == Submit && len(words) > 1
			return words[1:], nil
		case strings.HasPrefix(w.Text, "--"):
			n, err := p.long(w, words[1:])
			if err != nil {
				return nil, err
			}
			words = words[n:]
		case len(w.Text) > 1 && w.Text[0] == '-':
			n, err := p.short(w, words[1:])
			if err != nil {
				return nil, err
			}
			words = words[n:]
		default:
			return words, nil
		}
	}
	return nil, nil
}

// long parses --name, --name=value or --name value, and returns the number of words used.
func (p *parser) long(w Word, rest []Word) (int, error) {
	name, value, joined := strings.Cut(w.Text[2:], "=")
	o, err := findLong(p.options.Tool, name)
	if err != nil {
		return 0, w.errorf("%v", err)
	}
	used := 1
	switch {
	case joined && o.arg == none:
		return 0, w.errorf("--%s takes no value: write it without =%s", o.long, value)
	case !joined && o.arg == required:
		if len(rest) == 0 {
			return 0, w.errorf("--%s needs a value: write --%s=%s", o.long, o.long, o.valueName())
		}
		value, w = rest[0].Text, rest[0]
		used = 2
	}
	return used, p.apply(o, w, value, joined || used == 2)
}

// short parses -abc: flags, and at most one option with a value, which is the rest of the word or
// else the next word.
func (p *parser) short(w Word, rest []Word) (int, error) {
	for i := 1; i < len(w.Text); i++ {
		o := findShort(p.options.Tool, w.Text[i])
		if o == nil {
			return 0, w.errorf("-%c is no option that is known here: see the manual of sbatch, or give the long form", rune(w.Text[i]))
		}
		if o.arg == none {
			if err := p.apply(o, w, "", false); err != nil {
				return 0, err
			}
			continue
		}
		value := w.Text[i+1:]
		switch {
		case value != "" || o.arg == optional:
			return 1, p.apply(o, w, value, value != "")
		case len(rest) == 0:
			return 0, w.errorf("-%c needs a value: write -%c%s", rune(o.short), rune(o.short), o.valueName())
		}
		return 2, p.apply(o, rest[0], rest[0].Text, true)
	}
	return 1, nil
}

func (p *parser) apply(o *option, w Word, value string, valued bool) error {
	switch {
	case o.refused != "":
		return w.errorf("--%s %s", o.long, o.whyRefused(p.options.Tool))
	case p.inScript && o.ofCommand:
		return w.errorf("--%s is for the command line, not for a script", o.long)
	case p.inOr && !o.ofRequest:
		return w.errorf("--%s says nothing about a request: inside --or give -N, -n, -c, --gres, -t and their like", o.long)
	case o.set == nil:
		if p.options.Tool == Submit {
			p.note("--%s has no effect here", o.long)
		}
		return nil
	}
	if !p.inScript && !p.inOr && !o.local {
		p.spelt(o, value, valued)
	}
	p.at = w
	if !valued {
		value = o.unlessGiven
	}
	if err := o.set(p, value); err != nil {
		var placed *Error
		if errors.As(err, &placed) {
			return err
		}
		return w.errorf("--%s: %v", o.long, err)
	}
	return nil
}

// spelt records an option of the job in its full form.
func (p *parser) spelt(o *option, value string, valued bool) {
	word := "--" + o.long
	if valued {
		word += "=" + value
	}
	p.job = append(p.job, word)
}

// here is the current word, for later errors.
func (p *parser) here() *Word {
	w := p.at
	return &w
}

func (p *parser) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(p.options.Notes, text) {
		p.options.Notes = append(p.options.Notes, text)
	}
}

// or parses the options of an alternative request.
func (p *parser) or(value string) error {
	outer := p.at
	words, err := Words(value)
	if err != nil {
		return outer.errorf("--or: %v", err)
	}
	inner := &parser{inOr: true, named: p.named}
	inner.options.Tool = p.options.Tool
	rest, err := inner.words(words)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%q is no option: an alternative has options alone", rest[0].Text)
	}
	if err == nil && len(words) == 0 {
		err = errors.New("it is empty: write --or='-n 64 -t 2:00:00'")
	}
	var r model.Request
	if err == nil {
		r, err = inner.request()
	}
	if err == nil {
		r.WallTime, r.Run = inner.requested.time, inner.requested.run
		err = r.Validate()
	}
	if err != nil {
		return outer.errorf("--or: %v", err)
	}
	for _, n := range inner.options.Notes {
		p.note("--or: %s", n)
	}
	p.options.Alternatives = append(p.options.Alternatives, r)
	return nil
}
