package wire

import (
	"encoding/binary"
	"fmt"
)

// LaunchStream stands, in the steps of a graph, for the stream in which the graph is launched.
const LaunchStream = 1<<32 - 1

// MaxSteps is how many bytes of steps all graphs of a client may have. Beyond that, the library
// sends the messages of graphs one by one.
const MaxSteps = 16 << 20

const stepHead = 8

// newStep returns an empty message of a kind that graphs may contain; nil for other kinds. A graph
// cannot contain graphs, so no definition is endless.
func newStep(o Op) Message {
	switch o {
	case OpLaunch:
		return &Launch{}
	case OpCopyWithin:
		return &CopyWithin{}
	case OpCopyWithin2D:
		return &CopyWithin2D{}
	case OpFill:
		return &Fill{}
	case OpEventRecord:
		return &EventRecord{}
	case OpStreamWait:
		return &StreamWait{}
	}
	return nil
}

// AppendStep adds a message to the steps of a graph.
func AppendStep(b []byte, m Message) []byte {
	at := len(b)
	b = m.Append(append(b, make([]byte, stepHead)...))
	binary.LittleEndian.PutUint32(b[at:], uint32(m.Op()))
	binary.LittleEndian.PutUint32(b[at+4:], uint32(len(b)-at-stepHead))
	return b
}

// DecodeSteps decodes the steps of a graph. Their bytes are not copied.
func DecodeSteps(b []byte) ([]Message, error) {
	var all []Message
	for len(b) > 0 {
		if len(b) < stepHead {
			return nil, fmt.Errorf("step %d of a graph has %d bytes, and no whole head", len(all), len(b))
		}
		op, size := binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
		if uint64(size) > uint64(len(b)-stepHead) {
			return nil, fmt.Errorf("step %d of a graph says it has %d bytes, and %d are there", len(all), size, len(b)-stepHead)
		}
		var m Message
		if op < 1<<16 {
			m = newStep(Op(op))
		}
		if m == nil {
			return nil, fmt.Errorf("step %d of a graph is message %d, which graphs do not have", len(all), op)
		}
		if err := m.Decode(b[stepHead : stepHead+size]); err != nil {
			return nil, fmt.Errorf("step %d of a graph: %w", len(all), err)
		}
		all, b = append(all, m), b[stepHead+size:]
	}
	return all, nil
}
