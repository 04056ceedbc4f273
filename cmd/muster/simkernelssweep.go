package main

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"muster/mapping"
	"muster/model"
	"muster/report"
	"muster/report/kernelpage"
	"muster/sim/kernels"
	"muster/workload/phased"
)

// kernelSweep is many runs: every mapper on every size with every seed.
type kernelSweep struct {
	// study has mappers, sizes and seeds before, and the runs after.
	study *kernelpage.Study
	// config is what all runs have in common.
	config kernels.Config
	// clusters and workloads are those of each size.
	clusters  []*model.Cluster
	workloads []*phased.Workload
	workers   int
	explain   []kernels.Moment // calls of the first seed and size
	drawn     bool             // the pictures are wanted
	trace     io.Writer        // gets every stage of every call of the first seed and size; may be nil
}

// run makes all runs, with a progress bar on a terminal, until they are done or
// interrupted.
func (s *kernelSweep) run(c *cobra.Command) error {
	ctx, stop := signal.NotifyContext(c.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the program at once
	s.lay()
	const steps = 1000 // of each run
	bar := report.NewProgress(c.ErrOrStderr(), isTerminal(c.ErrOrStderr()), "simulating", steps*int64(len(s.study.Runs)))
	err := s.all(ctx, func(done float64) { bar.Set(int64(done * steps)) })
	bar.Done()
	if err != nil && ctx.Err() != nil {
		return interruptedf("nothing was written")
	}
	return err
}

// lay lists the runs, in this order: seeds, then sizes, then mappers.
func (s *kernelSweep) lay() {
	for _, seed := range s.study.Seeds {
		for size := range s.study.Nodes {
			for _, policy := range s.study.Policies {
				s.study.Runs = append(s.study.Runs, kernelpage.Run{Policy: policy, Seed: seed, Cluster: s.clusters[size], Workload: s.workloads[size]})
			}
		}
	}
}

// all makes the runs, as many at a time as there are workers. Progress is told how
// many runs are done, with parts of those under way. Runs that are traced go one after the
// other, so that the trace is the same with any number of workers and need not be kept.
func (s *kernelSweep) all(ctx context.Context, progress func(done float64)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	sum := progressOfRuns{call: progress, done: make([]float64, len(s.study.Runs))}
	var trace *traceWriter
	if s.trace != nil {
		trace = newTraceWriter(s.trace)
	}
	turn := make(chan struct{}) // closed when the traced run before is done
	close(turn)
	slots := make(chan struct{}, s.workers)
	var wg sync.WaitGroup
	for i := range s.study.Runs {
		slots <- struct{}{}
		if ctx.Err() != nil {
			<-slots
			break
		}
		mine, next := turn, make(chan struct{})
		traced := trace != nil && s.study.Drawn(i)
		if traced {
			turn = next
		}
		wg.Go(func() {
			defer func() { <-slots }()
			defer close(next)
			if traced {
				<-mine
			}
			if err := s.one(ctx, i, trace, sum.of(i)); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if trace != nil {
		return trace.flush()
	}
	return nil
}

// one makes a run.
func (s *kernelSweep) one(ctx context.Context, index int, trace *traceWriter, progress func(float64)) error {
	r := &s.study.Runs[index]
	cfg := s.config
	cfg.Cluster, cfg.Workload, cfg.Seed = r.Cluster, r.Workload, r.Seed
	cfg.Mapper = func(l *mapping.Layout) (mapping.Mapper, error) { return mapping.New(r.Policy, l) }
	if cfg.Span > 0 {
		cfg.Progress = func(now time.Duration) { progress(float64(now) / float64(cfg.Span)) }
	}
	if s.study.Drawn(index) {
		cfg.Explain = s.explain
		var watch observers
		if s.drawn {
			r.Recorder = kernelpage.NewRecorder(r.Cluster, r.Workload, kernelpage.Blocks(len(s.study.Policies), r.Cluster.TotalGPUs()))
			watch = append(watch, r.Recorder)
		}
		if trace != nil {
			watch = append(watch, trace.of(r))
		}
		if watch != nil {
			cfg.Observe = watch
		}
	}
	var err error
	if r.Result, err = kernels.Run(ctx, cfg); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s on %d nodes, seed %d: %w", r.Policy, r.Nodes(), r.Seed, err)
	}
	progress(1)
	return err
}

// progressOfRuns adds up how far all runs have come.
type progressOfRuns struct {
	sync.Mutex
	call func(float64)
	done []float64
	sum  float64
}

func (p *progressOfRuns) of(run int) func(part float64) {
	return func(part float64) {
		p.Lock()
		defer p.Unlock()
		p.sum += part - p.done[run]
		p.done[run] = part
		p.call(p.sum)
	}
}

// observers are told everything, one after the other.
type observers []kernels.Observer

func (o observers) Event(e kernels.Event) {
	for _, each := range o {
		each.Event(e)
	}
}

func (o observers) Rate(at time.Duration, call, rate int64) {
	for _, each := range o {
		each.Rate(at, call, rate)
	}
}

// traceWriter writes a line for each stage of each call. There are millions of
// them: a line is put together by hand.
type traceWriter struct {
	w    *bufio.Writer
	line []byte
	err  error
}

func newTraceWriter(w io.Writer) *traceWriter {
	t := &traceWriter{w: bufio.NewWriterSize(w, 1<<16)}
	_, t.err = t.w.WriteString("policy,seed,nodes,at_s,stage,call,app,rank,node,device,device_node,bytes\n")
	return t
}

func (t *traceWriter) flush() error { return errors.Join(t.err, t.w.Flush()) }

// tracer writes those of one run.
type tracer struct {
	*traceWriter
	run     string   // the first fields of its lines
	process []string // application, rank and node of each
	device  []string // the number of each on its node, and the node
}

func (t *traceWriter) of(r *kernelpage.Run) *tracer {
	one := &tracer{traceWriter: t, run: fields(r.Policy, strconv.FormatUint(r.Seed, 10), strconv.Itoa(r.Nodes())) + ","}
	for _, p := range kernelpage.Processes(r.Cluster, r.Workload) {
		one.process = append(one.process, fields(r.Workload.Apps[p.App].Name, strconv.Itoa(int(p.Rank)), r.Cluster.Nodes[p.Node].Name)+",")
	}
	for n := range r.Cluster.Nodes {
		for k := range r.Cluster.Nodes[n].GPUs {
			one.device = append(one.device, fields(strconv.Itoa(k), r.Cluster.Nodes[n].Name)+",")
		}
	}
	return one
}

// fields writes some fields as CSV does.
func fields(list ...string) string {
	var b strings.Builder
	w := csv.NewWriter(&b)
	w.Write(list) // a strings.Builder takes everything
	w.Flush()
	return strings.TrimSuffix(b.String(), "\n")
}

// stageNames are those of the trace, by stage.
var stageNames = [...]string{
	kernels.Launched: "launched", kernels.Queued: "queued", kernels.Holding: "holding", kernels.Sending: "sending",
	kernels.Running: "running", kernels.Returning: "returning", kernels.Released: "released", kernels.Done: "done",
}

func (t *tracer) Event(e kernels.Event) {
	b := append(t.line[:0], t.run...)
	b = appendSeconds(b, e.At)
	b = append(append(append(b, ','), stageNames[e.Stage]...), ',')
	b = append(strconv.AppendInt(b, e.Call+1, 10), ',') // as --explain numbers them
	b = append(b, t.process[e.Process]...)
	if e.Device >= 0 {
		b = append(b, t.device[e.Device]...)
	} else {
		b = append(b, ",,"...)
	}
	b = append(strconv.AppendInt(b, e.Bytes, 10), '\n')
	t.line = b
	if t.err == nil {
		_, t.err = t.w.Write(b)
	}
}

// Rate is not traced.
func (t *tracer) Rate(time.Duration, int64, int64) {}

// appendSeconds writes a time exactly, without zeros at the end.
func appendSeconds(b []byte, d time.Duration) []byte {
	b = strconv.AppendInt(b, int64(d/time.Second), 10)
	rest := int64(d % time.Second)
	if rest == 0 {
		return b
	}
	b = append(b, '.')
	for unit := int64(time.Second) / 10; rest > 0; unit /= 10 {
		b = append(b, byte('0'+rest/unit))
		rest %= unit
	}
	return b
}
