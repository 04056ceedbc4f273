package live

import (
	"context"
	"fmt"

	"muster/exp"
)

// Step is one measurement. Steps run one after the other, because concurrent ones would disturb
// each other.
type Step struct {
	Name string
	// Work is the step's share of the total work, for the progress bar.
	Work int
	// Do performs the step, and reports how much of its work is done.
	Do func(ctx context.Context, progress func(done int)) error
}

// Measure performs the steps. When the context ends, it returns the names of the missing steps;
// that is no error.
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
