package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"muster/head/api"
	headclient "muster/head/client"
	"muster/node"
	"muster/report"
	"muster/wire/status"
)

// whereFlags say whose status is wanted: that of a node on this machine, of a node of
// the cluster, or of all.
type whereFlags struct {
	socket, node string
	cluster      bool
	head         askFlags
}

const whereHelp = `

--node NAME asks a node of the cluster, through the head; --cluster asks all of them at
once. A node that is away, or does not answer in time, is shown as such.` + askHelp

func (f *whereFlags) add(c *cobra.Command) {
	nodeFlag(c, &f.socket)
	c.Flags().BoolVar(&f.cluster, "cluster", false, "ask all nodes of the cluster")
	c.Flags().StringVar(&f.node, "node", "", "ask the node of this `name`")
	f.head.add(c)
	_ = c.RegisterFlagCompletionFunc("node", completeNodes(&f.head))
}

func (f *whereFlags) check() error {
	if f.cluster && f.node != "" || f.socket != "" && (f.cluster || f.node != "") {
		return usageErrorf("give one of --socket, --cluster and --node")
	}
	return nil
}

// nodeStatus is what one node of a cluster says of itself, or why it does not.
type nodeStatus struct {
	Node   string        `json:"node"`
	State  api.NodeState `json:"state"`
	Status *status.Node  `json:"status,omitempty"`
	Error  string        `json:"error,omitempty"`
}

// clusterStatus is what the nodes of a cluster say of themselves.
type clusterStatus struct {
	Nodes []nodeStatus `json:"nodes"`
}

// statusPatience is how long one of many nodes has for its answer.
const statusPatience = 5 * time.Second

// one asks the node of this machine, and adds the arguments of its programs, or the node that is
// named.
func (f *whereFlags) one(ctx context.Context) (*status.Node, error) {
	if f.node == "" {
		s, err := node.Ask(socketOf(f.socket))
		if err == nil {
			withArguments(s)
		}
		return s, err
	}
	h, err := f.head.open()
	if err != nil {
		return nil, err
	}
	return statusOfNode(ctx, h, f.node)
}

func statusOfNode(ctx context.Context, h *headclient.Head, name string) (*status.Node, error) {
	text, err := h.NodeStatus(ctx, name)
	if err != nil {
		return nil, err
	}
	var s status.Node
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("node %s does not answer as a node does: %w", name, err)
	}
	return &s, nil
}

// all asks all nodes of the cluster, many at a time.
func (f *whereFlags) all(ctx context.Context) (*clusterStatus, error) {
	h, err := f.head.open()
	if err != nil {
		return nil, err
	}
	nodes, err := h.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	all := &clusterStatus{Nodes: make([]nodeStatus, len(nodes))}
	var next atomic.Int64
	var workers sync.WaitGroup
	for range min(manyAtOnce, len(nodes)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(nodes); i = int(next.Add(1)) - 1 {
				all.Nodes[i] = oneOfMany(ctx, h, &nodes[i])
			}
		})
	}
	workers.Wait()
	return all, nil
}

func oneOfMany(ctx context.Context, h *headclient.Head, n *api.Node) nodeStatus {
	out := nodeStatus{Node: n.Name, State: n.State}
	if !n.Connected {
		out.Error = "it is away"
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	var err error
	if out.Status, err = statusOfNode(ctx, h, n.Name); err != nil {
		out.Status, out.Error = nil, err.Error()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			out.Error = fmt.Sprintf("it did not answer within %v", statusPatience)
		}
	}
	return out
}

// loans says in a line each what nodes have borrowed and lent, with whose line it is.
func (s *clusterStatus) loans() (lines []string) {
	for _, n := range s.Nodes {
		if n.Status == nil {
			continue
		}
		for _, line := range loans(n.Status) {
			lines = append(lines, fmt.Sprintf("%s: %s", report.Printable(n.Node), line))
		}
	}
	return lines
}

// sayMissing says which nodes have no status, a line each.
func (s *clusterStatus) sayMissing(w io.Writer) {
	for _, n := range s.Nodes {
		if n.Status == nil {
			fmt.Fprintf(w, "muster: node %s: %s\n", n.Node, report.Printable(n.Error))
			continue
		}
		for _, p := range n.Status.Problems {
			fmt.Fprintf(w, "muster: node %s: problem: %s\n", n.Node, report.Printable(p.String()))
		}
	}
}

// table puts the tables of all nodes below each other. A node without a status has a
// line of its own, with nothing but where it should be.
func (s *clusterStatus) table(of func(i int, n *status.Node) *report.Table) *report.Table {
	all := of(-1, &status.Node{})
	all.Columns = append(report.Columns("<NODE"), all.Columns...)
	all.Rows = nil
	for i, n := range s.Nodes {
		if n.Status == nil {
			row := make([]string, len(all.Columns))
			for k, c := range all.Columns {
				switch {
				case k == 0:
					row[k] = n.Node
				case c.Name == "STATE":
					row[k] = "no answer"
					if n.State == api.NodeDown {
						row[k] = "away"
					}
				default:
					row[k] = "-"
				}
			}
			all.Rows = append(all.Rows, row)
			continue
		}
		for _, row := range of(i, n.Status).Rows {
			all.Rows = append(all.Rows, append([]string{n.Node}, row...))
		}
	}
	return all
}

// status is what a node said earlier; nil if it did not.
func (s *clusterStatus) status(node string) *status.Node {
	if s != nil {
		for i := range s.Nodes {
			if s.Nodes[i].Node == node {
				return s.Nodes[i].Status
			}
		}
	}
	return nil
}

// writeClusterAtWork shows all nodes at work: what each says, their devices, and the programs
// on them.
func writeClusterAtWork(w io.Writer, now, before *clusterStatus) error {
	for _, n := range now.Nodes {
		if n.Status == nil {
			fmt.Fprintf(w, "node %s: %s\n", n.Node, report.Printable(n.Error))
			continue
		}
		writeHeading(w, n.Node, n.Status)
	}
	fmt.Fprintln(w)
	devices := now.table(func(i int, s *status.Node) *report.Table {
		if i < 0 || before == nil {
			t := deviceTable(s, nil, false)
			if before != nil {
				t = deviceTable(s, s, false) // for its columns
			}
			return t
		}
		earlier := before.status(now.Nodes[i].Node)
		if earlier == nil {
			earlier = &status.Node{Up: s.Up}
		}
		return deviceTable(s, earlier, false)
	})
	if err := writeTable(w, devices.Without("SPEED", "BUSY")); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if err := writeTable(w, now.answering().table(func(_ int, s *status.Node) *report.Table { return busyClientTable(s) })); err != nil {
		return err
	}
	return writeLoans(w, now.loans())
}

// answering are the nodes that have a status.
func (s *clusterStatus) answering() *clusterStatus {
	out := &clusterStatus{}
	for _, n := range s.Nodes {
		if n.Status != nil {
			out.Nodes = append(out.Nodes, n)
		}
	}
	return out
}
