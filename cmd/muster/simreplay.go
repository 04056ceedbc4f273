package main

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"muster/model"
	"muster/policy/history"
	"muster/report"
)

const simReplayHelp = `Play a history again: what a cluster's scheduler was told, as muster sim --record
writes it, is told to a fresh one with the same policy, and every plan is compared
with the one that was recorded. The same version decides the same; of another
version this tells where it decides otherwise. The first difference is printed with its
line, and the exit status is 1.

With --policy another policy is asked at every step what it would do, on the
cluster as it really was then; after each step the history goes on as it was
recorded. That tells how the decisions differ, not what would have come of them:
for that, run the workload with muster sim.

FILE may be gzipped, and may be - for standard input. A history may still be
written, or may have been cut off; then it is played as far as it goes.`

// shownDifferences bounds the steps that a comparison tells of.
const shownDifferences = 10

func newSimReplay() *cobra.Command {
	var other string
	var asJSON bool
	c := &cobra.Command{
		Use:   "replay [--policy NAME[:key=value...]] [--json] FILE",
		Short: "Play a history of decisions again, or ask another policy",
		Long:  simReplayHelp,
		Example: `  muster sim --cluster small --workload small --policy easy --record history.jsonl
  muster sim replay history.jsonl
  muster sim replay history.jsonl --policy conservative`,
		Args: oneArgument("a history, or -"),
		RunE: func(c *cobra.Command, args []string) error {
			name, in := args[0], c.InOrStdin()
			if name == "-" {
				name = "standard input"
			} else {
				file, err := os.Open(name)
				if err != nil {
					return err
				}
				defer file.Close()
				in = file
			}
			in, err := unzipped(in)
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			if other != "" {
				return compareHistory(c, in, name, other, asJSON)
			}
			return replayHistory(c, in, name, asJSON)
		},
	}
	c.Flags().StringVar(&other, "policy", "", "ask another `policy` at every step")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	completeFlag(c, "policy", completePolicies)
	return c
}

// unzipped reads what may be gzipped.
func unzipped(in io.Reader) (io.Reader, error) {
	b := bufio.NewReader(in)
	if magic, err := b.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		return gzip.NewReader(b)
	}
	return b, nil
}

// historyJSON is what replay prints with --json.
type historyJSON struct {
	File       string              `json:"file"`
	Cluster    string              `json:"cluster"`
	Policy     string              `json:"policy"`
	Muster     string              `json:"muster"`
	Events     int                 `json:"events"`
	Plans      int                 `json:"plans"`
	Started    int                 `json:"started"`
	Time       float64             `json:"time_s"` // of the last plan
	Cut        bool                `json:"cut"`
	Same       bool                `json:"same"`
	Difference *planDifferenceJSON `json:"difference"`
}

type planDifferenceJSON struct {
	Line int             `json:"line"`
	Time float64         `json:"time_s"`
	Then json.RawMessage `json:"then"`
	Now  json.RawMessage `json:"now"`
}

func replayHistory(c *cobra.Command, in io.Reader, name string, asJSON bool) error {
	r, err := history.Replay(in, newPolicy)
	if err != nil {
		return badHistory(name, err)
	}
	if asJSON {
		doc := historyJSON{File: name, Cluster: r.Header.Cluster.Name, Policy: r.Header.Policy, Muster: r.Header.Muster,
			Events: r.Events, Plans: r.Steps, Started: r.Starts, Time: r.Last.Seconds(), Cut: r.Cut, Same: r.Difference == nil}
		if d := r.Difference; d != nil {
			doc.Difference = &planDifferenceJSON{d.Line, d.At.Seconds(), d.Then, d.Now}
		}
		err = printJSON(c, doc)
	} else {
		err = writeHistory(c.OutOrStdout(), &r)
	}
	if err == nil && r.Difference != nil {
		err = fmt.Errorf("%s:%d: another decision is made now than was recorded", name, r.Difference.Line)
	}
	return err
}

// badHistory names the place where a history cannot be read.
func badHistory(name string, err error) error {
	var bad *history.LineError
	if errors.As(err, &bad) {
		return fmt.Errorf("%s:%d: %w", name, bad.Line, bad.Err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

func writeHistory(w io.Writer, r *history.Result) error {
	fmt.Fprintf(w, "%s in %s under %s; jobs started: %d\n", model.Plural(r.Events, "event"), model.FormatDuration(r.Last), report.Printable(r.Header.Policy), r.Starts)
	if r.Cut {
		fmt.Fprintln(w, "it is cut off in the middle of a line: whoever wrote it was stopped, or still writes")
	}
	if d := r.Difference; d != nil {
		_, err := fmt.Fprintf(w, "the first difference is in line %d, at %s:\n  then  %s\n  now   %s\n", d.Line, model.FormatDuration(d.At), report.Printable(string(d.Then)), report.Printable(string(d.Now)))
		return err
	}
	_, err := fmt.Fprintf(w, "the same %s\n", model.Plural(r.Steps, "plan"))
	return err
}

// comparedJSON is what replay prints with --json and --policy.
type comparedJSON struct {
	File      string         `json:"file"`
	Recorded  string         `json:"recorded_policy"`
	Policy    string         `json:"policy"`
	Plans     int            `json:"plans"`
	Different int            `json:"different"`
	Started   int            `json:"started"`
	Same      int            `json:"same"`
	Elsewhere int            `json:"elsewhere"`
	Waits     int            `json:"waits"`
	Instead   int            `json:"instead"`
	Cut       bool           `json:"cut"`
	First     []stepDiffJSON `json:"first"`
}

type stepDiffJSON struct {
	Line      int      `json:"line"`
	Time      float64  `json:"time_s"`
	Waits     []string `json:"waits,omitempty"`
	Elsewhere []string `json:"elsewhere,omitempty"`
	Instead   []string `json:"instead,omitempty"`
}

func compareHistory(c *cobra.Command, in io.Reader, name, other string, asJSON bool) error {
	if _, err := newPolicy(other); err != nil {
		return usageErrorf("--policy: %v", err)
	}
	r, err := history.Compare(in, newPolicy, other, shownDifferences)
	if err != nil {
		return badHistory(name, err)
	}
	if !asJSON {
		return writeCompared(c.OutOrStdout(), &r, other)
	}
	doc := comparedJSON{File: name, Recorded: r.Header.Policy, Policy: other, Plans: r.Steps, Different: r.Different,
		Started: r.Starts, Same: r.Same, Elsewhere: r.Elsewhere, Waits: r.Waits, Instead: r.Instead, Cut: r.Cut, First: []stepDiffJSON{}}
	for _, d := range r.First {
		doc.First = append(doc.First, stepDiffJSON{d.Line, d.At.Seconds(), d.Waits, d.Elsewhere, d.Instead})
	}
	return printJSON(c, doc)
}

func writeCompared(w io.Writer, r *history.Comparison, other string) error {
	fmt.Fprintf(w, "Of %s by %s, %s would have decided %d otherwise.\n", model.Plural(r.Steps, "plan"), report.Printable(r.Header.Policy), report.Printable(other), r.Different)
	fmt.Fprintf(w, "Of %s started, %d would have started as they did, %d in another place, %d not then; %d would have started that did not.\n",
		model.Plural(r.Starts, "job"), r.Same, r.Elsewhere, r.Waits, r.Instead)
	for i, d := range r.First {
		if i == 0 {
			fmt.Fprintln(w, "\nThe first differences:")
		}
		var parts []string
		for _, p := range []struct {
			what string
			jobs []string
		}{{"not started", d.Waits}, {"in another place", d.Elsewhere}, {"started instead", d.Instead}} {
			if len(p.jobs) > 0 {
				parts = append(parts, p.what+": "+report.Printable(someOf(p.jobs)))
			}
		}
		fmt.Fprintf(w, "  line %d, at %s: %s\n", d.Line, model.FormatDuration(d.At), strings.Join(parts, "; "))
	}
	return nil
}

// someOf names the first of many jobs.
func someOf(jobs []string) string {
	const most = 5
	if extra := len(jobs) - most; extra > 0 {
		return strings.Join(jobs[:most], ", ") + fmt.Sprintf(" and %d more", extra)
	}
	return strings.Join(jobs, ", ")
}
