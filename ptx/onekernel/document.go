package onekernel

import (
	"encoding/json"
	"strconv"
	"strings"

	"muster/ptx"
	"muster/ptx/number"
	"muster/ptx/simt/shape"
)

// Document is what muster ptx run --json prints.
type Document struct {
	Kernel       string           `json:"kernel"`
	Grid         [3]uint32        `json:"grid"`
	Block        [3]uint32        `json:"block"`
	Shared       int              `json:"shared_bytes"`
	Workers      int              `json:"workers"`
	Instructions uint64           `json:"instructions"`
	LaneOps      uint64           `json:"lane_ops"`
	Seconds      float64          `json:"time_s"`
	Printed      string           `json:"printed"`
	Fault        *faultDocument   `json:"fault"`
	Buffers      []bufferDocument `json:"buffers"`
	Defects      []defectDocument `json:"defects,omitempty"` // with --check

	Profile []profileDocument `json:"profile,omitempty"` // with --profile
	Code    [][]codeDocument  `json:"code,omitempty"`    // with --disasm: one list for each shape of blocks
	Lowered *loweredDocument  `json:"lowered,omitempty"` // with --lowered
}

type faultDocument struct {
	Kind        string    `json:"kind"`
	Message     string    `json:"message"`
	Block       [3]uint32 `json:"block"`
	Thread      [3]uint32 `json:"thread"`
	Address     uint64    `json:"address"`
	Line        int       `json:"line"`
	Instruction string    `json:"instruction"`
}

type bufferDocument struct {
	Argument int               `json:"argument"`
	Mode     string            `json:"mode"`
	Type     string            `json:"type"`
	Count    int               `json:"count"`
	File     string            `json:"file"`
	Values   []json.RawMessage `json:"values"`
}

// document makes the JSON document of a run without what the user may leave out.
func (run *Run) document() Document {
	r, stats := run.kernel, run.execution.Stats()
	three := func(d shape.Dim) [3]uint32 { return [3]uint32{d.X, d.Y, d.Z} }
	doc := Document{
		Kernel: r.function.Name, Grid: three(r.Launch.Grid), Block: three(r.Launch.Block), Shared: r.Launch.Shared, Workers: r.Launch.Workers,
		Instructions: stats.Instructions, LaneOps: stats.LaneOps, Seconds: run.seconds, Printed: run.printed.String(), Buffers: []bufferDocument{},
	}
	if fault := run.fault; fault != nil {
		doc.Fault = &faultDocument{
			Kind: fault.Kind.String(), Message: fault.Error(), Block: three(fault.Block), Thread: three(fault.Thread),
			Address: fault.Address, Line: fault.Pos.Line, Instruction: fault.Line,
		}
		return doc
	}
	for i, a := range r.args {
		if !a.wanted() {
			continue
		}
		b := bufferDocument{Argument: a.number, Mode: a.mode, Type: a.typ.String(), Count: a.count, File: a.file, Values: []json.RawMessage{}}
		for n := 0; n < a.count && a.file == ""; n++ {
			b.Values = append(b.Values, jsonNumber(a.typ, number.Get(a.typ, r.buffers[i], n)))
		}
		doc.Buffers = append(doc.Buffers, b)
	}
	return doc
}

// jsonNumber encodes an element as JSON. Values that JSON numbers cannot hold, such as
// NaN, become strings.
func jsonNumber(t ptx.Type, bits uint64) json.RawMessage {
	text := number.Format(t, bits)
	if isBits(t) || strings.ContainsAny(text, "in") {
		text = strconv.Quote(text)
	}
	return json.RawMessage(text)
}
