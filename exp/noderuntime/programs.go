package noderuntime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"muster/wire/control"
)

// program is one of the paper's programs of one process.
type program struct {
	name   string
	kernel *kernel
	calls  int     // of the kernel, here
	paper  int     // of the kernel, in Table 3-2
	gpu    float64 // seconds of kernels on a C2050, in the paper's time
	memory float64 // MB, in the paper's
	cpu    float64 // seconds on the CPU for each second of kernels
	sync   bool    // waits for each kernel
}

// The programs of Table 3-2. The table has the kernel calls; the memory follows
// from the sizes of the problems, but SP's and VA's, whose sizes would not fit
// as often as the text says they do. Short programs took three to five seconds.
// Where there are very many calls, fewer are made, so that a call is not much
// shorter here than in the paper. Where a program has no kernel of its own here,
// saxpy or matmul_tiled stands for it.
var shortPrograms = []program{
	{name: "BP", kernel: saxpy, calls: 40, paper: 40, gpu: 4, memory: 14},
	{name: "BFS", kernel: saxpy, calls: 24, paper: 24, gpu: 4, memory: 40, sync: true},
	{name: "HS", kernel: matmul, calls: 1, paper: 1, gpu: 4, memory: 12},
	{name: "NW", kernel: saxpy, calls: 64, paper: 256, gpu: 4, memory: 34},
	{name: "SP", kernel: matmul, calls: 1, paper: 1, gpu: 4, memory: 100},
	{name: "MT", kernel: transpose, calls: 82, paper: 816, gpu: 4, memory: 1.2},
	{name: "PR", kernel: reduce, calls: 80, paper: 801, gpu: 4, memory: 17},
	{name: "SC", kernel: saxpy, calls: 165, paper: 3300, gpu: 4, memory: 2},
	{name: "BS-S", kernel: options, calls: 64, paper: 256, gpu: 4, memory: 80},
	{name: "VA", kernel: vecadd, calls: 1, paper: 1, gpu: 4, memory: 240},
}

var (
	matmulLarge  = program{name: "MM-L", kernel: matmul, calls: 10, paper: 10, gpu: 30, memory: 1200, sync: true}
	optionsLarge = program{name: "BS-L", kernel: options, calls: 64, paper: 256, gpu: 30, memory: 800}
)

// script is a program in the size of an experiment.
type script struct {
	program
	body
	units int
	takes time.Duration // of a launch, as measured
	pause time.Duration // on the CPU, after each kernel
}

// play runs the script. What it copies out is checked.
func (s *script) play(g gpu) error {
	base := g.base()
	for _, p := range s.in {
		if err := g.copyIn(base+p.offset, p.data); err != nil {
			return err
		}
	}
	for call := range s.calls {
		if err := g.launch(s.grid, s.kernel.block, s.params(base, call)); err != nil {
			return err
		}
		if !s.sync && s.pause == 0 {
			continue
		}
		if err := g.synchronise(); err != nil {
			return err
		}
		time.Sleep(s.pause)
	}
	got := make([]byte, len(s.out.data))
	if err := g.copyOut(base+s.out.offset, got); err != nil {
		return err
	}
	if err := s.verify(got); err != nil {
		return fmt.Errorf("program %s: wrong result: %w", s.name, err)
	}
	return nil
}

// calibrator finds out how large launches must be to take a given time.
type calibrator struct {
	scale   scale
	profile control.DeviceConfig
	known   map[program]*script
}

// write makes the script of a program.
func (c *calibrator) write(ctx context.Context, p program) (*script, error) {
	key := p
	key.cpu = 0
	s := c.known[key]
	if s == nil {
		made, err := c.calibrate(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("program %s: %w", p.name, err)
		}
		c.known[key], s = made, made
	}
	out := *s
	out.program = p
	out.pause = time.Duration(float64(s.takes) * p.cpu)
	return &out, nil
}

// leastMemory is what a script has for its data at least: a bit less than the
// unit of device memory, which each takes anyway.
const leastMemory = granule * 3 / 4

// calibrate approaches the units with which a launch takes its share of the
// program's time, or as many as there are data for.
func (c *calibrator) calibrate(ctx context.Context, p program) (*script, error) {
	want := c.scale.duration(p.gpu) / time.Duration(p.calls)
	memory := max(uint64(p.memory*1e6*c.scale.memory), leastMemory) &^ 255
	units, most := 1, math.MaxInt
	for round := 0; ; round++ {
		b, err := p.kernel.build(units, p.calls, memory)
		var large tooLarge
		if errors.As(err, &large) {
			units, most = large.most, large.most
			b, err = p.kernel.build(units, p.calls, memory)
		}
		if err != nil {
			return nil, err
		}
		s := &script{program: p, body: b, units: units}
		if s.takes, err = c.time(ctx, s); err != nil {
			return nil, err
		}
		// The first guess tells more of launches than of units.
		next := min(max(1, int(float64(units)*float64(want)/float64(s.takes)+0.5)), 50*units, most)
		if next == units || round >= lastRound {
			return s, nil
		}
		units = next
	}
}

const lastRound = 3

// time is what a launch takes on the device. Others who use the machine can only
// make it longer, so the shortest of several tries counts.
func (c *calibrator) time(ctx context.Context, s *script) (time.Duration, error) {
	d, err := openSoft(c.profile)
	if err != nil {
		return 0, err
	}
	g, err := newBare(d)
	if err != nil {
		return 0, err
	}
	defer g.close()
	if err := g.prepare(s.size, s.kernel); err != nil {
		return 0, err
	}
	burst := func(launches int) (time.Duration, error) {
		start := time.Now()
		for i := range launches {
			if err := g.launch(s.grid, s.kernel.block, s.params(g.base(), i)); err != nil {
				return 0, err
			}
		}
		err := g.synchronise()
		return time.Since(start) / time.Duration(launches), errors.Join(err, ctx.Err())
	}
	best, err := burst(1) // of the first launch, which is made ready as well
	for range 3 {
		if err != nil {
			return 0, err
		}
		var took time.Duration
		took, err = burst(max(1, int(20*time.Millisecond/max(best, time.Microsecond))))
		best = min(best, took)
	}
	return best, err
}
