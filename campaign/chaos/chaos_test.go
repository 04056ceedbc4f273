package chaos

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/internal/build"
	"muster/internal/need"
)

// built is what campaigns hurt: muster and its library, made once, and the examples.
type built struct{ muster, examples string }

var buildDir string // of all tests

func TestMain(m *testing.M) {
	os.Exit(func() int {
		defer func() { os.RemoveAll(buildDir) }()
		return m.Run()
	}())
}

// makeAll makes muster as it is now, or skips the test where there are no examples.
func makeAll(t *testing.T) built {
	t.Helper()
	if testing.Short() {
		t.Skip("campaigns take longer than a few seconds")
	}
	examples, err := filepath.Abs("../../bin/examples")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(examples, "weave")); err != nil {
		need.Missing(t, need.Examples, "run make examples first:", err)
	}
	if err := buildOnce(); err != nil {
		t.Fatal(err)
	}
	return built{filepath.Join(buildDir, "muster"), examples}
}

var buildOnce = sync.OnceValue(func() (err error) {
	if buildDir, err = os.MkdirTemp("", "muster-chaos-build-"); err != nil {
		return err
	}
	return build.Muster("../..", buildDir)
})

func (b built) options(t *testing.T) Options {
	t.Helper()
	// Folders of tests are closed to workers of other users.
	dir, err := os.MkdirTemp("", "muster-chaos-test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what was wrong is kept in %s", dir)
			return
		}
		os.RemoveAll(dir)
	})
	return Options{Muster: b.muster, Examples: b.examples, Dir: dir, Seed: 1, Programs: 5, Expect: Survive, Patience: 4 * time.Minute, Settle: 2 * time.Minute, Kinds: Kinds}
}

// The beginning of the campaign that make soak plays: programs survive all that they are
// promised to survive (docs/chaos.md).
func TestCampaign(t *testing.T) {
	o := makeAll(t).options(t)
	o.Faults, o.Share = 25, 25
	playCampaign(t, o)
}

// On a node with recover: off, exactly the programs whose worker or device is lost get an error.
func TestCampaignWithoutRecovery(t *testing.T) {
	o := makeAll(t).options(t)
	o.Faults, o.Share, o.Expect = 16, 8, Fail
	o.Kinds = []Kind{WorkerKill, WorkerStop, WorkerPause, ClientKill, ClientPause, DaemonPause, LaunchFail, LaunchLost, CopyLost, MapFail, DiskFull}
	playCampaign(t, o)
}

func playCampaign(t *testing.T, o Options) {
	t.Helper()
	r, err := Run(o)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range r.Violations {
		t.Errorf("episode %d: %s\nplay it again: %s\n%s\n%s", v.Episode, strings.Join(v.What, "\n"), v.Again, v.Account, v.Logs)
	}
	t.Logf("%s, left out %v", r.Line(), r.Skipped)
	if len(r.Violations) == 0 && (r.Injected < o.Faults*9/10 || r.Ends[string(right)] < o.Faults/10) {
		t.Errorf("%d of %d faults and %d right results: that proves little", r.Injected, o.Faults, r.Ends[string(right)])
	}
}

// A check that finds nothing proves nothing. Here each check must find what was sabotaged.
func TestSabotageIsFound(t *testing.T) {
	b := makeAll(t)
	for kind, want := range map[Kind]string{
		SabotageResult:     "it ended with 1",
		SabotageKill:       "it was killed, and by no fault",
		SabotageHang:       "does not end within",
		SabotageProcess:    "processes are left of programs: process",
		SabotageFile:       "files are left in the swap area",
		SabotageDescriptor: "the daemon has more than in the beginning: ",
	} {
		t.Run(string(kind), func(t *testing.T) {
			o := b.options(t)
			o.Kinds, o.Faults, o.Share, o.Programs = []Kind{kind}, 2, 2, 2
			o.Settle = 5 * time.Second // short, because the checks wait for all of it
			switch kind {
			case SabotageResult:
				o.Faults, o.Share = 6, 6
			case SabotageHang:
				o.Patience = 10 * time.Second
			case SabotageFile:
				for drawNode(o.Seed, 1, o.Kinds, false).swap != "folder" {
					o.Seed++
				}
			}
			r, err := Run(o)
			// The bit that was turned may be one that its program does not look at.
			for tries := 1; err == nil && kind == SabotageResult && len(r.Violations) == 0 && tries < 5; tries++ {
				o.Seed++
				r, err = Run(o)
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Violations) != 1 || !strings.Contains(strings.Join(r.Violations[0].What, "\n"), want) {
				t.Fatalf("%d violations, want one with %q: %+v", len(r.Violations), want, r.Violations)
			}
			v := r.Violations[0]
			if _, err := os.Stat(filepath.Join(v.Dir, "history")); err != nil || !strings.Contains(v.Again, fmt.Sprintf("--seed %d ", o.Seed)) || !strings.Contains(v.Again, "--episode 1") {
				t.Errorf("it cannot be looked at or played again: %v, %q", err, v.Again)
			}
		})
	}
}
