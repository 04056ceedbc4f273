package world

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"muster/head"
	"muster/model"
	"muster/policy/catalog"
	"muster/policy/priority"
	"muster/wire/agent"
)

func stack() string { return string(debug.Stack()) }

// headHost is the machine of the head: the core, a model of its daemon, and a disk.
type headHost struct {
	w    *World
	core *head.Core // nil while the daemon is not running
	life uint64     // number of starts; a scheduled event of an earlier life is void

	disk      map[head.Bucket]map[string][]byte
	diskFails bool

	requests head.Request
	asked    map[head.Request]func(head.Answer)
	sessions map[head.Session]*conn
	session  head.Session
	due      bool          // a flush is scheduled
	ticked   time.Duration // when the next Tick is scheduled
}

// authority is a certificate that vouches for gateways, the same in every run.
var authority = sync.OnceValue(func() string {
	key := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Unix(1<<32, 0), IsCA: true, BasicConstraintsValid: true}
	made, err := x509.CreateCertificate(nil, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made}))
})

func newHeadHost(w *World) *headHost {
	return &headHost{w: w, disk: map[head.Bucket]map[string][]byte{}}
}

func (h *headHost) config() head.Config {
	cfg := head.Config{
		Cluster: "world", Admins: []string{"root"}, NodeTimeout: 10 * time.Minute, Silence: time.Minute, Grace: 30 * time.Second,
		TimeLimit: time.Hour, Keep: 5 * time.Minute, Authority: authority(), Limits: head.Limits{Running: 30},
	}
	if h.w.Content > 0 {
		cfg.Users = map[string]head.Limits{attacker: limitsOfAttacker}
	}
	if cfg.Holds = model.DefaultHolds(); h.w.Seed%2 == 0 {
		cfg.Holds.Remote.Reach = model.ReachCluster
	}
	if h.w.Seed%3 == 0 {
		ranks := priority.Defaults()
		ranks.WeightAge, ranks.WeightFairshare, ranks.WeightJobSize = 100, 1000, 10
		cfg.Priority = &ranks
	}
	return cfg
}

// boot starts the daemon from its disk.
func (h *headHost) boot() {
	if h.core != nil {
		return
	}
	p, err := catalog.New(h.w.Policy)
	if err != nil {
		h.w.fail("%v", err)
		return
	}
	h.life++
	h.asked, h.sessions = map[head.Request]func(head.Answer){}, map[head.Session]*conn{}
	h.due, h.ticked = false, 0
	core, err := head.Restore(h.config(), p, h.w.Policy, h.each, h.w.now)
	if err != nil {
		h.w.fail("the head cannot be restored: %v", err)
		return
	}
	h.core = core
	h.core.SetPast(h.past)
	h.w.trace("head is up")
	h.flushSoon()
}

func (h *headHost) crash() {
	if h.core == nil {
		return
	}
	h.core = nil
	for _, id := range sortedKeys(h.sessions) {
		h.sessions[id].broken()
	}
}

func (h *headHost) heal() {
	h.diskFails = false
	h.boot()
}

// each visits the records that the daemon reads at its start.
func (h *headHost) each(visit func(head.Record) error) error {
	for _, b := range []head.Bucket{head.Meta, head.Nodes, head.Jobs, head.Keys} {
		for _, k := range sortedKeys(h.disk[b]) {
			if err := visit(head.Record{Bucket: b, Key: []byte(k), Value: h.disk[b][k]}); err != nil {
				return err
			}
		}
	}
	return nil
}

// ask sends a user's request, which is lost if the daemon dies.
func (h *headHost) ask(make func(head.Request) head.Event, answer func(head.Answer)) {
	h.w.after(h.w.delay(time.Millisecond), func() {
		if h.core == nil {
			return
		}
		h.requests++
		h.asked[h.requests] = answer
		h.tell(make(h.requests))
	})
}

// tell passes an event to the core.
func (h *headHost) tell(ev head.Event) {
	if h.core == nil {
		return
	}
	h.core.Handle(h.w.now, ev)
	h.flushSoon()
}

// flushSoon schedules a flush a little later, so that the core may get more events before, as in
// the daemon's batches.
func (h *headHost) flushSoon() {
	if h.due {
		return
	}
	h.due = true
	life := h.life
	h.w.after(h.w.delay(time.Millisecond), func() {
		if h.core != nil && h.life == life {
			h.due = false
			h.flush()
		}
	})
}

// flush does what the daemon does with a batch: step, write to disk, then everything else. In this
// order nothing is acknowledged that is not on disk. The machine may die between any two of these.
func (h *headHost) flush() {
	h.core.Step(h.w.now)
	e := h.core.Take()
	h.w.checkWork(&e)
	if h.diskFails || !h.w.quiet && h.w.chance(3e-4) {
		h.w.trace("head dies before its disk has the batch")
		h.diskFails = false
		h.crash()
		h.w.after(h.w.delay(20*time.Second), h.boot)
		return
	}
	for _, r := range e.Records {
		if h.disk[r.Bucket] == nil {
			h.disk[r.Bucket] = map[string][]byte{}
		}
		if r.Value == nil {
			delete(h.disk[r.Bucket], string(r.Key))
		} else {
			h.disk[r.Bucket][string(r.Key)] = slices.Clone(r.Value)
		}
	}
	if !h.w.quiet && h.w.chance(3e-4) {
		h.w.trace("head dies after its disk has the batch")
		h.crash()
		h.w.after(h.w.delay(20*time.Second), h.boot)
		return
	}
	h.carryOut(&e)
	h.tickSoon()
}

func (h *headHost) carryOut(e *head.Effects) {
	for _, s := range e.Sends {
		c := h.sessions[s.Session]
		if c == nil {
			continue
		}
		m := s.Message
		if start, ok := m.(agent.Start); ok {
			if err := head.FillIn(&start, func(job uint64) ([]byte, error) { return h.disk[head.Bulk][string(head.Number(job))], nil }); err != nil {
				h.w.fail("job %d is to be started, and nobody knows what it runs: %v", start.Task.Job, err)
				return
			}
			m = start
		}
		c.toAgent(m)
	}
	for _, a := range e.Answers {
		if answer := h.asked[a.Request]; answer != nil {
			delete(h.asked, a.Request)
			h.w.after(h.w.delay(time.Millisecond), func() { answer(a) })
		}
	}
	for _, s := range e.HangUps {
		if c := h.sessions[s]; c != nil {
			h.w.after(10*time.Millisecond, c.broken)
		}
	}
}

// tickSoon schedules a Tick for the time that the core asks for.
func (h *headHost) tickSoon() {
	next := h.core.Next()
	if next == h.ticked || next > h.w.now+365*24*time.Hour {
		return
	}
	h.ticked = next
	life := h.life
	h.w.after(max(0, next-h.w.now), func() {
		if h.core != nil && h.life == life {
			h.ticked = 0
			h.tell(head.Tick{})
		}
	})
}
