// Package build makes what tests of whole programs need: muster and its library, as the
// sources are now.
package build

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Muster builds muster and, in lib/ beside it, the library that programs load. All users can read
// the folder, because workers run as users of their own.
func Muster(root, dir string) error {
	// The go command remembers results of tests, and what tests have looked at: all sources.
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && filepath.Base(path) == ".git" {
			return filepath.SkipDir
		}
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(
		os.Chmod(dir, 0o755), os.Mkdir(filepath.Join(dir, "lib"), 0o755),
		Library(root, filepath.Join(dir, "lib", "libcuda.so.1")),
		run("go", "build", "-buildvcs=false", "-o", filepath.Join(dir, "muster"), filepath.Join(root, "cmd/muster")))
}

// Library makes the library that programs load. Where MUSTER_TEST_LIBRARY says that make has
// just made it of these sources, that one is taken: half a dozen packages need it, and
// each would compile for ten seconds.
func Library(root, to string) error {
	if made := os.Getenv("MUSTER_TEST_LIBRARY"); made != "" {
		data, err := os.ReadFile(made)
		if err != nil {
			return fmt.Errorf("MUSTER_TEST_LIBRARY: %w: run make build, or unset it", err)
		}
		return os.WriteFile(to, data, 0o755)
	}
	sources, err := filepath.Glob(filepath.Join(root, "shim/*.c"))
	if err != nil {
		return err
	}
	return run("gcc", append([]string{"-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-pthread",
		"-shared", "-Wl,-soname,libcuda.so.1", "-Wl,-z,nodelete", "-o", to}, sources...)...)
}

// run runs a command that says nothing if all is well. The software GPU is made
// with vectors where the toolchain has them, as make build does.
func run(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Env = os.Environ()
	if exec.Command("env", "GOEXPERIMENT=simd", "go", "list", "simd/archsimd").Run() == nil {
		cmd.Env = append(cmd.Env, "GOEXPERIMENT=simd")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
