package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"muster/agent/agentcore"
	"muster/model"
	wire "muster/wire/agent"
	"muster/wire/grant"
)

// agent performs what the core decides. Only the goroutine of Run uses the fields below
// loop; the channels and wait may be used by all.
type agent struct {
	cfg    Config
	spool  *spool
	log    *slog.Logger
	cores  []int
	pin    bool
	cgroup string
	events chan agentcore.Event
	link   *link
	reign  reign // of keepConnected

	// loop
	core    *agentcore.Core
	keepers map[wire.Task]*keeper

	books   chan booking  // what the daemon is to be told of grants, in order
	looks   chan look     // tasks that have ended, and are to be measured
	devices chan struct{} // closed when the daemon has first said what devices the node has
	streams chan struct{} // a semaphore: one element for each open stream
	wait    sync.WaitGroup
}

const (
	maxStreams = 256
	tickTime   = time.Second
	askTime    = wire.LoadPeriod // how often the daemon is asked how it is
)

// Run is the agent of a node until the context ends. The tasks that it has started go on
// after that, and the next agent with the same spool takes them over.
func Run(ctx context.Context, cfg Config) error {
	if err := cfg.complete(); err != nil {
		return err
	}
	spool, err := openSpool(ctx, cfg.Spool, cfg.Log)
	if err != nil {
		return err
	}
	defer spool.close()
	a := &agent{
		cfg: cfg, spool: spool, log: cfg.Log, events: make(chan agentcore.Event, 256), link: newLink(), keepers: map[wire.Task]*keeper{},
		streams: make(chan struct{}, maxStreams), books: make(chan booking, 4*agentcore.MaxLoans), devices: make(chan struct{}), looks: make(chan look),
	}
	coreConfig, err := a.prepare(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer a.wait.Wait()
	defer cancel()
	var effects []agentcore.Effect
	a.core, effects = agentcore.New(coreConfig, now(), spool.restore())
	a.perform(ctx, effects)
	a.wait.Go(func() { a.keepBooks(ctx) })
	a.wait.Go(func() { a.keepConnected(ctx) })
	a.wait.Go(func() { a.watchDaemon(ctx) })
	a.wait.Go(func() { a.lookAtEnds(ctx) })
	return a.loop(ctx)
}

// prepare finds out what the node has.
func (a *agent) prepare(ctx context.Context) (agentcore.Config, error) {
	c := agentcore.Config{Node: a.cfg.Node, Memory: a.cfg.Memory, Gateway: a.cfg.Gateway, Cluster: a.spool.cluster()}
	var err error
	if c.Incarnation, err = a.spool.incarnation(); err != nil {
		return c, err
	}
	if os.Geteuid() != 0 {
		if c.User, err = ownName(); err != nil {
			return c, err
		}
	}
	if a.cores, a.pin, err = chooseCores(a.cfg.Cores); err != nil {
		return c, err
	}
	c.Cores = a.cores
	c.Checkpoints, c.NoCheckpoints = a.cfg.Checkpoints.name()
	if a.cfg.Status != nil { // the first greeting should have the devices; watchDaemon tries again
		if s, err := a.cfg.Status(ctx); err == nil {
			c.Devices = DevicesOf(s)
		}
	}
	if a.cfg.Cgroup != "none" {
		if a.cgroup, err = findCgroup(a.cfg.Cgroup); err != nil {
			a.log.Info("tasks have no control groups: memory is looked at, and processes are found as descendants", "error", err)
		}
	}
	return c, nil
}

func now() time.Duration { return sinceEpoch(time.Now()) }

func (a *agent) loop(ctx context.Context) error {
	tick := time.NewTicker(tickTime)
	defer tick.Stop()
	for {
		var e agentcore.Event
		select {
		case <-ctx.Done():
			return nil
		case e = <-a.events:
		case <-tick.C:
			a.lookAtSpool(ctx)
			e = agentcore.Tick{}
		}
		a.step(ctx, e)
	}
}

func (a *agent) step(ctx context.Context, e agentcore.Event) {
	if m, ok := e.(agentcore.Measured); ok {
		e = a.withProcessors(m)
	}
	effects := a.core.Step(now(), e)
	if ended, ok := e.(agentcore.Ended); ok {
		a.ended(ended.Task)
	}
	a.perform(ctx, effects)
}

// post tells the loop something.
func (a *agent) post(ctx context.Context, e agentcore.Event) {
	select {
	case a.events <- e:
	case <-ctx.Done():
	}
}

// perform performs effects in their order. If one cannot be written to disk, the rest is
// dropped and the core is told: nothing may happen that depends on what was not written.
func (a *agent) perform(ctx context.Context, effects []agentcore.Effect) {
	for _, e := range effects {
		task, err := a.write(e)
		if err != nil {
			a.log.Warn("the spool cannot be written", "task", task, "error", err)
			a.step(ctx, agentcore.SpoolFailed{Task: task, Reason: wire.Reason(err.Error())})
			return
		}
		a.act(ctx, e)
	}
}

// lookAtSpool notes when the spool can take no task, and when it can again.
func (a *agent) lookAtSpool(ctx context.Context) {
	was := a.core.Trouble()
	err := a.spool.room(was != "")
	switch {
	case err != nil && was == "":
		a.log.Warn("the spool has no room: this node takes no tasks until it has", "error", err)
		a.step(ctx, agentcore.Spool{Trouble: wire.Reason(err.Error())})
	case err == nil && was != "":
		a.log.Info("the spool can be written: this node takes tasks again")
		a.step(ctx, agentcore.Spool{})
	}
}

// write does the part of an effect that concerns the disk.
func (a *agent) write(e agentcore.Effect) (wire.Task, error) {
	switch e := e.(type) {
	case agentcore.Save:
		return e.Start.Task, a.save(e)
	case agentcore.SaveStop:
		return e.Stop.Task, a.spool.addStop(e.Stop)
	case agentcore.SaveEnd:
		return e.Task, writeEnd(a.spool.task(e.Task), e.Task, e.End)
	case agentcore.Mark:
		return e.Task, a.spool.mark(e.Task, e.Mark)
	}
	return wire.Task{}, nil
}

func (a *agent) save(e agentcore.Save) error {
	marker := make([]byte, markerBytes)
	_, _ = rand.Read(marker) // it never fails
	var restore *agentcore.SaveIn
	if e.Start.From != "" {
		restore = a.cfg.Checkpoints.at(e.Start.From)
	}
	return a.spool.addTask(&taskFile{
		Restore: restore, start: e.Start, Cores: e.Cores, Pin: a.pin, Marker: hex.EncodeToString(marker), Cgroup: a.cgroup, Script: a.spool.script(e.Start.Task), Node: a.cfg.Node, Socket: a.cfg.Socket,
	})
}

// act does the rest of an effect.
func (a *agent) act(ctx context.Context, e agentcore.Effect) {
	switch e := e.(type) {
	case agentcore.Launch:
		a.keep(ctx, e.Task, true)
	case agentcore.Attach:
		a.keep(ctx, e.Task, false)
	case agentcore.Tell:
		if e.Order.Save != nil {
			e.Order.Save = a.cfg.Checkpoints.at(e.Order.Save.Folder)
		}
		if k := a.keepers[e.Task]; k != nil {
			k.tell(e.Order)
		}
	case agentcore.Send:
		if err := a.link.send(e.Message); err != nil {
			a.log.Warn("the head would refuse a message, which is not sent", "kind", e.Message.Kind(), "error", err)
		}
	case agentcore.Unmark:
		a.complain("a mark", a.spool.unmark(e.Task))
	case agentcore.Forget:
		a.forget(e.Task)
	case agentcore.SaveCluster:
		a.complain("the cluster", writeFile(a.spool.dir, clusterName, []byte(e.Cluster)))
	case agentcore.Discard:
		a.wait.Go(func() { a.complain("what was saved of a task", a.cfg.Checkpoints.discard(e.Folder)) })
	case agentcore.Stream:
		a.open(ctx, e)
	case agentcore.Admit, agentcore.Revoke, agentcore.Limit, agentcore.Configure:
		a.book(ctx, e)
	case agentcore.DropLoan:
		a.complain("a loan", a.spool.dropLoan(e.ID))
	}
}

// book queues what the daemon is to be told of the grants that it serves, and of how to serve programs. That may take a
// while, so another goroutine does it (keepBooks), in the order in which the head wanted
// it.
func (a *agent) book(ctx context.Context, e agentcore.Effect) {
	switch e := e.(type) {
	case agentcore.Admit:
		if err := a.spool.addLoan(e.Loan); err != nil {
			a.complain("a loan", err)
			if !a.spool.hasLoan(e.Loan.ID) { // the next agent would not end what it does not know
				a.step(ctx, agentcore.Admitted{ID: e.Loan.ID, Error: wire.Reason(err.Error())})
				return
			}
		}
	case agentcore.Limit:
		a.complain("a loan", a.spool.limitLoan(e.ID, e.Limit))
	}
	select {
	case a.books <- booking{effect: e}:
	case <-ctx.Done():
	}
}

// booking is an entry for the daemon's book of grants or, without an effect, a barrier:
// reached is closed when the daemon has been told everything before it.
type booking struct {
	effect  agentcore.Effect
	reached chan struct{}
}

// awaitBooks waits until the daemon has been told everything that was queued so far.
func (a *agent) awaitBooks(ctx context.Context) {
	reached := make(chan struct{})
	select {
	case a.books <- booking{reached: reached}:
	case <-ctx.Done():
		return
	}
	select {
	case <-reached:
	case <-ctx.Done():
	}
}

// keepBooks tells the daemon what was queued.
func (a *agent) keepBooks(ctx context.Context) {
	for {
		select {
		case e := <-a.books:
			if e.reached != nil {
				close(e.reached)
				continue
			}
			a.enter(ctx, e.effect)
		case <-ctx.Done():
			return
		}
	}
}

// patiently does something with the daemon, again and again while that is away. It says so if the agent
// ends meanwhile.
func (a *agent) patiently(ctx context.Context, do func() error) (err error, ended bool) {
	for err = do(); errors.Is(err, ErrAway); err = do() {
		select { // what is queued behind it needs the daemon, too; the next agent finds the loan in the spool, and hears from the head how to serve
		case <-ctx.Done():
			return err, true
		case <-time.After(askTime):
		}
	}
	return err, false
}

// configure has the daemon serve programs as the head says.
func (a *agent) configure(ctx context.Context, e agentcore.Configure) {
	var is model.NodeSettings
	err, ended := a.patiently(ctx, func() (err error) {
		if a.cfg.Configure == nil {
			return errNoDaemon
		}
		is, err = a.cfg.Configure(e.Settings)
		return err
	})
	if ended {
		return
	}
	trouble := ""
	if err != nil {
		a.log.Warn("the node's daemon does not serve programs as the head says", "settings", e.Settings.String(), "error", err)
		trouble = wire.Reason(err.Error())
	}
	a.post(ctx, agentcore.Configured{Settings: e.Settings, InForce: is, Error: trouble})
}

func (a *agent) enter(ctx context.Context, e agentcore.Effect) {
	if e, ok := e.(agentcore.Configure); ok {
		a.configure(ctx, e)
		return
	}
	err := errNoGrants
	if _, ok := e.(agentcore.Revoke); ok {
		err = nil // a node that lends nothing has nothing to revoke
	}
	if a.cfg.Grants != nil {
		switch e := e.(type) {
		case agentcore.Admit:
			var admitted bool
			if admitted, err = a.admit(ctx, e.Loan); !admitted {
				return
			}
		case agentcore.Revoke:
			err = a.cfg.Grants.Revoke(e.ID)
		case agentcore.Limit:
			err = a.cfg.Grants.Limit(e.ID, e.Limit)
		}
	}
	if err != nil {
		a.log.Warn("the node's daemon does not serve a grant as the head wants it", "error", err)
	}
	trouble := ""
	if err != nil {
		trouble = wire.Reason(err.Error())
	}
	switch e := e.(type) {
	case agentcore.Admit:
		a.post(ctx, agentcore.Admitted{ID: e.Loan.ID, Error: trouble})
	case agentcore.Revoke:
		a.post(ctx, agentcore.Revoked{ID: e.ID, Error: trouble})
	}
}

// homeTries is how often the daemon is told of devices of other nodes, within homeTime. Those have just said that
// they lend them, and a connection may fail once; one that is silent would keep the loans of other jobs waiting.
const (
	homeTries = 3
	homeTime  = 2 * time.Second
)

// admit tells the daemon of a grant, and waits for a daemon that is away: what is queued behind it needs the daemon,
// too. It returns false if the agent ends first; the next one finds the loan in the spool.
func (a *agent) admit(ctx context.Context, loan grant.Loan) (told bool, err error) {
	began := time.Now()
	for tries := 1; ; tries++ {
		err := a.cfg.Grants.Admit(loan)
		again := errors.Is(err, ErrAway) || err != nil && loan.OfHome() != nil && tries < homeTries && time.Since(began) < homeTime
		if !again {
			return true, err
		}
		select {
		case <-ctx.Done():
			return false, nil
		case <-time.After(askTime):
		}
	}
}

var (
	errNoGrants = errors.New("this node lends no devices")
	errNoDaemon = errors.New("this node has no daemon that serves programs")
)

func (a *agent) complain(what string, err error) {
	if err != nil {
		a.log.Warn("the spool cannot be written", "what", what, "error", err)
	}
}

// forget removes what is left of a task.
func (a *agent) forget(id wire.Task) {
	a.ended(id)
	a.complain(fmt.Sprintf("task %v", id), a.spool.forget(id))
}

// ended closes the keeper of a task that has ended.
func (a *agent) ended(id wire.Task) {
	if k := a.keepers[id]; k != nil {
		k.close()
		delete(a.keepers, id)
	}
}
