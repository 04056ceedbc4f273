package node

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"muster/node/vgpu"
	"muster/wire"
	"muster/wire/control"
)

// A spare is a worker that waits for a client with a context open on one device: making one takes
// NVIDIA's driver 0.15 s, most of the time that a small program needs to start. It has served
// nobody, and becomes the client's user as any worker does, so a client that is given one is as
// isolated as with a fresh worker; only a client with the same terms is.
//
// To the dispatcher a spare is a client without a lease that keeps the bytes of its context on its
// device: so its memory is accounted for, and it is told to leave (Revoke) when others need the
// memory, the device is drained, or is lost. The spare is known under this number until its client
// is granted that device, or the context is gone.
//
// The loop owns spares. A goroutine for each starts the process and waits for its end, until a
// client has it.

// Spares says how many spares the node keeps on each device.
type Spares int

const (
	// SparesAuto is one on each CUDA device whose memory is large beside that of a context, and a few
	// more there while programs come in groups.
	SparesAuto Spares = -1
	// SparesOff is none.
	SparesOff Spares = 0

	maxSpares = 64
)

// ParseSpares reads auto, off or a number.
func ParseSpares(s string) (Spares, error) {
	switch s {
	case "auto":
		return SparesAuto, nil
	case "off":
		return SparesOff, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > maxSpares {
		return 0, fmt.Errorf("must be auto, off or a number from 0 to %d, not %q", maxSpares, s)
	}
	return Spares(n), nil
}

func (s Spares) String() string {
	switch s {
	case SparesAuto:
		return "auto"
	case SparesOff:
		return "off"
	}
	return strconv.Itoa(int(s))
}

const (
	// autoPart is how many times the memory of a context a device must have for SparesAuto.
	autoPart = 32
	// spareFree is the part of a device's memory that must be free for a spare to be started there,
	// in excess of what it takes: otherwise it would soon be told to leave again.
	spareFree = 4
	// spareRest is how long no spare is started on a device where one was told to leave, could not
	// be started, or ended.
	spareRest = 10 * time.Second
	// longestPause bounds the pause after a spare that has died while it waited, as when the machine
	// lacks memory. The pause doubles while they die sooner than that.
	longestPause = time.Minute
	// spareDelay is how long after a program began no spare is started: making a context would slow
	// down what other processes do with the driver. Programs that come meanwhile do not prolong it:
	// otherwise programs that come one soon after the other would never find a spare.
	spareDelay = 250 * time.Millisecond
	// groupTime is how soon after each other programs come that make a group, groupMost how many
	// spares there are for one at most, and groupStays for how long after the last.
	groupTime, groupMost, groupStays = time.Second, 4, time.Minute
	// spareLook is how often the loop looks whether a spare that is missing can be started.
	spareLook = time.Second
)

// spareTerms are what a worker's environment depends on once a device is open. A client gets a spare
// only if its own are the same.
type spareTerms struct {
	mps      control.MPS
	hasMPS   bool
	batch    bool // kernels have a lower priority under MPS
	restarts int  // of the MPS control daemon: contexts of an earlier one are dead
	bounds   string
}

func (d *daemon) termsOf(m *control.MPS, p *control.Pace) spareTerms {
	t := spareTerms{bounds: d.bounds().String()}
	if m != nil {
		t.mps, t.hasMPS, t.batch = *m, true, m.Shared && p != nil && !p.Latency
	}
	if t.mps.Shared {
		t.restarts = d.mps.startedAgain()
	}
	return t
}

// prepare is what a spare with these terms is told.
func (t spareTerms) prepare(config control.DeviceConfig) control.Prepare {
	m := control.Prepare{Device: config, ArenaBase: arenaOf(0, 0).Base}
	if t.hasMPS {
		m.MPS = &t.mps
		if t.batch {
			m.Pace = &control.Pace{}
		}
	}
	return m
}

// spare is a worker that waits with a context, or had one when its client got it.
type spare struct {
	id     vgpu.ClientID // its number with the dispatcher
	device vgpu.DeviceID
	config control.DeviceConfig
	change uint64 // of the inventory's entry, to detect that the device was replaced
	terms  spareTerms
	began  time.Time

	files  []control.Held // the ring and the data arena that its client will have; the client's once there is one
	worker *workerProcess // nil until it is ready, and when it has ended without a client
	client *client        // who has it; nil while it waits
	ending bool
	taken  chan struct{} // closed when a client has it
	stop   chan struct{} // closed when it is to end
}

// spares is what the loop knows of them, in state.
type spares struct {
	all   map[vgpu.ClientID]*spare
	terms spareTerms // of those that are started
	known bool       // terms are those of a client; before the first, those of the node's own user
	other spareTerms // of the last client that found none of its terms
	again int        // how many clients in a row that were
	look  time.Duration
	comes map[vgpu.DeviceID]*demand       // how programs come there
	rests map[vgpu.DeviceID]time.Duration // when one may be started there again
	pause map[vgpu.DeviceID]time.Duration // after the last that died there while it waited

	running sync.WaitGroup // goroutines of spares that no client has
}

// demand is how programs have come to a device: in groups of how many.
type demand struct {
	begin time.Duration // of the present group
	now   int           // how many it is
	most  int           // of the largest group that counts
	seen  time.Duration // when there was one of that size
}

// note counts a program that comes.
func (c *demand) note(now time.Duration) {
	if c.now == 0 || now-c.begin > groupTime {
		c.begin, c.now = now, 0
	}
	c.now++
	if most := c.size(now); c.now >= most {
		c.most, c.seen = c.now, now
	}
}

// size is how many programs are to be expected at a time; 1 if nothing is known.
func (c *demand) size(now time.Duration) int {
	if c == nil || c.most == 0 || now-c.seen > groupStays {
		return 1
	}
	return min(c.most, groupMost)
}

// wantedSpares is how many spares a device is to have.
func (d *daemon) wantedSpares(id vgpu.DeviceID, e *stocked) int {
	switch n := d.live().Spare; {
	case !e.here || e.Kind == KindRemote:
		return 0
	case n != SparesAuto:
		return int(n)
	case e.Kind != "cuda":
		return 0
	case e.info.ContextCost == 0:
		return 1
	}
	return int(min(e.info.Memory/autoPart/e.info.ContextCost, uint64(d.spares.comes[id].size(d.now()))))
}

// tendSpares starts spares that are missing, where there is room, and ends those that are too many.
// The loop calls it after every event; it looks at devices only if something may be missing.
func (d *daemon) tendSpares() {
	if d.spares.look > d.now() || d.live().Spare == SparesOff && len(d.spares.all) == 0 {
		return
	}
	d.spares.look = d.now() + time.Hour
	if d.draining {
		for _, s := range d.spares.all {
			d.endSpare(s)
		}
		return
	}
	if !d.spares.known {
		d.spares.terms = d.ownTerms()
	}
	stock := d.stock.Load()
	for i := range stock.entries {
		e, id := &stock.entries[i], vgpu.DeviceID(i)
		has := 0
		for _, s := range d.spares.all {
			switch {
			case s.device != id || s.ending || s.client != nil:
			case s.change != e.change || s.terms != d.spares.terms || has >= d.wantedSpares(id, e):
				d.endSpare(s)
			default:
				has++
			}
		}
		for ; has < d.wantedSpares(id, e); has++ {
			if !d.startSpare(id, e) {
				d.spares.look = d.now() + spareLook
				break
			}
		}
		if has > 1 { // fewer when no groups come any more
			d.spares.look = min(d.spares.look, d.now()+groupStays)
		}
	}
}

// waitingSpares is how many spares of a device are ready for a client.
func (d *daemon) waitingSpares(id vgpu.DeviceID) (n int) {
	for _, s := range d.spares.all {
		if s.device == id && s.worker != nil && s.client == nil && !s.ending {
			n++
		}
	}
	return n
}

// nextSpares is when the loop looks again whether a spare can be started; false if no device is to
// have one.
func (d *daemon) nextSpares() (at time.Duration, ok bool) {
	stock := d.stock.Load()
	for i := range stock.entries {
		if d.wantedSpares(vgpu.DeviceID(i), &stock.entries[i]) > 0 {
			return d.spares.look, true
		}
	}
	return 0, false
}

// ownTerms are those of a program of the node's own user that asks for nothing special.
func (d *daemon) ownTerms() spareTerms {
	who := peer{user: d.own}
	limits := d.live().Limits.of(d.own)
	latency, _ := d.classOf("", who, limits)
	use := d.mps.used(d.mayShare(who), limits.Share)
	return d.termsOf(use, d.paceOf(&client{latency: latency}))
}

// startSpare starts a spare on a device, if there is room: then no client waits, and a good part of
// the memory is free.
func (d *daemon) startSpare(id vgpu.DeviceID, e *stocked) bool {
	v, _ := d.core.Device(id)
	cost := e.info.ContextCost
	if d.now() < d.spares.rests[id] || d.core.Waiting() > 0 || v.State != vgpu.DeviceUp || v.Reserved || v.Free < cost+v.Memory/spareFree {
		return false
	}
	files, err := createShared()
	if err != nil {
		d.log.Warn("a worker cannot be prepared for the next program", "error", err)
		d.restSpares(id)
		return false
	}
	d.lastID++
	s := &spare{
		files: files,
		id:    d.lastID, device: id, config: e.config(), change: e.change, terms: d.spares.terms, began: d.opts.Now(),
		taken: make(chan struct{}), stop: make(chan struct{}),
	}
	d.spares.all[s.id] = s
	// A byte where contexts take none, so that the spare leaves a device that is drained.
	d.step(d.now(), vgpu.Adopt{Client: s.id, User: d.own.name, Weight: 1, Device: id, Kept: max(cost, 1), Pinned: id})
	lock := e.lock
	d.spares.running.Go(func() { d.runSpare(s, lock) })
	return true
}

// runSpare starts a spare's process and waits for its end, or until a client has it.
func (d *daemon) runSpare(s *spare, lock *os.File) {
	why, waited := "", false
	w, err := d.pool.start()
	if err == nil {
		if err = s.make(w, lock); err == nil {
			waited = true
			d.do(func() { d.spareReady(s, w) })
			select {
			case <-s.taken:
			case <-s.stop:
			case <-w.exited:
				why = w.ending()
			}
			if d.spareTaken(s) {
				return
			}
		}
		select {
		case <-s.stop:
			err = nil
		default:
		}
		d.dismiss(w)
	}
	closeHeld(s.files)
	if err != nil {
		why = err.Error()
	}
	d.do(func() { d.spareEnded(s, why, waited) })
}

// spareTaken says whether a client has a spare that is about to end. If none has, none is given it
// from now on: until the loop knows that the process is gone it could, and the spare's files are the
// client's then.
func (d *daemon) spareTaken(s *spare) bool {
	d.ask(func() {
		if s.client == nil {
			s.worker = nil
		}
	})
	select {
	case <-s.taken:
		return true
	default:
		return false
	}
}

// make has a worker open the device and a context. It kills the worker if that takes too long, or if
// the spare is to end.
func (s *spare) make(w *workerProcess, of *os.File) error {
	lock, err := wire.OpenLock(of)
	if err != nil {
		return err
	}
	defer lock.Close()
	done := make(chan struct{})
	defer close(done)
	go func() {
		late := time.NewTimer(startTime)
		defer late.Stop()
		select {
		case <-done:
			return
		case <-s.stop:
		case <-late.C:
		}
		w.kill()
	}()
	if err := w.control.Send(s.terms.prepare(s.config), append([]*os.File{lock}, filesOf(s.files)...)...); err != nil {
		return early(err)
	}
	said, err := w.control.Receive()
	if err != nil {
		return early(err)
	}
	switch m := said.(type) {
	case control.Pong:
		return nil
	case control.CannotServe:
		return errors.New(m.Reason)
	}
	return fmt.Errorf("the worker is broken: it answers %q", said.Kind())
}

// spareReady notes that a spare waits for a client.
func (d *daemon) spareReady(s *spare, w *workerProcess) {
	s.worker = w
	d.log.Debug("a worker waits with a context for the next program", "device", int(s.device), "worker", w.pid(), "after", d.opts.Now().Sub(s.began).String())
}

// spareEnded notes that the process of a spare that no client has is gone. waited says whether it was
// ready before.
func (d *daemon) spareEnded(s *spare, why string, waited bool) {
	if !s.ending {
		d.log.Warn("a worker that was to wait with a context for the next program has ended: another is started later", "device", int(s.device), "reason", why)
		d.restSpares(s.device)
		if waited { // the device works
			d.spares.rests[s.device] = d.now() + d.pauseAfter(s)
		}
	}
	d.dropSpare(s)
}

// pauseAfter is how long no spare is started on a device after one that has died while it waited.
func (d *daemon) pauseAfter(s *spare) time.Duration {
	pause := retryTime
	if d.opts.Now().Sub(s.began) < longestPause {
		pause = max(pause, min(2*d.spares.pause[s.device], longestPause))
	}
	d.spares.pause[s.device] = pause
	return pause
}

// restSpares has no spare started on a device for a while.
func (d *daemon) restSpares(id vgpu.DeviceID) { d.spares.rests[id] = d.now() + spareRest }

// dropSpare ends the spare's number with the dispatcher, which must not be stepped while its effects
// are performed: it hears of this afterwards.
func (d *daemon) dropSpare(s *spare) {
	if d.spares.all[s.id] != s {
		return
	}
	delete(d.spares.all, s.id)
	if s.client != nil {
		s.client.spare = nil
	}
	d.spares.look = min(d.spares.look, d.now()+spareDelay)
	d.afterwards = append(d.afterwards, vgpu.Detach{Client: s.id})
	d.stepAfterwards()
}

// endSpare has a spare end, or give its context back if a client has it. The dispatcher counts its
// memory until that has happened.
func (d *daemon) endSpare(s *spare) {
	if s.ending {
		return
	}
	s.ending = true
	if s.client != nil {
		s.worker.post(control.Forgo{})
		return
	}
	close(s.stop)
}

// performSpare carries out what the dispatcher decided about a spare.
func (d *daemon) performSpare(s *spare, e vgpu.Effect) {
	switch e.Kind {
	case vgpu.Revoke:
		d.log.Debug("a context that waited for the next program is given back", "device", int(s.device), "reason", string(e.Reason))
		fallthrough
	case vgpu.Gone:
		d.restSpares(s.device)
		d.endSpare(s)
	}
}

// takeSpare gives a new client a spare that has its terms, on the device where the dispatcher would
// put it now; nil if there is none. If the client is put elsewhere later, its worker gives the
// context back. The caller owns the spare's files.
func (d *daemon) takeSpare(c *client) (found *spare) {
	if d.live().Spare == SparesOff {
		return nil
	}
	terms := d.termsOf(d.mpsOf(c), d.paceOf(c))
	d.ask(func() {
		at, stock := d.core.Likely(c.id), d.stock.Load()
		d.spares.expect(at, d.now())
		for _, s := range d.spares.all {
			if s.worker == nil || s.client != nil || s.ending || s.device != at || s.terms != terms || s.config != c.configOf(int(at), &stock.entries[at]) || c.arena.Base != arenaOf(0, 0).Base {
				continue
			}
			close(s.taken)
			s.client, c.spare, found = c, s, s
			break
		}
		d.learnTerms(terms)
		d.spares.look = min(d.spares.look, d.now()+spareDelay)
	})
	return found
}

// expect counts a program that comes to a device.
func (s *spares) expect(id vgpu.DeviceID, now time.Duration) {
	if s.comes == nil {
		s.comes = map[vgpu.DeviceID]*demand{}
	}
	if s.comes[id] == nil {
		s.comes[id] = &demand{}
	}
	s.comes[id].note(now)
}

// serves says whether a spare may serve its client: the terms may have changed since it was taken.
func (s *spare) serves(d *daemon, m *control.MPS, p *control.Pace) bool {
	return s.terms == d.termsOf(m, p)
}

// learnTerms has spares started for programs like those that come: if two in a row have other terms
// than the spares, the next spares have theirs.
func (d *daemon) learnTerms(t spareTerms) {
	switch {
	case t == d.spares.terms:
		d.spares.again = 0
	case t == d.spares.other && d.spares.again > 0, !d.spares.known && len(d.spares.all) == 0:
		d.spares.terms, d.spares.again = t, 0
	default:
		d.spares.other, d.spares.again = t, 1
	}
	d.spares.known = true
}

// spareUsed is called when a client wants a device. If it is granted the one where its worker has a
// context, that counts as part of what it is granted from then on. Otherwise the worker gives the
// context back, and the dispatcher counts its memory until that has happened: so also if the worker
// was told to give it back already, because others wait for the memory.
func (d *daemon) spareUsed(c *client, want func()) {
	s := c.spare
	want()
	switch {
	case s == nil || c.spare != s:
	case c.device == s.device && !s.ending:
		d.dropSpare(s)
	default:
		d.endSpare(s)
	}
}

// leaveSpare forgets the spare of a client whose worker has ended.
func (d *daemon) leaveSpare(c *client) {
	if c.spare != nil {
		d.dropSpare(c.spare)
	}
}

// endBrokenSpares ends the spares that a fault under MPS has broken, too: MPS takes no new clients
// before they are gone.
func (d *daemon) endBrokenSpares() {
	for _, s := range d.spares.all {
		if s.terms.mps.Shared {
			d.endSpare(s)
		}
	}
	d.spares.look = 0
}

// stopSpares ends all spares, and waits for that. The loop has ended.
func (d *daemon) stopSpares() {
	for _, s := range d.spares.all {
		if s.client == nil && !s.ending {
			s.ending = true
			close(s.stop)
		}
	}
	d.spares.running.Wait()
}
