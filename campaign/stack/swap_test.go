package stack

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"muster/internal/need"
)

// smallDisk mounts a file system of size bytes, which requires root.
func (w *world) smallDisk(size int) (dir string) {
	w.Helper()
	if os.Geteuid() != 0 {
		need.Missing(w, need.Root, "only root can mount a small disk")
	}
	dir = w.T.TempDir()
	if err := syscall.Mount("muster-test", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=755", size)); err != nil {
		need.Missing(w, need.Mount, "a small disk cannot be mounted here:", err)
	}
	w.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			w.Error(err)
		}
	})
	return dir
}

// Another process fills the disk of the swap area. A program that then asks for memory is told that
// there is none, and one that already has some continues to compute with it.
func TestSwapDiskIsFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := w.smallDisk(32 << 20)
	n := w.start("--devices", "soft:memory=8M", "--vgpus", "1", "--max-idle", "1ms", "--swap", "32M", "--swap-dir", dir)
	kept := n.launch(made("small"), "keep", "1000000") // 4 MB
	kept.says("keeping")
	others := filepath.Join(dir, "others")
	if err := os.WriteFile(others, make([]byte, 32<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	refused := n.launch(made("small"), "sums", "2000000")
	if code := refused.wait(); code != 1 {
		t.Errorf("it ended with %d", code)
	}
	if got := refused.output.String(); !strings.Contains(got, "CUDA_ERROR_OUT_OF_MEMORY") || strings.Contains(got, "worker has ended") {
		t.Errorf("it said %q", got)
	}
	one(t, refused.output.String(), `an allocation of 7.6 MiB: the disk of the swap area `+regexp.QuoteMeta(dir)+` is full, 7.6 MiB are wanted and .* of .* are free \(.*\): ask the administrator to make room there, or to lower the node's swap.size`)
	n.eventually("the log says that the disk is full", func() bool { return strings.Contains(n.log.String(), "the disk of the swap area "+dir+" is full") })
	kept.right()
	if err := os.Remove(others); err != nil {
		t.Fatal(err)
	}
	n.launch(made("small"), "sums", "2000000").right()
	n.idle()
}
