package auction

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"muster/model"
	"muster/policy"
)

// Why says why a job waits.
func (p *auction) Why(v *policy.View, id policy.JobID) string {
	if len(p.held) == 0 {
		return "no auction was held yet" + p.nextAuction(v)
	}
	r := p.held[len(p.held)-1]
	at := slices.IndexFunc(r.jobs, func(j bidder) bool { return j.id == id })
	if at < 0 {
		if id > r.newest {
			return "it came after the latest auction" + p.nextAuction(v)
		}
		return fmt.Sprintf("%d jobs stood before it in the latest auction, and no more may bid (window)", len(r.jobs)) + p.nextAuction(v)
	}
	j := &r.jobs[at]
	switch {
	case j.failed:
		return "its bid won, but another winner took memory or devices that it counted on" + p.nextAuction(v)
	case j.capped:
		return fmt.Sprintf("the jobs before it made %d bids, and no more are allowed (bids)", len(r.bids)) + p.nextAuction(v)
	case j.first == j.end:
		return p.noBid(v, id) + p.nextAuction(v)
	}
	return p.lost(v, r, j) + p.nextAuction(v)
}

func (p *auction) nextAuction(v *policy.View) string {
	if p.pending && p.interval > 0 {
		return "; the next auction is at " + v.Clock(p.next)
	}
	return ""
}

func (p *auction) noBid(v *policy.View, id policy.JobID) string {
	var why []string
	for i := range v.Requests(id) {
		sh := v.ShapeAs(id, i)
		if sh == nil {
			continue
		}
		text := "no bid was possible: " + v.Shortage(sh, policy.Sharing)
		if v.Place(sh, policy.Sharing) != nil {
			text = "no bid was possible in the latest auction: needs " + sh.String()
		}
		why = append(why, text)
	}
	if len(why) == 0 { // nodes have come, and none of its requests can be granted any more
		return "no bid was possible: " + v.Shortage(v.Shape(id), policy.Sharing)
	}
	return strings.Join(why, "; or ")
}

// lost says which winners took nodes of the job's best bid.
func (p *auction) lost(v *policy.View, r *round, j *bidder) string {
	best := &r.bids[j.first]
	for i := j.first; i < j.end; i++ {
		if r.bids[i].value > best.value {
			best = &r.bids[i]
		}
	}
	made := "its bid"
	if n := j.end - j.first; n > 1 {
		made = fmt.Sprintf("its %d bids", n)
	}
	var rivals []string
	for _, w := range r.answer.Won {
		if shareNode(w.Nodes, best.nodes) {
			rivals = append(rivals, v.Job(r.jobs[r.bids[w.Bid].job].id).ID)
		}
	}
	nodes := p.names(v, best.nodes)
	switch {
	case len(rivals) == 0:
		return fmt.Sprintf("%s did not win, though nobody took %s: the solver stopped before it found that", made, nodes)
	case len(rivals) > mostNamed:
		more := len(rivals) - mostNamed
		rivals = append(rivals[:mostNamed], fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("%s lost: %s went to %s", made, nodes, strings.Join(rivals, ", "))
}

// mostNamed bounds the winners that a reason names.
const mostNamed = 5

// shareNode says whether two ascending lists have a node in common.
func shareNode(a, b []int32) bool {
	for len(a) > 0 && len(b) > 0 {
		switch {
		case a[0] < b[0]:
			a = a[1:]
		case a[0] > b[0]:
			b = b[1:]
		default:
			return true
		}
	}
	return false
}

func (p *auction) names(v *policy.View, nodes []int32) string {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = v.Cluster().Nodes[n].Name
	}
	return model.CompressNodes(names)
}

// Explain describes the nodesets, bids and winners of the latest step.
func (p *auction) Explain(v *policy.View) *policy.Explanation {
	e := &policy.Explanation{}
	for k, r := range p.held {
		title := ""
		if len(p.held) > 1 {
			title = fmt.Sprintf(", auction %d", k+1)
		}
		if e.Lead != "" {
			e.Lead += " "
		}
		e.Lead += p.lead(v, r)
		e.Bars = p.bars(e.Bars, v, r)
		e.Tables = append(e.Tables,
			policy.ExplanationTable{Title: "Summary" + title, Columns: []string{"quantity", "value"}, Rows: p.summary(v, r)},
			policy.ExplanationTable{
				Title:   "Nodesets" + title,
				Columns: []string{"first", "last", "nodes", "cores", "GPUs of each node"}, Rows: p.nodesets(v, r),
			},
			policy.ExplanationTable{
				Title:   "Bids" + title,
				Columns: []string{"bid", "job", "alternative", "class", "nodes", "cores", "GPUs", "preference", "value", "won"}, Rows: p.bids(v, r),
			},
			policy.ExplanationTable{
				Title:   "Winners" + title,
				Columns: []string{"job", "bid", "class", "nodes", "cores of each", "GPUs of each"}, Rows: p.winners(v, r),
			})
	}
	if len(p.held) == 0 {
		e.Lead = "No auction was held yet."
	}
	return e
}

func (p *auction) lead(v *policy.View, r *round) string {
	if r.answer == nil && r.alone < 0 {
		return fmt.Sprintf("Jobs that could bid: %d. None found nodes to bid for.", len(r.jobs))
	}
	if r.alone >= 0 {
		return fmt.Sprintf("Nothing runs and no bid won: job %s was started on the first nodes that fit.", v.Job(r.alone).ID)
	}
	bidders := 0
	for i := range r.jobs {
		if r.jobs[i].end > r.jobs[i].first {
			bidders++
		}
	}
	text := fmt.Sprintf("Of %d jobs that could bid %d did; bids: %d, nodesets: %d, jobs started: %d.",
		len(r.jobs), bidders, len(r.bids), len(r.sets), r.starts)
	if r.capped > 0 {
		text += fmt.Sprintf(" %d jobs came after the last bid that was allowed.", r.capped)
	}
	if r.note != "" {
		text += " A simple rule chose the winners: " + r.note + "."
	}
	return text
}

func (p *auction) summary(v *policy.View, r *round) [][]string {
	if r.answer == nil {
		return nil
	}
	a := r.answer
	priorities := int64(0)
	for _, w := range a.Won {
		priorities += r.jobs[r.bids[w.Bid].job].priority
	}
	proven := "no"
	if a.Proven {
		proven = "yes"
	}
	return [][]string{
		{"sum of priorities that won", strconv.FormatInt(priorities, 10)},
		{"value", strconv.FormatInt(a.Value, 10)},
		{"bound", strconv.FormatInt(a.Bound, 10)},
		{"gap", fmt.Sprintf("%.4f%%", 100*a.Gap())},
		{"proven", proven},
		{"method", a.Method},
		{"steps", strconv.FormatInt(a.Steps, 10)},
	}
}

func (p *auction) nodesets(v *policy.View, r *round) [][]string {
	rows := make([][]string, len(r.sets))
	for i, s := range r.sets {
		rows[i] = []string{
			v.Cluster().Nodes[s.First].Name, v.Cluster().Nodes[s.Last].Name,
			strconv.Itoa(int(s.Last - s.First + 1)), strconv.FormatInt(s.Cores, 10), strconv.Itoa(int(s.GPUs)),
		}
	}
	return rows
}

func (p *auction) bids(v *policy.View, r *round) [][]string {
	rows := make([][]string, len(r.bids))
	for i := range r.bids {
		b := &r.bids[i]
		nodes := p.names(v, b.nodes)
		if int(b.count) < len(b.nodes) {
			nodes = fmt.Sprintf("%d of %s", b.count, nodes)
		}
		won := ""
		if b.won {
			won = "won"
		}
		rows[i] = []string{
			strconv.Itoa(i + 1), v.Job(r.jobs[b.job].id).ID, strconv.Itoa(b.request), b.class.String(), nodes,
			strconv.Itoa(int(b.total)), strconv.Itoa(int(b.gpus)),
			fmt.Sprintf("%.4f", float64(b.preference)/float64(r.whole)), strconv.FormatInt(b.value, 10), won,
		}
	}
	return rows
}

// bars adds the bids of a round to the picture of the step, a row for each, below
// those that are in it. Of a bid that won with some of its nodes these are in colour.
func (p *auction) bars(bars []policy.ExplanationBar, v *policy.View, r *round) []policy.ExplanationBar {
	row := int32(0)
	if n := len(bars); n > 0 {
		row = bars[n-1].Row + 1
	}
	got := make([][]int32, len(r.bids))
	if r.answer != nil {
		for _, w := range r.answer.Won {
			got[w.Bid] = w.Nodes
		}
	}
	for i := range r.bids {
		b := &r.bids[i]
		label := fmt.Sprintf("bid %d: job %s, %s", i+1, v.Job(r.jobs[b.job].id).ID, b.class)
		first := len(bars)
		for _, n := range b.nodes {
			won := slices.Contains(got[i], n)
			if last := len(bars) - 1; last >= first && bars[last].To == n-1 && bars[last].Won == won {
				bars[last].To = n
				continue
			}
			bars = append(bars, policy.ExplanationBar{Row: row + int32(i), From: n, To: n, Won: won, Label: label})
		}
	}
	return bars
}

func (p *auction) winners(v *policy.View, r *round) [][]string {
	if r.answer == nil {
		return nil
	}
	var rows [][]string
	for _, w := range r.answer.Won {
		b := &r.bids[w.Bid]
		id := r.jobs[b.job].id
		held := v.Held(id)
		if held == nil {
			continue // it did not start
		}
		nodes := make([]int32, len(held.Parts))
		cores, gpus := make([]int32, len(held.Parts)), make([]int32, len(held.Parts))
		for i := range held.Parts {
			nodes[i], cores[i] = held.Parts[i].Node, held.Parts[i].Cores
			gpus[i] = b.gpus
		}
		rows = append(rows, []string{
			v.Job(id).ID, strconv.Itoa(int(w.Bid) + 1), b.class.String(), p.names(v, nodes), among(cores), among(gpus),
		})
	}
	return rows
}

// among writes the least and the largest of numbers.
func among(values []int32) string {
	if len(values) == 0 {
		return "0"
	}
	least, most := slices.Min(values), slices.Max(values)
	if least == most {
		return strconv.Itoa(int(least))
	}
	return fmt.Sprintf("%d to %d", least, most)
}
