package script

import (
	"fmt"
	"strings"

	"muster/model"
	"muster/policy"
)

// Policy is a policy that a script decides.
type Policy struct {
	in       *interp
	way      way
	traits   policy.Traits
	fallback policy.Policy
	// makeFallback makes another one, which knows nothing.
	makeFallback func() (policy.Policy, error)
	// behind says that the fallback has missed steps.
	behind bool
	// anew says that the script has missed steps.
	anew    bool
	trouble Trouble
	// row counts the failures since the last success, and rest the steps for which the
	// script is not asked.
	row, rest int
	// noWhy is how the script failed when it was asked why a job waits. It is not asked
	// again.
	noWhy *Error
}

var _ policy.Policy = (*Policy)(nil)

// Trouble is the record of a script's failures.
type Trouble struct {
	// Last is the latest failure; nil if there was none.
	Last *Error
	// Failures counts them, Steps all steps.
	Failures, Steps int
	// Failing says that the latest step failed, or was the fallback's because of those
	// before.
	Failing bool
}

// Load makes a policy of a script's text. name is what it is called in errors, usually
// the name of the file; settings are "key=value:key=value", and named makes the policy that
// decides when the script fails, from its name and settings.
func Load(name string, source []byte, settings string, named func(spec string) (policy.Policy, error)) (*Policy, error) {
	common, own, err := readSettings(settings)
	if err != nil {
		return nil, &Error{File: name, Message: clipped(err.Error())}
	}
	in := newInterp(name)
	if err := in.apply(common); err != nil {
		return nil, &Error{File: name, Message: clipped(err.Error())}
	}
	in.options.given, in.options.used, in.options.loading = own, map[string]bool{}, true
	p := &Policy{in: in, anew: true, behind: true}
	if failure := p.load(source); failure != nil {
		return nil, failure
	}
	spec := strings.ReplaceAll(common["fallback"], "/", ":")
	p.makeFallback = func() (policy.Policy, error) { return named(spec) }
	if p.fallback, err = p.makeFallback(); err != nil {
		return nil, &Error{File: name, Message: clipped(fmt.Sprintf("setting fallback: %s", err))}
	}
	t := p.fallback.Traits()
	p.traits.Ends = p.traits.Ends || t.Ends
	return p, nil
}

func (p *Policy) load(source []byte) *Error {
	in := p.in
	tree, failure := parse(in.file, source)
	if failure != nil {
		return failure
	}
	for _, w := range ways {
		if !defines(tree, w.function) {
			continue
		}
		p.way = w.make(in)
		if failure := in.run(tree, p.way.names()); failure != nil {
			return failure
		}
		if err := in.options.finished(); err != nil {
			return &Error{File: in.file, Message: clipped(err.Error())}
		}
		p.traits, failure = p.way.ready()
		return failure
	}
	return unknownWay(in.file)
}

// Traits are what the script asks for.
func (p *Policy) Traits() policy.Traits { return p.traits }

// Terminate tells the script that its time is over, if it wants to know: it is to be
// called when another takes its place.
func (p *Policy) Terminate() {
	w, ok := p.way.(interface{ terminate() *Error })
	if !ok {
		return
	}
	if failure := w.terminate(); failure != nil {
		p.trouble.Last = failure
		p.trouble.Failures++
	}
}

// Name is what the script is called in errors.
func (p *Policy) Name() string { return p.in.file }

// Options are the settings that the script has of its own.
func (p *Policy) Options() []model.Option { return p.in.options.own }

// Trouble tells how the script has failed.
func (p *Policy) Trouble() Trouble { return p.trouble }

// Printed returns what the script has printed since the last time.
func (p *Policy) Printed() []string { return p.in.printed.take() }

// Used is what the latest call took: steps, and bytes.
func (p *Policy) Used() (steps uint64, memory int64) { return p.in.meter.thread.Steps, p.in.meter.used }

// A script that has failed often in a row is asked less often: each failure may cost
// all the steps that a call has.
const (
	patience = 3
	longRest = 15
)

// Step lets the script decide, or the fallback if it fails.
func (p *Policy) Step(v *policy.View, plan *policy.Plan) {
	p.trouble.Steps++
	if p.rest > 0 {
		p.rest--
		p.anew = true
		p.fallBack(v, plan)
		return
	}
	mark := plan.Mark()
	failure := p.way.step(v, plan, p.anew)
	if failure == nil {
		p.anew, p.behind, p.row, p.trouble.Failing = false, true, 0, false
		return
	}
	plan.UndoTo(mark)
	p.anew = true
	p.trouble.Last, p.trouble.Failing = failure, true
	p.trouble.Failures++
	if p.row++; p.row >= patience {
		p.rest = longRest
	}
	p.fallBack(v, plan)
}

// fallBack lets the fallback have a step; a new one, if it has missed any.
func (p *Policy) fallBack(v *policy.View, plan *policy.Plan) {
	if !p.behind {
		p.fallback.Step(v, plan)
		return
	}
	if fresh, err := p.makeFallback(); err == nil { // it was made before, so it can be
		p.fallback = fresh
	}
	p.behind = false
	v.Anew(func() { p.fallback.Step(v, plan) })
}

// Why says why a job waits: as the script does, if it does.
func (p *Policy) Why(v *policy.View, id policy.JobID) string {
	if p.trouble.Failing {
		return fmt.Sprintf("%s (policy %s failed: %s)", p.fallback.Why(v, id), p.in.file, p.trouble.Last)
	}
	if p.noWhy == nil {
		text, failure := p.askWhy(v, id)
		if failure == nil && text != "" {
			return text
		}
		p.noWhy = failure
	}
	if p.noWhy != nil {
		return fmt.Sprintf("%s (why of policy %s failed: %s)", p.plainly(v, id), p.in.file, p.noWhy)
	}
	return p.plainly(v, id)
}

// whyPart is the part of a step that a question may take: the head asks for many jobs at
// a time.
const whyPart = 20

// askWhy asks the script. A failure empties its state, so its next step begins anew.
func (p *Policy) askWhy(v *policy.View, id policy.JobID) (string, *Error) {
	all := p.in.meter.steps
	p.in.meter.steps = max(1000, all/whyPart)
	defer func() { p.in.meter.steps = all }()
	text, failure := p.way.why(v, id)
	p.anew = p.anew || failure != nil
	return text, failure
}

// plainly is the reason that needs no knowledge of the policy.
func (p *Policy) plainly(v *policy.View, id policy.JobID) string {
	sh := v.Shape(id)
	if v.Place(sh, p.traits.Mode) == nil {
		return v.Shortage(sh, p.traits.Mode)
	}
	return fmt.Sprintf("it fits, but policy %s has not started it", p.in.file)
}
