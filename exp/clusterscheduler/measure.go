package clusterscheduler

import (
	"context"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"time"

	"muster/exp/bench"
	"muster/wire/api"
)

// outcome is one run of a workload, measured or predicted.
type outcome struct {
	bench.Timing              // until the last job had ended
	Moves        int          `json:"moves,omitempty"` // to faster or emptier GPUs, by the nodes
	Jobs         []jobOutcome `json:"jobs"`
}

// jobOutcome is the result of one job.
type jobOutcome struct {
	Name      string  `json:"name"`
	Processes int     `json:"processes"`
	Wait      float64 `json:"wait"` // from submission to start
	Run       float64 `json:"run"`  // from start to end, including suspensions
	Where     string  `json:"where"`
}

// response is the time from submission to end.
func (j *jobOutcome) response() float64 { return j.Wait + j.Run }

// workload is a list of jobs that run together on a cluster under a policy.
type workload struct {
	key     string
	setting setting
	jobs    []job
}

// Key implements bench.Keyed.
func (w workload) Key() string { return w.key }

// lab makes the measurements.
type lab struct {
	ctx      context.Context
	tools    bench.Tools
	m        *measured
	patience time.Duration // what is left to wait for a quiet machine
	// up is the running cluster, and upAs the key of its setting. The next workload may reuse it.
	up   *living
	upAs string
}

func (s *setting) key() string {
	text := fmt.Sprint(s.policy, s.roam)
	for _, h := range s.hosts {
		text += fmt.Sprintf(" %s/%d", h.name, h.cores)
		for _, c := range h.cards {
			text += "+" + c.Name
		}
	}
	return text
}

// cluster returns a running cluster with a setting: the current one if it fits, else a new one.
func (l *lab) cluster(s setting) (*living, error) {
	if l.up != nil && l.upAs == s.key() {
		return l.up, nil
	}
	if err := l.Close(); err != nil {
		return nil, err
	}
	up, err := startCluster(l.ctx, l.tools, s)
	if err != nil {
		return nil, err
	}
	l.up, l.upAs = up, s.key()
	// The first job on a cluster takes longer than all others, so it is not measured.
	if _, err := up.run(l.ctx, 1, []job{{&warmUp, 1, []string{"--gres=gpu:1"}}}); err != nil {
		return nil, errors.Join(l.ctx.Err(), err, l.Close())
	}
	return up, nil
}

// warmUp is a short program.
var warmUp = app{"MM", "pairs", 16, 1, 1, 0, false}

// Close stops the running cluster.
func (l *lab) Close() error {
	if l.up == nil {
		return nil
	}
	l.up.Stop()
	l.up = nil
	return nil
}

// defaultPatience limits the total time spent waiting for a quiet machine. idleLate, in seconds, is
// about twice the mean wake-up delay of an idle machine.
const (
	defaultPatience = 2 * time.Minute
	idleLate        = 0.0004
)

// Make runs a workload once.
func (l *lab) Make(w *workload, seed uint64) (outcome, error) {
	up, err := l.cluster(w.setting)
	if err != nil {
		return outcome{}, err
	}
	if l.patience, err = bench.AwaitQuiet(l.ctx, l.patience, idleLate); err != nil {
		return outcome{}, err
	}
	before, err := up.Moves()
	if err != nil {
		return outcome{}, err
	}
	machine := bench.Watch()
	ended, err := up.run(l.ctx, seed, w.jobs)
	late := machine()
	moves, unknown := up.Moves()
	if err = errors.Join(err, unknown); err != nil {
		l.up = nil
		up.Stop()
		if text := up.Logs(); text != "" {
			err = fmt.Errorf("%w\nwhat head and nodes say:\n%s", err, text)
		}
		return outcome{}, errors.Join(l.ctx.Err(), err)
	}
	out := outcome{Timing: bench.Timing{Late: late}, Moves: moves - before}
	first := ended[0].Submit
	for i := range ended {
		e := &ended[i]
		out.Jobs = append(out.Jobs, jobOutcome{w.jobs[i].app.name, w.jobs[i].processes, e.Start - e.Submit, e.End - e.Start, placeOf(w.setting.hosts, e)})
		out.Seconds = max(out.Seconds, e.End-first)
	}
	return out, nil
}

// placeOf is where the processes of a job were.
func placeOf(hosts []host, j *api.Job) string {
	var nodes, counts []int
	for _, p := range j.Parts {
		nodes = append(nodes, slices.IndexFunc(hosts, func(h host) bool { return h.name == p.Node }))
		counts = append(counts, p.Cores)
	}
	return whereText(nodes, counts)
}

var gpuTime = regexp.MustCompile(`\(GPU ([0-9.]+) s`)

// profiled are the jobs of the profile: long enough to measure, and short on the slowest card.
var profiled = []app{
	{"MM", "pairs", 16, 2, 48, 0, false},
	{"NW", "align", 16, 4, 48, 0, false},
	{"ADFA", "adfa", 160, 0, 2, 0, true},
}

// profileTries is how often each part of the profile is measured. The shortest time counts, because
// other load on the machine can only lengthen one.
const profileTries = 3

// profile measures the time of a unit of work on each kind of card, alone, and the fixed cost of a
// job.
func (l *lab) profile() error {
	hosts := kinds()
	found := profile{Unit: map[string]map[string]float64{}, Start: math.Inf(1)}
	for range profileTries {
		for i := range profiled {
			if err := l.profileOne(&found, &profiled[i], hosts); err != nil {
				return err
			}
		}
	}
	if err := l.profileStarts(&found); err != nil {
		return err
	}
	l.m.Profile = found
	return nil
}

// profileOne runs a program on each kind of card, on all of them concurrently.
func (l *lab) profileOne(p *profile, a *app, hosts []host) error {
	up, err := l.cluster(setting{"fcfs", hosts, false})
	if err != nil {
		return err
	}
	var jobs []job
	for _, h := range hosts {
		jobs = append(jobs, job{a, 1, []string{"--gres=gpu:1", "-w", h.name}})
	}
	ended, err := up.run(l.ctx, 1, jobs)
	if err != nil {
		return err
	}
	if p.Unit[a.name] == nil {
		p.Unit[a.name] = map[string]float64{}
	}
	for k := range ended {
		said := gpuTime.FindStringSubmatch(up.Output(ended[k].ID))
		if said == nil {
			return fmt.Errorf("%s does not say how long it used the GPU", &jobs[k])
		}
		took, err := strconv.ParseFloat(said[1], 64)
		if err != nil {
			return err
		}
		card, each := hosts[k].cards[0].Name, took/float64(max(1, a.rounds)*a.units)/a.automatonWork()
		if before, known := p.Unit[a.name][card]; !known || each < before {
			p.Unit[a.name][card] = each
		}
		p.Start = min(p.Start, ended[k].End-ended[k].Start-took)
	}
	return nil
}

// profileStarts estimates what each further process adds to the start of a job: a job of eight
// processes takes longer than the prediction from network and GPUs alone, and the excess is divided
// among them.
func (l *lab) profileStarts(p *profile) error {
	j := job{&mm, 8, []string{"--gres=gpu:1"}}
	w := workload{"starts", setting{"fcfs", commodity.slots(), false}, []job{j}}
	least := math.Inf(1)
	for range profileTries {
		out, err := l.Make(&w, 1)
		if err != nil {
			return err
		}
		least = min(least, out.Seconds)
	}
	predicted, err := p.predict(w.setting, w.jobs)
	if err != nil {
		return err
	}
	p.EachStarts = max(0, least-predicted.Seconds) / float64(j.processes-1)
	p.Start = max(0, p.Start-p.EachStarts)
	return nil
}
