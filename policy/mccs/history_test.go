package mccs_test

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/internal/need"
	"muster/model"
	"muster/policy"
	"muster/policy/easy"
	"muster/policy/mccs"
	"muster/policy/script"
	"muster/policy/script/bundled"
)

// TestListingsTwice plays random histories to the listings' policies and to a second
// implementation of them: jobs are submitted, end, are cancelled, requeued and given other
// priorities, and suspending takes a while or none. Every plan must be the same.
func TestListingsTwice(t *testing.T) {
	scripts := bundled.Entries(func(string) (policy.Policy, error) { return easy.Entry.Make("") })
	for _, by := range []struct {
		name  string
		seeds uint64
		make  func(p listing) policy.Policy
	}{
		{"script", uint64(need.Rounds(40, 340)), func(p listing) policy.Policy { return bundledPolicy(t, scripts, p) }},
		{"Go", uint64(need.Rounds(80, 700)), func(p listing) policy.Policy { return mccs.NewPolicy(&p) }},
	} {
		for number := 1; number <= 3; number++ {
			t.Run(fmt.Sprintf("Listing4-%d/%s", number, by.name), func(t *testing.T) {
				for seed := range by.seeds {
					if err := playTwice(number, seed, by.make); err != nil {
						t.Fatalf("seed %d: %v", seed, err)
					}
				}
			})
		}
	}
}

// bundledPolicy is the script of a listing, with settings.
func bundledPolicy(t *testing.T, scripts []policy.Entry, p listing) policy.Policy {
	spec := ""
	if p.number > 1 {
		spec = fmt.Sprintf("nodes=%d:apart=%s", p.bound, strings.Join(p.apart, "/"))
		if p.weigh != "" {
			spec += ":weights=" + p.weigh
		}
		if p.even {
			spec += ":deal=even"
		}
	}
	if p.number > 2 {
		spec += fmt.Sprintf(":short=%d", p.short)
	}
	made, err := scripts[p.number-1].Make(spec)
	if err != nil {
		t.Fatal(err)
	}
	return strict{made.(*script.Policy)}
}

// strict fails where the script does.
type strict struct{ *script.Policy }

func (s strict) Step(v *policy.View, p *policy.Plan) {
	s.Policy.Step(v, p)
	if trouble := s.Trouble(); trouble.Failures > 0 {
		panic(trouble.Last)
	}
}

func randomCluster(rng *rand.Rand) *model.Cluster {
	c := &model.Cluster{GPUTypes: []model.GPUType{{Name: "a", Memory: 8, Speed: 1}, {Name: "b", Memory: 16, Speed: 1}}}
	for i := range 1 + rng.IntN(5) {
		n := model.Node{Name: fmt.Sprint("n", i), Cores: 2 + rng.IntN(10), Memory: int64(10 + rng.IntN(20))}
		for range rng.IntN(5) {
			n.GPUs = append(n.GPUs, rng.IntN(2))
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

func randomJob(rng *rand.Rand, i int) *model.Job {
	j := &model.Job{ID: fmt.Sprint("j", i), Run: time.Duration(1+rng.IntN(100)) * time.Minute}
	if rng.IntN(3) == 0 {
		j.Logged = &model.Logged{Executable: "ADFA"}
	}
	r := &j.Request
	switch rng.IntN(5) {
	case 0:
		*r = model.Request{Nodes: 1 + rng.IntN(3), CoresPerNode: 1 + rng.IntN(4), Processes: rng.IntN(8)}
	case 1:
		*r = model.Request{Cores: 1 + rng.IntN(12)}
	case 2:
		p := 1 + rng.IntN(6)
		*r = model.Request{Cores: p * (1 + rng.IntN(2)), Processes: p}
	default:
		u := 1 + rng.IntN(2)
		*r = model.Request{Cores: u * (1 + rng.IntN(8)), CoresPerProcess: u}
	}
	if rng.IntN(4) > 0 {
		r.GPUs = 1 + rng.IntN(2)
		if rng.IntN(3) > 0 {
			r.GPUMemory = 1 + rng.Int64N(6)
		}
	}
	if rng.IntN(3) == 0 {
		r.Memory = rng.Int64N(8)
	}
	if rng.IntN(4) == 0 {
		r.MemoryPerCore = rng.Int64N(3)
	}
	return j
}

// weightsOf draws weights, and writes them as a setting.
func weightsOf(rng *rand.Rand, c *model.Cluster) (text string, weights []int) {
	for i := range c.Nodes {
		weights = append(weights, len(c.Nodes[i].GPUs))
	}
	if rng.IntN(2) == 0 {
		return "", weights
	}
	var items []string
	for i := range c.Nodes {
		weights[i] = 1 + rng.IntN(8)
		items = append(items, fmt.Sprint(weights[i]))
	}
	return strings.Join(items, "/"), weights
}

// game drives a state and the oracle by the same events.
type game struct {
	rng     *rand.Rand
	state   *policy.State
	oracle  *oracle
	now     time.Duration
	slow    bool
	stops   []policy.JobID
	history []string
}

func playTwice(number int, seed uint64, policyOf func(listing) policy.Policy) error {
	rng := rand.New(rand.NewPCG(seed, uint64(number)))
	c := randomCluster(rng)
	p := listing{number: number, bound: 1 + rng.IntN(3), even: rng.IntN(3) == 0, apart: []string{"ADFA"}, short: 40 * time.Minute}
	var weights []int
	p.weigh, weights = weightsOf(rng, c)
	g := &game{rng: rng, state: policy.NewState(c, policyOf(p)), oracle: &oracle{cluster: c, weights: weights, listing: p}, slow: rng.IntN(2) == 0}
	for i := range 60 {
		g.now += time.Minute
		for range 1 + rng.IntN(3) {
			if err := g.event(i); err != nil {
				return g.told(err)
			}
		}
		if err := g.step(); err != nil {
			return g.told(err)
		}
	}
	return g.told(g.finish())
}

func (g *game) told(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w\n%+v\n%s", err, g.oracle.listing, strings.Join(g.history[max(0, len(g.history)-30):], "\n"))
}

func (g *game) note(format string, args ...any) {
	g.history = append(g.history, fmt.Sprintf(format, args...))
}

func (g *game) pick(states ...oState) *oJob {
	var list []*oJob
	for _, j := range g.oracle.jobs {
		if slices.Contains(states, j.state) {
			list = append(list, j)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[g.rng.IntN(len(list))]
}

// event lets something happen.
func (g *game) event(i int) error {
	switch g.rng.IntN(10) {
	case 0, 1, 2, 3:
		spec := randomJob(g.rng, i)
		id, err := g.state.Submit(spec)
		if errors.Is(err, policy.ErrImpossible) {
			return nil
		}
		g.note("submit %d: %v, %+v", id, spec.Run, spec.Request)
		g.oracle.submit(id, spec)
		return err
	case 4, 5, 6:
		if j := g.pick(oRuns, oStops, oStill); j != nil {
			g.note("end %d", j.id)
			j.state = oOver
			g.stops = slices.DeleteFunc(g.stops, func(id policy.JobID) bool { return id == j.id })
			return g.state.End(j.id)
		}
	case 7:
		if j := g.pick(oWaits); j != nil && g.rng.IntN(3) == 0 {
			g.note("cancel %d", j.id)
			j.state = oOver
			return g.state.Cancel(j.id)
		}
	case 8:
		if j := g.pick(oWaits); j != nil {
			j.rank = g.rng.Int64N(3)
			g.note("rank %d of %d", j.rank, j.id)
			return g.state.Rank(j.id, j.rank)
		}
	case 9:
		if j := g.pick(oRuns, oStill); j != nil && g.rng.IntN(3) == 0 {
			g.note("requeue %d", j.id)
			g.oracle.last(j)
			return g.state.Requeue(j.id)
		}
	}
	return nil
}

// step lets both decide until nobody is stopped any more at once.
func (g *game) step() error {
	if g.slow {
		if err := g.tellStops(g.rng.IntN(1 + len(g.stops))); err != nil {
			return err
		}
	}
	for range 100 {
		plan := g.state.Step(g.now)
		got, want := linesOf(plan), g.oracle.decide()
		g.note("%s", strings.Join(got, "\n"))
		if !slices.Equal(got, want) {
			return fmt.Errorf("got  %q\nwant %q", got, want)
		}
		for _, s := range plan.Stops {
			g.stops = append(g.stops, s.Job)
		}
		for _, r := range plan.Resumes {
			if err := g.state.Resumed(r.Job); err != nil {
				return err
			}
		}
		if g.slow || len(g.stops) == 0 {
			return nil
		}
		if err := g.tellStops(len(g.stops)); err != nil {
			return err
		}
	}
	return errors.New("it stops jobs again and again")
}

// tellStops tells of the first jobs that were to be suspended that they are.
func (g *game) tellStops(n int) error {
	for _, id := range g.stops[:n] {
		g.note("suspended %d", id)
		g.oracle.job(id).state = oStill
		if err := g.state.Suspended(id); err != nil {
			return err
		}
	}
	g.stops = g.stops[n:]
	return nil
}

// finish lets all that runs end until nobody is left.
func (g *game) finish() error {
	for range 1000 {
		for len(g.stops) > 0 {
			if err := g.tellStops(len(g.stops)); err != nil {
				return err
			}
			if err := g.step(); err != nil {
				return err
			}
		}
		j := g.pick(oRuns)
		if j == nil {
			break
		}
		g.note("end %d", j.id)
		j.state = oOver
		if err := g.state.End(j.id); err != nil {
			return err
		}
		if err := g.step(); err != nil {
			return err
		}
	}
	for _, j := range g.oracle.jobs {
		if j.state != oOver {
			return fmt.Errorf("job %d is left in state %d: %s", j.id, j.state, g.state.Why(j.id))
		}
	}
	return nil
}

// linesOf writes a plan as the oracle does.
func linesOf(plan *policy.Plan) (lines []string) {
	for _, st := range plan.Starts {
		line := fmt.Sprintf("start %d", st.Job)
		if st.Err != nil {
			line = "refused: " + st.Err.Error()
		}
		for i, p := range st.Alloc.Parts {
			part := oPart{node: int(p.Node), cores: int(p.Cores), memory: p.Memory}
			for set := p.GPUs; set != 0; set &= set - 1 {
				part.devices = append(part.devices, bits.TrailingZeros64(set))
			}
			for _, g := range st.Alloc.Grants {
				if int(g.For) == i {
					part.devices, part.share = append(part.devices, int(g.Device)), g.Memory
				}
			}
			line += part.text()
		}
		lines = append(lines, line)
	}
	for _, s := range plan.Stops {
		lines = append(lines, fmt.Sprintf("%s %d", s.How, s.Job))
	}
	for _, r := range plan.Resumes {
		if r.Err != nil {
			lines = append(lines, "refused: "+r.Err.Error())
		}
		lines = append(lines, fmt.Sprintf("resume %d", r.Job))
	}
	return lines
}
