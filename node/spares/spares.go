// Package spares keeps workers waiting that have a context open on one device: making one takes NVIDIA's
// driver 0.15 s, most of the time that a small program needs to start. A spare has served nobody, and
// becomes the client's user as any worker does, so a client that is given one is as isolated as with a
// fresh worker; only a client with the same terms is. It decides how many wait where, and when; workers.Pool
// has the processes. It knows nothing of clients.
//
// To the dispatcher a spare is a client without a lease that keeps the bytes of its context on its
// device: so its memory is accounted for, and it is told to leave (Revoke) when others need the
// memory, the device is drained, or is lost. The spare is known under this number until its client
// is granted that device, or the context is gone.
//
// The loop owns spares. The pool starts their processes and waits for their end, until a client has
// one.
package spares

import (
	"iter"
	"log/slog"
	"maps"
	"os"
	"time"

	"muster/node/held"
	"muster/node/inventory"
	"muster/node/settings"
	"muster/node/shown"
	"muster/node/vgpu"
	"muster/node/workers"
	"muster/wire/control"
)

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

// Terms are what a worker's environment depends on once a device is open. A client gets a spare only if
// its own are the same.
type Terms struct {
	MPS      control.MPS
	HasMPS   bool
	Batch    bool // kernels have a lower priority under MPS
	Restarts int  // of the MPS control daemon: contexts of an earlier one are dead
	Bounds   string
}

// TermsOf are those of a client that uses MPS and makes way so. restarts is how often MPS was started
// anew, and bounds are those of a worker that is started now.
func TermsOf(m *control.MPS, p *control.Pace, restarts int, bounds workers.Bounds) Terms {
	t := Terms{Bounds: bounds.String()}
	if m != nil {
		t.MPS, t.HasMPS, t.Batch = *m, true, m.Shared && p != nil && !p.Latency
	}
	if t.MPS.Shared {
		t.Restarts = restarts
	}
	return t
}

// prepare is what a spare with these terms is told.
func (t Terms) prepare(config control.DeviceConfig) control.Prepare {
	m := control.Prepare{Device: config, ArenaBase: shown.ArenaOf(0, 0).Base}
	if t.HasMPS {
		m.MPS = &t.MPS
		if t.Batch {
			m.Pace = &control.Pace{}
		}
	}
	return m
}

// Host is the loop with its dispatcher.
type Host interface {
	Do(f func()) bool
	Ask(f func()) bool
	Now() time.Duration
	Device(vgpu.DeviceID) (vgpu.DeviceView, bool)
	Waiting() int             // clients that wait for a device
	NewNumber() vgpu.ClientID // for one more client of the dispatcher's
	Step(vgpu.Event)          // tells the dispatcher
	Afterwards(...vgpu.Event) // the same, once the dispatcher's effects have been performed
}

// Spare is a worker that waits with a context, or had one when its client got it.
type Spare struct {
	Device vgpu.DeviceID
	Terms  Terms
	Files  []control.Held   // the ring and the data arena that its client will have; the client's once there is one
	Worker *workers.Process // nil until it is ready, and when it has ended without a client

	id     vgpu.ClientID // its number with the dispatcher
	config control.DeviceConfig
	change uint64 // of the inventory's entry, to detect that the device was replaced
	began  time.Duration
	taken  bool   // a client has it
	gone   func() // tells that client that it has no spare any more
	ending bool
	waits  *workers.Prepared
}

// Spares are all of them.
type Spares struct {
	host    Host
	prepare Prepare
	own     func() Terms
	user    string // in whose name the dispatcher knows them
	log     *slog.Logger

	all   map[vgpu.ClientID]*Spare
	terms Terms // of those that are started
	known bool  // terms are those of a client; before the first, those of the node's own user
	other Terms // of the last client that found none of its terms
	again int   // how many clients in a row that were
	look  time.Duration
	comes map[vgpu.DeviceID]*demand       // how programs come there
	rests map[vgpu.DeviceID]time.Duration // when one may be started there again
	pause map[vgpu.DeviceID]time.Duration // after the last that died there while it waited
}

// Prepare starts a worker that waits with a context (workers.Pool).
type Prepare func(is *workers.Prepared, m control.Prepare, lock *os.File, files []*os.File, on workers.Waiting)

// New has no spares yet. They are started by prepare, and known to the dispatcher in the name of a user. own
// are the terms of a program of the node's own user that asks for nothing special.
func New(host Host, prepare Prepare, user string, own func() Terms, log *slog.Logger) *Spares {
	return &Spares{
		host: host, prepare: prepare, user: user, own: own, log: log, all: map[vgpu.ClientID]*Spare{},
		comes: map[vgpu.DeviceID]*demand{}, rests: map[vgpu.DeviceID]time.Duration{}, pause: map[vgpu.DeviceID]time.Duration{},
	}
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

// wanted is how many spares a device is to have.
func (p *Spares) wanted(n settings.Spares, id vgpu.DeviceID, e *inventory.Device) int {
	switch {
	case !e.Here || e.Kind == settings.KindRemote:
		return 0
	case n != settings.SparesAuto:
		return int(n)
	case e.Kind != "cuda":
		return 0
	case e.Info.ContextCost == 0:
		return 1
	}
	return int(min(e.Info.Memory/autoPart/e.Info.ContextCost, uint64(p.comes[id].size(p.host.Now()))))
}

// Tend starts spares that are missing, where there is room, and ends those that are too many.
// n is how many each device is to have. The loop calls it after every event; it looks at devices only if
// something may be missing.
func (p *Spares) Tend(n settings.Spares, draining bool, stock *inventory.Inventory) {
	if p.look > p.host.Now() || n == settings.SparesOff && len(p.all) == 0 {
		return
	}
	p.look = p.host.Now() + time.Hour
	if draining {
		for _, s := range p.all {
			p.end(s)
		}
		return
	}
	if !p.known {
		p.terms = p.own()
	}
	for i := range stock.Entries {
		e, id := &stock.Entries[i], vgpu.DeviceID(i)
		has := 0
		for _, s := range p.all {
			switch {
			case s.Device != id || s.ending || s.taken:
			case s.change != e.Change || s.Terms != p.terms || has >= p.wanted(n, id, e):
				p.end(s)
			default:
				has++
			}
		}
		for ; has < p.wanted(n, id, e); has++ {
			if !p.start(id, e) {
				p.look = p.host.Now() + spareLook
				break
			}
		}
		if has > 1 { // fewer when no groups come any more
			p.look = min(p.look, p.host.Now()+groupStays)
		}
	}
}

// Waiting is how many spares of a device are ready for a client.
func (p *Spares) Waiting(id vgpu.DeviceID) (n int) {
	for _, s := range p.all {
		if s.Device == id && s.Worker != nil && !s.taken && !s.ending {
			n++
		}
	}
	return n
}

// Next is when the loop looks again whether a spare can be started; false if no device is to
// have one.
func (p *Spares) Next(n settings.Spares, stock *inventory.Inventory) (at time.Duration, ok bool) {
	for i := range stock.Entries {
		if p.wanted(n, vgpu.DeviceID(i), &stock.Entries[i]) > 0 {
			return p.look, true
		}
	}
	return 0, false
}

// start starts a spare on a device, if there is room: then no client waits, and a good part of
// the memory is free.
func (p *Spares) start(id vgpu.DeviceID, e *inventory.Device) bool {
	v, _ := p.host.Device(id)
	cost := e.Info.ContextCost
	if p.host.Now() < p.rests[id] || p.host.Waiting() > 0 || v.State != vgpu.DeviceUp || v.Reserved || v.Free < cost+v.Memory/spareFree {
		return false
	}
	files, err := held.Shared()
	if err != nil {
		p.log.Warn("a worker cannot be prepared for the next program", "error", err)
		p.rest(id)
		return false
	}
	s := &Spare{
		Files: files,
		id:    p.host.NewNumber(), Device: id, config: e.Config(), change: e.Change, Terms: p.terms, began: p.host.Now(), waits: workers.NewPrepared(),
	}
	p.all[s.id] = s
	// A byte where contexts take none, so that the spare leaves a device that is drained.
	p.host.Step(vgpu.Adopt{Client: s.id, User: p.user, Weight: 1, Device: id, Kept: max(cost, 1), Pinned: id})
	p.prepare(s.waits, s.Terms.prepare(s.config), e.Lock, held.Files(s.Files), workers.Waiting{
		Ready: func(w *workers.Process) { p.host.Do(func() { p.ready(s, w) }) },
		Taken: func() bool {
			p.host.Ask(func() {
				if !s.taken {
					s.Worker = nil // else a client could get it, and its files, until the loop knows that it is gone
				}
			})
			return s.waits.IsTaken()
		},
		Ended: func(why string, waited bool) {
			held.Close(s.Files)
			p.host.Do(func() { p.ended(s, why, waited) })
		},
	})
	return true
}

// ready notes that a spare waits for a client.
func (p *Spares) ready(s *Spare, w *workers.Process) {
	s.Worker = w
	p.log.Debug("a worker waits with a context for the next program", "device", int(s.Device), "worker", w.PID(), "after", (p.host.Now() - s.began).String())
}

// ended notes that the process of a spare that no client has is gone. waited says whether it was
// ready before.
func (p *Spares) ended(s *Spare, why string, waited bool) {
	if !s.ending {
		p.log.Warn("a worker that was to wait with a context for the next program has ended: another is started later", "device", int(s.Device), "reason", why)
		p.rest(s.Device)
		if waited { // the device works
			p.rests[s.Device] = p.host.Now() + p.pauseAfter(s)
		}
	}
	p.Leave(s)
}

// pauseAfter is how long no spare is started on a device after one that has died while it waited.
func (p *Spares) pauseAfter(s *Spare) time.Duration {
	pause := workers.RetryTime
	if (p.host.Now() - s.began) < longestPause {
		pause = max(pause, min(2*p.pause[s.Device], longestPause))
	}
	p.pause[s.Device] = pause
	return pause
}

// rest has no spare started on a device for a while.
func (p *Spares) rest(id vgpu.DeviceID) { p.Rest(id, p.host.Now()+spareRest) }

// Rest has no spare started on a device until then.
func (p *Spares) Rest(id vgpu.DeviceID, until time.Duration) { p.rests[id] = until }

// Leave forgets a spare whose process, or whose context, is gone: it ends the spare's number with the dispatcher, which must not be stepped while its effects
// are performed: it hears of this afterwards.
func (p *Spares) Leave(s *Spare) {
	if p.all[s.id] != s {
		return
	}
	delete(p.all, s.id)
	if s.taken {
		s.gone()
	}
	p.look = min(p.look, p.host.Now()+spareDelay)
	p.host.Afterwards(vgpu.Detach{Client: s.id})
}

// end has a spare end, or give its context back if a client has it. The dispatcher counts its
// memory until that has happened.
func (p *Spares) end(s *Spare) {
	if s.ending {
		return
	}
	s.ending = true
	if s.taken {
		s.Worker.Post(control.Forgo{})
		return
	}
	s.waits.End()
}

// Perform carries out what the dispatcher decided about a spare.
func (p *Spares) Perform(s *Spare, e vgpu.Effect) {
	switch e.Kind {
	case vgpu.Revoke:
		p.log.Debug("a context that waited for the next program is given back", "device", int(s.Device), "reason", string(e.Reason))
		fallthrough
	case vgpu.Gone:
		p.rest(s.Device)
		p.end(s)
	}
}

// learn has spares started for programs like those that come: if two in a row have other terms
// than the spares, the next spares have theirs.
func (p *Spares) learn(t Terms) {
	switch {
	case t == p.terms:
		p.again = 0
	case t == p.other && p.again > 0, !p.known && len(p.all) == 0:
		p.terms, p.again = t, 0
	default:
		p.other, p.again = t, 1
	}
	p.known = true
}

// EndBroken ends the spares that a fault under MPS has broken, too: MPS takes no new clients
// before they are gone.
func (p *Spares) EndBroken() {
	for _, s := range p.all {
		if s.Terms.MPS.Shared {
			p.end(s)
		}
	}
	p.look = 0
}

// Stop ends all spares; the pool waits for that. The loop has ended.
func (p *Spares) Stop() {
	for _, s := range p.all {
		if !s.taken && !s.ending {
			s.ending = true
			s.waits.End()
		}
	}
}

// Look has Tend look again at what may be missing, or too many.
func (p *Spares) Look() { p.look = 0 }

// Of is the spare that the dispatcher knows by a number; nil if there is none.
func (p *Spares) Of(id vgpu.ClientID) *Spare { return p.all[id] }

// All are the spares that wait, or whose clients have their contexts still.
func (p *Spares) All() iter.Seq[*Spare] { return maps.Values(p.all) }

// Take gives a client that comes to a device a spare that has its terms and was told the same of the device;
// nil if there is none. gone tells the client that it has no spare any more. The caller owns the spare's
// files.
func (p *Spares) Take(at vgpu.DeviceID, terms Terms, config control.DeviceConfig, gone func()) (found *Spare) {
	if p.comes[at] == nil {
		p.comes[at] = &demand{}
	}
	p.comes[at].note(p.host.Now())
	for _, s := range p.all {
		if s.Worker == nil || s.taken || s.ending || s.Device != at || s.Terms != terms || s.config != config {
			continue
		}
		s.waits.Take()
		s.taken, s.gone, found = true, gone, s
		break
	}
	p.learn(terms)
	p.look = min(p.look, p.host.Now()+spareDelay)
	return found
}

// Used is called when the client of a spare wants a device, and is granted one, or none: at. If that is the
// one where its worker has a context, the context counts as part of what the client is granted from then on.
// Otherwise the worker gives the context back, and the dispatcher counts its memory until that has happened:
// so also if the worker was told to give it back already, because others wait for the memory.
func (p *Spares) Used(s *Spare, at vgpu.DeviceID) {
	if at == s.Device && !s.ending {
		p.Leave(s)
		return
	}
	p.end(s)
}
