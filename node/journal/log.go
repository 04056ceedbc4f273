package journal

import (
	"encoding/binary"
	"fmt"
	"iter"

	"muster/internal/together"
)

// Kinds of records in the log.
const (
	isMessage = 1 + iota
	isData
	isNote
	isFact
)

// Offsets in a record. Every record begins with its size and kind.
const (
	atSize, atKind                        = 0, 4
	atMarks, atRefused, atPosition        = 8, 12, 16
	atData, atLength, atGiven             = 24, 32, 36
	messageHead                           = 40
	atBytes, dataHead                     = 8, 16
	atCookie, atSlot, atSequence, noteEnd = 8, 16, 20, 24
	atOf, atFactLength, factHead          = 8, 16, 24
)

// Mark says what has become of a message. Marks are bits.
type Mark uint32

const (
	// Done: the effect of the message has reached the program: bytes that were copied out are where
	// the program wanted them, or it was told that work has ended.
	Done Mark = 1 << iota
	// Refused: the message was refused, with a result.
	Refused
)

// Entry names a message in the log, for the worker that handles it.
type Entry struct {
	at    uint64 // offset of the record in the log, plus 1; 0: none
	epoch uint64
}

// record reserves room for a record of n bytes and writes its head; false if it does not fit. The
// record does not count before publish.
func (j *Journal) record(kind uint32, n uint64) ([]byte, uint64, bool) {
	n = align(n)
	if !j.Valid() || n > j.Room() {
		return nil, 0, false
	}
	at := j.used
	b := j.here[j.log+at:][:n:n]
	clear(b[:min(n, messageHead)])
	binary.LittleEndian.PutUint32(b[atSize:], uint32(n))
	binary.LittleEndian.PutUint32(b[atKind:], kind)
	return b, at, true
}

// publish makes the last record count.
func (j *Journal) publish(n int) {
	j.used += uint64(n)
	j.store64(j.here, atLogSize, j.used)
}

// Append writes a message to the log, with the position of the ring after it. If it does not fit,
// the journal becomes invalid.
func (j *Journal) Append(position uint64, message []byte) Entry {
	b, at, ok := j.record(isMessage, messageHead+uint64(len(message)))
	if !ok {
		if j.Valid() {
			j.Invalidate()
		}
		return Entry{}
	}
	binary.LittleEndian.PutUint64(b[atPosition:], position)
	binary.LittleEndian.PutUint32(b[atLength:], uint32(len(message)))
	copy(b[messageHead:], message)
	j.publish(len(b))
	return Entry{at + 1, j.epoch}
}

// Space is room in the log for the data of an entry. The data count from Fill or Count on, unless
// the entry's epoch is over by then.
type Space struct {
	j      *Journal
	entry  Entry
	at     uint64 // offset of the record in the log
	memory []byte
}

// Reserve reserves room for n bytes of data of an entry. It returns nil if they do not fit, or if the
// entry is of an earlier epoch.
func (j *Journal) Reserve(e Entry, n uint64) *Space {
	if e.at == 0 || e.epoch != j.epoch || n > j.Room() {
		return nil
	}
	if n >= wholePages {
		j.pad()
	}
	b, at, ok := j.record(isData, dataHead+n)
	if !ok {
		return nil
	}
	binary.LittleEndian.PutUint64(b[atBytes:], n)
	j.publish(len(b))
	return &Space{j, e, at, b[dataHead:][:n:n]}
}

// wholePages is the size of data from which they begin at a page: devices and processors copy that
// faster.
const wholePages = 64 << 10

// pad appends a record without data, if need be, such that the data of the next begin at a page. What
// does not fit is left out.
func (j *Journal) pad() {
	const page = 4096
	size := -(j.begin(j.epoch) + j.log + j.used + dataHead) % page
	if size == 0 {
		return
	}
	if size < dataHead {
		size += page
	}
	if b, _, ok := j.record(isData, size); ok {
		j.publish(len(b))
	}
}

// Memory is where the data belong. The caller may have a device write them there, while the epoch
// lasts, and calls Count when they are there.
func (s *Space) Memory() []byte { return s.memory }

// Count makes the data count. Any goroutine may call it, once, if it does not call Fill.
func (s *Space) Count() { s.write(func() {}) }

// Fill writes the data, and makes them count. Any goroutine may call it, once, if it does not call
// Count.
func (s *Space) Fill(data []byte) {
	s.write(func() { together.Copy(s.memory, data[:min(len(s.memory), len(data))]) })
}

func (s *Space) write(data func()) {
	s.j.write(s.entry, func(message []byte) {
		data()
		s.j.store64(message, atData, s.at+1)
	})
}

// Granule is a part of the file.
type Granule struct {
	At     uint64 // its offset, a multiple of the size of granules
	Memory []byte
}

// Ahead returns the granules that will hold n bytes of data if Reserve is called now.
func (j *Journal) Ahead(n, size uint64) (parts []Granule) {
	from := j.begin(j.epoch) + j.log + j.used
	end := min(from+n+2*wholePages, uint64(len(j.mem))) // with heads and padding
	for at := from / size * size; at < end; at += size {
		to := min(at+size, uint64(len(j.mem)))
		parts = append(parts, Granule{at, j.mem[at:to:to]})
	}
	return parts
}

// Attach writes the data of an entry to the log. It returns false if they do not fit, or if the
// entry is of an earlier epoch.
func (j *Journal) Attach(e Entry, data []byte) bool {
	if e.at == 0 || e.epoch != j.epoch {
		return false
	}
	b, at, ok := j.record(isData, dataHead+uint64(len(data)))
	if !ok {
		return false
	}
	binary.LittleEndian.PutUint64(b[atBytes:], uint64(len(data)))
	together.Copy(b[dataHead:], data)
	j.publish(len(b))
	j.store64(j.here[j.log+e.at-1:], atData, at+1)
	return true
}

// write changes an entry, unless its epoch is over.
func (j *Journal) write(e Entry, change func(b []byte)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.at == 0 || e.epoch != j.epoch || j.mem == nil {
		return
	}
	change(j.here[j.log+e.at-1:])
}

// Mark sets a mark of a message.
func (j *Journal) Mark(e Entry, m Mark) {
	j.write(e, func(b []byte) { j.store32(b, atMarks, load32(b, atMarks)|uint32(m)) })
}

// Refuse marks a message as refused. The result is written before the mark that makes it count.
func (j *Journal) Refuse(e Entry, result int32) {
	j.write(e, func(b []byte) {
		j.store32(b, atRefused, uint32(result))
		j.store32(b, atMarks, load32(b, atMarks)|uint32(Refused))
	})
}

// Give records how many bytes are given in answer to a message, before they are given.
func (j *Journal) Give(e Entry, n uint32) { j.write(e, func(b []byte) { j.store32(b, atGiven, n) }) }

// Note records that the program was given a host function to call, as the answer to a message. If
// the record does not fit, the journal becomes invalid.
func (j *Journal) Note(n Note) {
	b, _, ok := j.record(isNote, noteEnd)
	if !ok {
		if j.Valid() {
			j.Invalidate()
		}
		return
	}
	le := binary.LittleEndian
	le.PutUint64(b[atCookie:], n.Cookie)
	le.PutUint32(b[atSlot:], uint32(n.Slot))
	le.PutUint32(b[atSequence:], n.Seq)
	j.publish(len(b))
}

// Note says that the host function Cookie was given to the program in Slot, as the answer to the
// message with number Seq.
type Note struct {
	Cookie uint64
	Slot   int
	Seq    uint32
}

// Tell records something that was found out while a message was handled, and must be so again when
// the message is replayed. If the record does not fit, the journal becomes invalid.
func (j *Journal) Tell(e Entry, about []byte) {
	b, _, ok := j.record(isFact, factHead+uint64(len(about)))
	if !ok {
		if j.Valid() {
			j.Invalidate()
		}
		return
	}
	if e.epoch == j.epoch {
		binary.LittleEndian.PutUint64(b[atOf:], e.at)
	}
	binary.LittleEndian.PutUint64(b[atFactLength:], uint64(len(about)))
	copy(b[factHead:], about)
	j.publish(len(b))
}

// Fact is what Tell has recorded. With a zero Of it belongs before all messages of the log.
type Fact struct {
	Of    Entry
	About []byte
}

// Message is a message of the log, for the worker that replays it.
type Message struct {
	Entry    Entry
	Position uint64
	Bytes    []byte // as on the ring
	Data     []byte // nil: still where they were when the message was sent
	Marks    Mark
	Result   int32  // if Refused
	Given    uint32 // bytes given with the answer (Give)
}

// Record is a record of the log: exactly one of the fields is set.
type Record struct {
	Message *Message
	Note    *Note
	Fact    *Fact
}

// Log iterates over the records since the base, in order. An error ends the iteration.
func (j *Journal) Log() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		log := j.here[j.log:][:j.used]
		for at := uint64(0); at < uint64(len(log)); {
			r, size, err := read(log, at)
			if err != nil {
				yield(Record{}, fmt.Errorf("the journal is damaged at %d: %w", at, err))
				return
			}
			if r.Message != nil {
				r.Message.Entry = Entry{at + 1, j.epoch}
			}
			if r.Fact != nil && r.Fact.Of.at != 0 {
				r.Fact.Of.epoch = j.epoch
			}
			if r != (Record{}) && !yield(r, nil) {
				return
			}
			at += size
		}
	}
}

// read reads the record at an offset of the log. A record of data gives a zero Record: Message.Data
// has it.
func read(log []byte, at uint64) (r Record, size uint64, err error) {
	le := binary.LittleEndian
	b := log[at:]
	if len(b) < 8 {
		return r, 0, fmt.Errorf("a record of %d bytes", len(b))
	}
	size = uint64(le.Uint32(b[atSize:]))
	if size < 8 || size > uint64(len(b)) || size%8 != 0 {
		return r, 0, fmt.Errorf("a record of %d bytes, where %d are left", size, len(b))
	}
	b = b[:size]
	switch kind := le.Uint32(b[atKind:]); {
	case kind == isData && size >= dataHead:
		if n := le.Uint64(b[atBytes:]); n > size-dataHead {
			return r, 0, fmt.Errorf("data of %d bytes in %d", n, size)
		}
		return r, size, nil
	case kind == isNote && size >= noteEnd:
		r.Note = &Note{Cookie: le.Uint64(b[atCookie:]), Slot: int(le.Uint32(b[atSlot:])), Seq: le.Uint32(b[atSequence:])}
		return r, size, nil
	case kind == isFact && size >= factHead:
		n := le.Uint64(b[atFactLength:])
		if n > size-factHead {
			return r, 0, fmt.Errorf("a fact of %d bytes in %d", n, size)
		}
		r.Fact = &Fact{Of: Entry{at: le.Uint64(b[atOf:])}, About: b[factHead:][:n:n]}
		return r, size, nil
	case kind == isMessage && size >= messageHead:
		m := &Message{Position: le.Uint64(b[atPosition:]), Marks: Mark(load32(b, atMarks)), Result: int32(load32(b, atRefused)), Given: load32(b, atGiven)}
		n := uint64(le.Uint32(b[atLength:]))
		if n > size-messageHead {
			return r, 0, fmt.Errorf("a message of %d bytes in %d", n, size)
		}
		m.Bytes = b[messageHead:][:n:n]
		if data := load64(b, atData); data != 0 {
			if m.Data, err = dataAt(log, data-1); err != nil {
				return r, 0, err
			}
		}
		r.Message = m
		return r, size, nil
	default:
		return r, 0, fmt.Errorf("a record of kind %d with %d bytes", kind, size)
	}
}

func dataAt(log []byte, at uint64) ([]byte, error) {
	if at%8 != 0 || at > uint64(len(log)) || uint64(len(log))-at < dataHead || binary.LittleEndian.Uint32(log[at+atKind:]) != isData {
		return nil, fmt.Errorf("data at %d of %d", at, len(log))
	}
	n := binary.LittleEndian.Uint64(log[at+atBytes:])
	if n > uint64(len(log))-at-dataHead {
		return nil, fmt.Errorf("data of %d bytes at %d of %d", n, at, len(log))
	}
	return log[at+dataHead:][:n:n], nil
}
