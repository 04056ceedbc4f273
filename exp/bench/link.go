package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Link is a network with two ends on this machine. A link made by NewLink has a limited bandwidth,
// which its users share fairly: its ends are network namespaces joined by a veth pair.
type Link struct {
	Near, Far *End
	// Rate is the bandwidth in each direction, in bytes per second; 0 for the loopback interface,
	// whose throughput is limited only by the processors.
	Rate int64
}

// End is a place from which sockets and processes use a link.
type End struct {
	Address string
	// do hands functions to the goroutine whose thread is in the namespace. It is nil for the
	// loopback interface, where any thread can run them.
	do     chan func()
	thread int
}

// Loopback is a link over the loopback interface, without a bandwidth limit.
func Loopback() *Link {
	return &Link{Near: &End{Address: "127.0.0.1"}, Far: &End{Address: "127.0.0.1"}}
}

// ErrNoLink says that this machine cannot make a link with a bandwidth.
var ErrNoLink = errors.New("no link with a bandwidth can be made here")

// linkAddresses are the addresses of the ends. They are visible only inside the two namespaces.
var linkAddresses = [2]string{"10.77.0.1", "10.77.0.2"}

// NewLink makes a link with the given bandwidth in each direction, in bytes per second, for the
// given number of background users beside the one that is measured. It needs root and iproute2. The
// kernel removes the link when it has been closed and the processes that use it have ended.
func NewLink(rate int64, users int) (*Link, error) {
	if err := linkTools(); err != nil {
		return nil, err
	}
	l := &Link{Rate: rate}
	var err error
	if l.Near, err = enter(linkAddresses[0]); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoLink, err)
	}
	if l.Far, err = enter(linkAddresses[1]); err == nil {
		err = l.wire(users)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("%w: %w", ErrNoLink, err)
	}
	return l, nil
}

// linkTools says what this machine lacks for making namespaces and veth pairs.
func linkTools() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: network namespaces need root", ErrNoLink)
	}
	for _, tool := range []string{"ip", "tc"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("%w: %s is missing (Debian: apt-get install iproute2)", ErrNoLink, tool)
		}
	}
	return nil
}

// enter makes a network namespace and the thread that lives in it. The thread serves only this end
// and exits when the end is closed.
func enter(address string) (*End, error) {
	e := &End{Address: address, do: make(chan func())}
	entered := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: Go then ends the thread with the goroutine, and no other goroutine runs in this namespace
		err := syscall.Unshare(syscall.CLONE_NEWNET)
		e.thread = syscall.Gettid()
		entered <- err
		if err != nil {
			return
		}
		for f := range e.do {
			f()
		}
	}()
	if err := <-entered; err != nil {
		return nil, fmt.Errorf("a network namespace: %w", err)
	}
	return e, nil
}

// Star is a network with several ends on this machine: each end is a network namespace, joined by a
// veth pair to a common switch. Each veth pair has a limited bandwidth in both directions.
type Star struct {
	Ends []*End
	hub  *End
}

// LoopbackStar makes a star whose ends share the loopback interface, without bandwidth limits.
func LoopbackStar(ends int) *Star {
	s := &Star{}
	for range ends {
		s.Ends = append(s.Ends, &End{Address: "127.0.0.1"})
	}
	return s
}

// NewStar makes a star of network namespaces. Its requirements are those of NewLink.
func NewStar(rate int64, ends int) (*Star, error) {
	if err := linkTools(); err != nil {
		return nil, err
	}
	s := &Star{}
	err := s.wire(rate, ends)
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("%w: %w", ErrNoLink, err)
	}
	return s, nil
}

func (s *Star) wire(rate int64, ends int) (err error) {
	if s.hub, err = enter(""); err != nil {
		return err
	}
	if err = s.hub.Do(func() error { return commands("ip link add hub type bridge", "ip link set hub up") }); err != nil {
		return err
	}
	for i := range ends {
		e, err := enter(fmt.Sprintf("10.77.0.%d", i+1))
		if err != nil {
			return err
		}
		s.Ends = append(s.Ends, e)
		port := fmt.Sprintf("port%d", i)
		err = s.hub.Do(func() error {
			return commands("ip link add "+port+" type veth peer name far", "ip link set far netns "+e.namespace()+" name cable",
				"ip link set "+port+" master hub up", fmt.Sprintf("tc qdisc add dev %s root tbf rate %dbit burst 64kb latency 100ms", port, 8*rate))
		})
		if err == nil {
			err = e.Do(func() error { return e.shape(rate, 0) })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Close closes all ends.
func (s *Star) Close() {
	for _, e := range append(s.Ends, s.hub) {
		e.close()
	}
}

// namespace is the path under /proc of the end's network namespace.
func (e *End) namespace() string {
	return fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), e.thread)
}

// close ends the end's thread.
func (e *End) close() {
	if e != nil && e.do != nil {
		close(e.do)
	}
}

// Do calls f in the end's namespace: the sockets that f opens and the processes that it starts
// belong to this end.
func (e *End) Do(f func() error) error {
	if e.do == nil {
		return f()
	}
	done := make(chan error)
	e.do <- func() { done <- f() }
	return <-done
}

// wire joins the ends by a veth pair and limits the rate at which each sends.
func (l *Link) wire(users int) error {
	err := l.Near.Do(func() error {
		return commands("ip link add cable type veth peer name far", "ip link set far netns "+l.Far.namespace()+" name cable")
	})
	for _, e := range []*End{l.Near, l.Far} {
		err = errors.Join(err, e.Do(func() error { return e.shape(l.Rate, users) }))
	}
	return err
}

// shape limits the rate at which an end sends, and divides that rate among users with one HTB class
// per user. A packet's class is the priority of its socket; sockets without a priority share class
// 1. Packets are small, and each class is guaranteed only a thousandth of the rate: so users
// alternate packet by packet, and none sends a long burst.
func (e *End) shape(rate int64, users int) error {
	const packet = 8192
	class := func(parent, id string, rate, ceil int64) string {
		return fmt.Sprintf("tc class add dev cable parent 1:%s classid 1:%s htb rate %dbit ceil %dbit burst %d cburst %d quantum %d", parent, id, 8*rate, 8*ceil, packet, packet, packet)
	}
	list := []string{
		fmt.Sprintf("ip link set cable gso_max_size %d", packet),
		"ip address add " + e.Address + "/24 dev cable", "ip link set lo up", "ip link set cable up",
		"tc qdisc add dev cable root handle 1: htb default 1", class("", "ff", rate, rate),
	}
	for u := 1; u <= users+1; u++ {
		list = append(list, class("ff", strconv.FormatInt(int64(u), 16), rate/1000, rate))
	}
	// Use CUBIC if the kernel has it. Other congestion controls converge to their share more
	// slowly.
	_ = os.WriteFile("/proc/sys/net/ipv4/tcp_congestion_control", []byte("cubic"), 0)
	return commands(list...)
}

// commands runs commands in order until one fails.
func commands(list ...string) error {
	for _, line := range list {
		words := strings.Fields(line)
		if text, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, bytes.TrimSpace(text))
		}
	}
	return nil
}

// Close closes both ends.
func (l *Link) Close() {
	l.Near.close()
	l.Far.close()
}

// Traffic is a set of background users of a link, each sending as fast as it can in both
// directions.
type Traffic struct {
	connections []net.Conn
	received    atomic.Int64
	since       time.Time
	all         sync.WaitGroup
}

// Fill starts background users. NewLink must have been called for at least as many.
func (l *Link) Fill(users int) (*Traffic, error) {
	t := &Traffic{since: time.Now()}
	for u := range users {
		near, far, err := l.connect()
		if err == nil {
			t.connections = append(t.connections, near, far)
			if l.Rate > 0 {
				err = errors.Join(classOf(near, u+2), classOf(far, u+2))
			}
		}
		if err != nil {
			t.Stop()
			return nil, fmt.Errorf("traffic beside the program: %w", err)
		}
	}
	for _, c := range t.connections {
		t.all.Go(func() { t.send(c) })
		t.all.Go(func() { t.receive(c) })
	}
	return t, nil
}

// connect makes a connection over a link.
func (l *Link) connect() (near, far net.Conn, err error) {
	var door net.Listener
	err = l.Far.Do(func() (err error) {
		door, err = net.Listen("tcp", l.Far.Address+":0")
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	defer door.Close()
	err = l.Near.Do(func() (err error) {
		near, err = net.Dial("tcp", door.Addr().String())
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if far, err = door.Accept(); err != nil {
		near.Close()
		return nil, nil, err
	}
	return near, far, nil
}

// classOf assigns a connection to one of the link's classes, by the priority of its socket.
func classOf(c net.Conn, class int) error {
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_PRIORITY, 1<<16|class)
	})
	return errors.Join(err, failed)
}

func (t *Traffic) send(c net.Conn) {
	piece := make([]byte, 256<<10)
	for {
		if _, err := c.Write(piece); err != nil {
			return
		}
	}
}

func (t *Traffic) receive(c net.Conn) {
	piece := make([]byte, 256<<10)
	for {
		n, err := c.Read(piece)
		t.received.Add(int64(n))
		if err != nil {
			return
		}
	}
}

// Stop ends the traffic and returns the mean rate received in each direction, in bytes per second,
// by all users together.
func (t *Traffic) Stop() float64 {
	rate := float64(t.received.Load()) / 2 / time.Since(t.since).Seconds()
	for _, c := range t.connections {
		c.Close()
	}
	t.all.Wait()
	return rate
}

// Idle measures a link without background users: its bandwidth in bytes per second, and the
// round-trip time of one byte in seconds.
func (l *Link) Idle(ctx context.Context, during time.Duration) (bandwidth, trip float64, err error) {
	if trip, err = l.trip(); err != nil {
		return 0, 0, err
	}
	t, err := l.Fill(1)
	if err != nil {
		return 0, 0, err
	}
	err = Pause(ctx, during/4) // lets the congestion control reach its steady rate
	t.received.Store(0)
	t.since = time.Now()
	err = errors.Join(err, Pause(ctx, during))
	return t.Stop(), trip, err
}

// trip is the shortest of many round-trip times, in seconds.
func (l *Link) trip() (float64, error) {
	near, far, err := l.connect()
	if err != nil {
		return 0, err
	}
	defer near.Close()
	defer far.Close()
	go io.Copy(far, far)
	shortest, one := time.Hour, make([]byte, 1)
	for range 100 {
		start := time.Now()
		if _, err := near.Write(one); err != nil {
			return 0, err
		}
		if _, err := io.ReadFull(near, one); err != nil {
			return 0, err
		}
		shortest = min(shortest, time.Since(start))
	}
	return shortest.Seconds(), nil
}

// FreePort is an address of this end of the link on which no process listens now.
func (e *End) FreePort() (string, error) {
	var address string
	err := e.Do(func() error {
		l, err := net.Listen("tcp", net.JoinHostPort(e.Address, strconv.Itoa(0)))
		if err != nil {
			return err
		}
		address = l.Addr().String()
		return l.Close()
	})
	return address, err
}
