package worker

import (
	"errors"

	"muster/node/clientcore"
	"muster/node/worker/trace"
	"muster/wire"
	"muster/wire/control"
	"muster/wire/timeline"
)

// tracing is the timeline of the program, from when it asks for one. The loop owns it, but for neighbours.
type tracing struct {
	*trace.Recorder                  // nil: no timeline was asked for
	neighbours      trace.Neighbours // any goroutine may note one
	rebuilt         trace.Rebuilt    // how the client came into this worker
	shared          *wire.Shared
	record          func() *trace.Recorder
	say             func(m control.ToDaemon)
}

// isOn says whether the program records a timeline.
func (t *tracing) isOn() bool { return t.Recorder != nil }

// read answers the library with what was recorded since it last asked.
func (t *tracing) read(h wire.Header, body []byte) error {
	out, err := t.shared.Data(h.Data, h.Length)
	if err == nil {
		err = (&wire.TraceRead{}).Decode(body)
	}
	if err != nil {
		return errors.Join(err, clientcore.ErrProtocol)
	}
	t.begin()
	reply := t.Read(out, t.neighbours.Take(timeline.Now()))
	t.shared.Reply(h.Slot, success, reply.Append(nil))
	return nil
}

// begin starts recording, unless it has started.
func (t *tracing) begin() {
	if t.isOn() {
		return
	}
	t.say(control.Traced{})
	t.Recorder = t.record()
	t.Rebuilt(t.rebuilt)
}
