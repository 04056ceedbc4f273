package history

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"muster/model"
	"muster/policy"
)

// Comparison is what another policy would have decided, step by step. After
// each step the history goes on as it was recorded, so that every decision is one about
// the cluster as it really was.
type Comparison struct {
	Header Header
	Steps  int
	// Different counts the steps at which other jobs would have started, or the
	// same ones elsewhere.
	Different int
	// Starts counts what was started then; Same of them would have been so, on the
	// same nodes; Elsewhere on others or with another request; Waits not at all. Instead
	// counts what the other policy would have started, and was not.
	Starts, Same, Elsewhere, Waits, Instead int
	// First are the first differences, not more than was asked for.
	First []StepDifference
	Cut   bool
}

// StepDifference is a step at which another policy decides otherwise.
type StepDifference struct {
	Line int
	At   time.Duration
	// Waits would have waited and Elsewhere would have been placed otherwise;
	// Instead would have been started and were not. They are names of jobs.
	Waits, Elsewhere, Instead []string
}

// Compare plays a history with another policy, which make makes from spec, and
// keeps the first differences.
func Compare(in io.Reader, make Maker, spec string, keep int) (Comparison, error) {
	r := &reader{in: bufio.NewReaderSize(in, 1<<16)}
	h, err := r.header()
	if err != nil {
		return Comparison{}, err
	}
	out := Comparison{Header: *h}
	p, err := make(spec)
	if err != nil {
		return out, err
	}
	f := &follower{State: policy.NewState(h.Cluster, p), here: map[policy.JobID]*followed{}, there: map[policy.JobID]policy.JobID{}, said: map[int32]model.NodeSettings{}}
	for {
		e, _, err := r.event()
		if err != nil {
			return out, err
		}
		if e == nil {
			out.Cut = r.cut
			return out, nil
		}
		step, ok := e.(*stepped)
		if !ok {
			if err := f.follow(e); err != nil {
				return out, r.wrong(err)
			}
			continue
		}
		d, err := f.compare(step, &out)
		if err != nil {
			return out, r.wrong(err)
		}
		if d != nil {
			out.Different++
			if d.Line = r.line; len(out.First) < keep {
				out.First = append(out.First, *d)
			}
		}
	}
}

// follower keeps a state where the recorded one was, though its policy decides
// otherwise: after each step it takes back what was not done, and does what was.
type follower struct {
	*policy.State
	here  map[policy.JobID]*followed    // by number in the history
	there map[policy.JobID]policy.JobID // and the other way round
	said  map[int32]model.NodeSettings  // of nodes, as it was recorded
	last  time.Duration
}

// followed is a job of the history.
type followed struct {
	job  *model.Job
	rank int64
	id   policy.JobID // in this state; -1 while it is impossible here and waits
}

// none is the ID of a job that this state does not have.
const none = policy.JobID(-1)

func (f *follower) enter(number policy.JobID, j *followed) {
	f.here[number] = j
	if j.id != none {
		f.there[j.id] = number
	}
}

// follow takes in an event that is no step. What was refused then is left out.
func (f *follower) follow(e event) error {
	switch e := e.(type) {
	case *submitted:
		if e.Error != "" {
			return nil
		}
		j := &followed{job: e.Job.model()}
		j.id, _ = f.Submit(j.job) // what is impossible for this policy is not there
		f.enter(e.ID, j)
	case *adopted:
		if e.Error != "" {
			return nil
		}
		j := &followed{job: e.Job.model()}
		if err := f.adopt(j, e.Alternative, &e.Alloc, time.Duration(e.Started)); err != nil {
			return err
		}
		f.enter(e.ID, j)
	case *ranked:
		if j := f.here[e.ID]; j != nil && e.Error == "" {
			j.rank = e.Rank
			return f.rank(j)
		}
	case *measured:
		if j := f.here[e.ID]; j != nil && j.id != none && e.Error == "" {
			_ = f.Measure(j.id, e.Measured) // it may not run under this policy, and was not measured then
		}
	case *changed:
		if j := f.here[e.ID]; j != nil && e.Error == "" {
			return f.change(e, j)
		}
	default: // what concerns nodes
		if e, is := e.(*configured); is && e.Error == "" {
			f.said[e.Number] = e.Settings
		}
		if e.answered().Error == "" {
			return f.Apply(e.told()).Err
		}
	}
	return nil
}

func (f *follower) rank(j *followed) error {
	if j.id == none {
		return nil
	}
	return f.Rank(j.id, j.rank)
}

// change passes on what was told of one job.
func (f *follower) change(e *changed, j *followed) error {
	var err error
	if j.id != none {
		err = f.Apply(e.of(j.id)).Err
	}
	switch {
	case e.Do == resumedWord:
		return nil // it may have been resumed with the plan that said so
	case e.Do == requeueWord && errors.Is(err, policy.ErrImpossible):
		delete(f.there, j.id)
		j.id = none
		return nil
	case e.Do == cancelWord || e.Do == endWord:
		delete(f.there, j.id)
		delete(f.here, e.ID)
	}
	return err
}

// adopt lets a job run as it did.
func (f *follower) adopt(j *followed, alternative int, a *allocation, started time.Duration) error {
	id, err := f.Adopt(j.job, alternative, a.model(), started)
	if err != nil {
		return err
	}
	j.id = id
	return f.rank(j)
}

// compare lets the policy decide, counts what is different, and brings the state
// to where the recorded one was then.
func (f *follower) compare(e *stepped, out *Comparison) (*StepDifference, error) {
	at := time.Duration(e.At)
	if at < f.last {
		return nil, fmt.Errorf("the step at %v is before the one at %v", at, f.last)
	}
	f.last = at
	out.Steps++
	d := StepDifference{At: at}
	mine := map[policy.JobID]start{} // by number
	p := planOf(f.Step(at), func(id policy.JobID) policy.JobID { return f.there[id] })
	for _, st := range p.Starts {
		if st.Error == "" {
			mine[st.ID] = st
		}
	}
	same := map[policy.JobID]bool{}
	for _, st := range e.Plan.Starts {
		if st.Error != "" {
			continue
		}
		j := f.here[st.ID]
		if j == nil {
			return nil, fmt.Errorf("job %d is started, and was never submitted", st.ID)
		}
		out.Starts++
		other, started := mine[st.ID]
		switch {
		case !started:
			out.Waits++
			d.Waits = append(d.Waits, j.job.ID)
		case reflect.DeepEqual(other, st):
			out.Same++
			same[st.ID] = true
		default:
			out.Elsewhere++
			d.Elsewhere = append(d.Elsewhere, j.job.ID)
		}
	}
	then := map[policy.JobID]bool{}
	for _, st := range e.Plan.Starts {
		then[st.ID] = st.Error == ""
	}
	for _, st := range p.Starts {
		if st.Error == "" && !then[st.ID] {
			out.Instead++
			d.Instead = append(d.Instead, f.here[st.ID].job.ID)
		}
	}
	if err := f.correct(e, p, same); err != nil {
		return nil, err
	}
	if len(d.Waits)+len(d.Elsewhere)+len(d.Instead) == 0 {
		return nil, nil
	}
	return &d, nil
}

// correct takes back the starts that were not made, and makes those that were.
func (f *follower) correct(e *stepped, mine plan, same map[policy.JobID]bool) error {
	f.correctNodes(e.Plan.Nodes, mine.Nodes)
	for _, st := range mine.Starts {
		if st.Error == "" && !same[st.ID] {
			if err := f.Requeue(f.here[st.ID].id); err != nil {
				return err
			}
		}
	}
	for _, st := range mine.Stops {
		_ = f.Resumed(f.here[st.ID].id) // it is not stopped
	}
	for i := range mine.Resumes {
		if r := &mine.Resumes[i]; r.Error == "" {
			if err := f.Suspended(f.here[r.ID].id); err != nil {
				return err
			}
		}
	}
	for _, r := range e.Plan.Resumes {
		if j := f.here[r.ID]; r.Error == "" && j != nil && j.id != none {
			if err := f.Resumed(j.id); err != nil {
				return err
			}
		}
	}
	for i := range e.Plan.Starts {
		st := &e.Plan.Starts[i]
		if st.Error != "" || same[st.ID] {
			continue
		}
		j := f.here[st.ID]
		if j.id != none {
			if err := f.Cancel(j.id); err != nil {
				return err
			}
			delete(f.there, j.id)
		}
		if err := f.adopt(j, st.Alternative, &st.Alloc, time.Duration(e.At)); err != nil {
			return err
		}
		f.there[j.id] = st.ID
	}
	return nil
}

// correctNodes says of nodes what was said then.
func (f *follower) correctNodes(then, mine []line) {
	for _, n := range mine {
		if n.Error == "" {
			_ = f.Configured(n.Number, f.said[n.Number]) // it was taken a moment ago
		}
	}
	for _, n := range then {
		if n.Error == "" && f.Configured(n.Number, n.Settings) == nil {
			f.said[n.Number] = n.Settings
		}
	}
}
