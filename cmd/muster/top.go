package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"muster/model"
	"muster/report"
	"muster/wire/status"
)

// topFlags are the flags of muster top.
type topFlags struct {
	where    whereFlags
	once     bool
	asJSON   bool
	count    int
	interval time.Duration
}

func newTop() *cobra.Command {
	var f topFlags
	c := &cobra.Command{
		Use:   "top [--socket ADDRESS | --cluster | --node NAME] [--interval TIME] [-n COUNT | --once] [--json]",
		Short: "Watch a node at work, or all nodes of the cluster",
		Long: `Watch a node at work: its devices and the programs that it serves, as muster devices
and muster ps -l list them, each second, with bars for the use of each GPU and its memory
and for the data that programs copied in and out and the node swapped. Bars of data are
drawn against the fastest seen so far. Below is what the node borrows of others and lends.
On a terminal that can only print ($TERM is dumb), tables follow each other until Ctrl-C.

Keys: g, m, u and c order the programs by GPU time, memory, user and number; the arrow keys
or j and k scroll; h shows the keys; q or Ctrl-C ends it. Bars are coloured unless
$NO_COLOR is set.

With --once or -n the tables are printed one below the other, which needs no
terminal; with --json, a JSON document for each refresh, as muster ps --json has it.` + whereHelp,
		Example: "  muster top\n  muster top --once\n  muster top --cluster\n  muster top --node n3",
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.where.add(c)
	c.Flags().DurationVar(&f.interval, "interval", time.Second, "time between two refreshes")
	c.Flags().BoolVar(&f.once, "once", false, "print the tables once and end")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print a JSON document for each refresh, with --once or -n")
	c.Flags().IntVarP(&f.count, "number", "n", 0, "print the tables this often and end")
	return c
}

func (f *topFlags) run(c *cobra.Command) error {
	if err := f.where.check(); err != nil {
		return err
	}
	if f.once {
		f.count = 1
	}
	if f.count < 0 || f.interval < 10*time.Millisecond {
		return usageErrorf("give a number above 0, and an interval of 10ms or more")
	}
	out, isFile := c.OutOrStdout().(*os.File)
	if f.asJSON && f.count == 0 {
		return usageErrorf("--json prints documents: say how many, with --once or -n COUNT")
	}
	if f.count == 0 && (!isFile || !isTerminal(out)) {
		return usageErrorf("the output is no terminal: say how often to print, with --once or -n COUNT")
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(stop)
	if f.count > 0 || isDumb() {
		return f.print(c, stop)
	}
	return f.live(c, out, stop)
}

// isDumb says whether the terminal can do nothing but print.
func isDumb() bool { return os.Getenv("TERM") == "dumb" }

// picture writes how things are, and how busy devices were since the picture before.
type picture struct {
	where       *whereFlags
	node        *status.Node   // as it was before
	clusterWide *clusterStatus // likewise
	bars        bars
	view        topView
}

// document is how things are, for programs.
func (p *picture) document(c *cobra.Command) (any, error) {
	if p.where.cluster {
		return p.where.all(c.Context())
	}
	return p.where.one(c.Context())
}

func (p *picture) write(c *cobra.Command, w io.Writer) error {
	if p.where.cluster {
		now, err := p.where.all(c.Context())
		if err != nil {
			return err
		}
		before := p.clusterWide
		p.clusterWide = now
		for _, n := range now.Nodes {
			if n.Status != nil {
				p.view.sort(n.Status)
			}
		}
		return writeClusterAtWork(screen{w, p.bars.columns}, now, before)
	}
	now, err := p.where.one(c.Context())
	if err != nil {
		return err
	}
	p.view.sort(now)
	before := p.node
	p.node = now
	return p.writeNode(screen{w, p.bars.columns}, now, before)
}

// print prints pictures one below the other: count of them, or without end if that is 0.
func (f *topFlags) print(c *cobra.Command, stop <-chan os.Signal) error {
	p, w := picture{where: &f.where}, c.OutOrStdout()
	for i := 0; f.count == 0 || i < f.count; i++ {
		if out, ok := w.(*os.File); ok {
			p.bars.columns, _, _ = terminalSize(out)
		}
		if i > 0 {
			select {
			case <-time.After(f.interval):
			case <-stop:
				return nil
			}
			if !f.asJSON {
				fmt.Fprintln(w)
			}
		}
		if f.asJSON {
			document, err := p.document(c)
			if err != nil {
				return err
			}
			if err := printJSON(c, document); err != nil {
				return err
			}
			continue
		}
		if err := p.write(c, w); err != nil {
			return err
		}
	}
	return nil
}

// live shows pictures in place, until q.
func (f *topFlags) live(c *cobra.Command, out *os.File, stop <-chan os.Signal) error {
	keys := make(chan string)
	if terminal, err := os.OpenFile("/dev/tty", os.O_RDWR, 0); err == nil {
		defer terminal.Close()
		restore, err := singleKeys(terminal)
		if err == nil {
			defer restore()
			go readKeys(terminal, keys)
		}
	}
	const alternateScreen, normalScreen, hideCursor, showCursor = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25l", "\x1b[?25h"
	fmt.Fprint(out, alternateScreen+hideCursor)
	defer fmt.Fprint(out, showCursor+normalScreen)
	p := picture{where: &f.where, bars: bars{coloured: os.Getenv("NO_COLOR") == ""}}
	for {
		var b bytes.Buffer
		p.bars.columns, _, _ = terminalSize(out)
		if err := p.write(c, &b); err != nil {
			return err
		}
		next := time.After(f.interval)
		for waiting := true; waiting; {
			fmt.Fprint(out, fit(p.view.of(b.String()), out))
			select {
			case <-next:
				waiting = false
			case <-stop:
				return nil
			case key := <-keys:
				if key == "q" {
					return nil
				}
				if p.view.press(key) {
					waiting = false // what is shown is in another order now
				}
			}
		}
	}
}

// fit cuts a picture to the screen, and says how to draw it over the last one.
func fit(picture string, out *os.File) string {
	columns, rows, err := terminalSize(out)
	if err != nil || columns == 0 || rows == 0 {
		columns, rows = 80, 24
	}
	const home, clearLine, clearBelow = "\x1b[H", "\x1b[K", "\x1b[J"
	lines := strings.Split(strings.TrimRight(picture, "\n"), "\n")
	var b strings.Builder
	b.WriteString(home)
	for i, line := range lines[:min(len(lines), rows)] {
		line = cutLine(line, columns)
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(clearLine + line)
	}
	return b.String() + clearBelow
}

func (p *picture) writeNode(w io.Writer, s, before *status.Node) error {
	writeHeading(w, s.Node, s)
	fmt.Fprintln(w)
	p.bars.write(w, s, before)
	if err := writeTable(w, deviceTable(s, before, false).Without("SPEED", "BUSY")); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := writeTable(w, busyClientTable(s)); err != nil {
		return err
	}
	if err := writeLoans(w, loans(s)); err != nil {
		return err
	}
	return writeElementTable(w, s)
}

// writeHeading says in a line how a node is, and what is wrong with it.
func writeHeading(w io.Writer, name string, s *status.Node) {
	clients := fmt.Sprintf("node %s, up %s, %s: %s", report.Printable(name), briefTime(s.Up), report.Printable(s.Policy), countStates(s))
	swap := fmt.Sprintf("swap area %s of %s promised", briefSize(s.Committed), briefSize(s.SwapSize))
	between := ", "
	if on, ok := w.(screen); ok && on.columns > 0 && len(clients)+len(between)+len(swap) > on.columns {
		between = "\n"
	}
	fmt.Fprintln(w, clients+between+swap)
	for _, p := range s.Problems {
		fmt.Fprintf(w, "problem: %s\n", report.Printable(p.String()))
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
	return fmt.Sprintf("%s, %d on devices, %d waiting for one", model.Plural(len(s.Clients), "client"), assigned, ready)
}
