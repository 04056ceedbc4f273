package bench

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"muster/exp"
)

type ran struct{ Timing }

type kept struct{ Record[ran] }

type toMeasure string

func (k toMeasure) Key() string { return string(k) }

// stopping is a lab whose measurements are interrupted after some.
type stopping struct {
	ctx         context.Context
	cancel      func()
	after, made int
	closed      bool
}

func (l *stopping) Make(*toMeasure, uint64) (ran, error) {
	if l.made == l.after {
		l.cancel()
		return ran{}, l.ctx.Err()
	}
	l.made++
	return ran{Timing{Seconds: 1}}, nil
}

func (l *stopping) Close() error {
	l.closed = true
	return nil
}

// twoFigures is a study of two figures, which share a measurement.
func twoFigures() *Study[kept, ran, toMeasure] {
	figure := func(name string, keys ...toMeasure) Figure[kept, toMeasure] {
		return Figure[kept, toMeasure]{Name: name, Part: "Part " + name, Plan: func(*kept) []toMeasure { return keys }, Show: func(m *kept) Shown {
			return Shown{Rows: []exp.Row{exp.OverMedian("Part "+name, name+"_s", "s", m.Seconds(string(keys[0])))}}
		}}
	}
	return &Study[kept, ran, toMeasure]{
		Version: 1, Record: func(m *kept) *Record[ran] { return &m.Record }, TooLate: 0.001,
		Figures: func() []Figure[kept, toMeasure] {
			return []Figure[kept, toMeasure]{figure("one", "one_a", "shared"), figure("two", "two_a", "shared", "two_b")}
		},
		Check: func(*kept) error { return nil }, Good: func(*ran) bool { return true },
		Notes: func(*kept) []string { return nil }, Claims: func(*kept) []exp.Row { return nil },
	}
}

// An interrupt keeps what is complete: the seeds before it or, during the first, the figures before it;
// and says what is missing.
func TestInterruptedStudy(t *testing.T) {
	for _, c := range []struct {
		seeds, measured int // the interrupt comes after measured of 4 measurements per seed
		figures         []string
		kept            int // seeds
		missing         string
	}{
		{3, 1, nil, 0, ""},
		{3, 2, []string{"one"}, 1, "figures two; the last 2 seeds"},
		{1, 3, []string{"one"}, 1, "figures two"},
		{3, 4, []string{"one", "two"}, 1, "the last 2 seeds"},
		{3, 11, []string{"one", "two"}, 2, "the last 1 seed"},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		lab := &stopping{ctx: ctx, cancel: cancel, after: c.measured}
		s := twoFigures()
		s.Begin = func(context.Context, exp.Options) (*kept, Lab[ran, toMeasure], error) {
			m := &kept{NewRecord[ran](1, []uint64{1, 2, 3}[:c.seeds])}
			m.Figures = s.FigureNames()
			return m, lab, nil
		}
		m, err := s.measure(ctx, exp.Options{})
		if !lab.closed || c.figures == nil != errors.Is(err, context.Canceled) {
			t.Errorf("%+v: %v, closed %v", c, err, lab.closed)
		}
		if c.figures == nil || err != nil {
			continue
		}
		if !slices.Equal(m.Figures, c.figures) || len(m.Seeds) != c.kept || m.Missing != c.missing {
			t.Errorf("%+v: %+v", c, m)
		}
		for key, list := range m.Outcomes {
			if len(list) != c.kept {
				t.Errorf("%+v: %d of %s", c, len(list), key)
			}
		}
		if err := s.check(m); err != nil {
			t.Errorf("%+v: what is kept cannot be read again: %v", c, err)
		}
		if r, err := s.Result(m); err != nil || r.Check() != nil || len(r.Rows) != len(c.figures) {
			t.Errorf("%+v: %+v, %v", c, r, err)
		}
	}
}

// A measurement during which the machine was busy is made again, and it is not the
// time that decides which counts.
func TestBusyMachine(t *testing.T) {
	const tooLate = 0.001
	list := []Timing{{1, 3 * tooLate}, {3, 2 * tooLate}, {2, 4 * tooLate}, {9, 0}}
	tries := 0
	measure := func(patience time.Duration, enough int) Timing {
		tries = 0
		out, _, err := Quietly(&patience, tooLate, func() (Timing, float64, error) {
			if tries++; tries >= enough {
				patience = 0
			}
			return list[tries-1], list[tries-1].Late, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	// Patience ends with the third try, or is not needed after the fourth.
	if got := measure(time.Hour, 3); got != list[1] || tries != 3 {
		t.Errorf("%+v after %d tries", got, tries)
	}
	if got := measure(time.Hour, 5); got != list[3] || tries != 4 {
		t.Errorf("%+v after %d tries", got, tries)
	}
	if got := measure(0, 5); got != list[0] || tries != 1 {
		t.Errorf("%+v after %d tries without patience", got, tries)
	}
}
