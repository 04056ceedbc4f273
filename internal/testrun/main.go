// Command testrun runs several `go test` commands one after another, shows a line for each package and
// the output of what failed, and ends with a summary: packages, tests, seconds, and which tests ran in
// none of the commands, with the reason.
//
//	testrun TITLE [NAME=VALUE...] go test ARGUMENTS... [--- TITLE ...]
//
// All commands run even if one fails. testrun exits with 1 if any of them failed, or if they ran no test.
// It knows the output of `go test -json`, and nothing of Muster.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

func main() {
	phases, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	began := time.Now()
	all := newResults(os.Stdout)
	for _, p := range phases {
		fmt.Fprintf(os.Stdout, "  test %s\n", p.title)
		if err := p.run(all); err != nil {
			all.broken = append(all.broken, fmt.Sprintf("%s: %v", p.title, err))
		}
	}
	if !all.summarize(time.Since(began)) {
		os.Exit(1)
	}
}

// A phase is one go test command.
type phase struct {
	title       string
	environment []string
	command     []string
}

func parse(args []string) ([]phase, error) {
	var phases []phase
	for len(args) > 0 {
		end := slices.Index(args, "---")
		if end < 0 {
			end = len(args)
		}
		one := args[:end]
		args = args[min(end+1, len(args)):]
		if len(one) == 0 {
			continue // make leaves out phases that this machine cannot run
		}
		p := phase{title: one[0]}
		for one = one[1:]; len(one) > 0 && strings.Contains(one[0], "="); one = one[1:] {
			p.environment = append(p.environment, one[0])
		}
		if len(one) < 2 || one[1] != "test" {
			return nil, fmt.Errorf("usage: testrun TITLE [NAME=VALUE...] go test ARGUMENTS... [--- TITLE ...]; after %q comes %q", p.title, one)
		}
		p.command = slices.Insert(slices.Clone(one), 2, "-json")
		phases = append(phases, p)
	}
	return phases, nil
}

func (p phase) run(all *results) error {
	cmd := exec.Command(p.command[0], p.command[1:]...)
	cmd.Env = append(os.Environ(), p.environment...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := all.read(out)
	if _, err := io.Copy(io.Discard, out); readErr == nil {
		readErr = err
	}
	if err := cmd.Wait(); err != nil {
		return err
	}
	return readErr
}

// event is a line of go test -json; see `go doc test2json`.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// test identifies one test of a package, without its subtests.
type test struct{ pkg, name string }

type results struct {
	out      io.Writer
	outcomes map[test]string // pass, fail or skip; pass and fail outweigh skip
	reasons  map[test]string // why a test was skipped, the last time
	output   map[test]*strings.Builder
	seconds  map[string]float64
	counts   map[string]int // tests that the package ran in this phase
	broken   []string
}

func newResults(out io.Writer) *results {
	return &results{out: out, outcomes: map[test]string{}, reasons: map[test]string{}, output: map[test]*strings.Builder{},
		seconds: map[string]float64{}, counts: map[string]int{}}
}

func (r *results) read(from io.Reader) error {
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(r.out, "%s", line) // what the go command itself says
			} else {
				r.add(e)
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *results) add(e event) {
	top, _, isSub := strings.Cut(e.Test, "/")
	id := test{e.Package, top}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		if r.output[id] == nil {
			r.output[id] = &strings.Builder{}
		}
		r.output[id].WriteString(e.Output)
	case "pass", "fail", "skip":
		if isSub {
			return
		}
		if e.Test == "" {
			r.endPackage(e)
			return
		}
		r.endTest(id, e.Action)
	}
}

func (r *results) endTest(id test, outcome string) {
	text := r.output[id]
	delete(r.output, id)
	r.counts[id.pkg]++
	if outcome == "skip" {
		r.counts[id.pkg]--
		if text != nil {
			r.reasons[id] = skipReason(text.String())
		}
	}
	if outcome == "fail" && text != nil {
		fmt.Fprint(r.out, text.String())
		if said := complaints(text.String()); strings.Count(text.String(), "\n") > longOutput {
			fmt.Fprintf(r.out, "of all that, what %s said itself:\n%s", id.name, said)
		}
	}
	if before := r.outcomes[id]; before == "" || before == "skip" || outcome == "fail" {
		r.outcomes[id] = outcome
	}
}

// longOutput is from how many lines on a test's output hides what is wrong.
const longOutput = 30

// complaints returns the first lines of what a test has logged, without what it quotes over several
// lines, such as the log of a process.
func complaints(output string) string {
	var b strings.Builder
	n := 0
	for line := range strings.Lines(output) {
		file, _, found := strings.Cut(strings.TrimSpace(line), ":")
		if found && strings.HasSuffix(file, ".go") && line[0] == ' ' && n < longOutput {
			n++
			b.WriteString(shortened(line))
		}
	}
	return b.String()
}

func shortened(line string) string {
	const most = 400
	if len(line) > most {
		return line[:most] + " ...\n"
	}
	return line
}

// endPackage prints a package's line. What tests had printed that never ended, as when the package's
// process died, is in output still.
func (r *results) endPackage(e event) {
	r.seconds[e.Package] += e.Elapsed
	if e.Action == "fail" {
		for _, id := range slices.SortedFunc(maps.Keys(r.output), func(a, b test) int { return cmp.Compare(a.name, b.name) }) {
			text := r.output[id].String()
			if id.pkg == e.Package && (id.name != "" || r.counts[e.Package] == 0 || !strings.HasPrefix(text, "FAIL")) {
				fmt.Fprint(r.out, text)
			}
		}
		r.broken = append(r.broken, e.Package)
	}
	for id := range r.output {
		if id.pkg == e.Package {
			delete(r.output, id)
		}
	}
	word := map[string]string{"pass": "ok", "fail": "FAIL", "skip": "-"}[e.Action]
	if r.counts[e.Package] > 0 || e.Action == "fail" {
		fmt.Fprintf(r.out, "  %-4s %7.1f s %5d tests  %s\n", word, e.Elapsed, r.counts[e.Package], e.Package)
	}
	delete(r.counts, e.Package)
}

// skipReason takes the reason from the output of a skipped test:
//
//	=== RUN   TestX
//	    x_test.go:12: needs root: run the test as root
//	--- SKIP: TestX (0.00s)
func skipReason(output string) string {
	reason := ""
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "    ") {
			if _, text, found := strings.Cut(strings.TrimSpace(line), ".go:"); found {
				if _, text, found = strings.Cut(text, ": "); found {
					reason = text
				}
			}
		}
	}
	return reason
}

// summarize prints the summary and says whether everything passed.
func (r *results) summarize(took time.Duration) bool {
	passed, failed := 0, []string{}
	skipped := map[string][]string{}
	for id, outcome := range r.outcomes {
		switch outcome {
		case "pass":
			passed++
		case "fail":
			failed = append(failed, id.pkg+" "+id.name)
		case "skip":
			skipped[r.reasons[id]] = append(skipped[r.reasons[id]], id.pkg+" "+id.name)
		}
	}
	fmt.Fprintf(r.out, "\n%d packages, %d tests, %.0f s. The longest, in seconds:\n", len(r.seconds), len(r.outcomes), took.Seconds())
	r.longest(12)
	skips := 0
	for _, reason := range slices.Sorted(maps.Keys(skipped)) {
		if skips == 0 {
			fmt.Fprintln(r.out, "Not tested:")
		}
		slices.Sort(skipped[reason])
		skips += len(skipped[reason])
		fmt.Fprintf(r.out, "  %s\n    %s\n", reason, strings.Join(skipped[reason], "\n    "))
	}
	slices.Sort(failed)
	for _, name := range failed {
		fmt.Fprintf(r.out, "FAILED %s\n", name)
	}
	for _, what := range r.broken {
		fmt.Fprintf(r.out, "FAILED %s\n", what)
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", passed, len(failed), skips)
	return len(failed) == 0 && len(r.broken) == 0 && passed > 0
}

func (r *results) longest(n int) {
	packages := slices.Sorted(maps.Keys(r.seconds))
	slices.SortStableFunc(packages, func(a, b string) int { return int(1000 * (r.seconds[b] - r.seconds[a])) })
	for _, p := range packages[:min(n, len(packages))] {
		fmt.Fprintf(r.out, "  %7.1f  %s\n", r.seconds[p], p)
	}
}
