package noderuntime

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

	"muster/internal/wholefile"
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

	Alone    map[string]alone     `json:"alone"`    // by a program's name
	Addition float64              `json:"addition"` // seconds that a vector addition takes on a GTX 480
	Outcomes map[string][]outcome `json:"outcomes"` // one a seed
}

const savedVersion = 1

var savedLimit = wholefile.Limit{Bytes: 16 << 20, Remedy: "it must be a file that --save wrote"}

func (m *measured) save(path string) error {
	text, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o666)
}

func load(path string) (*measured, error) {
	text, err := savedLimit.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m, err := decode(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// decode reads what save wrote, and nothing else.
func decode(text []byte) (*measured, error) {
	m := &measured{}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(m); err != nil {
		return nil, fmt.Errorf("it is no file that --save wrote: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the document")
	}
	return m, m.check()
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
