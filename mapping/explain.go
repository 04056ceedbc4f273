package mapping

import (
	"cmp"
	"slices"
	"time"
)

// Account is how a call came to its device: what the mapper saw, and what it made of it.
type Account struct {
	// Device is the one that was chosen, or Anywhere.
	Device int32
	// Reason says why in a sentence, where no devices were compared.
	Reason string
	// Choices are the devices that were compared, the best first. The first is the
	// one that was chosen, unless that was drawn by weights.
	Choices []Choice
	Drawn   bool
	// Unseen is how many more the mapper would have compared, had it not been
	// clear before that none could be better. Only where views err does it count, since
	// there nobody knows what they would have seemed to be.
	Unseen int
}

// Choice is a device that was compared with others.
type Choice struct {
	Device int32
	// Queued is how many calls it seemed to have.
	Queued int32
	// Others is how many of them are other programs' (Table.Beside).
	Others int32
	// Held is how much of the input it has already, where that counts.
	Held int64
	// Wait is for the calls before this one; Run is the kernel itself, where devices differ in speed;
	// Transfer is for data; Care is what the time for data costs others. The least sum is the best.
	Wait, Run, Transfer, Care time.Duration
	// Weight and Chance, of 1, are those of devices that are drawn.
	Weight, Chance float64
}

// Sum is what the mapper compared.
func (c *Choice) Sum() time.Duration { return c.Wait + c.Run + c.Transfer + c.Care }

// An Explainer is a mapper that can account for its decisions.
type Explainer interface {
	// Explain accounts for the call that Map has just given to a device, by the same
	// view. It draws no random numbers and changes no decision.
	Explain(c *Call, v *View, device int32) Account
}

// Explain has a call mapped, exactly as Map does it, and accounts for that.
func Explain(m Mapper, c *Call, v *View) Account {
	e, can := m.(Explainer)
	if !can {
		return Account{Device: m.Map(c, v), Reason: "The mapper does not say why."}
	}
	if v.Wrong != nil {
		// A second look might show something else: what is seen must be kept.
		v.Wrong.keep, v.Wrong.seen = true, v.Wrong.seen[:0]
	}
	device := m.Map(c, v)
	if v.Wrong != nil {
		v.Wrong.keep = false
	}
	a := e.Explain(c, v, device)
	a.Device = device
	return a
}

// sight is how many calls a device of another node seemed to have.
type sight struct{ device, queued int32 }

// memory is what a decision saw, in the order in which it looked.
type memory struct {
	errs bool
	left []sight
}

func (v *View) memory() memory {
	if v.Wrong == nil {
		return memory{}
	}
	return memory{true, v.Wrong.seen}
}

// queued is what the next look at a device of another node showed, if there was one.
func (m *memory) queued(t *Table, d int32) (queued int32, looked bool) {
	if !m.errs {
		return t.loads[d].queued, true
	}
	if len(m.left) == 0 || m.left[0].device != d {
		return 0, false
	}
	queued, m.left = m.left[0].queued, m.left[1:]
	return queued, true
}

var (
	_ Explainer = (*static)(nil)
	_ Explainer = (*reservation)(nil)
	_ Explainer = (*split)(nil)
	_ Explainer = (*greedy)(nil)
	_ Explainer = (*random)(nil)
)

// Explain makes static an Explainer.
func (m *static) Explain(c *Call, _ *View, _ int32) Account { return Account{Reason: atHome(c)} }

func atHome(c *Call) string {
	if c.Home < 0 {
		return "Its node has no GPU: the process was bound to one elsewhere from the start."
	}
	return "The process is bound to this GPU of its own node, whatever others do."
}

// Explain makes reservation an Explainer.
func (m *reservation) Explain(_ *Call, _ *View, device int32) Account {
	if device != Anywhere {
		return Account{Reason: "A GPU of its own node is idle, and such a one comes first."}
	}
	return Account{Reason: "All GPUs have one queue: whichever is free takes the call at its head."}
}

// Explain makes split an Explainer.
func (m *split) Explain(c *Call, _ *View, _ int32) Account {
	if _, away := m.place(c); away {
		return Account{Reason: "The process is of the share that was bound to GPUs of the other application from the start."}
	}
	return Account{Reason: atHome(c)}
}

// Explain makes greedy an Explainer.
func (m *greedy) Explain(c *Call, v *View, _ int32) Account {
	s := m.search(c, v)
	spans := m.candidates.spans
	var looks []Choice // a device may have been looked at twice: as one that holds data, and with all others
	look := func(t *Table, d, queued int32, held int64, w wire) {
		one := Choice{Device: d, Queued: queued, Others: min(queued, t.Others(d)), Held: held, Care: w.care}
		one.Transfer = time.Duration(max(w.outbound, t.loads[d].inbound))*w.each + w.always - w.care
		if t.Estimate == ByWindow {
			one.Wait = multiple(queued, max(1, t.Mean(d)))
		} else {
			one.Run = t.atSpeed(s.normal, d)
			one.Wait = s.busy(t, d, queued) - one.Run
		}
		looks = append(looks, one)
	}
	for d := spans[0].from; d < spans[0].to; d++ {
		look(v.Local, d, v.Local.loads[d].queued, 0, wire{})
	}
	seen, n := v.memory(), m.news(c, v)
	elsewhere := func(p span, held int64) {
		for d := p.from; d < p.to; d++ {
			if queued, looked := seen.queued(v.Table, d); looked {
				look(v.Table, d, queued, held, m.wire(c, n, d, c.In-held))
			}
		}
	}
	if m.candidates.reach.locality {
		for i := range c.Resident {
			d := c.Resident[i].Device
			if held := c.ResidentOn(d); held > 0 && among(spans[1:], d) {
				elsewhere(span{d, d + 1}, held)
			}
		}
	}
	for _, p := range spans[1:] {
		elsewhere(p, 0)
	}

	// Of equals the first one met stays first, and of a device the better look counts.
	slices.SortStableFunc(looks, func(a, b Choice) int { return cmp.Compare(a.Sum(), b.Sum()) })
	known := make(map[int32]bool, len(looks))
	a := Account{Choices: slices.DeleteFunc(looks, func(one Choice) bool {
		twice := known[one.Device]
		known[one.Device] = true
		return twice
	})}
	for _, p := range spans {
		a.Unseen += int(p.to - p.from)
	}
	a.Unseen -= len(a.Choices)
	return a
}

// Explain makes random an Explainer.
func (m *random) Explain(c *Call, v *View, device int32) Account {
	a := Account{Drawn: true}
	sum := 0.0
	spans := m.candidates.spans
	w := m.factors(c)
	look := func(t *Table, d, queued int32, weight float64) *Choice {
		if queued > 0 {
			weight = float64(weight * w.penalty(t.loads[d].mean))
		}
		a.Choices = append(a.Choices, Choice{Device: d, Queued: queued, Others: min(queued, t.Others(d)), Weight: weight})
		return &a.Choices[len(a.Choices)-1]
	}
	w.ofAll = v.Local.meanOfAll()
	for d := spans[0].from; d < spans[0].to; d++ {
		l := &v.Local.loads[d]
		sum += look(v.Local, d, l.queued, w.bonus(l.mean)).Weight
	}
	w.ofAll = v.Table.meanOfAll()
	seen := v.memory()
	for _, p := range spans[1:] {
		for d := p.from; d < p.to; d++ {
			queued, _ := seen.queued(v.Table, d) // it looks at all
			one := look(v.Table, d, queued, 1)
			one.Weight = float64(one.Weight * w.place(c, d, v.Table.loads[d].mean))
			if m.candidates.reach.locality {
				one.Held = c.ResidentOn(d)
			}
			sum += one.Weight
		}
	}
	for i := range a.Choices {
		switch one := &a.Choices[i]; {
		case sum > 0:
			one.Chance = one.Weight / sum
		case one.Device == device: // without weights nothing is drawn
			one.Chance = 1
		}
	}
	slices.SortStableFunc(a.Choices, func(a, b Choice) int { return cmp.Compare(b.Weight, a.Weight) })
	return a
}
