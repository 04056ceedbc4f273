package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/head"
	"muster/head/whatif"
	"muster/head/whatifrun"
	"muster/policy/catalog"
	"muster/wire/api"
)

// WhatIf says when the head simulates its own history under other policies, and the limits of that.
type WhatIf struct {
	// At is the time of day, since midnight. If it is negative, the head simulates only on request.
	At time.Duration
	// Policies are tried in addition to those of the catalogue; they may be files.
	Policies []string
	// Time is the processor time that one policy may use, and Memory what the whole process may
	// use.
	Time   time.Duration
	Memory int64
}

// DefaultWhatIf are the settings of a head without others.
var DefaultWhatIf = WhatIf{At: 3 * time.Hour, Time: time.Minute, Memory: 2 << 30}

// period is a span of time that ends now.
type period struct {
	name string
	long time.Duration
}

// periods are all periods, in the order in which they are simulated.
var periods = []period{{"day", 24 * time.Hour}, {"week", 7 * 24 * time.Hour}}

// periodOf finds a period by its name.
func periodOf(name string) (period, bool) {
	k := slices.IndexFunc(periods, func(p period) bool { return p.name == name })
	if k < 0 {
		return period{}, false
	}
	return periods[k], true
}

// whatifs runs simulations, one after the other, each in a process of its own. Requests of users
// only read the results so far: they never wait for a simulation.
type whatifs struct {
	*daemon
	command func(ctx context.Context) *exec.Cmd // nil: this head cannot simulate
	wake    chan struct{}

	mu     sync.Mutex
	known  map[string]api.WhatIfPeriod
	wanted []wanted  // the orders that wait
	next   time.Time // when the next simulation starts by itself; zero if none is planned
}

// wanted is an order for a simulation; without policies it tries all.
type wanted struct {
	period   string
	policies []string
}

// newWhatifs loads the results that the store has.
func newWhatifs(d *daemon) (*whatifs, error) {
	w := &whatifs{daemon: d, command: d.Simulate, wake: make(chan struct{}, 1), known: map[string]api.WhatIfPeriod{}}
	for _, p := range periods {
		value, err := d.store.WhatIf(p.name)
		if err != nil {
			return nil, err
		}
		kept := api.WhatIfPeriod{Name: p.name, Policies: []api.WhatIfPolicy{}}
		if value != nil {
			if err := json.Unmarshal(value, &kept); err != nil {
				// It can be computed again, so a damaged record must not keep the head from
				// starting.
				d.log.Warn("what was kept of a simulation makes no sense", "period", p.name, "error", err)
				kept = api.WhatIfPeriod{Name: p.name, Policies: []api.WhatIfPolicy{}}
			}
		}
		kept.Running = false
		w.known[p.name] = kept
	}
	return w, nil
}

// run simulates until ctx is done.
func (w *whatifs) run(ctx context.Context) {
	if w.command == nil {
		return
	}
	for {
		var due <-chan time.Time
		if next, ok := w.nextNight(); ok {
			// Wait for an hour at most: the clock may be set meanwhile.
			due = time.After(min(max(0, next.Sub(w.Now())), time.Hour))
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-due:
			w.nightly()
		}
		for {
			order, ok := w.takeFirst()
			if !ok || ctx.Err() != nil {
				break
			}
			w.make(ctx, order)
			w.done(order)
		}
	}
}

// nextNight is when the head next simulates all periods by itself.
func (w *whatifs) nextNight() (time.Time, bool) {
	at := w.cfg.WhatIf.At
	if at < 0 {
		return time.Time{}, false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.next.IsZero() {
		w.next = nightAfter(w.Now(), at, w.cfg.Core.Zone)
	}
	return w.next, true
}

// nightAfter is the first instant after now at a time of day.
func nightAfter(now time.Time, at time.Duration, zone *time.Location) time.Time {
	if zone == nil {
		zone = time.UTC
	}
	year, month, day := now.In(zone).Date()
	for k := 0; ; k++ {
		// By wall clock: a day on which clocks change has 23 or 25 hours.
		night := time.Date(year, month, day+k, int(at/time.Hour), int(at/time.Minute%60), 0, 0, zone)
		if night.After(now) {
			return night
		}
	}
}

// nightly orders a simulation of all periods, if it is time.
func (w *whatifs) nightly() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.Now().Before(w.next) {
		return
	}
	w.next = time.Time{}
	for _, p := range periods {
		w.want(wanted{period: p.name})
	}
}

// want appends an order, or replaces the one that waits for the same period. The caller must hold
// mu.
func (w *whatifs) want(o wanted) {
	if k := w.waiting(o.period); k >= 0 {
		w.wanted[k] = o
	} else {
		w.wanted = append(w.wanted, o)
	}
	p := w.known[o.period]
	p.Running = true
	w.known[o.period] = p
}

// waiting is the index of the order for a period; -1 if there is none. The caller must hold mu.
func (w *whatifs) waiting(period string) int {
	return slices.IndexFunc(w.wanted, func(o wanted) bool { return o.period == period })
}

func (w *whatifs) takeFirst() (wanted, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.wanted) == 0 {
		return wanted{}, false
	}
	o := w.wanted[0]
	w.wanted = w.wanted[1:]
	return o, true
}

// done notes that an order was carried out, or could not be.
func (w *whatifs) done(o wanted) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.known[o.period]
	p.Running, p.Progress = w.waiting(o.period) >= 0, 0
	w.known[o.period] = p
}

// make carries out one order, and stores the result.
func (w *whatifs) make(ctx context.Context, o wanted) {
	began := w.Now()
	w.log.Info("the history is simulated under other policies", "period", o.period)
	order, since, err := w.order(ctx, o)
	var made *api.WhatIfPeriod
	if err == nil {
		jobs := func(visit func([]byte) (bool, error)) error {
			return w.store.EndedBetween(since.Seconds(), order.To.Seconds(), visit)
		}
		made, err = whatifrun.Run(ctx, w.command, *order, jobs, func(m whatifrun.Message) { w.progress(o.period, m.Progress) })
	}
	if ctx.Err() != nil {
		return // the head is shutting down: the earlier result stays
	}
	w.mu.Lock()
	p := w.known[o.period]
	if err != nil {
		w.log.Warn("the history could not be simulated", "period", o.period, "error", err)
		p.Error = err.Error()
	} else {
		p = *made
		p.Name, p.MadeAt = o.period, w.now().Seconds()
		w.log.Info("the history has been simulated", "period", o.period, "jobs", p.Jobs, "policies", len(p.Policies), "took", w.Now().Sub(began).Round(time.Millisecond))
	}
	w.known[o.period] = p
	w.mu.Unlock()
	p.Running, p.Progress = false, 0
	value, err := json.Marshal(p)
	if err == nil {
		err = w.write([]head.Record{{Bucket: head.WhatIf, Key: []byte(o.period), Value: value}})
	}
	if err != nil {
		w.log.Error("what other policies would have done cannot be kept", "period", o.period, "error", err)
	}
}

func (w *whatifs) progress(period string, part float64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.known[period]
	p.Progress = min(max(part, p.Progress, 0.001), 1)
	w.known[period] = p
}

// order is the input of the simulating process without the ended jobs, and the instant from which
// those count.
func (w *whatifs) order(ctx context.Context, o wanted) (*whatifrun.Order, time.Duration, error) {
	var pic head.Picture
	if err := w.look(ctx, "whatif", func(core *head.Core) { pic = core.Picture(w.daemon.now()) }); err != nil {
		return nil, 0, err
	}
	active, err := w.jobs(ctx, "whatif", head.Filter{States: []api.State{api.Pending, api.Running, api.Suspended, api.Completing}})
	if err != nil {
		return nil, 0, err
	}
	period, _ := periodOf(o.period) // checked when the order was made
	turns, err := w.store.NodeLog(0)
	if err != nil {
		return nil, 0, err
	}
	from := max(pic.At-period.long, pic.Began)
	since, err := w.store.SinceFor(from.Seconds(), whatif.MaxJobs)
	if err != nil {
		return nil, 0, err
	}
	from = max(from, time.Duration(since*1e9))
	if pic.At <= from {
		return nil, 0, errors.New("the head has no past yet")
	}
	return &whatifrun.Order{
		Header: whatif.Header{
			Name: o.period, From: from, To: pic.At, Began: pic.Began, Policies: w.candidates(o.policies),
			Cluster: pic.Cluster, Machines: pic.Machines, Turns: turns, Active: active,
			TimeLimit: pic.Config.TimeLimit, Priority: pic.Config.Priority, Windows: pic.Config.Windows,
		},
		PolicyTime: w.cfg.WhatIf.Time, Memory: w.cfg.WhatIf.Memory,
	}, from, nil
}

// candidates are the policies to try: the one in force, and those that were named, or else all.
func (w *whatifs) candidates(names []string) []whatif.Candidate {
	if len(names) == 0 {
		for _, e := range catalog.Entries {
			names = append(names, e.Name)
		}
		names = append(names, w.cfg.WhatIf.Policies...)
	}
	list := []whatif.Candidate{{Name: w.inForce.Load().name, Spec: w.spec(), InForce: true}}
	for _, name := range names {
		if !slices.ContainsFunc(list, func(c whatif.Candidate) bool { return c.Name == name }) {
			list = append(list, whatif.Candidate{Name: name, Spec: w.fullSpec(name, w.inForce.Load().rules)})
		}
	}
	return list
}

// isFile says whether a policy is a script file.
func isFile(spec string) bool {
	name, _, _ := strings.Cut(spec, ":")
	return strings.HasSuffix(name, ".star")
}

// maxTried is how many policies one request may name.
const maxTried = 100

// ask handles a request for simulations.
func (w *whatifs) ask(asked *api.WhatIfWanted) error {
	if w.command == nil {
		return refuse(http.StatusServiceUnavailable, "this head cannot simulate: it was not told how to start a process for it")
	}
	if _, known := periodOf(asked.Period); !known && asked.Period != "" {
		return refuse(http.StatusBadRequest, "period %.20q: give day or week, or leave it out for both", asked.Period)
	}
	if len(asked.Policies) > maxTried {
		return refuse(http.StatusBadRequest, "%d policies: name at most %d", len(asked.Policies), maxTried)
	}
	for _, spec := range asked.Policies {
		if isFile(spec) && !slices.Contains(w.cfg.WhatIf.Policies, spec) && spec != w.inForce.Load().name {
			return refuse(http.StatusBadRequest, "%.80q is a file: only those in the head's configuration are tried (whatif: policies)", spec)
		}
		if isFile(spec) {
			continue // the simulating process reports what is wrong with it
		}
		if _, err := catalog.New(w.fullSpec(spec, w.inForce.Load().rules)); err != nil {
			return refuse(http.StatusBadRequest, "%v", err)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range periods {
		if asked.Period == "" || asked.Period == p.name {
			w.want(wanted{p.name, asked.Policies})
		}
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return nil
}

// document is what is known so far.
func (w *whatifs) document() api.WhatIf {
	w.mu.Lock()
	defer w.mu.Unlock()
	doc := api.WhatIf{Periods: []api.WhatIfPeriod{}}
	for _, p := range periods {
		doc.Periods = append(doc.Periods, w.known[p.name])
	}
	if w.command != nil && !w.next.IsZero() {
		doc.Next = float64(w.next.Unix())
	}
	return doc
}

func serveWhatIf(q *request) (any, error) { return q.whatifs.document(), nil }

func serveWhatIfNow(q *request) (any, error) {
	admin := false
	if err := q.see(func(core *head.Core, _ time.Duration) { admin = core.IsAdmin(q.who.user) }); err != nil {
		return nil, err
	}
	if !admin {
		return nil, refuse(http.StatusForbidden, "only administrators have the head simulate: it does so by itself every night, and admins: in its configuration names them")
	}
	var asked api.WhatIfWanted
	if err := q.body(&asked); err != nil {
		return nil, err
	}
	if err := q.whatifs.ask(&asked); err != nil {
		return nil, err
	}
	q.log.Info("an administrator wants to know what other policies would have done", "user", q.who.user, "period", asked.Period)
	return q.whatifs.document(), nil
}

// parseTimeOfDay parses 03:00, or never.
func parseTimeOfDay(s string) (time.Duration, error) {
	if s == "never" {
		return -1, nil
	}
	t, err := time.Parse("15:04", s)
	if err != nil {
		return 0, fmt.Errorf("must be a time of day as 03:00, or never, not %q", s)
	}
	return time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute, nil
}
