package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"muster/device"
	"muster/node/clientcore"
	"muster/node/journal"
	"muster/node/worker/answers"
	"muster/vmm"
	"muster/wire"
	"muster/wire/control"
)

// recovery keeps the client so that another worker can rebuild it: it makes the bases from which the journal goes
// on, and says which errors end only the worker. The loop owns it.
type recovery struct {
	*session
	mail     *mail
	contexts *contexts
	launches *launches
	answers  *answers.Answers
	hosts    *hosts
	tracing  *tracing
	ahead    *ahead
	ends     *ends
	ops      *executor

	replay   *replay // what the previous worker had handled; nil once it is replayed
	unproven bool    // work launched by the replay has not ended yet
}

// replays says whether the client is being rebuilt.
func (r *recovery) replays() bool { return r.replay != nil }

// maybeFold makes a base if one is due.
func (r *recovery) maybeFold() error {
	if !r.keeper.IsDue(r.core, r.shared.Geometry().Staging, uint64(r.host.Moved())*chunk) {
		return nil
	}
	if !r.core.CanFold() {
		r.keeper.CannotFold()
		return nil
	}
	return r.fold()
}

// fold makes a base, and measures the speed of copying from the device. Late launches are settled
// first: a base must not include a launch that may still be refused.
func (r *recovery) fold() error {
	if err := r.launches.settle(); err != nil {
		return err
	}
	dirty, start := r.core.Dirty(), time.Now()
	if err := r.ops.handle(r.core.Fold(r.now())); err != nil {
		return err
	}
	r.ops.current.Entry = journal.Entry{} // the log begins with the base
	r.keeper.Took(dirty, time.Since(start))
	return nil
}

// firstFold makes the first base, before any message is read from the ring. So a worker that finds
// no base in the journal knows that no message was read.
func (r *recovery) firstFold() error {
	if err := r.fold(); err != nil {
		return err
	}
	if r.keeper.Journal().Fresh() {
		return errors.New("the journal does not hold the client's first base")
	}
	r.unproven = r.serve.Resume
	return nil
}

// surroundings is what a base holds besides the core's state.
type surroundings struct {
	Position uint64         // of the ring's consumer
	Seq      uint32         // the number of the next message
	Asked    map[int]uint32 // the number of the call that waits in each slot
	Now      time.Duration  // since the client began
	At       time.Time
	World    uint64
	Turns    []int  // of the printed text
	Dropped  bool   // some printed text was dropped
	Identity string // as in Serve
	Traced   bool   `json:",omitempty"` // the program records a timeline
}

// Sections of a base. The blobs come last; there may be any number.
const (
	ofSurroundings = iota
	ofSides
	ofPrinted
	ofClient
	ofBlobs
)

// commit writes a base to the journal. It first waits until the goroutines that owe an answer have
// sent it: the log ends with the base, so a later worker would not know of those calls.
//
// The host copies have two sides. Only after the journal has the base may the side that the
// previous base used be given up (host.commit); if the base does not fit, the client cannot be
// rebuilt and the old side has no use either (host.abandon).
func (r *recovery) commit(b *clientcore.Base) error {
	r.answers.Sent()
	s := surroundings{Asked: map[int]uint32{}, Now: r.now(), At: time.Now(), World: r.told.Sticky.Current(), Identity: r.serve.Identity, Traced: r.tracing.isOn()}
	s.Position, s.Seq = r.consumer.Position()
	for _, slot := range r.core.WaitingSlots() {
		s.Asked[slot] = r.shared.Asks(slot)
	}
	var printed []byte
	printed, s.Turns, s.Dropped = r.told.Printed.All()
	about, err := json.Marshal(s)
	if err != nil {
		return err
	}
	err = r.keeper.Commit(append([][]byte{about, r.host.Sides(), printed, b.Client}, b.Blobs...)...)
	if err != nil {
		r.host.Abandon()
	} else {
		r.host.Commit()
		if r.keeper.HasLeft() { // and will leave again: prepare pages for that
			r.ahead.begin()
		}
	}
	if r.unproven { // a base is made when nothing is in flight
		r.prove()
	}
	r.keeper.Committed(r.core)
	return nil
}

// catchUp replays the journal of the previous worker, if there is one; otherwise it makes the first
// base, which begins the journal. It must finish before the first message is read from the ring.
func (r *recovery) catchUp(hear, await func() error) error {
	switch {
	case r.replay != nil:
		return r.replay.run(hear, await)
	case r.keeper != nil:
		return r.firstFold()
	}
	return nil
}

// mayRebuild says whether another worker can take over the client after this error. It cannot if
// the client is meant to end, or if the program caused the error by breaking the protocol.
func (r *recovery) mayRebuild(err error) bool {
	return r.keeper.Valid() && !errors.Is(err, errEnded) && !errors.Is(err, clientcore.ErrProtocol) && !errors.Is(err, errProgram)
}

// rebase makes a base of a restored client: the journal is about what the client was before.
func (r *recovery) rebase() error {
	if r.keeper == nil {
		return nil
	}
	if r.core.CanFold() {
		return r.fold()
	}
	r.keeper.ExposeByUse("it was restored, and more is waited for")
	r.host.Abandon()
	return nil
}

// settleStaging gives back staging memory that was kept for the journal: after a restore nobody
// would give it back to the program.
func (r *recovery) settleStaging() error {
	if !r.keeper.Holds() {
		return nil
	}
	r.keeper.LetGo()
	return r.maybeFold()
}

// errRebuild says that this worker cannot go on, but another one can take its place.
var errRebuild = errors.New("the client is to be rebuilt")

// errShared says that a fault that another client may have caused has ended the client's contexts.
var errShared = errors.New("a fault that may be another client's ended what ran")

// errRenewed says that the daemon wants the client in another worker.
var errRenewed = errors.New("the client goes on in another worker")

// errKilled is what a worker panics with in tests, where the process would be killed.
var errKilled = errors.New("killed")

// gone returns an error that ends this worker, if err is the loss of a device, or a fault that
// another client may have caused, and the client can be rebuilt. It returns nil for every other
// error, which the program must be told.
func (r *recovery) gone(err error) error {
	var fault *device.Fault
	switch {
	case !r.keeper.Valid() || !errors.As(err, &fault):
		return nil
	case fault.Kind == device.Timeout: // nobody else's
		return nil
	case fault.Kind == device.DeviceLost:
		return fmt.Errorf("%w: %w", errRebuild, err)
	case r.sharesFate():
		return fmt.Errorf("%w: %w", errShared, err)
	}
	return nil
}

// lostDevice handles the loss of a device. It returns an error, so that another worker takes over,
// if the client has a context there.
func (r *recovery) lostDevice(m control.Lost) error {
	g := r.contexts.open[vmm.Device(m.Device)]
	if g == nil || !r.keeper.Valid() {
		ended := g == nil
		if g != nil {
			quiet, err := g.quiet()
			ended = quiet && err == nil
		}
		return r.ops.handle(r.core.Lost(r.now(), m, ended))
	}
	return fmt.Errorf("%w: device %d is gone: %s", errRebuild, m.Device, m.Reason)
}

// renew ends this worker if the client can be rebuilt in another one. No base is made first: this may be
// called in the middle of a message, when what the core has decided is not all done, and the base would
// lack it. The next worker repeats what came after the last base, as after any end.
func (r *recovery) renew(m control.Renew) error {
	switch {
	case !r.keeper.Valid():
		r.log.Info("the client stays in its worker: it cannot be rebuilt for now", "reason", m.Reason)
		return nil
	case m.Device >= 0 && r.contexts.open[vmm.Device(m.Device)] == nil:
		return nil
	case m.Device >= 0:
		return fmt.Errorf("%w: %s", errShared, m.Reason)
	}
	return fmt.Errorf("%w: %s", errRenewed, m.Reason)
}

// heldFiles is the number of descriptors that the daemon also keeps, besides the ring and the data
// arena: the two sides of the host memory, and the journal.
const heldFiles = 3

// CreateJournal creates the memory file of a journal.
func CreateJournal() (*os.File, error) { return wire.CreateMemory("muster-journal", journal.Size) }

// copyOf duplicates a file's descriptor; nil if the process has no descriptors left, in which case
// the next daemon reports what is missing.
func copyOf(f *os.File) *os.File {
	copied, _ := wire.CopyOf(f)
	return copied
}

// answerProbe tests a device: whether a context can be opened there, and memory mapped, written and
// read.
func answerProbe(conn *control.WorkerEnd, config control.DeviceConfig, lock *os.File, open Open) error {
	found, err := probe(config, lock, open)
	if err != nil {
		return cannotServe(conn, err)
	}
	return conn.Send(found)
}

func probe(config control.DeviceConfig, lock *os.File, open Open) (found control.Probed, err error) {
	d, err := open(config, lock)
	if err != nil {
		return found, err
	}
	const base = 0x6400_0000_0000
	c, err := d.Open(device.Config{Arena: device.Arena{Base: base, Size: 1 << 30}, Print: func([]byte) {}})
	if err != nil {
		return found, err
	}
	defer c.Close()
	free, total, err := c.Memory()
	if err != nil {
		return found, err
	}
	found = control.Probed{Free: free, Total: total}
	if err := c.Map(base, chunk); errors.Is(err, device.ErrOutOfMemory) {
		return found, nil // other clients use all of its memory: it works
	} else if err != nil {
		return found, err
	}
	on, err := c.NewStream()
	if err != nil {
		return found, err
	}
	sent, got := []byte("is anybody there?"), make([]byte, 17)
	err = on.CopyIn(base, sent)
	if err == nil {
		err = on.CopyOut(got, base)
	}
	if err == nil {
		err = on.Synchronise(context.Background())
	}
	if err == nil && !bytes.Equal(sent, got) {
		err = errors.New("it gives back other bytes than it was given")
	}
	return found, err
}
