package ivm_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"muster/ivm"
	"muster/node/gateway"
	"muster/wire/client"
	"muster/wire/trust"
)

// What a put, a get and the link carry are measured in one run, as others use the machine, too:
//
//	go test ./ivm -run '^$' -bench . -benchtime 20x

const benchValues = 4 << 20 // of 8 bytes

// secure is how connections between the nodes of a benchmark are made: TLS, as between gateways.
func secure(b *testing.B) func(net.Conn, bool) net.Conn {
	b.Helper()
	dir := b.TempDir()
	authority, _, err := gateway.OpenAuthority(dir, time.Now())
	check(b, err)
	folder := must[string](b)(authority.Node([]string{"localhost"}, 1))
	own := must[*tls.Config](b)(gateway.LoadDir(folder))
	believed, err := trust.Believe(filepath.Join(dir, client.FileCA))
	check(b, err)
	own.DynamicRecordSizingDisabled = true
	to := &tls.Config{RootCAs: believed.RootCAs, Certificates: own.Certificates, ServerName: "localhost", DynamicRecordSizingDisabled: true}
	return func(c net.Conn, server bool) net.Conn {
		if server {
			return tls.Server(c, own)
		}
		return tls.Client(c, to)
	}
}

// orders of the child that is measured.
const (
	orderPut = iota + 1
	orderGet
	orderMap
)

func init() {
	// The child does what the first element orders, and says how long it took.
	scenarios["bench"] = func(ctx context.Context, e *ivm.Element) error {
		orders, err := ivm.Map[int64](ctx, e, "orders")
		if err != nil {
			return err
		}
		values, err := ivm.Map[int64](ctx, e, "values")
		if err != nil {
			return err
		}
		for {
			if err := e.Wait(ctx, 0); err != nil {
				return err
			}
			if err := orders.Get(ctx, 0, 1); err != nil {
				return err
			}
			order := orders.Data[0]
			if order == orderPut {
				for i := range values.Data {
					values.Data[i] += 0x0101010101010101
				}
			}
			begun := time.Now()
			switch order {
			case orderPut:
				err = values.Put(ctx, 0, len(values.Data))
			case orderGet:
				err = values.Get(ctx, 0, len(values.Data))
			case orderMap:
				for range 1000 {
					if _, err = ivm.Map[int64](ctx, e, "values"); err != nil {
						break
					}
				}
			}
			orders.Data[1] = int64(time.Since(begun))
			if err == nil {
				err = orders.Put(ctx, 1, 2)
			}
			if err == nil {
				err = e.Signal(ctx)
			}
			if err != nil {
				return err
			}
		}
	}
}

// BenchmarkExchange measures puts and gets of a whole object, of which every byte has changed, and
// what a connection of the same kind carries: one that is as fast as this machine's cores, which have
// both ends to serve, and links of 1, 2.5 and 10 Gb/s.
func BenchmarkExchange(b *testing.B) {
	for _, is := range []struct {
		name string
		rate float64 // bytes a second; 0 for no limit
	}{{"loopback", 0}, {"1Gb", 1e9 / 8}, {"2.5Gb", 2.5e9 / 8}, {"10Gb", 10e9 / 8}} {
		b.Run(is.name, func(b *testing.B) {
			encrypt := secure(b)
			there, back := &link{rate: is.rate}, &link{rate: is.rate}
			exchange(b, func(c net.Conn, server bool) net.Conn {
				if server {
					return encrypt(back.shaped(c), server)
				}
				return encrypt(there.shaped(c), server)
			})
		})
	}
}

// link is one direction of a network interface: all connections share what it carries.
type link struct {
	rate float64 // bytes a second; 0 for no limit
	mu   sync.Mutex
	free time.Time // when what was written so far has left
}

// shaped is a connection over the link.
func (l *link) shaped(c net.Conn) net.Conn {
	if l.rate == 0 {
		return c
	}
	return shapedConn{c, l}
}

type shapedConn struct {
	net.Conn
	link *link
}

func (c shapedConn) Write(b []byte) (int, error) {
	const queue = time.Millisecond // that a network interface holds
	l := c.link
	l.mu.Lock()
	if now := time.Now(); l.free.Before(now) {
		l.free = now
	}
	l.free = l.free.Add(time.Duration(float64(len(b)) / l.rate * float64(time.Second)))
	wait := time.Until(l.free) - queue
	l.mu.Unlock()
	if wait > 0 {
		time.Sleep(wait)
	}
	return c.Conn.Write(b)
}

func exchange(b *testing.B, over func(net.Conn, bool) net.Conn) {
	nodes := clusterOver(b, 2, over)
	ctx, e := begin(b, nodes, "bench")
	orders := must[*ivm.Slice[int64]](b)(ivm.Malloc[int64](ctx, e, "orders", 2))
	values := must[*ivm.Slice[int64]](b)(ivm.Malloc[int64](ctx, e, "values", benchValues))
	for i := range values.Data {
		values.Data[i] = int64(i) * 0x0102030405060708
	}
	child := must[[]ivm.ID](b)(e.CreatePEs(ctx, ivm.CPU(1), 1))[0]
	do := func(order int64) time.Duration {
		orders.Data[0] = order
		check(b, e.Signal(ctx))
		check(b, e.Wait(ctx, child))
		return time.Duration(orders.Data[1])
	}
	do(orderMap)
	// The shortest of each: other programs disturb. Both ends of a connection are in this process,
	// so that the processor's time tells what an exchange costs beside what the link does.
	var put, get, link, again cost
	for b.Loop() {
		put = shortest(put, measure(func() time.Duration { return do(orderPut) }))
		for i := range values.Data {
			values.Data[i] += 0x0101010101010101
		}
		get = shortest(get, measure(func() time.Duration { return do(orderGet) }))
		link = shortest(link, measure(func() time.Duration { return raw(b, over) }))
		again = shortest(again, measure(func() time.Duration { return do(orderMap) }))
	}
	b.ReportMetric(put.rate(), "put-GB/s")
	b.ReportMetric(get.rate(), "get-GB/s")
	b.ReportMetric(link.rate(), "link-GB/s")
	b.ReportMetric(put.rate()/link.rate(), "put/link")
	b.ReportMetric(get.rate()/link.rate(), "get/link")
	b.ReportMetric(put.cpu.Seconds()/link.cpu.Seconds(), "put-cpu/link-cpu")
	b.ReportMetric(get.cpu.Seconds()/link.cpu.Seconds(), "get-cpu/link-cpu")
	b.ReportMetric(float64(again.took.Nanoseconds())/1000, "map-again-ns")
}

// cost is what an exchange takes: of the clock, and of this process's processors.
type cost struct{ took, cpu time.Duration }

func (c cost) rate() float64 { return benchValues * 8 / c.took.Seconds() / 1e9 }

func measure(f func() time.Duration) cost {
	before := used()
	took := f()
	return cost{took, used() - before}
}

// used is the time of processors that this process has used.
func used() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func shortest(a, b cost) cost {
	if a.took == 0 {
		return b
	}
	return cost{min(a.took, b.took), min(a.cpu, b.cpu)}
}

// raw is how long a connection takes for the same bytes.
func raw(b *testing.B, over func(net.Conn, bool) net.Conn) time.Duration {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(b, err)
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		s := over(c, true)
		block := make([]byte, 1<<20)
		for range benchValues * 8 >> 20 {
			if _, err := s.Write(block); err != nil {
				return
			}
		}
	}()
	plain, err := net.Dial("tcp", l.Addr().String())
	check(b, err)
	defer plain.Close()
	c := over(plain, false)
	if s, ok := c.(*tls.Conn); ok {
		check(b, s.Handshake())
	}
	to := make([]byte, 1<<20)
	begun := time.Now()
	for range benchValues * 8 >> 20 {
		_, err := io.ReadFull(c, to)
		check(b, err)
	}
	return time.Since(begun)
}

// BenchmarkCreate measures the time from the call that creates an element, a small program in C,
// until that has entered and signalled.
func BenchmarkCreate(b *testing.B) {
	dir := b.TempDir()
	program := filepath.Join(dir, "element")
	source := filepath.Join(dir, "element.c")
	check(b, os.WriteFile(source, []byte("#include <ivm.h>\nint main(void) { return ivmEnter() || ivmSignal() || ivmExit(); }\n"), 0o600))
	if out, err := exec.Command("gcc", "-O2", "-Ic", "-o", program, source, "c/ivm.c", "-ldl", "-pthread").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	for _, node := range []int{0, 1} {
		b.Run(map[int]string{0: "here", 1: "there"}[node], func(b *testing.B) {
			nodes := clusterOver(b, 2, secure(b))
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			e, err := ivm.EnterWith(ctx, ivm.Options{
				Socket: nodes[0].socket.Addr().String(), Nodes: []string{nodes[1].port.Addr().String()}, Executable: program, Args: []string{program}, Environment: []string{"A=1"},
			})
			check(b, err)
			for b.Loop() {
				ids := must[[]ivm.ID](b)(e.CreatePEs(ctx, ivm.CPU(node), 1))
				check(b, e.Wait(ctx, ids[0]))
			}
			check(b, e.Exit())
		})
	}
}
