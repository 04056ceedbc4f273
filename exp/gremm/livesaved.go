package gremm

import (
	"errors"
	"fmt"
	"slices"
)

const liveVersion = 1

// check validates numbers that were read from a file.
func (m *liveMeasured) check() error {
	good := func(v float64) bool { return v > 0 && v < 1e12 }
	switch {
	case m.Version != liveVersion:
		return fmt.Errorf("version %d: this program reads version %d", m.Version, liveVersion)
	case len(m.Runs) == 0:
		return errors.New("nothing was measured")
	}
	for _, r := range slices.Concat(m.Runs, m.Own) {
		known := slices.Contains(mixes, r.Workload) && slices.ContainsFunc(ofPaper, func(p policy) bool { return p.mapper == r.Mapper })
		for _, n := range []liveNumbers{r.Real, r.Predicted} {
			if !known || !good(n.Utilisation) || !good(n.Kernels) || !good(n.Wait) || !(n.Remote >= 0 && n.Remote <= 100) {
				return fmt.Errorf("%+v", r)
			}
		}
	}
	return nil
}
