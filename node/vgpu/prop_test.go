package vgpu

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/internal/seeds"
)

// machine plays random events against the core, with workers that obey
// Revokes sooner or later, and checks after each event what must never be.
type machine struct {
	t       *rapid.T
	cfg     Config
	core    *Core
	now     Time
	log     []byte // a recording
	model   map[ClientID]*modelClient
	devices []modelDevice
	ran     time.Duration // GPU time, all in all
	autos   int           // clients that were told to leave because they would run faster elsewhere
	quiet   bool          // no event but the workers' own since autos was 0
}

// modelDevice is what people know of a device.
type modelDevice struct {
	Device
	drained, lost bool
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
	growing  bool // it asked for more, or was said to get more
	coming   bool // the latter

	want  Want          // the last
	hand  DeviceID      // where it was said to go
	moved bool          // it was told to leave for that
	over  bool          // it was adopted where there was no room for it
	phase time.Duration // GPU time since it was granted

	granted Time
}

// fresh is a client without a device.
func (x *modelClient) fresh() modelClient {
	return modelClient{user: x.user, lease: x.lease, hand: x.hand, want: x.want}
}

func drawConfig(t *rapid.T) Config {
	cfg := Config{
		Policy:    Policy(rapid.IntRange(0, 2).Draw(t, "policy")),
		MaxIdle:   10 * time.Millisecond,
		MaxPasses: rapid.IntRange(1, 8).Draw(t, "passes"),
		MaxWait:   100 * time.Millisecond,
		SlotLimit: rapid.IntRange(0, 3).Draw(t, "limit"),
		Migrate:   rapid.Bool().Draw(t, "migrate"),
		Quantum:   time.Duration(rapid.IntRange(0, 1).Draw(t, "quantum")) * 20 * time.Millisecond,
		MoveStep:  uint64(rapid.SampledFrom([]int{0, 1, 5}).Draw(t, "step")),
	}
	if cfg.Migrate {
		cfg.MoveCost, cfg.MoveBandwidth = 20*time.Millisecond, 2000
	}
	for i := range rapid.IntRange(1, 3).Draw(t, "devices") {
		cfg.Devices = append(cfg.Devices, drawDevice(t, i))
	}
	return cfg
}

func drawDevice(t *rapid.T, i int) Device {
	return Device{
		Name: fmt.Sprint("d", i), Slots: rapid.IntRange(1, 3).Draw(t, "slots"), Speed: float64(rapid.IntRange(1, 3).Draw(t, "speed")),
		Memory: uint64(rapid.IntRange(20, 100).Draw(t, "memory")), ContextCost: uint64(rapid.IntRange(0, 10).Draw(t, "context")),
	}
}

func newMachine(t *rapid.T, cfg Config) *machine {
	core, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	log, err := AppendHeader(nil, Header{Muster: "test", Node: "test", Config: core.Config()})
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{t: t, cfg: cfg, core: core, log: log, model: map[ClientID]*modelClient{}}
	for _, d := range cfg.Devices {
		m.devices = append(m.devices, modelDevice{Device: d})
	}
	return m
}

func (m *machine) up(id DeviceID) bool {
	return id >= 0 && int(id) < len(m.devices) && !m.devices[id].lost && !m.devices[id].drained
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
		x := m.model[e.Client]
		if x == nil {
			if e.Kind == Deny && e.Reason == Unknown {
				continue
			}
			m.t.Fatalf("%v: no such client", e)
		}
		switch e.Kind {
		case Grant:
			m.takeGrant(x, e)
		case Revoke:
			m.takeRevoke(x, e, credit)
		case Watch:
			if !x.bound || x.watched == e.On {
				m.t.Fatalf("%v: unbound, or nothing new", e)
			}
			x.watched = e.On
			x.busy = true
		case Deny:
			x.growing, x.coming = false, false
			if !x.bound {
				x.ready = false
				m.checkDeny(x, e)
			}
		case Gone:
			if !(x.bound || x.kept > 0) || x.device != e.Device || (m.up(e.Device) && !x.over) {
				m.t.Fatalf("%v: it was not there, or the device is", e)
			}
			ready := x.ready
			*x = x.fresh()
			x.ready = ready
		}
	}
	m.check()
}

func (m *machine) takeGrant(x *modelClient, e Effect) {
	if x.revoking || !(x.ready || (x.bound && x.growing && x.device == e.Device && x.slot == e.Slot)) {
		m.t.Fatalf("%v: to a client that is neither ready nor growing", e)
	}
	if x.kept > 0 && x.device != e.Device {
		m.t.Fatalf("%v: the client keeps %d bytes on device %d", e, x.kept, x.device)
	}
	if !m.up(e.Device) {
		m.t.Fatalf("%v: the device takes nobody", e)
	}
	if x.ready && x.hand != AnyDevice && x.hand != e.Device {
		m.t.Fatalf("%v: it was to go to device %d", e, x.hand)
	}
	x.busy = x.busy && x.bound
	if x.ready {
		x.lease++
		x.busy = true
		x.watched = false
		x.hand, x.moved, x.phase, x.granted = AnyDevice, false, 0, m.now
	}
	if e.Lease != x.lease {
		m.t.Fatalf("%v: lease %d, should be %d", e, e.Lease, x.lease)
	}
	if x.coming && e.Memory <= x.memory || e.Coming > 0 && e.Coming <= e.Memory {
		m.t.Fatalf("%v: to a client with %d bytes", e, x.memory)
	}
	x.bound, x.ready, x.growing, x.coming, x.kept = true, false, e.Coming > 0, e.Coming > 0, 0
	x.device, x.slot, x.memory = e.Device, e.Slot, e.Memory
}

func (m *machine) takeRevoke(x *modelClient, e Effect, credit bool) {
	if x.revoking || (!x.bound && x.kept == 0) || x.device != e.Device {
		m.t.Fatalf("%v: to a client that has nothing to give or was told already", e)
	}
	switch {
	case e.Reason == ForDrain:
		if !m.devices[e.Device].drained {
			m.t.Fatalf("%v: the device is not drained", e)
		}
	case e.Reason == ForMove && x.bound && x.moved:
	case e.Reason == ForMove && x.bound:
		m.takeMove(x, e)
	case x.bound && (e.Reason == ForQuantum || e.Reason == ForRoom):
		m.takeTurn(x, e)
	case x.bound && x.busy && !(credit && e.Reason == ForCredit) && !x.over:
		m.t.Fatalf("%v: the client is busy", e)
	}
	x.revoking, x.growing, x.coming = true, false, false
}

// takeTurn checks that a client whose turn is over has had some of it, and that others wait.
func (m *machine) takeTurn(x *modelClient, e Effect) {
	if m.cfg.Quantum == 0 || m.now-x.granted < m.cfg.Quantum/leastPart {
		m.t.Fatalf("%v: after %v of a quantum of %v", e, m.now-x.granted, m.cfg.Quantum)
	}
	for _, id := range m.ids() {
		if m.model[id].ready {
			return
		}
	}
	m.t.Fatalf("%v: nobody waits", e)
}

// takeMove checks that a client that is moved to run faster lost more than that
// costs, that nobody waits, and that it goes to an idle device which is faster.
func (m *machine) takeMove(x *modelClient, e Effect) {
	m.autos++
	to, crowd := m.core.clients[e.Client].target, 0
	for _, id := range m.ids() {
		y := m.model[id]
		if y.growing || (y.ready && !m.core.clients[id].parked) {
			m.t.Fatalf("%v: client %d waits", e, id)
		}
		if y.bound && y.device == to {
			m.t.Fatalf("%v: client %d is on device %d", e, id, to)
		}
		if y.bound && y.device == x.device {
			crowd++
		}
	}
	cost := m.cfg.MoveCost + time.Duration(2*x.memory)*time.Second/time.Duration(m.cfg.MoveBandwidth)
	gain := m.devices[to].Speed * float64(crowd) / m.devices[x.device].Speed
	if !m.cfg.Migrate || !m.up(to) || to == x.device || gain < minGain || x.phase < cost || x.hand != AnyDevice || m.core.clients[e.Client].stays {
		m.t.Fatalf("%v: to device %d: %v times as fast, after %v, costs %v", e, to, gain, x.phase, cost)
	}
	if m.autos > int(m.ran/m.cfg.MoveCost) {
		m.t.Fatalf("%v: the %dth move in %v of GPU time", e, m.autos, m.ran)
	}
	if d := len(m.devices); m.quiet && m.autos > d*(d+1)/2 {
		m.t.Fatalf("%v: the %dth move between %d devices, and nobody came", e, m.autos, d)
	}
}

// checkDeny checks that nobody is denied what a device could hold that is
// drained, or lost if the client is pinned to it.
func (m *machine) checkDeny(x *modelClient, e Effect) {
	if e.Reason == Bound || e.Reason == Duplicated {
		return
	}
	for i, d := range m.devices {
		id := DeviceID(i)
		if pinned := x.want.Pinned; (!d.lost && pinned == AnyDevice || pinned == id) && x.want.Need <= d.Memory-d.ContextCost && m.core.devices[i].state() != DeviceRemoved {
			m.t.Fatalf("%v: device %d could hold it", e, i)
		}
	}
}

// check looks at slots, memory and limits, in the model and in the view.
func (m *machine) check() {
	slots := map[[2]int]ClientID{}
	taken := map[DeviceID]uint64{}
	over := map[DeviceID]bool{}
	user := map[string]int{}
	parked := 0
	view := m.core.View()
	var owed time.Duration
	for _, v := range view.Clients {
		owed += v.Balance
	}
	if owed != 0 {
		m.t.Fatalf("what clients owe each other for turns comes to %v", owed)
	}
	for _, id := range m.ids() {
		x := m.model[id]
		if x.bound {
			place := [2]int{int(x.device), x.slot}
			if other, ok := slots[place]; ok {
				m.t.Fatalf("clients %d and %d are in one slot", other, id)
			}
			slots[place] = id
			taken[x.device] += x.memory + m.devices[x.device].ContextCost
			if !x.over {
				user[x.user]++
			}
			if m.devices[x.device].lost {
				m.t.Fatalf("client %d is on a lost device", id)
			}
			if x.slot < 0 || (x.slot >= m.devices[x.device].Slots && !x.over) {
				m.t.Fatalf("client %d is in slot %d", id, x.slot)
			}
		}
		if x.bound || x.kept > 0 {
			taken[x.device] += x.kept
			over[x.device] = over[x.device] || x.over
			if m.devices[x.device].drained && !x.revoking {
				m.t.Fatalf("client %d may stay on device %d, which is drained", id, x.device)
			}
		}
		at, _ := slices.BinarySearchFunc(view.Clients, id, func(v ClientView, id ClientID) int { return int(v.ID) - int(id) })
		v := view.Clients[at]
		if (v.State == Assigned) != x.bound || (v.State == Ready) != x.ready || v.Revoking != x.revoking {
			m.t.Fatalf("client %d: the view says %+v, the worker %+v", id, v, *x)
		}
		if x.bound && (v.Memory != x.memory || v.Slot != x.slot) {
			m.t.Fatalf("client %d: the view says %+v, the worker %+v", id, v, *x)
		}
		if v.Parked {
			parked++
		}
	}
	m.checkDevices(view, taken, over)
	for name, n := range user {
		if m.cfg.SlotLimit > 0 && n > m.cfg.SlotLimit {
			m.t.Fatalf("user %s has %d slots, may have %d", name, n, m.cfg.SlotLimit)
		}
	}
	if parked != m.core.parked {
		m.t.Fatalf("%d clients are parked, the core counts %d", parked, m.core.parked)
	}
}

func (m *machine) checkDevices(view View, taken map[DeviceID]uint64, over map[DeviceID]bool) {
	drains := 0
	for i, d := range view.Devices {
		is := m.devices[i]
		if taken[d.ID] != d.Taken || (d.Taken > d.Memory && !over[d.ID]) {
			m.t.Fatalf("device %d: %d bytes are taken, the view says %d of %d", d.ID, taken[d.ID], d.Taken, d.Memory)
		}
		if is.drained != (d.State == DeviceDraining || d.State == DeviceDrained) || is.lost != (d.State == DeviceLost || d.State == DeviceRemoved) ||
			(d.State == DeviceDrained && (d.Taken > 0 || d.Used > 0)) || (!m.up(d.ID) && (d.Promised > 0 || d.Reserved)) {
			m.t.Fatalf("device %d: %+v, should be %+v", i, d, is)
		}
		if is.drained {
			drains++
		}
	}
	if len(view.Devices) != len(m.devices) || drains != m.core.drains {
		m.t.Fatalf("there are %d devices, of which %d are drained, the core counts %d and %d", len(m.devices), drains, len(view.Devices), m.core.drains)
	}
	claimed := map[DeviceID]int64{}
	for _, x := range m.core.clients {
		if x.claim != nil && x.claim.held {
			claimed[x.claim.dev.id] += x.claim.bytes
		}
	}
	for _, d := range m.core.devices {
		if claimed[d.id] != d.claimed {
			m.t.Fatalf("device %d: %d bytes are promised, the core counts %d", d.id, claimed[d.id], d.claimed)
		}
		if d.claims < 0 || d.claimed < 0 || (len(m.core.ready) == 0 && (d.claims != 0 || d.reservedFor != nil)) {
			m.t.Fatalf("device %d: promises without anybody: %+v", d.id, *d)
		}
		if d.mover != nil && (m.core.clients[d.mover.id] != d.mover || d.mover.target != d.id) {
			m.t.Fatalf("device %d expects client %d", d.id, d.mover.id)
		}
	}
}

func (m *machine) credit() bool { return m.cfg.Policy == Credit }

// tell tells the core an event, records it, and checks what was decided.
func (m *machine) tell(e Event) {
	effects := m.core.Step(m.now, e)
	log, err := AppendEntry(m.log, Entry{m.now, e, effects})
	if err != nil {
		m.t.Fatal(err)
	}
	m.log = log
	m.take(effects, m.credit())
}

func (m *machine) release(id ClientID, keeps uint64) {
	x := m.model[id]
	if x.bound {
		x.kept = min(keeps, x.memory+m.devices[x.device].ContextCost)
	} else if keeps == 0 || x.revoking {
		x.kept = 0
	}
	x.bound, x.revoking, x.growing, x.coming, x.watched, x.over, x.moved = false, false, false, false, false, x.over && x.kept > 0, false
	m.tell(Released{Client: id, Keeps: keeps, Took: time.Duration(keeps) * time.Millisecond})
}

func (m *machine) say(id ClientID, busy bool) {
	if x := m.model[id]; x.watched {
		x.busy = busy
	}
	if busy {
		m.tell(Busy{id})
	} else {
		m.tell(Idle{Client: id})
	}
}

// number draws a number.
func (m *machine) number(most int) uint64 { return uint64(rapid.IntRange(0, most).Draw(m.t, "number")) }

func (m *machine) step() {
	t := m.t
	m.now += time.Duration(rapid.IntRange(0, 8).Draw(t, "ms")) * time.Millisecond
	id := ClientID(rapid.IntRange(1, 8).Draw(t, "client"))
	x := m.model[id]
	if x == nil {
		m.arrive(id)
		return
	}
	switch what := rapid.IntRange(0, 22).Draw(t, "event"); {
	case what < 6 && !x.bound:
		most := rapid.SampledFrom([]int{10, 10, 10, 90}).Draw(t, "most")
		pinned := rapid.SampledFrom([]DeviceID{AnyDevice, AnyDevice, AnyDevice, 0}).Draw(t, "pinned")
		m.want(id, Want{Client: id, Need: m.number(most), Estimate: time.Duration(m.number(3)) * time.Millisecond, Pinned: pinned})
	case what < 6 && x.bound:
		m.say(id, what < 3)
		if what%2 == 0 {
			m.tell(Began{id, time.Duration(m.number(4)) * time.Millisecond})
		}
	case what < 8 && x.bound:
		if x.watched {
			x.busy = false
		}
		m.tell(SyncPoint{id})
	case what < 15 && x.revoking && x.bound && x.memory > 0 && m.number(2) > 0:
		left := m.number(int(x.memory) - 1)
		if left == 0 || x.memory-left >= m.cfg.MoveStep { // less does not count yet
			x.memory = left
		}
		m.tell(Freed{id, left})
	case what < 10 && x.bound:
		x.growing, x.coming = !x.revoking, false
		m.tell(Grow{id, x.memory + m.number(40)})
	case what < 15 && (x.revoking || x.bound || x.kept > 0):
		keeps := rapid.SampledFrom([]uint64{0, 0, m.devices[x.device].ContextCost, math.MaxUint64}).Draw(t, "keeps")
		if x.revoking && !x.bound {
			keeps = 0
		}
		m.release(id, keeps)
	case what == 15:
		delete(m.model, id)
		m.tell(Detach{id})
	case what == 16:
		*x = x.fresh()
		m.tell(Faulted{id})
	case what == 17 || what == 20:
		m.runs(id, time.Duration(rapid.SampledFrom([]int{0, 1, 20, 200, 500}).Draw(t, "busy"))*time.Millisecond)
	case what == 18:
		m.changeDevice(DeviceID(m.number(len(m.devices) - 1)))
	case what == 19:
		m.move(id, DeviceID(m.number(len(m.devices)-1)))
	default:
		m.tell(Tick{})
	}
}

// arrive makes a client known, a new one or one of an earlier dispatcher.
func (m *machine) arrive(id ClientID) {
	t := m.t
	user, weight := rapid.SampledFrom([]string{"ann", "bob"}).Draw(t, "user"), rapid.IntRange(1, 3).Draw(t, "weight")
	x := &modelClient{user: user, hand: AnyDevice}
	m.model[id] = x
	if m.number(4) > 0 {
		m.tell(Attach{Client: id, User: user, Weight: weight})
		return
	}
	e := Adopt{Client: id, User: user, Weight: weight, Device: DeviceID(rapid.IntRange(-1, len(m.devices)).Draw(t, "device")), Lease: int(m.number(5)), Pinned: AnyDevice}
	x.device, x.lease = e.Device, e.Lease
	switch m.number(2) {
	case 0:
		e.Held, e.Memory = true, m.number(120)
		x.bound, x.memory, x.busy = true, e.Memory, true
	case 1:
		e.Kept = m.number(120)
		x.kept = e.Kept
	}
	x.over = x.bound || x.kept > 0 // if it is told at once to leave
	if x.bound && m.up(e.Device) {
		x.slot = m.core.freeSlot(e.Device)
	} else if x.bound && e.Device >= 0 && int(e.Device) < len(m.devices) && m.devices[e.Device].drained {
		x.slot = m.core.freeSlot(e.Device)
	}
	m.tell(e)
	x.over = x.over && x.revoking
}

// freeSlot is the slot that an adopted client gets.
func (c *Core) freeSlot(id DeviceID) int {
	if at := slices.Index(c.devices[id].slots, nil); at >= 0 {
		return at
	}
	return len(c.devices[id].slots)
}

func (m *machine) want(id ClientID, e Want) {
	x := m.model[id]
	x.ready, x.want = true, e
	if x.hand != AnyDevice && ((e.Pinned != AnyDevice && e.Pinned != x.hand) || e.Need > m.devices[x.hand].Memory-m.devices[x.hand].ContextCost) {
		x.hand = AnyDevice
	}
	m.tell(e)
}

func (m *machine) runs(id ClientID, busy time.Duration) {
	m.ran += busy
	if x := m.model[id]; x.bound {
		x.phase += busy
	}
	m.tell(Ran{id, 1, busy})
}

func (m *machine) move(id ClientID, d DeviceID) {
	e := Move{id, d}
	if m.core.Refuses(e) == nil {
		x := m.model[id]
		x.hand, x.moved = d, x.bound
	}
	m.tell(e)
}

// changeDevice lets a device come or go.
func (m *machine) changeDevice(id DeviceID) {
	d := &m.devices[id]
	what := m.number(9)
	switch {
	case what < 3 && !d.lost:
		d.drained = true
		m.unhand(id)
		m.tell(Drain{id})
	case what < 6 && !d.lost:
		d.drained = false
		m.tell(Resume{id})
	case what == 6:
		if m.core.Refuses(Remove{id}) == nil {
			d.drained, d.lost = false, true
		}
		m.tell(Remove{id})
	case what == 7 && len(m.devices) < 4:
		is := drawDevice(m.t, len(m.devices))
		m.devices = append(m.devices, modelDevice{Device: is})
		m.tell(Added{is})
	case what == 8:
		d.lost, d.drained = true, false
		m.unhand(id)
		m.tell(Lost{id})
	case d.lost:
		m.bringBack(id)
	}
}

func (m *machine) bringBack(id DeviceID) {
	is := drawDevice(m.t, int(id))
	m.devices[id] = modelDevice{Device: is}
	if m.number(1) == 0 {
		m.tell(Added{is})
	} else {
		m.tell(Returned{id, is})
	}
}

// unhand lets all go elsewhere who were said to go to a device that is not there.
func (m *machine) unhand(id DeviceID) {
	for _, x := range m.model {
		if x.hand == id {
			x.hand = AnyDevice
		}
	}
}

// obey lets all workers do as they should for a while: report when watched,
// answer, and go idle. Those that wants names want again when they had to leave.
func (m *machine) obey(again bool) {
	for _, id := range m.ids() {
		switch x := m.model[id]; {
		case x.revoking:
			bound := x.bound
			m.release(id, 0)
			if again && bound {
				m.want(id, Want{Client: id, Need: x.memory, Pinned: x.want.Pinned})
			}
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
	m.tell(Tick{})
}

// behave has all workers obey, while nobody new wants anything. Then drained
// devices are empty in the end, and everybody is served who waits for a device
// that is there.
func (m *machine) behave() {
	m.empty()
	m.serve()
	m.comeAll()
	for i, d := range m.devices {
		switch {
		case d.drained:
			m.devices[i].drained = false
			m.tell(Resume{DeviceID(i)})
		case d.lost:
			m.bringBack(DeviceID(i))
		}
	}
	m.serve()
}

// empty checks that drained devices empty out.
func (m *machine) empty() {
	m.obey(false)
	for _, d := range m.core.View().Devices {
		if d.State == DeviceDraining {
			m.t.Fatalf("everybody was told to leave, and obeyed: %+v", d)
		}
	}
}

// comeAll checks that clients which have a part of what they want are told soon whether they get the
// rest.
func (m *machine) comeAll() {
	for range 3 {
		m.obey(false)
	}
	for _, id := range m.ids() {
		if m.model[id].coming {
			m.t.Fatalf("client %d waits for the rest of its memory", id)
		}
	}
}

func (m *machine) serve() {
	waiting := map[ClientID]bool{}
	for _, id := range m.ids() {
		waiting[id] = m.model[id].ready && !m.core.clients[id].parked
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
		m.obey(false)
	}
	m.t.Fatalf("somebody was not served in %d rounds: %v", limit, waiting)
}

// settle has all clients run for long, and leave and come back as they are told.
// Nobody comes: the number of moves is bounded (takeMove).
func (m *machine) settle() {
	for _, id := range m.ids() {
		if x := m.model[id]; x.ready {
			delete(m.model, id)
			m.tell(Detach{id})
		}
	}
	m.autos, m.quiet = 0, true
	for range 3 * len(m.devices) * len(m.devices) {
		for _, id := range m.ids() {
			if m.model[id].bound {
				m.runs(id, time.Duration(m.number(2))*time.Second)
			}
		}
		m.obey(true)
	}
}

func TestNothingForbiddenEverHappens(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		m := newMachine(t, drawConfig(t))
		defer func() {
			if t.Failed() {
				t.Logf("%s", m.log)
			}
		}()
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			m.step()
		}
		m.behave()
		m.settle()
	})
}

// Clients that all run spread over the devices that come, in few moves, and then
// nobody gains by another one.
func TestMovesComeToAnEnd(t *testing.T) {
	moves := 0
	seeds.Check(t, func(t *rapid.T) {
		cfg := Config{Migrate: true, MoveCost: 20 * time.Millisecond, MoveBandwidth: 2000}
		for i := range rapid.IntRange(2, 6).Draw(t, "devices") {
			cfg.Devices = append(cfg.Devices, Device{Name: fmt.Sprint("d", i), Slots: 6, Speed: float64(rapid.IntRange(1, 9).Draw(t, "speed")), Memory: 1000})
		}
		m := newMachine(t, cfg)
		for i := range m.devices[1:] {
			m.devices[i+1].drained = true
			m.tell(Drain{DeviceID(i + 1)})
		}
		for id := range ClientID(rapid.IntRange(1, 6).Draw(t, "clients")) {
			m.model[id] = &modelClient{user: "ann", hand: AnyDevice}
			m.tell(Attach{Client: id, User: "ann", Weight: 1})
			m.want(id, Want{Client: id, Need: 10, Pinned: AnyDevice})
		}
		for i := range m.devices[1:] {
			m.devices[i+1].drained = false
			m.tell(Resume{DeviceID(i + 1)})
		}
		m.quiet = true
		before := -1
		for rounds := 0; m.autos != before; rounds++ {
			before = m.autos
			for range 2 { // the first round may only take clients away
				for _, id := range m.ids() {
					m.runs(id, time.Second)
				}
				m.obey(true)
			}
		}
		moves += m.autos
		for _, idle := range m.core.devices {
			for _, x := range m.core.clients {
				if gain := idle.Speed * float64(x.dev.bound) / x.dev.Speed; idle.bound == 0 && gain >= minGain {
					t.Fatalf("client %d would be %v times as fast on device %d", x.id, gain, idle.id)
				}
			}
		}
	})
	if moves == 0 {
		t.Error("nobody was moved")
	}
}

// The same events give the same effects.
func TestDeterminism(t *testing.T) {
	seeds.Check(t, func(t *rapid.T) {
		seed := rapid.IntRange(0, 1<<30).Draw(t, "seed")
		play := func() (log []byte) {
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
		if a, b := play(), play(); !bytes.Equal(a, b) {
			t.Fatalf("two runs differ:\n%s\n%s", a, b)
		}
	})
}
