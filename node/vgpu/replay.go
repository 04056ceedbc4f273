package vgpu

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Replayed is what came of playing a recording again.
type Replayed struct {
	Header  Header
	Events  int
	Effects int    // how many were recorded
	Last    Time   // of the last event
	End     string // why the recording ends there; "" if it does not say
	Cut     bool   // the last line is not whole, and was left out

	// Difference is the first event for which something else is decided now; nil if all
	// decisions are the same. What comes after it was not played, since the core's
	// state differs from then on.
	Difference *Difference
}

// Difference is an event for which something else is decided than was recorded.
type Difference struct {
	Line     int
	Now      Time
	Event    json.RawMessage
	Recorded json.RawMessage // effects
	Decided  json.RawMessage
}

// LineError says which line of a recording cannot be read.
type LineError struct {
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }
func (e *LineError) Unwrap() error { return e.Err }

// maxReplayed is how many clients a recording may have attached at a time: as
// many as a node may be told to serve. Without a bound a file that never ends
// could take all memory.
const maxReplayed = 1 << 20

// Replay tells a fresh core all events of a recording and compares what it
// decides with what was recorded, byte for byte. It keeps no more than one line.
// An error says that the recording cannot be read; what it returns with one is
// what was found up to there.
func Replay(r io.Reader) (Replayed, error) { return replay(r, maxReplayed) }

func replay(r io.Reader, clients int) (Replayed, error) {
	in := lines{in: bufio.NewReaderSize(r, 64<<10)}
	var done Replayed
	line, err := in.next()
	switch {
	case err != nil:
		return done, err
	case line == nil:
		return done, errors.New("the recording is empty, or its first line is not whole: the node was killed before it had written more")
	}
	if done.Header, err = parseHeader(line); err != nil {
		return done, in.failed(err)
	}
	core, err := New(done.Header.Config)
	if err != nil {
		return done, in.failed(err)
	}
	for {
		line, err := in.next()
		switch {
		case err != nil:
			return done, err
		case done.End != "" && (line != nil || in.cut):
			return done, in.failed(errors.New("something follows the end of the recording"))
		case line == nil:
			done.Cut = in.cut
			return done, nil
		}
		if err := done.step(core, line); err != nil {
			return done, in.failed(err)
		}
		if len(core.clients) > clients {
			return done, in.failed(fmt.Errorf("more than %d clients are attached at a time", clients))
		}
		if done.Difference != nil {
			done.Difference.Line = in.count
			return done, nil
		}
	}
}

// step plays one line.
func (r *Replayed) step(core *Core, line []byte) error {
	e, recorded, end, err := parseLine(line)
	if err != nil {
		return err
	}
	if end != nil {
		if r.End = *end; r.End == "" {
			return errors.New("the end of the recording has no reason")
		}
		return nil
	}
	e.Effects = core.Step(e.Now, e.Event)
	again, err := AppendEntry(nil, e)
	if err != nil {
		return err
	}
	if bytes.Equal(again[:len(again)-1], line) {
		r.Events++
		r.Effects += len(e.Effects)
		r.Last = e.Now
		return nil
	}
	return r.differ(e, recorded, line)
}

// differ notes that the core decides differently now. A line that no recording could
// contain is an error instead.
func (r *Replayed) differ(e Entry, recorded, line []byte) error {
	decided := e.Effects
	var err error
	if e.Effects, err = ParseEffects(recorded); err != nil {
		return fmt.Errorf("effects: %w", err)
	}
	again, err := AppendEntry(nil, e)
	if err != nil {
		return err
	}
	if err := sameBytes(line, again[:len(again)-1]); err != nil {
		return err
	}
	d := &Difference{Now: e.Now, Recorded: recorded}
	if d.Event, err = AppendEvent(nil, e.Event); err != nil {
		return err
	}
	if d.Decided, err = AppendEffects(nil, decided); err != nil {
		return err
	}
	r.Events++
	r.Effects += len(e.Effects)
	r.Last = e.Now
	r.Difference = d
	return nil
}

// lines reads lines of bounded length.
type lines struct {
	in    *bufio.Reader
	count int
	long  []byte // a line that does not fit into the reader
	cut   bool   // the last line is not whole
}

func (l *lines) failed(err error) error { return &LineError{l.count, err} }

// next returns the next line without its end, to be used until the next call;
// nil if there is none that is whole.
func (l *lines) next() ([]byte, error) {
	l.count++
	l.long = l.long[:0]
	for {
		part, err := l.in.ReadSlice('\n')
		switch {
		case len(l.long)+len(part) > maxLine:
			return nil, l.failed(fmt.Errorf("it is longer than %d bytes, and no recording has such a line", maxLine))
		case err == nil && len(l.long) == 0:
			return part[:len(part)-1], nil
		case err == nil:
			l.long = append(l.long, part...)
			return l.long[:len(l.long)-1], nil
		case errors.Is(err, bufio.ErrBufferFull):
			l.long = append(l.long, part...)
		case errors.Is(err, io.EOF):
			l.cut = len(l.long)+len(part) > 0
			return nil, nil
		default:
			return nil, err
		}
	}
}
