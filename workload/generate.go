package workload

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/portable"
	"muster/internal/units"
	"muster/model"
)

// Generator makes synthetic workloads. Equal parameters and seeds give identical bytes on every
// machine.
type Generator struct {
	Name       string
	Summary    string
	Parameters []Parameter

	generate func(p *params, rng *rand.Rand) *Workload
}

// Parameter is a parameter of a generator.
type Parameter struct {
	Name    string
	Default string
	Help    string
}

// Generators lists the generators.
func Generators() []Generator {
	return []Generator{aucschedGenerator, congestedGenerator, generalGenerator, rgpuGenerator, tsubameGenerator}
}

// maxJobs limits generated workloads, so that a typo causes an error and not a huge log.
const maxJobs = 50_000_000

// Generate makes a workload with the generator called name. Parameters that are not given have
// their defaults.
func Generate(name string, given map[string]string, seed uint64) (*Workload, error) {
	all := Generators()
	i := slices.IndexFunc(all, func(g Generator) bool { return g.Name == name })
	if i < 0 {
		var names []string
		for _, g := range all {
			names = append(names, g.Name)
		}
		return nil, fmt.Errorf("there is no generator %q: %s", name, didYouMean(name, names))
	}
	g := &all[i]
	p, err := newParams(g, given)
	if err != nil {
		return nil, err
	}
	const stream = 0x6d7573746572 // the second half of the random generator's seed
	wl := g.generate(p, rand.New(rand.NewPCG(seed, stream)))
	if p.err != nil {
		return nil, fmt.Errorf("generator %s: %w", g.Name, p.err)
	}
	if len(wl.Jobs) == 0 {
		return nil, fmt.Errorf("generator %s: these parameters give no job: ask for a longer time or a higher load", g.Name)
	}
	wl.Name = g.Name
	wl.Header = append([]string{"Note: synthetic, made by Muster", fmt.Sprintf("Generator: %s seed=%d", g.Name, seed)}, p.lines()...)
	var origin time.Duration
	originKnown := !wl.Start.IsZero()
	if originKnown {
		origin = time.Duration(wl.Start.Unix()) * time.Second
	}
	wl.countFromFirst(origin, originKnown)
	nameJobs(wl.Jobs)
	for i := range wl.Jobs {
		if err := wl.Jobs[i].Validate(); err != nil {
			return nil, fmt.Errorf("generator %s: %w", g.Name, err)
		}
	}
	return wl, nil
}

// nameJobs numbers the jobs from 1.
func nameJobs(jobs []model.Job) {
	var room strings.Builder
	var digits [20]byte
	for i := range jobs {
		jobs[i].ID = appendShared(&room, strconv.AppendInt(digits[:0], int64(i+1), 10))
	}
}

// params returns the validated values of parameters, and keeps the first error.
type params struct {
	generator *Generator
	values    map[string]string
	err       error
}

func newParams(g *Generator, given map[string]string) (*params, error) {
	p := &params{generator: g, values: make(map[string]string)}
	var names []string
	for _, param := range g.Parameters {
		p.values[param.Name] = param.Default
		names = append(names, param.Name)
	}
	var unknown []string
	for name, value := range given {
		if _, ok := p.values[name]; !ok {
			unknown = append(unknown, name)
			continue
		}
		p.values[name] = value
	}
	if len(unknown) > 0 {
		name := slices.Min(unknown)
		return nil, fmt.Errorf("generator %s has no parameter %q: %s", g.Name, name, didYouMean(name, names))
	}
	return p, nil
}

// lines are the header lines that record how the workload was made.
func (p *params) lines() []string {
	var lines []string
	for _, param := range p.generator.Parameters {
		lines = append(lines, fmt.Sprintf("Parameter: %s=%s", param.Name, p.values[param.Name]))
	}
	return lines
}

// text is the value of a parameter. Generators must name only parameters that they declare.
func (p *params) text(name string) string { return strings.TrimSpace(p.values[name]) }

func (p *params) fail(name, format string, args ...any) {
	p.err = cmp.Or(p.err, fmt.Errorf("%s=%s: %s", name, p.values[name], fmt.Sprintf(format, args...)))
}

// count is a whole number.
func (p *params) count(name string, least, most int) int {
	n, err := strconv.Atoi(p.text(name))
	if err != nil || n < least || n > most {
		p.fail(name, "give a whole number from %d to %d", least, most)
		return least
	}
	return n
}

func (p *params) number(name string, least, most float64) float64 {
	x, err := strconv.ParseFloat(p.text(name), 64)
	if err != nil || !(x >= least && x <= most) {
		p.fail(name, "give a number from %v to %v", least, most)
		return least
	}
	return x
}

// seconds is a time; it is 0 only where that is allowed.
func (p *params) seconds(name string, zero bool) float64 {
	d, err := units.ParseDuration(p.text(name))
	switch {
	case err != nil:
		p.fail(name, "%v", err)
		return 1
	case d == 0 && !zero:
		p.fail(name, "give a time above 0")
		return 1
	case d > 100*365*24*time.Hour:
		p.fail(name, "give a time of at most a hundred years")
		return 1
	}
	return float64(d/time.Millisecond) / 1000
}

func (p *params) size(name string) int64 {
	n, err := units.ParseSize(p.text(name))
	if err != nil {
		p.fail(name, "%v", err)
	}
	return n
}

func (p *params) flag(name string) bool {
	b, err := parseFlag(p.text(name))
	if err != nil {
		p.fail(name, "%v", err)
	}
	return b
}

func (p *params) choice(name string, options ...string) string {
	if !slices.Contains(options, p.text(name)) {
		p.fail(name, "use one of %s", strings.Join(options, ", "))
	}
	return p.text(name)
}

// weights parses whole numbers separated by colons, such as 50:35:15.
func (p *params) weights(name string, most int) weights {
	var w weights
	sum := 0
	for field := range strings.SplitSeq(p.text(name), ":") {
		n, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil || n < 0 || n > 1_000_000 {
			p.fail(name, "give whole numbers with : between, such as 50:35:15")
			return weights{1}
		}
		w = append(w, n)
		sum += n
	}
	if sum == 0 || len(w) > most {
		p.fail(name, "give at most %d weights, one of them above 0", most)
		return weights{1}
	}
	return w
}

// list parses values separated by commas.
func list[T any](p *params, name string, parse func(string) (T, error)) []T {
	var out []T
	for field := range strings.SplitSeq(p.text(name), ",") {
		v, err := parse(strings.TrimSpace(field))
		if err != nil {
			p.fail(name, "%v", err)
			return []T{v}
		}
		out = append(out, v)
	}
	return out
}

// weights are the relative probabilities of 0, 1, 2, ...
type weights []int

// pick draws an index with a probability in proportion to its weight.
func (w weights) pick(rng *rand.Rand) int {
	n := rng.IntN(w.sum())
	for i, v := range w {
		if n < v {
			return i
		}
		n -= v
	}
	panic("unreachable: the weights add up to their sum")
}

func (w weights) sum() int {
	sum := 0
	for _, v := range w {
		sum += v
	}
	return sum
}

// mean is the expected value of value(i).
func (w weights) mean(value func(int) int) float64 {
	sum := 0
	for i, v := range w {
		sum += v * value(i)
	}
	return float64(sum) / float64(w.sum())
}

// runTimes draws run times, in whole seconds from 1 up to a limit.
type runTimes struct {
	kind         string
	scale, sigma float64
	limit        float64 // 0 for none
}

// Kinds of run times.
const (
	runExponential = "exponential"
	runLognormal   = "lognormal"
	runUniform     = "uniform" // from 0 to twice the mean
	runFixed       = "fixed"
)

// newRunTimes chooses the scale so that the mean is correct with the limit applied.
func newRunTimes(p *params, kind, meanName, limitName, sigmaName string) runTimes {
	mean, limit := p.seconds(meanName, false), p.seconds(limitName, true)
	t := runTimes{kind: kind, scale: mean, limit: limit, sigma: p.number(sigmaName, 0, 5)}
	if limit > 0 && mean > float64(0.9*limit) {
		p.fail(meanName, "it must be below 0.9 of %s", limitName)
		return t
	}
	if p.err != nil {
		return t
	}
	if kind == runLognormal {
		t.scale = mean / portable.Exp(float64(t.sigma*t.sigma)/2)
	}
	if limit == 0 || kind == runFixed {
		return t
	}
	// Bisect the scale until the mean over evenly spaced quantiles is correct.
	low, high := t.scale, t.scale
	for range 60 {
		if t.scale = high; t.meanOfQuantiles() >= mean {
			break
		}
		high *= 2
	}
	for range 60 {
		t.scale = low + (high-low)/2
		if t.meanOfQuantiles() < mean {
			low = t.scale
		} else {
			high = t.scale
		}
	}
	return t
}

func (t *runTimes) meanOfQuantiles() float64 {
	const steps = 4096
	sum := 0.0
	for i := range steps {
		sum += t.clamp(t.quantile((float64(i) + 0.5) / steps))
	}
	return sum / steps
}

// quantile is the run time that a fraction u of all jobs does not exceed, without the limit.
func (t *runTimes) quantile(u float64) float64 {
	switch t.kind {
	case runExponential:
		return float64(t.scale * -portable.Log(u))
	case runLognormal:
		return float64(t.scale * portable.Exp(float64(t.sigma*portable.NormalQuantile(u))))
	case runUniform:
		return float64(t.scale * float64(2*u))
	}
	return t.scale
}

func (t *runTimes) clamp(x float64) float64 {
	if t.limit > 0 {
		x = min(x, t.limit)
	}
	const most = 1e9 // thirty years; no job is longer
	return min(max(1, x), most)
}

func (t *runTimes) draw(rng *rand.Rand) time.Duration {
	return time.Duration(t.clamp(t.quantile(portable.Unit(rng.Uint64())))+0.5) * time.Second
}

// roundLimits are the wall times that people ask for.
var roundLimits = []time.Duration{
	10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 6 * time.Hour, 12 * time.Hour,
	24 * time.Hour, 2 * 24 * time.Hour, 4 * 24 * time.Hour, 7 * 24 * time.Hour, 14 * 24 * time.Hour,
}

// roundWallTime is the shortest usual limit that leaves room for a margin, because users
// overestimate, in round numbers.
func roundWallTime(run time.Duration, margin float64) time.Duration {
	want := time.Duration(float64(run/time.Second)*margin) * time.Second
	for _, limit := range roundLimits {
		if limit >= want {
			return limit
		}
	}
	day := 24 * time.Hour
	return (want + day - 1) / day * day
}

// names makes n names, which jobs share.
func names(prefix string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = prefix + strconv.Itoa(i+1)
	}
	return out
}

// table1 sets the traffic of a job as Table 1 of the TSUBAME paper does where the log is silent:
// the sizes are the memory that the job asks for on a node, and the numbers of connections are
// drawn between 100 and 100,000.
func table1(j *model.Job, rng *rand.Rand) {
	memory := j.Request.MemoryOnNode(j.Request.CoresOnNode())
	j.Traffic = model.Traffic{
		NetBytes: memory, NetConns: connections(rng),
		GPUBytes: memory, GPUConns: connections(rng),
	}
}

func connections(rng *rand.Rand) int64 { return 100 + rng.Int64N(100_000-100+1) }

// clock is the rate of submissions in each hour of the week, relative to the average.
type clock struct {
	hours [24]float64
	days  [7]float64 // from Sunday
}

// steady is a clock with a constant rate.
var steady = newClock([24]int(slices.Repeat([]int{1}, 24)), [7]int(slices.Repeat([]int{1}, 7)))

func newClock(hours [24]int, days [7]int) clock {
	var c clock
	sum := 0
	for _, h := range hours {
		sum += h
	}
	for i, h := range hours {
		c.hours[i] = float64(24*h) / float64(sum)
	}
	sum = 0
	for _, d := range days {
		sum += d
	}
	for i, d := range days {
		c.days[i] = float64(7*d) / float64(sum)
	}
	return c
}

// arrivals draws the times of submissions, in seconds from a start at midnight, with a rate that
// follows the clock.
type arrivals struct {
	clock   clock
	weekday int     // of the start
	rate    float64 // a second, on average
	now     float64
}

func (a *arrivals) next(rng *rand.Rand) float64 {
	work := -portable.Log(portable.Unit(rng.Uint64()))
	for {
		hour := int(a.now / 3600)
		rate := float64(a.rate * float64(a.clock.hours[hour%24]*a.clock.days[(a.weekday+hour/24)%7]))
		end := float64(float64(hour+1) * 3600)
		if possible := float64(rate * (end - a.now)); work > possible {
			work -= possible
			a.now = end
			continue
		}
		a.now += work / rate
		return math.Floor(a.now)
	}
}
