package gateway

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/wire"
	"muster/wire/client"
	"muster/wire/lanes"
)

var benchGeometry = wire.Geometry{Ring: 1 << 20, Staging: 16 << 20, Bounce: 16 << 20, Pinned: 256 << 20}

// The daemon with its worker, the gateway, the relay and the program are
// processes of their own, as they are in life. They say where they can be
// reached, and end when their standard input does.
func start(b *testing.B, args ...string) (address string) {
	b.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), processVariable+"="+strings.Join(args, " "))
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := child.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		stdin.Close()
		_ = child.Wait()
		delete(started, child.Process.Pid)
	})
	started[child.Process.Pid] = args[0] == "tls"
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		b.Fatal(args, err)
	}
	return strings.TrimSpace(line)
}

// started are the processes of a benchmark, and whether they are of the connections beside ours.
var started = map[int]bool{}

// processorTime is what those processes have used, ours or the others.
func processorTime(b *testing.B, beside bool) (sum time.Duration) {
	for pid, is := range started {
		if is != beside {
			continue
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			b.Fatal(err)
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		for _, field := range fields[11:13] { // utime and stime, in hundredths of a second
			ticks, err := strconv.Atoi(field)
			if err != nil {
				b.Fatal(err)
			}
			sum += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return sum
}

// ownTime is what this process has used.
func ownTime() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// untilInputEnds says where a process can be reached, and waits.
func untilInputEnds(address string) {
	fmt.Println(address)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// runDaemon plays a daemon whose worker does as little as it can.
func runDaemon([]string) error {
	d := &testDaemon{socket: newSocket(), geometry: benchGeometry, atOnce: true}
	var err error
	if d.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: d.socket, Net: "unix"}); err != nil {
		return err
	}
	go d.run(func(err error) { fmt.Fprintln(os.Stderr, err) })
	untilInputEnds(d.socket)
	return nil
}

func runGateway(args []string) error {
	config, err := LoadDir(args[0] + "/node-localhost")
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() {
		g, err := New(listener.(*net.TCPListener), Config{Socket: args[1], TLS: config, Token: benchToken, Plain: true, Log: quiet})
		if err == nil {
			g.Serve(context.Background())
		}
	}()
	untilInputEnds(listener.Addr().String())
	return nil
}

func runRelay(args []string) error {
	config, err := client.LoadTLS(args[0] + "/user-ada")
	if err != nil {
		return err
	}
	socket := newSocket()
	near, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return err
	}
	remote := client.Remote{Dial: client.Dialler(args[1], config), Lane: client.LaneDialler(args[1], config), Token: benchToken}
	if args[2] == "plain" {
		remote = plainRemote(args[1], benchToken)
	}
	go func() { _ = client.Relay(context.Background(), near, remote, quiet) }()
	untilInputEnds(socket)
	return nil
}

// runTLS is the other side of plainTLS.
func runTLS(args []string) error {
	config, err := LoadDir(args[0] + "/node-localhost")
	if err != nil {
		return err
	}
	question, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	answer, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go func() {
		for {
			plain, err := listener.Accept()
			if err != nil {
				return
			}
			go answerTLS(tls.Server(plain, strict(config, slog.New(slog.DiscardHandler))), make([]byte, question), make([]byte, answer))
		}
	}()
	untilInputEnds(listener.Addr().String())
	return nil
}

func answerTLS(conn *tls.Conn, question, answer []byte) {
	defer conn.Close()
	for {
		if _, err := io.ReadFull(conn, question); err != nil {
			return
		}
		if _, err := conn.Write(answer); err != nil {
			return
		}
	}
}

const benchToken = "benchmark"

// benchSession is a client of a gateway, over a way: tls or plain.
func benchSession(b *testing.B, way string) *client.Session {
	dir := certificates(b)
	s := attachTo(b, start(b, "relay", dir, start(b, "gateway", dir, start(b, "daemon")), way))
	b.Cleanup(s.Close)
	return s
}

// plainTLS is a connection whose other side answers each so many bytes with so
// many others.
func plainTLS(b *testing.B, question, answer int) *tls.Conn {
	return severalTLS(b, 1, question, answer)[0]
}

// severalTLS are such connections.
func severalTLS(b *testing.B, n, question, answer int) (conns []*tls.Conn) {
	dir := certificates(b)
	config, err := client.LoadTLS(dir + "/user-ada")
	if err != nil {
		b.Fatal(err)
	}
	address := start(b, "tls", dir, fmt.Sprint(question), fmt.Sprint(answer))
	for range n {
		conn, err := tls.Dial("tcp", address, config)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		conns = append(conns, conn)
	}
	return conns
}

// asMany is how many connections carry bulk data: copies are measured against as many that
// carry nothing else.
func asMany() int { return min(lanes.Most, client.Lanes()) }

// answersOf is memory for the answers of as many connections, which has its pages.
func answersOf(size int) [][]byte {
	answers := make([][]byte, asMany())
	for i := range answers {
		answers[i] = bytes.Repeat([]byte{1}, size)
	}
	return answers
}

// exchangeAll has all connections do their parts of the work at the same time.
func exchangeAll(b *testing.B, conns []*tls.Conn, question []byte, answers [][]byte) {
	var all sync.WaitGroup
	for i, conn := range conns {
		all.Go(func() { exchange(b, conn, question, answers[i]) })
	}
	all.Wait()
}

// What the program waits for when nothing is answered.
func BenchmarkPost(b *testing.B) {
	s := benchSession(b, "tls")
	for b.Loop() {
		if err := s.Producer.Post(&wire.Fill{Dst: deviceBase, Count: 1}); err != nil {
			b.Fatal(err)
		}
	}
	synchronise(b, s)
}

func synchronise(b *testing.B, s *client.Session) {
	if _, err := s.Producer.Call(&wire.Synchronise{}, nil); err != nil {
		b.Fatal(err)
	}
}

// The rest is measured against a connection of TLS alone, in turns, so that
// whatever else the machine does hurts both alike.
type turns struct {
	ours, plain         time.Duration
	oursUsed, plainUsed time.Duration // processor time of this process
	oursMade, plainMade time.Duration // of the others, before the first turn
}

func newTurns(b *testing.B) *turns {
	return &turns{oursMade: processorTime(b, false), plainMade: processorTime(b, true)}
}

func (t *turns) measure(ours, plain func()) {
	start, used := time.Now(), ownTime()
	ours()
	middle, usedMiddle := time.Now(), ownTime()
	plain()
	t.ours += middle.Sub(start)
	t.plain += time.Since(middle)
	t.oursUsed += usedMiddle - used
	t.plainUsed += ownTime() - usedMiddle
}

// exchange sends bytes and waits for the answer.
func exchange(b *testing.B, conn *tls.Conn, question, answer []byte) {
	if _, err := conn.Write(question); err != nil {
		b.Error(err)
	}
	if _, err := io.ReadFull(conn, answer); err != nil {
		b.Error(err)
	}
}

// A call with its answer, and as many bytes there and back.
func BenchmarkCall(b *testing.B)      { benchmarkCall(b, "tls") }
func BenchmarkCallPlain(b *testing.B) { benchmarkCall(b, "plain") }

func benchmarkCall(b *testing.B, way string) {
	s, conn := benchSession(b, way), plainTLS(b, 64, 32)
	question, answer := make([]byte, 64), make([]byte, 32)
	t := newTurns(b)
	for b.Loop() {
		t.measure(func() {
			if _, err := s.Producer.Call(&wire.MemAlloc{}, nil); err != nil {
				b.Fatal(err)
			}
		}, func() { exchange(b, conn, question, answer) })
	}
	b.ReportMetric(float64(t.ours.Microseconds())/float64(b.N), "us/call")
	b.ReportMetric(float64(t.plain.Microseconds())/float64(b.N), "us/tls")
}

const pieces = 16 // of MaxPiece, in one turn

// speed reports bandwidths.
func (t *turns) speed(b *testing.B) {
	size := float64(b.N) * pieces * wire.MaxPiece
	b.ReportMetric(size/1e6/t.ours.Seconds(), "MB/s")
	b.ReportMetric(size/1e6/t.plain.Seconds(), "MB/s-tls")
	b.ReportMetric(100*t.plain.Seconds()/t.ours.Seconds(), "%-of-tls")
	// What counts where the processors do other work too: all processes, on both sides.
	b.ReportMetric(float64(t.oursUsed+processorTime(b, false)-t.oursMade)/size, "cpu-ns/B")
	b.ReportMetric(float64(t.plainUsed+processorTime(b, true)-t.plainMade)/size, "cpu-ns/B-tls")
}

// Copies in pieces as the library in C makes them.
func BenchmarkCopyIn(b *testing.B) {
	part := pieces * wire.MaxPiece / asMany()
	s, conns := benchSession(b, "tls"), severalTLS(b, asMany(), part, 1)
	data, m := make([]byte, pieces*wire.MaxPiece), (&wire.CopyIn{Dst: deviceBase}).Append(nil)
	answers, t := answersOf(1), newTurns(b)
	for b.Loop() {
		t.measure(func() {
			for i := range pieces {
				if err := s.Producer.SendData(wire.Header{Op: wire.OpCopyIn, Slot: -1}, m, data[i*wire.MaxPiece:][:wire.MaxPiece]); err != nil {
					b.Fatal(err)
				}
			}
			synchronise(b, s)
		}, func() { exchangeAll(b, conns, data[:part], answers) })
	}
	t.speed(b)
}

func BenchmarkCopyOut(b *testing.B) {
	part := pieces * wire.MaxPiece / asMany()
	s, conns := benchSession(b, "tls"), severalTLS(b, asMany(), 1, part)
	data, m := make([]byte, pieces*wire.MaxPiece), (&wire.CopyOut{Src: deviceBase}).Append(nil)
	answers, t := answersOf(part), newTurns(b)
	for b.Loop() {
		t.measure(func() {
			var waits [pieces]*wire.Pending
			for i := range waits {
				var err error
				h := wire.Header{Op: wire.OpCopyOut, Data: benchGeometry.Staging + uint64(i)*wire.BounceBuffer, Length: wire.MaxPiece}
				if waits[i], err = s.Producer.Start(h, m); err != nil {
					b.Fatal(err)
				}
			}
			for i, p := range waits {
				if _, _, err := p.Wait(); err != nil {
					b.Fatal(err)
				}
				from, err := s.Shared.Data(benchGeometry.Staging+uint64(i)*wire.BounceBuffer, wire.MaxPiece)
				if err != nil {
					b.Fatal(err)
				}
				copy(data[i*wire.MaxPiece:], from)
			}
		}, func() { exchangeAll(b, conns, []byte{0}, answers) })
	}
	t.speed(b)
}

// Pinned memory is copied whole: in parts that the lanes carry while the worker copies others.
func BenchmarkCopyInPinned(b *testing.B)  { benchmarkPinned(b, wire.OpCopyIn) }
func BenchmarkCopyOutPinned(b *testing.B) { benchmarkPinned(b, wire.OpCopyOut) }

func benchmarkPinned(b *testing.B, op wire.Op) {
	const size = pieces * wire.MaxPiece
	part, h := size/asMany(), wire.Header{Op: op, Slot: -1, Data: benchGeometry.Staging + benchGeometry.Bounce, Length: size}
	question, answer := make([]byte, part), make([]byte, 1)
	m := (&wire.CopyIn{Dst: deviceBase}).Append(nil)
	if op == wire.OpCopyOut {
		question, answer, m = answer, question, (&wire.CopyOut{Src: deviceBase}).Append(nil)
	}
	s, conns := benchSession(b, "tls"), severalTLS(b, asMany(), len(question), len(answer))
	answers, t := answersOf(len(answer)), newTurns(b)
	for b.Loop() {
		t.measure(func() {
			if err := s.Producer.Send(h, m); err != nil {
				b.Fatal(err)
			}
			synchronise(b, s)
		}, func() { exchangeAll(b, conns, question, answers) })
	}
	t.speed(b)
}
