package daemon

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"muster/head"
	"muster/head/quorum"
	"muster/head/store"
	"muster/internal/recordfile"
	"muster/model"
	"muster/policy"
	"muster/policy/preempt"
	"muster/policy/scriptfile"
)

// Options is what the daemon needs beside its configuration.
type Options struct {
	// TLS has the head's certificate and the authority that vouches for users and
	// nodes; nil without a port.
	TLS *tls.Config
	// Policy makes a policy of its full specification.
	Policy func(spec string) (policy.Policy, error)
	// ReadScript reads the file of a policy, if the configuration names one. The head checks the
	// file for changes whenever LookAtScript delivers, or every second if that is nil.
	ReadScript   scriptfile.Read
	LookAtScript <-chan time.Time
	// Spec returns the full specification of the policy that a configuration names, as muster sim
	// replay takes it, beside these priorities; nil if that is the name itself.
	Spec    func(spec string, rules preempt.Rules) string
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
	membership

	queue     *queue
	commits   chan *collected
	committed chan struct{} // the committer has ended
	standing
	requests atomic.Uint64

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
	if d.end(err) {
		d.log.Error("the head ends", "error", err)
	}
}

// end makes the daemon end, and says whether this is the first reason.
func (f *failure) end(err error) (first bool) {
	f.once.Do(func() {
		first = true
		f.reason = err
		close(f.dead)
	})
	return first
}

// another says whether this daemon ends, or has ended, to let another take its place: this head's next one,
// or that of another head.
func (f *failure) another() bool {
	select {
	case <-f.dead:
		return errors.Is(f.reason, quorum.ErrDeposed) || errors.Is(f.reason, errNotAlone)
	default:
		return false
	}
}

// lastWords is how long waiting callers may take to read why the daemon ends.
const lastWords = 2 * time.Second

// Run runs the head until ctx is done or the head cannot continue.
func Run(ctx context.Context, cfg Config, o Options) error {
	if err := cfg.Check(); err != nil {
		return err
	}
	cfg.Connections = cfg.Connections.complete()
	files, err := store.Open(cfg.State)
	if err != nil {
		return err
	}
	defer files.Close()
	one, err := oneOfSeveral(cfg, files)
	if err != nil {
		return err
	}
	if one {
		return several(ctx, cfg, o, files, false)
	}
	d := newDaemon(cfg, o, files, nil, nil)
	if err := d.live(ctx); !errors.Is(err, errNotAlone) {
		return err
	}
	o.Ready, cfg.Listen = nil, d.doors.addresses.Listen // that has been said
	return several(ctx, cfg, o, files, true)
}

// oneOfSeveral says whether this head is one of several, or is to be.
func oneOfSeveral(cfg Config, files *store.Store) (one bool, err error) {
	known, err := quorum.Known(cfg.State)
	if err != nil || known {
		return known, err
	}
	if cfg.Join == "" {
		return false, nil
	}
	empty, err := files.Empty()
	if err == nil && !empty {
		err = fmt.Errorf("a head that joins others gets all that they know, and %s has jobs or nodes of its own: name an empty folder (--state), or remove that one", files.Path())
	}
	return true, err
}

func newDaemon(cfg Config, o Options, files *store.Store, p *peers, term *quorum.Term) *daemon {
	if term != nil {
		cfg.Core.Heads, cfg.Core.Term = term.Group(), term.Number()
	}
	d := &daemon{
		Options: o, cfg: cfg, log: o.Log, began: o.Now(), store: files, membership: membership{p, term},
		queue: newQueue(), commits: make(chan *collected), committed: make(chan struct{}), standing: standing{configured: make(chan *configured)},
		bodies: newBudget(maxBodies, maxBodiesEach), lists: newLists(), ending: make(chan struct{}), failure: failure{dead: make(chan struct{})},
	}
	d.sessions, d.streams, d.listeners = newSessions(d), newStreams(), newListeners()
	return d
}

// live runs a head that decides, until ctx is done or it cannot continue.
func (d *daemon) live(ctx context.Context) error {
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
	d.read = d.cfg
	p, err := d.openPolicy(&d.cfg)
	if err != nil {
		return nil, err
	}
	d.inForce.Store(p)
	records := 0
	core, err := head.Restore(d.cfg.Core, p.policy, p.name, func(visit func(head.Record) error) error {
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
	core.SetEnded(d.store.EndedRecord)
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
	if d.term != nil {
		go func() {
			select {
			case <-d.term.Over():
				d.depose()
			case <-d.peers.node.Failed():
				d.fail(d.peers.node.Reason())
			case <-loopCtx.Done():
			}
		}()
	}
	d.log.Info("the head serves", "cluster", d.cfg.Core.Cluster, "policy", d.cfg.Policy, "listen", d.doors.addresses.Listen, "socket", d.doors.addresses.Socket, "http", d.doors.addresses.HTTP, "page", d.doors.addresses.Page)
	d.ready(&d.Options, d.doors.addresses)
	d.wait(ctx)
	stopSimulating()
	<-simulated // its process has ended, and writes nothing more
	close(d.ending)
	d.queue.close()
	words := lastWords
	if d.another() {
		words = 0
	}
	d.doors.close(words)
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

// depose ends this daemon, since another head may lead.
func (d *daemon) depose() {
	if d.end(quorum.ErrDeposed) {
		d.log.Warn("this head leads no longer")
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
			_, _ = d.reload()
		}
	}
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
