package whatifrun

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"muster/head/api"
	"muster/head/whatif"
	"muster/policy"
)

// Order is what is to be done.
type Order struct {
	whatif.Header
	// PolicyTime is what one policy may use of the processor.
	PolicyTime time.Duration `json:"policy_time"`
	// Memory is what the process may have.
	Memory int64 `json:"memory"`
}

// Message is what the process says.
type Message struct {
	// Progress is how far it is, from 0 to 1.
	Progress float64 `json:"progress"`
	// Period is what is known so far.
	Period *api.WhatIfPeriod `json:"period,omitempty"`
	Done   bool              `json:"done,omitempty"`
	Error  string            `json:"error,omitempty"`
}

// last is the line behind the last job.
const last = "end"

// maxLine is more than any line has: an order has all jobs that wait.
const maxLine = 1 << 30

// Serve does what the head wants. What it returns has been said as a Message too.
func Serve(in io.Reader, out io.Writer, policyOf func(spec string) (policy.Policy, error)) error {
	s := &server{lines: bufio.NewReaderSize(in, 1<<16), out: out, policyOf: policyOf}
	err := s.serve()
	if err != nil {
		s.say(Message{Error: err.Error()})
	}
	return err
}

type server struct {
	lines    *bufio.Reader
	policyOf func(spec string) (policy.Policy, error)
	mu       sync.Mutex
	out      io.Writer
}

func (s *server) say(m Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line, err := json.Marshal(m)
	if err == nil {
		_, err = s.out.Write(append(line, '\n'))
	}
	if err != nil {
		os.Exit(1) // the process that asked has gone
	}
}

func (s *server) serve() error {
	var o Order
	line, err := s.line()
	if err == nil {
		err = json.Unmarshal(line, &o)
	}
	if err != nil {
		return fmt.Errorf("the order: %w", err)
	}
	if err := beModest(o.Memory); err != nil {
		return err
	}
	w, err := s.workload(&o)
	if err != nil {
		return err
	}
	go func() { // until the head is gone
		_, _ = io.Copy(io.Discard, s.lines)
		os.Exit(1)
	}()
	period := w.Period()
	s.say(Message{Period: &period})
	for i, c := range o.Policies {
		if period.Jobs == 0 {
			break
		}
		line, trial := s.try(w, &c, o.PolicyTime, func(part float64) {
			s.say(Message{Progress: (float64(i) + part) / float64(len(o.Policies))})
		})
		if c.InForce && trial != nil {
			period.Model = whatif.Accuracy(period.Measured, trial)
		}
		period.Policies = append(period.Policies, line)
		s.say(Message{Progress: float64(i+1) / float64(len(o.Policies)), Period: &period})
		debug.FreeOSMemory() // what one policy took is not the next one's
	}
	s.say(Message{Progress: 1, Period: &period, Done: true})
	return nil
}

// line reads a line without its end.
func (s *server) line() ([]byte, error) {
	var long []byte
	for {
		piece, err := s.lines.ReadSlice('\n')
		if err == nil && long == nil {
			return bytes.TrimSuffix(piece, []byte("\n")), nil
		}
		long = append(long, piece...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(long, []byte("\n")), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		case len(long) > maxLine:
			return nil, errors.New("a line is far too long")
		}
	}
}

// workload reads the jobs.
func (s *server) workload(o *Order) (*whatif.Workload, error) {
	history, err := whatif.New(o.Header)
	if err != nil {
		return nil, err
	}
	for {
		line, err := s.line()
		if err != nil {
			return nil, fmt.Errorf("the jobs: %w", err)
		}
		if string(line) == last {
			return history.Workload(), nil
		}
		var job api.Job
		if err := json.Unmarshal(line, &job); err != nil {
			return nil, fmt.Errorf("the jobs: %w", err)
		}
		history.Add(&job)
	}
}

// tellEvery is how often it is said how far a policy is.
const tellEvery = time.Second

// try simulates one policy, for as long as it may take.
func (s *server) try(w *whatif.Workload, c *whatif.Candidate, may time.Duration, tell func(part float64)) (api.WhatIfPolicy, *whatif.Trial) {
	line := api.WhatIfPolicy{Policy: c.Name, InForce: c.InForce}
	p, err := s.policyOf(c.Spec)
	if err != nil {
		line.Error = err.Error()
		return line, nil
	}
	before := processorTime()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	late := fmt.Errorf("not done in %v of the processor's time", may)
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		watch(done, func() bool { return processorTime()-before > may }, func() { cancel(late) })
	}()
	told := before
	trial, err := tryGuarded(ctx, w, p, func(n int) {
		if now := processorTime(); now-told > tellEvery {
			told = now
			tell(float64(n) / float64(max(1, w.Jobs())))
		}
	})
	close(done)
	<-watched
	line.Took = math.Round((processorTime()-before).Seconds()*1e3) / 1e3
	switch {
	case context.Cause(ctx) != nil && err != nil:
		line.Error = context.Cause(ctx).Error()
	case err != nil:
		line.Error = err.Error()
	default:
		line.Figures, line.Users, line.UsersLeftOut = &trial.Figures, trial.Users, trial.UsersLeftOut
		return line, trial
	}
	return line, nil
}

// tryGuarded makes errors of a policy's panics: the others are still to come.
func tryGuarded(ctx context.Context, w *whatif.Workload, p policy.Policy, progress func(int)) (t *whatif.Trial, err error) {
	defer func() {
		if r := recover(); r != nil {
			t, err = nil, fmt.Errorf("the policy failed: %v", r)
		}
	}()
	return w.Try(ctx, p, progress)
}

// watch looks now and then whether it is late.
func watch(done <-chan struct{}, late func() bool, stop func()) {
	regularly := time.NewTicker(100 * time.Millisecond)
	defer regularly.Stop()
	for {
		select {
		case <-done:
			return
		case <-regularly.C:
			if late() {
				stop()
				return
			}
		}
	}
}

// processorTime is what this process has used so far.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// lowest is the priority of the process: it runs when no other process wants to.
const lowest = 19

// beModest makes the process take one core at a time, behind all others, and no more
// memory than it may. If memory is short it is the first to be ended.
func beModest(memory int64) error {
	runtime.GOMAXPROCS(1)
	if err := niceAll(lowest); err != nil {
		return fmt.Errorf("the lowest priority: %w", err)
	}
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0o644) // it is a wish
	if memory > 0 {
		debug.SetMemoryLimit(memory - memory/8)
		limit := syscall.Rlimit{Cur: uint64(memory), Max: uint64(memory)}
		if err := syscall.Setrlimit(syscall.RLIMIT_DATA, &limit); err != nil {
			return fmt.Errorf("the limit of memory: %w", err)
		}
	}
	return nil
}

// niceAll sets the priority of all threads: Linux keeps one for each.
func niceAll(priority int) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return syscall.Setpriority(syscall.PRIO_PROCESS, 0, priority)
	}
	for _, t := range threads {
		var id int
		if _, err := fmt.Sscan(t.Name(), &id); err == nil {
			if err := syscall.Setpriority(syscall.PRIO_PROCESS, id, priority); err != nil && !errors.Is(err, syscall.ESRCH) {
				return err
			}
		}
	}
	return nil
}
