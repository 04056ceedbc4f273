package script

import (
	"fmt"
	"time"

	"go.starlark.net/starlark"

	"muster/model"
	"muster/policy"
)

// planValue is the plan as scripts see it. What makes no sense fails the step; what is
// not possible now is False.
type planValue struct {
	*decide
	methods map[string]starlark.Value
}

func newPlan(d *decide) *planValue {
	p := &planValue{decide: d}
	p.methods = bound(p, planMethods)
	return p
}

var _ starlark.HasAttrs = (*planValue)(nil)

func (p *planValue) String() string        { return "plan" }
func (p *planValue) Type() string          { return "plan" }
func (p *planValue) Freeze()               {}
func (p *planValue) Truth() starlark.Bool  { return true }
func (p *planValue) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable type: plan") }

// Attr is a method of the plan.
func (p *planValue) Attr(name string) (starlark.Value, error) {
	if m, ok := p.methods[name]; ok {
		return m, nil
	}
	return nil, nil
}

// AttrNames lists them.
func (p *planValue) AttrNames() []string { return memberNames[*planValue](nil, planMethods) }

var planMethods = map[string]method[*planValue]{
	"start": {"start(job, nodes=None, beside=False, alternative=0, reason=\"\")",
		"starts a job where it fits first: on some nodes alone if they are given, beside what view.reserve keeps if that is asked for. False if it does not fit", (*planValue).start},
	"stop":   {"stop(job, how=\"requeue\", to_start=None)", "has a running job stopped: how is suspend, move, requeue or cancel. False if it is being stopped", (*planValue).stop},
	"resume": {"resume(job)", "lets a suspended job run again. False if its place is not free, or a user suspended it, or it is being saved", (*planValue).resume},
	"configure": {"configure(node, vgpus=0, sharing=\"\", policy=\"\", above=0, keep=None, profiling=0)",
		"says how a node's runtime serves programs, until the script says otherwise; what is left out is as its administrators have it", (*planValue).configure},
	"wake": {"wake(at)", "asks for a step at this time, or a second from now if that is later, even if nothing happens until then", (*planValue).wake},
}

// proposing is the plan of the step that is going on.
func (p *planValue) proposing(name string) (*policy.Plan, error) {
	if p.look.plan == nil {
		return nil, fmt.Errorf("plan.%s: only decide may propose", name)
	}
	return p.look.plan, nil
}

// reasons are those that a script may give for a start.
var reasons = map[string]policy.ReasonCode{
	"": policy.Fitted, "in turn": policy.InTurn, "overtook": policy.Overtook, "ends before": policy.EndsBefore, "beside": policy.Beside, "fits best": policy.Fitted,
}

func (p *planValue) start(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	plan, err := p.proposing("start")
	if err != nil {
		return nil, err
	}
	w, err := p.view.where("start", args, named)
	if err != nil {
		return nil, err
	}
	why, ok := reasons[w.reason]
	if !ok {
		return nil, fmt.Errorf("plan.start: there is no reason %q", clipped(w.reason))
	}
	v, id := p.look.view, w.job.id
	if !v.Waits(id) {
		return nil, fmt.Errorf("plan.start: job %s does not wait: it runs, or is over, or was started in this step", v.Job(id).ID)
	}
	if w.alternative < 0 || w.alternative >= v.Requests(id) {
		return nil, fmt.Errorf("plan.start: job %s has no alternative %d", v.Job(id).ID, w.alternative)
	}
	a, err := p.view.place(w)
	if a == nil && p.lines != nil && w.nodes == nil && !w.beside && w.alternative == 0 {
		p.lines.FailedIf(id)
	}
	if err != nil || a == nil {
		return starlark.False, err
	}
	if err := p.in.meter.work(len(a.Parts) / 8); err != nil {
		return nil, err
	}
	if !plan.StartAs(id, w.alternative, a, p.reason(why)) {
		return starlark.False, nil
	}
	if w.beside {
		v.Charge(v.Held(id))
	}
	return starlark.True, nil
}

// reason is why a job is started: with the reservation that it keeps to, if the script
// has made one in this step.
func (p *planValue) reason(code policy.ReasonCode) policy.Reason {
	r := policy.Reason{Code: code}
	if code != policy.EndsBefore && code != policy.Beside {
		return r
	}
	if p.view.reserved == nil || p.view.reservedAt == policy.Never {
		r.Code = policy.Overtook
		return r
	}
	r.Job, r.At = p.view.reserved.id, p.view.reservedAt
	return r
}

func (p *planValue) stop(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	plan, err := p.proposing("stop")
	if err != nil {
		return nil, err
	}
	var job starlark.Value
	var other starlark.Value = starlark.None
	how := policy.Requeue.String()
	if err := starlark.UnpackArgs("stop", args, named, "job", &job, "how?", &how, "to_start?", &other); err != nil {
		return nil, err
	}
	j, err := jobOf("plan.stop", job)
	if err != nil {
		return nil, err
	}
	in := policy.JobID(-1)
	if other != starlark.None {
		o, err := jobOf("plan.stop", other)
		if err != nil {
			return nil, err
		}
		if in = o.id; !p.look.view.Waits(in) {
			return nil, fmt.Errorf("plan.stop: job %s, which is to have the place, does not wait", p.look.view.Job(in).ID)
		}
	}
	for h := policy.Suspend; h <= policy.Cancel; h++ {
		if h.String() == how {
			if p.look.view.Held(j.id) == nil || p.look.view.Proposed(j.id) {
				return nil, fmt.Errorf("plan.stop: job %s does not run", p.look.view.Job(j.id).ID)
			}
			return starlark.Bool(plan.Stop(j.id, h, in)), nil
		}
	}
	return nil, fmt.Errorf("plan.stop: how is suspend, move, requeue or cancel, not %q", clipped(how))
}

func (p *planValue) resume(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	plan, err := p.proposing("resume")
	if err != nil {
		return nil, err
	}
	var job starlark.Value
	if err := starlark.UnpackArgs("resume", args, named, "job", &job); err != nil {
		return nil, err
	}
	j, err := jobOf("plan.resume", job)
	if err != nil {
		return nil, err
	}
	if !p.look.view.Suspended(j.id) {
		return nil, fmt.Errorf("plan.resume: job %s is not suspended", p.look.view.Job(j.id).ID)
	}
	return starlark.Bool(plan.Resume(j.id)), nil
}

// configure says all that the script says of a node. Saying the same again is no line of the plan.
func (p *planValue) configure(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	plan, err := p.proposing("configure")
	if err != nil {
		return nil, err
	}
	var node, keep starlark.Value
	var s model.NodeSettings
	var profiling int64
	if err := starlark.UnpackArgs("configure", args, named, "node", &node, "vgpus?", &s.VGPUs, "sharing?", &s.Sharing, "policy?", &s.Policy, "above?", &s.Above, "keep??", &keep, "profiling?", &profiling); err != nil {
		return nil, err
	}
	n, err := p.view.nodeNumber(node)
	if err == nil && keep != nil {
		s.Keep = new(int)
		err = starlark.AsInt(keep, s.Keep)
	}
	if s.Profiling = time.Duration(profiling).Seconds(); err == nil {
		err = s.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("plan.configure: %w", err)
	}
	if s.Equal(p.look.view.Settings(n)) {
		return starlark.None, nil
	}
	plan.Configure(n, s)
	return starlark.None, p.in.meter.alloc(entryBytes)
}

// leastRest is the least time until a step that a script alone asks for. With less, a simulation of a
// script that asks at every step for the next one would not end, and a live cluster would step
// without pause.
const leastRest = time.Second

func (p *planValue) wake(args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	plan, err := p.proposing("wake")
	if err != nil {
		return nil, err
	}
	var at int64
	if err := starlark.UnpackArgs("wake", args, named, "at", &at); err != nil {
		return nil, err
	}
	if time.Duration(at) <= p.look.view.Now() {
		return nil, fmt.Errorf("plan.wake: the time is not after now")
	}
	plan.Wake = min(plan.Wake, max(time.Duration(at), p.look.view.Now()+leastRest))
	return starlark.None, nil
}
