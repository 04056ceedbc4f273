package vgpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// A recording is what a core was told and what it decided, as lines of JSON:
//
//	{"recording":"muster dispatcher","version":1,...,"config":{...}}
//	{"now_ns":1000000,"event":{...},"effects":[{...},...]}
//	...
//	{"end":"the node has ended"}
//
// The last line is missing if the recording process was killed. As with events, there
// is one way to write each line, and no other is read.

// Header is a recording's first line: all that a fresh core needs, and where the
// recording comes from.
type Header struct {
	Muster  string // the version of the program that recorded
	Node    string // the node's name
	Started string // when its time began
	Config  Config // with all defaults filled in, so that the recording does not depend on them
}

const (
	recordingName    = "muster dispatcher"
	recordingVersion = 1
)

// HeaderPrefix is how every recording begins.
const HeaderPrefix = `{"recording":"` + recordingName + `","version":`

// maxLine is how many bytes a line may take. The writer ends a recording before a
// longer one, so that a reader need not keep more.
const maxLine = 8 << 20

type headerJSON struct {
	Recording string `json:"recording"`
	Version   int    `json:"version"`
	Muster    string `json:"muster"`
	Node      string `json:"node"`
	Started   string `json:"started"`
	Config    Config `json:"config"`
}

// AppendHeader appends a recording's first line.
func AppendHeader(b []byte, h Header) ([]byte, error) {
	for _, text := range h.names() {
		if !utf8.ValidString(text) {
			return b, fmt.Errorf("the name %q is not UTF-8, and a recording cannot hold it", text)
		}
	}
	text, err := json.Marshal(headerJSON{recordingName, recordingVersion, h.Muster, h.Node, h.Started, h.Config})
	if err != nil {
		return b, fmt.Errorf("encoding a recording's header: %w", err)
	}
	return endLine(b, append(b, text...))
}

// names lists the texts in a header that come from outside.
func (h *Header) names() []string {
	all := []string{h.Muster, h.Node, h.Started}
	for _, d := range h.Config.Devices {
		all = append(all, d.Name)
	}
	for user := range h.Config.SlotLimits {
		all = append(all, user)
	}
	return all
}

// endLine ends the line that was appended to before.
func endLine(before, b []byte) ([]byte, error) {
	if n := len(b) - len(before); n >= maxLine {
		return before, fmt.Errorf("a line of %d bytes is longer than a recording may have", n+1)
	}
	return append(b, '\n'), nil
}

func parseHeader(line []byte) (Header, error) {
	if !bytes.HasPrefix(line, []byte(HeaderPrefix)) {
		return Header{}, errors.New("this is no recording of a node's dispatcher: its first line does not say so")
	}
	var j headerJSON
	err := json.Unmarshal(line, &j)
	if j.Version != recordingVersion && j.Version != 0 {
		return Header{}, fmt.Errorf("the recording is of version %d, and this program reads version %d: use the muster that recorded it", j.Version, recordingVersion)
	}
	if err != nil {
		return Header{}, fmt.Errorf("the header: %w", err)
	}
	h := Header{j.Muster, j.Node, j.Started, j.Config}
	again, err := AppendHeader(nil, h)
	if err != nil {
		return Header{}, err
	}
	return h, sameBytes(line, again[:len(again)-1])
}

// Entry is one event of a recording, with what was decided.
type Entry struct {
	Now     Time
	Event   Event
	Effects []Effect
}

// AppendEntry appends the line of an event.
func AppendEntry(b []byte, e Entry) ([]byte, error) {
	line := append(b, `{"now_ns":`...)
	line = strconv.AppendInt(line, int64(e.Now), 10)
	line = append(line, `,"event":`...)
	line, err := AppendEvent(line, e.Event)
	if err != nil {
		return b, err
	}
	line = append(line, `,"effects":`...)
	if line, err = AppendEffects(line, e.Effects); err != nil {
		return b, err
	}
	return endLine(b, append(line, '}'))
}

// AppendEnd appends a recording's last line, which says why there are no more.
func AppendEnd(b []byte, why string) ([]byte, error) {
	text, err := json.Marshal(lineJSON{End: &why})
	if err != nil {
		return b, fmt.Errorf("encoding a recording's end: %w", err)
	}
	return endLine(b, append(b, text...))
}

// lineJSON is any line but the first.
type lineJSON struct {
	Now     *int64          `json:"now_ns,omitempty"`
	Event   json.RawMessage `json:"event,omitempty"`
	Effects json.RawMessage `json:"effects,omitempty"`
	End     *string         `json:"end,omitempty"`
}

// parseLine reads the line of an event, without its effects, or the last line.
func parseLine(line []byte) (e Entry, effects []byte, end *string, err error) {
	if len(line) == 0 || line[0] != '{' {
		return e, nil, nil, errors.New("not a JSON object")
	}
	var j lineJSON
	if err := json.Unmarshal(line, &j); err != nil {
		return e, nil, nil, err
	}
	switch {
	case j.End != nil:
		again, err := json.Marshal(lineJSON{End: j.End})
		if err != nil {
			return e, nil, nil, err
		}
		return e, nil, j.End, sameBytes(line, again)
	case j.Now == nil || j.Event == nil || j.Effects == nil:
		return e, nil, nil, errors.New(`an event has "now_ns", "event" and "effects"`)
	}
	e.Now = Time(*j.Now)
	e.Event, err = ParseEvent(j.Event)
	if err != nil {
		return e, nil, nil, fmt.Errorf("event: %w", err)
	}
	return e, j.Effects, nil, nil
}
