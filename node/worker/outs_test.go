package worker

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"muster/device"
	"muster/node/clientcore"
	"muster/node/worker/answers"
	"muster/node/worker/told"
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

func (e endedCopy) Synchronise(context.Context) error { return nil }

// oneEvent is the events of a context that has only one.
type oneEvent struct{ device.Event }

func (e oneEvent) Spare() (device.Event, error) { return e.Event, nil }
func (e oneEvent) GiveBack(device.Event)        {}

type recordingStream struct{ device.Stream }

func (recordingStream) Record(device.Event) error { return nil }

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
			w.replies.reply(&clientcore.Op{Kind: clientcore.Reply, Slot: h.Slot})
			return nil
		},
		"a time that passed": func(w *worker) error { return w.ends.elapsed(&message{}, nil, &clientcore.Op{Slot: h.Slot}) },
	} {
		h.Seq++
		shared.Asked(h)
		var answerCopy func()
		asked := false
		w := &worker{}
		now := func() clientcore.Time { return time.Millisecond }
		w.told = told.New(shared, now, slog.New(slog.DiscardHandler))
		w.replies = replies{session: &session{shared: shared}, answers: &w.answers}
		w.ends = ends{session: &w.session, answers: &w.answers}
		w.answers.Means = answers.Means{
			Context: t.Context(), Go: func(f func()) { answerCopy = f }, Block: func(f func() error) error { return f() }, Now: now, Wake: func() {},
			Shared: shared, Told: w.told, Gone: func(error) error { return nil },
		}
		copied := endedCopy{asked: func() {
			if asked = true; shared.Answered(h) {
				t.Errorf("%s came before the copy", name)
			}
			go answerCopy()
		}}
		if err := w.answers.LaterOut(oneEvent{copied}, recordingStream{}, &clientcore.Op{Slot: h.Slot + 1}); err != nil {
			t.Fatal(err)
		}
		if err := answer(w); err != nil {
			t.Fatal(err)
		}
		if !asked || !shared.Answered(h) {
			t.Errorf("%s: asked for the copy: %v, answered: %v", name, asked, shared.Answered(h))
		}
	}
}
