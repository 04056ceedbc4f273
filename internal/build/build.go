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
	"slices"
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

// Bin is the folder with what make has just built from these sources, or "". A dozen packages need muster,
// its library or the library's objects, and each would link and compile for ten seconds and more.
func Bin() string { return os.Getenv("MUSTER_TEST_BIN") }

// Program builds muster alone, or copies it from Bin.
func Program(root, to string) error {
	if Bin() != "" {
		return copyMade("muster", to)
	}
	return run("go", "build", "-buildvcs=false", "-o", to, filepath.Join(root, "cmd/muster"))
}

// Generated makes the C sources that are generated, which everything in C that uses CUDA includes. They
// are there if Bin is.
func Generated(root string) error {
	if Bin() != "" {
		return nil
	}
	return run("make", "-C", root, "--no-print-directory", "generated")
}

// Library builds the library that programs load, or copies it from Bin.
func Library(root, to string) error {
	if Bin() != "" {
		return copyMade("lib/libcuda.so.1", to)
	}
	return ChangedLibrary(root, to)
}

// ChangedLibrary builds the library with more arguments for the linker and sources of a test's own. They are
// linked to the objects in Bin, if there is one.
func ChangedLibrary(root, to string, args ...string) error {
	parts, err := Objects(root)
	if err == nil {
		err = Generated(root)
	}
	if err == nil && len(parts) == 0 {
		parts, err = filepath.Glob(filepath.Join(root, "shim/lib/*/*.c"))
	}
	if err != nil {
		return err
	}
	return run("gcc", slices.Concat([]string{"-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-pthread",
		"-shared", "-Wl,-soname,libcuda.so.1", "-Wl,-z,nodelete", "-o", to}, args, parts)...)
}

// Objects are the objects of the library's sources in Bin, or none if there is no Bin.
func Objects(root string) (objects []string, err error) {
	if Bin() == "" {
		return nil, nil
	}
	sources, err := filepath.Glob(filepath.Join(root, "shim/lib/*/*.c"))
	for _, source := range sources { // Bin may have objects of older sources, too
		layer := filepath.Base(filepath.Dir(source))
		objects = append(objects, filepath.Join(Bin(), "obj/shim/lib", layer, strings.TrimSuffix(filepath.Base(source), ".c")+".o"))
	}
	return objects, err
}

// Monitor builds the library by which tools see devices, or copies it from Bin.
func Monitor(root, to string) error {
	if Bin() != "" {
		return copyMade("lib/libnvidia-ml.so.1", to)
	}
	sources, err := filepath.Glob(filepath.Join(root, "nvml/*.c"))
	if err != nil {
		return err
	}
	return run("gcc", append([]string{"-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-fPIC", "-fvisibility=hidden", "-pthread",
		"-shared", "-Wl,-soname,libnvidia-ml.so.1", "-o", to}, sources...)...)
}

// Collectives builds the library with MPI's collective operations, or copies it from Bin.
func Collectives(root, to string) error {
	if Bin() != "" {
		return copyMade("lib/libmuster-mpi.so", to)
	}
	return run("gcc", "-std=gnu11", "-O2", "-shared", "-fPIC", "-o", to, filepath.Join(root, "shim/mpi/collectives.c"), "-ldl")
}

// copyMade copies a file of Bin.
func copyMade(name, to string) error {
	data, err := os.ReadFile(filepath.Join(Bin(), name))
	if err != nil {
		return fmt.Errorf("MUSTER_TEST_BIN: %w: run make build, or unset it", err)
	}
	return os.WriteFile(to, data, 0o755)
}

// run runs a command that is silent if it succeeds.
func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
