package jobtable

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"

	"muster/model"
	"muster/report/jsontable"
	"muster/wire/api"
)

// PartitionLine is the nodes of a partition that are in one state.
type PartitionLine struct {
	api.Partition
	in    api.NodeState
	nodes []string
	used  int // GPUs of these nodes that jobs hold
	gpus  int
}

// unheard is the state of nodes of a partition that have never come.
const unheard api.NodeState = "UNKNOWN"

// PartitionColumns are those of muster partitions.
var PartitionColumns = jsontable.Columns[PartitionLine]{
	{Name: "PARTITION", Field: "partition", Value: func(l *PartitionLine) string {
		if l.Default {
			return l.Name + "*"
		}
		return l.Name
	}},
	{Name: "AVAIL", Field: "state", Value: func(l *PartitionLine) string { return l.State }},
	{Name: "TIMELIMIT", Field: "max_time_s", Value: func(l *PartitionLine) string {
		if l.MaxTime == 0 {
			return "infinite"
		}
		return TimeLimit(l.MaxTime)
	}},
	{Name: "NODES", Field: "", Value: func(l *PartitionLine) string { return strconv.Itoa(len(l.nodes)) }},
	{Name: "STATE", Field: "", Value: func(l *PartitionLine) string { return cmp.Or(string(l.in), "n/a") }},
	{Name: "GPUS", Field: "gpus", Value: func(l *PartitionLine) string { return fmt.Sprintf("%d/%d", l.used, l.gpus) }},
	{Name: "RGPUS", Field: "rgpus", Value: func(l *PartitionLine) string { return strconv.Itoa(l.RemoteGPUs) }},
	{Name: "NODELIST", Field: "node_list", Value: func(l *PartitionLine) string { return cmp.Or(model.CompressNodes(l.nodes), "-") }},
}

// WritePartitions lists partitions as sinfo does: a line for the nodes of each that are in the same state.
func WritePartitions(w io.Writer, list []api.Partition, nodes []api.Node, columns int) error {
	var lines []PartitionLine
	for _, p := range list {
		lines = append(lines, linesOf(p, nodes)...)
	}
	return PartitionColumns.Write(w, lines, "NODELIST", columns)
}

func linesOf(p api.Partition, nodes []api.Node) (lines []PartitionLine) {
	known := map[string]bool{}
	at := func(s api.NodeState) *PartitionLine {
		i := slices.IndexFunc(lines, func(l PartitionLine) bool { return l.in == s })
		if i < 0 {
			i, lines = len(lines), append(lines, PartitionLine{Partition: p, in: s})
		}
		return &lines[i]
	}
	for i := range nodes {
		n := &nodes[i]
		if !slices.Contains(n.Partitions, p.Name) {
			continue
		}
		known[n.Name] = true
		l := at(n.State)
		l.nodes = append(l.nodes, n.Name)
		for _, d := range n.Devices {
			if l.gpus++; d.Used > 0 || len(d.Jobs) > 0 {
				l.used++
			}
		}
	}
	names, _ := model.ExpandNodes(p.NodeList) // the head wrote it
	for _, name := range names {
		if !known[name] {
			l := at(unheard)
			l.nodes = append(l.nodes, name)
		}
	}
	slices.SortStableFunc(lines, func(a, b PartitionLine) int { return cmp.Compare(a.in, b.in) })
	if len(lines) == 0 {
		return []PartitionLine{{Partition: p}}
	}
	return lines
}
