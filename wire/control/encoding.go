package control

import (
	"errors"
	"fmt"

	"muster/wire/envelope"
)

// ErrRefused says that the other side sent what it must not. Any other error of Receive means that
// the connection has ended.
var ErrRefused = errors.New("a control message was refused")

// maxMessage is how many bytes a message may have on the connection.
const maxMessage = 128 << 10

// maxReason is how many bytes of a reason are sent: it may quote a program's text, and JSON makes
// that up to six times as long.
const maxReason = 8 << 10

// The kinds of messages, by name.
var (
	kindsToWorker = envelope.Of[ToWorker](Serve{}, Grant{}, Deny{}, Revoke{}, Lost{}, Watch{}, Parked{}, Committed{}, Ping{}, AddDevice{}, Hold{}, End{}, Probe{}, Prepare{}, Forgo{}, Checkpoint{}, Restore{}, Proceed{}, Neighbour{}, Renew{}, GrantFurther{}, DenyFurther{}, RevokeFurther{}, Beside{})
	kindsToDaemon = envelope.Of[ToDaemon](Want{}, Grow{}, Released{}, Busy{}, Idle{}, SyncPoint{}, Ran{}, Commit{}, Report{}, Failed{}, CannotServe{}, Pong{}, Probed{}, Standing{}, Rebuild{}, Rebuilt{}, Ended{}, Checkpointed{}, Restored{}, Began{}, Traced{}, Forgone{}, Freed{}, WantFurther{}, ReleasedFurther{}, RanFurther{})
)

func encode(m message) ([]byte, error) {
	b, err := envelope.Encode(shortened(m))
	if err != nil {
		return nil, err
	}
	if len(b) > maxMessage {
		return nil, fmt.Errorf("%s of %d bytes is longer than a control message may be", m.Kind(), len(b))
	}
	return b, nil
}

// shortened cuts a long reason, so that the rest of the message arrives.
func shortened(m message) message {
	cut := func(reason string) string { return reason[:min(len(reason), maxReason)] }
	switch m := m.(type) {
	case Deny:
		return Deny{m.Lease, cut(m.Reason)}
	case Revoke:
		return Revoke{cut(m.Reason), m.Keep, m.Step}
	case Lost:
		return Lost{m.Device, cut(m.Reason)}
	case Committed:
		return Committed{m.Bytes, m.Granted, cut(m.Reason)}
	case Failed:
		return Failed{m.Lease, cut(m.Reason)}
	case CannotServe:
		return CannotServe{cut(m.Reason)}
	case Checkpointed:
		return Checkpointed{m.Held, m.Bytes, cut(m.Error)}
	case Restored:
		return Restored{m.Bytes, cut(m.Error)}
	}
	return m
}

// decode decodes a message of one direction.
func decode[M message](b []byte, kinds envelope.Kinds[M]) (M, error) {
	m, err := kinds.Decode(b, func(m M) error { return m.check() })
	if err != nil {
		return m, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return m, nil
}
