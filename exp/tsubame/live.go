package tsubame

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/exp"
	"muster/exp/bench"
	"muster/exp/live"
)

// Section 2.1, measured (and the queues, queues.go): programs at one end of a link use the software GPU of a node at the other
// end, through the node's gateway, while background users fill the link.

// liveFlags are --live and the flags that go with it.
var liveFlags = append([]exp.Flag{
	{Name: "live", Summary: "measure section 2.1 (Figs. 2 to 4) on Muster's own way to a remote GPU, with a node and real CUDA programs", Switch: true},
	{Name: "part", Summary: "with --live: measure only the link of section 2.1, or only a congested queue of jobs that share nodes and borrow GPUs", Values: []string{partLink, partOfQueues}},
	{Name: "full", Summary: "with --live: larger copies, more of them, every number of users of the link up to 8, and longer programs", Switch: true},
}, bench.Flags("with --live: ", "")...)

// The parts of the measurements.
const (
	partLink     = "link"
	partOfQueues = "queues"
)

// Properties of the link and the GPU. The link is far slower than this machine can send, so that
// copies wait for the link. The GPU's rate makes the copies of a step of md about 3 % of the step:
// by equation 2, that is the share that the paper's slow-down of 1.17 with 6 other users implies
// for LAMMPS.
const (
	linkRate   = 50_000_000 // bytes a second
	gpuRate    = 30_000_000 // operations a second
	gpuMemory  = 256 << 20
	mostUsers  = 8
	leastBytes = 256
	// triesOfApp is how often an application is run beside each number of users, unless --runs
	// overrides it.
	triesOfApp = 3
)

// Programs that are run.
const (
	copies = "copies"
	jacobi = "jacobi"
	md     = "md"
)

var applications = []string{jacobi, md}

// The networks.
const (
	shaped   = "link"
	loopback = "loopback"
)

// liveSize is the amount of measurements.
type liveSize struct {
	users, loopbackUsers, appUsers []int
	mostBytes, repeat              int
	idle                           time.Duration // how long the bandwidth of an idle network is measured
	steps                          map[string]int
	queueJobs                      int
}

var (
	smallLive = liveSize{users: []int{0, 1, 2, 4, 6, 8}, loopbackUsers: []int{0, 2, 4}, appUsers: []int{0, 2, 6, 8}, mostBytes: 4 << 20, repeat: 3, idle: time.Second, steps: map[string]int{jacobi: 40, md: 40}, queueJobs: 16}
	fullLive  = liveSize{users: []int{0, 1, 2, 3, 4, 5, 6, 7, 8}, loopbackUsers: []int{0, 1, 2, 4, 8}, appUsers: []int{0, 1, 2, 3, 4, 5, 6, 7, 8}, mostBytes: 64 << 20, repeat: 10, idle: 5 * time.Second, steps: map[string]int{jacobi: 400, md: 400}, queueJobs: 48}
)

// copied is one copy to the GPU and back.
type copied struct {
	Network string  `json:"network"`
	Users   int     `json:"users"`
	Bytes   int     `json:"bytes"`
	In      float64 `json:"in"`  // seconds until the copy was complete
	Out     float64 `json:"out"` // the same, from the GPU
}

// ranApp is one run of an application.
type ranApp struct {
	Network string  `json:"network"`
	App     string  `json:"app"`
	Users   int     `json:"users"`
	Seconds float64 `json:"seconds"`
}

// idle describes a network without background users.
type idle struct {
	Bandwidth float64 `json:"bandwidth"` // bytes a second, of one connection
	Trip      float64 `json:"trip"`      // seconds, of one byte
}

// liveMeasured holds all measurements. It can be stored in a file.
type liveMeasured struct {
	Version int             `json:"version"`
	Machine string          `json:"machine"`
	Late    float64         `json:"late"` // the machine's mean wake-up delay, in seconds
	NoLink  string          `json:"no_link,omitempty"`
	Missing []string        `json:"missing,omitempty"`
	Idle    map[string]idle `json:"idle"`
	Copies  []copied        `json:"copies"`
	Apps    []ranApp        `json:"apps"`
	Queues  []ranQueue      `json:"queues,omitempty"`
}

const liveVersion = 1

func runLive(ctx context.Context, o exp.Options) (*exp.Result, error) { return liveFrame.Run(ctx, o) }

// liveFrame says how the measurements are made, checked and shown.
var liveFrame = bench.Frame[liveMeasured]{
	Measure: measureLive, Check: (*liveMeasured).check,
	Result: func(m *liveMeasured) (*exp.Result, error) { return m.result(), nil },
}

func measureLive(ctx context.Context, o exp.Options) (*liveMeasured, error) {
	l := &liveLab{options: o, size: smallLive, m: &liveMeasured{Version: liveVersion, Machine: bench.Machine(), Idle: map[string]idle{}}}
	if o.Flags["full"] != "" {
		l.size = fullLive
	}
	var err error
	if l.tools, err = bench.FindTools(o.Flags["programs"], append(slices.Clone(applications), copies, pairs)...); err != nil {
		return nil, err
	}
	return l.m, l.run(ctx)
}

// liveLab makes the measurements, one after the other.
type liveLab struct {
	options exp.Options
	tools   bench.Tools
	size    liveSize
	m       *liveMeasured
}

// run measures on the loopback interface and, if this process may make one, on a link with limited
// bandwidth.
func (l *liveLab) run(ctx context.Context) error {
	networks := []*bench.Link{bench.Loopback()}
	link, err := bench.NewLink(linkRate, mostUsers)
	switch {
	case errors.Is(err, bench.ErrNoLink):
		l.m.NoLink = err.Error()
	case err != nil:
		return err
	default:
		networks = append(networks, link)
		defer link.Close()
	}
	late := bench.Watch()
	defer func() { l.m.Late = late() }()
	var steps []live.Step
	if l.options.Flags["part"] == partOfQueues {
		networks = nil
	}
	for _, n := range networks {
		far, err := l.startNode(ctx, n)
		if err != nil {
			return err
		}
		defer far.stop()
		steps = append(steps, l.steps(far)...)
	}
	if l.options.Flags["part"] != partLink {
		steps = append(steps, l.queueSteps()...)
	}
	l.m.Missing, err = live.Measure(ctx, l.options, steps)
	if err == nil && len(l.m.Copies)+len(l.m.Queues) == 0 {
		err = ctx.Err()
	}
	return err
}

// steps lists the measurements on a network. Applications run only on the link, or on the loopback
// interface if there is no link.
func (l *liveLab) steps(far *remote) []live.Step {
	users, name := l.size.loopbackUsers, far.name
	if name == shaped {
		users = l.size.users
	}
	list := []live.Step{{Name: "an idle " + name, Work: 1, Do: func(ctx context.Context, _ func(int)) error {
		bandwidth, trip, err := far.network.Idle(ctx, l.size.idle)
		l.m.Idle[name] = idle{bandwidth, trip}
		return err
	}}}
	seeds := l.options.Seeds(triesOfApp)
	for _, n := range users {
		list = append(list, live.Step{Name: fmt.Sprintf("copies over the %s beside %d users", name, n), Work: n + 1, Do: func(ctx context.Context, _ func(int)) error {
			return l.copies(ctx, far, n, seeds[0])
		}})
	}
	if name == loopback && l.m.NoLink == "" {
		return list
	}
	// The seed is the outer loop, so that a temporary load on the machine affects all applications
	// alike.
	for _, seed := range seeds {
		for _, app := range applications {
			for _, n := range l.size.appUsers {
				list = append(list, live.Step{Name: fmt.Sprintf("%s over the %s beside %d users, seed %d", app, name, n, seed), Work: 3, Do: func(ctx context.Context, _ func(int)) error {
					return l.application(ctx, far, app, n, seed)
				}})
			}
		}
	}
	return list
}

// copies measures copies of all sizes beside background users of the network.
func (l *liveLab) copies(ctx context.Context, far *remote, users int, seed uint64) error {
	text, err := far.program(ctx, users, copies, "--least", fmt.Sprint(leastBytes), "--size", fmt.Sprint(l.size.mostBytes), "--repeat", fmt.Sprint(l.size.repeat), "--seed", fmt.Sprint(seed))
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		c := copied{Network: far.name, Users: users}
		if n, _ := fmt.Sscanf(line, "copy %d %g %g", &c.Bytes, &c.In, &c.Out); n == 3 {
			l.m.Copies = append(l.m.Copies, c)
		}
	}
	return nil
}

// application measures an application beside background users of the network.
func (l *liveLab) application(ctx context.Context, far *remote, app string, users int, seed uint64) error {
	text, err := far.program(ctx, users, app, "--repeat", fmt.Sprint(l.size.steps[app]), "--seed", fmt.Sprint(seed))
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		var took float64
		if n, _ := fmt.Sscanf(line, "took %g", &took); n == 1 {
			l.m.Apps = append(l.m.Apps, ranApp{far.name, app, users, took})
			return nil
		}
	}
	return fmt.Errorf("%s did not say how long it took: %s", app, text)
}

// remote is a node at the far end of a network.
type remote struct {
	bench.Daemons
	network *bench.Link
	name    string
	address string
	folder  string
}

// liveToken authenticates the programs. It never leaves this machine, and the node ends with the
// experiment.
const liveToken = "section-2.1-of-the-paper-on-a-link-of-this-machine"

// startNode starts a node with a software GPU. Nothing is encrypted: rCUDA does not encrypt either,
// and both ends share the few processors of this machine.
func (l *liveLab) startNode(ctx context.Context, n *bench.Link) (*remote, error) {
	far := &remote{Daemons: bench.Daemons{Tools: l.tools}, network: n, name: loopback}
	if n.Rate > 0 {
		far.name = shaped
	}
	var err error
	if far.folder, err = os.MkdirTemp("", "muster-tsubame-"); err != nil {
		return nil, err
	}
	if err = far.start(ctx); err != nil {
		far.stop()
		return nil, fmt.Errorf("%w\n%s", err, far.Logs())
	}
	return far, nil
}

func (r *remote) start(ctx context.Context) (err error) {
	if r.address, err = r.network.Far.FreePort(); err != nil {
		return err
	}
	config, socket := filepath.Join(r.folder, "node.yaml"), filepath.Join(r.folder, "socket")
	if err := os.WriteFile(config, fmt.Appendf(nil, "listen: %q\ntoken: %s\nplain: true\n", r.address, liveToken), 0o600); err != nil {
		return err
	}
	err = r.network.Far.Do(func() error {
		return r.LaunchNode("the node on the "+r.name, socket, "--config", config, "--allow", "own", "--state", filepath.Join(r.folder, "state"),
			"--devices", fmt.Sprintf("soft:memory=%d,rate=%d,workers=1", gpuMemory, gpuRate), "--vgpus", "4", "--swap", "1GiB", "--log-level", "error")
	})
	if err != nil {
		return err
	}
	return r.AwaitNodes(ctx, socket)
}

func (r *remote) stop() {
	_ = r.Stop()
	_ = os.RemoveAll(r.folder)
}

// program runs a program at the near end, beside background users of the network, and returns its
// output. The programs check their own results, so a successful exit vouches for them.
func (r *remote) program(ctx context.Context, users int, name string, arguments ...string) (string, error) {
	traffic, err := r.network.Fill(users)
	if err != nil {
		return "", err
	}
	defer traffic.Stop()
	words := append([]string{"run", "--node", r.address, "--plain", "--", filepath.Join(r.Tools.Programs, name)}, arguments...)
	cmd := exec.CommandContext(ctx, r.Tools.Muster, words...)
	cmd.Env = r.Tools.Environment("MUSTER_TOKEN=" + liveToken)
	var said, complained bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &complained
	if err := r.network.Near.Do(cmd.Start); err != nil {
		return "", err
	}
	if err := cmd.Wait(); err != nil {
		return "", errors.Join(ctx.Err(), r.Lost(), fmt.Errorf("%s %s: %w\n%s", name, strings.Join(arguments, " "), err, complained.String()))
	}
	return said.String(), nil
}

// check validates numbers that were read from a file.
func (m *liveMeasured) check() error {
	good := func(v float64) bool { return v > 1e-9 && v < 1e12 }
	switch {
	case m.Version != liveVersion:
		return fmt.Errorf("version %d: this program reads version %d", m.Version, liveVersion)
	case len(m.Copies)+len(m.Queues) == 0:
		return errors.New("nothing was measured")
	}
	for _, c := range m.Copies {
		if !good(c.In) || !good(c.Out) || c.Bytes < 1 || c.Users < 0 || !good(m.Idle[c.Network].Bandwidth) || !good(m.Idle[c.Network].Trip) {
			return fmt.Errorf("%+v over %+v", c, m.Idle[c.Network])
		}
	}
	for _, q := range m.Queues {
		if !q.good() {
			return fmt.Errorf("%+v", q)
		}
	}
	for _, a := range m.Apps {
		if !good(a.Seconds) || a.Users < 0 {
			return fmt.Errorf("%+v", a)
		}
	}
	return nil
}

// byteSize writes a number of bytes with its unit.
func byteSize(bytes int) string {
	switch {
	case bytes >= 1<<20:
		return strconv.Itoa(bytes>>20) + " MiB"
	case bytes >= 1<<10:
		return strconv.Itoa(bytes>>10) + " KiB"
	}
	return strconv.Itoa(bytes) + " B"
}
