// Package scripts runs the scripts of pure cores in tests: text files in testdata
// that say what happened and, below it, what came of that. What comes of it now is
// compared with what is recorded; with -update it is recorded anew. Read the
// difference, and commit it only if you can say why each line changed.
//
// The package knows no core: how a script is played is the caller's.
package scripts

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Update says that recorded results are to be written anew.
var Update = flag.Bool("update", false, "write what comes of the scripts now into testdata")

// Files returns the scripts of a package; it fails if there are none.
func Files(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	return files
}

// Run plays each script, which gives it as it would be recorded now.
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

// FirstDifference says where two texts differ first.
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

// Answered is an event of a script in which answers stand below a line of dashes,
// up to an empty line.
type Answered struct{ Event, Answer string }

// Parse takes such a script apart. Lines that begin with # are comments.
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

// Answer returns such a script with the answers that its events have now.
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
