// Package driver is the daemon that lets a policy of Muster place the jobs of a real Slurm: it
// reads Slurm (slurm/engine), tells the core (package slurm), and carries out what the core
// decides.
//
// One goroutine owns the core. In each round it reads Slurm, lets the policy decide, sends the
// requests that follow, several at a time, and waits for the answers. It reads Slurm again after
// every burst of requests, and at least every Poll; if Slurm can say that nothing has changed, such
// a round costs one short request. Nothing is kept on disk: what a restarted driver must know is in
// the comments of the jobs. A process beside the driver hands its waiting jobs to Slurm if the driver is
// killed, where that is wanted (guard.go).
package driver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"muster/internal/wholefile"
	"muster/policy"
	"muster/policy/history"
	"muster/slurm"
	"muster/slurm/engine"
)

// Engine is a Slurm: that of package engine, or a test's.
type Engine interface {
	Jobs(ctx context.Context, since int64, threads map[string]int) (engine.Listing, error)
	Nodes(ctx context.Context) ([]slurm.Node, error)
	Partitions(ctx context.Context) ([]slurm.Partition, error)
	Reservations(ctx context.Context) ([]slurm.Reservation, error)
	Accounting(ctx context.Context) (*slurm.Accounting, error)
	Place(ctx context.Context, p slurm.Place) error
	Hold(ctx context.Context, job slurm.Ref) error
	Handover(ctx context.Context, job slurm.Ref, comment string) error
	Comment(ctx context.Context, job slurm.Ref, text string) error
	Split(ctx context.Context, s slurm.Split) error
	Stop(ctx context.Context, s slurm.Stop) error
	Resume(ctx context.Context, job slurm.Ref, comment string) error
}

var _ Engine = (*engine.Engine)(nil)

// Fallback says what happens to waiting jobs when the driver ends.
type Fallback string

// The fallbacks.
const (
	FallbackWait  Fallback = "wait"  // they wait for the next driver
	FallbackSlurm Fallback = "slurm" // Slurm's own scheduler gets them
)

// Config is what an administrator decides.
type Config struct {
	Core slurm.Config
	// Spec names the policy, and Policy makes it.
	Spec   string
	Policy func(spec string) (policy.Policy, error)
	// Poll is the longest time between two rounds; 0 is 500 ms. Parallel is how many requests are
	// sent at a time; 0 is 4.
	Poll     time.Duration
	Parallel int
	Fallback Fallback
	// Lending gives jobs GPUs of other nodes. If it is nil, jobs are told which GPUs they have, and
	// are given none.
	Lending *Lending
	// Record receives the policy's history; nil discards it.
	Record io.Writer
	// Version of this program, for the record.
	Version string
	// Alive is a file with the time of the latest round, in seconds since 1970, which the
	// job_submit script reads; "" is none.
	Alive string
	// Socket is where the driver serves its status; "" is nowhere.
	Socket string
	Log    *slog.Logger
	Now    func() time.Time
}

func (c *Config) defaults() error {
	if c.Poll == 0 {
		c.Poll = 500 * time.Millisecond
	}
	if c.Parallel == 0 {
		c.Parallel = 4
	}
	if c.Fallback == "" {
		c.Fallback = FallbackWait
	}
	if c.Fallback != FallbackWait && c.Fallback != FallbackSlurm {
		return fmt.Errorf("fallback must be %s or %s, not %q", FallbackWait, FallbackSlurm, c.Fallback)
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return nil
}

// slowReads is how often nodes, partitions and reservations are read.
const slowReads = 2 * time.Second

// Driver drives one Slurm.
type Driver struct {
	cfg    Config
	engine Engine
	core   *slurm.Core
	record *bufio.Writer

	threads  map[string]int
	stamp    int64
	nodesAt  time.Time // when nodes were last read
	sharesAt time.Time // when fair shares were last read
	explain  time.Time
	aliveAt  time.Time
	tookLast time.Duration // how long the latest listing took
	down     bool          // Slurm did not answer
	lenders  uint64        // the lenders' change count that the core was last told
	// given are the jobs whose grants are in the folder; nil until the folder was read.
	given map[borrower]bool

	mu     sync.Mutex
	status slurm.Status
}

// New makes a driver.
func New(e Engine, cfg Config) (*Driver, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	p, err := cfg.Policy(cfg.Spec)
	if err != nil {
		return nil, err
	}
	if cfg.Lending != nil {
		if err := cfg.Lending.check(); err != nil {
			return nil, err
		}
		cfg.Core.Lending, cfg.Core.GrantFolder = true, cfg.Lending.Folder
	}
	d := &Driver{cfg: cfg, engine: e, core: slurm.New(cfg.Core, p), threads: map[string]int{}}
	if cfg.Record != nil {
		d.record = bufio.NewWriter(cfg.Record)
		d.core.Record(d.record, history.Header{Policy: cfg.Spec, Muster: cfg.Version, Note: "muster slurm drive"})
	}
	return d, nil
}

// Run drives until the context ends. Slurm may be away for a time meanwhile.
func (d *Driver) Run(ctx context.Context) error {
	closeDoor, err := d.openDoor()
	if err != nil {
		return err
	}
	defer closeDoor()
	defer d.flush()
	for ctx.Err() == nil {
		began := d.cfg.Now()
		busy := d.Round(ctx)
		if d.cfg.Now().Sub(d.aliveAt) > time.Second && !d.down {
			d.aliveAt = d.cfg.Now()
			d.sayAlive()
		}
		// If listings take long, they are not requested all the time.
		pause := max(d.cfg.Poll-d.cfg.Now().Sub(began), 2*d.tookLast)
		if busy {
			pause = d.tookLast
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	if d.cfg.Fallback == FallbackSlurm {
		return d.handOver(d.core.Held("Muster's driver has ended: Slurm's scheduler has it"))
	}
	return nil
}

func (d *Driver) now() time.Duration { return time.Duration(d.cfg.Now().UnixNano()) }

// Round reads, decides and sends once. It returns whether it sent anything urgent.
func (d *Driver) Round(ctx context.Context) bool {
	picture, err := d.read(ctx)
	if err != nil {
		if !d.down && ctx.Err() == nil {
			d.cfg.Log.Warn("Slurm does not answer; jobs go on, and nothing new is placed", "error", err)
		}
		d.down, d.stamp, d.nodesAt = true, 0, time.Time{}
		d.mu.Lock()
		d.status.Problem = err.Error()
		d.mu.Unlock()
		return false
	}
	if d.down {
		d.down = false
		d.cfg.Log.Info("Slurm answers again")
	}
	d.core.Observe(d.now(), picture)
	d.takeBack()
	d.core.Step(d.now())
	if d.cfg.Now().Sub(d.explain) > time.Second {
		d.explain = d.cfg.Now()
		d.core.Explain(d.now(), 50, 30*time.Second)
	}
	busy := d.perform(ctx, d.core.Take())
	d.flush()
	status := d.core.Status(1000)
	d.mu.Lock()
	d.status = status
	d.mu.Unlock()
	return busy
}

// flush writes what was recorded, so that the record ends with a whole step.
func (d *Driver) flush() {
	if d.record != nil {
		d.record.Flush()
	}
}

// Status is the state at the end of the latest round.
func (d *Driver) Status() slurm.Status {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.status
}

// read asks Slurm for its state: nodes first, so that the core knows the nodes of each job.
func (d *Driver) read(ctx context.Context) (*slurm.Picture, error) {
	p := &slurm.Picture{}
	var err error
	if d.cfg.Now().Sub(d.nodesAt) >= slowReads {
		if p.Nodes, err = d.engine.Nodes(ctx); err != nil {
			return nil, err
		}
		if p.Partitions, err = d.engine.Partitions(ctx); err != nil {
			return nil, err
		}
		if p.Reservations, err = d.engine.Reservations(ctx); err != nil {
			return nil, err
		}
		for _, n := range p.Nodes {
			d.threads[n.Name] = n.Threads
		}
		d.nodesAt = d.cfg.Now()
	}
	p.Accounting = d.readAccounting(ctx)
	began := d.cfg.Now()
	p.Asked = d.now()
	l, err := d.engine.Jobs(ctx, d.stamp, d.threads)
	if err != nil {
		return nil, err
	}
	d.tookLast = d.cfg.Now().Sub(began)
	p.Jobs, p.Same, d.stamp = l.Jobs, l.Same, l.Stamp
	p.Lenders = d.readLenders(p.Nodes != nil)
	return p, nil
}

// readAccounting reads what priorities depend on, as often as Slurm computes it. If that fails, the
// last answer counts.
func (d *Driver) readAccounting(ctx context.Context) *slurm.Accounting {
	p := d.cfg.Core.Priority
	if p == nil || d.cfg.Now().Sub(d.sharesAt) < p.CalcPeriod {
		return nil
	}
	a, err := d.engine.Accounting(ctx)
	if err != nil {
		d.cfg.Log.Warn("the fair shares of users cannot be read; jobs are ranked by those that were last", "error", err)
	}
	d.sharesAt = d.cfg.Now()
	return a
}

// readLenders lists the nodes that lend, if they have changed or always is true.
func (d *Driver) readLenders(always bool) []slurm.Lender {
	if d.cfg.Lending == nil {
		return nil
	}
	nodes, changes := d.cfg.Lending.Nodes.Nodes()
	if changes == d.lenders && !always {
		return nil
	}
	d.lenders = changes
	list := []slurm.Lender{}
	for _, n := range nodes {
		l := slurm.Lender{Node: n.Name}
		for _, g := range n.Devices {
			l.GPUs = append(l.GPUs, slurm.LentGPU{Name: g.Name, Memory: g.Memory, Speed: g.Speed, Up: g.Up && n.Gateway != ""})
		}
		list = append(list, l)
	}
	return list
}

// takeBack ends the loans of jobs that no longer use them. The first time, it takes over the loans
// of the driver before this one, once the core knows which of its jobs Slurm has.
func (d *Driver) takeBack() {
	l := d.cfg.Lending
	if l == nil || !d.core.Settled() {
		return
	}
	keeps := func(b borrower) bool { return d.core.Borrows(b.job, b.start) != nil }
	if d.given == nil {
		found, err := l.find()
		if err != nil {
			d.cfg.Log.Warn("the folder for grants cannot be read", "error", err)
			return
		}
		d.given = map[borrower]bool{}
		for _, b := range found {
			d.given[b] = true
			loan := d.core.Borrows(b.job, b.start)
			if loan == nil {
				continue
			}
			if err := l.remember(b, loan); err != nil {
				d.cfg.Log.Warn("the grant of a job cannot be read", "job", b.job, "error", err)
			}
		}
	}
	if err := l.takeBack(d.given, keeps); err != nil {
		d.cfg.Log.Warn("the grant of a job that has ended cannot be removed", "error", err)
	}
	d.giveAgain()
}

// giveAgain renews loans that were taken back from jobs which Slurm starts again: Slurm had
// reported their end and has forgotten that. It is tried in every round, since nodes may not be
// connected yet.
func (d *Driver) giveAgain() {
	for _, p := range d.core.Lacking(func(id uint64, start int) bool { return d.given[borrower{id, start}] }) {
		if err := d.cfg.Lending.giveAgain(&p); err != nil {
			d.cfg.Log.Debug("a job that Slurm starts once more lacks its grant", "job", p.Job.ID, "error", err)
			continue
		}
		d.given[borrower{p.Job.ID, p.Start}] = true
		d.cfg.Log.Info("Slurm has forgotten that a job has ended: it is lent again what it was", "job", p.Job.ID)
	}
}

// place lends a job what it borrows, and then places it: a job must not start without its grants.
func (d *Driver) place(ctx context.Context, p slurm.Place) error {
	if p.Borrows != nil && d.cfg.Lending != nil {
		if err := d.cfg.Lending.give(ctx, &p); err != nil {
			return fmt.Errorf("%w: %w", slurm.ErrNotLent, err)
		}
	}
	return d.engine.Place(ctx, p)
}

// request is one request to Slurm.
type request struct {
	job uint64 // the job for which the core is told the outcome; 0 for none
	do  func(context.Context) error
}

// perform sends the core's requests to Slurm, and tells the core the outcome of each. Placements go
// first.
func (d *Driver) perform(ctx context.Context, e slurm.Effects) bool {
	for _, n := range e.Notes {
		d.cfg.Log.Info(n)
	}
	e2 := d.engine
	var list []request
	for _, p := range e.Places {
		if p.Borrows != nil && d.given != nil {
			d.given[borrower{p.Job.ID, p.Start}] = true
		}
		list = append(list, request{p.Job.ID, func(ctx context.Context) error { return d.place(ctx, p) }})
	}
	for _, r := range e.Recalls {
		list = append(list, request{r.ID, func(ctx context.Context) error { return e2.Hold(ctx, r) }})
	}
	for _, h := range e.Handovers {
		list = append(list, request{h.Job.ID, func(ctx context.Context) error { return e2.Handover(ctx, h.Job, h.Comment) }})
	}
	for _, s := range e.Splits {
		list = append(list, request{s.Array, func(ctx context.Context) error { return e2.Split(ctx, s) }})
	}
	for _, s := range e.Stops {
		list = append(list, request{s.Job.ID, func(ctx context.Context) error { return e2.Stop(ctx, s) }})
	}
	for _, s := range e.Resumes {
		list = append(list, request{s.Job.ID, func(ctx context.Context) error { return e2.Resume(ctx, s.Job, s.Comment) }})
	}
	urgent := len(list)
	for _, s := range e.Comments {
		list = append(list, request{0, func(ctx context.Context) error { return e2.Comment(ctx, s.Job, s.Comment) }})
	}
	d.send(ctx, list)
	return urgent > 0
}

// send sends requests, several at a time, and waits for all answers. What was begun is finished even
// if the driver is to end: its answer is worth having. A deadline holds.
func (d *Driver) send(ctx context.Context, list []request) {
	type answer struct {
		job uint64
		err error
	}
	work, answers := make(chan request), make(chan answer)
	deadline, limited := ctx.Deadline()
	ctx = context.WithoutCancel(ctx)
	if limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline)
		defer cancel()
	}
	for range min(d.cfg.Parallel, len(list)) {
		go func() {
			for r := range work {
				answers <- answer{r.job, r.do(ctx)}
			}
		}()
	}
	go func() {
		for _, r := range list {
			work <- r
		}
		close(work)
	}()
	for range list {
		a := <-answers
		fate := slurm.Done
		switch {
		case errors.Is(a.err, engine.ErrUnknown):
			fate = slurm.Unknown
		case a.err != nil:
			fate = slurm.Refused
		}
		if a.job != 0 {
			d.core.Told(d.now(), a.job, fate, a.err)
		} else if a.err != nil {
			d.cfg.Log.Debug("a comment was not written", "error", a.err)
		}
	}
	for _, n := range d.core.Take().Notes {
		d.cfg.Log.Warn(n)
	}
}

// sayAlive writes the time of the latest round.
func (d *Driver) sayAlive() {
	if d.cfg.Alive == "" {
		return
	}
	if err := wholefile.Replace(d.cfg.Alive, []byte(strconv.FormatInt(d.cfg.Now().Unix(), 10)+"\n"), 0o644); err != nil {
		d.cfg.Log.Warn("the file that says that the driver is alive cannot be written", "file", filepath.Base(d.cfg.Alive), "error", err)
	}
}
