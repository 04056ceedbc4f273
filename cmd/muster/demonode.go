package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"muster/node"
	"muster/report"
	"muster/wire/status"
)

// demoDevices is what the demonstration runs on: two devices, one half as fast, and
// slow enough for two processors to stand for both.
const demoDevices = "soft:name=Fast,memory=48M,speed=0.4,workers=1,copy_bandwidth=2GB/s;soft:name=Slow,memory=32M,speed=0.2,workers=1,copy_bandwidth=2GB/s"

// demoPrograms need more memory together than the devices have.
var demoPrograms = []string{
	"mm --repeat 24 --cpu 1 --cpu-sleep --memory 16M",
	"mm --repeat 24 --cpu 1 --cpu-sleep --memory 20M --seed 2",
	"mm --repeat 24 --cpu 1 --cpu-sleep --memory 24M --seed 3",
	"mm --repeat 18 --cpu 2 --cpu-sleep --memory 16M --seed 4",
	"bs --repeat 60 --memory 12M",
	"hotspot --memory 8M",
	"nw",
	"pr --repeat 200 --memory 16M",
	"va --size 2M",
	"bfs --memory 12M",
}

type demoNodeFlags struct {
	programs string
	plain    bool
}

func newDemoNode() *cobra.Command {
	var f demoNodeFlags
	c := &cobra.Command{
		Use:   "node [--programs FOLDER] [--plain]",
		Short: "Watch programs share two software GPUs",
		Long: `Start a node with two unequal software GPUs, run real CUDA programs there that need
more memory together than the devices have, watch them, check their results, and say
what sharing saved: before that, the same programs run with one on a device at a time.

The programs are those of make examples.`,
		Example: "  muster demo node",
		RunE:    func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	c.Flags().StringVar(&f.programs, "programs", "", "the folder of the programs (default: examples/ beside this program)")
	c.Flags().BoolVar(&f.plain, "plain", false, "no live view, even on a terminal")
	return c
}

func (f *demoNodeFlags) run(c *cobra.Command) error {
	programs, err := demoFolder(f.programs)
	if err != nil {
		return err
	}
	f.programs = programs
	alone, err := f.round(c, "one on a device at a time", "--vgpus", "1", "--max-idle", "0s")
	if err != nil {
		return err
	}
	shared, err := f.round(c, "four on a device at a time", "--vgpus", "4")
	if err != nil {
		return err
	}
	out := c.OutOrStdout()
	if err := writeTable(out, shared.table()); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n%d programs that had %s at a time on %s of GPU memory: all results right.\n", len(demoPrograms), briefSize(shared.peak), briefSize(shared.memory))
	fmt.Fprintf(out, "One at a time on each GPU they took %.1f s; sharing them, %.1f s: %s saved.\n",
		alone.took.Seconds(), shared.took.Seconds(), report.Percent(1-shared.took.Seconds()/alone.took.Seconds()))
	return nil
}

// demoRound is all programs run once.
type demoRound struct {
	took   time.Duration
	memory uint64 // of the devices
	peak   uint64 // the most that programs had allocated at a time

	last map[int]status.Client   // the last that was seen of each process
	seen map[int]map[string]bool // the devices that it was on
	runs []*demoRun
}

// demoRun is one program.
type demoRun struct {
	line   string
	cmd    *exec.Cmd
	output bytes.Buffer
	took   time.Duration
	err    error
}

// round runs all programs at once on a new node.
func (f *demoNodeFlags) round(c *cobra.Command, title string, nodeArgs ...string) (*demoRound, error) {
	lib, err := libraryFolder()
	if err != nil {
		return nil, err
	}
	socket := fmt.Sprintf("@muster-demo-%d-%s", os.Getpid(), rand.Text()[:8])
	stop, err := startChildNode(c.ErrOrStderr(), append([]string{"--socket", socket, "--devices", demoDevices, "--warm", fmt.Sprint(len(demoPrograms)), "--log-level", "warn", "--text-log"}, nodeArgs...)...)
	if err != nil {
		return nil, err
	}
	defer stop()
	r := &demoRound{last: map[int]status.Client{}, seen: map[int]map[string]bool{}}
	environment := append(prepend(os.Environ(), "LD_LIBRARY_PATH", lib), "MUSTER_SOCKET="+socket)
	start := time.Now()
	var wg sync.WaitGroup
	for _, line := range demoPrograms {
		words := strings.Fields(line)
		run := &demoRun{line: line, cmd: exec.Command(filepath.Join(f.programs, words[0]), words[1:]...)}
		run.cmd.Env, run.cmd.Stdout, run.cmd.Stderr = environment, &run.output, &run.output
		if err := run.cmd.Start(); err != nil {
			return nil, fmt.Errorf("starting %s: %w", line, err)
		}
		r.runs = append(r.runs, run)
		wg.Add(1)
		go func() {
			defer wg.Done()
			run.err = run.cmd.Wait()
			run.took = time.Since(start)
		}()
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	err = r.watch(f.screen(c, title), title, socket, ended)
	<-ended
	r.took = time.Since(start)
	if err != nil {
		return nil, err
	}
	for _, run := range r.runs {
		if run.err != nil {
			return nil, fmt.Errorf("%s failed (%v):\n%s", run.line, run.err, run.output.String())
		}
	}
	return r, nil
}

// screen returns the terminal for the live view, or nil; then it says what runs.
func (f *demoNodeFlags) screen(c *cobra.Command, title string) *os.File {
	out, ok := c.OutOrStdout().(*os.File)
	if f.plain || !ok || !isTerminal(out) {
		fmt.Fprintf(c.ErrOrStderr(), "running %d programs, %s\n", len(demoPrograms), title)
		return nil
	}
	return out
}

// watch looks at the node until the programs have ended, and shows what it sees.
func (r *demoRound) watch(screen *os.File, title, socket string, ended <-chan struct{}) error {
	if screen != nil {
		fmt.Fprint(screen, "\x1b[?1049h\x1b[?25l")
		defer fmt.Fprint(screen, "\x1b[?25h\x1b[?1049l")
	}
	var before *status.Node
	var drawn picture
	for {
		s, err := node.Ask(socket)
		if err != nil {
			return err
		}
		r.note(s)
		if screen != nil {
			var b bytes.Buffer
			fmt.Fprintf(&b, "%d programs, %s\n\n", len(demoPrograms), title)
			drawn.bars.columns, _, _ = terminalSize(screen)
			if err := drawn.writeNode(&b, s, before); err != nil {
				return err
			}
			_, _ = io.WriteString(screen, fit(b.String(), screen))
		}
		if before == nil || s.Up-before.Up > 0.5 {
			before = s
		}
		select {
		case <-ended:
			return r.lastLook(socket)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// lastLook waits until the node knows that all programs have ended, and notes
// what it says of them.
func (r *demoRound) lastLook(socket string) error {
	for {
		s, err := node.Ask(socket)
		if err != nil {
			return err
		}
		r.note(s)
		if len(s.Clients) == 0 {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// note remembers what a status says of the programs.
func (r *demoRound) note(s *status.Node) {
	r.memory = 0
	for _, d := range s.Devices {
		r.memory += d.Memory
	}
	var allocated uint64
	for _, c := range slices.Concat(s.Clients, s.Ended) {
		pid := int(c.Pid)
		r.last[pid] = c
		if c.State != "ended" {
			allocated += c.Allocated
		}
		if c.Device != nil {
			if r.seen[pid] == nil {
				r.seen[pid] = map[string]bool{}
			}
			r.seen[pid][s.Devices[*c.Device].Name] = true
		}
	}
	r.peak = max(r.peak, allocated)
}

// table says what happened to each program.
func (r *demoRound) table() *report.Table {
	t := &report.Table{Columns: columns("<PROGRAM", "<ON", ">KERNELS", ">MEMORY", ">SWAPPED OUT", ">PREEMPTED", ">WAITED", ">TOOK", "<RESULT")}
	for _, run := range r.runs {
		pid := run.cmd.Process.Pid
		c := r.last[pid]
		var on []string
		for _, name := range []string{"Fast", "Slow"} {
			if r.seen[pid][name] {
				on = append(on, name)
			}
		}
		result, _, _ := strings.Cut(strings.TrimSpace(run.output.String()), ", ")
		t.Rows = append(t.Rows, []string{run.line, strings.Join(on, ", "), fmt.Sprint(c.Kernels), briefSize(c.Peak),
			briefSize(c.SwapOut), fmt.Sprint(c.Preemptions), briefTime(c.WaitTime), fmt.Sprintf("%.1f s", run.took.Seconds()), result})
	}
	return t
}
