package whatifpage

import (
	"fmt"
	"io"
	"slices"
	"time"

	"muster/report"
	"muster/wire/api"
)

// Choose leaves the period of that name, and of its policies those that are named and the one in force.
// All periods and policies stay where none is named.
func Choose(w *api.WhatIf, period string, policies []string) {
	w.Periods = slices.DeleteFunc(w.Periods, func(p api.WhatIfPeriod) bool { return period != "" && p.Name != period })
	if len(policies) == 0 {
		return
	}
	for i := range w.Periods {
		w.Periods[i].Policies = slices.DeleteFunc(w.Periods[i].Policies, func(l api.WhatIfPolicy) bool { return !l.InForce && !slices.Contains(policies, l.Policy) })
	}
}

// usersInText is how many users the terminal gets.
const usersInText = 30

// Text says how the periods are written for a terminal.
type Text struct {
	Users   bool // what the policies mean for each user, too
	Columns int  // of the terminal; 0 is no limit
	Zone    *time.Location
	// Tell gets what is to be said beside the tables, a sentence at a time.
	Tell func(sentence string)
}

// Write writes the tables of all periods that were simulated, and tells what else there is to say of each.
func (t *Text) Write(out io.Writer, w *api.WhatIf) error {
	for i := range w.Periods {
		p := &w.Periods[i]
		t.tellState(p, w.Next)
		if p.MadeAt == 0 {
			continue
		}
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := figures(p, t.Zone).WriteFitted(out, t.Columns); err != nil {
			return err
		}
		if t.Users {
			fmt.Fprintln(out)
			if err := users(p, usersInText).WriteFitted(out, t.Columns); err != nil {
				return err
			}
		}
		for _, note := range p.Notes {
			t.Tell(fmt.Sprintf("note: last %s: %s", p.Name, note))
		}
	}
	return nil
}

// tellState tells what is wrong with a period's simulation, or how far it is.
func (t *Text) tellState(p *api.WhatIfPeriod, next float64) {
	if p.Error != "" {
		t.Tell(fmt.Sprintf("the last %s could not be simulated: %s", p.Name, p.Error))
	}
	if p.Running {
		t.Tell(fmt.Sprintf("note: the last %s is being simulated anew, %s done", p.Name, report.Percent(p.Progress)))
	}
	if p.MadeAt == 0 && p.Error == "" {
		t.Tell(fmt.Sprintf("note: the last %s has not been simulated yet%s", p.Name, t.when(next)))
	}
}

// when says when the head will simulate by itself.
func (t *Text) when(next float64) string {
	if next == 0 {
		return ": an administrator can have that done (--now)"
	}
	return fmt.Sprintf(": it will be at %s, or now with --now", time.Unix(int64(next), 0).In(t.Zone).Format("2006-01-02 15:04"))
}
