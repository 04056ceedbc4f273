package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"muster/model"
	"muster/node/vgpu"
	"muster/report"
)

const replayHelp = `Play a recording of muster node --record again, without a node: each event is told
to a fresh dispatcher, and what it decides is compared with what was recorded,
byte for byte. The same version decides the same; of another version this tells
where it decides otherwise.

The first difference is printed with its line, and the exit status is 1. What
comes after it is not played, since the dispatcher is no longer where it was.

FILE may be - for standard input. A recording may still be written, or may have
been cut off when its node was killed; then it is played as far as it goes.`

func newNodeReplay() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "replay [--json] FILE",
		Short:   "Play a recording of a node's decisions again",
		Long:    replayHelp,
		Example: "  muster node --record decisions.jsonl\n  muster node replay decisions.jsonl",
		Args:    oneArgument("a recording, or -"),
		RunE: func(c *cobra.Command, args []string) error {
			if args[0] == "-" {
				return replay(c, c.InOrStdin(), "standard input", asJSON)
			}
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			return replay(c, file, args[0], asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// replay plays a recording and prints what came of it.
func replay(c *cobra.Command, in io.Reader, name string, asJSON bool) error {
	r, err := vgpu.Replay(in)
	if err != nil {
		return unreadable(name, r, err)
	}
	if asJSON {
		err = printJSON(c, replayDocument(name, r))
	} else {
		err = writeReplayed(c.OutOrStdout(), r)
	}
	if err == nil && r.Difference != nil {
		err = fmt.Errorf("%s:%d: another decision is made now than was recorded", name, r.Difference.Line)
	}
	return err
}

// unreadable names the place where a recording cannot be read.
func unreadable(name string, r vgpu.Replayed, err error) error {
	var bad *vgpu.LineError
	if !errors.As(err, &bad) {
		return fmt.Errorf("%s: %w", name, err)
	}
	before := ""
	if r.Events > 0 {
		before = fmt.Sprintf(" (%s before that: the same decisions)", model.Plural(r.Events, "event"))
	}
	return fmt.Errorf("%s:%d: %w%s", name, bad.Line, bad.Err, before)
}

// replayJSON is what replay prints with --json.
type replayJSON struct {
	File       string          `json:"file"`
	Node       string          `json:"node"`
	Muster     string          `json:"muster"`
	Started    string          `json:"started"`
	Policy     string          `json:"policy"`
	Devices    int             `json:"devices"`
	Events     int             `json:"events"`
	Effects    int             `json:"effects"`
	Time       float64         `json:"time_s"` // from the node's start to the last event
	Same       bool            `json:"same"`
	End        string          `json:"end"` // "" if the recording has none
	Cut        bool            `json:"cut"` // in the middle of a line, which was left out
	Difference *differenceJSON `json:"difference"`
}

type differenceJSON struct {
	Line     int             `json:"line"`
	Time     float64         `json:"time_s"`
	Event    json.RawMessage `json:"event"`
	Recorded json.RawMessage `json:"recorded"`
	Decided  json.RawMessage `json:"decided"`
}

func replayDocument(name string, r vgpu.Replayed) replayJSON {
	doc := replayJSON{
		File: name, Node: r.Header.Node, Muster: r.Header.Muster, Started: r.Header.Started,
		Policy: r.Header.Config.Policy.String(), Devices: len(r.Header.Config.Devices),
		Events: r.Events, Effects: r.Effects, Time: r.Last.Seconds(), Same: r.Difference == nil, End: r.End, Cut: r.Cut,
	}
	if d := r.Difference; d != nil {
		doc.Difference = &differenceJSON{d.Line, d.Now.Seconds(), d.Event, d.Recorded, d.Decided}
	}
	return doc
}

func writeReplayed(w io.Writer, r vgpu.Replayed) error {
	h := r.Header
	fmt.Fprintf(w, "node %s from %s, %s, %s; recorded by %s\n",
		report.Printable(h.Node), report.Printable(h.Started), h.Config.Policy, model.Plural(len(h.Config.Devices), "device"), report.Printable(h.Muster))
	fmt.Fprintf(w, "%s in %s, %s", model.Plural(r.Events, "event"), r.Last.Round(time.Microsecond), model.Plural(r.Effects, "effect"))
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
