package script

import (
	"fmt"

	"go.starlark.net/starlark"

	"muster/model"
	"muster/policy"
)

// decide is the way of scripts that define decide(view, plan).
type decide struct {
	in   *interp
	look look
	view *viewValue
	plan *planValue
	// The functions of the file; explain may be nil.
	function, explain *starlark.Function
	// lines are the waiting jobs by what they ask for; nil until the script asks for them.
	lines *policy.Lines
	// walks counts the walks over lines: those before the latest are over.
	walks int
}

func newDecide(in *interp) way {
	d := &decide{in: in}
	d.look.meter = &in.meter
	d.view, d.plan = newView(d), newPlan(d)
	return d
}

func (d *decide) names() starlark.StringDict { return nil }

func (d *decide) ready() (policy.Traits, *Error) {
	var t policy.Traits
	var failure *Error
	if d.function, failure = d.in.function("decide", 2); failure != nil {
		return t, failure
	}
	if d.explain, failure = d.in.function("why", 2); failure != nil {
		return t, failure
	}
	t, err := traitsOf(d.in.globals)
	if err != nil {
		return t, &Error{File: d.in.file, Message: clipped(err.Error())}
	}
	d.look.mode = t.Mode
	return t, nil
}

// orders are the values of the name order.
var orders = map[string]func(*model.Job) int64{
	"priority":   policy.ByPriority,
	"submission": nil,
	"estimate":   func(j *model.Job) int64 { return int64(j.Estimate()) },
}

// modes are the values of the name placement.
var modes = map[string]policy.Mode{"sharing": policy.Sharing, "alone": policy.Alone, "borrowing": policy.Borrowing}

// traitsOf reads what a file says of itself, outside of functions.
func traitsOf(globals starlark.StringDict) (policy.Traits, error) {
	t := policy.Traits{Order: policy.ByPriority, Ends: true}
	if v, ok := globals["order"]; ok {
		text, _ := starlark.AsString(v)
		if t.Order, ok = orders[text]; !ok {
			return t, fmt.Errorf("order is \"priority\", \"submission\" or \"estimate\", not %s", clipped(v.String()))
		}
	}
	if v, ok := globals["placement"]; ok {
		text, _ := starlark.AsString(v)
		if t.Mode, ok = modes[text]; !ok {
			return t, fmt.Errorf("placement is \"sharing\", \"alone\" or \"borrowing\", not %s", clipped(v.String()))
		}
	}
	if v, ok := globals["alternatives"]; ok {
		b, ok := v.(starlark.Bool)
		if !ok {
			return t, fmt.Errorf("alternatives is True or False, not a %s", v.Type())
		}
		t.Alternatives = bool(b)
	}
	return t, nil
}

func (d *decide) step(v *policy.View, plan *policy.Plan, anew bool) *Error {
	d.look.view, d.look.plan = v, plan
	d.view.begin(anew)
	if anew {
		d.lines = nil
	}
	if d.lines != nil {
		d.lines.Begin(v)
	}
	_, failure := d.in.call(d.function, d.view, d.plan)
	d.look.plan = nil
	d.walks++
	return failure
}

func (d *decide) why(v *policy.View, id policy.JobID) (string, *Error) {
	if d.explain == nil {
		return "", nil
	}
	d.look.view = v
	result, failure := d.in.call(d.explain, d.view, &Job{&d.look, id})
	if failure != nil {
		return "", failure
	}
	text, _ := starlark.AsString(result)
	return clipped(text), nil
}
