package stack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/internal/need"
	"muster/node/checkpoint"
	"muster/wire/status"
)

// dialogue is a program that executes commands, and answers each with a line.
type dialogue struct {
	*program
	heard int // lines of its output so far
}

var buildCounter = sync.OnceValue(func() error { return compile("counter") })

// counter starts the program that counts, with options of muster run.
func (w *world) counter(options ...string) *dialogue {
	w.Helper()
	if err := buildCounter(); err != nil {
		w.Fatal(err)
	}
	d := &dialogue{program: w.launchWith(options, made("counter"))}
	if line := d.next(); line != "ready" {
		w.Fatalf("the program says %q", line)
	}
	return d
}

// next waits for the next line of output.
func (d *dialogue) next() (line string) {
	d.Helper()
	d.eventually(d.name+" says something", func() bool {
		lines := strings.SplitAfter(d.output.String(), "\n")
		if d.heard+1 < len(lines) {
			line = strings.TrimSuffix(lines[d.heard], "\n")
			d.heard++
			return true
		}
		select {
		case <-d.exited:
			d.Fatalf("%s ended (%v): %s", d.name, d.cmd.ProcessState, d.output)
		default:
		}
		return false
	})
	if strings.HasPrefix(line, "muster:") { // a message to the user
		return d.next()
	}
	return line
}

// ask sends a command to the program, and returns its answer.
func (d *dialogue) ask(format string, args ...any) string {
	d.Helper()
	if _, err := fmt.Fprintf(d.stdin, format+"\n", args...); err != nil {
		d.Fatal(err)
	}
	return d.next()
}

func (d *dialogue) expect(what, want string) {
	d.Helper()
	if got := d.ask("%s", what); got != want {
		d.Fatalf("%s: %q, not %q", what, got, want)
	}
}

// fails runs a command of muster that must fail, and returns what it says.
func (w *world) fails(status int, args ...string) string {
	w.Helper()
	p := w.execute(made("muster"), args...)
	if code := p.wait(); code != status {
		w.Errorf("muster %s ended with %d: %s", strings.Join(args, " "), code, p.output)
	}
	return p.output.String()
}

// matches checks what was printed.
func matches(t *testing.T, got, want string) {
	t.Helper()
	if !regexp.MustCompile("^" + want + "\n$").MatchString(got) {
		t.Errorf("it said %q\nwant %q", got, want)
	}
}

// A program is saved from outside while it runs, and restored to that point: after it has
// continued, and after a fault has ended its work.
func TestCheckpointOfAClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=64M;soft:memory=64M", "--swap-dir", w.T.TempDir())
	dir := filepath.Join(w.T.TempDir(), "saved")
	p, other := w.counter("--socket", n.socket), w.counter("--socket", n.socket)
	p.ask("alloc 3000000")
	other.ask("alloc 1000")
	p.expect("add 5", "added")
	p.expect("sync", "result 0") // so that it is known what has been done
	other.expect("add 70", "added")
	if got := w.muster("checkpoint", "--socket", n.socket, "1", dir); got != "client 1: 11 MiB in "+dir+"\n" {
		t.Errorf("it says %q", got)
	}
	p.expect("add 7", "added")
	p.expect("show", "value 12")
	var restored struct {
		Dir           string
		Client, Bytes uint64
	}
	if err := json.Unmarshal([]byte(w.muster("restore", "--json", "--socket", n.socket, dir)), &restored); err != nil || restored.Client != 1 || restored.Bytes != 12_000_000 {
		t.Errorf("%+v, %v", restored, err)
	}
	p.expect("show", "value 5")
	p.expect("fault", "result 700")
	p.expect("show", "result 700")
	matches(t, w.fails(1, "checkpoint", "--socket", n.socket, "1", dir), "muster checkpoint: a fault has ended the program's work on the GPU, and there is nothing to save")
	w.muster("restore", "--socket", n.socket, dir) // the older checkpoint still exists
	p.expect("show", "value 5")
	p.expect("add 1", "added")
	p.expect("show", "value 6")
	matches(t, w.fails(1, "restore", "--socket", n.socket, "--client", "2", dir), "muster restore: the file is of another run of a program, .*")
	matches(t, w.fails(1, "checkpoint", "--socket", n.socket, "9", dir), "muster checkpoint: there is no client 9: muster ps lists those there are")
	other.expect("show", "value 70")

	// A damaged file changes nothing.
	m, err := checkpoint.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, m.Clients[0].File)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 1
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	matches(t, w.fails(1, "restore", "--socket", n.socket, dir), "muster restore: not a checkpoint that can be used: record .* it is damaged: .*")
	p.expect("show", "value 6")

	// Checkpoints are repeated until the command is interrupted.
	every := w.execute(made("muster"), "checkpoint", "--socket", n.socket, "--every", "1ms", "2", dir)
	for i := range 20 {
		other.expect("add 1", "added")
		other.expect("show", fmt.Sprint("value ", 71+i))
	}
	w.eventually("several were taken", func() bool { return strings.Count(every.output.String(), "\n") > 5 })
	_ = every.cmd.Process.Signal(syscall.SIGINT)
	if code := every.wait(); code != 0 {
		t.Errorf("it ended with %d: %s", code, every.output)
	}
	w.muster("checkpoint", "--socket", n.socket, "2", dir)
	other.expect("add 100", "added")
	other.expect("sync", "result 0")
	w.muster("restore", "--socket", n.socket, dir)
	other.expect("show", "value 90")
	if entries, _ := os.ReadDir(dir); len(entries) != 2 {
		t.Errorf("the folder has %v", entries)
	}
	// Or until the program ends.
	every = w.execute(made("muster"), "checkpoint", "--socket", n.socket, "--every", "1ms", "2", dir)
	every.says("client 2: ")
	p.right()
	other.right()
	if code := every.wait(); code != 0 || strings.Contains(every.output.String(), "muster checkpoint:") {
		t.Errorf("it ended with %d: %s", code, every.output)
	}
	n.idle()
}

// The disk is full: the checkpoint fails, the older one stays, and the program goes on.
func TestCheckpointOnAFullDisk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dir := filepath.Join(w.smallDisk(6<<20), "saved")
	n := w.start("--devices", "soft:memory=64M")
	p := w.counter("--socket", n.socket)
	p.ask("alloc 1000000")
	p.expect("add 1", "added")
	p.expect("sync", "result 0")
	w.muster("checkpoint", "--socket", n.socket, "1", dir)
	p.expect("add 1", "added")
	if got := w.fails(1, "checkpoint", "--socket", n.socket, "1", dir); !strings.Contains(got, "no space left on device") {
		t.Errorf("it says %q", got)
	}
	p.expect("show", "value 2")
	w.muster("restore", "--socket", n.socket, dir)
	p.expect("show", "value 1")
	p.right()
}

// A program that is started again gets its device memory back, at the same addresses, wherever its
// node is.
func TestProgramGetsItsMemoryBack(t *testing.T) {
	for name, options := range ways(t) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			way := options(w)
			t.Setenv("MUSTER_CHECKPOINTS", w.T.TempDir())
			first := w.counter(way...)
			first.expect("load run", "loaded 301") // there is none yet
			at := first.ask("alloc 2000000")
			first.expect("add 3", "added")
			first.expect("save run", "saved 0")
			first.expect("add 4", "added")
			first.kill()
			second := w.counter(way...)
			second.expect("load run", "loaded 0")
			second.expect("use "+strings.TrimPrefix(at, "at ")+" 2000000", "used")
			second.expect("show", "value 3")
			second.expect("add 1", "added")
			second.expect("show", "value 4")
			second.right()
		})
	}
}

// A program whose node is lost with everything on it continues on a new node, in the same process:
// a new context reaches it, and its memory is restored.
func TestProgramOutlivesItsNode(t *testing.T) {
	w := newWorld(t)
	t.Setenv("MUSTER_CHECKPOINTS", w.T.TempDir())
	first := w.start("--devices", "soft:memory=64M")
	p := w.counter("--socket", first.socket)
	at := p.ask("alloc 1000000")
	p.expect("add 3", "added")
	p.expect("save run", "saved 0")
	first.kill()
	w.eventually("its worker has heard of that, too", func() bool { return p.ask("show") == "result 46" })
	p.expect("anew", "result 100") // there is no node
	second := w.start("--devices", "soft:memory=32M", "--socket", first.socket)
	second.socket = first.socket
	w.eventually("the program reaches it", func() bool { return p.ask("anew") == "result 0" })
	p.expect("load run", "loaded 0")
	p.expect("use "+strings.TrimPrefix(at, "at ")+" 1000000", "used")
	p.expect("add 1", "added")
	p.expect("show", "value 4")
	p.right()
	second.idle()
}

// What muster checkpoint wrote is a checkpoint for musterRestore, too.
func TestMemoryOfAnotherProgramsCheckpoint(t *testing.T) {
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=64M")
	dir := w.T.TempDir()
	t.Setenv("MUSTER_CHECKPOINTS", dir)
	first := w.counter("--socket", n.socket)
	at := first.ask("alloc 1000000")
	first.expect("add 3", "added")
	first.expect("sync", "result 0")
	w.muster("checkpoint", "--socket", n.socket, "1", filepath.Join(dir, "saved"))
	first.kill()
	files, _ := filepath.Glob(dir + "/saved/client-*")
	if len(files) != 1 || os.Rename(files[0], filepath.Join(dir, "run")) != nil {
		t.Fatal(files)
	}
	second := w.counter("--socket", n.socket)
	second.expect("load run", "loaded 0")
	second.expect("use "+strings.TrimPrefix(at, "at ")+" 1000000", "used")
	second.expect("show", "value 3")
	second.right()
}

// --- whole programs ----------------------------------------------------------------

// fetchCRIU finds a CRIU that works here, or gets one.
var fetchCRIU = sync.OnceValues(func() (string, error) {
	if os.Geteuid() != 0 {
		return "", errors.New("CRIU needs root")
	}
	own, err := filepath.Abs("../../bin/criu")
	if err != nil {
		return "", err
	}
	for _, path := range []string{os.Getenv("MUSTER_CRIU"), filepath.Join(own, "criu"), "criu"} {
		if path != "" && worksAsCRIU(path) {
			return path, savesAnything(path)
		}
	}
	limit, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	if out, err := exec.CommandContext(limit, "../../scripts/get-criu", own).CombinedOutput(); err != nil {
		return "", fmt.Errorf("getting one failed: %w: %s", err, out)
	}
	if path := filepath.Join(own, "criu"); worksAsCRIU(path) {
		return path, savesAnything(path)
	}
	return "", errors.New("the one that was got does not work on this kernel (criu check)")
})

// worksAsCRIU says whether a CRIU exists and is recent enough: older ones fail with threads or with
// the kernel.
func worksAsCRIU(path string) bool {
	version, err := exec.Command(path, "--version").Output()
	if err != nil || exec.Command(path, "check").Run() != nil {
		return false
	}
	var major, minor int
	_, err = fmt.Sscanf(string(version), "Version: %d.%d", &major, &minor)
	return err == nil && (major > 4 || major == 4 && minor >= 2)
}

var errNothingSaved = errors.New("CRIU cannot save even cat here")

// savesAnything says why CRIU cannot save any program in this environment: a container may deny it
// what it needs.
func savesAnything(path string) error {
	images, err := os.MkdirTemp("", "muster-criu-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(images)
	simple := exec.Command("cat")
	stdin, err := simple.StdinPipe()
	if err != nil {
		return err
	}
	if err := simple.Start(); err != nil {
		return err
	}
	out, err := exec.Command(path, "dump", "--shell-job", "--leave-running", "-D", images, "-t", fmt.Sprint(simple.Process.Pid)).CombinedOutput()
	stdin.Close()
	_ = simple.Wait()
	if err != nil {
		return fmt.Errorf("%w: %w: %s", errNothingSaved, err, out)
	}
	return nil
}

// needCRIU returns a CRIU, or skips the test.
func needCRIU(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("takes a few seconds, and may have to get CRIU")
	}
	path, err := fetchCRIU()
	if err != nil {
		need.Missing(t, need.CRIU, "there is no CRIU that works:", err)
	}
	return path
}

// An unmodified program is saved as a whole and killed with its node, and another node continues
// it: messages in transit, memory, and its position in its own code.
func TestWholeProgram(t *testing.T) {
	t.Parallel()
	criu := needCRIU(t)
	w := newWorld(t)
	dir := filepath.Join(w.T.TempDir(), "saved")
	before := w.start("--devices", "soft:memory=64M", "--swap-dir", w.T.TempDir())
	p := before.launch(example(t, "sc"), "--repeat", "8000")
	w.eventually("it computes", func() bool { s := before.status(); return len(s.Clients) == 1 && s.Clients[0].Kernels > 1000 })
	for range 2 { // the second in the place of the first
		w.muster("checkpoint", "--criu", criu, "--socket", before.socket, "--program", fmt.Sprint(p.cmd.Process.Pid), dir)
	}
	kernels := before.status().Clients[0].Kernels
	w.eventually("it goes on", func() bool { return before.status().Clients[0].Kernels > kernels })
	p.kill()
	before.kill()

	after := w.start("--devices", "soft:memory=32M;soft:memory=16M")
	again := w.execute(made("muster"), "restore", "--criu", criu, "--socket", after.socket, dir)
	w.eventually("it computes again", func() bool { s := after.status(); return len(s.Clients) == 1 && s.Clients[0].Kernels > 1000 })
	// A restored program can be saved again, and stopped for that.
	w.muster("checkpoint", "--stop", "--criu", criu, "--socket", after.socket, "--program", fmt.Sprint(p.cmd.Process.Pid), dir)
	if code := again.wait(); code != -1 && code != 128+9 {
		t.Errorf("muster restore of a program that was killed ended with %d: %s", code, again.output)
	}
	after.idle()
	last := w.execute(made("muster"), "restore", "--criu", criu, "--socket", after.socket, dir)
	if out := last.right(); !strings.HasPrefix(out, "sc: 8000 scans of 8192 elements right") {
		t.Errorf("it said %q", out)
	}
	after.idle()
}

// restoreWhole makes muster restore continue a program, which then inherits its input and output.
func (w *world) restoreWhole(criu, socket, dir string) *dialogue {
	w.Helper()
	return &dialogue{program: w.execute(made("muster"), "restore", "--criu", criu, "--socket", socket, dir)}
}

// Programs that have not used a device yet, that wait, or that have several processes are saved and
// restored like any other.
func TestWholeProgramsOfAllKinds(t *testing.T) {
	t.Parallel()
	criu := needCRIU(t)
	save := func(n *theNode, p *program, dir string) {
		n.Helper()
		n.muster("checkpoint", "--stop", "--criu", criu, "--socket", n.socket, "--program", fmt.Sprint(p.cmd.Process.Pid), dir)
		<-p.exited
	}
	t.Run("waits for its input", func(t *testing.T) {
		w := newWorld(t)
		n := w.start("--devices", "soft:memory=64M")
		dir := filepath.Join(w.T.TempDir(), "saved")
		p := w.counter("--socket", n.socket)
		p.ask("alloc 2000000")
		p.expect("add 5", "added")
		save(n, p.program, dir)
		n.idle()
		after := w.start("--devices", "soft:memory=32M")
		again := w.restoreWhole(criu, after.socket, dir)
		again.expect("show", "value 5")
		again.expect("add 1", "added")
		for pid := range after.workers() { // it is rebuilt like any other
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		again.expect("show", "value 6")
		if s := after.status(); len(s.Clients) != 1 || s.Clients[0].Rebuilds == 0 {
			t.Errorf("%+v", s.Clients)
		}
		again.right()
	})
	t.Run("has a private node", func(t *testing.T) {
		w := newWorld(t)
		dir := filepath.Join(w.T.TempDir(), "saved")
		p := w.counter("--private")
		p.ask("alloc 2000000")
		p.expect("add 5", "added")
		w.muster("checkpoint", "--stop", "--criu", criu, "--program", fmt.Sprint(p.cmd.Process.Pid), dir)
		<-p.exited
		again := w.restoreWhole(criu, "@nobody", dir)
		again.expect("show", "value 5")
		again.expect("add 1", "added")
		again.expect("show", "value 6")
		again.right()
	})
	t.Run("has not used its device", func(t *testing.T) {
		w := newWorld(t)
		n := w.start("--devices", "soft:memory=64M")
		dir := filepath.Join(w.T.TempDir(), "saved")
		p := n.launch(made("small"), "later")
		p.says("waiting")
		save(n, p, dir)
		if again := w.restoreWhole(criu, n.socket, dir); again.right() != "right\n" {
			t.Errorf("it said %q", again.output)
		}
	})
	// amid saves programs of a node amid their work, and returns where. What ends before it was saved
	// is started again with four times as many iterations.
	amid := func(n *theNode, clients int, begin func(iterations string) *program) (dir, iterations string) {
		n.Helper()
		for count := 60; ; count *= 4 {
			iterations, dir = fmt.Sprint(count), filepath.Join(n.T.TempDir(), "saved")
			p := begin(iterations)
			n.eventually("they compute", func() bool {
				s := n.status()
				return p.ended() || len(s.Clients) == clients && !slices.ContainsFunc(s.Clients, func(c status.Client) bool { return c.Kernels < 50 })
			})
			saving := n.execute(made("muster"), "checkpoint", "--stop", "--criu", criu, "--socket", n.socket, "--program", fmt.Sprint(p.cmd.Process.Pid), dir)
			code := saving.wait()
			<-p.exited
			if code == 0 {
				return dir, iterations
			}
			if p.cmd.ProcessState.ExitCode() != 0 {
				n.Fatalf("saving ended with %d: %s\nand the program with %v: %s", code, saving.output, p.cmd.ProcessState, p.output)
			}
		}
	}
	t.Run("several processes", func(t *testing.T) {
		w := newWorld(t)
		n := w.start("--devices", "soft:memory=64M")
		dir, iterations := amid(n, 3, func(iterations string) *program {
			return n.launch(example(t, "procs"), "--processes", "3", "--iterations", iterations, "--kernels", "40", "--elements", "16k", "--gpu-bytes", "16k", "--pattern", "bcast")
		})
		m, err := checkpoint.ReadManifest(dir)
		if err != nil || len(m.Clients) != 3 || len(m.Program.Pids) != 4 {
			t.Errorf("%+v, %v", m, err)
		}
		if again := w.restoreWhole(criu, w.start("--devices", "soft:memory=64M").socket, dir); !strings.Contains(again.right(), iterations+" iterations of 1 phases of 40 kernel calls right") {
			t.Errorf("they said %q", again.output)
		}
	})
	t.Run("MPI", func(t *testing.T) {
		mpiexec, err := exec.LookPath("mpiexec")
		if err != nil {
			need.Missing(t, need.MPI, "there is no mpiexec: install an MPI (Debian: mpich)")
		}
		w := newWorld(t)
		n := w.start("--devices", "soft:memory=64M")
		dir, iterations := amid(n, 2, func(iterations string) *program {
			return w.executeWith([]string{"UCX_TLS=posix,self"}, mpiexec, "-n", "2", made("muster"), "run", "--mpi", "--socket", n.socket, "--",
				example(t, "phases"), "--iterations", iterations, "--kernels", "20", "--elements", "16k", "--gpu-bytes", "16k", "--pattern", "bcast")
		})
		if again := w.restoreWhole(criu, w.start("--devices", "soft:memory=64M").socket, dir); !strings.Contains(again.right(), iterations+" iterations of 1 phases of 20 kernel calls right") {
			t.Errorf("they said %q", again.output)
		}
	})
}

// If CRIU is missing, refuses or fails, the program notices nothing and continues.
func TestWholeProgramIsRefused(t *testing.T) {
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=64M")
	p := w.counter("--socket", n.socket)
	p.ask("alloc 1000")
	dir := filepath.Join(w.T.TempDir(), "saved")
	pid := fmt.Sprint(p.cmd.Process.Pid)
	script := func(text string) string {
		path := filepath.Join(w.T.TempDir(), "criu")
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	value := 0
	refused := func(want, criu, pid string, options ...string) {
		t.Helper()
		args := append([]string{"checkpoint", "--socket", n.socket, "--criu", criu, "--program", pid, dir, "--"}, options...)
		matches(t, w.fails(1, args...), "muster checkpoint: "+want)
		value++
		p.expect("add 1", "added")
		p.expect("show", fmt.Sprint("value ", value))
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("something is left of the checkpoint: %v", err)
		}
	}
	if !testing.Short() {
		_, _ = fetchCRIU() // it is looked for once, and not where nothing is
	}
	t.Setenv("PATH", "/nowhere")
	t.Setenv("MUSTER_CRIU", "")
	refused("whole programs are saved and restored with CRIU, which is not here: .*", "", pid)
	refused("CRIU at /nowhere/criu cannot be run: .*", "/nowhere/criu", pid)
	refused(`CRIU says no \(exit status 1\): it does not say why`, script("exit 1"), pid)
	refused(`CRIU says no \(exit status 1\): Can't dump ghost file`, script(`for a; do [ "$before" = -D ] && cd "$a"; before=$a; done; echo "(00.1) Error (criu/files.c:1): Can't dump ghost file" >dump.log; exit 1`), pid)
	refused("there is no process 999999999", script("exit 0"), "999999999")
	refused("CRIU has not stopped the program.*", script("exit 0"), pid)
	if os.Geteuid() == 0 && !testing.Short() {
		if criu, err := fetchCRIU(); err == nil {
			t.Setenv("PATH", "/usr/bin:/bin")
			refused("CRIU says no .*", criu, pid, "--no-such-option")
		}
	}
	p.right()
	n.idle()
}

// A program with something that CRIU cannot save is refused by it, and goes on.
func TestProgramThatCRIUCannotSave(t *testing.T) {
	t.Parallel()
	criu := needCRIU(t)
	w := newWorld(t)
	n := w.start("--devices", "soft:memory=64M")
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(fds[0])
	theirs := os.NewFile(uintptr(fds[1]), "socket")
	cmd := exec.Command(made("muster"), "run", "--socket", n.socket, "--", made("small"), "hold", "100000")
	cmd.Env, cmd.ExtraFiles = w.environment(), []*os.File{theirs}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out := &notebook{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	w.eventually("it holds", func() bool { return strings.Contains(out.String(), "holding") })
	dir := filepath.Join(w.T.TempDir(), "saved")
	matches(t, w.fails(1, "checkpoint", "--criu", criu, "--socket", n.socket, "--program", fmt.Sprint(cmd.Process.Pid), dir), `muster checkpoint: CRIU says no \(exit status 1\): .*half of stream unix connection.*`)
	stdin.Close()
	if err := cmd.Wait(); err != nil || !strings.HasSuffix(out.String(), "right\n") {
		t.Errorf("%v: %s", err, out)
	}
	n.idle()
}
