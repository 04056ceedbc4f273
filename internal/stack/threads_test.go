package stack

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// A program with eight threads that use the GPU in every way, fork meanwhile,
// and exit while other threads are in calls.
func TestThreads(t *testing.T) {
	n := newWorld(t).start("--devices", "soft:memory=64M")
	rounds := 50
	if testing.Short() {
		rounds = 5
	}
	for i := range rounds {
		n.launch(made("threads"), []string{"fork", "leave"}[i%2]).right()
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
	n.idle()
}

// sanitized builds the library and the programs with AddressSanitizer.
var sanitized = sync.OnceValues(func() (string, error) {
	dir := made("asan")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	flags := []string{"-fsanitize=address", "-fno-omit-frame-pointer"}
	if err := buildShim(filepath.Join(dir, "libcuda.so.1"), flags...); err != nil {
		return "", err
	}
	return dir, errors.Join(compileAs(filepath.Join(dir, "threads"), "threads", dir, flags...), compileAs(filepath.Join(dir, "small"), "small", dir, flags...))
})

// The same under AddressSanitizer: the library touches no memory that is not
// its own. Without fork, in whose children AddressSanitizer's own locks may be
// held by nobody.
func TestAddressSanitizer(t *testing.T) {
	if testing.Short() {
		t.Skip("building with AddressSanitizer takes a while")
	}
	if out, err := exec.Command("gcc", "-print-file-name=libasan.so").Output(); err != nil || !filepath.IsAbs(string(out)) {
		t.Skip("this gcc has no AddressSanitizer")
	}
	dir, err := sanitized()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=64M")
	runs := [][]string{{"threads", "join"}, {"threads", "leave"}, {"small", "sums", "500000"}, {"small", "fault"}, {"small", "recover"}}
	for range 5 {
		runs = append(runs, []string{"threads", "join"}, []string{"threads", "leave"})
	}
	t.Setenv("MUSTER_LIB", dir)
	t.Setenv("ASAN_OPTIONS", "detect_leaks=0")
	for _, run := range runs {
		n.launch(filepath.Join(dir, run[0]), run[1:]...).right()
		if t.Failed() {
			t.FailNow()
		}
	}
	n.idle()
}
