package stack

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/need"
)

// A program with eight threads uses the GPU in every way, forks meanwhile, and exits while other
// threads are in calls.
func TestThreads(t *testing.T) {
	t.Parallel()
	n := newWorld(t).start("--devices", "soft:memory=64M")
	for i := range need.Rounds(6, 40) {
		n.launch(made("threads"), []string{"fork", "leave"}[i%2]).right()
		if t.Failed() {
			t.Fatalf("in round %d", i)
		}
	}
	n.idle()
}

// buildShim compiles the library in another way than build.Library does.
func buildShim(to string, flags ...string) error {
	sources, err := filepath.Glob("../../shim/lib/*/*.c")
	if err != nil {
		return err
	}
	args := []string{"-std=gnu11", "-D_GNU_SOURCE", "-O0", "-g", "-fPIC", "-fvisibility=hidden", "-pthread",
		"-shared", "-Wl,-soname,libcuda.so.1", "-Wl,-z,nodelete", "-o", to}
	return command("gcc", append(append(args, flags...), sources...)...)
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

// The same under AddressSanitizer: the library accesses only its own memory. This runs without
// fork, because in a child AddressSanitizer's own locks may be held by threads that no longer
// exist.
func TestAddressSanitizer(t *testing.T) {
	need.IsSoak(t) // shim/shimtest runs the library with AddressSanitizer, too, though not with a node
	if out, err := exec.Command("gcc", "-print-file-name=libasan.so").Output(); err != nil || !filepath.IsAbs(string(out)) {
		need.Missing(t, need.Compiler, "this gcc has no AddressSanitizer")
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

// Two threads are waiting when a program loses its device, or its kernel faults. One of them prints
// the reason, and no call of either fails before that: the program may exit at the first failure,
// and the reason would be lost.
func TestReasonComesBeforeFailures(t *testing.T) {
	t.Parallel()
	for what, want := range map[string]string{"ended": "muster: the node has been shut down", "fault": "muster: kernel add: illegal address 0x10"} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			n := w.start("--devices", "soft:memory=64M")
			// The pipe is full, so the thread that prints to standard error blocks until the test
			// reads.
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer read.Close()
			full := fillPipe(t, write)
			cmd := exec.Command(made("muster"), "run", "--socket", n.socket, "--", made("threads"), what)
			said := &notebook{}
			cmd.Env, cmd.Stdout, cmd.Stderr = w.environment(), said, write
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			write.Close()
			w.eventually("the program waits", func() bool { return strings.Contains(said.String(), "waiting") })
			if what == "ended" {
				n.stdin.Close()
			}
			// Only waiting can show that nothing happens.
			for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
				if strings.Contains(said.String(), "failed") {
					t.Error("a call failed before the reason was printed")
					break
				}
			}
			text, err := io.ReadAll(read)
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil || strings.Count(said.String(), "failed") != 2 {
				t.Errorf("it ended with %v and said %q", err, said)
			}
			if got := string(text[full:]); !strings.HasPrefix(got, want) || strings.Count(got, "\n") != 1 {
				t.Errorf("it said %q, want one line that begins with %q", got, want)
			}
		})
	}
}

// fillPipe writes to a pipe until it takes no more, and says how much that was.
func fillPipe(t *testing.T, pipe *os.File) (full int) {
	t.Helper()
	fd := int(pipe.Fd()) // it waits from now on
	if err := syscall.SetNonblock(fd, true); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := syscall.Write(fd, make([]byte, 4096))
		if err != nil {
			break
		}
		full += n
	}
	if err := syscall.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	return full
}
