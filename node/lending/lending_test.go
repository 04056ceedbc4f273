package lending

import (
	"bufio"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"muster/device"
	"muster/node/inventory"
	"muster/node/offload"
	"muster/node/settings"
	"muster/node/vgpu"
	"muster/wire/borrow"
	"muster/wire/control"
)

// theLoop runs functions at once, one after the other.
type theLoop struct {
	mu    sync.Mutex
	ended chan struct{}
	since time.Time
	all   sync.WaitGroup
}

func (l *theLoop) Do(f func()) bool {
	select {
	case <-l.ended:
		return false
	default:
		go l.Ask(f)
		return true
	}
}

func (l *theLoop) Ask(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	return true
}

func (l *theLoop) Ended() <-chan struct{} { return l.ended }
func (l *theLoop) Now() time.Duration     { return time.Since(l.since) }
func (l *theLoop) Go(f func())            { l.all.Go(f) }
func (l *theLoop) Draining() bool         { return false }

// theNode has a program that waits, and no device of its own.
type theNode struct {
	has     []vgpu.DeviceState
	added   chan settings.Device
	removed []vgpu.DeviceID
}

func (n *theNode) Look() Look {
	return Look{Local: offload.Local{Waiting: 1, Pending: 1, Clients: 1}, Used: make([]offload.Clients, len(n.has))}
}

func (n *theNode) Examine(settings.Device) (device.Info, error) { return device.Info{}, nil }

func (n *theNode) Borrow(c settings.Device, _ device.Info, _ offload.Ticket) (vgpu.DeviceID, error) {
	n.has = append(n.has, vgpu.DeviceUp)
	n.added <- c
	return vgpu.DeviceID(len(n.has) - 1), nil
}

func (n *theNode) Remove(id vgpu.DeviceID, _ bool) error {
	n.removed = append(n.removed, id)
	return nil
}

func (n *theNode) State(id vgpu.DeviceID) vgpu.DeviceState { return n.has[id] }
func (n *theNode) Loads(string, []int) []borrow.Load       { return nil }

// lender answers each question with a ticket for its only device, if the asker has none yet.
func lender(conn net.Conn) {
	defer conn.Close()
	for in := bufio.NewReader(conn); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		q, err := borrow.ReadQuestion(line)
		if err != nil {
			return
		}
		a := borrow.Answer{Version: borrow.Version, Node: "lender", Slots: 1, Free: 1}
		if a.Free = 1 - len(q.Holds); q.Slots > 0 && len(q.Holds) == 0 {
			a.Free, a.Ticket = 0, &borrow.Ticket{ID: "ticket-of-the-lender", Device: 3, Slots: 1, Speed: 1}
		}
		answer, err := borrow.Encode(a)
		if err != nil {
			return
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// A program waits on a node without devices: one is borrowed, and is another lender's no more when it is lost.
func TestBorrowing(t *testing.T) {
	loop, node := &theLoop{ended: make(chan struct{}), since: time.Now()}, &theNode{added: make(chan settings.Device, 1)}
	cfg := settings.Config{Name: "borrower", Offload: settings.Offload{Peers: []string{"there:7433"}, Mode: settings.OffloadBorrow}}
	l, err := New(&cfg, loop, node, node, Options{Log: slog.New(slog.DiscardHandler), Dial: func(context.Context, string) (net.Conn, error) {
		near, far := net.Pipe()
		go lender(far)
		return near, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	l.Begin()
	defer func() { close(loop.ended); loop.all.Wait() }()
	has := func() (is bool) {
		loop.Ask(func() { is = len(node.has) > 0 })
		return is
	}
	if err := l.Await(has, time.After(4*time.Minute), nil); err != nil {
		t.Fatal(err, l.WhyNone())
	}
	if c := <-node.added; c.Kind != settings.KindRemote || c.Index != 3 || c.Lender.Address != "there:7433" || c.Lender.Ticket != "ticket-of-the-lender" {
		t.Errorf("%+v was added", c)
	}
	loop.Ask(func() {
		if name := l.Lender("there:7433"); name != "lender" {
			t.Errorf("the lender is %q", name)
		}
		node.has[0] = vgpu.DeviceLost
		l.look()
		if !slices.Equal(node.removed, []vgpu.DeviceID{0}) || len(l.held) != 0 {
			t.Errorf("a lost device is kept: %v, %v", node.removed, l.held)
		}
	})
}

// slowNode has a device, and a program that would run faster on one of another node.
type slowNode struct {
	theNode
	gains bool
	is    chan float64 // the speed of a device that it got
}

func (n *slowNode) Look() Look {
	look := Look{Local: offload.Local{Devices: []offload.Device{{Slots: 4, Used: 1, Speed: 0.5}}, Clients: 1}, Used: make([]offload.Clients, len(n.has))}
	if n.gains {
		look.Gains = []vgpu.Gain{{Speed: 0.6, Stay: time.Second}}
	}
	return look
}

func (n *slowNode) Borrow(_ settings.Device, info device.Info, _ offload.Ticket) (vgpu.DeviceID, error) {
	n.has, n.gains = append(n.has, vgpu.DeviceUp), false
	n.is <- info.Speed
	return vgpu.DeviceID(len(n.has) - 1), nil
}

// A program would run faster elsewhere: a peer is asked at once for a device that is fast enough, also from here.
func TestBorrowingToRunFaster(t *testing.T) {
	loop, node := &theLoop{ended: make(chan struct{}), since: time.Now()}, &slowNode{is: make(chan float64, 1)}
	cfg := settings.Config{Name: "borrower", Offload: settings.Offload{Peers: []string{"there:7433"}, Mode: settings.OffloadBorrow}}
	asked := make(chan borrow.Question, 100)
	l, err := New(&cfg, loop, node, node, Options{Log: slog.New(slog.DiscardHandler), Dial: func(context.Context, string) (net.Conn, error) {
		near, far := net.Pipe()
		go fastLender(far, asked)
		return near, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	l.Begin()
	defer func() { close(loop.ended); loop.all.Wait() }()
	<-asked
	loop.Ask(func() {
		node.gains = true
		l.look()
	})
	for q := range asked {
		if q.Slots == 0 {
			continue
		}
		if q.Slots != 1 || !q.Apart || q.Speed*inventory.Distance < 0.6 || q.Speed > 0.7501 {
			t.Errorf("it asks %+v", q)
		}
		break
	}
	if speed := <-node.is; speed != 1*inventory.Distance {
		t.Errorf("the device counts as one of speed %g", speed)
	}
}

// fastLender has an idle device of speed 1.
func fastLender(conn net.Conn, asked chan borrow.Question) {
	defer conn.Close()
	for in := bufio.NewReader(conn); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		q, _ := borrow.ReadQuestion(line)
		asked <- q
		a := borrow.Answer{Version: borrow.Version, Node: "lender", Slots: 4, Free: 4, Idle: 1, Fastest: 1, Unused: 1}
		if q.Slots > 0 {
			a.Ticket = &borrow.Ticket{ID: "ticket", Slots: 1, Speed: 1}
		}
		answer, _ := borrow.Encode(a)
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

// Who waits for a device gives up in time.
func TestAwaitGivesUp(t *testing.T) {
	loop := &theLoop{ended: make(chan struct{}), since: time.Now()}
	cfg := settings.Config{Offload: settings.Offload{Head: true, Mode: settings.OffloadBorrow}}
	l, err := New(&cfg, loop, &theNode{}, &theNode{}, Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	never, closed := func() bool { return false }, make(chan struct{})
	close(closed)
	late := make(chan time.Time, 1)
	late <- time.Now()
	if err := l.Await(never, late, nil); err != ErrTooLong {
		t.Error(err)
	}
	if err := l.Await(never, nil, closed); err != ErrGone {
		t.Error(err)
	}
	close(loop.ended)
	if err := l.Await(never, nil, nil); err != ErrEnded {
		t.Error(err)
	}
	if l.comers != 0 {
		t.Errorf("%d still wait", l.comers)
	}
}

// A node that neither borrows nor lends asks nobody.
func TestNoLending(t *testing.T) {
	l, err := New(&settings.Config{}, nil, nil, nil, Options{})
	if l != nil || err != nil {
		t.Fatal(l, err)
	}
	l.Touch()
	l.Tend()
	if _, ok := l.Next(); ok || l.Lent() != nil || l.Lender("x") != "x" {
		t.Error("it has something to do")
	}
}

// A lender is given up after some fair intervals of silence, and not if it refuses.
func TestSilentLenders(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		lost int
	}{{"silent", context.DeadlineExceeded, 1}, {"refuses", errors.New("no"), 0}} {
		pending := make(chan func(), 1)
		l := NewLenders(func(f func()) bool { pending <- f; return true }, func(control.DeviceConfig) (device.Device, error) { return nil, c.err }, nil, 3)
		stock := &inventory.Inventory{Entries: []inventory.Device{{Device: settings.Device{DeviceConfig: control.DeviceConfig{Kind: settings.KindRemote}}, Here: true}}}
		lost := 0
		check := func(fair bool) {
			l.Check(fair, func() *inventory.Inventory { return stock }, func(vgpu.DeviceID) bool { return true }, func(vgpu.DeviceID) { lost++ })
		}
		for range 4 {
			check(false) // the machine slept
			(<-pending)()
		}
		for range 3 {
			check(true)
			select {
			case f := <-pending:
				f()
			case <-time.After(time.Millisecond):
			}
		}
		if lost != c.lost {
			t.Errorf("%s: lost %d times", c.name, lost)
		}
	}
}
