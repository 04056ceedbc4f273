// Package keeper keeps what another worker needs to rebuild the client if this one dies. That is the
// journal, a memory file that outlives this process. It holds a base, which is the client's whole
// state at one moment, and a log of all messages since. Each message is in the log before the ring
// gives its room back, so at any instruction at which this process may be killed, a message is in
// the ring, in the log or in the base. To rebuild, a worker restores the base and handles the log
// again.
//
// The package decides what of a message the log must have, and when a base is worth its cost. The sections
// of a base are bytes to it, and it does not know how a client is rebuilt.
package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"muster/internal/together"
	"muster/node/clientcore"
	"muster/node/journal"
	"muster/node/worker/staging"
	"muster/wire"
)

// Message is a message of the client to whoever performs operations on its behalf. It does not change
// while they do; who gives its staging memory back is noted with that memory.
type Message struct {
	Header  wire.Header
	Entry   journal.Entry  // in the log; of no meaning if the client is not kept
	HasData bool           // the log has the message's data already
	Stage   *staging.Stage // staging memory with its data; nil: none
}

// Keeper is the journal of a client. A nil one keeps nothing: the client ends with its worker.
type Keeper struct {
	journal *journal.Journal
	staging *staging.Staging
	log     *slog.Logger

	latest   journal.Entry // of the message that was recorded last
	kept     []retained    // staging memory that the log relies on, not yet given back
	keeping  uint64        // bytes in kept
	keptLong bool          // it is to be given back: by a base, or once the log has the data
	left     bool          // the client has left its device since the last base
	due      bool          // a base must be made before the next message
	pause    pause         // since when nothing came

	spent   time.Duration // GPU time of the client at the last base
	rate    float64       // bytes per second at which a base copies from the device, measured
	exposed bool          // the log file already says that the client cannot be rebuilt
	retry   time.Time     // after a base that did not fit: when to try again
}

// retained is staging memory that must stay until the next base, because it holds the only copy of
// the data of a log entry.
type retained struct {
	entry journal.Entry
	data  []byte
	stage *staging.Stage
}

// Client is what decides about the cost of a base: clientcore.Core.
type Client interface {
	Dirty() uint64 // bytes that only a device has
	Blobs() int    // bytes of modules that no base has
	Spent() time.Duration
	CanFold() bool // a base can be made now
}

const (
	// foldShare bounds the cost of bases: kernels must have run for foldShare times what a base
	// costs before one is made for their sake, so bases take at most 1/25 of the time.
	foldShare = 25
	// minSpent is the least GPU time between two bases that nothing else makes necessary.
	minSpent = 50 * time.Millisecond
	// firstRate is the assumed speed of copying from a device until one was measured.
	firstRate = 2 << 30
	// foldCost is the fixed cost of a base.
	foldCost = 200 * time.Microsecond
	// retryFold is the pause after a base that did not fit, before the next attempt.
	retryFold = time.Second
	// maxMoved is how many bytes of host copies may be there twice (once for the base) where a base is
	// cheap.
	maxMoved = 64 << 20
	// muchDirty is how many bytes a base must have copied for its speed to be of interest.
	muchDirty = 32 << 20
	// KeepTime is how long staging memory is kept while no message comes.
	KeepTime = 500 * time.Microsecond
	// MaxAttached is the most that the data of one message may take in the log.
	MaxAttached = journal.LogLimit / 4
	// ShortLog is the length of the log, in bytes, that is never worth a base.
	ShortLog = 48 << 20
	// logWorth bounds the cost of bases that empty the log: it may grow, while the machine has
	// memory, to logWorth times what a base would copy from devices.
	logWorth = 8
	// aside is the size from which a goroutine writes data to the journal while the device reads
	// them.
	aside = 256 << 10
)

// New makes a keeper with a journal. What it keeps of staging memory it gives back there.
func New(j *journal.Journal, back *staging.Staging, log *slog.Logger) *Keeper {
	return &Keeper{journal: j, staging: back, log: log, rate: firstRate}
}

// Journal is the journal itself; nil if nothing is kept.
func (k *Keeper) Journal() *journal.Journal {
	if k == nil {
		return nil
	}
	return k.journal
}

// Valid says whether another worker can take over the client.
func (k *Keeper) Valid() bool { return k != nil && k.journal.Valid() }

// --- what the log has ----------------------------------------------------------------

// Record appends a message to the log. The consumer calls it before the ring gives the message's
// room back.
func (k *Keeper) Record(position uint64, message []byte) {
	k.latest = k.journal.Append(position, message)
}

// Latest is the entry of the message that was recorded last.
func (k *Keeper) Latest() journal.Entry {
	if k == nil {
		return journal.Entry{}
	}
	return k.latest
}

// Expose marks the client as one that cannot be rebuilt for now, for lack of room that the
// administrator can provide.
func (k *Keeper) Expose(why error) { k.expose(slog.LevelWarn, why) }

// ExposeByUse marks the client as one that cannot be rebuilt because of what its program uses. This
// is logged as information, not as a warning: nothing is wrong, and a user who runs a private node
// sees its warnings on the terminal.
func (k *Keeper) ExposeByUse(why string) { k.expose(slog.LevelInfo, errors.New(why)) }

func (k *Keeper) expose(level slog.Level, why error) {
	if !k.Valid() {
		return
	}
	k.journal.Invalidate()
	if !k.exposed {
		k.exposed = true
		k.log.Log(context.Background(), level, "the client cannot be rebuilt for now if its worker dies", "reason", why)
	}
}

// TellPlaced logs where a module's variables are, before the program can learn their addresses. A
// replay must put them at the same addresses.
func (k *Keeper) TellPlaced(m *Message, p clientcore.Placed) {
	if !k.Valid() {
		return
	}
	about, err := json.Marshal(p)
	if err != nil {
		k.Expose(fmt.Errorf("where a module is: %w", err))
		return
	}
	k.journal.Tell(m.Entry, about)
}

// Wants says whether the log needs the data of a message, and does not have them.
func (k *Keeper) Wants(m *Message) bool {
	return k != nil && m.Header.Op.TakesData() && !m.HasData
}

// Keep makes sure that data of a message, which are copied to the host copies, survive until the next base:
// it writes them to the log, or keeps the staging memory that holds them.
func (k *Keeper) Keep(m *Message, data []byte, of Client) {
	if !k.Wants(m) {
		return
	}
	if m.Stage.IsOpen() && of.Dirty() == 0 && of.Blobs() < len(data) {
		// The host copies are in memory files and survive; only a base that says so is missing. With
		// nothing to copy from a device a base is cheap, cheaper than to log the data, so the staging
		// memory is kept and one base is made for several messages.
		k.kept = append(k.kept, retained{m.Entry, data, m.Stage.Taken()})
		k.keeping += uint64(len(data))
		return
	}
	k.Attach(m.Entry, data, m.Stage.IsOpen())
}

// Aside writes data of a message to the log, in a goroutine if that is worth it, while the device reads the
// same data. The caller must call kept before it gives the data back.
func (k *Keeper) Aside(m *Message, data []byte) (kept func()) {
	if !k.Wants(m) {
		return nothing
	}
	if len(data) >= aside && len(data) <= MaxAttached {
		if fill := k.journal.Reserve(m.Entry, uint64(len(data))); fill != nil {
			return together.Aside(func() { fill.Fill(data) })
		}
	}
	k.Attach(m.Entry, data, m.Stage.IsOpen())
	return nothing
}

func nothing() {}

// Later reserves room for data that will be written to the log later, before the program may change them; nil
// if there is none, which makes a base due.
func (k *Keeper) Later(m *Message, size uint64) *journal.Space {
	if size <= MaxAttached {
		if fill := k.journal.Reserve(m.Entry, size); fill != nil {
			return fill
		}
	}
	k.due = true
	return nil
}

// Attach writes data to the log. Data that do not fit make a base due; if their memory is given
// back to the program before a base can be made, the client cannot be rebuilt until the next one.
func (k *Keeper) Attach(e journal.Entry, data []byte, givenBack bool) {
	if k == nil || len(data) <= MaxAttached && k.journal.Attach(e, data) {
		return
	}
	if givenBack { // a later base is too late
		k.Expose(errLogFull)
		return
	}
	k.due = true
}

var errLogFull = errors.New("it sent more than its journal holds while one of its own functions was waited for")

// Marks says whether the end of a message must be marked (Given). Messages with an answer need no mark: the
// answer says it.
func (k *Keeper) Marks(m *Message) bool { return k != nil && m.Header.Slot < 0 }

// Given marks that the program has its bytes. Any goroutine may call it.
func (k *Keeper) Given(m *Message) {
	if k.Marks(m) {
		k.journal.Mark(m.Entry, journal.Done)
	}
}

// Saw logs that the program is being told that work has ended, before it is told.
func (k *Keeper) Saw(m *Message) {
	if k != nil {
		k.journal.Mark(m.Entry, journal.Done)
	}
}

// Refused logs that a message was refused.
func (k *Keeper) Refused(m *Message, r clientcore.Result) {
	if k != nil {
		k.journal.Refuse(m.Entry, r)
	}
}

// Handed logs that the program is given a host function to call, before it is given. A later worker
// must not have it called twice. Cookie is 0 if it is given none.
func (k *Keeper) Handed(cookie uint64, slot int, seq uint32) {
	if k != nil && cookie != 0 {
		k.journal.Note(journal.Note{Cookie: cookie, Slot: slot, Seq: seq})
	}
}

// Gives logs how much text the program is given as the answer to a message, before it is given.
func (k *Keeper) Gives(e journal.Entry, bytes int) {
	if k != nil {
		k.journal.Give(e, uint32(bytes))
	}
}

// Replaced notes that the client is becoming another one: its log tells of one that is no more.
func (k *Keeper) Replaced() {
	if k != nil {
		k.journal.Invalidate()
	}
}

// --- when a base is made ---------------------------------------------------------------

// Left notes that the client has left its device, so that a base is cheap.
func (k *Keeper) Left() {
	if k != nil {
		k.left = true
	}
}

// HasLeft says whether the client has left its device since the last base.
func (k *Keeper) HasLeft() bool { return k != nil && k.left }

// Owe makes a base due before the next message.
func (k *Keeper) Owe() {
	if k != nil {
		k.due = true
	}
}

// Holds says whether staging memory is kept.
func (k *Keeper) Holds() bool { return k != nil && len(k.kept) > 0 }

// LetGo says that the staging memory is to be given back: the program may be waiting for it.
func (k *Keeper) LetGo() {
	if k != nil {
		k.keptLong = len(k.kept) > 0
	}
}

// IsDue says whether a base is due for a client with so much staging memory, whose host copies are there twice
// (once for the last base) in so many bytes.
func (k *Keeper) IsDue(of Client, stagingSize, moved uint64) bool {
	return k != nil && (k.due || k.keptLong || k.keeping > stagingSize/2 || k.timeToFold(of, moved))
}

// timeToFold says whether to make a base: the log is long, or host copies exist twice without need,
// or kernels have run long enough to pay for it. A client that cannot be rebuilt gets a base as
// soon as possible.
func (k *Keeper) timeToFold(of Client, moved uint64) bool {
	j := k.journal
	switch used := j.Used(); {
	case j.Valid() && used == 0:
		return false
	case k.isTight(of, used):
		return true
	}
	spent := of.Spent() - k.spent
	if (k.left || moved > maxMoved) && of.Dirty() == 0 {
		return true
	}
	if j.Valid() && spent < minSpent {
		return false
	}
	cost := foldCost + time.Duration(float64(of.Dirty()+uint64(of.Blobs()))/k.rate*float64(time.Second))
	if !j.Valid() {
		return of.CanFold() && time.Now().After(k.retry)
	}
	return spent > foldShare*cost
}

// isTight says whether the log is so long that a base is made to empty it. The rest of the log is
// left for messages that are read ahead, during which no base can be made.
func (k *Keeper) isTight(of Client, used uint64) bool {
	return used > ShortLog && (used > logWorth*of.Dirty() || used > k.journal.Affordable()/4*3)
}

// CannotFold logs the data that were kept for the next base, since no base can be made now
// (Client.CanFold: say, a host function is running). If the log has no room either, the client cannot
// be rebuilt.
func (k *Keeper) CannotFold() {
	for _, r := range k.kept {
		k.Attach(r.entry, r.data, true)
	}
	k.release()
	if k.due {
		k.due = false
		k.Expose(errLogFull)
	}
}

// Commit writes a base, with which the log begins anew. If it does not fit, the client cannot be rebuilt.
func (k *Keeper) Commit(sections ...[]byte) error {
	err := k.journal.Commit(sections...)
	if err != nil {
		k.Expose(err)
		k.retry = time.Now().Add(retryFold)
	} else {
		k.exposed = false
	}
	return err
}

// Committed notes that the base was made, or was tried.
func (k *Keeper) Committed(of Client) {
	k.due, k.left = false, false
	k.Resumed(of)
	k.release()
}

// Resumed notes what GPU time the client had used at the last base.
func (k *Keeper) Resumed(of Client) { k.spent = of.Spent() }

// Took notes how long a base took that copied so many bytes from devices.
func (k *Keeper) Took(bytes uint64, took time.Duration) {
	if bytes >= muchDirty {
		k.rate = (k.rate + float64(bytes)/took.Seconds()) / 2
	}
}

// release gives kept staging memory back.
func (k *Keeper) release() {
	for _, r := range k.kept {
		k.staging.Free(r.stage)
	}
	k.kept, k.keeping, k.keptLong = k.kept[:0], 0, false
}

// Rests says, once in each pause of the program, that it has sent nothing for so long that memory which its
// next base will need is given back. Position is that of the ring.
func (k *Keeper) Rests(position uint64, now time.Time) bool {
	return k != nil && k.pause.lasts(position, now)
}

// pause is for how long the program has sent nothing.
type pause struct {
	position uint64 // of the ring
	since    time.Time
	over     bool // lasts has said so
}

// spareTime is how long a program sends nothing before memory that its next base will need is given back.
const spareTime = 10 * time.Second

// lasts says, once in each pause of the program, that it has lasted for spareTime.
func (p *pause) lasts(position uint64, now time.Time) bool {
	if p.since.IsZero() || position != p.position {
		*p = pause{position: position, since: now}
	}
	if p.over || now.Sub(p.since) < spareTime {
		return false
	}
	p.over = true
	return true
}
