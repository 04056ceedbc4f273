package mapping

// static binds each process to one device of its own node, as without any mapping.
type static struct{ layout *Layout }

func (m *static) Map(c *Call, _ *View) int32 { return m.layout.home(c) }

// home is the device that a process is bound to. A process on a node without
// devices is bound to a device of another node, in the way of a user who must
// write the assignment down beforehand.
func (l *Layout) home(c *Call) int32 {
	if c.Home >= 0 {
		return c.Home
	}
	return c.Process % int32(l.Devices())
}

// reservation leaves calls in the one queue of all devices.
type reservation struct {
	layout     *Layout
	localFirst bool
}

func (m *reservation) Map(c *Call, v *View) int32 {
	if m.localFirst {
		own := m.layout.devicesOf(c.Node)
		for d := own.from; d < own.to; d++ {
			if v.Local.Queued(d) == 0 {
				return d
			}
		}
	}
	return Anywhere
}

// split binds a share of the processes of one application to devices of
// another, as is done with rCUDA before programs are started.
type split struct {
	layout *Layout
	app    int32
	// The share: some of every of processes.
	some, of int64
	devices  []int32 // in the order in which they are given to processes
}

func newSplit(l *Layout, some, of int64, app, to int32) *split {
	m := &split{layout: l, app: app, some: some, of: of}
	for i, added := int32(0), true; added; i++ {
		added = false
		for n := range int32(l.Nodes()) {
			if own := l.devicesOf(n); l.Owner[n] == to && own.from+i < own.to {
				m.devices, added = append(m.devices, own.from+i), true
			}
		}
	}
	return m
}

func (m *split) Map(c *Call, _ *View) int32 {
	if place, away := m.place(c); away {
		return m.devices[place%int64(len(m.devices))]
	}
	return m.layout.home(c)
}

// place is that of a process among those that were given away, if it is one of them.
func (m *split) place(c *Call) (place int64, away bool) {
	before := int64(c.Rank) * m.some / m.of
	after := (int64(c.Rank) + 1) * m.some / m.of
	return before, c.App == m.app && after > before
}
