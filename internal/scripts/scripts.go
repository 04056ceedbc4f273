// Package scripts runs the scripts of pure cores in tests: text files in testdata with events and,
// below each, the recorded results. The current results are compared with the recorded ones; with
// -update they replace them. Read the difference, and commit it only if you can say why each line
// changed.
//
// The package knows no core: the caller plays the script.
package scripts

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Update says that the current results replace the recorded ones.
var Update = flag.Bool("update", false, "write what comes of the scripts now into testdata")

// Files lists the scripts of a package; the test fails if there are none.
func Files(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	return files
}

// Run plays each script, and compares it with the recording. play returns the script with its
// current results.
func Run(t *testing.T, play func(t *testing.T, text string) string) {
	t.Helper()
	for _, file := range Files(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, string(text))
			switch {
			case got == string(text):
			case *Update:
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			default:
				t.Errorf("%s: something else comes of it now (-update writes it down):\n%s", file, FirstDifference(string(text), got))
			}
		})
	}
}

// FirstDifference describes the first difference between two texts.
func FirstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range max(len(w), len(g)) {
		var a, b string
		if i < len(w) {
			a = w[i]
		}
		if i < len(g) {
			b = g[i]
		}
		if a != b {
			return fmt.Sprintf("line %d\nwant %s\ngot  %s", i+1, a, b)
		}
	}
	return ""
}

// Answered is an event of a script in which the answer follows below a line of dashes, up to an
// empty line.
type Answered struct{ Event, Answer string }

// Parse parses such a script. Lines that begin with # are comments.
func Parse(text string) []Answered {
	var all []Answered
	answer := false
	for line := range strings.Lines(text) {
		switch {
		case line == dashes:
			answer = true
		case line == "\n":
			answer = false
		case answer:
			all[len(all)-1].Answer += line
		case !strings.HasPrefix(line, "#"):
			all = append(all, Answered{Event: strings.TrimSpace(line)})
		}
	}
	return all
}

const dashes = "----\n"

// Answer is such a script with the current answers to its events.
func Answer(text string, answer func(words []string) string) string {
	var out strings.Builder
	skip := false
	for line := range strings.Lines(text) {
		switch {
		case skip:
			skip = line != "\n"
		case line == dashes:
			skip = true
		case line == "\n":
			if !strings.HasSuffix(out.String(), "\n\n") {
				out.WriteString(line)
			}
		case strings.HasPrefix(line, "#"):
			out.WriteString(line)
		default:
			event := strings.TrimSuffix(line, "\n")
			fmt.Fprintf(&out, "%s\n%s%s\n", event, dashes, answer(strings.Fields(event)))
		}
	}
	return strings.TrimRight(out.String(), "\n") + "\n"
}
