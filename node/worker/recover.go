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
	launches *launches
	answers  *answers.Answers
	hosts    *hosts
	ahead    *ahead
	ends     *ends
	ops      *executor

	replay   *replay // what the previous worker had handled; nil once it is replayed
	unproven bool    // work launched by the replay has not ended yet
}

// replays says whether the client is being rebuilt.
func (k *recovery) replays() bool { return k.replay != nil }

// maybeFold makes a base if one is due.
func (k *recovery) maybeFold() error {
	if !k.keeper.IsDue(k.core, k.shared.Geometry().Staging, uint64(k.host.Moved())*chunk) {
		return nil
	}
	if !k.core.CanFold() {
		k.keeper.CannotFold()
		return nil
	}
	return k.fold()
}

// fold makes a base, and measures the speed of copying from the device. Late launches are settled
// first: a base must not include a launch that may still be refused.
func (k *recovery) fold() error {
	if err := k.launches.settle(); err != nil {
		return err
	}
	dirty, start := k.core.Dirty(), time.Now()
	if err := k.ops.handle(k.core.Fold(k.now())); err != nil {
		return err
	}
	k.ops.current.Entry = journal.Entry{} // the log begins with the base
	k.keeper.Took(dirty, time.Since(start))
	return nil
}

// firstFold makes the first base, before any message is read from the ring. So a worker that finds
// no base in the journal knows that no message was read.
func (k *recovery) firstFold() error {
	if err := k.fold(); err != nil {
		return err
	}
	if k.keeper.Journal().Fresh() {
		return errors.New("the journal does not hold the client's first base")
	}
	k.unproven = k.serve.Resume
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
func (k *recovery) commit(b *clientcore.Base) error {
	k.answers.Sent()
	s := surroundings{Asked: map[int]uint32{}, Now: k.now(), At: time.Now(), World: k.told.Sticky.Current(), Identity: k.serve.Identity, Traced: k.tracing.isOn()}
	s.Position, s.Seq = k.consumer.Position()
	for _, slot := range k.core.WaitingSlots() {
		s.Asked[slot] = k.shared.Asks(slot)
	}
	var printed []byte
	printed, s.Turns, s.Dropped = k.told.Printed.All()
	about, err := json.Marshal(s)
	if err != nil {
		return err
	}
	err = k.keeper.Commit(append([][]byte{about, k.host.Sides(), printed, b.Client}, b.Blobs...)...)
	if err != nil {
		k.host.Abandon()
	} else {
		k.host.Commit()
		if k.keeper.HasLeft() { // and will leave again: prepare pages for that
			k.ahead.begin()
		}
	}
	if k.unproven { // a base is made when nothing is in flight
		k.prove()
	}
	k.keeper.Committed(k.core)
	return nil
}

// catchUp replays the journal of the previous worker, if there is one; otherwise it makes the first
// base, which begins the journal. It must finish before the first message is read from the ring.
func (k *recovery) catchUp(hear, await func() error) error {
	switch {
	case k.replay != nil:
		return k.replay.run(hear, await)
	case k.keeper != nil:
		return k.firstFold()
	}
	return nil
}

// mayRebuild says whether another worker can take over the client after this error. It cannot if
// the client is meant to end, or if the program caused the error by breaking the protocol.
func (k *recovery) mayRebuild(err error) bool {
	return k.keeper.Valid() && !errors.Is(err, errEnded) && !errors.Is(err, clientcore.ErrProtocol) && !errors.Is(err, errProgram)
}

// rebase makes a base of a restored client: the journal is about what the client was before.
func (k *recovery) rebase() error {
	if k.keeper == nil {
		return nil
	}
	if k.core.CanFold() {
		return k.fold()
	}
	k.keeper.ExposeByUse("it was restored, and more is waited for")
	k.host.Abandon()
	return nil
}

// settleStaging gives back staging memory that was kept for the journal: after a restore nobody
// would give it back to the program.
func (k *recovery) settleStaging() error {
	if !k.keeper.Holds() {
		return nil
	}
	k.keeper.LetGo()
	return k.maybeFold()
}

// errRebuild says that this worker cannot go on, but another one can take its place.
var errRebuild = errors.New("the client is to be rebuilt")

// Under NVIDIA's Multi-Process Service (MPS) a fault of one client ends the contexts of all clients
// on that GPU, and all of them see the same error. A worker that shares this fate does not report a
// fault to its program: it has its client rebuilt in a worker with contexts of its own. A fault
// that occurs again there is the client's own (node/fate).

// errShared says that a fault that another client may have caused has ended the client's contexts.
var errShared = errors.New("a fault that may be another client's ended what ran")

// errRenewed says that the daemon wants the client in another worker.
var errRenewed = errors.New("the client goes on in another worker")

// errKilled is what a worker panics with in tests, where the process would be killed.
var errKilled = errors.New("killed")

// gone returns an error that ends this worker, if err is the loss of a device, or a fault that
// another client may have caused, and the client can be rebuilt. It returns nil for every other
// error, which the program must be told.
func (k *recovery) gone(err error) error {
	var fault *device.Fault
	switch {
	case !k.keeper.Valid() || !errors.As(err, &fault):
		return nil
	case fault.Kind == device.Timeout: // nobody else's
		return nil
	case fault.Kind == device.DeviceLost:
		return fmt.Errorf("%w: %w", errRebuild, err)
	case k.sharesFate():
		return fmt.Errorf("%w: %w", errShared, err)
	}
	return nil
}

// lostDevice handles the loss of a device. It returns an error, so that another worker takes over,
// if the client has a context there.
func (k *recovery) lostDevice(m control.Lost) error {
	g := k.contexts.open[vmm.Device(m.Device)]
	if g == nil || !k.keeper.Valid() {
		ended := g == nil
		if g != nil {
			quiet, err := g.quiet()
			ended = quiet && err == nil
		}
		return k.ops.handle(k.core.Lost(k.now(), m, ended))
	}
	return fmt.Errorf("%w: device %d is gone: %s", errRebuild, m.Device, m.Reason)
}

// renew ends this worker if the client can be rebuilt in another one. No base is made first: this may be
// called in the middle of a message, when what the core has decided is not all done, and the base would
// lack it. The next worker repeats what came after the last base, as after any end.
func (k *recovery) renew(m control.Renew) error {
	switch {
	case !k.keeper.Valid():
		k.log.Info("the client stays in its worker: it cannot be rebuilt for now", "reason", m.Reason)
		return nil
	case m.Device >= 0 && k.contexts.open[vmm.Device(m.Device)] == nil:
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
