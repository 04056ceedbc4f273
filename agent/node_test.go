package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"muster/model"
	"muster/node/gateway"
	wire "muster/wire/agent"
	"muster/wire/client"
	"muster/wire/grant"
	"muster/wire/status"
)

// daemon is a node's, in a test.
type daemon struct {
	mu      sync.Mutex
	did     []string
	devices []status.Device
	away    bool
	gate    chan struct{} // nil, or what Admit waits for
	lacks   int           // how often it cannot have devices of other nodes
}

func (d *daemon) note(format string, args ...any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.did = append(d.did, fmt.Sprintf(format, args...))
	return nil
}

func (d *daemon) Admit(loan grant.Loan) error {
	d.mu.Lock()
	gate := d.gate
	d.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if loan.ID == "full" {
		return errors.New("no room")
	}
	d.mu.Lock()
	away := d.away
	lacks := loan.Home != "" && d.lacks > 0
	if lacks {
		d.lacks--
	}
	d.mu.Unlock()
	if lacks {
		return errors.New("node n2 is not reached")
	}
	if away {
		_ = d.note("nobody admits %s", loan.ID)
		return fmt.Errorf("%w: nobody answers", ErrAway)
	}
	return d.note("admit %s %d", loan.ID, loan.Limit)
}
func (d *daemon) Revoke(id string) error {
	d.mu.Lock()
	away := d.away
	d.mu.Unlock()
	if away {
		_ = d.note("nobody revokes %s", id)
		return errors.New("nobody answers")
	}
	return d.note("revoke %s", id)
}
func (d *daemon) Limit(id string, limit int) error { return d.note("limit %s %d", id, limit) }

// configure has the daemon refuse more than ten virtual GPUs.
func (d *daemon) configure(s model.NodeSettings) (model.NodeSettings, error) {
	d.mu.Lock()
	away := d.away
	d.mu.Unlock()
	switch {
	case away:
		_ = d.note("nobody configures: %v", s)
		return s, fmt.Errorf("%w: nobody answers", ErrAway)
	case s.VGPUs > 10:
		return s, errors.New("that is too many")
	}
	return s.Over(model.NodeSettings{VGPUs: 4, Policy: "fcfs"}), d.note("configure: %v", s)
}

func (d *daemon) ask(context.Context) (*status.Node, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.away {
		return nil, errors.New("nobody answers")
	}
	return &status.Node{Devices: slices.Clone(d.devices)}, nil
}

func (d *daemon) change(do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	do()
}

// awaitLast waits until the daemon was told something.
func (d *daemon) awaitLast(t *testing.T, want string) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		d.mu.Lock()
		last := ""
		if n := len(d.did); n > 0 {
			last = d.did[n-1]
		}
		d.mu.Unlock()
		if last == want {
			return
		}
	}
	t.Fatalf("the daemon was told %q, and not %q", d.did, want)
}

func (h *head) awaitLent(id string) wire.Lent {
	h.t.Helper()
	for {
		if l, ok := h.next().(wire.Lent); ok && l.ID == id {
			return l
		}
	}
}

// The daemon serves what the head lends, for as long as the task lasts, also after the
// agent was started again.
func TestLoans(t *testing.T) {
	h, d := newHead(t), &daemon{}
	use := func(c *Config) { c.Grants = d }
	h.run(use)
	s := h.job(1, "sleep", "1000")
	s.Grant = testGrant()
	s.Grant.User = s.Spec.User
	h.send(wire.Lend{Loan: s.Grant.Loan("n1")})
	if l := h.awaitLent("1.1.0"); l.Error != "" {
		t.Error(l)
	}
	full := s.Grant.Loan("n1")
	full.ID = "full"
	h.send(wire.Lend{Loan: full})
	if l := h.awaitLent("full"); l.Error != "no room" {
		t.Error(l)
	}
	h.send(s)
	h.await(s.Task, wire.Running)
	h.send(wire.Suspend{Task: s.Task})
	h.await(s.Task, wire.Suspended)
	d.awaitLast(t, "limit 1.1.0 0")
	h.stop()
	h.run(use)
	d.awaitLast(t, "admit 1.1.0 0")
	if !slices.Equal(h.hello.Loans, []string{"1.1.0"}) {
		t.Errorf("%q", h.hello.Loans)
	}
	h.send(wire.Limit{ID: "1.1.0", Limit: 1})
	h.send(wire.Resume{Task: s.Task})
	h.await(s.Task, wire.Running)
	d.awaitLast(t, "limit 1.1.0 1")
	h.send(wire.Stop{Task: s.Task, Cause: wire.Stopped})
	h.await(s.Task, wire.Ended)
	d.awaitLast(t, "revoke 1.1.0")
}

// A task does not begin before the daemon serves its grant: its program would be told that
// nobody knows it.
func TestTaskWaitsForItsGrant(t *testing.T) {
	h, d := newHead(t), &daemon{gate: make(chan struct{})}
	admit := sync.OnceFunc(func() { close(d.gate) })
	defer admit()
	h.run(func(c *Config) { c.Grants = d })
	s := h.job(1, "sleep", "1000")
	s.Grant = testGrant()
	s.Grant.User = s.Spec.User
	h.send(wire.Lend{Loan: s.Grant.Loan("n1")})
	h.send(s)
	// Others, which have no grant, come and go meanwhile.
	for number := range uint64(5) {
		h.send(h.job(number+2, "true"))
		for ended := false; !ended; {
			switch m := h.next().(type) {
			case wire.Lent:
				t.Fatalf("the daemon has not admitted anything: %+v", m)
			case wire.Report:
				if m.Task == s.Task {
					t.Fatalf("the task is %s, and the daemon knows nothing of its grant", m.State)
				}
				ended = m.State == wire.Ended
			}
		}
	}
	admit()
	if l := h.awaitLent("1.1.0"); l.Error != "" {
		t.Error(l)
	}
	h.await(s.Task, wire.Running)
	h.send(wire.Stop{Task: s.Task, Cause: wire.Stopped})
	h.await(s.Task, wire.Ended)
}

// An agent greets when it knows the node's devices: a head that hears of fewer than there were
// takes the node for another machine, and what runs there for lost.
func TestHelloHasDevices(t *testing.T) {
	up := []status.Device{{Name: "GPU", Memory: 1 << 30, Speed: 1, State: "up"}}
	h, d := newHead(t), &daemon{devices: up}
	asked := 0
	h.run(func(c *Config) {
		c.Status = func(ctx context.Context) (*status.Node, error) {
			if asked++; asked == 1 {
				return nil, errors.New("nobody answers yet")
			}
			return d.ask(ctx)
		}
	})
	if len(h.hello.Devices) != 1 {
		t.Errorf("the agent greeted with %d devices", len(h.hello.Devices))
	}
}

// A loan of which the daemon cannot be told waits for the daemon: the head is not told that the node cannot
// lend, and the task does not begin.
func TestLoanWaitsForTheDaemon(t *testing.T) {
	h, d := newHead(t), &daemon{away: true}
	use := func(c *Config) { c.Grants = d }
	h.run(use)
	s := h.job(1, "sleep", "1000") // it must not be over before the next agent greets
	s.Grant = testGrant()
	s.Grant.User = s.Spec.User
	h.send(wire.Lend{Loan: s.Grant.Loan("n1")})
	h.send(s)
	for range 2 { // it tries again
		d.awaitLast(t, "nobody admits 1.1.0")
		d.change(func() { d.did = nil })
	}
	h.stop()
	if _, err := os.Lstat(filepath.Join(h.spool, tasksName, s.Task.String(), logName)); err == nil {
		t.Error("the task was started, and the daemon knows nothing of its grant")
	}
	d.change(func() { d.away = false })
	h.run(use)
	if !slices.Equal(h.hello.Loans, []string{"1.1.0"}) {
		t.Errorf("%q", h.hello.Loans)
	}
	h.await(s.Task, wire.Running)
	h.send(wire.Stop{Task: s.Task, Cause: wire.Stopped})
	h.await(s.Task, wire.Ended)
}

// The daemon is told again of devices of other nodes that it could not have. The head hears in the end that it
// cannot, and then lends the node its own. What the spool has of such a loan is for the agent alone to read.
func TestHomeIsToldAgain(t *testing.T) {
	h, d := newHead(t), &daemon{}
	h.run(func(c *Config) { c.Grants = d })
	dir := t.TempDir()
	_, _, err := gateway.OpenAuthority(dir, time.Now())
	var authority []byte
	if err == nil {
		authority, err = os.ReadFile(filepath.Join(dir, client.FileCA))
	}
	if err != nil {
		t.Fatal(err)
	}
	g := testGrant()
	g.Authority = string(authority)
	g.Devices[1].Address, g.Devices[1].Reach = "n2:9421", model.ReachNode
	d.lacks = homeTries - 1
	h.send(wire.Lend{Loan: g.HomeLoan("n1")})
	if l := h.awaitLent(g.ID); l.Error != "" {
		t.Error(l)
	}
	path := filepath.Join(h.spool, loansName, loanFile(g.ID))
	text, err := os.ReadFile(path)
	info, statErr := os.Stat(path)
	if err != nil || statErr != nil || info.Mode() != 0o600 || !strings.Contains(string(text), string(g.Secret)) {
		t.Errorf("the spool has %s, %v, %v %v", text, info.Mode(), err, statErr)
	}
	h.send(wire.Unlend{ID: g.ID})
	d.awaitLast(t, "revoke "+g.ID)
	d.change(func() { d.lacks = homeTries })
	h.send(wire.Lend{Loan: g.HomeLoan("n1")})
	if l := h.awaitLent(g.ID); l.Error != "node n2 is not reached" {
		t.Error(l)
	}
	h.send(wire.Lend{Loan: g.Loan("n1")})
	if l := h.awaitLent(g.ID); l.Error != "" {
		t.Error(l)
	}
	if text, err = os.ReadFile(path); err != nil || strings.Contains(string(text), string(g.Secret)) {
		t.Errorf("the spool has %s, %v", text, err)
	}
}

// The daemon is told how to serve programs, when it is there, and again when it has begun anew; the head hears what
// came of it.
func TestNodeIsConfigured(t *testing.T) {
	h, d := newHead(t), &daemon{}
	use := func(c *Config) { c.Configure, c.Status = d.configure, d.ask }
	h.run(use)
	awaitConfigured := func(told, inForce, wrong string) {
		t.Helper()
		for {
			if m, ok := h.next().(wire.Configured); ok && m.Told.String() == told {
				if m.InForce.String() != inForce || m.Error != wrong {
					t.Errorf("%+v", m)
				}
				return
			}
		}
	}
	h.send(wire.Configure{Settings: model.NodeSettings{VGPUs: 2}})
	awaitConfigured("vgpus 2", "vgpus 2, policy fcfs, profiling 5s", "")
	h.send(wire.Configure{Settings: model.NodeSettings{VGPUs: 20, Profiling: 60}})
	awaitConfigured("vgpus 20, profiling 60s", "vgpus 2, policy fcfs, profiling 5s", "that is too many")
	d.change(func() { d.away = true })
	h.send(wire.Configure{Settings: model.NodeSettings{VGPUs: 3, Policy: "sjf"}})
	d.awaitLast(t, "nobody configures: vgpus 3, policy sjf")
	d.change(func() { d.away = false })
	awaitConfigured("vgpus 3, policy sjf", "vgpus 3, policy sjf, profiling 5s", "")

	// Another agent knows nothing of it until its head says it.
	h.stop()
	h.run(use)
	h.send(wire.Configure{Settings: model.NodeSettings{Policy: "credit"}})
	awaitConfigured("policy credit", "vgpus 4, policy credit, profiling 5s", "")
	h.stop()
	h.run()
	h.send(wire.Configure{Settings: model.NodeSettings{Policy: "sjf"}})
	awaitConfigured("policy sjf", "", "this node has no daemon that serves programs")
}

// A loan that is over is revoked by the next agent if the daemon did not answer this one, as
// when both end at that moment.
func TestLoanIsRevokedLater(t *testing.T) {
	h, d := newHead(t), &daemon{}
	use := func(c *Config) { c.Grants = d }
	h.run(use)
	s := h.job(1, "true")
	s.Grant = testGrant()
	s.Grant.User = s.Spec.User
	h.send(wire.Lend{Loan: s.Grant.Loan("n1")})
	h.awaitLent("1.1.0")
	d.change(func() { d.away = true })
	h.send(s)
	h.await(s.Task, wire.Ended)
	h.send(wire.Done{Task: s.Task})
	d.awaitLast(t, "nobody revokes 1.1.0")
	h.stop()
	d.change(func() { d.away = false })
	h.run(use)
	d.awaitLast(t, "revoke 1.1.0")
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		left, err := os.ReadDir(filepath.Join(h.spool, loansName))
		if err == nil && len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the spool still has %v: %v", left, err)
		}
	}
}

// The head hears of devices that come and go, and a daemon that comes back of the
// loans.
func TestDevices(t *testing.T) {
	up := []status.Device{{Name: "GPU", Memory: 1 << 30, Speed: 1, State: "up"}}
	h, d := newHead(t), &daemon{devices: up}
	h.run(func(c *Config) { c.Grants, c.Status = d, d.ask })
	inventory := func(want ...bool) {
		t.Helper()
		for {
			i, ok := h.next().(wire.Inventory)
			if ok && slices.EqualFunc(i.Devices, want, func(d wire.Device, up bool) bool { return d.Up == up }) {
				return
			}
		}
	}
	if !slices.Equal(h.hello.Devices, DevicesOf(&status.Node{Devices: up})) {
		t.Errorf("the greeting has %v", h.hello.Devices)
	}
	d.change(func() { d.devices = append(d.devices, status.Device{Name: "GPU", Memory: 1, Speed: 2, State: "lost"}) })
	inventory(true, false)
	h.send(wire.Lend{Loan: testGrant().Loan("n1")})
	h.awaitLent("1.1.0")
	d.change(func() { d.away, d.did = true, nil })
	inventory(false, false)
	d.change(func() { d.away = false })
	inventory(true, false)
	d.awaitLast(t, "admit 1.1.0 -1")
}

// An agent that hears nothing from the head comes again, and one that is asked answers.
func TestSilence(t *testing.T) {
	h := newHead(t)
	h.silence = 20 * time.Millisecond
	h.run()
	h.welcome() // again
	h.silence = time.Minute
	h.welcome()
	h.send(wire.Ping{})
	for {
		if _, ok := h.next().(wire.Pong); ok {
			break
		}
	}
	h.send(wire.Refused{Reason: "not now"})
	h.welcome()
}

// What a node has borrowed is not told to the head as the node's; the numbers of its own devices stay.
func TestBorrowedDevicesAreNotTheClusters(t *testing.T) {
	own := status.Device{Name: "GPU", Memory: 1 << 30, Speed: 1, State: "up"}
	borrowed := own
	borrowed.Borrowed = true
	for _, c := range []struct {
		devices []status.Device
		want    []bool
	}{
		{[]status.Device{own, borrowed, borrowed}, []bool{true}},
		{[]status.Device{own, borrowed, own, borrowed}, []bool{true, false, true}},
		{[]status.Device{borrowed}, nil},
	} {
		got := DevicesOf(&status.Node{Devices: c.devices})
		if !slices.EqualFunc(got, c.want, func(d wire.Device, up bool) bool { return d.Up == up }) {
			t.Errorf("%+v is told as %+v", c.devices, got)
		}
	}
}

// An agent that is to know peers asks the head for them and hands its answer on.
func TestPeers(t *testing.T) {
	h := newHead(t)
	heard := make(chan []string, 16)
	h.run(func(c *Config) { c.Peers = func(gateways []string) { heard <- gateways } })
	for {
		if _, asks := h.next().(wire.AskPeers); asks {
			break
		}
	}
	want := []string{"n2:9421", "n3:9421"}
	h.send(wire.Peers{Gateways: want})
	if got := <-heard; !slices.Equal(got, want) {
		t.Errorf("the agent heard of %v", got)
	}
}
