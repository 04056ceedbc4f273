package main

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"muster/report"
	"muster/wire/status"
)

// psFlags are the flags of muster ps.
type psFlags struct {
	where        whereFlags
	long, asJSON bool
	chosen       chosenClients
}

// chosenClients says which clients of a node are listed.
type chosenClients struct {
	users, states []string
	device        int // -1: those of all devices
	ended         bool
}

func newPs() *cobra.Command {
	var f psFlags
	c := &cobra.Command{
		Use:   "ps [-l] [--ended] [--user NAME] [--device N] [--state STATE] [--socket ADDRESS | --cluster | --node NAME] [--json]",
		Short: "List the programs that a node serves, or all nodes of the cluster",
		Long: `List the clients of a node: a program has one for each device that it uses. PROGRAM has
the arguments, too, of programs on this machine. MEMORY is what the client has allocated.

STATE is unqueued before it wanted a device, ready while it waits for one, assigned
while it has one, waiting when it had to leave or let go, failed after a fault. A client
is parked while it waits and every device that could hold it is drained or lost, and away
while its worker has not come to a node that was started again.

--user, --device and --state leave out all others; --ended lists those of the last 64
clients that have ended, and what they used.

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
		Example: "  muster ps\n  muster ps -l\n  muster ps --user alice --state ready\n  muster ps --ended\n  muster ps --cluster\n  muster ps --node n3 --json",
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.where.add(c)
	c.Flags().BoolVarP(&f.long, "long", "l", false, "show all that is known")
	c.Flags().BoolVar(&f.chosen.ended, "ended", false, "list clients that have ended")
	c.Flags().StringSliceVar(&f.chosen.users, "user", nil, "only clients of these `users`")
	c.Flags().IntVar(&f.chosen.device, "device", -1, "only clients on the device of this `number`")
	c.Flags().StringSliceVar(&f.chosen.states, "state", nil, "only clients in these `states`: unqueued, ready, assigned, waiting or failed")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON document")
	return c
}

func (f *psFlags) run(c *cobra.Command) error {
	if err := f.where.check(); err != nil {
		return err
	}
	if f.where.cluster {
		return f.printAll(c)
	}
	s, err := f.where.one(c.Context())
	if err != nil {
		return err
	}
	s = f.chosen.of(s)
	if f.asJSON {
		return printJSON(c, s)
	}
	out := c.OutOrStdout()
	printProblems(c.ErrOrStderr(), s)
	if err := writeTable(out, clientTable(s, f.long, f.chosen.ended)); err != nil || f.chosen.ended {
		return err
	}
	if err := writeLoans(out, loans(s)); err != nil {
		return err
	}
	return writeElementTable(out, s)
}

// printAll lists the clients of all nodes, and what nodes have borrowed of each other.
func (f *psFlags) printAll(c *cobra.Command) error {
	s, err := f.where.all(c.Context())
	if err != nil {
		return err
	}
	if f.asJSON {
		return printJSON(c, s)
	}
	s.sayMissing(c.ErrOrStderr())
	out := c.OutOrStdout()
	table := s.table(func(_ int, s *status.Node) *report.Table { return clientTable(f.chosen.of(s), f.long, f.chosen.ended) })
	if err := writeTable(out, table); err != nil || f.chosen.ended {
		return err
	}
	return writeLoans(out, s.loans())
}

// of is the node with the chosen clients alone.
func (f *chosenClients) of(s *status.Node) *status.Node {
	if len(f.users) == 0 && len(f.states) == 0 && f.device < 0 {
		return s
	}
	chosen := *s
	other := func(c status.Client) bool {
		return len(f.users) > 0 && !slices.Contains(f.users, c.User) ||
			len(f.states) > 0 && !slices.Contains(f.states, c.State) ||
			f.device >= 0 && (c.Device == nil || *c.Device != f.device)
	}
	chosen.Clients = slices.DeleteFunc(slices.Clone(s.Clients), other)
	chosen.Ended = slices.DeleteFunc(slices.Clone(s.Ended), other)
	return &chosen
}

// withArguments adds to the programs of this machine the arguments that they were given. A process
// of another name has the number by chance: its program is on another machine, or has ended.
func withArguments(s *status.Node) {
	for i := range s.Clients {
		c := &s.Clients[i]
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", c.Pid))
		if err != nil || c.Guest || isElsewhere(c.Address) {
			continue
		}
		words := strings.Split(string(bytes.TrimRight(text, "\x00")), "\x00")
		if filepath.Base(words[0]) == filepath.Base(c.Program) {
			c.Arguments = words[1:]
		}
	}
}

// isElsewhere says whether a program that came from an address is on another machine.
func isElsewhere(address string) bool {
	from, err := netip.ParseAddrPort(address)
	return err == nil && !from.Addr().IsLoopback()
}

// programOf is a client's program in a table.
func programOf(c status.Client) string {
	return strings.Join(append([]string{filepath.Base(c.Program)}, c.Arguments...), " ")
}

// clientTable lists clients, those that are there or those that have ended; the long form has all
// that is known of them.
func clientTable(s *status.Node, long, ended bool) *report.Table {
	t := &report.Table{Columns: report.Columns("<CLIENT", "<USER", "<PROGRAM", "<DEVICE", "<STATE", ">MEMORY")}
	if long {
		t.Columns = append(t.Columns, report.Columns(">PID", "<ADDRESS", "<CLASS", ">RESIDENT", ">SWAPPED", ">LIMIT", ">KERNELS", ">GPU", ">WAITS", ">WAITED", ">LONGEST", ">TURN", ">TURNS",
			">PREEMPTIONS", ">SWAPS", ">MOVING", ">MOVES", ">AGE", ">WEIGHT", ">PRIORITY", ">HELD", "<MPS", ">SHARE", ">WORKER", ">REBUILDS", "<RAN ON")...)
	}
	clients := s.Clients
	if ended {
		clients = s.Ended
	}
	for _, c := range clients {
		row := []string{fmt.Sprint(c.ID), c.User, programOf(c), deviceOf(s, c), clientState(c), briefSize(c.Allocated)}
		if long {
			worker := "-"
			if c.Worker != 0 {
				worker = fmt.Sprint(c.Worker)
			}
			row = append(row, fmt.Sprint(c.Pid), orDash(c.Address), orDash(c.Class), briefSize(c.Resident), briefSize(c.Swapped), briefSize(c.Limit), fmt.Sprint(c.Kernels), briefTime(c.BusyTime),
				fmt.Sprint(c.Waits), briefTime(c.WaitTime), briefTime(c.LongestWait), turnOf(c), fmt.Sprint(c.Turns), fmt.Sprint(c.Preemptions), fmt.Sprint(c.Swaps), briefTime(c.MoveTime),
				fmt.Sprint(c.Moves.Total()), briefTime(c.Since), fmt.Sprint(c.Weight), fmt.Sprint(c.Priority), briefTime(c.HeldTime), orDash(c.MPS), shareOf(c), worker, fmt.Sprint(c.Rebuilds), orDash(ranOn(c)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// busyClientTable lists the clients of muster top.
func busyClientTable(s *status.Node) *report.Table {
	t := &report.Table{Columns: report.Columns("<CLIENT", "<USER", "<PROGRAM", "<DEVICE", "<STATE", ">MEMORY", ">GPU", ">TURN")}
	for _, c := range s.Clients {
		t.Rows = append(t.Rows, []string{fmt.Sprint(c.ID), c.User, programOf(c), deviceOf(s, c), clientState(c),
			briefSize(c.Allocated), briefTime(c.BusyTime), turnOf(c)})
	}
	return t
}

// deviceOf names the device that a client is on, and those on which its kernels ran besides.
func deviceOf(s *status.Node, c status.Client) string {
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

func clientState(c status.Client) string {
	state := c.State
	if c.Parked {
		state += " (parked)"
	}
	if c.Away {
		state += " (away)"
	}
	return state
}
