package nodetable

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"muster/internal/units"
	"muster/report"
	"muster/wire/status"
)

// Picture is what muster top shows: how a node or a cluster is, how busy it was since the picture
// before, and what of it the user chose to see by keys.
type Picture struct {
	Columns  int  // of the screen; 0: unknown
	Coloured bool // bars and problems are
	// Least is how many seconds are between the statuses of a node that are compared, at least.
	Least float64

	bars    bars
	node    *status.Node // as it was in the picture before
	cluster *Cluster     // likewise
	order   byte         // the key of an order; 0: as the node lists its clients
	above   int          // lines that are scrolled out of sight
	help    bool
}

const topKeys = `Keys of muster top:

  g        programs with most GPU time first
  m        programs with most memory first
  u        programs by user
  c        programs by number, as at the start
  j, down  scroll down        k, up  scroll up
  h        this help, and back
  q        quit
`

// Press does what a key stands for, and says whether the picture must be made anew.
func (p *Picture) Press(key string) (anew bool) {
	switch key {
	case "g", "m", "u", "c":
		anew = p.order != key[0]
		p.order, p.above = key[0], 0
	case "j":
		p.above++
	case "k":
		p.above = max(0, p.above-1)
	case "h":
		p.help = !p.help
	}
	return anew
}

// Seen is the part of a picture that is to be seen. The first line stays when the rest is scrolled,
// and the last line that there is can be reached.
func (p *Picture) Seen(picture string) string {
	if p.help {
		return topKeys
	}
	lines := strings.Split(strings.TrimRight(picture, "\n"), "\n")
	p.above = min(p.above, max(0, len(lines)-2))
	return strings.Join(slices.Concat(lines[:1], lines[1+p.above:]), "\n")
}

// sort brings a node's clients into the chosen order; those that are equal stay as they are.
func (p *Picture) sort(s *status.Node) {
	by := map[byte]func(a, b status.Client) int{
		'g': func(a, b status.Client) int { return cmp.Compare(b.BusyTime, a.BusyTime) },
		'm': func(a, b status.Client) int { return cmp.Compare(b.Allocated, a.Allocated) },
		'u': func(a, b status.Client) int { return cmp.Compare(a.User, b.User) },
	}[p.order]
	if by != nil {
		slices.SortStableFunc(s.Clients, by)
	}
}

// WriteNode writes how a node is now, and how busy it was since the last time.
func (p *Picture) WriteNode(w io.Writer, now *status.Node) error {
	before := p.node
	if before == nil || now.Up-before.Up > p.Least {
		p.node = now
	}
	p.sort(now)
	p.bars.columns, p.bars.coloured = p.Columns, p.Coloured
	p.writeHeading(w, now.Node, now)
	fmt.Fprintln(w)
	p.bars.write(w, now, before)
	if err := busyDevices(now, before).WriteFitted(w, p.Columns); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := busyClients(now).WriteFitted(w, p.Columns); err != nil {
		return err
	}
	if err := writeLines(w, loans(now)); err != nil {
		return err
	}
	return writeElements(w, now, p.Columns)
}

// WriteCluster writes all nodes at work: what each says, their devices, and the programs on them.
func (p *Picture) WriteCluster(w io.Writer, now *Cluster) error {
	before := p.cluster
	p.cluster = now
	for _, n := range now.Nodes {
		if n.Status == nil {
			fmt.Fprintf(w, "node %s: %s\n", n.Node, report.Printable(n.Error))
			continue
		}
		p.sort(n.Status)
		p.writeHeading(w, n.Node, n.Status)
	}
	fmt.Fprintln(w)
	devices := now.table(func(i int, s *status.Node) *report.Table {
		switch {
		case before == nil:
			return busyDevices(s, nil)
		case i < 0:
			return busyDevices(s, s) // for its columns
		}
		earlier := before.status(now.Nodes[i].Node)
		if earlier == nil {
			earlier = &status.Node{Up: s.Up}
		}
		return busyDevices(s, earlier)
	})
	if err := devices.WriteFitted(w, p.Columns); err != nil {
		return err
	}
	fmt.Fprintln(w)
	clients := now.answering().table(func(_ int, s *status.Node) *report.Table { return busyClients(s) })
	if err := clients.WriteFitted(w, p.Columns); err != nil {
		return err
	}
	return writeLines(w, now.loans())
}

// writeHeading says in a line how a node is, and what is wrong with it.
func (p *Picture) writeHeading(w io.Writer, name string, s *status.Node) {
	clients := fmt.Sprintf("node %s, up %s, %s: %s", report.Printable(name), report.BriefTime(s.Up), report.Printable(s.Policy), countStates(s))
	swap := fmt.Sprintf("swap area %s of %s promised", units.BriefSize(s.Committed), units.BriefSize(s.SwapSize))
	between := ", "
	if p.Columns > 0 && len(clients)+len(between)+len(swap) > p.Columns {
		between = "\n"
	}
	fmt.Fprintln(w, clients+between+swap)
	for _, problem := range s.Problems {
		line := "problem: " + report.Printable(problem.String())
		if p.Coloured {
			line = red + line + noColour
		}
		fmt.Fprintln(w, line)
	}
}

func countStates(s *status.Node) string {
	assigned, ready := 0, 0
	for _, c := range s.Clients {
		switch c.State {
		case "assigned":
			assigned++
		case "ready":
			ready++
		}
	}
	return fmt.Sprintf("%s, %d on devices, %d waiting for one", units.Plural(len(s.Clients), "client"), assigned, ready)
}
