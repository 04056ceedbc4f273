// Package benchtest builds what tests of experiments run: Muster, its library, and the examples that
// make examples has built.
package benchtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"muster/exp/bench"
	chaosbuild "muster/internal/build"
	"muster/internal/need"
)

// built is the folder with the built files; "" until the first test asks for them.
var built string

// Main runs the tests of a package, and then removes the files built for them.
func Main(m *testing.M) {
	code := m.Run()
	if built != "" {
		os.RemoveAll(built)
	}
	os.Exit(code)
}

// build builds muster and its library, once per test process. The relative paths assume a package
// two folders below the repository's root, as those of experiments are.
var build = sync.OnceValue(func() error {
	dir, err := os.MkdirTemp("", "muster-exp-")
	if err != nil {
		return err
	}
	built = dir
	if err := os.Mkdir(filepath.Join(dir, "lib"), 0o755); err != nil {
		return err
	}
	if err := chaosbuild.Program("../..", filepath.Join(dir, "muster")); err != nil {
		return err
	}
	return chaosbuild.Library("../..", filepath.Join(dir, "lib", "libcuda.so.1"))
})

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}

// Tools returns the executables for a test. If one of the named example programs is missing, the
// test is skipped.
func Tools(t *testing.T, programs ...string) bench.Tools {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes")
	}
	folder, err := filepath.Abs("../../bin/examples")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		if _, err := os.Stat(filepath.Join(folder, p)); err == nil {
			continue
		}
		need.Missing(t, need.Examples, p, "is not built: run make examples first")
	}
	if err := build(); err != nil {
		t.Fatal(err)
	}
	found, err := bench.ToolsIn(filepath.Join(built, "muster"), []string{filepath.Join(built, "lib")}, folder, programs...)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// WithElements builds the library for programs with elements into the folder of tools.
func WithElements(t *testing.T, tools bench.Tools) {
	t.Helper()
	sources, err := filepath.Glob("../../ivm/c/*.c")
	if err == nil {
		flags := []string{"-std=gnu11", "-D_GNU_SOURCE", "-O1", "-fPIC", "-fvisibility=hidden", "-pthread", "-shared", "-Wl,-soname,libmuster-ivm.so", "-o", filepath.Join(tools.Lib, "libmuster-ivm.so")}
		err = command("gcc", append(append(flags, sources...), "-ldl")...)
	}
	if err != nil {
		t.Fatal(err)
	}
}
