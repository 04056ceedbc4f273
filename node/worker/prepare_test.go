package worker

import (
	"os"
	"path/filepath"
	"testing"

	"muster/device"
	"muster/device/soft"
	"muster/internal/mailbox"
	"muster/wire"
	"muster/wire/control"
)

// waitingDevice has a context that was prepared, and takes until gate is closed to discard it.
type waitingDevice struct {
	device.Device
	discarding, gate chan struct{}
}

func (d *waitingDevice) Can() *device.DeviceCan { return &device.DeviceCan{Discard: d.discard} }

func (d *waitingDevice) discard() error {
	close(d.discarding)
	<-d.gate
	return nil
}

func newWaitingDevice() *waitingDevice {
	return &waitingDevice{discarding: make(chan struct{}), gate: make(chan struct{})}
}

// The daemon hears that a prepared context is gone when it is closed, also if the worker had begun to
// close it before the daemon asked.
func TestForgoneMeansClosed(t *testing.T) {
	d := newWaitingDevice()
	c := newClient(t, options{
		devices:  []soft.Profile{{Name: "test", Memory: 64 * mib, Speed: 1, Workers: 1}},
		employed: func(w *worker) { w.opener.prepared = &prepared{device: d} },
	})
	v := newVectors(c, 1000)
	v.round(1) // on another device than the prepared one
	<-d.discarding
	c.tell(control.Forgo{})
	c.must(&wire.MemAlloc{Addr: testBase + 512*mib, Size: mib}, nil) // the worker has heard the daemon before
	v.round(2)
	if n := said[control.Forgone](c); n != 0 {
		t.Error("the context is gone before it is closed")
	}
	close(d.gate)
	hear[control.Forgone](c, 1)
	c.tell(control.Forgo{})
	hear[control.Forgone](c, 2)
}

// A client that is held has no context left that nobody uses: the daemon could not get it back.
func TestHeldClientHasNoPreparedContext(t *testing.T) {
	d := newWaitingDevice()
	close(d.gate)
	c := newClient(t, options{identity: "me", employed: func(w *worker) { w.opener.prepared = &prepared{device: d} }})
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if held := give[control.Checkpointed](c, control.Checkpoint{Hold: true}, f); !held.Held {
		t.Fatalf("%+v", held)
	}
	<-d.discarding
	hear[control.Forgone](c, 1)
	c.tell(control.Proceed{})
	c.must(&wire.MemAlloc{Addr: testBase + 512*mib, Size: mib}, nil)
}

// The context that was prepared goes with the daemon that knew of it, also if the client is held.
func TestThePreparedContextGoesWithTheDaemon(t *testing.T) {
	d := newWaitingDevice()
	close(d.gate)
	s := &session{}
	w := &orders{session: s, mail: &mail{inbox: mailbox.New(replaces)}, opener: &opener{session: s, prepared: &prepared{device: d}}, ahead: &ahead{}}
	w.mail.inbox.Put(abandoned{})
	if err := w.standBy(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.discarding:
	default:
		t.Error("it is there still")
	}
}
