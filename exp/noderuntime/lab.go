package noderuntime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"muster/node"
)

// workerCommand starts a worker: this very program, unless a test says
// otherwise.
var workerCommand = func() ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program, to start workers: %w", err)
	}
	return []string{self, "worker"}, nil
}

// setting is a node as an experiment wants it.
type setting struct {
	devices []node.Device
	vgpus   int
	maxIdle time.Duration
}

var nodes atomic.Int64

// withNode runs f with a node of its own, which has gone when it returns.
func withNode(ctx context.Context, s setting, f func(socket string) error) error {
	command, err := workerCommand()
	if err != nil {
		return err
	}
	cfg := node.Default()
	cfg.Name = name
	cfg.Socket.Address = fmt.Sprintf("@muster-%s-%d-%d", name, os.Getpid(), nodes.Add(1))
	cfg.Devices, cfg.VGPUs, cfg.MaxIdle = s.devices, s.vgpus, s.maxIdle
	// No spare workers: to start them takes time off those that are measured.
	cfg.Warm, cfg.Grace = 0, 5*time.Second
	cfg.Swap.Size = 64 << 30 // a promise: only what is written takes memory
	ready, kill, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	running, stop := context.WithCancel(context.Background())
	defer stop()
	opts := node.Options{
		Open: openSoft, WorkerCommand: command, Log: slog.New(slog.DiscardHandler), Now: time.Now,
		Ready: func() { close(ready) }, Kill: kill,
	}
	go func() { ended <- node.Run(running, cfg, opts) }()
	select {
	case <-ready:
	case err := <-ended:
		return err
	}
	// An interrupt ends the node, and with it all scripts that wait for it.
	end := sync.OnceFunc(func() { close(kill) })
	defer context.AfterFunc(ctx, end)()
	err = f(cfg.Socket.Address)
	if err != nil {
		end()
	}
	stop()
	return errors.Join(ctx.Err(), err, <-ended)
}

// together runs functions at the same time and returns their errors.
func together(n int, f func(i int) error) error {
	failed := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { failed[i] = f(i) })
	}
	all.Wait()
	return errors.Join(failed...)
}

// watchMachine looks how late the machine wakes sleepers up until it is called
// back, in seconds on average. A busy machine distorts all times.
func watchMachine() (late func() float64) {
	const nap = 2 * time.Millisecond
	stop, answer := make(chan struct{}), make(chan float64)
	go func() {
		var over time.Duration
		for naps := 1; ; naps++ {
			start := time.Now()
			time.Sleep(nap)
			over += time.Since(start) - nap
			select {
			case <-stop:
				answer <- over.Seconds() / float64(naps)
				return
			default:
			}
		}
	}()
	return func() float64 {
		close(stop)
		return <-answer
	}
}
