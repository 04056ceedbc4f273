package nodetable

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"muster/internal/units"
	"muster/node/vgpu"
	"muster/report"
)

// UnreadableRecording names the place where a recording cannot be read.
func UnreadableRecording(name string, r vgpu.Replayed, err error) error {
	var bad *vgpu.LineError
	if !errors.As(err, &bad) {
		return fmt.Errorf("%s: %w", name, err)
	}
	before := ""
	if r.Events > 0 {
		before = fmt.Sprintf(" (%s before that: the same decisions)", units.Plural(r.Events, "event"))
	}
	return fmt.Errorf("%s:%d: %w%s", name, bad.Line, bad.Err, before)
}

// ReplayDocument is a recording that was played again, for programs.
type ReplayDocument struct {
	File       string            `json:"file"`
	Node       string            `json:"node"`
	Muster     string            `json:"muster"`
	Started    string            `json:"started"`
	Policy     string            `json:"policy"`
	Devices    int               `json:"devices"`
	Events     int               `json:"events"`
	Effects    int               `json:"effects"`
	Time       float64           `json:"time_s"` // from the node's start to the last event
	Same       bool              `json:"same"`
	End        string            `json:"end"` // "" if the recording has none
	Cut        bool              `json:"cut"` // in the middle of a line, which was left out
	Difference *ReplayDifference `json:"difference"`
}

// ReplayDifference is the first event after which another decision is made than was recorded.
type ReplayDifference struct {
	Line     int             `json:"line"`
	Time     float64         `json:"time_s"`
	Event    json.RawMessage `json:"event"`
	Recorded json.RawMessage `json:"recorded"`
	Decided  json.RawMessage `json:"decided"`
}

// ReplayedJSON is the document of a recording that was played again.
func ReplayedJSON(name string, r vgpu.Replayed) ReplayDocument {
	doc := ReplayDocument{
		File: name, Node: r.Header.Node, Muster: r.Header.Muster, Started: r.Header.Started,
		Policy: r.Header.Config.Policy.String(), Devices: len(r.Header.Config.Devices),
		Events: r.Events, Effects: r.Effects, Time: r.Last.Seconds(), Same: r.Difference == nil, End: r.End, Cut: r.Cut,
	}
	if d := r.Difference; d != nil {
		doc.Difference = &ReplayDifference{d.Line, d.Now.Seconds(), d.Event, d.Recorded, d.Decided}
	}
	return doc
}

// WriteReplayed writes what came of a recording that was played again.
func WriteReplayed(w io.Writer, r vgpu.Replayed) error {
	h := r.Header
	fmt.Fprintf(w, "node %s from %s, %s, %s; recorded by %s\n",
		report.Printable(h.Node), report.Printable(h.Started), h.Config.Policy, units.Plural(len(h.Config.Devices), "device"), report.Printable(h.Muster))
	fmt.Fprintf(w, "%s in %s, %s", units.Plural(r.Events, "event"), r.Last.Round(time.Microsecond), units.Plural(r.Effects, "effect"))
	if d := r.Difference; d != nil {
		_, err := fmt.Fprintf(w, "\nthe first difference is in line %d, after %v:\n  event     %s\n  recorded  %s\n  now       %s\n", d.Line, d.Now,
			report.Printable(string(d.Event)), report.Printable(string(d.Recorded)), report.Printable(string(d.Decided)))
		return err
	}
	end := r.End
	switch {
	case r.Cut:
		end = "it is cut off in the middle of a line: the node was killed, or still writes"
	case end == "":
		end = "it has no end: the node was killed, or still runs"
	}
	_, err := fmt.Fprintf(w, ": the same decisions\nthe recording's end: %s\n", report.Printable(end))
	return err
}
