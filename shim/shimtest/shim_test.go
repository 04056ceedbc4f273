// Package shimtest builds the library in C with sanitizers and runs its tests in C
// against a daemon that is a fake. It knows how to build and run, and not what is
// tested.
package shimtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	chaosbuild "muster/internal/build"
	"muster/internal/need"
)

// theLibrary stands for all sources of the library among the files of a program.
const theLibrary = "*.c"

// objects are those of the library for each choice of sanitizers: without any, those that make has made,
// if there are all; otherwise they are compiled, once. Without optimisation that takes half the time, and
// sanitizers see all that the source says.
var objects = map[string]func() ([]string, error){
	"":                  sync.OnceValues(madeOrCompiled),
	"address,undefined": sync.OnceValues(func() ([]string, error) { return compileLibrary("address,undefined") }),
	"thread":            sync.OnceValues(func() ([]string, error) { return compileLibrary("thread") }),
}

var scratch string // of all tests

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if scratch, err = os.MkdirTemp("", "muster-shimtest-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(scratch)
		if err := chaosbuild.Generated("../.."); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return m.Run()
	}())
}

// madeOrCompiled returns the objects that make has just built, or compiles the sources.
func madeOrCompiled() ([]string, error) {
	if made, err := chaosbuild.Objects("../.."); len(made) > 0 || err != nil {
		return made, err
	}
	return compileLibrary("")
}

// compileLibrary makes one object of the library's sources. Each of them includes headers of its layer, which takes
// longer than what follows: so it is compiled ahead.
func compileLibrary(sanitizers string) ([]string, error) {
	files, err := filepath.Glob("../lib/*/*.c")
	if err != nil {
		return nil, err
	}
	original, err := filepath.Abs("../lib/graph/graph.h")
	if err != nil {
		return nil, err
	}
	header := filepath.Join(scratch, "ahead-"+sanitizers+".h") // gcc takes the form beside it if it can
	if err := os.WriteFile(header, []byte("#include \""+original+"\"\n"), 0o600); err != nil {
		return nil, err
	}
	if err := gcc(sanitizers, "-O0", "-x", "c-header", "-o", header+".gch", header); err != nil {
		return nil, err
	}
	out := filepath.Join(scratch, "library-"+sanitizers+".o")
	return []string{out}, gcc(sanitizers, append([]string{"-O0", "-include", header, "-r", "-o", out}, files...)...)
}

// gcc compiles with as much of debugging information as a sanitizer prints: functions and lines.
func gcc(sanitizers string, more ...string) error {
	args := []string{"-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-g1", "-pthread"}
	if sanitizers != "" {
		args = append(args, "-fsanitize="+sanitizers, "-fno-omit-frame-pointer", "-fno-sanitize-recover=all")
	}
	if text, err := exec.Command("gcc", append(args, more...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("gcc: %w\n%s", err, text)
	}
	return nil
}

// build compiles C files of shim/ into a program, once.
func build(t *testing.T, name, sanitizers string, patterns ...string) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		need.Missing(t, need.Compiler, "there is no gcc")
	}
	out := filepath.Join(scratch, name+"-"+sanitizers)
	if _, err := os.Stat(out); err == nil {
		return out
	}
	args := []string{"-O1", "-o", out}
	if slices.Contains(patterns, theLibrary) {
		args[0] = "-O0"
	}
	for _, p := range patterns {
		files, err := filepath.Glob(filepath.Join("..", p))
		if p == theLibrary {
			files, err = objects[sanitizers]()
		}
		if err != nil || len(files) == 0 {
			t.Fatalf("no files %s: %v", p, err)
		}
		args = append(args, files...)
	}
	if err := gcc(sanitizers, args...); err != nil {
		t.Fatal(err)
	}
	return out
}

// fake starts the fake daemon and returns its socket.
func fake(t *testing.T, program string, mode ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "shim") // the name of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	socket := filepath.Join(dir, "s")
	command := exec.Command(program, append([]string{socket}, mode...)...)
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	complaints := &bytes.Buffer{}
	command.Stderr = complaints
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		command.Process.Kill()
		command.WaitDelay = time.Second // its children may have the pipe open
		command.Wait()
		if complaints.Len() > 0 {
			t.Errorf("the fake daemon complained: %s", complaints)
		}
	})
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "listening\n" {
		t.Fatalf("the fake daemon said %q: %v", line, err)
	}
	return socket
}

// run runs a test program, and returns what it printed.
func run(t *testing.T, program, socket string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return runWith(t, "", program, socket, args...)
}

// runWith runs it with one more variable in its environment.
func runWith(t *testing.T, variable, program, socket string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return runInput(t, variable, "", program, socket, args...)
}

// runInput runs it with something to read as well.
func runInput(t *testing.T, variable, input, program, socket string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	limit, stop := context.WithTimeout(context.Background(), 4*time.Minute)
	defer stop()
	command := exec.CommandContext(limit, program, args...)
	// Where a process is cut off in the middle, everything is a leak.
	leaks := "1"
	if len(args) == 1 && (args[0] == "fork" || args[0] == "exit") {
		leaks = "0"
	}
	command.Env = append(os.Environ(), "MUSTER_SOCKET="+socket, "ASAN_OPTIONS=detect_leaks="+leaks, "MUSTER_TRACE=1", variable)
	command.Stdin = strings.NewReader(input)
	var out, complaints bytes.Buffer
	command.Stdout, command.Stderr = &out, &complaints
	err = command.Run()
	return out.String(), complaints.String(), err
}

func TestDigest(t *testing.T) {
	program := build(t, "md2", "address,undefined", "test/md2_test.c", "lib/basis/md2.c")
	if _, stderr, err := run(t, program, ""); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
}

// The table of taken addresses does what a plain list does, and does not slow down
// with the number of a program's allocations.
func TestRanges(t *testing.T) {
	program := build(t, "ranges", "address,undefined", "test/ranges_test.c", "lib/basis/ranges.c")
	for seed := 1; seed <= need.Rounds(3, 8); seed++ {
		if _, stderr, err := run(t, program, "", "random", fmt.Sprint(seed)); err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, stderr)
		}
	}
	if _, stderr, err := run(t, build(t, "ranges", "", "test/ranges_test.c", "lib/basis/ranges.c"), "", "growth"); err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
}

func TestWideCopies(t *testing.T) {
	for sanitizer, what := range map[string]string{"address,undefined": "fork", "thread": "threads", "": "faults"} {
		if _, stderr, err := run(t, build(t, "wide", sanitizer, "test/wide_test.c", "lib/basis/wide.c"), "", what); err != nil {
			t.Fatalf("%s: %v\n%s", sanitizer, err, stderr)
		}
	}
}

// Records that have no room do not end a program.
func TestNoRoomForRecords(t *testing.T) {
	program := build(t, "timeline", "", "test/timeline_test.c", theLibrary)
	for _, name := range []string{"full", "limited", "forked"} {
		t.Run(name, func(t *testing.T) {
			_, stderr, err := run(t, program, "", name, t.TempDir())
			var ended *exec.ExitError
			if errors.As(err, &ended) && ended.ExitCode() == 77 {
				need.Missing(t, need.Root, "only root can make a file system")
			}
			if err != nil {
				t.Errorf("%v\n%s", err, stderr)
			}
		})
	}
}

func TestLibrary(t *testing.T) {
	daemon := build(t, "fake", "", "test/fake.c")
	program := build(t, "calls", "address,undefined", "test/calls_test.c", theLibrary)
	for _, tt := range []struct{ name, stdout string }{
		{"copies", ""}, {"rows", ""}, {"arrays", ""}, {"addresses", ""}, {"launches", ""}, {"libraries", "a kernel says 7\na kernel says 8\n"}, {"streams", ""},
		{"contexts", ""}, {"attributes", ""}, {"limits", ""}, {"names", ""}, {"threads", ""}, {"fork", ""}, {"exit", ""}, {"logs", ""}, {"unread", "right\n"}, {"graphs", ""},
		{"files", ""}, {"registered", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			stdout, stderr, err := run(t, program, fake(t, daemon, "serve"), tt.name)
			if err != nil || stdout != tt.stdout {
				t.Errorf("%v, printed %q\n%s", err, stdout, stderr)
			}
		})
	}
	t.Run("refused", func(t *testing.T) {
		const want = "muster: cuMulticastCreate is not supported: multicast over NVLink\n"
		if _, stderr, err := run(t, program, fake(t, daemon, "serve"), "refused"); err != nil || stderr != want {
			t.Errorf("%v, said %q, want %q", err, stderr, want)
		}
	})
	// Reasons are printed by the call that fails, once; or not at all.
	faults := strings.Repeat("muster: kernel fault: illegal address 0x10\n2\n", 60)
	pinned := "muster: 1099511627776 bytes of pinned memory: a program has 27 MiB of it in all, and they are not free in one piece: free some, or use memory of malloc\n"
	for _, tt := range []struct{ mode, variable, stderr string }{
		{"serve", "", "muster: the fake has not so much\nmuster: and never will\n1\n" + faults + pinned},
		{"serve", "MUSTER_QUIET=0", "muster: the fake has not so much\nmuster: and never will\n1\n" + faults + pinned},
		{"serve", "MUSTER_QUIET=1", "1\n" + strings.Repeat("2\n", 60)},
		{"lie", "", "1\n" + strings.Repeat("2\n", 60) + pinned},
	} {
		t.Run("notices "+tt.mode+" "+tt.variable, func(t *testing.T) {
			if _, stderr, err := runWith(t, tt.variable, program, fake(t, daemon, tt.mode), "notices"); err != nil || stderr != tt.stderr {
				t.Errorf("%v, said %q\nwant %q", err, stderr, tt.stderr)
			}
		})
	}
	// Whatever the other end does, the program hears of it and goes on.
	const startAgain = "if muster ps finds no node, start one with muster node (or systemctl start muster), then start the program again\n"
	for _, tt := range []struct{ mode, result, complaint string }{
		{"refuse", "101", "muster: not today\n"},
		{"garbage 0", "46", "muster: the daemon closed the connection: " + startAgain},
		{"garbage 1", "46", "muster: what the daemon sent is damaged\n"},
		{"garbage 2", "803", "muster: the daemon answered with message 0 where 2 was due: its version may differ from the library's\n"},
		{"garbage 3", "803", "muster: the shared memory from the daemon is damaged: its version may differ from the library's\n"},
		{"die 1", "46", "muster: the connection to the daemon is lost, and what the program had on its device: " + startAgain},
		{"die 40", "46", "muster: the connection to the daemon is lost, and what the program had on its device: " + startAgain},
		{"die 203", "46", "muster: the connection to the daemon is lost, and what the program had on its device: " + startAgain},
		{"close 1", "46", "muster: time is up\n"},
		{"close 55", "46", "muster: time is up\n"},
	} {
		t.Run(tt.mode, func(t *testing.T) {
			stdout, stderr, err := run(t, program, fake(t, daemon, strings.Fields(tt.mode)...), "lost")
			if err != nil || stdout != tt.result+"\n" || stderr != tt.complaint {
				t.Errorf("%v, result %q, complaint %q; want %q and %q", err, stdout, stderr, tt.result, tt.complaint)
			}
		})
	}
	t.Run("nobody", func(t *testing.T) {
		stdout, stderr, err := run(t, program, filepath.Join(t.TempDir(), "none"), "lost")
		if err != nil || stdout != "100\n" || !strings.Contains(stderr, "muster run -- PROGRAM") {
			t.Errorf("%v, result %q, complaint %q", err, stdout, stderr)
		}
	})
}

// Without a sanitizer: managed memory needs addresses that sanitizers take, and wild pointers of images
// may point to what is the sanitizer's.
func TestWithoutSanitizers(t *testing.T) {
	daemon, program := build(t, "fake", "", "test/fake.c"), build(t, "calls", "", "test/calls_test.c", theLibrary)
	for _, tt := range []struct{ name, mode string }{{"functions", "strict"}, {"images", "serve"}} {
		t.Run(tt.name, func(t *testing.T) {
			if _, stderr, err := run(t, program, fake(t, daemon, tt.mode), tt.name); err != nil {
				t.Errorf("%v\n%s", err, stderr)
			}
		})
	}
}

func TestThreadsDoNotRace(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	daemon := build(t, "fake", "", "test/fake.c")
	program := build(t, "calls", "thread", "test/calls_test.c", theLibrary)
	for _, name := range []string{"threads", "streams", "contexts", "graphs"} {
		t.Run(name, func(t *testing.T) {
			if _, stderr, err := run(t, program, fake(t, daemon, "serve"), name); err != nil {
				t.Errorf("%v\n%s", err, stderr)
			}
		})
	}
}

// What sanitizers do not see: reads of memory that was never written.
func TestNothingUnwrittenIsRead(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a while")
	}
	valgrind, err := exec.LookPath("valgrind")
	if err != nil {
		need.Missing(t, need.Valgrind, err)
	}
	daemon := build(t, "fake", "", "test/fake.c")
	program := build(t, "calls", "", "test/calls_test.c", theLibrary)
	// All of them at once: valgrind takes longer to start than a test takes.
	tests := []string{"launches", "streams", "contexts", "addresses", "logs", "notices"}
	if _, stderr, err := run(t, valgrind, fake(t, daemon, "serve"), append([]string{"--quiet", "--error-exitcode=9", program}, tests...)...); err != nil {
		t.Errorf("%v\n%s", err, stderr)
	}
}
