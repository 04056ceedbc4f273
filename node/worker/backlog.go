package worker

import (
	"errors"
	"fmt"
	"time"

	"muster/wire"
)

// backlog is what was taken from the ring to be handled later, in order.
type backlog struct {
	messages []message
	bytes    int
	data     []byte // of the message that is handled now; nil if it was not in the backlog
}

type message struct {
	header wire.Header
	body   []byte
	data   []byte // what the header names of the staging memory, which is free again
}

// A program can send so much while a function of its own is waited for.
const (
	maxBacklog      = 1 << 18
	maxBacklogBytes = 1 << 30
)

func (b *backlog) next() (message, bool) {
	b.data = nil
	if len(b.messages) == 0 {
		return message{}, false
	}
	m := b.messages[0]
	b.messages[0] = message{}
	b.messages = b.messages[1:]
	b.bytes -= len(m.body) + len(m.data)
	b.data = m.data
	return m, true
}

// waits says whether there is a message to be handled.
func (b *backlog) waits() bool { return len(b.messages) > 0 }

func (b *backlog) add(m message) error {
	b.bytes += len(m.body) + len(m.data)
	if len(b.messages) >= maxBacklog || b.bytes > maxBacklogBytes {
		return fmt.Errorf("%d messages while a function of the program's was waited for: %w", len(b.messages)+1, errEnded)
	}
	b.messages = append(b.messages, m)
	return nil
}

// readAhead takes messages from the ring to be handled later; those about the
// program's own functions are handled now.
func (s *session) readAhead() error {
	for {
		h, body, err := s.consumer.Next(time.Microsecond)
		switch {
		case errors.Is(err, wire.ErrTimeout), errors.Is(err, wire.ErrWoken):
			return nil
		case errors.Is(err, wire.ErrStopped):
			return fmt.Errorf("the node daemon ended: %w", errEnded)
		case err != nil:
			return errors.Join(err, errProtocol)
		case h.Op == wire.OpHostDone, h.Op == wire.OpHostNext, h.Op == wire.OpHostStop:
			err = s.dispatch(h, body)
		default:
			err = s.putBack(h, body)
		}
		if err != nil {
			return err
		}
	}
}

// putBack keeps a message for later. Staging memory is given back at once: the
// program may wait for it before it says that its function has returned.
func (s *session) putBack(h wire.Header, body []byte) error {
	m := message{header: h, body: append([]byte(nil), body...)}
	if h.Release != 0 {
		data, st, err := s.staged(h)
		if err != nil {
			return err
		}
		m.data = append(make([]byte, 0, len(data)), data...)
		s.staging.free(st)
		m.header.Release = 0
	}
	return s.backlog.add(m)
}
