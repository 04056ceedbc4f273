package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"muster/model"
	"muster/node"
	"muster/report"
	"muster/wire/status"
)

func newDevices() *cobra.Command {
	var socket, name string
	var asJSON, cluster bool
	var head askFlags
	c := &cobra.Command{
		Use:   "devices [--socket ADDRESS | --cluster | --node NAME] [--json]",
		Short: "List the devices of a node, or of the cluster",
		Long: `List the devices of a node: their state, their memory and how much of it is free,
their virtual GPUs (VGPUS) and how many of them programs have (ASSIGNED) and use at this
moment (BUSY), and how long kernels have run there since the node began. Devices that
were removed are left out; muster device list has them too. A line below says how
programs share the GPUs under NVIDIA's MPS, where the node could have it.

STATE is up while the device takes programs; draining when it does not any more and some
are still there, drained when none is; lost when it is gone.

--cluster asks the head for the devices of all nodes, --node NAME for those of one: what
jobs hold of their memory, and which jobs these are.` + askHelp,
		Example: "  muster devices\n  muster devices --cluster\n  muster devices --node n3 --json",
		RunE: func(c *cobra.Command, _ []string) error {
			if cluster || name != "" {
				if socket != "" || cluster && name != "" {
					return usageErrorf("give one of --socket, --cluster and --node")
				}
				return head.printClusterDevices(c, name, asJSON)
			}
			s, err := node.Ask(socketOf(socket))
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(c, status.Devices{Devices: s.Devices, Node: s.Node, Problems: s.Problems, MPS: s.MPS})
			}
			printProblems(c.ErrOrStderr(), s)
			if err := writeTable(c.OutOrStdout(), deviceTable(s, nil, false)); err != nil || s.MPS == nil {
				return err
			}
			_, err = fmt.Fprintln(c.OutOrStdout(), "MPS:", s.MPS)
			return err
		},
	}
	nodeFlag(c, &socket)
	c.Flags().BoolVar(&cluster, "cluster", false, "the devices of all nodes, as the head knows them")
	c.Flags().StringVar(&name, "node", "", "the devices of the node of this `name`, as the head knows them")
	head.add(c)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	_ = c.RegisterFlagCompletionFunc("node", completeNodes(&head))
	return c
}

// printProblems says what is wrong with a node, a line each.
func printProblems(w io.Writer, s *status.Node) {
	for _, p := range s.Problems {
		fmt.Fprintf(w, "muster: problem: %s\n", p)
	}
}

func nodeFlag(c *cobra.Command, socket *string) {
	c.Flags().StringVar(socket, "socket", "", "the node's socket (default: "+node.DefaultSocket+", or $MUSTER_SOCKET)")
}

// furtherOf names the devices on which kernels of a mapped client run beside that of its lease, with how
// many did on each, that of the lease first: (30) +1 (20).
func furtherOf(s *status.Node, c status.Client) string {
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
func ranOn(c status.Client) string {
	all := make([]string, len(c.Ran))
	for i, r := range c.Ran {
		all[i] = fmt.Sprintf("%d: %d", r.Device, r.Kernels)
	}
	return strings.Join(all, ", ")
}

// loans says in a line each what a node has of others and others of it; nothing if that is nothing.
func loans(s *status.Node) (lines []string) {
	for _, l := range s.Borrows() {
		lines = append(lines, fmt.Sprintf("borrowed of %s: %s, %s there, %s sent, %s received",
			report.Printable(l.Node), model.Plural(l.Slots, "virtual GPU"), model.Plural(l.Clients, "program"), briefSize(l.Sent), briefSize(l.Received)))
	}
	for _, l := range s.Lent {
		slots := ""
		if l.Slots > 0 {
			slots = model.Plural(l.Slots, "virtual GPU") + " of it, "
		}
		did := s.ServedOf(l)
		lines = append(lines, fmt.Sprintf("lent to %s: device %d, %s%s there, %s, %s received, %s sent",
			report.Printable(l.Node), l.Device, slots, model.Plural(l.Clients, "program"), model.Plural(int(min(did.Kernels, 1<<62)), "kernel"), briefSize(did.CopiedIn), briefSize(did.CopiedOut)))
	}
	return lines
}

// writeLoans writes such lines below a table.
func writeLoans(w io.Writer, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	_, err := io.WriteString(w, "\n"+strings.Join(lines, "\n")+"\n")
	return err
}

// shareOf is the part of a GPU's multiprocessors that a client may use.
func shareOf(c status.Client) string {
	if c.Share == 0 {
		return "-"
	}
	return fmt.Sprintf("%d%%", c.Share)
}

// turnOf is how much of its turn a client has used, and how long that may last while others
// wait.
func turnOf(c status.Client) string {
	if c.Turn == 0 {
		return "-"
	}
	return briefTime(c.TurnUsed) + "/" + briefTime(c.Turn)
}

// deviceTable lists devices, those that were removed if all are wanted; with an earlier
// status it says how busy they were since.
func deviceTable(s, before *status.Node, all bool) *report.Table {
	t := &report.Table{Columns: report.Columns(">DEVICE", "<NAME", "<KIND", "<STATE", ">SPEED", ">MEMORY", ">FREE", ">VGPUS", ">ASSIGNED", ">BUSY", ">GPU")}
	if before != nil {
		t.Columns[len(t.Columns)-1].Name = "GPU NOW"
	}
	for i, d := range s.Devices {
		if d.State == "removed" && !all {
			continue
		}
		busy := briefTime(d.BusyTime)
		if before != nil {
			busy = "-"
			if span := s.Up - before.Up; span > 0 && i < len(before.Devices) {
				busy = report.Percent(min(1, max(0, d.BusyTime-before.Devices[i].BusyTime)/span))
			}
		}
		t.Rows = append(t.Rows, []string{
			fmt.Sprint(i), d.Name, d.Kind, stateOf(d), report.Number(d.Speed), briefSize(d.Memory), briefSize(d.Free),
			fmt.Sprint(d.Slots), fmt.Sprint(d.Assigned), fmt.Sprint(d.Busy), busy,
		})
	}
	return t
}

// stateOf is the state of a device, and whether it will be removed.
func stateOf(d status.Device) string {
	if d.Removing {
		return d.State + ", to be removed"
	}
	return d.State
}

// briefSize writes bytes in at most four digits: 1.5 GiB.
func briefSize(n uint64) string { return model.BriefSize(n) }

// briefTime writes seconds in a few characters: 12.5 ms, 3.2 s, 5m3s.
func briefTime(seconds float64) string { return report.BriefTime(seconds) }
