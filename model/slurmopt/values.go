package slurmopt

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/units"
	"muster/model"
)

// most limits counts, as in a model.Request.
const most = math.MaxInt32

const (
	megabyte = 1 << 20
	blanks   = " \t\r\n\v\f"
)

// parseCount parses a whole number of at least 1. As in C, and therefore in Slurm, blanks and a
// plus may precede it.
func parseCount(s string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimLeft(s, blanks), 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("%q is no whole number from 1 to %d", s, most)
	}
	return n, nil
}

func countOf(at func(*given) *setting) func(*parser, string) error {
	return func(p *parser, value string) error {
		n, err := parseCount(value)
		*at(&p.requested) = setting{n, p.here()}
		return err
	}
}

// setNodes parses MIN or MIN-MAX, where k and m stand for 1024 and 1024 x 1024. Jobs are rigid
// here: one with a range gets the minimum.
func (p *parser) setNodes(value string) error {
	if strings.ContainsAny(value, ",:") {
		return fmt.Errorf("%q is a list of node counts, which is not modelled: give one number", value)
	}
	low, high, isRange := strings.Cut(value, "-")
	least, err := parseScaled(low)
	if err != nil {
		return err
	}
	p.requested.nodes, p.requested.mostNodes = setting{least, p.here()}, setting{}
	if !isRange {
		return nil
	}
	top, err := parseScaled(high)
	switch {
	case err != nil:
		return err
	case top < least:
		return fmt.Errorf("%q runs backwards: write %d-%d", value, top, least)
	}
	p.requested.mostNodes = setting{top, p.here()}
	return nil
}

func parseScaled(s string) (int64, error) {
	number, scale := s, int64(1)
	if s != "" {
		switch s[len(s)-1] {
		case 'k', 'K':
			number, scale = s[:len(s)-1], 1<<10
		case 'm', 'M':
			number, scale = s[:len(s)-1], 1<<20
		}
	}
	n, err := parseCount(number)
	if err == nil && n > most/scale {
		err = fmt.Errorf("%q is more than %d", s, most)
	}
	return n * scale, err
}

// parseMemory parses Slurm's sizes: a whole number with K, M, G or T (and an optional B), all
// powers of 1024, where M is the default. Slurm keeps whole megabytes, rounded up.
func parseMemory(s string) (int64, error) {
	number := strings.TrimPrefix(strings.TrimLeft(s, blanks), "+")
	digits := len(number) - len(strings.TrimLeft(number, "0123456789"))
	shift := 20
	if unit := strings.ToUpper(number[digits:]); unit != "" {
		letter := strings.TrimSuffix(unit, "B")
		at := strings.Index("KMGT", letter)
		if at < 0 || len(letter) != 1 {
			return 0, fmt.Errorf("%q is no size: write 4G, 512M, or plain megabytes; the units are K, M, G and T", s)
		}
		shift = 10 * (at + 1)
	}
	n, err := strconv.ParseInt(number[:digits], 10, 64)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%q is no size: write 4G, 512M, or plain megabytes", s)
	case n > math.MaxInt64/2>>shift:
		return 0, fmt.Errorf("%q is more than any machine has", s)
	}
	return ceilDiv(n<<shift, megabyte) * megabyte, nil
}

func (p *parser) setMemory(value string) error {
	n, err := parseMemory(value)
	if err == nil && n == 0 {
		err = errors.New("0 asks for all the memory of a node, which is not modelled: give a size, or --exclusive")
	}
	p.requested.memory = setting{n, p.here()}
	return err
}

func (p *parser) setMemoryPerCPU(value string) error {
	n, err := parseMemory(value)
	if err == nil && n == 0 {
		err = errors.New("0 asks for all the memory of a node, which is not modelled: give a size, or --exclusive")
	}
	p.requested.memoryPerCPU = setting{n, p.here()}
	return err
}

const gresHelp = "write gpu:2, gpu:k20:2, gpu:2:1G, rgpu:4 or rgpu:4:1G"

// setGres parses a list of NAME[[:TYPE]:COUNT[:MEMORY]]. A memory asks for a share of each GPU. A
// count of gpu with a plus is a minimum.
func (p *parser) setGres(value string) error {
	g := &p.requested
	g.gresGPUs, g.rgpu, g.gresType, g.gpuMemory, g.rgpuMemory, g.moreGPUs = setting{}, setting{}, "", 0, 0, false
	if strings.EqualFold(value, "none") {
		return nil
	}
	for item := range strings.SplitSeq(value, ",") {
		name, rest, more := strings.Cut(strings.TrimPrefix(item, "gres:"), ":")
		var fields []string
		if more {
			fields = strings.Split(rest, ":")
		}
		if name == "gpu" {
			g.moreGPUs = fewest(fields)
		}
		into, memory := &g.gresGPUs, &g.gpuMemory
		switch name {
		case "gpu":
		case "rgpu":
			into, memory = &g.rgpu, &g.rgpuMemory
		case "":
			return fmt.Errorf("%q has an empty name: %s", value, gresHelp)
		default:
			if near := model.Nearest(name, []string{"gpu", "rgpu"}); near != "" {
				return fmt.Errorf("there is no resource %q: did you mean %s?", name, near)
			}
			return fmt.Errorf("there is no resource %q: %s", name, gresHelp)
		}
		if into.set() {
			return fmt.Errorf("%s is there twice: add the counts up, and choose one type", name)
		}
		*into = setting{1, p.here()}
		if len(fields) > 0 && !isCount(fields) {
			if err := checkType(fields[0]); err != nil {
				return err
			}
			if g.gresType != "" && g.gresType != fields[0] {
				return fmt.Errorf("%q and %q: a request has GPUs of one type", g.gresType, fields[0])
			}
			g.gresType = fields[0]
			fields = fields[1:]
		}
		if len(fields) > 0 {
			n, err := parseNumber(fields[0])
			if err != nil {
				return fmt.Errorf("%s: %w: %s", item, err, gresHelp)
			}
			if *into = (setting{n, p.here()}); n == 0 {
				*into = setting{}
			}
			fields = fields[1:]
		}
		// Slurm has no memory for gpu. With a unit, the field cannot mean anything else.
		if len(fields) > 0 && (name == "rgpu" || !isNumber(fields[0])) {
			n, err := parseMemory(fields[0])
			if err == nil && n == 0 {
				err = errors.New("a share of 0 bytes is none: leave it out for whole GPUs")
			}
			if err != nil {
				return fmt.Errorf("%s: %w", item, err)
			}
			*memory = n
			fields = fields[1:]
		}
		if len(fields) > 0 {
			return fmt.Errorf("%q has too many parts: %s", item, gresHelp)
		}
		if g.moreGPUs && g.gpuMemory == 0 {
			return fmt.Errorf("%q: the fewest GPUs are for shares of them: say how much memory of each, as gpu:1+:1G", item)
		}
	}
	return nil
}

// fewest removes the plus from a count of GPUs, and says whether there was one.
func fewest(fields []string) bool {
	for i := range min(2, len(fields)) {
		if count, plus := strings.CutSuffix(fields[i], "+"); plus && isNumber(count) {
			fields[i] = count
			return true
		}
	}
	return false
}

// parseNumber parses a count that may be 0, for none.
func parseNumber(s string) (int64, error) {
	if isNumber(s) && strings.Trim(s, "+0") == "" {
		return 0, nil
	}
	return parseCount(s)
}

func isNumber(s string) bool {
	_, err := strconv.ParseInt(s, 10, 64)
	return err == nil
}

// isCount distinguishes counts from types. Types such as 2080ti start with a digit, too; Slurm
// requires a count after those.
func isCount(fields []string) bool {
	s := fields[0]
	return isNumber(s) || (len(fields) == 1 && s != "" && s[0] >= '0' && s[0] <= '9')
}

func checkType(s string) error {
	if s == "" || isNumber(s) || strings.ContainsAny(s, ":,=(){} \t\r\n\v\f") {
		return fmt.Errorf("%q is no type of GPU: %s", s, gresHelp)
	}
	return nil
}

func (g *given) gpuSettings() []*setting {
	return []*setting{&g.gresGPUs, &g.gpusPerNode, &g.gpus, &g.gpusPerTask}
}

// gpusOf reads TYPE, COUNT or TYPE:COUNT.
func gpusOf(at func(*given) *setting) func(*parser, string) error {
	return func(p *parser, value string) error {
		kind, count := "", "1"
		fields := strings.SplitN(value, ":", 2)
		switch {
		case len(fields) == 2:
			kind, count = fields[0], fields[1]
		case isCount(fields):
			count = value
		default:
			kind = value
		}
		if kind != "" || len(fields) == 2 || value == "" {
			if err := checkType(kind); err != nil {
				return err
			}
		}
		n, err := parseNumber(count)
		if err != nil {
			return err
		}
		p.requested.gpuType = kind
		if *at(&p.requested) = (setting{n, p.here()}); n == 0 {
			*at(&p.requested) = setting{}
		}
		return nil
	}
}

const (
	exclusiveMode = "excl"
	sharedMode    = "shar"
)

func (p *parser) setMode(value string) error {
	switch value {
	case exclusiveMode, "exclusive":
		p.requested.mode = exclusiveMode
	case sharedMode, "shared":
		p.requested.mode = sharedMode
	default:
		return fmt.Errorf("%q is no mode: use excl or shar", value)
	}
	p.requested.modeAt = p.here()
	return nil
}

func (p *parser) setExclusive(value string) error {
	switch value {
	case "":
	case "user", "mcs":
		p.note("--exclusive=%s is taken as --exclusive: nobody shares the nodes", value)
	default:
		return fmt.Errorf("%q is neither user nor mcs", value)
	}
	p.requested.exclusive, p.requested.exclusiveAt = true, p.here()
	return nil
}

// parseNodes parses a list of nodes. The limit applies to all lists of a submission together,
// because otherwise a line with many lists could use unlimited memory.
func (p *parser) parseNodes(value string) ([]string, error) {
	if strings.Contains(value, "/") {
		return nil, errors.New("node files are not read: name the nodes, as n[1-4]")
	}
	names, err := model.ExpandNodes(value)
	if err != nil {
		return nil, err
	}
	if *p.named += len(names); *p.named > model.MaxNodeNames {
		return nil, fmt.Errorf("all lists of nodes together have more than %d names", model.MaxNodeNames)
	}
	// Slurm ignores duplicate nodes.
	seen := make(map[string]bool, len(names))
	return slices.DeleteFunc(names, func(name string) bool {
		again := seen[name]
		seen[name] = true
		return again
	}), nil
}

func (p *parser) setNodeList(value string) (err error) {
	p.requested.nodeList, err = p.parseNodes(value)
	p.requested.nodeListAt = p.here()
	return err
}

func (p *parser) setExclude(value string) (err error) {
	p.options.Exclude, err = p.parseNodes(value)
	return err
}

// Slurm's limits of a job's priority, from 0, and of its nice value, from -MaxNice.
const (
	MaxPriority = math.MaxUint32 - 2
	MaxNice     = math.MaxInt32 - 2
)

// ParsePriority reads the priority of a job that is set outright: a number from 0 to MaxPriority, of
// which 0 stands for the one that the scheduler computes.
func ParsePriority(text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil || n > MaxPriority {
		return 0, fmt.Errorf("%q is no whole number from 1 to %d: give one, or 0 for the priority that the scheduler computes", text, MaxPriority)
	}
	return int64(n), nil
}

// ParseNice reads the nice value of a job.
func ParseNice(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < -MaxNice || n > MaxNice {
		return 0, fmt.Errorf("%q is no whole number from -%[2]d to %[2]d", text, MaxNice)
	}
	return n, nil
}

func (p *parser) setPriority(value string) (err error) {
	p.options.Priority, err = ParsePriority(value)
	return err
}

func (p *parser) setTime(value string) error {
	d, limited, err := parseTime(value)
	p.requested.time, p.requested.unlimited = d, !limited
	return err
}

// setRun parses the run time that a simulated job has with this request, in seconds or in any form
// of a log.
func (p *parser) setRun(value string) error {
	d, err := units.ParseDuration(value)
	switch {
	case err != nil:
		return err
	case d == 0:
		return errors.New("give a time above 0")
	case d > longest:
		return fmt.Errorf("%q is longer than any job runs", value)
	}
	p.requested.run = d
	return nil
}

const (
	longest  = 100 * 365 * 24 * time.Hour
	timeHelp = "write minutes, minutes:seconds, hours:minutes:seconds, days-hours, days-hours:minutes or days-hours:minutes:seconds"
)

// parseTime parses a time limit as Slurm does: a plain number is in minutes, the result is rounded
// up to whole minutes, and 0, UNLIMITED and INFINITE mean no limit.
func parseTime(s string) (d time.Duration, limited bool, err error) {
	if strings.EqualFold(s, "UNLIMITED") || strings.EqualFold(s, "INFINITE") || s == "-1" {
		return 0, false, nil
	}
	bad := fmt.Errorf("%q is no time: %s", s, timeHelp)
	days, clock, hasDays := strings.Cut(s, "-")
	switch {
	case !hasDays:
		clock = s
	case clock == "":
		clock = "0" // Slurm accepts "2-" for two days
	}
	fields := strings.Split(clock, ":")
	units := []time.Duration{time.Hour, time.Minute, time.Second} // after days
	switch {
	case len(fields) > 3:
		return 0, false, bad
	case !hasDays && len(fields) < 3:
		units = []time.Duration{time.Minute, time.Second}
	}
	if hasDays {
		fields = append([]string{days}, fields...)
		units = append([]time.Duration{24 * time.Hour}, units...)
	}
	for i, f := range fields {
		n, err := strconv.ParseUint(f, 10, 63)
		if err != nil || f[0] < '0' {
			return 0, false, bad
		}
		if n > uint64(longest/units[i]) {
			return 0, false, fmt.Errorf("%q is longer than any job runs: for no limit write UNLIMITED", s)
		}
		d += time.Duration(n) * units[i]
	}
	if d > longest {
		return 0, false, fmt.Errorf("%q is longer than any job runs: for no limit write UNLIMITED", s)
	}
	return (d + time.Minute - 1) / time.Minute * time.Minute, d > 0, nil
}
