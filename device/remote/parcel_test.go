package remote

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"muster/device"
	"muster/node/gateway"
	"muster/wire"
	"muster/wire/client"
	"muster/wire/parcel"
)

// cluster is several lenders of one authority, which know each other, and a user that all let in.
type cluster struct {
	authority *gateway.Authority
	user      *tls.Config
	peers     atomic.Pointer[[]string]
	made      atomic.Int64  // certificates, for their names
	carried   atomic.Uint64 // bytes on all connections of this process to lenders
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{}
	var err error
	c.authority, _, err = gateway.OpenAuthority(t.TempDir(), time.Now())
	must(t, err)
	dir, err := c.authority.User("ada", 1)
	must(t, err)
	c.user, err = client.LoadTLS(dir)
	must(t, err)
	c.peers.Store(&[]string{})
	return c
}

// knows says whom the lenders know as peers.
func (c *cluster) knows(addresses ...string) { c.peers.Store(&addresses) }

func (c *cluster) tls(t testing.TB, name string) *tls.Config {
	t.Helper()
	dir, err := c.authority.Node([]string{name, "127.0.0.1"}, 1)
	must(t, err)
	config, err := gateway.LoadDir(dir)
	must(t, err)
	return config
}

func (c *cluster) lender(t testing.TB, name string) *lender {
	t.Helper()
	return lenderBehind(t, nil, gateway.Config{TLS: c.tls(t, name), Peer: func(_ context.Context, address string) (string, bool) {
		return address, slices.Contains(*c.peers.Load(), address)
	}})
}

// via is how a lender is reached. The bytes are counted below TLS.
func (c *cluster) via(address string, protocol *tls.Config) func(context.Context) (net.Conn, error) {
	return func(ctx context.Context) (net.Conn, error) {
		plain, err := net.Dial("tcp", address)
		if err != nil {
			return nil, err
		}
		config := protocol.Clone()
		config.ServerName = "127.0.0.1"
		conn := tls.Client(below{plain, &c.carried}, config)
		return conn, conn.HandshakeContext(ctx)
	}
}

type below struct {
	net.Conn
	bytes *atomic.Uint64
}

func (b below) Read(p []byte) (int, error) {
	n, err := b.Conn.Read(p)
	b.bytes.Add(uint64(n))
	return n, err
}

func (b below) Write(p []byte) (int, error) {
	n, err := b.Conn.Write(p)
	b.bytes.Add(uint64(n))
	return n, err
}

// guest is a context on a device of a lender.
type guest struct {
	t testing.TB
	*Context
	on device.Stream
}

func (c *cluster) guest(t testing.TB, address string, number int, size uint64) *guest {
	t.Helper()
	lanes := c.user.Clone()
	lanes.NextProtos = []string{wire.LaneProtocol}
	d, err := Open(t.Context(), Options{Lender: client.Remote{Dial: c.via(address, c.user), Lane: c.via(address, lanes)}, Device: number, Gateway: address})
	must(t, err)
	if d.Info().Peers != Peers {
		t.Error("nobody can know that it copies from other lent devices")
	}
	opened, err := d.Open(device.Config{Arena: device.Arena{Base: base, Size: 1 << 30}})
	must(t, err)
	t.Cleanup(func() { _ = opened.Close() })
	must(t, opened.Map(base, size))
	on, err := opened.NewStream()
	must(t, err)
	return &guest{t, opened.(*Context), on}
}

// write gives the context's memory random contents.
func (g *guest) write(seed uint64, size int) []byte {
	g.t.Helper()
	data := make([]byte, size)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := 0; i+8 <= size; i += 8 {
		binary.LittleEndian.PutUint64(data[i:], r.Uint64())
	}
	must(g.t, g.on.CopyIn(base, data))
	must(g.t, g.on.Synchronise(context.Background()))
	return data
}

// has checks what is in the context's memory.
func (g *guest) has(want []byte) {
	g.t.Helper()
	got := make([]byte, len(want))
	must(g.t, g.on.CopyOut(got, base))
	must(g.t, g.on.Synchronise(context.Background()))
	if !bytes.Equal(got, want) {
		g.t.Fatal("the memory is not what the other lender had")
	}
}

func (g *guest) from(other *guest, size uint64) error {
	return g.on.Can().CopyFrom(base, other.Context, base, size)
}

// Two lenders that know each other send each other data, whatever becomes of one of them.
func TestDataBetweenLenders(t *testing.T) {
	c := newCluster(t)
	a, b := c.lender(t, "a"), c.lender(t, "b")
	t.Run("past the program's node", func(t *testing.T) { c.goesDirectly(t, a, b) })
	t.Run("from another node", func(t *testing.T) { c.isAnotherNode(t, a, b) })
	t.Run("lies", func(t *testing.T) { c.lies(t, a, b) })
	t.Run("dies", func(t *testing.T) { c.dies(t, a, b) })
}

// Data go from one lender to another, or between two devices of one, and not over the links of the
// node whose program it is. Lenders that are not each other's peers refuse, and nothing is copied.
func (c *cluster) goesDirectly(t *testing.T, a, b *lender) {
	const size = 10 << 20
	one, two, three := c.guest(t, a.address, 0, size), c.guest(t, b.address, 0, size), c.guest(t, a.address, 1, size)
	want := one.write(1, size)
	old := two.write(2, size)
	if err := two.from(one, size); !errors.Is(err, device.ErrNotSupported) {
		t.Errorf("a lender fetched data from a node that is none of its peers: %v", err)
	}
	two.has(old)
	if err := two.from(one, size); !errors.Is(err, device.ErrNotSupported) {
		t.Errorf("it is tried again at once: %v", err)
	}
	c.knows(a.address)
	two = c.guest(t, b.address, 0, size)
	before := c.carried.Load()
	must(t, two.from(one, size))
	must(t, two.on.Synchronise(t.Context()))
	if more := c.carried.Load() - before; more > size/10 {
		t.Errorf("%d bytes of %d went over the links of the program's node", more, size)
	}
	two.has(want)
	before = c.carried.Load()
	must(t, three.from(one, size))
	must(t, three.on.Synchronise(t.Context()))
	if more := c.carried.Load() - before; more > size/10 {
		t.Errorf("%d bytes of %d left the lender of both", more, size)
	}
	three.has(want)
	// Work behind the copy sees it, and the copy sees work before it.
	must(t, one.on.Fill(base, 7, 4, size/4))
	must(t, one.on.Synchronise(t.Context()))
	must(t, two.on.Fill(base, 9, 4, size/4))
	must(t, two.from(one, size/2))
	must(t, two.on.Fill(base, 8, 4, 1))
	want = append(bytes.Repeat([]byte{7, 0, 0, 0}, size/8), bytes.Repeat([]byte{9, 0, 0, 0}, size/8)...)
	want[0] = 8
	two.has(want)
}

// past forwards connections to a lender, and calls then when it has sent that many bytes.
func past(t *testing.T, address string, bytes int64, then func()) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer near.Close()
				far, err := net.Dial("tcp", address)
				if err != nil {
					return
				}
				defer far.Close()
				go func() { _, _ = io.Copy(far, near) }()
				if n, _ := io.CopyN(near, far, bytes); n == bytes {
					then()
				}
				_, _ = io.Copy(near, far)
			}()
		}
	}()
	return l.Addr().String()
}

// A lender that dies in the middle costs an error, and its context; the other goes on.
func (c *cluster) dies(t *testing.T, a, b *lender) {
	address := past(t, a.address, 3<<20, a.stop)
	c.knows(address)
	const size = 10 << 20
	one, two := c.guest(t, a.address, 0, size), c.guest(t, b.address, 0, size)
	one.write(1, size)
	one.dev.options.Gateway = address
	if err := two.from(one, size); !errors.Is(err, device.ErrNotSupported) {
		t.Errorf("data came from a lender that is dead: %v", err)
	}
	if err := one.on.Synchronise(t.Context()); !isLost(err) {
		t.Errorf("its device is not lost: %v", err)
	}
	two.has(two.write(3, size))
}

// liar is a node of the authority that answers requests for parcels as a test wants.
func (c *cluster) liar(t *testing.T, answer func(net.Conn)) (address string) {
	t.Helper()
	config := c.tls(t, fmt.Sprint("liar-", c.made.Add(1)))
	config.NextProtos, config.ClientAuth = []string{parcel.Protocol}, tls.RequireAndVerifyClientCert
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				key := make([]byte, 32)
				if _, err := io.ReadFull(conn, key); err == nil {
					answer(conn)
				}
			}()
		}
	}()
	return l.Addr().String()
}

// A lender that sends another number of bytes than is due, or never ends, is not believed: the copy
// fails, and the taker's memory is as it was.
func (c *cluster) lies(t *testing.T, a, b *lender) {
	const size = 4 << 20
	one, two := c.guest(t, a.address, 0, size), c.guest(t, b.address, 0, size)
	head := func(n uint64) []byte { return binary.LittleEndian.AppendUint64(nil, n) }
	for name, answer := range map[string]func(net.Conn){
		"too few": func(conn net.Conn) {
			_, _ = conn.Write(append(head(1<<19), make([]byte, 1<<19)...))
			_, _ = io.Copy(io.Discard, conn)
		},
		"too many": func(conn net.Conn) { _, _ = conn.Write(append(head(2<<20), make([]byte, 2<<20)...)) },
		"endless": func(conn net.Conn) {
			_, _ = conn.Write(head(1 << 20))
			for piece := bytes.Repeat([]byte{0xaa}, 1<<20); ; {
				if _, err := conn.Write(piece); err != nil {
					return
				}
			}
		},
		"more than memory": func(conn net.Conn) { _, _ = conn.Write(head(1 << 63)) },
		"breaks off":       func(conn net.Conn) { _, _ = conn.Write(append(head(1<<20), make([]byte, 1000)...)) },
		"none":             func(conn net.Conn) { _, _ = conn.Write(head(0)) },
	} {
		t.Run(name, func(t *testing.T) {
			liar := c.liar(t, answer)
			c.knows(liar)
			old := two.write(2, size)
			// The taker is sent to the liar for data of a, for the first time.
			two.dev.apart.pairs = nil
			one.dev.options.Gateway, one.guest.Holder = liar, holderAt(t, c, liar)
			if err := two.from(one, size); !errors.Is(err, device.ErrNotSupported) {
				t.Fatalf("the lie is believed: %v", err)
			}
			if name != "endless" { // whose first bytes are as good as any
				two.has(old)
			}
			two.has(two.write(3, size))
		})
	}
}

func holderAt(t *testing.T, c *cluster, address string) [32]byte {
	t.Helper()
	own := c.tls(t, fmt.Sprint("looks-", c.made.Add(1)))
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: own.ClientCAs, Certificates: own.Certificates, NextProtos: []string{parcel.Protocol}})
	must(t, err)
	defer conn.Close()
	return parcel.HolderOf(conn.ConnectionState().PeerCertificates[0])
}

// A node fetches nothing from another one than the program's node has spoken to, even if that is a
// peer with a good certificate.
func (c *cluster) isAnotherNode(t *testing.T, a, b *lender) {
	asked := make(chan struct{}, 1)
	other := c.liar(t, func(net.Conn) { asked <- struct{}{} })
	c.knows(other)
	const size = 2 << 20
	one, two := c.guest(t, a.address, 0, size), c.guest(t, b.address, 0, size)
	one.write(1, size)
	one.dev.options.Gateway = other // the certificate is still a's
	if err := two.from(one, size); !errors.Is(err, device.ErrNotSupported) {
		t.Errorf("it fetched from a node that it should not know: %v", err)
	}
	select {
	case <-asked:
		t.Error("a node that is not meant was shown a key")
	default:
	}
}

// Copies between two lenders: directly, and through this process. The metric ratio says how many times
// as fast the direct way is.
func BenchmarkBetweenLenders(b *testing.B) {
	c := newCluster(b)
	x, y := c.lender(b, "x"), c.lender(b, "y")
	c.knows(x.address)
	const size = 32 << 20
	one, two := c.guest(b, x.address, 0, size), c.guest(b, y.address, 0, size)
	one.write(1, size)
	buffer := make([]byte, size)
	direct := func() {
		must(b, two.from(one, size))
		must(b, two.on.Synchronise(context.Background()))
	}
	through := func() {
		must(b, one.on.CopyOut(buffer, base))
		must(b, one.on.Synchronise(context.Background()))
		must(b, two.on.CopyIn(base, buffer))
		must(b, two.on.Synchronise(context.Background()))
	}
	direct()
	through()
	var took [2]time.Duration
	var carried [2]uint64
	b.SetBytes(2 * size)
	for b.Loop() {
		for i, way := range []func(){direct, through} {
			began, before := time.Now(), c.carried.Load()
			way()
			took[i] += time.Since(began)
			carried[i] += c.carried.Load() - before
		}
	}
	b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "ratio")
	b.ReportMetric(float64(carried[0])/float64(b.N)/size, "home-bytes/byte-direct")
	b.ReportMetric(float64(carried[1])/float64(b.N)/size, "home-bytes/byte-through")
}

// Two lenders that cannot send each other data are tried less and less often, until it works once.
func TestLendersApartAreTriedLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a apart
		fail := func() (pause time.Duration) {
			for range 3 { // parcels that were under way together
				a.note("a", false)
			}
			for begin := time.Now(); a.lately("a"); pause = time.Since(begin) {
				time.Sleep(time.Second)
			}
			return pause
		}
		for n := range 12 {
			if pause, want := fail(), min(parcelAgain<<n, time.Hour); pause < want || pause > want+time.Second {
				t.Errorf("after failure %d they are not tried for %v, want %v", n+1, pause, want)
			}
		}
		if a.window("a") != 1 {
			t.Error("several parcels are sent at once")
		}
		a.note("a", true)
		if a.lately("a") || a.window("a") != parcelWindow {
			t.Error("one that came changes nothing")
		}
		if pause := fail(); pause > parcelAgain+time.Second {
			t.Errorf("after that they are not tried for %v", pause)
		}
	})
}
