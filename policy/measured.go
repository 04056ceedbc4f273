package policy

import "muster/model"

func (ev Measured) apply(s *State) Answer {
	e, err := s.holder(ev.Job)
	if err == nil {
		err = ev.Measured.Check()
	}
	if err != nil {
		return refused(err)
	}
	s.slots[e.slot].measured = ev.Measured
	return Answer{}
}

// Measure says Measured.
func (s *State) Measure(id JobID, m model.Measured) error { return tell(s, Measured{id, m}).Err }

// Measured is what the driver has said last that a job's processes did since it was started: nothing, unless the
// policy has asked for profiles (Plan.Profile) and the driver's nodes measure.
func (v *View) Measured(id JobID) model.Measured {
	if e := v.state.jobs.at(id); e.slot >= 0 {
		return v.state.slots[e.slot].measured
	}
	return model.Measured{}
}

// Profile asks the driver to tell from now on what the processes of running jobs did, each time that its nodes
// report it, or no more.
func (p *Plan) Profile(yes bool) {
	if p.Profiles = StopProfiles; yes {
		p.Profiles = StartProfiles
	}
}

// Profiles says whether the driver is to tell Measured.
type Profiles uint8

// What a plan says of that.
const (
	SameProfiles Profiles = iota // go on as before; at first not to tell it
	StartProfiles
	StopProfiles
)
