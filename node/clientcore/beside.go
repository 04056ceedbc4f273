package clientcore

import (
	"math"
	"time"

	"muster/wire/control"
)

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
func (m *mapped) beside(c *Core, said control.Beside) {
	if m == nil {
		return
	}
	before := m.others
	m.others = nil
	for _, b := range said.Devices {
		if b.Device < len(c.config.Devices) {
			m.others = append(m.others, others{b.Device, b.Calls, b.Each, c.Now - b.Age})
		}
	}
	if m.mapper == nil {
		return // the next table is told when it is made
	}
	for _, o := range before { // those that are not named any more have none
		m.tellOf(o.device, nil, c.Now)
	}
	m.tellOthers(c.Now)
}

// Queues says how many launches other mapped programs of the node have on a device now. It may be
// called before each message, and causes no operation.
func (c *Core) Queues(device, calls int) {
	m := c.mapping
	if m == nil || device < 0 || device >= len(c.config.Devices) {
		return
	}
	for len(m.queues) <= device {
		m.queues = append(m.queues, 0)
	}
	if n := int32(min(calls, maxOthers)); m.queues[device] != n {
		m.queues[device] = n
		if m.mapper != nil {
			m.tellOf(device, m.said(device), c.Now)
		}
	}
}

// MappedTo are the devices among which the mapper chooses now.
func (c *Core) MappedTo() []int {
	if c.mapping == nil || c.mapping.mapper == nil {
		return nil
	}
	return c.mapping.devices
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
