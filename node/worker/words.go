package worker

import (
	"fmt"

	"muster/device"
	"muster/node/clientcore"
)

var errNoWords = fmt.Errorf("words in memory that streams write and wait for: %w", device.ErrNotSupported)

// writeWord makes a stream write a word.
func (w *worker) writeWord(_ *message, _ *gpu, on device.Stream, o *clientcore.Op) error {
	words := on.Can()
	if words.WriteWord == nil {
		return errNoWords
	}
	step := *o
	return w.block(func() error { return words.WriteWord(step.Range.Addr, int(step.Range.Size), step.Word.Value) })
}

// awaitWord makes a stream wait for a word, and tells the core when the wait is over. Later work
// may be what writes the word, so the wait counts as an outstanding host function, and the loop
// reads ahead.
func (w *worker) awaitWord(_ *message, _ *gpu, on device.Stream, o *clientcore.Op) error {
	words := on.Can()
	if words.WaitWord == nil {
		return errNoWords
	}
	step := *o
	w.hosts.begin(o.Cookie)
	err := w.block(func() error {
		if err := words.WaitWord(step.Range.Addr, int(step.Range.Size), step.Word.Value, step.Word.Compare); err != nil {
			return err
		}
		return on.Call(func() {
			w.notices.Put(notice{cookie: step.Cookie, word: true})
			w.consumer.Wake()
		})
	})
	if err != nil {
		w.hosts.returned(o.Cookie)
	}
	return err
}
