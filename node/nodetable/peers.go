package nodetable

import (
	"cmp"
	"fmt"
	"io"

	"muster/internal/units"
	"muster/report"
	"muster/wire/status"
)

// Peers is what muster peers --json prints: from whom a node borrows, and what it has lent.
type Peers struct {
	Node  string        `json:"node"`
	Peers []status.Peer `json:"peers"`
	Lent  []status.Lent `json:"lent"`
}

// PeersOf is a node's peers, with lists that are never null.
func PeersOf(s *status.Node) Peers {
	return Peers{s.Node, append([]status.Peer{}, s.Peers...), append([]status.Lent{}, s.Lent...)}
}

var peerColumns = []column[status.Peer]{
	{"<PEER", "address", func(_ *status.Node, p *status.Peer) string { return p.Address }},
	{"<NODE", "node", func(_ *status.Node, p *status.Peer) string {
		if p.Self {
			return cmp.Or(p.Node, "-") + " (itself)"
		}
		return cmp.Or(p.Node, "-")
	}},
	{">HEARD", "heard_s", func(_ *status.Node, p *status.Peer) string {
		switch {
		case p.Self:
			return "-"
		case p.Heard < 0:
			return "never"
		}
		return report.BriefTime(p.Heard)
	}},
	{">VGPUS", "vgpus", func(_ *status.Node, p *status.Peer) string { return fmt.Sprint(p.Slots) }},
	{">FREE", "vgpus_free", func(_ *status.Node, p *status.Peer) string { return fmt.Sprint(p.Free) }},
	{">WAITING", "waiting", func(_ *status.Node, p *status.Peer) string { return fmt.Sprint(p.Waiting) }},
	{">UNUSED", "unused_speed", func(_ *status.Node, p *status.Peer) string {
		if p.Unused == 0 {
			return "-"
		}
		return fmt.Sprintf("%.3g", p.Unused)
	}},
	{">BORROWED", "borrowed", func(_ *status.Node, p *status.Peer) string { return fmt.Sprint(p.Borrowed) }},
	{">PROGRAMS", "programs", func(_ *status.Node, p *status.Peer) string { return fmt.Sprint(p.Clients) }},
}

// lent is what a node has lent, with what the device did for the borrower.
type lent struct {
	status.Lent
	did status.Served
}

var lentColumns = []column[lent]{
	{"<LENT TO", "node", func(_ *status.Node, l *lent) string { return l.Node }},
	{">DEVICE", "device", func(_ *status.Node, l *lent) string { return fmt.Sprint(l.Device) }},
	{">VGPUS", "vgpus", func(_ *status.Node, l *lent) string { return fmt.Sprint(l.Slots) }},
	{"<STATE", "recalled", func(_ *status.Node, l *lent) string {
		if l.Recalled {
			return "recalled"
		}
		return "lent"
	}},
	{">PROGRAMS", "programs", func(_ *status.Node, l *lent) string { return fmt.Sprint(l.Clients) }},
	{">KERNELS", "", func(_ *status.Node, l *lent) string { return fmt.Sprint(l.did.Kernels) }},
	{">IN", "", func(_ *status.Node, l *lent) string { return units.BriefSize(l.did.CopiedIn) }},
	{">OUT", "", func(_ *status.Node, l *lent) string { return units.BriefSize(l.did.CopiedOut) }},
}

// WritePeers lists those from whom a node borrows, and below them what it has lent.
func WritePeers(w io.Writer, s *status.Node, columns int) error {
	if len(s.Peers) == 0 {
		fmt.Fprintf(w, "node %s borrows of no others (peers in its configuration)\n", s.Node)
	} else if err := tableOf(peerColumns, s, s.Peers).WriteFitted(w, columns); err != nil {
		return err
	}
	if len(s.Lent) == 0 {
		return nil
	}
	var list []lent
	for _, l := range s.Lent {
		list = append(list, lent{l, s.ServedOf(l)})
	}
	fmt.Fprintln(w)
	return tableOf(lentColumns, s, list).WriteFitted(w, columns)
}

// loans says in a line each what a node has of others and others of it; nothing if that is nothing.
func loans(s *status.Node) (lines []string) {
	for _, l := range s.Borrows() {
		lines = append(lines, fmt.Sprintf("borrowed of %s: %s, %s there, %s sent, %s received",
			report.Printable(l.Node), units.Plural(l.Slots, "virtual GPU"), units.Plural(l.Clients, "program"), units.BriefSize(l.Sent), units.BriefSize(l.Received)))
	}
	for _, l := range s.Lent {
		slots := ""
		if l.Slots > 0 {
			slots = units.Plural(l.Slots, "virtual GPU") + " of it, "
		}
		did := s.ServedOf(l)
		lines = append(lines, fmt.Sprintf("lent to %s: device %d, %s%s there, %s, %s received, %s sent",
			report.Printable(l.Node), l.Device, slots, units.Plural(l.Clients, "program"), units.Plural(int(min(did.Kernels, 1<<62)), "kernel"),
			units.BriefSize(did.CopiedIn), units.BriefSize(did.CopiedOut)))
	}
	return lines
}
