package programs

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	"muster/internal/screen"
	"muster/node/nodetable"
)

// psFlags are the flags of muster ps.
type psFlags struct {
	where        whereFlags
	asJSON, wide bool
	view         nodetable.ClientView
}

func NewPs() *cobra.Command {
	var f psFlags
	c := &cobra.Command{
		Use:   "ps [-l] [--wide] [--ended] [--user NAME] [--device N] [--state STATE] [--socket ADDRESS | --cluster | --node NAME] [--json]",
		Short: "List the programs that a node serves, or all nodes of the cluster",
		Long: `List the clients of a node: a program has one for each device that it uses. PROGRAM has
the arguments, too, of programs on this machine. MEMORY is what the client has allocated.

STATE is unqueued before it wanted a device, ready while it waits for one, assigned
while it has one, waiting when it had to leave or let go, failed after a fault. A client
is parked while it waits and every device that could hold it is drained or lost, away
while its worker has not come to a node that was started again, and cut while its program,
on another machine, has no connection: it goes on if the program is back in time.

--user, --device and --state leave out all others; --ended lists those of the last 64
clients that have ended, and what they used.

On a terminal the table is cut to its width: long texts are shortened, and of the columns
of -l those are left out first that say nothing of any client, then the last ones. --wide
has all of it, as has a file or a pipe.

With -l there are also:
  PID, ADDRESS    the program's process, and from where it came over the gateway, if it is on
                  another machine
  CLASS           latency or batch (docs/sharing.md)
  RESIDENT        what it has on the device; SWAPPED what is only on the host; LIMIT the most
  KERNELS, GPU    how many ran, and for how long; counted as they run, each quarter of a second
  WAITS, WAITED   how often it got a device, and how long it waited for that; LONGEST the longest wait
  TURN            how long it has been on its device, and how long it may stay there while others
                  wait that do not fit; TURNS how many of its turns ended because others waited
  PREEMPTIONS     how often it had to make room for others
  SWAPS, MOVING   how often its memory was moved off a device, and how long moving it took
  MOVES           how often it went on on another device, because a faster one had fallen idle,
                  of muster move, or because its device was drained
  AGE             how long it has been there
  WEIGHT, PRIORITY  its part of the time where programs take turns, and what goes before that
  HELD            how long its kernels were held back for programs of class latency
  MPS             whether it shares its GPU under MPS (shared), runs by itself what it had in flight
                  at a fault (suspect), waits to go back (cleared), or shares nothing (apart)
  SHARE           the most of the multiprocessors that it may use there
  WORKER          the process that serves it; REBUILDS how often that ended before the program did
                  and another one took its place
  RAN ON          how many kernels ran on which device

DEVICE has the node that lends the device (0 A at n2). A program whose launches are
mapped (docs/mapping.md) has all devices there on which its kernels ran, with how many:
0 A (30) +1 (20). Below the table, a line for each node says what is borrowed of it
or lent to it (muster peers has more), and how many bytes went there and came back.` + whereHelp,
		Example: "  muster ps\n  muster ps -l\n  muster ps -l --wide\n  muster ps --user alice --state ready\n  muster ps --ended\n  muster ps --cluster\n  muster ps --node n3 --json",
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.where.add(c)
	c.Flags().BoolVarP(&f.view.Long, "long", "l", false, "show all that is known")
	c.Flags().BoolVar(&f.wide, "wide", false, "leave nothing out, even if the terminal is narrower")
	c.Flags().BoolVar(&f.view.Ended, "ended", false, "list clients that have ended")
	c.Flags().StringSliceVar(&f.view.Users, "user", nil, "only clients of these `users`")
	c.Flags().IntVar(&f.view.Device, "device", -1, "only clients on the device of this `number`")
	c.Flags().StringSliceVar(&f.view.States, "state", nil, "only clients in these `states`: "+strings.Join(clientStates, ", "))
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON document")
	return c
}

// clientStates are the states of clients, as docs/node.md explains them.
var clientStates = []string{"unqueued", "ready", "parked", "assigned", "waiting", "failed", "away", "cut", "ending", "ended"}

func (f *psFlags) run(c *cobra.Command) error {
	if err := f.where.check(); err != nil {
		return err
	}
	for _, state := range f.view.States {
		if !slices.Contains(clientStates, state) {
			return cli.UsageErrorf("no client can be %q: give some of %s", state, strings.Join(clientStates, ", "))
		}
	}
	out := c.OutOrStdout()
	columns := screen.Columns(out)
	if f.wide {
		columns = 0
	}
	if f.where.cluster {
		all, err := f.where.all(c.Context())
		if err != nil {
			return err
		}
		if f.asJSON {
			return cli.PrintJSON(c, all)
		}
		all.WriteMissing(c.ErrOrStderr())
		return f.view.WriteCluster(out, all, columns)
	}
	s, err := f.where.one(c.Context())
	if err != nil {
		return err
	}
	if f.asJSON {
		return cli.PrintJSON(c, f.view.Of(s))
	}
	printProblems(c.ErrOrStderr(), s)
	return f.view.Write(out, s, columns)
}
