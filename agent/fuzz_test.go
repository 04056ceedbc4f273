package agent

import (
	"encoding/json"
	"testing"

	"muster/agent/agentcore"
	"muster/internal/strictjson"
	wire "muster/wire/agent"
	"muster/wire/grant"
)

// What reads the spool takes any bytes: they may be a disk's that fails.
func FuzzSpool(f *testing.F) {
	id := wire.Task{Job: 7, Attempt: 1}
	spec := wire.Spec{User: "alice", Directory: "/", Arguments: []string{"true"}, Processes: 1, All: 1, Nodes: []string{"n1"}, Cores: 1, Output: "out"}
	start := seed(f, wire.Start{Task: id, Incarnation: "x", Spec: spec})
	text, err := json.Marshal(taskFile{Start: start, Cores: []int{0}, Marker: "00112233445566778899aabbccddeeff"})
	if err != nil {
		f.Fatal(err)
	}
	past, err := json.Marshal(agentcore.Past{End: &wire.End{Cause: wire.Stopped}, At: 1})
	if err != nil {
		f.Fatal(err)
	}
	for _, b := range [][]byte{
		text, past, seed(f, wire.Stop{Task: id, Cause: wire.Stopped}), seed(f, wire.Lend{Loan: grant.Loan{ID: "7.1.0", User: "alice", Hash: grant.Hash{1}, Devices: []grant.Device{{Node: "n1"}}, Limit: grant.AllDevices}}),
		[]byte("boot\n12 34\n"), []byte("7.1.0"), []byte(`{"watch":true}`),
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if task, err := parseTaskFile(b); err == nil && task.start.Task.Job == 0 {
			t.Error("a task without a number")
		}
		if p, err := parsePast(b); err == nil && p.At < 0 {
			t.Error(p)
		}
		if stop, err := parseStop(b, id); err == nil && stop.Task != id {
			t.Error(stop)
		}
		if end, err := parseEnd(b, id); err == nil && end == nil {
			t.Error("no end")
		}
		if loan, err := parseLoan(b); err == nil && loan.Validate() != nil {
			t.Error(loan)
		}
		for p := range parseProcesses(b, "boot") {
			if p.pid <= 1 {
				t.Error("the first of all processes is nobody's")
			}
		}
		if id, ok := parseTaskID(string(b)); ok && id.String() != string(b) {
			t.Error(id)
		}
		if saved, err := parseSaved(b); err == nil {
			if text, err := json.Marshal(saved); err != nil || saved.check() != nil {
				t.Errorf("%s, %v", text, err)
			}
		}
		var r request
		_ = strictjson.Decode(b, &r)
		var e entry
		_ = strictjson.Decode(b, &e)
	})
}

func seed(f *testing.F, m wire.ToAgent) []byte {
	b, err := wire.Encode(nil, m)
	if err != nil {
		f.Fatal(err)
	}
	return b
}
