package ivm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muster/exp"
	"muster/exp/bench"
	"muster/node/gateway"
)

// outcome is one run of a program.
type outcome struct {
	bench.Timing // from the start of the command until the first element, or process, had all results
	// Work is the number of items that each host computed, Elements the number of elements, and
	// Hosts how many were on each host. Created is the mean time in seconds from the request for an
	// element until it was ready to compute. Programs with MPI report none of these.
	Work     []int64 `json:"work,omitempty"`
	Elements int     `json:"elements,omitempty"`
	Hosts    []int64 `json:"hosts,omitempty"`
	Created  float64 `json:"created,omitempty"`
	// Deviations are those of the elements' times, one per iteration, relative to their mean.
	Deviations []float64 `json:"deviations,omitempty"`
	// Traffic is the number of bytes that the daemons of Host-II and Host-III read and wrote.
	Traffic int64 `json:"traffic,omitempty"`
}

// command is a program to run.
type command struct {
	on      setting
	mpi     int // processes; 0 for a program with elements
	program string
	args    []string
}

// setting is the cluster that a measurement needs.
type setting struct {
	// apart makes each GPU a node of its own. A node chooses the GPU of a program itself, so this
	// is the way to bind MPI processes, and elements that share a GPU, to a particular GPU.
	// Otherwise there are three nodes, one per host, and a GPU has one element at a time: when one
	// ends, the next takes its place.
	apart bool
	// faster is the factor by which all GPUs are faster than by default.
	faster float64
}

var (
	together  = setting{faster: 1}
	eachApart = setting{apart: true, faster: 1}
)

// part is the group of a host's GPUs that forms a node.
type part struct {
	name  string
	host  int
	cards []bench.Card
}

func (s setting) parts() []part {
	var list []part
	for h, cards := range hosts {
		if !s.apart {
			list = append(list, part{hostNames[h], h, cards})
			continue
		}
		for g := range cards {
			list = append(list, part{fmt.Sprintf("%s-%d", hostNames[h], g), h, cards[g : g+1]})
		}
	}
	return list
}

// living is a running cluster.
type living struct {
	bench.Daemons
	setting
	nodes     []part
	dir       string
	sockets   []string
	addresses []string
	mpiexec   string
}

const (
	patienceUp  = time.Minute
	patienceRun = 10 * time.Minute
)

// startCluster starts the nodes. rate is the number of operations per second of a C2050.
func startCluster(ctx context.Context, t bench.Tools, mpiexec string, s setting, rate float64) (*living, error) {
	dir, err := os.MkdirTemp("", "muster-"+name+"-")
	if err != nil {
		return nil, err
	}
	l := &living{Daemons: bench.Daemons{Tools: t}, setting: s, nodes: s.parts(), dir: dir, mpiexec: mpiexec}
	if err := l.start(ctx, rate*s.faster); err != nil {
		l.stop()
		return nil, fmt.Errorf("%w\n%s", err, l.Logs())
	}
	return l, nil
}

func (l *living) start(ctx context.Context, rate float64) error {
	authority, _, err := gateway.OpenAuthority(filepath.Join(l.dir, "certificates"), time.Now())
	if err != nil {
		return err
	}
	end := bench.Loopback().Near
	certificate, err := authority.Node([]string{end.Address}, 1)
	if err != nil {
		return err
	}
	vgpus, warm := "1", "3"
	if l.apart {
		vgpus, warm = "32", "1"
	}
	for _, n := range l.nodes {
		address, err := end.FreePort()
		if err != nil {
			return err
		}
		socket := fmt.Sprintf("@muster-%s-%s", name, rand.Text()[:8])
		l.sockets, l.addresses = append(l.sockets, socket), append(l.addresses, address)
		if err := l.LaunchNode(n.name, socket, "--allow", "own", "--name", strings.ToLower(n.name), "--state", filepath.Join(l.dir, n.name), "--listen", address, "--tls-dir", certificate,
			"--ivm", "--ivm-root", "--devices", devices(n.cards, rate), "--vgpus", vgpus, "--warm", warm); err != nil {
			return err
		}
	}
	return l.await(ctx)
}

// await waits until all nodes accept connections.
func (l *living) await(ctx context.Context) error {
	late := time.Now().Add(patienceUp)
	for i := 0; i < len(l.nodes); {
		conn, err := net.Dial("unix", l.sockets[i])
		if err == nil {
			conn.Close()
			conn, err = net.Dial("tcp", l.addresses[i])
		}
		if err == nil {
			conn.Close()
			i++
			continue
		}
		if time.Now().After(late) {
			return fmt.Errorf("%s did not come up: %w", l.nodes[i].name, err)
		}
		if err := errors.Join(l.Lost(), bench.Pause(ctx, 20*time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

func (l *living) stop() {
	_ = l.Stop()
	_ = os.RemoveAll(l.dir)
}

// words is the command line of a program. MPI processes are assigned to the GPUs round-robin, as in
// the paper.
func (l *living) words(c command) []string {
	path := filepath.Join(l.Tools.Programs, c.program)
	if c.mpi == 0 {
		words := []string{l.Tools.Muster, "run", "--socket", l.sockets[0], "--nodes", strings.Join(l.addresses[1:], ","), "--", path, "--gpus", gpusOf(l.nodes)}
		return append(words, c.args...)
	}
	words := []string{l.mpiexec}
	for r := range c.mpi {
		if r > 0 {
			words = append(words, ":")
		}
		words = append(words, "-n", "1", "-env", "MUSTER_SOCKET", l.sockets[r%len(l.nodes)], path, "--patient")
		words = append(words, c.args...)
	}
	return words
}

// gpusOf lists the number of GPUs of each node, as an option of the programs.
func gpusOf(nodes []part) string {
	return strings.Join(exp.Names(nodes, func(n *part) string { return fmt.Sprint(len(n.cards)) }), ",")
}

// byHost adds up numbers of nodes to numbers of hosts.
func (l *living) byHost(nodes []int64) []int64 {
	if nodes == nil {
		return nil
	}
	all := make([]int64, len(hosts))
	for i, n := range nodes {
		all[l.nodes[i].host] += n
	}
	return all
}

// run runs a program to its end.
func (l *living) run(ctx context.Context, c command) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, patienceRun)
	defer cancel()
	words := l.words(c)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // mpiexec then ends its processes
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = l.Tools.Environment("LD_LIBRARY_PATH=" + l.Tools.Lib)
	before, machine, began := l.traffic(), bench.Watch(), time.Now()
	text, err := cmd.CombinedOutput()
	late := machine()
	if err == nil && !strings.Contains(string(text), " right") {
		err = errors.New("it does not say that its results are right")
	}
	if err != nil {
		return outcome{}, fmt.Errorf("%s %s: %w\n%s", c.program, strings.Join(c.args, " "), errors.Join(context.Cause(ctx), l.Lost(), err), text)
	}
	out, err := parse(string(text), began)
	if err == nil && max(len(out.Work), len(out.Hosts)) > len(l.nodes) {
		err = fmt.Errorf("%s speaks of nodes that are not there:\n%s", c.program, text)
	}
	if err != nil {
		return out, err
	}
	out.Work, out.Hosts = l.byHost(out.Work), l.byHost(out.Hosts)
	out.Late, out.Traffic = late, l.traffic()-before
	return out, nil
}

// parse extracts the measurements from a program's output.
func parse(text string, began time.Time) (outcome, error) {
	var out outcome
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 2 {
			continue
		}
		numbers := make([]float64, len(words)-1)
		var wrong error
		for i, w := range words[1:] {
			var err error
			numbers[i], err = strconv.ParseFloat(w, 64)
			wrong = errors.Join(wrong, err)
		}
		if wrong != nil {
			continue // text for people
		}
		switch words[0] {
		case "finished":
			out.Seconds = numbers[0] - float64(began.UnixNano())/1e9
		case "work":
			out.Work = whole(numbers)
		case "hosts":
			out.Hosts = whole(numbers)
		case "elements":
			out.Elements = int(numbers[0])
		case "created":
			out.Created = numbers[0]
		case "deviations":
			out.Deviations = numbers
		}
	}
	if out.Seconds <= 0 {
		return out, fmt.Errorf("the program did not say when it had finished:\n%s", text)
	}
	return out, nil
}

func whole(numbers []float64) []int64 {
	list := make([]int64, len(numbers))
	for i, n := range numbers {
		list[i] = int64(n)
	}
	return list
}

// traffic is the number of bytes that the daemons of all hosts but the first have read and written
// so far. It excludes what their elements do on their own node: that goes through shared memory,
// and through connections that daemons read with recvmsg, which the system counts elsewhere.
func (l *living) traffic() int64 {
	sum := int64(0)
	for _, n := range l.nodes {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", l.Process(n.name)))
		if err != nil || n.host == 0 {
			continue
		}
		for line := range strings.Lines(string(text)) {
			var v int64
			if n, _ := fmt.Sscanf(line, "rchar: %d", &v); n == 1 {
				sum += v
			}
			if n, _ := fmt.Sscanf(line, "wchar: %d", &v); n == 1 {
				sum += v
			}
		}
	}
	return sum
}
