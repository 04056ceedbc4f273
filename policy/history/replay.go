package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"muster/policy"
)

// Result is what came of playing a history again.
type Result struct {
	Header Header
	// Events counts those that were told, steps included; Steps and Starts count
	// plans, and the lines in them that started a job.
	Events, Steps, Starts int
	Last                  time.Duration // of the last step
	// Difference is the first answer that is another one; nil if there is none.
	// What comes behind it was not played.
	Difference *Difference
	// Cut says that the last line has no end and was left out: its writer was
	// stopped, or is still writing.
	Cut bool
}

// Difference is an answer that is another one than was recorded.
type Difference struct {
	Line int
	At   time.Duration   // of the latest step
	Then json.RawMessage // the line as it was recorded
	Now  json.RawMessage // as it would be recorded now
}

// Maker makes a policy from its spec.
type Maker func(spec string) (policy.Policy, error)

// Replay tells the events of a history to a fresh state with the same policy, and
// compares every answer with the one that was recorded.
func Replay(in io.Reader, make Maker) (Result, error) {
	_, out, err := play(in, make)
	return out, err
}

// Restore is Replay for callers that need the resulting state. It is an error
// if the policy now decides otherwise than the history says.
func Restore(in io.Reader, make Maker) (*policy.State, error) {
	s, out, err := play(in, make)
	if err == nil && out.Difference != nil {
		err = &LineError{out.Difference.Line, errors.New("another decision is made now than was recorded")}
	}
	return s, err
}

func play(in io.Reader, make Maker) (*policy.State, Result, error) {
	r := &reader{in: bufio.NewReaderSize(in, 1<<16)}
	h, err := r.header()
	if err != nil {
		return nil, Result{}, err
	}
	out := Result{Header: *h}
	p, err := make(h.Policy)
	if err != nil {
		return nil, out, r.wrong(err)
	}
	s := policy.NewState(h.Cluster, p)
	for {
		e, line, err := r.event()
		if err != nil {
			return nil, out, err
		}
		if e == nil {
			out.Cut = r.cut
			return s, out, nil
		}
		now, err := again(s, e, &out)
		if err != nil {
			return nil, out, r.wrong(err)
		}
		out.Events++
		then, err := json.Marshal(e)
		if err != nil {
			return nil, out, err
		}
		if !bytes.Equal(then, now) {
			out.Difference = &Difference{r.line, out.Last, line, now}
			return s, out, nil
		}
	}
}

// again tells an event to a state, and returns the line that it makes now.
func again(s *policy.State, e event, out *Result) ([]byte, error) {
	step, steps := e.(*stepped)
	if steps && time.Duration(step.At) < out.Last {
		return nil, fmt.Errorf("the step at %v is before the one at %v", time.Duration(step.At), out.Last)
	}
	told := e.told()
	now := lineOf(told, s.Apply(told), func(id policy.JobID) policy.JobID { return id })
	if steps {
		out.Steps++
		out.Starts += now.(*stepped).Plan.started()
		out.Last = time.Duration(step.At)
	}
	// The words of an error may change, and name jobs by numbers of another state: that there was
	// one is what counts.
	if then, now := e.answered(), now.answered(); then.Error != "" && now.Error != "" {
		*now = *then
	}
	return json.Marshal(now)
}

// started counts the starts that were not refused.
func (p *plan) started() int {
	n := 0
	for i := range p.Starts {
		if p.Starts[i].Error == "" {
			n++
		}
	}
	return n
}
