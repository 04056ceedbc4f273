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

	"muster/head/whatif"
	"muster/policy"
	"muster/wire/api"
)

// Order is the input of the process without the ended jobs.
type Order struct {
	whatif.Header
	// PolicyTime is the processor time that one policy may use.
	PolicyTime time.Duration `json:"policy_time"`
	// Memory is how many bytes the process may use.
	Memory int64 `json:"memory"`
}

// Message is one line of the process's output.
type Message struct {
	// Progress is the fraction done, from 0 to 1.
	Progress float64 `json:"progress"`
	// Period is the result so far.
	Period *api.WhatIfPeriod `json:"period,omitempty"`
	Done   bool              `json:"done,omitempty"`
	Error  string            `json:"error,omitempty"`
}

// last is the line after the last job.
const last = "end"

// maxLine is longer than any real line: an order contains all waiting jobs.
const maxLine = 1 << 30

// Serve carries out an order. It also reports the error that it returns as a Message.
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
		os.Exit(1) // the head has gone
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
	go func() { // ends this process when the head closes the pipe
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
		debug.FreeOSMemory() // what one policy used does not count for the next
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

// workload reads the ended jobs.
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

// tellEvery is how much processor time passes between two reports of progress.
const tellEvery = time.Second

// try simulates one policy, for at most the processor time may.
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

// tryGuarded turns a policy's panics into errors, since other policies are still to be tried.
func tryGuarded(ctx context.Context, w *whatif.Workload, p policy.Policy, progress func(int)) (t *whatif.Trial, err error) {
	defer func() {
		if r := recover(); r != nil {
			t, err = nil, fmt.Errorf("the policy failed: %v", r)
		}
	}()
	return w.Try(ctx, p, progress)
}

// watch calls stop once late returns true. It asks every 100 ms until done is closed.
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

// beModest restricts the process to one core at a time, at the lowest priority, and to its memory.
// If the machine runs out of memory, the kernel kills this process first.
func beModest(memory int64) error {
	runtime.GOMAXPROCS(1)
	if err := niceAll(lowest); err != nil {
		return fmt.Errorf("the lowest priority: %w", err)
	}
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0o644) // best effort
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
