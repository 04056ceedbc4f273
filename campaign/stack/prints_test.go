package stack

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

var prints = sync.OnceValue(func() error { return compile("prints") })

// apart runs the program whose kernels print and returns its standard output and its
// standard error.
func apart(t *testing.T, w *world, way []string, args ...string) (stdout, stderr string) {
	t.Helper()
	if err := prints(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out, complaints := filepath.Join(dir, "out"), filepath.Join(dir, "err")
	script := `exec "$@" >"` + out + `" 2>"` + complaints + `"`
	w.launchWith(way, "/bin/sh", append([]string{"-c", script, "sh", made("prints")}, args...)...).right()
	return read(t, out), read(t, complaints)
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const fourAssertions = "doubt.cu:42: void doubt(: block: [1,0,0], thread: [28,0,0] Assertion `gtid < limit` failed.\n" +
	"doubt.cu:42: void doubt(: block: [1,0,0], thread: [29,0,0] Assertion `gtid < limit` failed.\n" +
	"doubt.cu:42: void doubt(: block: [1,0,0], thread: [30,0,0] Assertion `gtid < limit` failed.\n" +
	"doubt.cu:42: void doubt(: block: [1,0,0], thread: [31,0,0] Assertion `gtid < limit` failed.\n"

// A failed assertion is reported like by NVIDIA's driver, on the program's standard error, and only
// once; the program gets CUDA_ERROR_ASSERT.
func TestAssertions(t *testing.T) {
	t.Parallel()
	for name, options := range ways(t) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			way := options(w)
			if out, complaints := apart(t, w, way, "fails"); out != "kernel 1\nkernel 2\n" || complaints != fourAssertions {
				t.Errorf("it printed %q and complained %q", out, complaints)
			}
			if out, complaints := apart(t, w, way, "anywhere"); out != "" || complaints != fourAssertions+"then that\n" {
				t.Errorf("it printed %q and complained %q", out, complaints)
			}
		})
	}
}

// What kernels print goes where the program's standard output is at the time.
func TestPrintsFollowStandardOutput(t *testing.T) {
	t.Parallel()
	for name, options := range ways(t) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			dir := t.TempDir()
			first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
			way := options(w)
			out, complaints := apart(t, w, way, "redirect", first, second)
			// C keeps what the program printed before the kernel's text, if that is no terminal.
			if want := "program 1\nkernel 1\nprogram 2\nkernel 5\n"; out != want || complaints != "" {
				t.Errorf("it printed %q, want %q; and complained %q", out, want, complaints)
			}
			if got, want := read(t, first), "kernel 3\nprogram 3\n"; got != want {
				t.Errorf("the first file has %q, want %q", got, want)
			}
			if got, want := read(t, second), "kernel 6\nprogram 6\n"; got != want {
				t.Errorf("the second file has %q, want %q", got, want)
			}
			apart(t, w, way, "launches")
			if out, _ := apart(t, w, way, "freeing"); out != "kernel 1\nkernel 2\nprogram 2\n" {
				t.Errorf("with a function in a stream it printed %q", out)
			}
		})
	}
}
