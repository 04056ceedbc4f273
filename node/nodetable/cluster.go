package nodetable

import (
	"fmt"
	"io"

	"muster/report"
	"muster/wire/api"
	"muster/wire/status"
)

// NodeStatus is what one node of a cluster says of itself, or why it does not.
type NodeStatus struct {
	Node   string        `json:"node"`
	State  api.NodeState `json:"state"`
	Status *status.Node  `json:"status,omitempty"`
	Error  string        `json:"error,omitempty"`
}

// Cluster is what the nodes of a cluster say of themselves: the document of muster ps --cluster
// --json.
type Cluster struct {
	Nodes []NodeStatus `json:"nodes"`
}

// Write lists the chosen clients of all nodes, and what nodes have borrowed of each other.
func (v *ClientView) WriteCluster(w io.Writer, s *Cluster, columns int) error {
	table := s.table(func(_ int, n *status.Node) *report.Table { return v.Table(n) })
	if err := writeNarrowed(w, table, columns, 1+briefClient, "-l --wide"); err != nil || v.Ended {
		return err
	}
	return writeLines(w, s.loans())
}

// Write lists the chosen clients of a node, what the node borrows and lends, and programs with
// elements.
func (v *ClientView) Write(w io.Writer, s *status.Node, columns int) error {
	if err := writeNarrowed(w, v.Table(s), columns, briefClient, "-l --wide"); err != nil || v.Ended {
		return err
	}
	if err := writeLines(w, loans(s)); err != nil {
		return err
	}
	return writeElements(w, s, columns)
}

// writeNarrowed writes a table that may have more columns than the terminal has room for. The first
// keep columns are always there; the flags that whole names show all.
func writeNarrowed(w io.Writer, t *report.Table, columns, keep int, whole string) error {
	t, left := t.Narrowed(columns, keep)
	if err := t.WriteFitted(w, columns); err != nil || left == 0 {
		return err
	}
	return writeLines(w, []string{report.Plural(left, "column") + " left out for want of room: " + whole + " has all"})
}

// loans says in a line each what nodes have borrowed and lent, with whose line it is.
func (s *Cluster) loans() (lines []string) {
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

// WriteMissing says which nodes have no status, and what is wrong with the others, a line each.
func (s *Cluster) WriteMissing(w io.Writer) {
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
func (s *Cluster) table(of func(i int, n *status.Node) *report.Table) *report.Table {
	all := of(-1, &status.Node{})
	all.Columns = append(report.Columns("<NODE"), all.Columns...)
	all.Rows = nil
	for i, n := range s.Nodes {
		if n.Status == nil {
			all.Rows = append(all.Rows, silent(&n, all.Columns))
			continue
		}
		for _, row := range of(i, n.Status).Rows {
			all.Rows = append(all.Rows, append([]string{n.Node}, row...))
		}
	}
	return all
}

// silent is the row of a node that has not answered.
func silent(n *NodeStatus, columns []report.Column) []string {
	row := make([]string, len(columns))
	for k, c := range columns {
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
	return row
}

// status is what a node said earlier; nil if it did not.
func (s *Cluster) status(node string) *status.Node {
	if s != nil {
		for i := range s.Nodes {
			if s.Nodes[i].Node == node {
				return s.Nodes[i].Status
			}
		}
	}
	return nil
}

// answering are the nodes that have a status.
func (s *Cluster) answering() *Cluster {
	out := &Cluster{}
	for _, n := range s.Nodes {
		if n.Status != nil {
			out.Nodes = append(out.Nodes, n)
		}
	}
	return out
}
