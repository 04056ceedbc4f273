package worker

import (
	"testing"

	"muster/device"
	"muster/node/clientcore"
	"muster/wire"
)

// endedCopy is the end of a copy to the program, which a goroutine answers as soon as it is asked for.
type endedCopy struct {
	device.Event
	asked func()
}

func (e endedCopy) Done() (bool, error) {
	e.asked()
	return true, nil
}

// An answer from which a program may conclude that a copy has ended comes behind the answer to the
// copy, with which a program on another machine gets the bytes.
func TestAnswersComeBehindCopies(t *testing.T) {
	ring, arena := createShared(t)
	shared, err := wire.Map(ring, arena)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Unmap()
	h := wire.Header{Slot: 3}
	for name, answer := range map[string]func(w *worker) error{
		"a plain answer": func(w *worker) error {
			return w.replyNow(&message{}, &clientcore.Op{Kind: clientcore.Reply, Slot: h.Slot})
		},
		"a time that passed": func(w *worker) error { return w.elapsed(&message{}, nil, &clientcore.Op{Slot: h.Slot}) },
	} {
		h.Seq++
		shared.Asked(h)
		w, asked := &worker{shared: shared, ctx: t.Context()}, false
		copied := &out{told: make(chan struct{})}
		copied.mark = endedCopy{asked: func() {
			if asked = true; shared.Answered(h) {
				t.Errorf("%s came before the copy", name)
			}
			close(copied.told)
		}}
		w.outs.list = append(w.outs.list, copied)
		w.outs.some.Add(1)
		if err := answer(w); err != nil {
			t.Fatal(err)
		}
		if !asked || !shared.Answered(h) {
			t.Errorf("%s: asked for the copy: %v, answered: %v", name, asked, shared.Answered(h))
		}
	}
}
