package driver

import (
	"context"
	"fmt"
	"os/exec"
	"syscall"
	"time"

	"muster/slurm"
)

// Guard hands the jobs of a driver that was killed to Slurm's own scheduler, unless another driver
// answers within a time. Jobs that need borrowed GPUs continue to wait.
func Guard(ctx context.Context, e Engine, cfg Config, after time.Duration) error {
	for end := time.Now().Add(after); time.Now().Before(end); {
		if _, err := AskStatus(ctx, cfg.Socket); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(min(time.Second, after/4+time.Millisecond)):
		}
	}
	cfg.Record, cfg.Lending, cfg.Alive = nil, nil, ""
	d, err := New(e, cfg)
	if err != nil {
		return err
	}
	picture, err := d.read(ctx)
	if err != nil {
		return fmt.Errorf("Slurm does not answer, and jobs go on waiting: %w", err)
	}
	picture.Asked = d.now()
	d.core.Observe(d.now(), picture)
	d.core.Take() // Guard places nothing
	return d.handOver(d.core.Held("Muster's driver was killed: Slurm's scheduler has it"))
}

// handOver hands jobs to Slurm's scheduler.
func (d *Driver) handOver(jobs []slurm.Say) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var list []request
	for _, s := range jobs {
		list = append(list, request{0, func(ctx context.Context) error { return d.engine.Handover(ctx, s.Job, s.Comment) }})
	}
	d.cfg.Log.Info("handing waiting jobs to Slurm's scheduler", "jobs", len(list))
	d.send(ctx, list)
	return nil
}

// StartGuard starts this program again with arguments that have it call Guard when its standard input
// ends: it outlives this process if that is killed, and hands the waiting jobs over then. A driver that
// ends by itself dismisses it.
func StartGuard(arguments []string) (dismiss func(), err error) {
	// The new process inherits none of this one's outputs, so that a reader that waits for their
	// end does not wait for it, too.
	guard := exec.Command("/proc/self/exe", arguments...)
	guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // signals of a terminal are not for it
	alive, err := guard.StdinPipe()
	if err == nil {
		err = guard.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("the process that hands jobs over if this one is killed: %w", err)
	}
	return func() {
		_ = guard.Process.Kill()
		_ = guard.Wait()
		_ = alive.Close()
	}, nil
}
