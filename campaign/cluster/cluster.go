package cluster

import (
	"context"
	"crypto/rand"
	_ "embed" // the program that uses GPUs
	"errors"
	"fmt"
	"io"
	"maps"
	random "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"muster/campaign/content"
	"muster/campaign/vitals"
	"muster/head/client"
	"muster/internal/ports"
)

//go:embed program/gpu.c
var gpuSource []byte

// deviceNumbers is how many devices a node may have, those of other nodes included.
const deviceNumbers = 16

// Times of the cluster. They are short, so that a campaign includes what takes hours elsewhere. An
// agent that a short fault separated from the head is back well within nodeTimeout.
const (
	silence     = time.Second
	nodeTimeout = 6 * time.Second
	grace       = time.Second
	keep        = 3 * time.Second

	// Of connections to gateways: resume is longer than any single fault.
	gatewaySilence = 2 * time.Second
	gatewayResume  = 15 * time.Second
)

// Options describe a campaign.
type Options struct {
	Muster   string // the program, with its library in lib/ beside it
	Dir      string // an existing folder for all files
	Seed     uint64
	Episode  int // each episode of a seed has other jobs and faults
	Faults   int
	Kinds    []Kind // nil: all
	Nodes    int
	Width    int     // jobs in the cluster at a time
	Content  float64 // part of the faults that are pieces of hostile and odd content, from 0 to 1
	Pieces   []content.Kind
	Patience time.Duration // limit for any single wait
	Log      io.Writer     // for events; nil discards them
}

// chance is the random source of one part of the campaign.
func (o *Options) chance(part uint64) *random.Rand {
	return random.New(random.NewPCG(o.Seed, uint64(o.Episode)<<8|part))
}

// Report is the result of a campaign.
type Report struct {
	Seed       uint64         `json:"seed"`
	Episode    int            `json:"episode"`
	Faults     map[Kind]int   `json:"faults"`
	PassedOver int            `json:"passed_over"`
	Jobs       map[string]int `json:"jobs"` // by final state
	Attempts   int            `json:"attempts"`
	Borrowed   int            `json:"borrowed"` // jobs that had GPUs of other nodes
	// Content counts pieces of content by what is odd about them, Outcomes by what became of them.
	Content  map[content.Kind]int `json:"content"`
	Outcomes map[string]int       `json:"outcomes"`

	Seconds    float64  `json:"seconds"`
	Skipped    []string `json:"skipped"`
	Violations []string `json:"violations"`
	Dir        string   `json:"dir"` // where all files are kept if a check failed
}

// Line is the report in one line.
func (r *Report) Line() string {
	faults, jobs, pieces := 0, 0, 0
	for _, n := range r.Content {
		pieces += n
	}
	for _, n := range r.Faults {
		faults += n
	}
	for _, n := range r.Jobs {
		jobs += n
	}
	return fmt.Sprintf("cluster: seed=%d episode=%d faults=%d (%s) passed_over=%d content=%d (%s: %s) seconds=%.0f jobs=%d (%s) attempts=%d borrowed=%d violations=%d",
		r.Seed, r.Episode, faults, counts(r.Faults), r.PassedOver, pieces, counts(r.Content), counts(r.Outcomes), r.Seconds, jobs, counts(r.Jobs), r.Attempts, r.Borrowed, len(r.Violations))
}

// counts writes counts by name.
func counts[K ~string](of map[K]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, of[k]))
	}
	return strings.Join(parts, ", ")
}

// campaign is a campaign in progress.
type campaign struct {
	o        *Options
	mark     string
	random   *random.Rand
	began    time.Time
	head     daemon
	before   vitals.Vitals // of the head, after the first jobs
	machines []*machine
	asks     *client.Head
	watch    *watcher
	load     *load
	faults   *injector
	sender   *sender  // nil without content
	disks    []string // where small disks are mounted

	mu     sync.Mutex
	wrong  []string
	log    io.Writer
	report *Report
}

// Run plays a campaign. An error says that it could not be played; findings are in the report.
func Run(o Options) (*Report, error) {
	if len(o.Kinds) == 0 {
		o.Kinds = Kinds
	}
	c := &campaign{o: &o, mark: rand.Text(), random: o.chance(7), began: time.Now(), log: io.Discard,
		report: &Report{Seed: o.Seed, Episode: o.Episode, Faults: map[Kind]int{}, Jobs: map[string]int{}, Content: map[content.Kind]int{}, Outcomes: map[string]int{}, Dir: o.Dir}}
	if o.Log != nil {
		c.log = o.Log
	}
	history, err := os.Create(filepath.Join(o.Dir, "history"))
	if err != nil {
		return nil, err
	}
	defer history.Close()
	c.log = io.MultiWriter(c.log, history)
	defer c.killAll()
	if err := c.play(); err != nil {
		return nil, err
	}
	c.report.Violations, c.report.Seconds = c.violations(), time.Since(c.began).Seconds()
	return c.report, nil
}

func (c *campaign) play() error {
	if err := c.prepare(); err != nil {
		return err
	}
	if err := c.startAll(); err != nil {
		return err
	}
	watching, stopWatching := context.WithCancel(context.Background())
	loading, stopLoading := context.WithCancel(context.Background())
	defer stopWatching()
	defer stopLoading()
	c.faults = &injector{c: c, random: c.o.chance(9), kinds: c.o.Kinds, busy: map[string]bool{}}
	var both sync.WaitGroup
	both.Go(func() { c.watch.run(watching) })
	both.Go(func() { c.load.run(loading) })
	err := c.faults.play(c.o.Faults)
	stopLoading()
	if err == nil {
		c.settle()
	}
	stopWatching()
	both.Wait()
	if err == nil {
		c.check()
	}
	return err
}

// violate records a violation, once.
func (c *campaign) violate(format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	c.say("VIOLATION: %s", what)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.wrong, what) {
		c.wrong = append(c.wrong, what)
	}
}

func (c *campaign) violations() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.wrong)
}

func (c *campaign) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.log, "%s %s\n", time.Now().Format("15:04:05.000"), fmt.Sprintf(format, args...))
}

// prepare makes certificates, configuration files and proxies.
func (c *campaign) prepare() error {
	dir := c.o.Dir
	for _, folder := range []string{"lines", "out", "logs"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o777); err != nil {
			return err
		}
	}
	if err := c.mountDisk(HeadDiskFull, filepath.Join(dir, "head.state")); err != nil {
		return err
	}
	port, err := ports.Address()
	if err != nil {
		return err
	}
	certificates := filepath.Join(dir, "certificates")
	if err := c.command("cert", certificates, "--head", "127.0.0.1"); err != nil {
		return err
	}
	file := filepath.Join(dir, "head.yaml")
	text := fmt.Sprintf("node_timeout: %v\nsilence: %v\ngrace: %v\nkeep: %v\n", nodeTimeout, silence, grace, keep)
	if c.o.Content > 0 { // his jobs run, and leave room for others
		text += fmt.Sprintf("limits: {users: {%s: {running: 6, cores: 6}}}\n", attacker)
		if err := c.newSender(port, certificates); err != nil {
			return err
		}
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		return err
	}
	environment := append(os.Environ(), markVariable+"="+c.mark, "TMPDIR="+dir)
	c.head = daemon{name: "head", dir: filepath.Join(dir, "logs"), environ: environment, command: []string{
		c.o.Muster, "head", "--config", file, "--listen", port, "--socket", filepath.Join(dir, "head.socket"), "--state", filepath.Join(dir, "head.state"),
		"--tls-dir", filepath.Join(certificates, "head-127.0.0.1"), "--page", "127.0.0.1:0", "--text-log"}}
	for i := range c.o.Nodes {
		if err := c.prepareNode(fmt.Sprintf("n%d", i+1), port, certificates, environment); err != nil {
			return err
		}
	}
	if c.asks, err = client.Open("unix:"+filepath.Join(dir, "head.socket"), ""); err != nil {
		return err
	}
	c.watch = &watcher{mark: c.mark, dir: dir, machines: c.machines, violate: c.violate}
	c.load = &load{head: c.asks, random: c.o.chance(8), dir: dir, mark: c.mark, gpu: c.makeProgram(), nodes: c.machines,
		width: c.o.Width, borrow: !slices.ContainsFunc(c.o.Kinds, func(k Kind) bool { return !k.ofGateway() }), violate: c.violate, say: c.say}
	return nil
}

// diskSize is the size of a disk that can be filled.
const diskSize = 256 << 20

// mountDisk mounts a small disk for a kind of fault that fills it. Where that is not allowed, the kind is
// left out.
func (c *campaign) mountDisk(kind Kind, dir string) error {
	if !slices.Contains(c.o.Kinds, kind) {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", diskSize))
	if err == nil {
		c.disks = append(c.disks, dir)
		return nil
	}
	c.report.Skipped = append(c.report.Skipped, fmt.Sprintf("%s: a small disk cannot be mounted: %v", kind, err))
	c.o.Kinds = slices.DeleteFunc(slices.Clone(c.o.Kinds), func(k Kind) bool { return k == kind })
	return nil
}

func (c *campaign) prepareNode(name, head, certificates string, environment []string) error {
	dir := c.o.Dir
	m := &machine{socket: filepath.Join(dir, name+".socket"), spool: filepath.Join(dir, name+".spool"), cores: 2 + c.random.IntN(5), gpus: 1 + c.random.IntN(2)}
	if c.o.Content > 0 {
		m.gpus += 12 // the cluster has more than some messages hold, and more than jobs use
	}
	m.name = name
	c.machines = append(c.machines, m)
	if err := c.mountDisk(SpoolDiskFull, m.spool); err != nil {
		return err
	}
	gateway, err := ports.Address()
	if err != nil {
		return err
	}
	if m.link, err = newProxy(head); err != nil {
		return err
	}
	if m.gateway, err = newProxy(gateway); err != nil {
		return err
	}
	if err := c.command("cert", certificates, "--host", name+",127.0.0.1"); err != nil {
		return err
	}
	file := filepath.Join(dir, name+".yaml")
	m.daemon = daemon{name: name, dir: filepath.Join(dir, "logs"), environ: append(slices.Clip(environment), "MUSTER_CHAOS_NODE="+name),
		command: []string{c.o.Muster, "node", "--child", "--orphan-grace", "2m", "--text-log", "--config", file}}
	return os.WriteFile(file, []byte(m.config(filepath.Join(certificates, "node-"+name), m.link.address(), gateway, dir)), 0o644)
}

func (c *campaign) command(words ...string) error {
	if out, err := exec.Command(c.o.Muster, words...).CombinedOutput(); err != nil {
		return fmt.Errorf("muster %s: %w: %s", strings.Join(words, " "), err, out)
	}
	return nil
}

// makeProgram builds the program that uses GPUs.
func (c *campaign) makeProgram() string {
	source, program := filepath.Join(c.o.Dir, "gpu.c"), filepath.Join(c.o.Dir, "gpu")
	err := os.WriteFile(source, gpuSource, 0o644)
	if err == nil {
		var out []byte
		if out, err = exec.Command("cc", "-D_GNU_SOURCE", "-O1", "-o", program, source, "-ldl").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
	}
	if err != nil {
		c.report.Skipped = append(c.report.Skipped, fmt.Sprintf("jobs that use GPUs: their program cannot be built: %v", err))
		return ""
	}
	return program
}

// startAll starts the cluster, runs one job of each kind, and records the daemons' vitals
// afterwards.
func (c *campaign) startAll() error {
	if err := c.head.start(); err != nil {
		return err
	}
	for _, m := range c.machines {
		if err := m.start(); err != nil {
			return err
		}
	}
	if left := c.eventually(c.away); len(left) > 0 {
		return errors.New(strings.Join(left, "; "))
	}
	for range 3 * len(c.machines) {
		c.load.submit(context.Background())
	}
	if left := c.eventually(c.unfinished); len(left) > 0 {
		return fmt.Errorf("before any fault: %s", strings.Join(left, "; "))
	}
	return c.lookAtDaemons()
}

// lookAtDaemons records the vitals of each daemon while no job runs.
func (c *campaign) lookAtDaemons() (err error) {
	if c.before, err = vitals.Read(c.head.pid()); err != nil {
		return err
	}
	// The campaign makes at most two requests to the head at a time, and keeps the connections for
	// a minute.
	c.before.Allow("socket", 2)
	for _, m := range c.machines {
		if m.before, err = vitals.Read(m.pid()); err != nil {
			return err
		}
		// A node has a lock for each number of a device. Those it borrows have new numbers first, and
		// then again those of devices that have gone.
		m.before.AllowInAll(filepath.Join(c.o.Dir, m.name+".state", "lock-0"), deviceNumbers)
	}
	return nil
}

// eventually waits until nothing is wrong, and returns what is still wrong at the end of the
// patience.
func (c *campaign) eventually(wrong func() []string) []string {
	for end := time.Now().Add(c.o.Patience); ; time.Sleep(50 * time.Millisecond) {
		left := wrong()
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

// away lists the nodes that are not up in the cluster.
func (c *campaign) away() []string {
	ctx, cancel := context.WithTimeout(context.Background(), askTime)
	defer cancel()
	nodes, err := c.asks.Nodes(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	here := map[string]bool{}
	for _, n := range nodes {
		here[n.Name] = n.Connected
	}
	var left []string
	for _, m := range c.machines {
		if !here[m.name] {
			left = append(left, m.name+" is not in the cluster")
		}
	}
	return left
}

// unfinished lists the jobs that have not ended.
func (c *campaign) unfinished() []string {
	jobs, err := c.load.jobs(context.Background())
	if err != nil {
		return []string{err.Error()}
	}
	var left []string
	for i := range jobs {
		if j := &jobs[i]; !j.State.Over() {
			left = append(left, fmt.Sprintf("job %d does not end: %s %s on %v, attempt %d (%s)", j.ID, j.State, j.Reason, j.Nodes, j.Attempt, j.Options))
		}
	}
	return left
}

// killAll kills all processes of the campaign.
func (c *campaign) killAll() {
	for _, d := range c.daemons() {
		if d.cmd != nil && d.cmd.Process != nil {
			_ = d.cmd.Process.Kill()
			<-d.exited
		}
	}
	if c.watch != nil {
		for left := c.watch.look(); len(left) > 0; left = c.watch.look() {
			for _, s := range left {
				_ = syscall.Kill(s.pid, syscall.SIGKILL)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	for _, disk := range c.disks {
		if len(c.violations()) > 0 { // keep what is on it
			_ = exec.Command("cp", "-a", disk, disk+".kept").Run()
		}
		_ = syscall.Unmount(disk, 0)
	}
	for _, m := range c.machines {
		for _, p := range []*proxy{m.link, m.gateway} {
			if p != nil {
				p.close()
			}
		}
	}
}

func (c *campaign) daemons() []*daemon {
	list := []*daemon{&c.head}
	for _, m := range c.machines {
		list = append(list, &m.daemon)
	}
	return list
}
