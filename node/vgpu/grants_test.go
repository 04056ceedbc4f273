package vgpu

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/internal/seeds"
	"muster/model"
)

// grantMachine plays random grants and clients that obey, and checks after each event
// that nobody has what was granted to others.
type grantMachine struct {
	t       *rapid.T
	core    *Core
	now     Time
	cfg     Config
	grants  map[GrantID]Admit
	clients map[ClientID]*grantClient
	last    ClientID
}

type grantClient struct {
	under    GrantID
	share    int
	ready    bool
	bound    bool
	revoking bool
	device   DeviceID
	memory   uint64
	kept     uint64
}

func (m *grantMachine) sorted() []ClientID { return slices.Sorted(maps.Keys(m.clients)) }

// shareOf is what a client may use of a device; nil without a grant, or if that is over.
func (m *grantMachine) shareOf(x *grantClient) *Share {
	if g, ok := m.grants[x.under]; ok {
		return &g.Shares[x.share]
	}
	return nil
}

func (m *grantMachine) step(e Event) {
	m.now += time.Duration(rapid.IntRange(0, 20).Draw(m.t, "ms")) * time.Millisecond
	for _, f := range m.core.Step(m.now, e) {
		x := m.clients[f.Client]
		switch f.Kind {
		case Grant:
			m.granted(x, f)
		case Revoke:
			if x.revoking || !x.bound && x.kept == 0 {
				m.t.Fatalf("%v: it has nothing, or was told", f)
			}
			x.revoking = true
		case Deny:
			x.ready = false
		}
	}
	m.check()
}

// granted checks that a client is where it may be.
func (m *grantMachine) granted(x *grantClient, f Effect) {
	if x.bound && f.Memory <= x.memory { // the answer to a Grow that asked for nothing
		return
	}
	share := m.shareOf(x)
	if x.under != "" && (share == nil || m.grants[x.under].Limit == 0 || !m.reaches(share, f.Device)) {
		m.t.Fatalf("%v: under grant %q, %+v", f, x.under, m.grants[x.under])
	}
	for _, id := range m.sorted() {
		y := m.clients[id]
		if y == x || !y.bound || y.device != f.Device || x.under == y.under {
			continue
		}
		other := m.shareOf(y)
		if share != nil && share.Memory == 0 && share.Device == f.Device || other != nil && other.Memory == 0 && other.Device == f.Device && m.grants[y.under].Limit != 0 {
			m.t.Fatalf("%v: client %d is there, and one of them has all of the device", f, id)
		}
	}
	x.ready, x.bound, x.revoking, x.kept, x.device, x.memory = false, true, false, 0, f.Device, f.Memory
}

// reaches says whether clients of a share may be on a device.
func (m *grantMachine) reaches(s *Share, id DeviceID) bool {
	return s.Device == id || s.Reach == model.ReachCluster || s.Reach == model.ReachNode && !m.cfg.Devices[id].Elsewhere
}

// over is what n has beyond most.
func over(n, most uint64) uint64 { return n - min(n, most) }

// isHome says whether a client is on the device of its share.
func (m *grantMachine) isHome(x *grantClient) bool {
	s := m.shareOf(x)
	return s != nil && s.Device == x.device
}

func (m *grantMachine) check() {
	for i, d := range m.cfg.Devices {
		taken, kept := uint64(0), uint64(0) // by all; and kept for grants of which others may not have anything
		others := uint64(0)                 // what others have, but those that were told to leave
		by, stays := map[GrantID]uint64{}, map[GrantID]uint64{}
		for _, x := range m.clients {
			if (x.bound || x.kept > 0) && x.device == DeviceID(i) {
				n := x.kept
				if x.bound {
					n += x.memory + d.ContextCost
				}
				taken += n
				switch {
				case m.isHome(x):
					by[x.under] += n
					if !x.revoking {
						stays[x.under] += n
					}
				case !x.revoking && x.under != "withdrawn":
					others += n
				}
			}
		}
		for id, g := range m.grants {
			for _, s := range g.Shares {
				memory := orDefault(s.Memory, d.Memory)
				if s.Device == DeviceID(i) && g.Limit != 0 {
					kept += memory
					if by[id] > memory+s.Beyond {
						m.t.Fatalf("grant %q has %d bytes of device %d, may have %d", id, by[id], i, memory)
					}
					others += over(stays[id], memory)
				}
			}
		}
		if taken > d.Memory || kept > d.Memory || others > d.Memory-kept {
			m.t.Fatalf("device %d has %d bytes: %d are taken, %d granted, and %d others'", i, d.Memory, taken, kept, others)
		}
	}
	m.checkSlots()
	m.checkHomes()
	for id, g := range m.grants {
		using := map[int]bool{}
		for _, x := range m.clients {
			if x.under == id && x.bound && !x.revoking {
				using[x.share] = true
			}
		}
		if g.Limit >= 0 && len(using) > g.Limit {
			m.t.Fatalf("grant %q uses %d devices, may use %d", id, len(using), g.Limit)
		}
	}
}

// checkSlots checks that no more clients stay on a device, or on a part of it, than it has slots.
func (m *grantMachine) checkSlots() {
	for _, d := range m.core.all {
		stay := 0
		for _, x := range d.slots {
			if x != nil && !x.revoking {
				stay++
			}
		}
		if stay > d.Slots || len(d.slots) < d.Slots || d.Slots != d.base().Slots {
			m.t.Fatalf("device %d has %d slots of %d, and of a part %d; %d clients stay there", d.id, len(d.slots), d.base().Slots, d.Slots, stay)
		}
	}
}

// checkHomes checks that a client whose share is unused, and as large as it needs, is served, unless it must wait for others to leave that
// device: whatever all others do, there is room for it at home.
func (m *grantMachine) checkHomes() {
	for _, id := range m.sorted() {
		x := m.clients[id]
		s := m.shareOf(x)
		if s == nil || !x.ready || x.revoking || m.grants[x.under].Limit >= 0 {
			continue
		}
		busy := false
		for _, y := range m.clients {
			busy = busy || (y.bound || y.kept > 0) && y.device == s.Device && (y.revoking || y.under == "withdrawn" || y.under == x.under && y.share == x.share)
		}
		v, _ := m.core.Client(id)
		d := m.cfg.Devices[s.Device]
		if !busy && !v.Revoking && v.Need+d.ContextCost <= orDefault(s.Memory, d.Memory) {
			m.t.Fatalf("client %d waits, and nobody uses its share of device %d: %+v", id, s.Device, v)
		}
	}
}

func (m *grantMachine) answer(id ClientID) {
	x := m.clients[id]
	keeps := uint64(0)
	if x.bound && rapid.Bool().Draw(m.t, "keeps") {
		keeps = m.cfg.Devices[x.device].ContextCost
	}
	x.bound, x.revoking, x.memory, x.kept = false, false, 0, keeps
	m.step(Released{Client: id, Keeps: keeps})
}

func (m *grantMachine) random() {
	t := m.t
	ids := m.sorted()
	grant := GrantID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "grant"))
	limit := rapid.IntRange(-1, 2).Draw(t, "limit")
	switch what := rapid.IntRange(0, 13).Draw(t, "what"); {
	case what == 13:
		m.step(Resize{DeviceID(rapid.IntRange(0, len(m.cfg.Devices)-1).Draw(t, "resized")), rapid.IntRange(1, 4).Draw(t, "slots")})
	case what == 0:
		e := Admit{Grant: grant, Limit: limit}
		for d := range m.cfg.Devices {
			if rapid.Bool().Draw(t, "has") {
				e.Shares = append(e.Shares, Share{DeviceID(d), uint64(rapid.SampledFrom([]int{0, 20, 40, 60}).Draw(t, "memory")), uint64(rapid.SampledFrom([]int{0, 0, 30, 200}).Draw(t, "beyond")), model.Reach(rapid.IntRange(0, 2).Draw(t, "reach"))})
			}
		}
		if m.core.Refuses(e) == nil {
			m.grants[grant] = e
		}
		m.step(e)
	case what == 1:
		delete(m.grants, grant)
		for _, x := range m.clients { // one of the same name may come
			if x.under == grant {
				x.under = "withdrawn"
			}
		}
		m.step(Withdraw{grant})
	case what == 2:
		if e := (Restrict{grant, limit}); m.core.Refuses(e) == nil {
			g := m.grants[grant]
			g.Limit = limit
			m.grants[grant] = g
			m.step(e)
		}
	case what == 3 || len(ids) == 0:
		m.last++
		x := &grantClient{}
		if g, ok := m.grants[grant]; ok {
			x.under, x.share = grant, rapid.IntRange(0, len(g.Shares)-1).Draw(t, "share")
		}
		m.clients[m.last] = x
		m.step(Attach{Client: m.last, User: fmt.Sprint("user", m.last%2), Grant: x.under, Share: x.share})
	default:
		m.randomOf(rapid.SampledFrom(ids).Draw(t, "client"), what)
	}
}

func (m *grantMachine) randomOf(id ClientID, what int) {
	t, x := m.t, m.clients[id]
	switch {
	case what == 4:
		delete(m.clients, id)
		m.step(Detach{id})
	case what < 8 && !x.bound:
		x.ready = true
		m.step(Want{id, uint64(rapid.SampledFrom([]int{0, 1, 10, 20, 30, 50, 60}).Draw(t, "need")), 0, AnyDevice})
	case what == 8 && x.bound && !x.revoking:
		m.step(Grow{id, uint64(rapid.SampledFrom([]int{0, 1, 10, 20, 30, 50, 60}).Draw(t, "need"))})
	case what == 9:
		m.step(Idle{id, 0})
	case what == 10:
		m.step(Ran{id, 1, time.Duration(rapid.IntRange(0, 1000).Draw(t, "busy")) * time.Millisecond})
	case x.revoking:
		m.answer(id)
	default:
		m.step(Tick{})
	}
}

// TestGrantsAreKept: whatever happens, no client has what was granted to others, no grant
// has more than it was granted, and when all others have gone every client of a grant
// that is not suspended is served.
func TestGrantsAreKept(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		cfg := Config{Policy: Policy(rapid.IntRange(0, 2).Draw(t, "policy")), MaxIdle: 10 * time.Millisecond, MaxWait: 100 * time.Millisecond, Migrate: rapid.Bool().Draw(t, "migrate"),
			SlotLimit: rapid.IntRange(0, 1).Draw(t, "slots")}
		for i := range 3 {
			cfg.Devices = append(cfg.Devices, Device{Elsewhere: i == 2, Name: fmt.Sprint("d", i), Slots: 2, Speed: float64(1 + i), Memory: 100, ContextCost: uint64(rapid.SampledFrom([]int{0, 10}).Draw(t, "context"))})
		}
		core, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		m := &grantMachine{t: t, core: core, cfg: cfg, grants: map[GrantID]Admit{}, clients: map[ClientID]*grantClient{}}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			m.random()
		}
		m.settle()
	})
}

// settle lets the ready clients finish one after the other: each of them must be served,
// unless no device is there for it.
func (m *grantMachine) settle() {
	for range 4 * (len(m.clients) + 1) {
		for _, id := range m.sorted() {
			if x := m.clients[id]; x != nil && (x.bound && !x.ready || x.revoking) {
				if x.revoking {
					m.answer(id)
				} else {
					delete(m.clients, id)
					m.step(Detach{id})
				}
			}
		}
	}
	for _, id := range m.sorted() {
		if v, _ := m.core.Client(id); m.clients[id].ready && !v.Parked {
			m.t.Fatalf("client %d waits, and all others have gone: %+v", id, v)
		}
	}
}
