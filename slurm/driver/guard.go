package driver

import (
	"context"
	"fmt"
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
