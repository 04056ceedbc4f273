package nodetable

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"muster/internal/units"
	"muster/report"
	"muster/wire/status"
)

// clientColumns are all columns of muster ps -l. The first briefClient of them are those of
// muster ps.
var clientColumns = []column[status.Client]{
	{"<CLIENT", "client", func(_ *status.Node, c *status.Client) string { return fmt.Sprint(c.ID) }},
	{"<USER", "user", func(_ *status.Node, c *status.Client) string { return c.User }},
	{"<PROGRAM", "program", func(_ *status.Node, c *status.Client) string {
		return strings.Join(append([]string{filepath.Base(c.Program)}, c.Arguments...), " ")
	}},
	{"<DEVICE", "device", deviceOf},
	{"<STATE", "state", func(_ *status.Node, c *status.Client) string { return clientState(c) }},
	{">MEMORY", "memory_allocated_bytes", func(_ *status.Node, c *status.Client) string { return units.BriefSize(c.Allocated) }},

	{">PID", "pid", func(_ *status.Node, c *status.Client) string { return fmt.Sprint(c.Pid) }},
	{"<ADDRESS", "address", func(_ *status.Node, c *status.Client) string { return cmp.Or(c.Address, "-") }},
	{"<CLASS", "class", func(_ *status.Node, c *status.Client) string { return cmp.Or(c.Class, "-") }},
	{">RESIDENT", "memory_resident_bytes", func(_ *status.Node, c *status.Client) string { return units.BriefSize(c.Resident) }},
	{">SWAPPED", "memory_swapped_bytes", func(_ *status.Node, c *status.Client) string { return units.BriefSize(c.Swapped) }},
	{">LIMIT", "memory_limit_bytes", func(_ *status.Node, c *status.Client) string { return units.BriefSize(c.Limit) }},
	{">KERNELS", "kernels", func(_ *status.Node, c *status.Client) string { return fmt.Sprint(c.Kernels) }},
	{">GPU", "gpu_s", func(_ *status.Node, c *status.Client) string { return report.BriefTime(c.BusyTime) }},
	{">WAITS", "waits", func(_ *status.Node, c *status.Client) string { return fmt.Sprint(c.Waits) }},
	{">WAITED", "waited_s", func(_ *status.Node, c *status.Client) string { return report.BriefTime(c.WaitTime) }},
	{">LONGEST", "longest_wait_s", func(_ *status.Node, c *status.Client) string { return report.BriefTime(c.LongestWait) }},
	{">TURN", "turn_s", func(_ *status.Node, c *status.Client) string {
		if c.Turn == 0 {
			return "-"
		}
		return report.BriefTime(c.TurnUsed) + "/" + report.BriefTime(c.Turn)
	}},
	{">TURNS", "turns", func(_ *status.Node, c *status.Client) string { return fmt.Sprint(c.Turns) }},
	{">PREEMPTIONS", "preemptions", func(_ *status.Node, c *status.Client) string { return fmt.Sprint(c.Preemptions) }},
	{">SWAPS", "swaps", func(_ *status.Node, c *status.Client) string { return fmt.Sprint(c.Swaps) }},
	{">MOVING", "moving_s", func(_ *status.Node, c *status.Client) string { return report.BriefTime(c.MoveTime) }},
	{">MOVES", "moves", func(_ *status.Node, c *status.Client) string { return fmt.Sprint(c.Moves.Total()) }},
	{">AGE", "age_s", func(_ *status.Node, c *status.Client) string { return report.BriefTime(c.Since) }},
	{">WEIGHT", "weight", func(_ *status.Node, c *status.Client) string { return fmt.Sprint(c.Weight) }},
	{">PRIORITY", "priority", func(_ *status.Node, c *status.Client) string { return fmt.Sprint(c.Priority) }},
	{">HELD", "held_s", func(_ *status.Node, c *status.Client) string { return report.BriefTime(c.HeldTime) }},
	{"<MPS", "mps", func(_ *status.Node, c *status.Client) string { return cmp.Or(c.MPS, "-") }},
	{">SHARE", "share_pct", func(_ *status.Node, c *status.Client) string {
		if c.Share == 0 {
			return "-"
		}
		return fmt.Sprintf("%d%%", c.Share)
	}},
	{">WORKER", "worker_pid", func(_ *status.Node, c *status.Client) string {
		if c.Worker == 0 {
			return "-"
		}
		return fmt.Sprint(c.Worker)
	}},
	{">REBUILDS", "rebuilds", func(_ *status.Node, c *status.Client) string { return fmt.Sprint(c.Rebuilds) }},
	{"<RAN ON", "ran", func(_ *status.Node, c *status.Client) string { return cmp.Or(ranOn(c), "-") }},
}

const briefClient = 6

// ClientView is which clients of a node are listed, and how much is said of them.
type ClientView struct {
	Users, States []string // only these; none: all
	Device        int      // only those on this device; -1: those of all
	Ended         bool     // those that have ended
	Long          bool     // all that is known
}

// Of is the node with the chosen clients alone.
func (v *ClientView) Of(s *status.Node) *status.Node {
	if len(v.Users) == 0 && len(v.States) == 0 && v.Device < 0 {
		return s
	}
	chosen := *s
	other := func(c status.Client) bool {
		return len(v.Users) > 0 && !slices.Contains(v.Users, c.User) ||
			len(v.States) > 0 && !v.inState(&c) ||
			v.Device >= 0 && (c.Device == nil || *c.Device != v.Device)
	}
	chosen.Clients = slices.DeleteFunc(slices.Clone(s.Clients), other)
	chosen.Ended = slices.DeleteFunc(slices.Clone(s.Ended), other)
	return &chosen
}

// inState says whether a client is in one of the wanted states. One that is parked, away or cut
// is so besides.
func (v *ClientView) inState(c *status.Client) bool {
	return slices.ContainsFunc(v.States, func(state string) bool {
		return state == c.State || state == "parked" && c.Parked || state == "away" && c.Away || state == "cut" && c.Cut
	})
}

// Table lists the chosen clients of a node.
func (v *ClientView) Table(s *status.Node) *report.Table {
	columns := clientColumns
	if !v.Long {
		columns = columns[:briefClient]
	}
	s = v.Of(s)
	if v.Ended {
		return tableOf(columns, s, s.Ended)
	}
	return tableOf(columns, s, s.Clients)
}

// busyClients lists the clients of muster top.
func busyClients(s *status.Node) *report.Table {
	return tableOf(pick(clientColumns, "CLIENT", "USER", "PROGRAM", "DEVICE", "STATE", "MEMORY", "GPU", "TURN"), s, s.Clients)
}

// deviceOf names the device that a client is on, and those on which its kernels ran besides.
func deviceOf(s *status.Node, c *status.Client) string {
	if c.Device == nil {
		return "-"
	}
	device := fmt.Sprint(*c.Device)
	if uint(*c.Device) < uint(len(s.Devices)) { // a node may say anything
		device += " " + s.Devices[*c.Device].Name
		if lender := s.Devices[*c.Device].Lender; lender != "" {
			device += " at " + lender
		}
	}
	return device + furtherOf(s, c)
}

// furtherOf names the devices on which kernels of a mapped client run beside that of its lease, with how
// many did on each, that of the lease first: (30) +1 (20).
func furtherOf(s *status.Node, c *status.Client) string {
	var b strings.Builder
	ran := map[int]uint64{}
	for _, r := range c.Ran {
		ran[r.Device] = r.Kernels
	}
	for _, f := range c.Further {
		if !f.Lent && f.Kernels == 0 || f.Device == *c.Device {
			continue
		}
		if b.Len() == 0 {
			fmt.Fprintf(&b, " (%d)", ran[*c.Device])
		}
		fmt.Fprintf(&b, " +%d", f.Device)
		if uint(f.Device) < uint(len(s.Devices)) && s.Devices[f.Device].Lender != "" {
			b.WriteString(" at " + s.Devices[f.Device].Lender)
		}
		fmt.Fprintf(&b, " (%d)", max(ran[f.Device], f.Kernels))
	}
	return b.String()
}

// ranOn is how many kernels of a client ran on which device: 0: 30, 1: 20.
func ranOn(c *status.Client) string {
	all := make([]string, len(c.Ran))
	for i, r := range c.Ran {
		all[i] = fmt.Sprintf("%d: %d", r.Device, r.Kernels)
	}
	return strings.Join(all, ", ")
}

func clientState(c *status.Client) string {
	state := c.State
	if c.Parked {
		state += " (parked)"
	}
	if c.Away {
		state += " (away)"
	}
	if c.Cut {
		state += fmt.Sprintf(" (cut, %s left)", report.BriefTime(c.CutLeft))
	}
	return state
}
