// Package build builds what tests of whole programs need: muster and its library, from the current
// sources.
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
	// The go command caches test results together with the files that a test has looked at.
	// Visiting all sources makes the cache notice their changes.
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
		Program(root, filepath.Join(dir, "muster")))
}

// Program builds muster alone. If MUSTER_TEST_MUSTER names one that make has just built from these
// sources, it is copied instead: a dozen packages need it, and the go command links it anew for each.
func Program(root, to string) error {
	if copied, err := copyMade("MUSTER_TEST_MUSTER", to); copied || err != nil {
		return err
	}
	return run("go", "build", "-buildvcs=false", "-o", to, filepath.Join(root, "cmd/muster"))
}

// Library builds the library that programs load. If MUSTER_TEST_LIBRARY names one that make has
// just built from these sources, it is copied instead: half a dozen packages need the library, and
// each would compile for ten seconds.
func Library(root, to string) error {
	if copied, err := copyMade("MUSTER_TEST_LIBRARY", to); copied || err != nil {
		return err
	}
	sources, err := filepath.Glob(filepath.Join(root, "shim/*.c"))
	if err != nil {
		return err
	}
	return run("gcc", append([]string{"-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-pthread",
		"-shared", "-Wl,-soname,libcuda.so.1", "-Wl,-z,nodelete", "-o", to}, sources...)...)
}

// copyMade copies the file that an environment variable names, if there is one.
func copyMade(variable, to string) (copied bool, err error) {
	made := os.Getenv(variable)
	if made == "" {
		return false, nil
	}
	data, err := os.ReadFile(made)
	if err != nil {
		return false, fmt.Errorf("%s: %w: run make build, or unset it", variable, err)
	}
	return true, os.WriteFile(to, data, 0o755)
}

// run runs a command that is silent if it succeeds. The software GPU is built with vector
// instructions if the toolchain supports them, as in make build.
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
