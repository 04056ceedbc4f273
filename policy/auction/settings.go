package auction

import (
	"fmt"
	"math"
	"strconv"

	"muster/internal/units"
	"muster/model"
	"muster/policy"
	"muster/policy/winner"
)

// Entry makes the policy known.
var Entry = policy.Entry{
	Name:    "auction",
	Summary: "AUCSCHED: the first jobs of the queue bid for nodes, and the bids with the largest sum of priorities win",
	Options: []model.Option{
		{Name: "window", Default: "100", Summary: "how many jobs bid; 0 for all"},
		{Name: "bids_per_job", Default: "15", Summary: "bids of one request at most; 0 for all"},
		{Name: "bids", Default: "250", Summary: "bids of all jobs at most, made in the order of the queue; 0 for no limit"},
		{Name: "interval", Default: "5s", Summary: "the least time from one auction to the next; 0 for one whenever anything happens"},
		{Name: "slurm_bids", Default: "on", Summary: "each job also bids for the nodes that Slurm would choose"},
		{Name: "classes", Default: "ABC", Summary: "which classes of bids are made; AB for blocks of neighbours only"},
		{Name: "avoid", Default: "BC", Summary: "classes whose bids go to the least contested nodes first; none for no class"},
		{Name: "form", Default: "auction", Summary: "auction, or ipsched for any nodes that suit"},
		{Name: "iterations", Default: "", Summary: "of the solver's search; unless given 1000 for each bid, and its own limit at most; 0 for no search"},
		{Name: "bound_iterations", Default: "", Summary: "of the solver's bound; its own limit unless given"},
		{Name: "tree_nodes", Default: "", Summary: "of the solver's tree search; its own limit unless given"},
		{Name: "cut", Default: "off", Summary: "an auction that is not solved to the end divides the limit on all bids by 1.5"},
	},
	New: func(s model.Settings) (policy.Policy, error) { return New(s, new(winner.Search)) },
}

// New returns the policy with a solver of the caller's choice.
func New(s model.Settings, solver winner.Solver) (policy.Policy, error) {
	p := &auction{solver: solver, limits: winner.DefaultLimits()}
	var err error
	limit := func(name string) int {
		n, e := strconv.Atoi(s[name])
		if e != nil || n < 0 {
			err = fmt.Errorf("%s must be a whole number from 0 on, not %q", name, s[name])
		}
		if n == 0 {
			n = math.MaxInt
		}
		return n
	}
	count := func(name string, otherwise int64) int64 {
		if s[name] == "" {
			return otherwise
		}
		n, e := strconv.ParseInt(s[name], 10, 64)
		if e != nil || n < 0 {
			err = fmt.Errorf("%s must be a whole number from 0 on, not %q", name, s[name])
		}
		return n
	}
	switched := func(name string) bool {
		if s[name] != "on" && s[name] != "off" {
			err = fmt.Errorf("%s must be on or off, not %q", name, s[name])
		}
		return s[name] == "on"
	}
	p.window, p.perJob, p.most = limit("window"), limit("bids_per_job"), limit("bids")
	p.slurm, p.cut = switched("slurm_bids"), switched("cut")
	p.limits.Iterations = count("iterations", p.limits.Iterations)
	p.perBid = math.MaxInt32
	if s["iterations"] == "" {
		p.perBid = iterationsPerBid
	}
	p.limits.BoundIterations = int(min(math.MaxInt32, count("bound_iterations", int64(p.limits.BoundIterations))))
	p.limits.TreeNodes = count("tree_nodes", p.limits.TreeNodes)
	if p.classes, err = classesOf("classes", s["classes"], err); p.classes == [3]bool{} && err == nil {
		err = fmt.Errorf("classes must name at least one of A, B and C")
	}
	p.avoid, err = classesOf("avoid", s["avoid"], err)
	switch s["form"] {
	case "auction":
	case "ipsched":
		p.ipsched = true
	default:
		err = fmt.Errorf("form must be auction or ipsched, not %q", s["form"])
	}
	interval, e := units.ParseDuration(s["interval"])
	if p.interval = interval; e != nil {
		err = fmt.Errorf("interval: %w", e)
	}
	return p, err
}

// iterationsPerBid keeps auctions of few bids short if no proof is found
// quickly: a longer search would find nothing new there.
const iterationsPerBid = 1000

func classesOf(name, text string, err error) (set [3]bool, _ error) {
	if text == "none" {
		return set, err
	}
	for _, c := range text {
		if c < 'A' || c > 'C' {
			return set, fmt.Errorf("%s is made of the letters A, B and C, not %q", name, text)
		}
		set[c-'A'] = true
	}
	return set, err
}
