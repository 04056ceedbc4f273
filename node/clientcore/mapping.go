package clientcore

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"muster/device"
	"muster/mapping"
	"muster/vmm"
)

// mapped is what the core needs to map launches to devices: a mapper, the table of the client's
// devices, and the launches that have not ended. It is no part of the client's state: after a
// restore it is made again.
type mapped struct {
	spec   string
	mapper mapping.Mapper // nil: the devices have changed, so it must be made again
	home   bool           // the mapper sends nothing elsewhere, so no other device is asked for
	layout mapping.Layout
	view   mapping.View
	call   mapping.Call
	chance *rand.Rand

	devices []int   // of the table, by their numbers in Config.Devices
	rows    []int32 // the inverse; -1 for devices that are not in the table
	idle    []Time  // since when each device of the table is idle
	flights [][]flight
	ticket  uint64

	kernels  map[Kernel]int32
	rates    map[string]float64 // bytes per second of recent moves, by link
	refused  map[refusedAt]bool
	aged     Time                // when far devices were last checked for outdated run times
	watched  map[Kernel]*watched // kernels that follow pointers
	others   []others            // what other programs do on the client's devices
	othersAt Time                // when the table was last told of it
	queues   []int32             // what other mapped programs have queued now, by device

	choice chosen
	last   Decision

	shares         []vmm.Share
	words, written []byte
}

// flight is a launch that has not ended.
type flight struct {
	ticket   uint64
	call     mapping.Call
	expected time.Duration
	begun    bool
}

// refusedAt is a module that a device has refused.
type refusedAt struct {
	device int
	module uint64
}

// chosen is the device of the current message, once decided. It is kept because the message may be
// handled several times from its beginning.
type chosen struct {
	decided bool
	device  int
}

// Decision says how the device of the last launch was chosen.
type Decision struct {
	Kernel  string
	Device  int
	Moves   uint64          // bytes that must be copied there first
	Why     string          // why it was not the mapper's decision
	Account mapping.Account // by index in Devices; only with Config.Explain
	Devices []int
}

// window is how many run times of a device are averaged (k in the paper).
const window = 10

// outdated is how long the run times on another node's device are valid: other programs there come
// and go, and all that is known about them is how long kernels took beside them.
const outdated = 10 * time.Second

// The assumed bandwidth of moves before any was measured, in bytes per second: of a copy through
// the host's memory, and of a slow network. A link that is assumed too slow gets measured as soon
// as enough kernels wait to make a move pay; one that is assumed too fast costs the program a long
// move.
const (
	unmeasured    = 4 << 30
	unmeasuredFar = 117 << 20
)

// newMapped makes the mapper that a setting names; nil for none.
func newMapped(spec string) (*mapped, error) {
	if spec == "" || spec == "off" {
		return nil, nil
	}
	if err := mapping.Check(spec); err != nil {
		return nil, err
	}
	name, _, _ := strings.Cut(spec, ":")
	if (name == "ag" || name == "ar") && !strings.Contains(spec, ":locality=") {
		spec += ":locality=yes" // the directory knows where data are
	}
	return &mapped{spec: spec, home: name == "st", chance: rand.New(rand.NewPCG(1, 2)), kernels: map[Kernel]int32{}, rates: map[string]float64{}, refused: map[refusedAt]bool{}, watched: map[Kernel]*watched{}}, nil
}

// stale notes that the client's devices have changed.
func (m *mapped) stale() {
	if m != nil {
		m.mapper = nil
	}
}

// leased notes that the client has another lease: a decision for the current message was made for
// other devices.
func (m *mapped) leased() {
	if m != nil {
		m.mapper, m.choice = nil, chosen{}
	}
}

// refuses notes that a device has refused a module: its kernels run elsewhere.
func (m *mapped) refuses(device int, serial uint64) { m.refused[refusedAt{device, serial}] = true }

// renew makes the table of the devices that the client may use now. What the former table has
// learned about launches is forgotten.
func (m *mapped) renew(c *Core) error {
	m.devices = append(m.devices[:0], c.Lease.Device)
	for i := range c.Further {
		if f := &c.Further[i]; f.lent() {
			m.devices = append(m.devices, f.Device)
		}
	}
	slices.Sort(m.devices)
	m.rows = slices.Repeat([]int32{-1}, len(c.config.Devices))
	n := len(m.devices)
	// Each device is a node of its own, and the program is on another: data travel between all of
	// them.
	m.layout = mapping.Layout{
		NodeOf: make([]int32, n), First: make([]int32, n+2), Cores: make([]int32, n+1), Speed: make([]float64, n),
		Owner: make([]int32, n+1), Critical: []bool{false}, Links: make([]int64, n+1), // the program's own has no limit
	}
	for row, device := range m.devices {
		m.rows[device] = int32(row)
		m.layout.NodeOf[row], m.layout.First[row] = int32(row), int32(row)
		m.layout.Speed[row] = c.config.Devices[device].speed()
		m.layout.Links[row] = m.bandwidth(c.config.Devices[device].Link)
	}
	m.layout.First[n], m.layout.First[n+1] = int32(n), int32(n)
	m.layout.Cores[n] = int32(max(1, c.config.Cores/n)) // the program's node has no device to the mapper: this is cores by device
	mapper, err := mapping.New(m.spec, &m.layout)
	if err != nil {
		return err
	}
	m.mapper = mapper
	table := mapping.NewTable(&m.layout, window)
	table.Estimate = mapping.EstimateOf(mapper)
	m.view = mapping.View{Table: table, Local: table, Rand: m.chance}
	m.flights, m.idle = make([][]flight, n), make([]Time, n)
	m.tellOthers(c.Now)
	return nil
}

// bandwidth is that of moves over a link, in bytes per second.
func (m *mapped) bandwidth(link string) int64 {
	if rate := m.rates[link]; rate > 0 {
		return max(1, int64(rate))
	}
	if link != "" {
		return unmeasuredFar
	}
	return unmeasured
}

// moved notes how long a move took on each link, smoothed with weight 1/8. If the rate differs by
// more than a factor of 2 from what the mapper assumes, the table is made again.
func (m *mapped) moved(c *Core, legs []Leg) {
	if m == nil {
		return
	}
	for _, leg := range legs {
		if leg.Bytes == 0 || leg.Took <= 0 {
			continue
		}
		device := leg.Place.Index()
		link := c.config.Devices[device].Link
		rate := float64(leg.Bytes) / leg.Took.Seconds()
		if before := m.rates[link]; before > 0 {
			rate = before + (rate-before)/8
		}
		m.rates[link] = rate
		if m.mapper == nil || device >= len(m.rows) || m.rows[device] < 0 {
			continue
		}
		if was := float64(m.layout.Links[m.rows[device]]); rate > 2*was || rate < was/2 {
			m.stale()
		}
	}
}

// age forgets the run times on far devices that have been idle for a while.
func (m *mapped) age(c *Core) {
	if c.Now-m.aged < outdated/10 {
		return
	}
	m.aged = c.Now
	for row, device := range m.devices {
		if c.config.Devices[device].Far && len(m.flights[row]) == 0 && c.Now-m.idle[row] >= outdated {
			m.view.Table.Forget(int32(row))
		}
	}
}

func (d *Device) speed() float64 {
	if d.Speed > 0 {
		return d.Speed
	}
	return 1
}

// reach returns the memory that a launch uses, and the part that the kernel may write, sorted by
// address; false if it may use anything.
func (c *Core) reach(f *Function, params []byte) (used, written []vmm.Range, known bool) {
	t := f.Info.Touches
	if t == nil {
		return nil, nil, false
	}
	m := c.mapping
	m.words, m.written = m.words[:0], m.written[:0]
	for i := range t.Accesses {
		a := &t.Accesses[i]
		found, null := false, true
		for _, w := range a.Words {
			if 8*w+8 > len(params) {
				return nil, nil, false
			}
			word := params[8*w : 8*w+8]
			addr := binary.LittleEndian.Uint64(word)
			null = null && addr == 0
			if r := (vmm.Range{Addr: addr, Size: 1}); c.sharesRange(r) || c.mapsHost(r) {
				found = true // every context has it
				continue
			}
			if r, ok := c.space.Find(addr); ok {
				found = true
				m.uses(addr, a.Writes)
				// A pointer to the end of an allocation, or one element before its beginning, may lie in
				// the neighbour. Large allocations have none, small ones mostly share its chunk.
				if addr == r.Addr {
					if _, ok := c.space.Find(addr - 1); ok {
						m.uses(addr-1, a.Writes)
					}
				}
				if end := r.Addr + r.Size; end-addr <= largestElement {
					if _, ok := c.space.Find(end); ok {
						m.uses(end, a.Writes)
					}
				}
			}
		}
		if !found && !null { // a variable, or an address outside any allocation
			return nil, nil, false
		}
	}
	used = c.space.Reachable(m.words)
	if len(m.written) == len(m.words) {
		return used, used, true
	}
	return used, c.space.Reachable(m.written), true
}

// largestElement is how many bytes an element of an array has at most, for pointers to the one before
// the first.
const largestElement = 16

// uses adds the allocation around an address to what a launch uses.
func (m *mapped) uses(addr uint64, writes bool) {
	m.words = binary.LittleEndian.AppendUint64(m.words, addr)
	if writes {
		m.written = binary.LittleEndian.AppendUint64(m.written, addr)
	}
}

// stays returns why a launch must run at home, whatever the mapper would say; "" if it need not.
func (c *Core) stays(f *Function) string {
	switch {
	case c.keepsHome:
		return "the client is being rebuilt, and could not be with the help of other devices"
	case c.Together:
		return "streams of the program wait for words in memory"
	case c.Outstanding() > 0:
		return "a function of the program has not returned"
	case len(c.config.Devices) < 2:
		return "the node has one device"
	case !c.puts && c.Modules.Variables > 0:
		return "the devices cannot put variables where the program knows them"
	case f.Info.Touches == nil && !f.Info.Follows:
		return "the kernel may use anything: variables, textures, or what functions do that it calls"
	case f.Info.Touches == nil && !c.guards(f):
		return "the kernel follows pointers in memory, and its device cannot guard it, or the program has variables"
	}
	return ""
}

// KeepHome has all launches run on the device of the lease from now on, or ends that. So a client that
// is rebuilt depends on no other device, which may fail again.
func (c *Core) KeepHome(on bool) { c.keepsHome = on }

// launching is the result of mapLaunch.
type launching struct {
	mapped  bool // the mapper chose at, and everything is there; else the launch runs at home, with all memory
	waits   bool // the message must wait
	at      vmm.Place
	written []vmm.Range // the memory that the kernel may write
	guard   *Guarded    // if not nil, the kernel may use nothing else; nil if its code tells what it uses
}

// mapLaunch chooses the device of a launch and has the memory it uses brought there.
func (c *Core) mapLaunch(f *Function, number uint32, params []byte) (launching, error) {
	why := c.stays(f)
	if why != "" {
		return c.staysHome(f, why), nil
	}
	used, written, guard, why := c.uses(f, Kernel{f.Module, number}, params)
	if why != "" {
		return c.staysHome(f, why), nil
	}
	if ok, err := c.leased(c.needs(params)); !ok || err != nil {
		return launching{waits: !ok}, err
	}
	if x := c.here(); x == nil || !c.allPlaced(x) || len(c.lacksTextures(x)) > 0 {
		if ok, err := c.ready(need{}); !ok || err != nil {
			return launching{waits: !ok}, err
		}
	}
	m := c.mapping
	if !m.home {
		c.wantFurther(c.bytes(need{all: true}))
	}
	if d := m.choice.device; !m.choice.decided || d != c.Lease.Device && !c.further(d).lent() {
		if err := c.choose(f, number, used); err != nil {
			return launching{}, err
		}
	}
	at := c.config.Devices[m.choice.device].Place
	if guard != nil && at == c.place() {
		return launching{}, nil // at home it has all memory, and the core need not wait for it
	}
	if guard != nil && (!c.config.Devices[m.choice.device].Guards || c.room(at) < c.space.Chunked()) {
		return c.staysHome(f, "the kernel follows pointers in memory, and the other device cannot guard it, or has no room for all memory"), nil
	}
	ok, err := c.readyAt(at, f.Module, used)
	if err != nil && m.choice.device != c.Lease.Device { // it does not fit there
		m.choice.device = c.Lease.Device
		if guard != nil {
			return launching{}, nil
		}
		at = c.place()
		ok, err = c.readyAt(at, f.Module, used)
	}
	if guard != nil {
		guard.Ranges = c.wholeChunks(used)
	}
	return launching{mapped: true, waits: !ok, at: at, written: written, guard: guard}, err
}

// uses returns the memory that a launch uses, the part that the kernel may write, and its guard if
// that is known only from earlier launches; or why the launch stays at home.
func (c *Core) uses(f *Function, k Kernel, params []byte) (used, written []vmm.Range, guard *Guarded, why string) {
	if f.Info.Touches == nil {
		used, known := c.expected(k, params)
		if !known {
			return nil, nil, nil, "nothing is known yet of what the kernel uses, which follows pointers in memory: it is watched"
		}
		return used, used, &Guarded{Traps: true, Kernel: k}, ""
	}
	used, written, known := c.reach(f, params)
	if !known {
		return nil, nil, nil, "a parameter points to a variable, or to no memory of the program"
	}
	return used, written, nil, ""
}

// staysHome notes why a launch runs at home.
func (c *Core) staysHome(f *Function, why string) launching {
	c.mapping.last = Decision{Kernel: f.Info.Name, Device: c.Lease.Device, Why: why}
	return launching{}
}

// choose asks the mapper.
func (c *Core) choose(f *Function, number uint32, used []vmm.Range) error {
	m := c.mapping
	if m.mapper == nil {
		if err := m.renew(c); err != nil {
			return err
		}
	}
	m.choice.decided, m.choice.device = true, c.Lease.Device
	shares, bytes := c.space.Shares(used, m.shares[:0])
	m.shares = shares
	m.call = mapping.Call{
		Node: int32(len(m.devices)), Kernel: m.kernel(Kernel{f.Module, number}), Home: m.rows[c.Lease.Device],
		In: int64(bytes), Resident: m.call.Resident[:0],
	}
	for _, s := range shares {
		if row := m.rows[s.Device.Index()]; row >= 0 {
			m.call.Resident = append(m.call.Resident, mapping.Resident{Device: row, Bytes: int64(s.Bytes)})
		}
	}
	m.last = Decision{Kernel: f.Info.Name, Devices: m.devices}
	row := int32(0)
	if len(m.devices) > 1 {
		m.view.Now = c.Now
		m.age(c)
		m.ageOthers(c.Now)
		if c.config.Explain {
			m.last.Account = mapping.Explain(m.mapper, &m.call, &m.view)
			row = m.last.Account.Device
		} else {
			row = m.mapper.Map(&m.call, &m.view)
		}
		if row == mapping.Anywhere {
			row = m.free()
		}
	}
	if d := m.devices[row]; !m.refused[refusedAt{d, f.Module}] {
		m.choice.device = d
	}
	m.last.Device = m.choice.device
	m.last.Moves = bytes - uint64(m.call.ResidentOn(m.rows[m.choice.device]))
	return nil
}

// free is the device that takes a call from the queue that all devices share: the one that has been
// idle longest or, if none is idle, the one with the fewest calls, home first among equals: so two
// programs that see each other everywhere keep apart. If there are more than 64 devices it looks at 64
// of them.
func (m *mapped) free() int32 {
	const most = 64
	if idle := m.view.Table.Idle(); len(idle) > 0 {
		best := idle[0]
		for _, row := range idle[1:min(len(idle), most)] {
			if m.idle[row] < m.idle[best] || m.idle[row] == m.idle[best] && row < best {
				best = row
			}
		}
		return best
	}
	n := int32(len(m.devices))
	first := int32(0)
	if n > most {
		first = m.chance.Int32N(n)
	}
	best := m.call.Home
	for i := range min(n, most) {
		if row := (first + i) % n; m.view.Table.Queued(row) < m.view.Table.Queued(best) {
			best = row
		}
	}
	return best
}

func (m *mapped) kernel(n Kernel) int32 {
	number, ok := m.kernels[n]
	if !ok {
		number = int32(len(m.kernels))
		m.kernels[n] = number
	}
	return number
}

// readyAt makes memory and a module usable at a place. It returns false if the message must wait.
func (c *Core) readyAt(p vmm.Place, module uint64, used []vmm.Range) (bool, error) {
	x := c.context(p)
	if x == nil {
		c.openFurther(p.Index())
		return false, nil
	}
	if c.isFurther(p) && !x.Has[module] {
		mod := c.Modules.All[module]
		c.loading, c.loadingAt = module, x
		c.ask(Op{Kind: Load, Place: p, Module: module, Image: mod.Image, Globals: append([]device.Global{}, mod.Info.Globals...)})
		return false, nil
	}
	plan, err := c.space.Prepare(p, used, c.room(p))
	if err != nil || len(plan) == 0 {
		return true, err
	}
	if f := c.further(p.Index()); f != nil {
		f.Moved += plan.Arrives()
	}
	c.move(plan)
	return false, nil
}

// took notes that a launch was submitted to its device. It returns the launch's ticket, under which
// Ran reports its run time.
func (m *mapped) took(c *Core) uint64 {
	if m.choice.device >= len(m.rows) || m.rows[m.choice.device] < 0 {
		return 0 // the devices have changed since the decision
	}
	row := m.rows[m.choice.device]
	call := m.call
	call.Resident = nil
	call.Node = m.layout.NodeOf[row] // its data are there, so nothing of it is on a link
	expected := m.view.Table.Assign(&call, row)
	m.ticket++
	first := len(m.flights[row]) == 0
	m.flights[row] = append(m.flights[row], flight{m.ticket, call, expected, first})
	if first {
		m.view.Table.Begin(row, expected, c.Now)
	}
	if f := c.further(m.choice.device); f != nil && f.Number > 0 {
		f.Kernels++
		f.Last, f.Vain = c.Now, 0
	}
	return m.ticket
}

// KernelEnd says how long the launch with a ticket ran on a device.
type KernelEnd struct {
	Ticket uint64
	Device int
	Took   time.Duration
}

// Ran says that launches have ended. It may be called whenever no operation is being performed, and
// causes none.
func (c *Core) Ran(now Time, ended []KernelEnd) {
	m := c.mapping
	if m == nil {
		return
	}
	for _, e := range ended {
		if f := c.further(e.Device); f != nil && f.Number > 0 {
			f.Ran += e.Took
		}
		if m.mapper == nil || e.Device >= len(m.rows) || m.rows[e.Device] < 0 {
			continue // the device is not in the table, or there is none
		}
		row := m.rows[e.Device]
		all := m.flights[row]
		i := slices.IndexFunc(all, func(f flight) bool { return f.ticket == e.Ticket })
		if i < 0 {
			continue
		}
		m.view.Table.Finish(&all[i].call, row, all[i].expected, e.Took)
		m.flights[row] = slices.Delete(all, i, i+1)
		if rest := m.flights[row]; len(rest) == 0 {
			m.idle[row] = now
		} else if !rest[0].begun {
			rest[0].begun = true
			m.view.Table.Begin(row, rest[0].expected, now)
		}
	}
}

// Decided returns how the device of the last launch was chosen; false for a client without a
// mapper.
func (c *Core) Decided() (Decision, bool) {
	if c.mapping == nil {
		return Decision{}, false
	}
	return c.mapping.last, true
}
