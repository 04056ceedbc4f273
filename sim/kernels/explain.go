package kernels

import (
	"fmt"
	"slices"
	"time"

	"muster/internal/units"
	"muster/mapping"
)

// Moment names a launch of a run: by its number, from 1, or if that is 0, as the first launch at At
// or later.
type Moment struct {
	Call int64
	At   time.Duration
}

// Explained is a launch that the caller asked about, and why the call went where it went.
type Explained struct {
	// Call is its number, from 1, in the order of launch; At is its time.
	Call     int64
	At       time.Duration
	Launched mapping.Call
	// Given is the device that got the call, or -1 if it waits in the shared queue.
	Given int32
	mapping.Account
	// Truth is the number of calls that each of the Choices really had, whatever the mapper saw.
	Truth []int32
}

// ExplainedAt is the explanation of the launch that m names, or nil if the run had no such launch
// or was not asked about it.
func (r *Result) ExplainedAt(m Moment) *Explained {
	for i := range r.Explained {
		// Explained is in the order of launch, so the first one at At or later is the one that m
		// names.
		if e := &r.Explained[i]; m.Call == e.Call || m.Call == 0 && e.At >= m.At {
			return e
		}
	}
	return nil
}

// Unexplained finds the first of the moments at which one of the runs launched no call. It returns its
// index and what that run launched instead, or -1 if all runs explain all moments.
func Unexplained(runs []RunOf, moments []Moment) (int, string) {
	for i, m := range moments {
		for k := range runs {
			r := &runs[k]
			switch {
			case r.ExplainedAt(m) != nil:
			case m.Call == 0:
				return i, fmt.Sprintf("the run of %s launched no call then or later", r.Mapper)
			default:
				launched := int64(0)
				for app := range r.Apps {
					launched += r.Apps[app].Launched
				}
				return i, fmt.Sprintf("the run of %s launched %s", r.Mapper, units.Plural(int(launched), "call"))
			}
		}
	}
	return -1, ""
}

// asked says whether the launch of a call is to be explained, and removes it from the list of those
// to come.
func (e *engine) asked(c *call) bool {
	before := len(e.unexplained)
	e.unexplained = slices.DeleteFunc(e.unexplained, func(m Moment) bool {
		return m.Call == c.number+1 || m.Call == 0 && e.now >= m.At
	})
	return len(e.unexplained) < before
}

// explain lets the mapper choose a device for a call, and keeps the explanation.
func (e *engine) explain(c *call) int32 {
	told := Explained{Call: c.number + 1, At: e.now, Launched: c.Call, Account: mapping.Explain(e.mapper, &c.Call, &e.view)}
	told.Launched.Resident = slices.Clone(c.Resident)
	told.Given = told.Device
	if told.Device == mapping.Anywhere {
		told.Given = e.idle.head
	}
	for i := range told.Choices {
		told.Truth = append(told.Truth, e.truth.Queued(told.Choices[i].Device))
	}
	e.result.Explained = append(e.result.Explained, told)
	return told.Device
}
