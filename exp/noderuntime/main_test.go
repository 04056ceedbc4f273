package noderuntime

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	chaosbuild "muster/internal/chaos/build"
)

// built is the folder of what tests with processes need; empty until one asks.
var built string

func TestMain(m *testing.M) {
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

// build makes muster and its library, as internal/stack does.
var build = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "muster-noderuntime-")
	if err != nil {
		return err
	}
	built = dir
	if err := os.Mkdir(filepath.Join(dir, "lib"), 0o755); err != nil {
		return err
	}
	return together(2, func(i int) error {
		if i == 0 {
			return command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "muster"), "../../cmd/muster")
		}
		return chaosbuild.Library("../..", filepath.Join(dir, "lib", "libcuda.so.1"))
	})
})

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// workshop is a lab with real tools, or skips the test.
func workshop(t *testing.T) *lab {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	programs, err := filepath.Abs("../../bin/examples")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(programs, "mm")); err != nil {
		if os.Getenv("MUSTER_REQUIRE_EXAMPLES") != "" {
			t.Fatalf("the examples are not there: %v", err)
		}
		t.Skip("the examples are not built: run make examples first")
	}
	if err := build(); err != nil {
		t.Fatal(err)
	}
	found, err := toolsIn(filepath.Join(built, "muster"), []string{filepath.Join(built, "lib")}, programs)
	if err != nil {
		t.Fatal(err)
	}
	m := &measured{Version: savedVersion, Machine: "a test", Scale: maxScale, Seeds: []uint64{1}, Alone: map[string]alone{}, Outcomes: map[string][]outcome{}}
	return &lab{t.Context(), found, m, 0}
}

// withMPI skips a test where there is none.
func withMPI(t *testing.T) *lab {
	t.Helper()
	l := workshop(t)
	if l.tools.mpiexec == "" {
		if os.Getenv("MUSTER_REQUIRE_EXAMPLES") != "" {
			t.Fatal(noMPI)
		}
		t.Skip(noMPI)
	}
	return l
}
