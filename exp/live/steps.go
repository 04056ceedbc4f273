package live

import (
	"context"
	"fmt"

	"muster/exp"
)

// Step is one thing to measure. Runs follow each other: at the same time they would disturb each
// other.
type Step struct {
	Name string
	// Work is how much of it all it is, for the progress bar.
	Work int
	// Do does it, and tells how much of the work is done.
	Do func(ctx context.Context, progress func(done int)) error
}

// Measure does the steps. When the context ends it says which are missing; that is no error.
func Measure(ctx context.Context, o exp.Options, steps []Step) (missing []string, err error) {
	done, total := 0, 0
	for _, s := range steps {
		total += s.Work
	}
	for _, s := range steps {
		if ctx.Err() == nil {
			err := s.Do(ctx, func(n int) {
				if o.Progress != nil {
					o.Progress(int64(done+n), int64(total))
				}
			})
			if err != nil && ctx.Err() == nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
		}
		if ctx.Err() != nil {
			missing = append(missing, s.Name)
		}
		done += s.Work
	}
	return missing, nil
}
