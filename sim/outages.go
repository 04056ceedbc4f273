package sim

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"muster/internal/units"
	"muster/model"
	"muster/policy"
)

// Outage is a time during which a node takes no jobs.
type Outage struct {
	Node int32
	// From is when the outage begins, and Until when the node returns; policy.Never if it does not.
	From, Until time.Duration
	Kind        OutageKind
	// Requeue puts the jobs that a failure hits back into the queue, where they start from the
	// beginning. Otherwise they are lost.
	Requeue bool
}

// OutageKind is what happens to a node.
type OutageKind uint8

// The kinds of outages.
const (
	// Fail: the jobs that run on the node, or use its devices, are aborted.
	Fail OutageKind = iota
	// Drain: running jobs continue, and no new ones start.
	Drain
)

func (k OutageKind) String() string { return [...]string{"fail", "drain"}[k] }

// turn is the beginning or the end of an outage.
type turn struct {
	at      time.Duration
	outage  int32
	returns bool
}

// outages is the state of a run's outages.
type outages struct {
	list  []Outage
	turns []turn // those to come, in time order
	// failed and drained count the current outages of each node, which may overlap.
	failed, drained []int32
	since           []time.Duration // when a node that is out left service
	out             int             // number of nodes that are out
	// attempt counts, by job, how often it was aborted. An end that was scheduled for an earlier
	// attempt is void.
	attempt map[policy.JobID]uint16
}

func newOutages(list []Outage, nodes int) (outages, error) {
	o := outages{list: list}
	if len(list) == 0 {
		return o, nil
	}
	for i, x := range list {
		switch {
		case x.Node < 0:
			return o, fmt.Errorf("outage %d: there is no node %d", i+1, x.Node)
		case x.From < 0 || x.Until <= x.From:
			return o, fmt.Errorf("outage %d: it must end after it begins, and not begin before the run", i+1)
		case x.Kind > Drain:
			return o, fmt.Errorf("outage %d: there is no kind %d", i+1, x.Kind)
		case int(x.Node) >= nodes:
			continue // a smaller cluster of a sweep does not have this node
		}
		o.turns = append(o.turns, turn{x.From, int32(i), false})
		if x.Until != policy.Never {
			o.turns = append(o.turns, turn{x.Until, int32(i), true})
		}
	}
	// At the same instant, nodes return before others leave.
	slices.SortStableFunc(o.turns, func(a, b turn) int {
		if a.at != b.at || a.returns == b.returns {
			return cmp.Compare(a.at, b.at)
		}
		if a.returns {
			return -1
		}
		return 1
	})
	o.failed, o.drained, o.since = make([]int32, nodes), make([]int32, nodes), make([]time.Duration, nodes)
	o.attempt = map[policy.JobID]uint16{}
	return o, nil
}

// next is when the next outage begins or ends.
func (o *outages) next() (time.Duration, bool) {
	if len(o.turns) == 0 {
		return 0, false
	}
	return o.turns[0].at, true
}

// turnNodes begins and ends the outages that are due.
func (r *run) turnNodes() (any bool) {
	o := &r.outages
	for len(o.turns) > 0 && o.turns[0].at <= r.now {
		t := o.turns[0]
		o.turns = o.turns[1:]
		any = true
		x := &o.list[t.outage]
		count := &o.failed[x.Node]
		if x.Kind == Drain {
			count = &o.drained[x.Node]
		}
		was := o.stateOf(x.Node)
		if *count++; t.returns {
			*count -= 2
		}
		is := o.stateOf(x.Node)
		r.must(r.state.SetNode(x.Node, is))
		if !t.returns && x.Kind == Fail {
			r.cutOff(x)
		}
		r.countOut(x.Node, was, is)
	}
	return any
}

func (o *outages) stateOf(n int32) policy.NodeState {
	switch {
	case o.failed[n] > 0:
		return policy.NodeDown
	case o.drained[n] > 0:
		return policy.NodeDraining
	}
	return policy.NodeUp
}

// countOut adds up for how long nodes are out.
func (r *run) countOut(n int32, was, is policy.NodeState) {
	o := &r.outages
	switch {
	case was == policy.NodeUp && is != policy.NodeUp:
		o.since[n] = r.now
		o.out++
	case was != policy.NodeUp && is == policy.NodeUp:
		r.result.NodeSecondsLost += (r.now - o.since[n]).Seconds()
		o.out--
	}
}

// cutOff aborts the jobs that a failure hits, and requeues them if the outage says so.
func (r *run) cutOff(x *Outage) {
	var hit []policy.JobID
	r.state.Jobs(func(j policy.JobState) {
		if j.Alloc != nil && uses(j.Alloc, x.Node) {
			hit = append(hit, j.ID)
		}
	})
	for _, id := range hit {
		i := int(r.jobOf[id])
		o := &r.result.Outcomes[i]
		cores := float64(coresOf(r.state.Allocation(id)))
		r.result.CoreSecondsLost += float64((r.now - o.Start).Seconds() * cores)
		r.leave(id, i)
		r.outages.attempt[id]++
		if x.Requeue {
			r.must(r.state.Requeue(id))
			delete(r.moves.left, id)
			r.ranking.requeued(id, r.now)
			*o = Outcome{}
			r.result.Requeues++
			r.note(i, "requeued: node "+r.Cluster.Nodes[x.Node].Name+" failed")
			continue
		}
		r.must(r.state.End(id))
		r.ranking.gone(id, r.now)
		o.End, o.State = r.now, Lost
		r.over(i)
		r.note(i, "lost: node "+r.Cluster.Nodes[x.Node].Name+" failed")
	}
}

func uses(a *model.Allocation, n int32) bool {
	return slices.ContainsFunc(a.Parts, func(p model.Part) bool { return p.Node == n }) ||
		slices.ContainsFunc(a.Grants, func(g model.Grant) bool { return g.Node == n })
}

// closeOutages adds the time of the nodes that are still out when the run is over.
func (r *run) closeOutages() {
	for n := range int32(len(r.outages.since)) {
		if r.outages.stateOf(n) != policy.NodeUp {
			r.result.NodeSecondsLost += (r.now - r.outages.since[n]).Seconds()
		}
	}
}

// maxOutages limits the number of outages in a file.
const maxOutages = 1 << 20

// ReadOutages reads a table of outages as comma-separated values:
//
//	nodes,from,until,kind,requeue
//	"n[01-04]",1h,3h,fail,yes
//	n07,2-00:00:00,,drain,
//
// nodes is a node list of the cluster, and times are those of its workload. Nodes without an until
// do not return. The column requeue may be missing; jobs are requeued by default.
func ReadOutages(in io.Reader, c *model.Cluster) ([]Outage, error) {
	rows := csv.NewReader(in)
	rows.Comment, rows.FieldsPerRecord, rows.TrimLeadingSpace = '#', -1, true
	head, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("it is empty: the first line is nodes,from,until,kind,requeue")
	}
	if err != nil {
		return nil, plainCSV(err)
	}
	columns := []string{"nodes", "from", "until", "kind", "requeue"}
	if !slices.Equal(head, columns) && !slices.Equal(head, columns[:4]) {
		return nil, errors.New("line 1: the first line must be nodes,from,until,kind,requeue or, where all jobs are requeued, nodes,from,until,kind")
	}
	nodeOf := make(map[string]int32, len(c.Nodes))
	for i := range c.Nodes {
		nodeOf[c.Nodes[i].Name] = int32(i)
	}
	var list []Outage
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, plainCSV(err)
		}
		line, _ := rows.FieldPos(0)
		if len(row) != len(head) {
			return nil, fmt.Errorf("line %d: it has %d columns, and the first line %d", line, len(row), len(head))
		}
		more, err := readOutage(row, nodeOf)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if list = append(list, more...); len(list) > maxOutages {
			return nil, fmt.Errorf("line %d: more than %d outages of nodes", line, maxOutages)
		}
	}
}

func readOutage(row []string, nodeOf map[string]int32) ([]Outage, error) {
	x := Outage{Until: policy.Never, Requeue: true}
	names, err := model.ExpandNodes(row[0])
	if err != nil {
		return nil, fmt.Errorf("nodes: %w", err)
	}
	if x.From, err = units.ParseDuration(row[1]); err != nil {
		return nil, fmt.Errorf("from: %w", err)
	}
	if row[2] != "" {
		if x.Until, err = units.ParseDuration(row[2]); err != nil {
			return nil, fmt.Errorf("until: %w", err)
		}
	}
	if x.Until <= x.From {
		return nil, fmt.Errorf("until %s is not after from %s", row[2], row[1])
	}
	switch row[3] {
	case Fail.String():
		x.Kind = Fail
	case Drain.String():
		x.Kind = Drain
	default:
		return nil, fmt.Errorf("kind is fail or drain, not %q", row[3])
	}
	if len(row) > 4 {
		switch row[4] {
		case "", "yes":
		case "no":
			x.Requeue = false
		default:
			return nil, fmt.Errorf("requeue is yes or no, not %q", row[4])
		}
	}
	var list []Outage
	for _, name := range names {
		n, known := nodeOf[name]
		if !known {
			return nil, fmt.Errorf("there is no node %q in the cluster", name)
		}
		x.Node = n
		list = append(list, x)
	}
	return list, nil
}

// plainCSV rewrites an error of the CSV reader in the style of the others.
func plainCSV(err error) error {
	var bad *csv.ParseError
	if errors.As(err, &bad) {
		return fmt.Errorf("line %d, column %d: %w", bad.Line, bad.Column, bad.Err)
	}
	return err
}
