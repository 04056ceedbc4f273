package clientcore

import (
	"math"
	"time"

	"muster/wire/control"
)

// What other programs do on the client's devices. The client's own launches are counted one by one
// in the mapper's table; of others only what the daemon says is known, a few times a second, and of
// devices of other nodes what their daemons said before that. So it may be old, and counts less the
// older it is.

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
		if o.device < len(m.rows) && m.rows[o.device] >= 0 {
			m.view.Table.Beside(m.rows[o.device], 0, 0)
		}
	}
	m.tellOthers(c.Now)
}

// tellOthers tells the table what is believed of other programs.
func (m *mapped) tellOthers(now Time) {
	m.othersAt = now
	for i := range m.others {
		o := &m.others[i]
		if o.device < len(m.rows) && m.rows[o.device] >= 0 {
			m.view.Table.Beside(m.rows[o.device], o.believed(now), o.each)
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
