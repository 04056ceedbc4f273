package programs

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/internal/screen"
	"muster/node/nodetable"
)

// topFlags are the flags of muster top.
type topFlags struct {
	where    whereFlags
	once     bool
	asJSON   bool
	count    int
	interval time.Duration
}

func NewTop() *cobra.Command {
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
or j and k scroll; h shows the keys; q or Ctrl-C ends it. Bars are green, those of
memory yellow from 90 % on, when programs may have to be swapped. What needs somebody to act
is red: the node's problems. There are no colours if $NO_COLOR is set.

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
		return cli.UsageErrorf("give a number above 0, and an interval of 10ms or more")
	}
	out, isFile := c.OutOrStdout().(*os.File)
	if f.asJSON && f.count == 0 {
		return cli.UsageErrorf("--json prints documents: say how many, with --once or -n COUNT")
	}
	if f.count == 0 && (!isFile || !screen.IsTerminal(out)) {
		return cli.UsageErrorf("the output is no terminal: say how often to print, with --once or -n COUNT")
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

// document is how things are, for programs.
func (f *topFlags) document(c *cobra.Command) (any, error) {
	if f.where.cluster {
		return f.where.all(c.Context())
	}
	return f.where.one(c.Context())
}

// write asks how things are, and adds a picture of that.
func (f *topFlags) write(c *cobra.Command, p *nodetable.Picture, w io.Writer) error {
	if f.where.cluster {
		now, err := f.where.all(c.Context())
		if err != nil {
			return err
		}
		return p.WriteCluster(w, now)
	}
	now, err := f.where.one(c.Context())
	if err != nil {
		return err
	}
	return p.WriteNode(w, now)
}

// print prints pictures one below the other: count of them, or without end if that is 0.
func (f *topFlags) print(c *cobra.Command, stop <-chan os.Signal) error {
	var p nodetable.Picture
	w := c.OutOrStdout()
	return screen.Repeat(f.interval, f.count, stop, func(i int) error {
		if f.asJSON {
			document, err := f.document(c)
			if err != nil {
				return err
			}
			return cli.PrintJSON(c, document)
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		p.Columns = screen.Columns(w)
		return f.write(c, &p, w)
	})
}

// live shows pictures in place, until q.
func (f *topFlags) live(c *cobra.Command, out *os.File, stop <-chan os.Signal) error {
	p := nodetable.Picture{Coloured: os.Getenv("NO_COLOR") == ""}
	shown := screen.Live{Every: f.interval, Seen: p.Seen, Press: p.Press, Write: func(w io.Writer) error {
		p.Columns = screen.Columns(out)
		return f.write(c, &p, w)
	}}
	return shown.Run(out, stop)
}
