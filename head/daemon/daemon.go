package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"muster/head"
	"muster/head/store"
	"muster/internal/recordfile"
	"muster/model"
	"muster/policy"
	"muster/policy/scriptfile"
)

// Options is what the daemon needs beside its configuration.
type Options struct {
	// TLS has the head's certificate and the authority that vouches for users and
	// nodes; nil without a port.
	TLS *tls.Config
	// Policy makes the policy that a configuration names.
	Policy func(spec string) (policy.Policy, error)
	// ReadScript reads the file of a policy, if the configuration names one. The head checks the
	// file for changes whenever LookAtScript delivers, or every second if that is nil.
	ReadScript   scriptfile.Read
	LookAtScript <-chan time.Time
	// Spec returns the full specification of the policy that a configuration names, as muster sim
	// replay takes it; nil if that is the name itself.
	Spec    func(spec string) string
	Version string
	Now     func() time.Time
	Log     *slog.Logger
	// Reload makes the daemon read the configuration again, with Load.
	Reload <-chan struct{}
	Load   func() (Config, error)
	// Simulate returns the process that simulates the head's history, which must run
	// whatifrun.Serve; nil if the head is not to simulate.
	Simulate func(ctx context.Context) *exec.Cmd
	// Ready is called once the head answers requests, with its addresses.
	Ready func(Addresses)
	// commit, if it is not nil, is called in place of write, so that tests can delay or fail
	// commits.
	commit func(write func() error) error
	// lookAtRevoked, if it is not nil, delivers when the head is to look whose certificate was revoked,
	// so that tests need not wait; otherwise it does so every revokedEvery.
	lookAtRevoked <-chan time.Time
}

// Addresses are the addresses of a running head; "" where it does not listen.
type Addresses struct{ Listen, Socket, HTTP, Page string }

// daemon is a running head.
type daemon struct {
	Options
	cfg   Config
	log   *slog.Logger
	began time.Time
	store *store.Store
	// altered tells of altered records; nil if there are none.
	altered atomic.Pointer[string]

	queue      *queue
	commits    chan *collected
	committed  chan struct{} // the committer has ended
	configured chan head.Config
	requests   atomic.Uint64

	sessions  *sessions
	refusals  refusals
	streams   *streams
	listeners *listeners
	bodies    *budget
	lists     *lists
	metrics   metrics
	doors     *doors
	recording *recordfile.Writer // nil if the head does not record
	whatifs   *whatifs
	script    *scripted // nil if the policy is no script

	ending chan struct{} // closed when the daemon begins to end
	failure
}

// failure is why the daemon cannot continue. The first reason counts.
type failure struct {
	dead   chan struct{} // closed when there is one
	once   sync.Once
	reason error // readable once dead is closed
}

// now is the core's time, since 1970. It starts from the wall clock and continues with the
// monotonic one, so that setting the clock does not make nodes look silent.
func (d *daemon) now() time.Duration {
	return time.Duration(d.began.UnixNano()) + d.Now().Sub(d.began)
}

// fail makes the daemon end with an error.
func (d *daemon) fail(err error) {
	d.once.Do(func() {
		d.log.Error("the head ends", "error", err)
		d.reason = err
		close(d.dead)
	})
}

// lastWords is how long waiting callers may take to read why the daemon ends.
const lastWords = 2 * time.Second

// Run runs the head until ctx is done or the head cannot continue.
func Run(ctx context.Context, cfg Config, o Options) error {
	if err := cfg.check(); err != nil {
		return err
	}
	cfg.Connections = cfg.Connections.complete()
	files, err := store.Open(cfg.State)
	if err != nil {
		return err
	}
	defer files.Close()
	d := &daemon{
		Options: o, cfg: cfg, log: o.Log, began: o.Now(), store: files,
		queue: newQueue(), commits: make(chan *collected), committed: make(chan struct{}), configured: make(chan head.Config),
		bodies: newBudget(maxBodies, maxBodiesEach), lists: newLists(), ending: make(chan struct{}), failure: failure{dead: make(chan struct{})},
	}
	d.sessions, d.streams, d.listeners = newSessions(d), newStreams(), newListeners()
	core, err := d.restore()
	if err != nil {
		return err
	}
	if err := d.record(core); err != nil {
		return err
	}
	if d.recording != nil {
		defer d.recording.Close("the head has ended")
	}
	if d.whatifs, err = newWhatifs(d); err != nil {
		return err
	}
	verifying, stop := context.WithCancel(ctx)
	var verified sync.WaitGroup
	defer verified.Wait() // before the file is closed
	defer stop()
	verified.Go(func() { d.verify(verifying) })
	return d.serve(ctx, core)
}

// maxAltered is how many altered records are named in the log.
const maxAltered = 20

// verify looks at every record once, beside the work: those of ended jobs are not read at start.
func (d *daemon) verify(ctx context.Context) {
	n := 0
	err := d.store.Verify(ctx, func(err error) {
		if n++; n <= maxAltered {
			d.log.Error("a record is altered, and is not served", "error", err)
		}
		problem := fmt.Sprintf("%d altered records in %s, which are not served: the log names them; put a backup in its place", n, d.store.Path())
		d.altered.Store(&problem)
	})
	if err != nil && ctx.Err() == nil {
		d.log.Error("the records cannot be checked", "error", err)
	}
}

// restore rebuilds the core from the store.
func (d *daemon) restore() (*head.Core, error) {
	p, err := d.openPolicy()
	if err != nil {
		return nil, fmt.Errorf("the policy %q: %w", d.cfg.Policy, err)
	}
	records := 0
	core, err := head.Restore(d.cfg.Core, p, d.cfg.Policy, func(visit func(head.Record) error) error {
		for _, bucket := range []head.Bucket{head.Meta, head.Nodes, head.Jobs, head.Keys} {
			if err := d.store.Each(bucket, func(r head.Record) error { records++; return visit(r) }); err != nil {
				return err
			}
		}
		return nil
	}, d.now())
	if err != nil {
		return nil, fmt.Errorf("going on from what is in %s: %w", d.store.Path(), err)
	}
	core.SetPast(func(job uint64) (head.Past, bool) {
		past, err := d.store.Past(job)
		return past, err == nil
	})
	d.log.Info("what was on disk is there again", "file", d.store.Path(), "records", records, "took", d.Now().Sub(d.began).Round(time.Millisecond))
	d.warnUnknown(core)
	return core, nil
}

// warnUnknown logs names in the configuration that no node has.
func (d *daemon) warnUnknown(core *head.Core) {
	if names := core.UnknownNodes(); len(names) > 0 {
		d.log.Warn("the configuration says how nodes serve programs that have not come: check the names", "nodes", model.CompressNodes(names))
	}
}

// serve answers requests until ctx is done or the daemon cannot continue. It ends in this order:
// the simulator first, since it writes to the store; then the doors, so that no requests come; then
// streams and sessions; then the loop, which hands its last effects to the committer; last the
// committer.
func (d *daemon) serve(ctx context.Context, core *head.Core) error {
	var err error
	if d.doors, err = d.openDoors(); err != nil {
		return err
	}
	loopCtx, stopLoop := context.WithCancel(context.Background())
	defer stopLoop()
	loopDone := make(chan struct{})
	go func() {
		defer close(loopDone)
		(&loop{daemon: d, core: core}).run(loopCtx)
	}()
	go d.committer()
	go d.sessions.server.Ping(loopCtx)
	simulating, stopSimulating := context.WithCancel(context.Background())
	defer stopSimulating()
	simulated := make(chan struct{})
	go func() {
		defer close(simulated)
		d.whatifs.run(simulating)
	}()
	look := d.LookAtScript
	if look == nil {
		tick := time.NewTicker(scriptEvery)
		defer tick.Stop()
		look = tick.C
	}
	go d.watchScript(loopCtx, look)
	revoked := d.lookAtRevoked
	if revoked == nil {
		tick := time.NewTicker(revokedEvery)
		defer tick.Stop()
		revoked = tick.C
	}
	go d.watchRevoked(loopCtx, revoked)
	d.doors.serve()
	d.log.Info("the head serves", "cluster", d.cfg.Core.Cluster, "policy", d.cfg.Policy, "listen", d.doors.addresses.Listen, "socket", d.doors.addresses.Socket, "http", d.doors.addresses.HTTP, "page", d.doors.addresses.Page)
	if d.Ready != nil {
		d.Ready(d.doors.addresses)
	}
	d.wait(ctx)
	stopSimulating()
	<-simulated // its process has ended, and writes nothing more
	close(d.ending)
	d.queue.close()
	d.doors.close(lastWords)
	d.streams.closeAll()
	d.sessions.server.Close()
	stopLoop()
	<-loopDone
	select {
	case <-d.dead:
		return d.reason
	case <-d.committed:
	}
	// The committer may have failed on the last transaction.
	select {
	case <-d.dead:
		return d.reason
	default:
		d.log.Info("the head has ended, and what it knows is on disk")
		return nil
	}
}

// wait returns when it is time to end, and reads the configuration again when told to until then.
func (d *daemon) wait(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.dead:
			return
		case <-d.Reload:
			d.reload()
		}
	}
}

// reload applies those settings of a changed configuration that may change while the head runs.
func (d *daemon) reload() {
	again, err := d.Load()
	if err == nil {
		err = again.check()
	}
	if err != nil {
		d.log.Error("the configuration was read again and is wrong: everything stays as it was", "error", err)
		return
	}
	if names := d.cfg.fixed(&again); len(names) > 0 {
		d.log.Warn("some of what has changed takes effect at the next start", "settings", names)
	}
	select {
	case d.configured <- again.Core:
		d.log.Info("the configuration was read again")
	case <-d.dead:
	}
}

// fixed resets in again what cannot change while the head runs, and names the settings that differ.
func (c *Config) fixed(again *Config) (names []string) {
	note := func(name string, changed bool) {
		if changed {
			names = append(names, name)
		}
	}
	note("cluster", c.Core.Cluster != again.Core.Cluster)
	note("silence", c.Core.Silence != again.Core.Silence)
	note("policy", c.Policy != again.Policy)
	was, _ := c.rules()
	will, _ := again.rules() // both were checked
	note("partitions: PreemptMode, PriorityTier", was.String() != will.String())
	note("partitions: PriorityJobFactor", c.Core.Priority != nil && !reflect.DeepEqual(c.Core.Priority.WithPartitions(c.Core.Partitions), c.Core.Priority.WithPartitions(again.Core.Partitions)))
	note("priority", !reflect.DeepEqual(c.Core.Priority, again.Core.Priority))
	note("listen", c.Listen != again.Listen)
	note("socket", c.Socket != again.Socket)
	note("state", c.State != again.State)
	note("http", c.HTTP != again.HTTP)
	note("whatif", !reflect.DeepEqual(c.WhatIf, again.WhatIf))
	note("page", c.Page != again.Page)
	note("record", c.Record != again.Record || c.RecordLimit != again.RecordLimit)
	note("tls_dir", c.TLSDir != again.TLSDir)
	note("connections", c.Connections != again.Connections.complete())
	again.Core.Cluster, again.Core.Silence, again.Core.Priority = c.Core.Cluster, c.Core.Silence, c.Core.Priority
	return names
}

// errNotKnown is the error of a request that was not answered within answerTime.
var errNotKnown = errors.New("the head did not answer in time, and it is not known whether the request was carried out: ask for the job, or repeat a submission that has a key")

// answerTime is how long a request waits for its answer.
const answerTime = time.Minute

// ask lets the core handle n events, and returns one answer for each, in their order.
func (d *daemon) ask(ctx context.Context, user string, events func(first head.Request) []head.Event, n int) ([]head.Answer, error) {
	first := head.Request(d.requests.Add(uint64(n)) - uint64(n) + 1)
	c := &call{source: user, events: events(first), first: first, answers: make([]head.Answer, n), left: n, done: make(chan struct{})}
	if err := d.await(ctx, c); err != nil {
		return nil, err
	}
	return c.answers, nil
}

// look calls a function with the core, in the loop's goroutine.
func (d *daemon) look(ctx context.Context, user string, look func(*head.Core)) error {
	return d.await(ctx, &call{source: user, look: look, done: make(chan struct{})})
}

func (d *daemon) await(ctx context.Context, c *call) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	c.gone = ctx.Done()
	if err := d.queue.push(ofUsers, c); err != nil {
		return err
	}
	select {
	case <-c.done:
		return nil
	case <-d.dead:
		return d.reason
	case <-ctx.Done():
		return errNotKnown
	}
}
