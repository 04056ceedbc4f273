package auction

import (
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"muster/internal/seeds"
	"muster/model"
	"muster/policy"
)

// This file is the auction a second time, written from the text alone: every set
// of nodes is looked at, and every combination of bids is tried.

type naiveBid struct {
	class      string
	nodes      []int
	perNode    int // 0: total cores in any way, at least one of each node
	total      int
	gpus       int
	preference int64
	value      [2]int64 // priority, preference
}

func (b *naiveBid) String() string {
	return fmt.Sprint(b.class, b.nodes, b.total, b.gpus, b.preference)
}

type naiveMarket struct {
	cores, gpus []int
}

// setOf is the nodeset that a node belongs to for g GPUs.
func (m *naiveMarket) setOf(n, g int) (first, last int, ok bool) {
	in := func(i int) bool { return i >= 0 && i < len(m.cores) && m.cores[i] > 0 && m.gpus[i] >= g }
	if !in(n) {
		return 0, 0, false
	}
	for first = n; in(first - 1); first-- {
	}
	for last = n; in(last + 1); last++ {
	}
	return first, last, true
}

// nodesets counts all of them, for every number of GPUs.
func (m *naiveMarket) nodesets() int {
	count := 0
	for g := 0; g <= 8; g++ {
		for n := range m.cores {
			if first, _, ok := m.setOf(n, g); ok && first == n {
				count++
			}
		}
	}
	return count
}

// bids are those of one request.
func (m *naiveMarket) bids(r *model.Request) []naiveBid {
	var out []naiveBid
	for mask := 1; mask < 1<<len(m.cores); mask++ {
		var nodes []int
		for n := range m.cores {
			if mask>>n&1 != 0 {
				nodes = append(nodes, n)
			}
		}
		if c := m.classOf(r, nodes); c != "" && !(c == "C" && r.Contiguous) {
			b := naiveBid{class: c, nodes: nodes, gpus: r.GPUs, total: r.Cores}
			if r.Nodes > 0 {
				b.perNode = r.CoresOnNode()
				b.total = b.perNode * r.Nodes
			}
			b.preference = m.preference(r, c, nodes)
			out = append(out, b)
		}
	}
	return out
}

// classOf is the class of the bid for just these nodes; "" if there is none.
func (m *naiveMarket) classOf(r *model.Request, nodes []int) string {
	first, last := nodes[0], nodes[len(nodes)-1]
	suits := func(n int) bool {
		_, _, ok := m.setOf(n, r.GPUs)
		return ok && (r.Nodes == 0 || m.cores[n] >= r.CoresOnNode())
	}
	cores, picked := 0, 0
	for n := first; n <= last; n++ {
		chosen := slices.Contains(nodes, n)
		if chosen != suits(n) {
			return "" // one that does not suit, or one that is left out
		}
		if chosen {
			cores += m.cores[n]
			picked++
		}
	}
	block := last-first+1 == len(nodes)
	setFirst, endOfFirst, _ := m.setOf(first, r.GPUs)
	beginOfLast, setLast, _ := m.setOf(last, r.GPUs)
	begins, ends := first == setFirst, last == setLast
	if r.Nodes > 0 {
		switch {
		case picked != r.Nodes:
			return ""
		case !block:
			return "C"
		case begins || ends:
			return "A"
		}
		return "B"
	}
	if cores < r.Cores || picked > r.Cores {
		return ""
	}
	lastNeeded := cores-m.cores[last] < r.Cores
	firstNeeded := cores-m.cores[first] < r.Cores
	switch {
	case block && (begins && lastNeeded || ends && firstNeeded):
		return "A"
	case block && !begins && !ends && lastNeeded:
		return "B"
	case !block && (begins && lastNeeded || ends && firstNeeded):
		return "C"
	case !block && begins && ends:
		// Whole nodesets: two, or as few as have the cores.
		withoutLast := 0
		for n := first; n < beginOfLast; n++ {
			if suits(n) {
				withoutLast += m.cores[n]
			}
		}
		two := true
		for n := endOfFirst + 1; n < beginOfLast; n++ {
			two = two && !suits(n)
		}
		if two || withoutLast < r.Cores {
			return "C"
		}
	}
	return ""
}

// preference is eq. 12, in units of 1/(4(N+1)(S+1)).
func (m *naiveMarket) preference(r *model.Request, class string, nodes []int) int64 {
	k := map[string][3]int64{"A": {0, 0, 0}, "B": {2, 0, 0}, "C": {2, 0, 2}}[class]
	if r.Nodes == 0 {
		k = map[string][3]int64{"A": {0, 1, 0}, "B": {1, 1, 0}, "C": {2, 1, 1}}[class]
	}
	sets := map[int]bool{}
	for _, n := range nodes {
		first, _, _ := m.setOf(n, r.GPUs)
		sets[first] = true
	}
	all := int64(len(m.cores)) + 1
	allSets := int64(m.nodesets()) + 1
	f := big.NewRat(1, 1)
	f.Sub(f, big.NewRat(k[0], 4))
	f.Sub(f, big.NewRat(k[1]*int64(len(nodes)), 4*all))
	f.Sub(f, big.NewRat(k[2]*int64(len(sets)), 4*allSets))
	f.Mul(f, big.NewRat(4*all*allSets, 1))
	if !f.IsInt() {
		panic("a preference is no whole number")
	}
	return f.Num().Int64()
}

// best tries every choice of one bid, or none, for each job.
func (m *naiveMarket) best(jobs [][]naiveBid) (value [2]int64) {
	var sum [2]int64
	most := make([]int64, len(jobs)+1) // of priorities, from a job on
	for i := len(jobs) - 1; i >= 0; i-- {
		most[i] = most[i+1]
		if len(jobs[i]) > 0 {
			most[i] += jobs[i][0].value[0]
		}
	}
	var from func(i int)
	var fill func(i int, b *naiveBid, k, left int)
	from = func(i int) {
		if i == len(jobs) {
			if sum[0] > value[0] || sum[0] == value[0] && sum[1] > value[1] {
				value = sum
			}
			return
		}
		if sum[0]+most[i] < value[0] {
			return
		}
		for k := range jobs[i] {
			b := &jobs[i][k]
			sum[0], sum[1] = sum[0]+b.value[0], sum[1]+b.value[1]
			fill(i, b, 0, b.total)
			sum[0], sum[1] = sum[0]-b.value[0], sum[1]-b.value[1]
		}
		from(i + 1)
	}
	fill = func(i int, b *naiveBid, k, left int) {
		if k == len(b.nodes) {
			if left == 0 {
				from(i + 1)
			}
			return
		}
		n := b.nodes[k]
		if m.gpus[n] < b.gpus {
			return
		}
		least, largest := 1, min(left, m.cores[n])
		if b.perNode > 0 {
			least = b.perNode
			largest = min(largest, b.perNode)
		}
		for c := least; c <= largest; c++ {
			m.cores[n] -= c
			m.gpus[n] -= b.gpus
			fill(i, b, k+1, left-c)
			m.cores[n] += c
			m.gpus[n] += b.gpus
		}
	}
	from(0)
	return value
}

// drawRequest is one of any type that fits the classes.
func drawRequest(t *rapid.T, nodes int) model.Request {
	r := model.Request{Contiguous: rapid.IntRange(0, 3).Draw(t, "contiguous") == 0}
	if rapid.IntRange(0, 2).Draw(t, "spread") == 0 {
		r.Cores = rapid.IntRange(1, 7).Draw(t, "cores")
	} else {
		r.Nodes = rapid.IntRange(1, max(1, nodes-1)).Draw(t, "nodes")
		r.CoresPerNode = rapid.IntRange(1, 3).Draw(t, "cores per node")
	}
	r.GPUs = max(0, rapid.IntRange(-2, 2).Draw(t, "GPUs"))
	return r
}

// Every bid that the text allows is made, and no other; and the winners are
// worth as much as any choice of bids can be.
func TestAgainstOracle(t *testing.T) {
	auctions, proven, bidsSeen, classes := 0, 0, 0, map[string]int{}
	seeds.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 6).Draw(t, "nodes")
		c := row(n, 1, 0)
		for i := range c.Nodes {
			c.Nodes[i].Cores = rapid.IntRange(1, 4).Draw(t, "cores")
			c.Nodes[i].GPUs = make([]int, rapid.IntRange(0, 2).Draw(t, "GPUs"))
		}
		s := newSettingIn(c, "slurm_bids=off:bids=0:bids_per_job=0:avoid="+rapid.SampledFrom([]string{"none", "ABC"}).Draw(t, "avoid"))
		busy := rapid.SliceOfN(rapid.Bool(), n, n).Draw(t, "busy")
		for i, b := range busy {
			if b && i%2 == 0 {
				s.must(t, &model.Job{ID: fmt.Sprint("busy", i), Run: time.Hour,
					Request: model.Request{Nodes: 1, Exclusive: true, NodeList: []string{c.Nodes[i].Name}}})
			}
		}
		s.Step(0)
		m := &naiveMarket{}
		for i := range c.Nodes {
			m.cores, m.gpus = append(m.cores, c.Nodes[i].Cores), append(m.gpus, len(c.Nodes[i].GPUs))
			if busy[i] && i%2 == 0 {
				m.cores[i], m.gpus[i] = 0, 0
			}
		}
		jobs := make([]*model.Job, rapid.IntRange(1, 4).Draw(t, "jobs"))
		flat := rapid.Bool().Draw(t, "all of one priority")
		for i := range jobs {
			j := &model.Job{ID: fmt.Sprint("job", i), Run: time.Minute, Request: drawRequest(t, n)}
			if !flat {
				j.Priority = rapid.Int64Range(-3, 6).Draw(t, "priority")
			}
			if rapid.IntRange(0, 3).Draw(t, "alternatives") == 0 {
				other := drawRequest(t, n)
				other.Run = time.Duration(rapid.IntRange(1, 180).Draw(t, "run")) * time.Second
				j.Alternatives = append(j.Alternatives, other)
			}
			jobs[i] = j
		}
		slices.SortStableFunc(jobs, func(a, b *model.Job) int { return int(b.Priority - a.Priority) })
		jobs = slices.DeleteFunc(jobs, func(j *model.Job) bool { _, err := s.Submit(j); return err != nil })
		if len(jobs) == 0 {
			return
		}
		s.Step(5 * time.Second)

		all := make([][]naiveBid, len(jobs))
		for i, j := range jobs {
			weight := j.Priority
			switch least := jobs[len(jobs)-1].Priority; {
			case jobs[0].Priority == least:
				weight = int64(len(jobs) - i)
			case least <= 0:
				weight = j.Priority - least + 1
			}
			shortest := j.Run
			for k := range j.Alternatives {
				if possible(c, &j.Alternatives[k]) {
					shortest = min(shortest, j.Alternatives[k].Run)
				}
			}
			if !possible(c, &j.Request) {
				shortest = j.Alternatives[0].Run
			}
			for k := -1; k < len(j.Alternatives); k++ {
				r, run := &j.Request, j.Run
				if k >= 0 {
					r, run = &j.Alternatives[k], j.Alternatives[k].Run
				}
				for _, b := range m.bids(r) {
					if len(j.Alternatives) > 0 {
						scaled := new(big.Int).Mul(big.NewInt(b.preference), big.NewInt(int64(shortest)))
						b.preference = max(1, scaled.Div(scaled, big.NewInt(int64(run))).Int64())
					}
					b.value = [2]int64{weight, b.preference}
					all[i] = append(all[i], b)
				}
			}
		}
		r := s.p.held[0]
		compareBids(t, r, all)
		for i := range r.bids {
			classes[r.bids[i].class.String()]++
			bidsSeen++
		}
		want := m.best(all)
		var got [2]int64
		if r.answer != nil {
			for _, w := range r.answer.Won {
				b := &r.bids[w.Bid]
				got[0] += all[b.job][0].value[0]
				got[1] += b.preference
			}
			if auctions++; r.answer.Proven {
				proven++
			}
		}
		if less := got[0] < want[0] || got[0] == want[0] && got[1] < want[1]; got != want && (!less || r.answer == nil || r.answer.Proven) {
			t.Errorf("the winners are worth %v, the best %v", got, want)
		}
	})
	if 10*proven < 9*auctions {
		t.Errorf("only %d of %d small auctions were solved to the end", proven, auctions)
	}
	for _, c := range []string{"A", "B", "C"} {
		if auctions > 50 && classes[c] == 0 {
			t.Errorf("no bid of class %s was ever made: nothing was tested", c)
		}
	}
	t.Logf("%d of %d auctions solved to the end, %d bids: %v", proven, auctions, bidsSeen, classes)
}

// possible on the cluster if nothing ran.
func possible(c *model.Cluster, r *model.Request) bool {
	s := newSettingIn(c, "")
	_, err := s.Submit(&model.Job{ID: "x", Run: time.Second, Request: *r})
	return err == nil
}

func compareBids(t *rapid.T, r *round, all [][]naiveBid) {
	for i := range all {
		var got, want []string
		for _, b := range r.bids[r.jobs[i].first:r.jobs[i].end] {
			n := make([]int, len(b.nodes))
			for k := range b.nodes {
				n[k] = int(b.nodes[k])
			}
			got = append(got, (&naiveBid{class: b.class.String(), nodes: n, total: int(b.total), gpus: int(b.gpus), preference: b.preference}).String())
		}
		for k := range all[i] {
			want = append(want, all[i][k].String())
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("bids of job %d\n got %s\nwant %s", i, strings.Join(got, "; "), strings.Join(want, "; "))
		}
	}
}

func newSettingIn(c *model.Cluster, spec string) *setting {
	p, err := Entry.Make(spec)
	if err != nil {
		panic(err)
	}
	return &setting{State: policy.NewState(c, p), p: p.(*auction), ids: map[string]policy.JobID{}}
}

func (s *setting) must(t *rapid.T, j *model.Job) {
	if _, err := s.Submit(j); err != nil {
		t.Fatal(err)
	}
}
