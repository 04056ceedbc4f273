// Package hostcopytest has what tests of host copies need: disks that are soon full.
package hostcopytest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"muster/internal/need"
)

// SmallDisk mounts a file system of so many bytes for a test. Only root can.
func SmallDisk(t testing.TB, size uint64) (dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		need.Missing(t, need.Root, "only root can mount a small disk")
	}
	dir = t.TempDir()
	if err := syscall.Mount("muster-test", dir, "tmpfs", 0, fmt.Sprintf("size=%d", size)); err != nil {
		need.Missing(t, need.Mount, "a small disk cannot be mounted here:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// Fill takes all that is left of a disk, and returns what gives it back.
func Fill(t testing.TB, dir string) (empty func()) {
	t.Helper()
	path := filepath.Join(dir, "full")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for page := make([]byte, 4096); err == nil; {
		_, err = f.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return func() { os.Remove(path) }
}

// Used is how many bytes of a disk are taken.
func Used(t testing.TB, dir string) uint64 {
	t.Helper()
	var disk syscall.Statfs_t
	if err := syscall.Statfs(dir, &disk); err != nil {
		t.Fatal(err)
	}
	return (disk.Blocks - disk.Bfree) * uint64(disk.Bsize)
}
