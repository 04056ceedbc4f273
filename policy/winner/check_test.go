package winner_test

import (
	"strings"
	"testing"

	"muster/policy/winner"
)

// threeKinds is a small auction with a right answer that has a bid of each kind.
func threeKinds() (*winner.Problem, *winner.Answer) {
	p := &winner.Problem{
		Cores: []int32{4, 4, 4}, GPUs: []int32{1, 2, 0}, Jobs: 4,
		Bids: []winner.Bid{
			{Job: 0, Value: 10, Nodes: []int32{0, 1}, Count: 2, PerNode: 2, GPUs: 1},
			{Job: 0, Value: 11, Nodes: []int32{1, 2}, Count: 2, PerNode: 1},
			{Job: 1, Value: 20, Nodes: []int32{0, 1}, Count: 2, Total: 3},
			{Job: 2, Value: 5, Nodes: []int32{1, 2}, Count: 1, PerNode: 4},
			{Job: 3, Value: 1, Nodes: []int32{0}, Count: 1, PerNode: 2},
		},
	}
	a := &winner.Answer{
		Won: []winner.Win{
			{Bid: 0, Nodes: []int32{0, 1}, Cores: []int32{2, 2}},
			{Bid: 2, Nodes: []int32{0, 1}, Cores: []int32{1, 2}},
			{Bid: 3, Nodes: []int32{2}, Cores: []int32{4}},
		},
		Value: 35, Bound: 36,
	}
	return p, a
}

func TestCheckAcceptsWhatHolds(t *testing.T) {
	p, a := threeKinds()
	if err := winner.Check(p, a); err != nil {
		t.Fatal(err)
	}
	a.Bound, a.Proven = 35, true
	if err := winner.Check(p, a); err != nil {
		t.Fatal(err)
	}
}

func TestCheckRefusesEachViolation(t *testing.T) {
	for name, c := range map[string]struct {
		want string
		harm func(p *winner.Problem, a *winner.Answer)
	}{
		"two bids of one job": {"(2)", func(p *winner.Problem, a *winner.Answer) {
			a.Won = append(a.Won[:1], winner.Win{Bid: 1, Nodes: []int32{1, 2}, Cores: []int32{1, 1}})
			a.Value = 21
		}},
		"the same bid twice": {"ascending", func(p *winner.Problem, a *winner.Answer) { a.Won[1] = a.Won[0] }},
		"winners not in order": {"ascending", func(p *winner.Problem, a *winner.Answer) {
			a.Won[0], a.Won[1] = a.Won[1], a.Won[0]
		}},
		"a node too few": {"(3)", func(p *winner.Problem, a *winner.Answer) {
			a.Won[1].Nodes, a.Won[1].Cores = []int32{0}, []int32{3}
		}},
		"a node too many": {"(3)", func(p *winner.Problem, a *winner.Answer) {
			a.Won[2].Nodes, a.Won[2].Cores = []int32{1, 2}, []int32{4, 4}
		}},
		"a node of another class": {"(3)", func(p *winner.Problem, a *winner.Answer) { a.Won[2].Nodes[0] = 0 }},
		"the same node twice":     {"(3)", func(p *winner.Problem, a *winner.Answer) { a.Won[1].Nodes[1] = 0 }},
		"nodes not in order": {"(3)", func(p *winner.Problem, a *winner.Answer) {
			w := a.Won[1]
			w.Nodes[0], w.Nodes[1] = w.Nodes[1], w.Nodes[0]
		}},
		"a core too few":               {"(4)", func(p *winner.Problem, a *winner.Answer) { a.Won[1].Cores[1] = 1 }},
		"a core too many":              {"(4)", func(p *winner.Problem, a *winner.Answer) { a.Won[1].Cores[0] = 2 }},
		"more cores than the node has": {"(5)", func(p *winner.Problem, a *winner.Answer) { p.Cores[1] = 3 }},
		"more GPUs than the node has":  {"(6)", func(p *winner.Problem, a *winner.Answer) { p.GPUs[0] = 0 }},
		"a node without a core": {"(7)", func(p *winner.Problem, a *winner.Answer) {
			a.Won[1].Cores[0], a.Won[1].Cores[1] = 0, 3
		}},
		"other cores than asked for on each node": {"(8)", func(p *winner.Problem, a *winner.Answer) {
			a.Won[0].Cores[0], a.Won[0].Cores[1] = 1, 3
		}},
		"a wrong value":             {"(1)", func(p *winner.Problem, a *winner.Answer) { a.Value = 34 }},
		"a bound below the value":   {"bound", func(p *winner.Problem, a *winner.Answer) { a.Bound = 34 }},
		"proven, but it is not":     {"proven", func(p *winner.Problem, a *winner.Answer) { a.Proven = true }},
		"not proven, though it is":  {"proven", func(p *winner.Problem, a *winner.Answer) { a.Bound = 35 }},
		"a bid that does not exist": {"bids", func(p *winner.Problem, a *winner.Answer) { a.Won[2].Bid = 9 }},
		"cores without nodes":       {"cores for", func(p *winner.Problem, a *winner.Answer) { a.Won[0].Cores = a.Won[0].Cores[:1] }},
	} {
		p, a := threeKinds()
		c.harm(p, a)
		err := winner.Check(p, a)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
}

func TestBadProblemsAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		want string
		harm func(p *winner.Problem)
	}{
		"GPUs of another number of nodes": {"give both", func(p *winner.Problem) { p.GPUs = p.GPUs[:2] }},
		"cores below 0":                   {"below 0", func(p *winner.Problem) { p.Cores[1] = -1 }},
		"GPUs below 0":                    {"below 0", func(p *winner.Problem) { p.GPUs[1] = -1 }},
		"jobs below 0":                    {"below 0", func(p *winner.Problem) { p.Jobs = -1; p.Bids = nil }},
		"a job that does not exist":       {"not one of the", func(p *winner.Problem) { p.Bids[1].Job = 4 }},
		"a job below 0":                   {"not one of the", func(p *winner.Problem) { p.Bids[1].Job = -1 }},
		"a bid worth nothing":             {"more than 0", func(p *winner.Problem) { p.Bids[1].Value = 0 }},
		"a value without end":             {"scale", func(p *winner.Problem) { p.Bids[1].Value = 1 << 62 }},
		"values that add up too far": {"scale", func(p *winner.Problem) {
			p.Bids[0].Value, p.Bids[2].Value = winner.MaxTotal, winner.MaxTotal
		}},
		"no nodes":                    {"at least 1", func(p *winner.Problem) { p.Bids[1].Count = 0 }},
		"more nodes than the class":   {"ask for fewer", func(p *winner.Problem) { p.Bids[1].Count = 3 }},
		"GPUs below 0 in a bid":       {"0 or more", func(p *winner.Problem) { p.Bids[1].GPUs = -1 }},
		"cores below 0 in a bid":      {"at least 1", func(p *winner.Problem) { p.Bids[1].PerNode = -1 }},
		"fewer cores than nodes":      {"each node", func(p *winner.Problem) { p.Bids[2].Total = 1 }},
		"a total that is not the sum": {"leave the total", func(p *winner.Problem) { p.Bids[0].Total = 3 }},
		"a node that does not exist":  {"not one of the", func(p *winner.Problem) { p.Bids[1].Nodes[1] = 3 }},
		"nodes not in order":          {"ascending", func(p *winner.Problem) { p.Bids[1].Nodes[1] = 0 }},
	} {
		p, _ := threeKinds()
		c.harm(p)
		a, err := new(winner.Search).Solve(p, winner.DefaultLimits())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
		if a != nil {
			t.Errorf("%s: an answer beside an error", name)
		}
	}
}

// Greedy is what is left when all else fails: it answers bad problems too.
func TestGreedyPassesOverBadBids(t *testing.T) {
	p, _ := threeKinds()
	p.Bids[1].Job = 99
	p.Bids[2].Total = 0
	a := winner.Greedy(p)
	if a.Value != 16 || a.Bound < a.Value {
		t.Errorf("value %d of %d, want the three bids that are sound", a.Value, a.Bound)
	}
	winner.Greedy(&winner.Problem{Jobs: -3, Bids: []winner.Bid{{Job: 5}}})
}
