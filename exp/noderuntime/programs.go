package noderuntime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"muster/exp/bench"
	"muster/wire/status"
)

// program is one of the paper's single-process programs: an example program with the data of Table
// 3-2.
type program struct {
	name  string
	words []string
	// calls is the number of kernel calls, and size the problem size, both in the paper. our is the
	// problem size here.
	calls     int
	size, our string
	seconds   float64 // in the paper, on a C2050 without CPU phases
}

// The programs of Table 3-2. In the paper the short programs took three to five seconds, and the
// long ones thirty, without CPU phases. Here the number of kernel calls is the paper's (for BFS it
// follows from the graph), and the sizes are chosen so that all short programs take about the same
// time.
var shortPrograms = []program{
	{"BP", words("bp", "--size", "2k"), 40, "64K inputs", "2K inputs", 4},
	{"BFS", words("bfs", "--size", "128k"), 24, "1M nodes", "128K nodes", 4},
	{"HS", words("hotspot", "--size", "224"), 1, "1M cells", "50K cells", 4},
	{"NW", words("nw", "--size", "256", "--repeat", "8"), 256, "2K pairs of sequences", "8 pairs of 256 letters", 4},
	{"SP", words("sp", "--size", "6k"), 1, "512 pairs of 1M elements", "512 pairs of 6K", 4},
	{"MT", words("mt", "--size", "32"), 816, "384 x 384", "32 x 32", 4},
	{"PR", words("pr", "--size", "2k"), 801, "4M elements", "2K elements", 4},
	{"SC", words("sc", "--size", "96"), 3300, "260K elements", "96 elements", 4},
	{"BS-S", words("bs", "--size", "1536"), 256, "4M options", "1.5K options", 4},
	{"VA", words("va", "--size", "2M"), 1, "100M elements", "2M elements", 4},
}

// The long programs. A product of 10K x 10K matrices has fewer bytes per multiplication than a
// small product, so the small one needs less memory than the scale demands. It allocates the rest
// with --memory.
var (
	matmulLarge  = program{"MM-L", words("mm", "--size", "112", "--repeat", "10", "--memory", "4M"), 10, "10K x 10K, 1.2 GB", "112 x 112, 4.3 MB", 30}
	optionsLarge = program{"BS-L", words("bs", "--size", "2560", "--memory", "2M"), 256, "40M options, 0.8 GB", "2.5K options, 2.1 MB", 30}
	matmulSmall  = program{"MM-S", words("mm", "--size", "48", "--repeat", "200"), 200, "2K x 2K", "48 x 48", 30}
)

func words(list ...string) []string { return list }

// of is a job that runs the program.
func (p program) of() job { return job{words: p.words} }

// withCPU is the job with a CPU phase after each kernel call. The phase is a sleep of fixed length,
// since it represents work on cores that this machine does not have.
func (p program) withCPU(a alone, fraction float64) job {
	if fraction == 0 {
		return p.of()
	}
	each := a.Seconds / float64(a.Kernels) * fraction
	return job{words: append(append([]string{}, p.words...), "--cpu-sleep", "--cpu-ms", fmt.Sprintf("%.3f", 1e3*each))}
}

// alone is the behaviour of a program on a C2050 without other programs.
type alone struct {
	Seconds float64 `json:"seconds"` // from the first call to the last result
	Kernel  float64 `json:"kernel"`  // seconds in kernels
	Copy    float64 `json:"copy"`    // seconds in copies, at the link's bandwidth
	Kernels uint64  `json:"kernels"`
}

// alone measures those of the programs that have not been measured yet, one after the other. The
// shortest of several tries counts, because other load on the machine can only lengthen one.
func (l *lab) alone(s scale, programs ...program) (map[string]alone, error) {
	var missing []program
	for _, p := range programs {
		if _, known := l.m.Alone[p.name]; !known {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return l.m.Alone, nil
	}
	err := withNode(l.tools, setting{devices: s.devices(c2050), vgpus: 1}, func(n *theNode) error {
		for _, p := range missing {
			best := alone{Seconds: math.Inf(1), Kernel: math.Inf(1)}
			for range 3 {
				a, _, err := bench.Quietly(&l.patience, tooLate, func() (alone, float64, error) { return l.time(n, p.of(), s) })
				if err != nil {
					return err
				}
				best = alone{min(a.Seconds, best.Seconds), min(a.Kernel, best.Kernel), a.Copy, a.Kernels}
			}
			l.m.Alone[p.name] = best
		}
		return nil
	})
	return l.m.Alone, err
}

// time runs a job on a node that has no other programs.
func (l *lab) time(n *theNode, j job, s scale) (alone, float64, error) {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	all, err := cluster{n}.startAll(ctx, []job{j})
	if err != nil {
		return alone{}, 0, errors.Join(l.ctx.Err(), err)
	}
	if l.patience, err = bench.AwaitQuiet(l.ctx, l.patience, tooLate); err != nil {
		abandonAll(all)
		return alone{}, 0, err
	}
	var a alone
	took, late, err := cluster{n}.measure(ctx, cancel, all, openAtOnce, func(v *visitor) error {
		c, err := n.reported(ctx, v)
		a.Kernels, a.Kernel, a.Copy = v.kernels, c.BusyTime, float64(v.copied)/s.copies
		return err
	})
	a.Seconds = took
	return a, late, errors.Join(l.ctx.Err(), err)
}

// reported waits until the node has counted all kernels of a process. It must be called before the
// process exits, because reports still under way are lost then.
func (n *theNode) reported(ctx context.Context, v *visitor) (status.Client, error) {
	var found status.Client
	_, err := n.waitFor(ctx, func(s *status.Node) bool {
		at := slices.IndexFunc(s.Clients, func(c status.Client) bool { return c.Pid == v.pid })
		if at < 0 {
			return false
		}
		found = s.Clients[at]
		return found.Kernels >= v.kernels
	})
	return found, err
}
