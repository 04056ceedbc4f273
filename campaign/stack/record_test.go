package stack

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// replayed is what muster node replay --json says.
type replayed struct {
	Node       string
	Events     int
	Effects    int
	Same       bool
	End        string
	Cut        bool
	Difference *struct {
		Line              int
		Recorded, Decided json.RawMessage
	}
}

func (w *world) replay(path string, status int) (r replayed) {
	w.Helper()
	p := w.execute(made("muster"), "node", "replay", "--json", path)
	if got := p.wait(); got != status {
		w.Fatalf("replay ended with %d: %s", got, p.output)
	}
	if err := json.NewDecoder(strings.NewReader(p.output.String())).Decode(&r); err != nil {
		w.Fatalf("%v in %s", err, p.output)
	}
	return r
}

// A replay of a node's decisions for real programs gives the same decisions, byte for byte: for
// programs that share devices too small for them, that fault, and that are killed.
func TestRecordedDecisionsAreReplayed(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"fcfs", "sjf", "credit"} {
		t.Run(policy, func(t *testing.T) {
			if testing.Short() && policy != "credit" {
				t.Skip("one policy is enough in a hurry")
			}
			w := newWorld(t)
			path := filepath.Join(w.T.TempDir(), "decisions.jsonl")
			n := w.start("--devices", "soft:memory=8M,workers=1;soft:memory=4M,workers=1,speed=0.5", "--vgpus", "2", "--max-idle", "1ms", "--policy", policy, "--record", path)
			var programs []*program
			for i := range 8 {
				programs = append(programs, n.launch(made("small"), "hold", fmt.Sprint(100_000*(i+1)), "10"))
			}
			for _, p := range programs {
				p.says("holding")
				p.stdin.Close() // now it computes
			}
			faulty, killed := n.launch(made("small"), "fault"), n.launch(made("small"), "endless")
			faulty.says("told")
			faulty.right()
			killed.kill()
			for _, p := range programs {
				p.right()
			}
			n.idle()
			kernels := n.total("muster_kernels_total")
			n.stdin.Close()
			<-n.exited

			r := w.replay(path, 0)
			if !r.Same || r.Events < 60 || r.Effects < 15 || r.End != "the node has ended" || r.Cut || r.Difference != nil {
				t.Fatalf("%+v", r)
			}
			t.Logf("%d events, %d effects", r.Events, r.Effects)
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), `{"kind":"revoke",`) {
				t.Error("nobody had to leave: the programs did not share")
			}
			if got := kernelsIn(t, text); got != int(kernels) {
				t.Errorf("the node counts %v kernels, its recording has %d", kernels, got)
			}
			checkChangedLine(w, string(text))
		})
	}
}

// kernelsIn adds up what workers said that they ran.
func kernelsIn(t *testing.T, recording []byte) (sum int) {
	for line := range strings.Lines(string(recording)) {
		var entry struct {
			Event struct {
				Kind    string
				Kernels int
			}
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Event.Kind == "ran" {
			sum += entry.Event.Kernels
		}
	}
	return sum
}

// checkChangedLine changes one decision in the middle, and damages one line.
func checkChangedLine(w *world, text string) {
	w.Helper()
	lines := strings.SplitAfter(text, "\n")
	at := len(lines) / 2
	for !strings.Contains(lines[at], `"kind":"grant"`) {
		at++
	}
	whole := lines[at]
	path := filepath.Join(w.T.TempDir(), "changed.jsonl")
	write := func() {
		if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o600); err != nil {
			w.Fatal(err)
		}
	}
	lines[at] = strings.Replace(whole, `"kind":"grant","client":`, `"kind":"grant","client":1`, 1)
	write()
	if r := w.replay(path, 1); r.Same || r.Difference == nil || r.Difference.Line != at+1 || string(r.Difference.Recorded) == string(r.Difference.Decided) {
		w.Errorf("%+v, and line %d was changed", r, at+1)
	}
	lines[at] = whole[:len(whole)/2] + "\n"
	write()
	p := w.execute(made("muster"), "node", "replay", path)
	if status := p.wait(); status != 1 || !strings.Contains(p.output.String(), fmt.Sprintf("changed.jsonl:%d: ", at+1)) {
		w.Errorf("line %d was damaged: %d, %s", at+1, status, p.output)
	}
}

// A node that is killed leaves a recording up to the last second.
func TestRecordingOfAKilledNode(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the node writes each second")
	}
	w := newWorld(t)
	path := filepath.Join(w.T.TempDir(), "decisions.jsonl")
	n := w.start("--devices", "soft:memory=16M,workers=1", "--record", path)
	n.launch(made("small"), "recover").right()
	w.eventually("the program's end is in the file", func() bool {
		text, _ := os.ReadFile(path)
		return strings.Contains(string(text), `"kind":"detach"`)
	})
	n.kill()
	if r := w.replay(path, 0); !r.Same || r.End != "" || r.Events < 4 {
		t.Errorf("%+v", r)
	}
}
