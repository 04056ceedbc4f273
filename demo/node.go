package demo

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

	"muster/internal/screen"
	"muster/internal/units"
	"muster/node/ask"
	"muster/node/nodetable"
	"muster/report"
	"muster/wire/status"
)

// nodeDevices is what the demonstration runs on: two devices, one half as fast, and
// slow enough for two processors to stand for both.
const nodeDevices = "soft:name=Fast,memory=48M,speed=0.4,workers=1,copy_bandwidth=2GB/s;soft:name=Slow,memory=32M,speed=0.2,workers=1,copy_bandwidth=2GB/s"

// nodePrograms need more memory together than the devices have.
var nodePrograms = []string{
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

// NodeOptions say how the demonstration of a node is played.
type NodeOptions struct {
	Programs string // the folder of the programs, as Folder finds it
	Library  string // the folder of Muster's libcuda.so.1
	Errors   io.Writer
	Screen   *os.File // the terminal for the live view; nil: none
	// Start starts a node with arguments of muster node, which ends with stop.
	Start func(args ...string) (stop func(), err error)
}

// Node runs the programs twice, and says what became of each and what sharing saved.
func Node(o *NodeOptions) (table *report.Table, summary string, err error) {
	alone, err := o.round("one on a device at a time", "--vgpus", "1", "--max-idle", "0s")
	if err != nil {
		return nil, "", err
	}
	shared, err := o.round("four on a device at a time", "--vgpus", "4")
	if err != nil {
		return nil, "", err
	}
	summary = fmt.Sprintf("%d programs that had %s at a time on %s of GPU memory: all results right.\nOne at a time on each GPU they took %.1f s; sharing them, %.1f s: %s saved.\n",
		len(nodePrograms), units.BriefSize(shared.peak), units.BriefSize(shared.memory),
		alone.took.Seconds(), shared.took.Seconds(), report.Percent(1-shared.took.Seconds()/alone.took.Seconds()))
	return shared.table(), summary, nil
}

// round is all programs run once.
type round struct {
	took   time.Duration
	memory uint64 // of the devices
	peak   uint64 // the most that programs had allocated at a time

	last map[int]status.Client   // the last that was seen of each process
	seen map[int]map[string]bool // the devices that it was on
	runs []*program
}

// program is one program.
type program struct {
	line   string
	cmd    *exec.Cmd
	output bytes.Buffer
	took   time.Duration
	err    error
}

// round runs all programs at once on a new node.
func (o *NodeOptions) round(title string, nodeArgs ...string) (*round, error) {
	socket := fmt.Sprintf("@muster-demo-%d-%s", os.Getpid(), rand.Text()[:8])
	stop, err := o.Start(append([]string{"--socket", socket, "--devices", nodeDevices, "--warm", fmt.Sprint(len(nodePrograms)), "--log-level", "warn", "--text-log"}, nodeArgs...)...)
	if err != nil {
		return nil, err
	}
	defer stop()
	r := &round{last: map[int]status.Client{}, seen: map[int]map[string]bool{}}
	environment := append(os.Environ(), "LD_LIBRARY_PATH="+strings.TrimSuffix(o.Library+string(os.PathListSeparator)+os.Getenv("LD_LIBRARY_PATH"), ":"), "MUSTER_SOCKET="+socket)
	start := time.Now()
	var wg sync.WaitGroup
	for _, line := range nodePrograms {
		words := strings.Fields(line)
		run := &program{line: line, cmd: exec.Command(filepath.Join(o.Programs, words[0]), words[1:]...)}
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
	if o.Screen == nil {
		fmt.Fprintf(o.Errors, "running %d programs, %s\n", len(nodePrograms), title)
	}
	err = r.watch(o, title, socket, ended)
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

// watch looks at the node until the programs have ended, and shows what it sees.
func (r *round) watch(o *NodeOptions, title, socket string, ended <-chan struct{}) error {
	if o.Screen != nil {
		defer screen.Open(o.Screen)()
	}
	picture := nodetable.Picture{Least: 0.5}
	for {
		s, err := ask.Status(socket)
		if err != nil {
			return err
		}
		r.note(s)
		if o.Screen != nil {
			var b bytes.Buffer
			fmt.Fprintf(&b, "%d programs, %s\n\n", len(nodePrograms), title)
			picture.Columns = screen.Columns(o.Screen)
			if err := picture.WriteNode(&b, s); err != nil {
				return err
			}
			if err := screen.Draw(o.Screen, b.String()); err != nil {
				return err
			}
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
func (r *round) lastLook(socket string) error {
	for {
		s, err := ask.Status(socket)
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
func (r *round) note(s *status.Node) {
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
func (r *round) table() *report.Table {
	t := &report.Table{Columns: report.Columns("<PROGRAM", "<ON", ">KERNELS", ">MEMORY", ">SWAPPED OUT", ">PREEMPTED", ">WAITED", ">TOOK", "<RESULT")}
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
		t.Rows = append(t.Rows, []string{run.line, strings.Join(on, ", "), fmt.Sprint(c.Kernels), units.BriefSize(c.Peak),
			units.BriefSize(c.SwapOut), fmt.Sprint(c.Preemptions), report.BriefTime(c.WaitTime), fmt.Sprintf("%.1f s", run.took.Seconds()), result})
	}
	return t
}
