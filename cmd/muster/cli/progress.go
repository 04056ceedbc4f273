package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"muster/internal/screen"
	"muster/report"
)

// UntilSignal is a context that ends with Ctrl-C or SIGTERM. A second one ends the program at once.
func UntilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// WithProgress does something that takes long, with a progress bar on a terminal, until it is done or
// interrupted.
func WithProgress[Result any](c *cobra.Command, name string, do func(ctx context.Context, progress func(done, all int64)) (Result, error)) (Result, error) {
	ctx, stop := UntilSignal(c.Context())
	defer stop()
	const steps = 10_000
	bar := report.NewProgress(c.ErrOrStderr(), screen.IsTerminal(c.ErrOrStderr()), name, steps)
	result, err := do(ctx, func(done, all int64) {
		if all > 0 {
			bar.Set(int64(float64(done) / float64(all) * steps))
		}
	})
	bar.Done()
	if err != nil && ctx.Err() != nil {
		err = Interruptedf("nothing was written")
	}
	return result, err
}
