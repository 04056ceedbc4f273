package clientcore

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"muster/mapping"
	"muster/vmm"
	"muster/wire/control"
)

// mapped is what the core needs to map launches to devices: a mapper, the table of the client's
// devices, and the launches that have not ended. It is no part of the client's state: after a
// restore it is made again.
type mapped struct {
	*standing
	loans *loans

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
	aged     Time     // when far devices were last checked for outdated run times
	others   []others // what other programs do on the client's devices
	othersAt Time     // when the table was last told of it
	queues   []int32  // what other mapped programs have queued now, by device

	choice chosen
	last   Decision
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

// newMapped makes the mapper that the configuration names; nil for none.
func newMapped(c *Core) (*mapped, error) {
	spec := c.config.Mapping
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
	return &mapped{standing: &c.standing, loans: &c.loans,
		spec: spec, home: name == "st", chance: rand.New(rand.NewPCG(1, 2)), kernels: map[Kernel]int32{}, rates: map[string]float64{}, refused: map[refusedAt]bool{}}, nil
}

// stale notes that the client's devices have changed.
func (m *mapped) stale() {
	if m != nil {
		m.mapper = nil
	}
}

// chooseAnew forgets the choice for the message before.
func (m *mapped) chooseAnew() {
	if m != nil {
		m.choice = chosen{}
	}
}

// chooseHome has the current message run at home.
func (m *mapped) chooseHome() { m.choice = chosen{decided: true, device: m.Lease.Device} }

// hasChosen says whether the current message has a device, which the client may still use.
func (m *mapped) hasChosen() bool {
	d := m.choice.device
	return m.choice.decided && (d == m.Lease.Device || m.loans.further(d).lent())
}

// staysHome notes why a launch runs at home.
func (m *mapped) staysHome(f *Function, why string) launching {
	m.last = Decision{Kernel: f.Info.Name, Device: m.Lease.Device, Why: why}
	return launching{}
}

// choose asks the mapper. The launch uses so many bytes, of which shares are on devices.
func (m *mapped) choose(f *Function, number uint32, shares []vmm.Share, bytes uint64) error {
	if m.mapper == nil {
		if err := m.renew(); err != nil {
			return err
		}
	}
	m.chooseHome()
	m.call = mapping.Call{
		Node: int32(len(m.devices)), Kernel: m.kernel(Kernel{f.Module, number}), Home: m.rows[m.Lease.Device],
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
		m.view.Now = m.Now
		m.age()
		m.ageOthers(m.Now)
		if m.config.Explain {
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

// refuses notes that a device has refused a module: its kernels run elsewhere.
func (m *mapped) refuses(device int, serial uint64) { m.refused[refusedAt{device, serial}] = true }

// renew makes the table of the devices that the client may use now. What the former table has
// learned about launches is forgotten.
func (m *mapped) renew() error {
	m.devices = append(m.devices[:0], m.Lease.Device)
	for i := range m.loans.Further {
		if f := &m.loans.Further[i]; f.lent() {
			m.devices = append(m.devices, f.Device)
		}
	}
	slices.Sort(m.devices)
	m.rows = slices.Repeat([]int32{-1}, len(m.config.Devices))
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
		m.layout.Speed[row] = cmp.Or(max(0, m.config.Devices[device].Speed), 1)
		m.layout.Links[row] = m.bandwidth(m.config.Devices[device].Link)
	}
	m.layout.First[n], m.layout.First[n+1] = int32(n), int32(n)
	m.layout.Cores[n] = int32(max(1, m.config.Cores/n)) // the program's node has no device to the mapper: this is cores by device
	mapper, err := mapping.New(m.spec, &m.layout)
	if err != nil {
		return err
	}
	m.mapper = mapper
	table := mapping.NewTable(&m.layout, window)
	table.Estimate = mapping.EstimateOf(mapper)
	m.view = mapping.View{Table: table, Local: table, Rand: m.chance}
	m.flights, m.idle = make([][]flight, n), make([]Time, n)
	m.tellOthers(m.Now)
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
func (m *mapped) moved(legs []Leg) {
	if m == nil {
		return
	}
	for _, leg := range legs {
		if leg.Bytes == 0 || leg.Took <= 0 {
			continue
		}
		device := leg.Place.Index()
		link := m.config.Devices[device].Link
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
func (m *mapped) age() {
	if m.Now-m.aged < outdated/10 {
		return
	}
	m.aged = m.Now
	for row, device := range m.devices {
		if m.config.Devices[device].Far && len(m.flights[row]) == 0 && m.Now-m.idle[row] >= outdated {
			m.view.Table.Forget(int32(row))
		}
	}
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

// took notes that a launch was submitted to its device. It returns the launch's ticket, under which
// Ran reports its run time.
func (m *mapped) took() uint64 {
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
		m.view.Table.Begin(row, expected, m.Now)
	}
	if f := m.loans.further(m.choice.device); f != nil && f.Number > 0 {
		f.Kernels++
		f.Last, f.Vain = m.Now, 0
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
func (m *mapped) Ran(now Time, ended []KernelEnd) {
	if m == nil {
		return
	}
	for _, e := range ended {
		if f := m.loans.further(e.Device); f != nil && f.Number > 0 {
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
func (m *mapped) Decided() (Decision, bool) {
	if m == nil {
		return Decision{}, false
	}
	return m.last, true
}

// What other programs do on the client's devices. The client's own launches are counted one by one
// in the mapper's table. Those of the node's other mapped programs are too: the executor knows how many
// they have queued now (Queues). Of all others only what the daemon says is known, a few times a
// second, and of devices of other nodes what their daemons said before that. So it may be old, and
// counts less the older it is.

// others is what other programs have on a device.
type others struct {
	device int
	calls  int // in thousandths
	each   time.Duration
	at     Time // when that was so
}

// Half of what was said of others counts after halfLife, and nothing after outOfDate. These are the
// rules for what nodes say of their free virtual GPUs (node/offload), too.
const (
	halfLife  = 2 * time.Second
	outOfDate = 15 * time.Second
)

// renewOthers is how often the table is told how old knowledge has become.
const renewOthers = 100 * time.Millisecond

// believed is how many calls of others are assumed to be there at a time.
func (o *others) believed(now Time) int32 {
	age := max(0, now-o.at)
	if age >= outOfDate {
		return 0
	}
	return int32(min(math.Round(float64(o.calls)/1000*math.Exp2(-age.Seconds()/halfLife.Seconds())), maxOthers))
}

// maxOthers bounds how many calls of others a device may have, whatever is said.
const maxOthers = 1 << 20

// beside notes what the daemon says of other programs, instead of what it said before.
func (m *mapped) beside(said control.Beside) {
	if m == nil {
		return
	}
	before := m.others
	m.others = nil
	for _, b := range said.Devices {
		if b.Device < len(m.config.Devices) {
			m.others = append(m.others, others{b.Device, b.Calls, b.Each, m.Now - b.Age})
		}
	}
	if m.mapper == nil {
		return // the next table is told when it is made
	}
	for _, o := range before { // those that are not named any more have none
		m.tellOf(o.device, nil, m.Now)
	}
	m.tellOthers(m.Now)
}

// Queues says how many launches other mapped programs of the node have on a device now. It may be
// called before each message, and causes no operation.
func (m *mapped) Queues(device, calls int) {
	if m == nil || device < 0 || device >= len(m.config.Devices) {
		return
	}
	for len(m.queues) <= device {
		m.queues = append(m.queues, 0)
	}
	if n := int32(min(calls, maxOthers)); m.queues[device] != n {
		m.queues[device] = n
		if m.mapper != nil {
			m.tellOf(device, m.said(device), m.Now)
		}
	}
}

// MappedTo are the devices among which the mapper chooses now.
func (m *mapped) MappedTo() []int {
	if m == nil || m.mapper == nil {
		return nil
	}
	return m.devices
}

// said is what the daemon said of a device; nil if nothing.
func (m *mapped) said(device int) *others {
	for i := range m.others {
		if m.others[i].device == device {
			return &m.others[i]
		}
	}
	return nil
}

// tellOf tells the table of others on one device: o is what the daemon said, or nil.
func (m *mapped) tellOf(device int, o *others, now Time) {
	if device >= len(m.rows) || m.rows[device] < 0 {
		return
	}
	row, calls, each := m.rows[device], int32(0), time.Duration(0)
	if o != nil {
		calls, each = o.believed(now), o.each
	}
	if device < len(m.queues) && m.queues[device] > 0 {
		calls += m.queues[device]
		each = max(each, m.view.Table.Mean(row)) // as long as the client's own, for want of better
	}
	m.view.Table.Beside(row, calls, each)
}

// tellOthers tells the table what is believed of other programs.
func (m *mapped) tellOthers(now Time) {
	m.othersAt = now
	for i := range m.others {
		m.tellOf(m.others[i].device, &m.others[i], now)
	}
	for device := range m.queues {
		if m.said(device) == nil {
			m.tellOf(device, nil, now)
		}
	}
}

// ageOthers tells the table anew when what is known has become older.
func (m *mapped) ageOthers(now Time) {
	if len(m.others) > 0 && now-m.othersAt >= renewOthers {
		m.tellOthers(now)
	}
}

// queuedAt is how many launches of the client on a device have not ended.
func (m *mapped) queuedAt(device int) int {
	if m == nil || m.mapper == nil || device < 0 || device >= len(m.rows) || m.rows[device] < 0 {
		return 0
	}
	return len(m.flights[m.rows[device]])
}
