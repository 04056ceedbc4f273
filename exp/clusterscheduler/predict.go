package clusterscheduler

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"muster/model"
	"muster/model/slurmopt"
	"muster/policy/catalog"
	"muster/sim"
)

// profile is what programs need when they run alone. It is all that the simulator is told about
// them.
type profile struct {
	// Unit is the GPU time of a unit of work in seconds, by program and card.
	Unit map[string]map[string]float64 `json:"unit"`
	// Start is the fixed cost of a job and EachStarts that of each of its processes, in seconds.
	// Neither is scaled.
	Start      float64 `json:"start"`
	EachStarts float64 `json:"each_starts"`
}

// unit is the time for a unit of work of a program on a card.
func (p *profile) unit(a *app, card string) float64 {
	return p.Unit[a.name][card] * a.automatonWork()
}

// used is a device with the number of a job's processes that use it.
type used struct {
	node, device int32
	grant        int // the number of the allocation's grant that it is of; -1 for a whole device
	processes    int
}

// shareOut assigns the processes of a part to its devices round-robin, as the programs do.
func shareOut(a *model.Allocation, part int) []used {
	p := &a.Parts[part]
	var devices []used
	for set := p.GPUs; set != 0; set &= set - 1 {
		devices = append(devices, used{node: p.Node, device: int32(bits.TrailingZeros64(set)), grant: -1})
	}
	for i, g := range a.Grants {
		if int(g.For) == part {
			devices = append(devices, used{node: g.Node, device: g.Device, grant: i})
		}
	}
	for i := range int(p.Cores) {
		if len(devices) > 0 {
			devices[i%len(devices)].processes++
		}
	}
	return devices
}

// alone predicts the time of a job on an allocation without other jobs. In each round the first
// process sends work to the processes on other machines, all compute, and it collects the results.
// So a round takes the transfers plus the time of the slowest device.
func (p *profile) alone(j *job, hosts []host, a *model.Allocation) sim.Alone {
	rounds, each := j.app.rounds, float64(j.app.units)/float64(j.processes)
	if rounds == 0 {
		rounds, each = (j.app.units+j.processes-1)/j.processes, 1
	}
	far := 0
	slowest := 0.0
	busy := map[used]float64{}                // of each device, over all parts that use it
	granted := make([]float64, len(a.Grants)) // the part of each grant in that
	for i := range a.Parts {
		if machineOf(hosts[a.Parts[i].Node].name) != machineOf(hosts[a.Parts[0].Node].name) {
			far += int(a.Parts[i].Cores)
		}
		for _, d := range shareOut(a, i) {
			took := float64(d.processes) * each * p.unit(j.app, hosts[d.node].cards[d.device].Name)
			at := used{node: d.node, device: d.device}
			busy[at] += took
			slowest = max(slowest, busy[at])
			if d.grant >= 0 {
				granted[d.grant] = took
			}
		}
	}
	sent := float64(far) * each * float64(j.app.bytes)
	network := sent / link
	seconds := p.Start + p.EachStarts*float64(j.processes) + float64(rounds)*(network+slowest)
	out := sim.Alone{Time: time.Duration(seconds * float64(time.Second))}
	if far > 0 { // all traffic passes through the first process's port
		out.Net = make([]int64, len(a.Parts))
		out.Net[0] = int64(float64(rounds) * sent)
	}
	for _, took := range granted {
		out.Load = append(out.Load, min(1, float64(rounds)*took/seconds))
	}
	return out
}

// machineOf is the machine of a host: the name up to the dash (see slots).
func machineOf(node string) string {
	machine, _, _ := strings.Cut(node, "-")
	return machine
}

// predict runs the same jobs on the same cluster with the same policy in the simulator.
func (p *profile) predict(s setting, jobs []job) (outcome, error) {
	policy, err := catalog.New(s.policy)
	if err != nil {
		return outcome{}, err
	}
	list := make([]model.Job, len(jobs))
	for i := range jobs {
		o, err := slurmopt.Parse(append([]string{slurmopt.Submit}, jobs[i].asks()...))
		if err != nil {
			return outcome{}, fmt.Errorf("%s: %w", &jobs[i], err)
		}
		list[i] = model.Job{ID: fmt.Sprint(i + 1), User: "user", Run: time.Second}
		o.Apply(&list[i])
		list[i].Logged = &model.Logged{Executable: jobs[i].app.name}
	}
	watch := &placements{where: make([]string, len(jobs))}
	r, err := sim.Run(context.Background(), sim.Config{
		Cluster: simulated(s.hosts), Jobs: list, Policy: policy, NoKill: true, Observe: watch,
		Alone: func(i int, a *model.Allocation) sim.Alone { return p.alone(&jobs[i], s.hosts, a) },
	})
	if err != nil {
		return outcome{}, fmt.Errorf("%s in the simulator: %w", s.policy, err)
	}
	var out outcome
	for i, o := range r.Outcomes {
		if o.State != sim.Finished {
			return outcome{}, fmt.Errorf("%s of %s in the simulator: %s %s", &jobs[i], s.policy, o.State, r.Reasons[i])
		}
		out.Jobs = append(out.Jobs, jobOutcome{Name: jobs[i].app.name, Processes: jobs[i].processes, Wait: o.Start.Seconds(), Run: (o.End - o.Start).Seconds(), Where: watch.where[i]})
		out.Seconds = max(out.Seconds, o.End.Seconds())
	}
	return out, nil
}

// placements is an observer that records where each job first started.
type placements struct{ where []string }

func (p *placements) Started(_ time.Duration, job int, a *model.Allocation) {
	if p.where[job] == "" {
		counts := make([]int, 0, len(a.Parts))
		nodes := make([]int, 0, len(a.Parts))
		for i := range a.Parts {
			nodes, counts = append(nodes, int(a.Parts[i].Node)), append(counts, int(a.Parts[i].Cores))
		}
		p.where[job] = whereText(nodes, counts)
	}
}

func (p *placements) Ended(time.Duration, int) {}

// whereText writes the processes on each node, counted from 1, as "1x4 2x1".
func whereText(nodes, counts []int) string {
	order := make([]int, len(nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return nodes[a] - nodes[b] })
	var words []string
	for _, i := range order {
		words = append(words, fmt.Sprintf("%dx%d", nodes[i]+1, counts[i]))
	}
	return strings.Join(words, " ")
}
