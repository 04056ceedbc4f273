package vgpu

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// machine plays random events against the core, with workers that obey
// Revokes sooner or later, and checks after each event what must never be.
type machine struct {
	t     *rapid.T
	cfg   Config
	core  *Core
	now   Time
	log   []string
	model map[ClientID]*modelClient
	lost  map[DeviceID]bool
}

// modelClient is what the worker of a client knows.
type modelClient struct {
	user     string
	lease    int
	bound    bool
	ready    bool
	device   DeviceID
	slot     int
	memory   uint64
	kept     uint64 // on device, unbound
	busy     bool   // the last that it reported while watched
	watched  bool
	revoking bool
	growing  bool
}

func drawConfig(t *rapid.T) Config {
	cfg := Config{
		Policy:    Policy(rapid.IntRange(0, 2).Draw(t, "policy")),
		MaxIdle:   10 * time.Millisecond,
		MaxPasses: rapid.IntRange(1, 8).Draw(t, "passes"),
		MaxWait:   100 * time.Millisecond,
		SlotLimit: rapid.IntRange(0, 3).Draw(t, "limit"),
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "devices") {
		cfg.Devices = append(cfg.Devices, Device{
			Name: fmt.Sprint("d", i), Slots: rapid.IntRange(1, 3).Draw(t, "slots"), Speed: float64(rapid.IntRange(1, 3).Draw(t, "speed")),
			Memory: uint64(rapid.IntRange(20, 100).Draw(t, "memory")), ContextCost: uint64(rapid.IntRange(0, 10).Draw(t, "context")),
		})
	}
	return cfg
}

func newMachine(t *rapid.T, cfg Config) *machine {
	core, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &machine{t: t, cfg: cfg, core: core, model: map[ClientID]*modelClient{}, lost: map[DeviceID]bool{}}
}

func (m *machine) ids() (ids []ClientID) {
	for id := range m.model {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// take applies effects to the model, and checks each.
func (m *machine) take(effects []Effect, credit bool) {
	for _, e := range effects {
		m.log = append(m.log, e.String())
		x := m.model[e.Client]
		if x == nil {
			if e.Kind == Deny && e.Reason == Unknown {
				continue
			}
			m.t.Fatalf("%v: no such client", e)
		}
		switch e.Kind {
		case Grant:
			if x.revoking || !(x.ready || (x.bound && x.growing && x.device == e.Device && x.slot == e.Slot)) {
				m.t.Fatalf("%v: to a client that is neither ready nor growing", e)
			}
			if x.kept > 0 && x.device != e.Device {
				m.t.Fatalf("%v: the client keeps %d bytes on device %d", e, x.kept, x.device)
			}
			x.busy = x.busy && x.bound
			if x.ready {
				x.lease++
				x.busy = true
				x.watched = false
			}
			if e.Lease != x.lease {
				m.t.Fatalf("%v: lease %d, should be %d", e, e.Lease, x.lease)
			}
			x.bound, x.ready, x.growing, x.kept = true, false, false, 0
			x.device, x.slot, x.memory = e.Device, e.Slot, e.Memory
		case Revoke:
			if x.revoking || (!x.bound && x.kept == 0) || x.device != e.Device {
				m.t.Fatalf("%v: to a client that has nothing to give or was told already", e)
			}
			if x.bound && x.busy && !(credit && e.Reason == ForCredit) {
				m.t.Fatalf("%v: the client is busy", e)
			}
			x.revoking = true
		case Watch:
			if !x.bound || x.watched == e.On {
				m.t.Fatalf("%v: unbound, or nothing new", e)
			}
			x.watched = e.On
			x.busy = true
		case Deny:
			x.growing = false
			if !x.bound {
				x.ready = false
			}
		case Gone:
			if !x.bound || !m.lost[e.Device] {
				m.t.Fatalf("%v: it was not there, or the device is", e)
			}
			*x = modelClient{user: x.user, lease: x.lease}
		}
	}
	m.check()
}

// check looks at slots, memory and limits, in the model and in the view.
func (m *machine) check() {
	slots := map[[2]int]ClientID{}
	taken := map[DeviceID]uint64{}
	user := map[string]int{}
	view := m.core.View()
	for _, id := range m.ids() {
		x := m.model[id]
		if x.bound {
			place := [2]int{int(x.device), x.slot}
			if other, ok := slots[place]; ok {
				m.t.Fatalf("clients %d and %d are in one slot", other, id)
			}
			slots[place] = id
			taken[x.device] += x.memory + m.cfg.Devices[x.device].ContextCost
			user[x.user]++
			if m.lost[x.device] {
				m.t.Fatalf("client %d is on a lost device", id)
			}
			if x.slot < 0 || x.slot >= m.cfg.Devices[x.device].Slots {
				m.t.Fatalf("client %d is in slot %d", id, x.slot)
			}
		}
		if x.kept > 0 {
			taken[x.device] += x.kept
		}
		at, _ := slices.BinarySearchFunc(view.Clients, id, func(v ClientView, id ClientID) int { return int(v.ID) - int(id) })
		v := view.Clients[at]
		if (v.State == Assigned) != x.bound || (v.State == Ready) != x.ready || v.Revoking != x.revoking {
			m.t.Fatalf("client %d: the view says %+v, the worker %+v", id, v, *x)
		}
		if x.bound && (v.Memory != x.memory || v.Slot != x.slot) {
			m.t.Fatalf("client %d: the view says %+v, the worker %+v", id, v, *x)
		}
	}
	for _, d := range view.Devices {
		if taken[d.ID] != d.Taken || d.Taken > d.Memory {
			m.t.Fatalf("device %d: %d bytes are taken, the view says %d of %d", d.ID, taken[d.ID], d.Taken, d.Memory)
		}
	}
	for name, n := range user {
		if m.cfg.SlotLimit > 0 && n > m.cfg.SlotLimit {
			m.t.Fatalf("user %s has %d slots, may have %d", name, n, m.cfg.SlotLimit)
		}
	}
	for _, d := range m.core.devices {
		if d.claims < 0 || d.claimed < 0 || (len(m.core.ready) == 0 && (d.claims != 0 || d.reservedFor != nil)) {
			m.t.Fatalf("device %d: promises without anybody: %+v", d.id, *d)
		}
	}
}

func (m *machine) credit() bool { return m.cfg.Policy == Credit }

func (m *machine) do(effects []Effect) { m.take(effects, m.credit()) }

func (m *machine) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf("%v ", m.now)+fmt.Sprintf(format, args...))
}

func (m *machine) attach(id ClientID, user string, weight int) {
	m.note("attach %d", id)
	m.model[id] = &modelClient{user: user}
	m.do(m.core.Attach(m.now, id, user, weight))
}

func (m *machine) want(id ClientID, w Want) {
	m.note("want %d %+v", id, w)
	m.model[id].ready = true
	m.do(m.core.Want(m.now, id, w))
}

func (m *machine) release(id ClientID, keeps uint64) {
	m.note("released %d keeping %d", id, keeps)
	x := m.model[id]
	if x.bound {
		x.kept = min(keeps, x.memory+m.cfg.Devices[x.device].ContextCost)
	} else if keeps == 0 || x.revoking {
		x.kept = 0
	}
	x.bound, x.revoking, x.growing, x.watched = false, false, false, false
	m.do(m.core.Released(m.now, id, keeps))
}

func (m *machine) say(id ClientID, busy bool) {
	m.note("busy %d: %v", id, busy)
	if x := m.model[id]; x.watched {
		x.busy = busy
	}
	if busy {
		m.do(m.core.Busy(m.now, id))
	} else {
		m.do(m.core.Idle(m.now, id))
	}
}

func (m *machine) step() {
	t := m.t
	m.now += time.Duration(rapid.IntRange(0, 8).Draw(t, "ms")) * time.Millisecond
	id := ClientID(rapid.IntRange(1, 8).Draw(t, "client"))
	x := m.model[id]
	if x == nil {
		m.attach(id, rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "user"), rapid.IntRange(1, 3).Draw(t, "weight"))
		return
	}
	number := func(most int) uint64 { return uint64(rapid.IntRange(0, most).Draw(t, "number")) }
	switch what := rapid.IntRange(0, 19).Draw(t, "event"); {
	case what < 6 && !x.bound:
		m.want(id, Want{Need: number(90), Estimate: time.Duration(number(3)) * time.Millisecond, Pinned: DeviceID(rapid.IntRange(-1, 0).Draw(t, "pinned"))})
	case what < 6 && x.bound:
		m.say(id, what < 3)
	case what < 8 && x.bound:
		m.note("sync %d", id)
		if x.watched {
			x.busy = false
		}
		m.do(m.core.SyncPoint(m.now, id))
	case what < 10 && x.bound:
		m.note("grow %d", id)
		x.growing = !x.revoking
		m.do(m.core.Grow(m.now, id, x.memory+number(40)))
	case what < 15 && (x.revoking || x.bound || x.kept > 0):
		keeps := rapid.SampledFrom([]uint64{0, 0, m.cfg.Devices[x.device].ContextCost, math.MaxUint64}).Draw(t, "keeps")
		if x.revoking && !x.bound {
			keeps = 0
		}
		m.release(id, keeps)
	case what == 15:
		m.note("detach %d", id)
		delete(m.model, id)
		m.do(m.core.Detach(m.now, id))
	case what == 16:
		m.note("failed %d", id)
		*x = modelClient{user: x.user, lease: x.lease}
		m.do(m.core.Failed(m.now, id))
	case what == 17:
		m.note("ran %d", id)
		m.do(m.core.Ran(m.now, id, 1, time.Duration(number(20))*time.Millisecond))
	case what == 18 && number(9) == 0:
		d := DeviceID(number(len(m.cfg.Devices) - 1))
		m.note("lost %d", d)
		m.lost[d] = true
		for _, x := range m.model {
			if x.kept > 0 && x.device == d {
				x.kept, x.revoking = 0, false
			}
		}
		m.do(m.core.Lost(m.now, d))
	case what == 18:
		for d := range m.cfg.Devices {
			if id := DeviceID(d); m.lost[id] {
				delete(m.lost, id)
				m.note("added %d", id)
				_, effects, err := m.core.Added(m.now, m.cfg.Devices[d])
				if err != nil {
					t.Fatal(err)
				}
				m.do(effects)
			}
		}
	default:
		m.note("tick")
		m.do(m.core.Tick(m.now))
	}
}

// behave lets all workers do as they should: report when watched, answer,
// let go when denied, and go idle; nobody new wants anything. Then everybody
// who is ready must be served in the end.
func (m *machine) behave() {
	waiting := map[ClientID]bool{}
	for _, id := range m.ids() {
		waiting[id] = m.model[id].ready
	}
	limit := 40 * (len(m.model) + 1)
	for range limit {
		open := false
		for _, id := range m.ids() {
			waiting[id] = waiting[id] && m.model[id].ready
			open = open || waiting[id]
		}
		if !open {
			return
		}
		for _, id := range m.ids() {
			switch x := m.model[id]; {
			case x.revoking:
				m.release(id, 0)
			case x.bound && x.busy:
				m.say(id, false)
			}
		}
		m.now += time.Millisecond
		if at, ok := m.core.Next(); ok {
			if at <= m.core.now {
				m.t.Fatalf("Next says %v, it is %v", at, m.core.now)
			}
			m.now = max(m.now, at)
		}
		m.do(m.core.Tick(m.now))
	}
	m.t.Fatalf("somebody was not served in %d rounds: %v", limit, waiting)
}

func TestNothingForbiddenEverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(t, drawConfig(t))
		defer func() {
			if t.Failed() {
				for _, line := range m.log {
					t.Log(line)
				}
			}
		}()
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			m.step()
		}
		m.behave()
	})
}

// The same events give the same effects.
func TestDeterminism(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.IntRange(0, 1<<30).Draw(t, "seed")
		play := func() []string {
			var log []string
			rapid.Custom(func(t *rapid.T) int {
				m := newMachine(t, drawConfig(t))
				for range 60 {
					m.step()
				}
				log = m.log
				return 0
			}).Example(seed)
			return log
		}
		if a, b := play(), play(); !slices.Equal(a, b) {
			t.Fatalf("two runs differ:\n%v\n%v", a, b)
		}
	})
}
