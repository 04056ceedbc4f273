package noderuntime

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"muster/exp/bench"
	"muster/wire/status"
)

// pattern is the communication pattern of a program's processes in an iteration.
type pattern uint8

const (
	allToAll pattern = iota
	broadcast
	scatterGather
	barrier
)

var patternNames = [...]string{"all-to-all", "broadcast", "scatter-gather", "barrier"}

func (p pattern) String() string { return patternNames[p] }

// word is the pattern's name in the options of the generator program.
func (p pattern) word() string {
	return [...]string{"alltoall", "bcast", "scatter-gather", "barrier"}[p]
}

// scheme is one of the paper's ways to share GPUs among multi-process programs.
type scheme struct {
	key, name string
	vgpus     int
	preempts  bool
	batch     bool // a program starts when there is a free GPU for each of its processes
}

var (
	batchScheme      = scheme{key: "batch", name: "batch scheduling", vgpus: 1, batch: true}
	twoWay           = scheme{key: "2way", name: "2-way sharing", vgpus: 2}
	fourWay          = scheme{key: "4way", name: "4-way sharing", vgpus: 4}
	preemptive       = scheme{key: "preemptive", name: "preemptive sharing", vgpus: 1, preempts: true}
	preemptiveTwoWay = scheme{key: "preemptive_2way", name: "preemptive 2-way sharing", vgpus: 2, preempts: true}
)

// paperMaxIdle is how long a client may leave its GPU idle before it is preempted, in seconds.
const paperMaxIdle = 0.01

// parallel is a multi-process program, in the paper's time.
type parallel struct {
	processes int
	phase     float64 // seconds in kernels, per process and iteration
	// The phases of the last others processes are imbalance per cent longer (shorter if negative).
	others, imbalance int
	cpu               float64 // seconds on the CPU per second of phase
	pattern           pattern
	iterations        int // in the paper
	mpi               int // bytes that a process sends by MPI per iteration; 0 means mpiBytes
}

// phaseOf is the length of a process's phase.
func (p *parallel) phaseOf(rank int) float64 {
	if rank >= p.processes-p.others {
		return p.phase * (1 + float64(p.imbalance)/100)
	}
	return p.phase
}

// longest is the length of an iteration of the slowest process, for which the others wait.
func (p *parallel) longest() float64 {
	return max(p.phaseOf(0), p.phaseOf(p.processes-1)) + p.phase*p.cpu
}

// work is the GPU time of all processes in an iteration.
func (p *parallel) work() float64 {
	sum := 0.0
	for rank := range p.processes {
		sum += p.phaseOf(rank)
	}
	return sum
}

// The sizes of Table 3-3, and that of the vectors that kernels add.
const (
	gpuBytes       = 100_000
	mpiBytes       = 400_000
	vectorElements = 32 << 10
)

// leastIterations is the minimum number of iterations at any scale. A single one would not show
// waiting, because the first iteration has nothing to wait for.
const leastIterations = 3

// iterationsOf is the scaled number of iterations.
func (m *measured) iterationsOf(paper int) int {
	return min(paper, max(leastIterations, paper/m.Scale))
}

// kernels is the number of vector additions that take as long as a phase.
func (m *measured) kernels(phase float64) int {
	return max(1, int(math.Round(phase*multi.time/m.Addition)))
}

// of is the program's job: the generator program, with MPI. With --patient its processes sleep
// while they wait for each other, because there are more of them than processors.
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

// profileAdditions measures the time of a vector addition by the difference between many and few,
// as the paper's generator did.
func (l *lab) profileAdditions() error {
	if l.m.Addition > 0 {
		return nil
	}
	const few, many = 50, 350
	took := map[int]float64{few: math.Inf(1), many: math.Inf(1)}
	err := withNode(l.tools, setting{devices: multi.devices(gtx480), vgpus: 1}, func(n *theNode) error {
		for range 3 {
			for _, kernels := range []int{few, many} {
				one, _, err := bench.Quietly(&l.patience, tooLate, func() (alone, float64, error) { return l.time(n, additions(kernels), multi) })
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

// additions is a single-process program with one phase.
func additions(kernels int) job {
	return job{words: []string{"procs", "--processes", "1", "--iterations", "1", "--pattern", "none", "--kernels", fmt.Sprint(kernels), "--elements", fmt.Sprint(vectorElements), "--gpu-bytes", fmt.Sprint(gpuBytes)}}
}

// gpusOfNode1 is the number of GTX 480 in the paper's node.
const gpusOfNode1 = 4

// setting is a node with these cards under the scheme.
func (how scheme) setting(cards []card) setting {
	s := setting{devices: multi.devices(cards...), vgpus: how.vgpus}
	if how.preempts {
		s.maxIdle = multi.duration(paperMaxIdle)
	}
	return s
}

// runParallel runs multi-process programs under a scheme, on a new node.
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

// openInBatch starts each job, in order, when there is a free GPU for each of its processes.
func openInBatch(ctx context.Context, c cluster, all []*running, over <-chan int) error {
	return openWithin([]int{gpusOfNode1})(ctx, c, all, over)
}

// openWithin starts each job, in order, when each node has a free GPU for each of the job's
// processes there. It stands in for the batch system, which is outside the node in the paper, too.
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

// fits says whether each node has a free GPU for each of the job's processes there.
func (r *running) fits(free []int) bool {
	left := slices.Clone(free)
	r.take(left, 1)
	return slices.Min(left) >= 0
}

// take subtracts the job's processes from the free GPUs of each node (sign 1), or adds them (sign
// -1).
func (r *running) take(free []int, sign int) {
	if r.on == nil {
		free[0] -= sign * r.processes
		return
	}
	for i, processes := range r.on {
		free[i] -= sign * processes
	}
}

// openInOrder starts all jobs in order. Each job must have queued for its GPUs before the next one
// starts: without preemption, two jobs that each hold some of the GPUs that both need would
// deadlock.
func openInOrder(ctx context.Context, c cluster, all []*running, _ <-chan int) error {
	for _, r := range all {
		if err := r.openAndQueue(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// openAndQueue opens a job's gate and waits until each of its processes has queued for a GPU.
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
