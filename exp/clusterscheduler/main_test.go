package clusterscheduler

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"muster/exp/bench"
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

// build makes muster and its library, as exp/noderuntime does.
var build = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "muster-clusterscheduler-")
	if err != nil {
		return err
	}
	built = dir
	if err := os.Mkdir(filepath.Join(dir, "lib"), 0o755); err != nil {
		return err
	}
	sources, err := filepath.Glob("../../shim/*.c")
	if err != nil {
		return err
	}
	shim := []string{"-std=gnu11", "-D_GNU_SOURCE", "-O1", "-fPIC", "-fvisibility=hidden", "-pthread", "-shared", "-Wl,-soname,libcuda.so.1", "-Wl,-z,nodelete",
		"-o", filepath.Join(dir, "lib", "libcuda.so.1")}
	if err := command("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "muster"), "../../cmd/muster"); err != nil {
		return err
	}
	return command("gcc", append(shim, sources...)...)
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
	folder, err := filepath.Abs("../../bin/examples")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "adfa")); err != nil {
		if os.Getenv("MUSTER_REQUIRE_EXAMPLES") != "" {
			t.Fatalf("the examples are not there: %v", err)
		}
		t.Skip("the examples are not built: run make examples first")
	}
	if err := build(); err != nil {
		t.Fatal(err)
	}
	found, err := bench.ToolsIn(filepath.Join(built, "muster"), []string{filepath.Join(built, "lib")}, folder, programs...)
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{ctx: t.Context(), tools: found, m: newMeasured([]uint64{1})}
	t.Cleanup(func() {
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
	return l
}
