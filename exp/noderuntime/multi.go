package noderuntime

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"muster/wire/status"
)

// pattern is how the processes of a program communicate in an iteration.
type pattern uint8

const (
	allToAll pattern = iota
	broadcast
	scatterGather
	barrier
)

var patternNames = [...]string{"all-to-all", "broadcast", "scatter-gather", "barrier"}

func (p pattern) String() string { return patternNames[p] }

// word is the pattern's name in the generator's options.
func (p pattern) word() string {
	return [...]string{"alltoall", "bcast", "scatter-gather", "barrier"}[p]
}

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

// parallel is a program of several processes, in the paper's time.
type parallel struct {
	processes int
	phase     float64 // seconds of kernels of a process in an iteration
	// others are the last processes, so many of them, whose phases are longer by so
	// much per cent, or shorter below 0.
	others, imbalance int
	cpu               float64 // seconds on the CPU for each second of phase
	pattern           pattern
	iterations        int // in the paper
	mpi               int // bytes that a process sends by MPI in an iteration; 0 for mpiBytes
}

// phaseOf is the phase of a process.
func (p *parallel) phaseOf(rank int) float64 {
	if rank >= p.processes-p.others {
		return p.phase * (1 + float64(p.imbalance)/100)
	}
	return p.phase
}

// longest is an iteration of the slowest process, for which the others wait.
func (p *parallel) longest() float64 {
	return max(p.phaseOf(0), p.phaseOf(p.processes-1)) + p.phase*p.cpu
}

// work is what all processes want of GPUs in an iteration.
func (p *parallel) work() float64 {
	sum := 0.0
	for rank := range p.processes {
		sum += p.phaseOf(rank)
	}
	return sum
}

// The sizes of Table 3-3, and the vectors that are added.
const (
	gpuBytes       = 100_000
	mpiBytes       = 400_000
	vectorElements = 32 << 10
)

// leastIterations are made of a program, however small the scale: the first has
// nothing to wait for.
const leastIterations = 3

// iterationsOf is how many iterations are made instead of the paper's.
func (m *measured) iterationsOf(paper int) int {
	return min(paper, max(leastIterations, paper/m.Scale))
}

// kernels is how many vector additions fill a phase.
func (m *measured) kernels(phase float64) int {
	return max(1, int(math.Round(phase*multi.time/m.Addition)))
}

// of is the program's job: one of the generator's, with MPI. Its processes wait asleep
// for each other, as there are more of them than processors.
func (p *parallel) of(m *measured) job {
	words := []string{
		"phases", "--patient", "--pattern", p.pattern.word(), "--iterations", fmt.Sprint(m.iterationsOf(p.iterations)),
		"--kernels", fmt.Sprint(m.kernels(p.phase)), "--elements", fmt.Sprint(vectorElements), "--gpu-bytes", fmt.Sprint(gpuBytes), "--mpi-bytes", fmt.Sprint(cmp.Or(p.mpi, mpiBytes)),
		"--slow-ranks", fmt.Sprint(p.others), "--imbalance", fmt.Sprint(p.imbalance),
	}
	if p.cpu > 0 {
		words = append(words, "--cpu-sleep", "--cpu-ms", fmt.Sprintf("%.3f", 1e3*p.cpu*multi.duration(p.phase).Seconds()))
	}
	return job{words: words, processes: p.processes}
}

// profileAdditions finds out how long a vector addition takes, from the difference
// between many and few, as the paper's generator did.
func (l *lab) profileAdditions() error {
	if l.m.Addition > 0 {
		return nil
	}
	const few, many = 50, 350
	took := map[int]float64{few: math.Inf(1), many: math.Inf(1)}
	err := withNode(l.tools, setting{devices: multi.devices(gtx480), vgpus: 1}, func(n *theNode) error {
		for range 3 {
			for _, kernels := range []int{few, many} {
				one, err := quietly(l, func() (alone, disturbance, error) { return l.time(n, additions(kernels), multi) })
				if err != nil {
					return err
				}
				took[kernels] = min(took[kernels], one.Seconds)
			}
		}
		return nil
	})
	l.m.Addition = (took[many] - took[few]) / (many - few)
	if err == nil && l.m.Addition <= 0 {
		err = fmt.Errorf("%d vector additions took %v s, %d of them %v s: %w", many, took[many], few, took[few], errTooBusy)
	}
	return err
}

// additions is a program of one phase.
func additions(kernels int) job {
	return job{words: []string{"procs", "--processes", "1", "--iterations", "1", "--pattern", "none", "--kernels", fmt.Sprint(kernels), "--elements", fmt.Sprint(vectorElements), "--gpu-bytes", fmt.Sprint(gpuBytes)}}
}

// gpusOfNode1 is how many GTX 480 the paper's node has.
const gpusOfNode1 = 4

// setting is a node with these cards that shares them so.
func (how scheme) setting(cards []card) setting {
	s := setting{devices: multi.devices(cards...), vgpus: how.vgpus}
	if how.preempts {
		s.maxIdle = multi.duration(paperMaxIdle)
	}
	return s
}

// runParallel runs programs of several processes under a scheme, on a node of its own.
func (l *lab) runParallel(how scheme, programs []parallel) (outcome, error) {
	if err := l.profileAdditions(); err != nil {
		return outcome{}, err
	}
	s := how.setting([]card{gtx480, gtx480, gtx480, gtx480})
	var jobs []job
	for i := range programs {
		jobs = append(jobs, programs[i].of(l.m))
	}
	if how.batch {
		return l.run(s, jobs, openInBatch)
	}
	return l.run(s, jobs, openInOrder)
}

// openInBatch starts each job, in their order, when as many GPUs are free as it has
// processes.
func openInBatch(ctx context.Context, c cluster, all []*running, over <-chan int) error {
	return openWithin([]int{gpusOfNode1})(ctx, c, all, over)
}

// openWithin starts each job, in their order, when on each node as many GPUs are free as it has
// processes there.
func openWithin(gpus []int) opener {
	return func(ctx context.Context, c cluster, all []*running, over <-chan int) error {
		free := slices.Clone(gpus)
		for _, r := range all {
			for !r.fits(free) {
				select {
				case i := <-over:
					all[i].take(free, -1)
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			r.take(free, 1)
			if err := r.openAndQueue(ctx, c); err != nil {
				return err
			}
		}
		return nil
	}
}

// fits says whether each node has a free GPU for each process there.
func (r *running) fits(free []int) bool {
	left := slices.Clone(free)
	r.take(left, 1)
	return slices.Min(left) >= 0
}

// take takes a GPU for each process from those that are free, or gives it back.
func (r *running) take(free []int, sign int) {
	if r.on == nil {
		free[0] -= sign * r.processes
		return
	}
	for i, processes := range r.on {
		free[i] -= sign * processes
	}
}

// openInOrder starts all jobs, in their order. Without preemption two of which each
// has some of the GPUs that both need would wait for each other for ever: so each has
// queued up before the next.
func openInOrder(ctx context.Context, c cluster, all []*running, _ <-chan int) error {
	for _, r := range all {
		if err := r.openAndQueue(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// openAndQueue lets a job through and waits until no process is yet to ask for a GPU.
func (r *running) openAndQueue(ctx context.Context, c cluster) error {
	if err := r.open(); err != nil {
		return err
	}
	mine := map[int32]bool{}
	for _, v := range r.inside {
		mine[v.pid] = true
	}
	for _, n := range c {
		_, err := n.waitFor(ctx, func(s *status.Node) bool {
			return !slices.ContainsFunc(s.Clients, func(c status.Client) bool { return mine[c.Pid] && c.State == "unqueued" })
		})
		if err != nil {
			return err
		}
	}
	return nil
}
