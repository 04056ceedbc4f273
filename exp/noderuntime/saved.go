package noderuntime

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"muster/exp"
	"muster/exp/bench"
)

// measured is all that was measured. It can be kept in a file.
type measured struct {
	Version int      `json:"version"`
	Machine string   `json:"machine"` // in a few words
	Figures []string `json:"figures"`
	All     bool     `json:"all"`   // all points of these figures
	Scale   int      `json:"scale"` // one of so many of the paper's iterations was made
	Seeds   []uint64 `json:"seeds"`
	LeftOut string   `json:"left_out,omitempty"` // which figures, and why
	Missing string   `json:"missing,omitempty"`  // what an interrupt prevented

	Alone    map[string]alone     `json:"alone"`    // by a program's name
	Addition float64              `json:"addition"` // seconds that a vector addition takes on a GTX 480
	Outcomes map[string][]outcome `json:"outcomes"` // one a seed
}

const savedVersion = 1

func (m *measured) save(path string) error { return bench.Save(path, m) }

func load(path string) (*measured, error) {
	m := &measured{}
	return m, bench.Load(path, m, m.check)
}

// keep drops what an interrupt left incomplete, and notes it in Missing: the seeds that
// were not reached or, during the first, the figures. It says whether anything is left.
func (m *measured) keep(chosen []figure) bool {
	whole := len(m.Seeds)
	var complete, missing []string
	for _, f := range chosen {
		least := whole
		for _, one := range f.plan(m.All) {
			least = min(least, len(m.Outcomes[one.key]))
		}
		if least > 0 {
			complete = append(complete, f.name)
		} else {
			missing = append(missing, f.name)
		}
		whole = min(whole, least)
	}
	if len(missing) > 0 {
		m.Missing = "figures " + strings.Join(missing, ", ")
		whole = 1 // of the figures that are complete; measure begins with all of the first seed
	}
	if later := len(m.Seeds) - whole; later > 0 {
		m.Missing = strings.TrimPrefix(m.Missing+"; the last "+exp.Plural(later, "seed"), "; ")
	}
	m.Figures, m.Seeds = complete, m.Seeds[:whole]
	kept := map[string][]outcome{}
	for _, f := range chosen {
		for _, one := range f.plan(m.All) {
			if slices.Contains(complete, f.name) {
				kept[one.key] = m.Outcomes[one.key][:whole]
			}
		}
	}
	m.Outcomes = kept
	return len(complete) > 0
}

// decode reads what save wrote, and nothing else.
func decode(text []byte) (*measured, error) {
	m := &measured{}
	return m, bench.Decode(text, m, m.check)
}

// check says what is wrong with numbers that come from a file.
func (m *measured) check() error {
	good := func(v float64) bool { return v > 1e-9 && v < 1e9 } // ratios are finite then; what is no number is not good either
	switch {
	case m.Version != savedVersion:
		return fmt.Errorf("version %d: this program reads version %d", m.Version, savedVersion)
	case m.Scale < 1 || m.Scale > maxScale:
		return fmt.Errorf("scale %d: it must be from 1 to %d", m.Scale, maxScale)
	case len(m.Seeds) == 0 || len(m.Figures) == 0 || len(m.Outcomes) == 0:
		return errors.New("nothing was measured")
	case m.Addition != 0 && !good(m.Addition):
		return fmt.Errorf("an addition of %v s", m.Addition)
	}
	for _, f := range m.Figures {
		if !slices.Contains(figureNames(), f) {
			return fmt.Errorf("there is no figure %q", f)
		}
	}
	for name, a := range m.Alone {
		if !good(a.Seconds) || !good(a.Kernel) || !good(a.Copy) || a.Kernels == 0 {
			return fmt.Errorf("program %s: %+v", name, a)
		}
	}
	for key, list := range m.Outcomes {
		if len(list) != len(m.Seeds) {
			return fmt.Errorf("%s was measured %d times, with %d seeds", key, len(list), len(m.Seeds))
		}
		for _, o := range list {
			if !good(o.Seconds) || !(math.Abs(o.Late) < 1e9) {
				return fmt.Errorf("%s: %+v", key, o)
			}
		}
	}
	return m.complete()
}

// complete says whether all is there that the figures show.
func (m *measured) complete() error {
	for _, f := range figures() {
		if !slices.Contains(m.Figures, f.name) {
			continue
		}
		if f.mpi && m.Addition == 0 {
			return fmt.Errorf("figure %s without the time of an addition", f.name)
		}
		for _, one := range f.plan(m.All) {
			if !m.has(one.key) {
				return fmt.Errorf("figure %s without %s", f.name, one.key)
			}
		}
	}
	return nil
}
