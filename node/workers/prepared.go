package workers

import (
	"errors"
	"fmt"
	"os"
	"time"

	"muster/wire"
	"muster/wire/control"
)

// Prepared is a worker that waits for a client with a context open on one device: making one takes
// NVIDIA's driver 0.15 s, most of the time that a small program needs to start. It has served nobody,
// and becomes the client's user as any worker does.
type Prepared struct {
	taken chan struct{} // closed when a client has it
	ended chan struct{} // closed when it is to end
}

// Waiting hears of a worker that waits with a context. Its functions are called one after the other,
// by a goroutine of the worker's own.
type Waiting struct {
	Ready func(w *Process)              // it waits for a client
	Taken func() bool                   // it is about to end: has a client got it? If not, none does from now on
	Ended func(why string, waited bool) // its process is gone, and no client has it; waited says whether it was ready
}

// NewPrepared is one that Prepare is about to start.
func NewPrepared() *Prepared {
	return &Prepared{taken: make(chan struct{}), ended: make(chan struct{})}
}

// Prepare starts a worker that opens a context with the files, which stay the caller's, and waits.
func (p *Pool) Prepare(is *Prepared, m control.Prepare, lock *os.File, files []*os.File, on Waiting) {
	p.preparing.Go(func() {
		why, waited := "", false
		w, err := p.start()
		if err == nil {
			if err = w.prepare(m, lock, files, is.ended); err == nil {
				waited = true
				on.Ready(w)
				select {
				case <-is.taken:
				case <-is.ended:
				case <-w.Exited:
					why = w.Ending()
				}
				if on.Taken() {
					return
				}
			}
			select {
			case <-is.ended:
				err = nil
			default:
			}
			p.Dismiss(w)
		}
		if err != nil {
			why = err.Error()
		}
		on.Ended(why, waited)
	})
}

// Take gives the worker to a client.
func (p *Prepared) Take() { close(p.taken) }

// End has the worker end, which no client has.
func (p *Prepared) End() { close(p.ended) }

// IsTaken says whether a client has it.
func (p *Prepared) IsTaken() bool {
	select {
	case <-p.taken:
		return true
	default:
		return false
	}
}

// prepare has a worker open a device and a context. It kills the worker if that takes too long, or if it is
// to end.
func (w *Process) prepare(m control.Prepare, of *os.File, files []*os.File, ended <-chan struct{}) error {
	lock, err := wire.OpenLock(of)
	if err != nil {
		return err
	}
	defer lock.Close()
	done := make(chan struct{})
	defer close(done)
	go func() {
		late := time.NewTimer(StartTime)
		defer late.Stop()
		select {
		case <-done:
			return
		case <-ended:
		case <-late.C:
		}
		w.Kill()
	}()
	if err := w.control.Send(m, append([]*os.File{lock}, files...)...); err != nil {
		return early(err)
	}
	said, err := w.control.Receive()
	if err != nil {
		return early(err)
	}
	switch m := said.(type) {
	case control.Pong:
		return nil
	case control.CannotServe:
		return errors.New(m.Reason)
	}
	return fmt.Errorf("the worker is broken: it answers %q", said.Kind())
}
