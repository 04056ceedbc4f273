package noderuntime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"muster/node"
)

// scheme is one of the paper's ways to share GPUs among programs of several
// processes.
type scheme struct {
	key, name string
	vgpus     int
	preempts  bool
	batch     bool // a program starts when each of its processes has a GPU for itself
}

var (
	batchScheme      = scheme{key: "batch", name: "batch scheduling", vgpus: 1, batch: true}
	twoWay           = scheme{key: "2way", name: "2-way sharing", vgpus: 2}
	fourWay          = scheme{key: "4way", name: "4-way sharing", vgpus: 4}
	preemptive       = scheme{key: "preemptive", name: "preemptive sharing", vgpus: 1, preempts: true}
	preemptiveTwoWay = scheme{key: "preemptive_2way", name: "preemptive 2-way sharing", vgpus: 2, preempts: true}
)

// paperMaxIdle is how long a GPU was idle before it was taken away, in seconds.
const paperMaxIdle = 0.01

// parallel is a program of several processes.
type parallel struct {
	phases     []float64 // of each process: seconds of kernels in an iteration, in the paper's time
	cpu        float64   // seconds on the CPU for each second of kernels
	pattern    pattern
	iterations int
}

// uniform is a program whose processes are all alike.
func uniform(processes int, phase float64) []float64 {
	all := make([]float64, processes)
	for i := range all {
		all[i] = phase
	}
	return all
}

const vectorBytes = 100_000 // of a GPU transfer, as in Table 3-3

// vectorAddition is a launch of which phases are made.
var vectorAddition = program{name: "vector addition", kernel: saxpy, calls: 1, memory: 2 * vectorBytes / 1e6 / multi.memory}

// process is one process of a program, as a script.
type process struct {
	body
	launches int // in an iteration
	rank     int
	phase    time.Duration
	of       *parallel
	group    *group
}

// vectors finds out how long vector additions take.
type vectors struct{ perUnit, most float64 }

func (c *calibrator) vectors(ctx context.Context) (vectors, error) {
	const memory = 2 * vectorBytes &^ 255
	units := memory / 8 / 256
	b, err := saxpy.build(units, 1, memory)
	if err != nil {
		return vectors{}, err
	}
	s := &script{program: vectorAddition, body: b, units: units}
	took, err := c.time(ctx, s)
	return vectors{perUnit: float64(took) / float64(units), most: float64(units)}, err
}

// write makes the processes of a program.
func (v vectors) write(p *parallel) ([]*process, error) {
	g := newGroup(len(p.phases))
	var all []*process
	for rank, phase := range p.phases {
		duration := multi.duration(phase)
		units := float64(duration) / v.perUnit
		launches := max(1, int(units/v.most+0.999))
		each := max(1, int(units/float64(launches)+0.5))
		b, err := saxpy.build(each, launches*p.iterations, 2*vectorBytes&^255)
		if err != nil {
			return nil, err
		}
		all = append(all, &process{body: b, launches: launches, rank: rank, phase: duration, of: p, group: g})
	}
	return all, nil
}

// play runs a process to its end.
func (p *process) play(g gpu) error {
	base := g.base()
	if err := g.copyIn(base+p.in[1].offset, p.in[1].data); err != nil {
		return err
	}
	got := make([]byte, len(p.out.data))
	for i := 1; i <= p.of.iterations; i++ {
		if err := g.copyIn(base+p.in[0].offset, p.in[0].data); err != nil {
			return err
		}
		for call := range p.launches {
			if err := g.launch(p.grid, saxpy.block, p.params(base, call)); err != nil {
				return err
			}
		}
		if err := g.copyOut(base+p.out.offset, got); err != nil {
			return err
		}
		time.Sleep(time.Duration(float64(p.phase) * p.of.cpu))
		if err := p.group.communicate(p.of.pattern, p.rank, i, i == p.of.iterations); err != nil {
			return err
		}
	}
	if err := p.verify(got); err != nil {
		return fmt.Errorf("process %d: wrong result: %w", p.rank, err)
	}
	return nil
}

// gate lets programs start in their order, each when enough GPUs are free.
type gate struct {
	mu      sync.Mutex
	changed sync.Cond
	free    int
}

func newGate(gpus int) *gate {
	g := &gate{free: gpus}
	g.changed.L = &g.mu
	return g
}

func (g *gate) take(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.free < n {
		g.changed.Wait()
	}
	g.free -= n
}

func (g *gate) give(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free += n
	g.changed.Broadcast()
}

// gpusOfNode1 is how many GTX 480 the paper's node has.
const gpusOfNode1 = 4

// parallelOnNode runs programs of several processes under a scheme, on a node of
// its own. They are submitted one after the other; the clock starts when all
// processes are attached.
func parallelOnNode(ctx context.Context, how scheme, v vectors, programs []parallel) (outcome, error) {
	s := setting{devices: multi.devices(gtx480, gtx480, gtx480, gtx480), vgpus: how.vgpus}
	if how.preempts {
		s.maxIdle = multi.duration(paperMaxIdle)
	}
	var jobs [][]*process
	for i := range programs {
		job, err := v.write(&programs[i])
		if err != nil {
			return outcome{}, err
		}
		jobs = append(jobs, job)
	}
	var out outcome
	err := withNode(ctx, s, func(socket string) error {
		clients, err := attachAll(socket, jobs)
		if err != nil {
			return err
		}
		out, err = submit(how, socket, jobs, clients)
		return err
	})
	return out, err
}

func jobName(i int) string { return fmt.Sprintf("job %d", i) }

func attachAll(socket string, jobs [][]*process) ([][]gpu, error) {
	clients := make([][]gpu, len(jobs))
	err := together(len(jobs), func(i int) error {
		clients[i] = make([]gpu, len(jobs[i]))
		return together(len(jobs[i]), func(rank int) error {
			a, err := attach(socket, jobName(i))
			if err != nil {
				return err
			}
			clients[i][rank] = a
			return a.prepare(jobs[i][rank].size, saxpy)
		})
	})
	return clients, err
}

// submit starts the jobs in their order and waits for all.
func submit(how scheme, socket string, jobs [][]*process, clients [][]gpu) (outcome, error) {
	var out outcome
	var mu sync.Mutex
	var running sync.WaitGroup
	var failures []error
	failed := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		failures = append(failures, err)
	}
	gpus := newGate(gpusOfNode1)
	start := time.Now()
	for i, job := range jobs {
		if how.batch {
			gpus.take(len(job))
		}
		running.Go(func() {
			defer gpus.give(len(job))
			err := together(len(job), func(rank int) error {
				g := clients[i][rank]
				defer g.close()
				err := job[rank].play(g)
				if err != nil {
					job[rank].group.fail()
					return err
				}
				took := time.Since(start).Seconds()
				u, err := g.usage()
				mu.Lock()
				defer mu.Unlock()
				out.seconds = max(out.seconds, took)
				out.swaps += u.swaps
				out.preemptions += u.preemptions
				return err
			})
			if err != nil {
				failed(fmt.Errorf("%s: %w", jobName(i), err))
			}
		})
		// Without preemption two programs of which each has some of the GPUs that
		// both need would wait for each other for ever: so they queue up in order.
		if err := queued(socket, jobName(i)); err != nil {
			failed(err)
			break
		}
	}
	running.Wait()
	return out, errors.Join(failures...)
}

// queued waits until no process of a job is yet to ask for a GPU.
func queued(socket, job string) error {
	for {
		s, err := node.Ask(socket)
		if err != nil {
			return err
		}
		waiting := false
		for _, c := range s.Clients {
			waiting = waiting || c.Program == job && c.State == "unqueued"
		}
		if !waiting {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
}
