package stack

import (
	"bytes"
	"errors"
	"io/fs"
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
)

// demonstration is muster demo as a process; all its files are in a folder of its own.
type demonstration struct {
	*testing.T
	cmd  *exec.Cmd
	temp string

	mutex  sync.Mutex
	output bytes.Buffer
	more   chan struct{} // has a value after each piece of output
}

func startDemo(t *testing.T) *demonstration {
	t.Helper()
	programs := filepath.Dir(example(t, "mm"))
	if err := os.Symlink("muster", made("muster-rsh")); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	d := &demonstration{T: t, temp: t.TempDir(), more: make(chan struct{}, 1)}
	d.cmd = exec.Command(made("muster"), "demo", "--programs", programs)
	d.cmd.Env = append(os.Environ(), "TMPDIR="+d.temp)
	d.cmd.Stdout, d.cmd.Stderr = d, d
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *demonstration) Write(b []byte) (int, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	select {
	case d.more <- struct{}{}:
	default:
	}
	return d.output.Write(b)
}

func (d *demonstration) text() string {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.output.String()
}

// until waits until the demonstration has printed something.
func (d *demonstration) until(words string) {
	d.Helper()
	late := time.After(patience)
	for !strings.Contains(d.text(), words) {
		select {
		case <-d.more:
		case <-late:
			d.Fatalf("it does not print %q:\n%s", words, d.text())
		}
	}
}

// left lists the remaining files and processes.
func (d *demonstration) left() (list []string) {
	files, _ := filepath.Glob(filepath.Join(d.temp, "*"))
	list = append(list, files...)
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range processes {
		words, _ := os.ReadFile(p + "/cmdline")
		environment, _ := os.ReadFile(p + "/environ")
		folder, _ := os.Readlink(p + "/cwd")
		if strings.Contains(string(words)+string(environment)+folder, d.temp) {
			list = append(list, p+" "+strings.ReplaceAll(string(words), "\x00", " "))
		}
	}
	return list
}

// tableOf finds the table of the demonstration: its rows up to an empty line, where
// columns are two blanks or more apart.
func tableOf(text string) (rows [][]string) {
	from := regexp.MustCompile(`(?m)^ *JOB +NAME +RAN ON `).FindStringIndex(text)
	if from == nil {
		return nil
	}
	for line := range strings.Lines(text[from[0]:]) {
		if line = strings.TrimSpace(line); line == "" {
			break
		}
		rows = append(rows, regexp.MustCompile(` {2,}`).Split(line, -1))
	}
	return rows
}

// The demonstration of a cluster, as a user runs it: all results are right, everything that it is
// to show happened, nothing is left behind, and the README has the same table.
func TestDemo(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a whole demonstration")
	}
	d := startDemo(t)
	if err := d.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, d.text())
	}
	if left := d.left(); len(left) > 0 {
		t.Errorf("it left %q", left)
	}
	rows := tableOf(d.text())
	if len(rows) < 15 {
		t.Fatalf("the table is short:\n%s", d.text())
	}
	for _, row := range rows[2:] {
		if result := row[len(row)-1]; result != "right" && !strings.HasPrefix(result, "skipped: ") {
			t.Errorf("%q", row)
		}
	}
	for name, how := range map[string]string{
		"borrows": "borrowed 2", "shares": "shared with ", "survives": "requeued", "patient": "swapped ", "urgent": "borrowed 3",
	} {
		if !slices.ContainsFunc(rows, func(row []string) bool { return row[1] == name && strings.Contains(row[4], how) }) {
			t.Errorf("%s was not %s:\n%s", name, how, d.text())
		}
	}
	for _, line := range []string{"$ muster submit -J borrows -w login --gres=rgpu:2 -- examples/procs ", "all results right. gpu2 was killed", "Everything is stopped: no process and no file is left.\n"} {
		if !strings.Contains(d.text(), line) {
			t.Errorf("it does not print %q:\n%s", line, d.text())
		}
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := tableOf(string(readme))
	if _, err := exec.LookPath("mpiexec"); err == nil && !slices.Equal(jobsOf(shown), jobsOf(rows)) {
		t.Errorf("the README shows the jobs %q, and there are %q", jobsOf(shown), jobsOf(rows))
	}
}

// jobsOf is the head of a table and the first columns of its rows.
func jobsOf(rows [][]string) (list []string) {
	for i, row := range rows {
		switch i {
		case 0:
			list = append(list, strings.Join(row, " "))
		case 1: // the rule below it
		default:
			list = append(list, row[0]+" "+row[1])
		}
	}
	return list
}

// However and whenever the demonstration is ended, nothing is left behind.
func TestDemoEndsEarly(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("several demonstrations")
	}
	for _, c := range []struct {
		name, after string
		end         func(*demonstration)
		status      int // -1: killed
	}{
		{"interrupted at the start", "$ cd ", func(d *demonstration) { _ = d.cmd.Process.Signal(syscall.SIGINT) }, 130},
		{"interrupted amidst jobs", "Submitted batch job 3", func(d *demonstration) { _ = d.cmd.Process.Signal(syscall.SIGINT) }, 130},
		{"killed", "Submitted batch job 3", func(d *demonstration) { _ = d.cmd.Process.Kill() }, -1},
		{"killed inside", "Submitted batch job 3", func(d *demonstration) { _ = syscall.Kill(d.inside(), syscall.SIGKILL) }, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := startDemo(t)
			d.until(c.after)
			c.end(d)
			_ = d.cmd.Wait()
			if got := d.cmd.ProcessState.ExitCode(); got != c.status {
				t.Errorf("it ended with %d, not %d:\n%s", got, c.status, d.text())
			}
			for end := time.Now().Add(patience); len(d.left()) > 0; time.Sleep(10 * time.Millisecond) {
				if c.status != -1 || time.Now().After(end) { // a killed process cannot wait for its children
					t.Fatalf("it left %q\n%s", d.left(), d.text())
				}
			}
		})
	}
}

// inside is the process that plays the demonstration, a child of the one that was started.
func (d *demonstration) inside() int {
	d.Helper()
	children, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range children {
		words, _ := os.ReadFile(name)
		if strings.Contains(string(words), "\x00--inside\x00"+d.temp) {
			pid := 0
			for _, digit := range strings.Split(name, "/")[2] {
				pid = 10*pid + int(digit-'0')
			}
			return pid
		}
	}
	d.Fatal("nobody plays")
	return 0
}
