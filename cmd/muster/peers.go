package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"muster/node"
	"muster/report"
	"muster/wire/status"
)

func newPeers() *cobra.Command {
	var socket string
	var asJSON bool
	c := &cobra.Command{
		Use:   "peers [--socket ADDRESS] [--json]",
		Short: "List the nodes from which a node borrows virtual GPUs, and those to which it lends",
		Long: `List the peers of a node: those from which it borrows virtual GPUs while programs wait
(peers in its configuration). HEARD is how long ago the peer said how it is; VGPUS are
those of its devices, FREE those that it would lend now, WAITING its programs that wait
for one. BORROWED is how many this node has of it, PROGRAMS how many programs are there.

A second table lists what this node has lent: the node that borrowed, the device, and
how many of its virtual GPUs (0 for a node that has the device for good); recalled where
this node wants them back. PROGRAMS are there now;
KERNELS ran there, IN and OUT were copied there and back, since this node began.

muster ps shows on which node each program is.`,
		Example: "  muster peers\n  muster peers --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := node.Ask(socketOf(socket))
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(c, peersOf(s))
			}
			return writePeers(c.OutOrStdout(), s)
		},
	}
	nodeFlag(c, &socket)
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// peerDocument is the document of muster peers --json.
type peerDocument struct {
	Node  string        `json:"node"`
	Peers []status.Peer `json:"peers"`
	Lent  []status.Lent `json:"lent"`
}

func peersOf(s *status.Node) peerDocument {
	return peerDocument{s.Node, append([]status.Peer{}, s.Peers...), append([]status.Lent{}, s.Lent...)}
}

func writePeers(w io.Writer, s *status.Node) error {
	if len(s.Peers) == 0 {
		fmt.Fprintf(w, "node %s borrows of no others (peers in its configuration)\n", s.Node)
	} else if err := writeTable(w, peerTable(s)); err != nil {
		return err
	}
	if len(s.Lent) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	return writeTable(w, lentTable(s))
}

// peerTable lists those from which a node borrows.
func peerTable(s *status.Node) *report.Table {
	t := &report.Table{Columns: report.Columns("<PEER", "<NODE", ">HEARD", ">VGPUS", ">FREE", ">WAITING", ">BORROWED", ">PROGRAMS")}
	for _, p := range s.Peers {
		heard, name := "never", orDash(p.Node)
		if p.Heard >= 0 {
			heard = briefTime(p.Heard)
		}
		if p.Self {
			heard, name = "-", name+" (itself)"
		}
		t.Rows = append(t.Rows, []string{p.Address, name, heard, fmt.Sprint(p.Slots), fmt.Sprint(p.Free), fmt.Sprint(p.Waiting), fmt.Sprint(p.Borrowed), fmt.Sprint(p.Clients)})
	}
	return t
}

// lentTable lists what a node has lent.
func lentTable(s *status.Node) *report.Table {
	t := &report.Table{Columns: report.Columns("<LENT TO", ">DEVICE", ">VGPUS", "<STATE", ">PROGRAMS", ">KERNELS", ">IN", ">OUT")}
	for _, l := range s.Lent {
		state := "lent"
		if l.Recalled {
			state = "recalled"
		}
		did := s.ServedOf(l)
		t.Rows = append(t.Rows, []string{l.Node, fmt.Sprint(l.Device), fmt.Sprint(l.Slots), state, fmt.Sprint(l.Clients), fmt.Sprint(did.Kernels), briefSize(did.CopiedIn), briefSize(did.CopiedOut)})
	}
	return t
}
