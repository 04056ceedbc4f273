package gremm

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"muster/exp/bench"
	"muster/node/ask"
	"muster/node/gateway"
	"muster/wire/client"
	"muster/wire/grant"
)

// The live cluster has four nodes with one software GPU each, and on each node as many processes as
// the paper has per GPU. A software GPU with a fixed rate paces each kernel by its number of
// operations, so a kernel's time does not depend on the speed of this machine.
const (
	liveNodes   = 4
	livePerNode = 4
	liveRate    = 2_000_000 // operations a second
	liveMemory  = 1 << 30
	liveProgram = "mapped"
	// liveBytes limits the data sent to a kernel.
	liveBytes = 4 << 20
)

// fleet is the nodes and the worker processes (puppets). One fleet serves many runs.
type fleet struct {
	bench.Daemons
	star    *bench.Star
	folder  string
	sockets []string
	// puppets are the processes that run kernels on command, ordered by node.
	puppets []*puppet
	heard   chan message
	// mapper is the mapper that the node itself uses; it then has all GPUs. It is "" where the
	// proxy maps.
	mapper string
}

// puppet is a process that runs kernels on the devices that the experiment names. It is controlled
// by lines over a socket: "cpu US" makes it compute for a time and answer "launch"; "run DEVICE
// TURNS IN OUT" makes it run a kernel and answer "ran" when the kernel has run and "done" when the
// results have arrived.
type puppet struct {
	number int
	cmd    *exec.Cmd
	output bytes.Buffer // to be read when it has ended
	conn   net.Conn
	ended  chan struct{}
	busy   bool // it has been told something and has not finished answering
}

// message is a line that a puppet sent. An empty word says that its connection has ended.
type message struct {
	from int
	word string
	at   time.Time
}

// startFleet starts a node at each end of a network, and puppets that see all GPUs. If mapper is
// not "", the network has one end: its node has all GPUs and maps the puppets' launches itself, so
// each puppet sees one device.
func startFleet(ctx context.Context, t bench.Tools, star *bench.Star, mapper string) (*fleet, error) {
	f := &fleet{Daemons: bench.Daemons{Tools: t}, star: star, heard: make(chan message, 4*liveNodes*livePerNode), mapper: mapper}
	var err error
	if f.folder, err = os.MkdirTemp("", "muster-gremm-"); err != nil {
		return nil, err
	}
	if err = f.start(ctx); err != nil {
		f.stop()
		return nil, fmt.Errorf("%w\n%s", errors.Join(ctx.Err(), err), f.Logs())
	}
	return f, nil
}

func (f *fleet) start(ctx context.Context) error {
	addresses, authority, err := f.startNodes(ctx)
	if err != nil {
		return err
	}
	if f.mapper == "" {
		if err := f.admit(addresses, authority); err != nil {
			return err
		}
	}
	for p := range liveNodes * livePerNode {
		n := p / livePerNode
		words, devices := f.words(n)
		if err := f.startPuppet(ctx, n%len(f.sockets), words, devices); err != nil {
			return err
		}
	}
	for _, p := range f.puppets {
		if err := p.expect(ctx, f, "ready"); err != nil {
			return err
		}
	}
	return f.warm(ctx)
}

// warm makes each puppet run a kernel on each of its devices, because the first launch on a device
// loads the code and would distort the measurements.
func (f *fleet) warm(ctx context.Context) error {
	for i, p := range f.puppets {
		_, devices := f.words(i / livePerNode)
		for d := range devices {
			if _, err := f.call(ctx, p, d, 1, 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// words are the options of "muster run" for a puppet on node n, and the number of devices that it
// opens.
func (f *fleet) words(n int) ([]string, int) {
	if f.mapper != "" {
		return []string{"--mapping", f.mapper}, 1
	}
	return []string{"--grant", f.sockets[n] + ".grant"}, liveNodes
}

// startNodes starts the nodes. It returns the addresses of their gateways and the certificate of
// the authority that signed theirs.
func (f *fleet) startNodes(ctx context.Context) (addresses []string, authority string, err error) {
	ca, _, err := gateway.OpenAuthority(f.folder, time.Now())
	if err != nil {
		return nil, "", err
	}
	var hosts []string
	for _, e := range f.star.Ends {
		hosts = append(hosts, e.Address)
	}
	certificates, err := ca.Node(hosts, 30)
	if err != nil {
		return nil, "", err
	}
	for n, e := range f.star.Ends {
		address, err := e.FreePort()
		if err != nil {
			return nil, "", err
		}
		socket := filepath.Join(f.folder, nodeName(n))
		addresses, f.sockets = append(addresses, address), append(f.sockets, socket)
		err = e.Do(func() error {
			return f.LaunchNode(nodeName(n), socket, "--allow", "own", "--name", nodeName(n), "--state", socket+".state", "--listen", address, "--tls-dir", certificates,
				"--devices", strings.Join(slices.Repeat([]string{fmt.Sprintf("soft:memory=%d,rate=%d,workers=1", liveMemory, liveRate)}, liveNodes/len(f.star.Ends)), ";"), "--vgpus", "64", "--log-level", "error")
		})
		if err != nil {
			return nil, "", err
		}
	}
	if err := f.AwaitNodes(ctx, f.sockets...); err != nil {
		return nil, "", err
	}
	text, err := os.ReadFile(filepath.Join(f.folder, client.FileCA))
	return addresses, string(text), err
}

func nodeName(n int) string { return fmt.Sprintf("n%d", n) }

// admit grants all GPUs to the puppets. Each node gets its own copy of the grant, with the
// addresses of the other nodes' GPUs.
func (f *fleet) admit(addresses []string, authority string) error {
	who, err := user.Current()
	if err != nil {
		return err
	}
	g := grant.Grant{ID: "gremm", User: who.Username, Secret: grant.NewCredential(), Limit: grant.AllDevices, Authority: authority}
	for own := range liveNodes {
		g.Devices = nil
		for n, address := range addresses {
			d, err := grant.ParseDevice(nodeName(n) + ":0")
			if err != nil {
				return err
			}
			if n != own {
				d.Address = address
			}
			g.Devices = append(g.Devices, d)
		}
		if _, err := ask.Admit(f.sockets[own], &g, g.On(nodeName(own)), grant.AllDevices, time.Time{}); err != nil {
			return err
		}
		text, err := g.Encode()
		if err != nil {
			return err
		}
		if err := os.WriteFile(f.sockets[own]+".grant", text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// startPuppet starts a puppet on node n and waits for nothing: the puppet connects and says "ready"
// in its own time.
func (f *fleet) startPuppet(ctx context.Context, n int, words []string, devices int) error {
	p := &puppet{number: len(f.puppets), ended: make(chan struct{}), busy: true}
	path := filepath.Join(f.folder, fmt.Sprintf("p%d", p.number))
	door, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return err
	}
	words = append(append([]string{"run", "--socket", f.sockets[n]}, words...), "--", filepath.Join(f.Tools.Programs, liveProgram), "--devices", fmt.Sprint(devices), "--size", fmt.Sprint(liveBytes), "--gate", path, "--seed", fmt.Sprint(p.number))
	p.cmd = exec.CommandContext(ctx, f.Tools.Muster, words...)
	p.cmd.Env = f.Tools.Environment()
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 5 * time.Second
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := f.star.Ends[n].Do(p.cmd.Start); err != nil {
		door.Close()
		return err
	}
	f.puppets = append(f.puppets, p)
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
		door.Close()
	}()
	go p.listen(door, f.heard)
	return nil
}

// listen forwards what a puppet says. When the puppet's connection ends, listen sends a message
// with an empty word, and next turns that into an error.
func (p *puppet) listen(door net.Listener, heard chan<- message) {
	if conn, err := door.Accept(); err == nil {
		p.conn = conn
		lines := bufio.NewScanner(conn)
		for lines.Scan() {
			heard <- message{p.number, lines.Text(), time.Now()}
		}
	}
	heard <- message{p.number, "", time.Now()}
}

// tell sends a command to a puppet.
func (p *puppet) tell(format string, args ...any) error {
	p.busy = true
	_, err := fmt.Fprintf(p.conn, format+"\n", args...)
	return err
}

// failure describes the unexpected end of a puppet.
func (p *puppet) failure() error {
	select {
	case <-p.ended:
		return fmt.Errorf("process %d ended: %v: %s", p.number, p.cmd.ProcessState, strings.TrimSpace(p.output.String()))
	case <-time.After(time.Second):
		return fmt.Errorf("process %d says nothing any more", p.number)
	}
}

// next waits for the next message of any puppet. late says that until fired first.
func (f *fleet) next(ctx context.Context, until <-chan time.Time) (m message, late bool, err error) {
	select {
	case m = <-f.heard:
		if m.word == "" {
			err = errors.Join(ctx.Err(), f.puppets[m.from].failure())
		}
		return m, false, err
	case <-until:
		return m, true, nil
	case <-ctx.Done():
		return m, false, ctx.Err()
	}
}

// expect waits until a puppet has said a word. All puppets start concurrently, so others may say it
// first; those are marked as heard, and their own expect returns at once.
func (p *puppet) expect(ctx context.Context, f *fleet, word string) error {
	for p.busy {
		m, _, err := f.next(ctx, nil)
		if err != nil {
			return err
		}
		if m.word == word {
			f.puppets[m.from].busy = false
		}
	}
	return nil
}

// call makes a puppet run a kernel while the others are idle. It returns the time until the kernel
// had run, in seconds, and waits for the end of the call.
func (f *fleet) call(ctx context.Context, p *puppet, device, turns, in int) (ran float64, err error) {
	began := time.Now()
	if err := p.tell("run %d %d %d 0", device, turns, in); err != nil {
		return 0, err
	}
	for p.busy {
		m, _, err := f.next(ctx, nil)
		switch {
		case err != nil:
			return 0, err
		case m.word == "ran":
			ran = m.at.Sub(began).Seconds()
		default: // done
			p.busy = false
		}
	}
	return ran, nil
}

// stop ends the puppets, then the nodes.
func (f *fleet) stop() {
	for _, p := range f.puppets {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
	}
	for _, p := range f.puppets {
		<-p.ended
	}
	_ = f.Stop()
	_ = os.RemoveAll(f.folder)
}
