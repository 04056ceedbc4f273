package node

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"muster/node/ask"
	"muster/node/checkpoint"
	"muster/node/settings"
	"muster/wire"
)

// growing is a program that keeps vectors on the device, and adds one to the other.
type growing struct {
	*program
	t *testing.T
	n int
}

func startGrowing(t *testing.T, f *fixture) *growing {
	t.Helper()
	p := &growing{mustConnect(t, f), t, 100_000}
	size := uint64(4 * p.n)
	for i := range 3 {
		if err := p.do(&wire.MemAlloc{Addr: p.at(i), Size: size}, nil, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.load(vecadd(t), "vecadd"); err != nil {
		t.Fatal(err)
	}
	p.fill(0, 1)
	p.fill(1, 0)
	return p
}

func (p *growing) at(i int) uint64 { return p.attached.ArenaBase + uint64(i)*2<<20 }

func (p *growing) fill(i int, value float32) {
	p.t.Helper()
	m := &wire.Fill{Dst: p.at(i), Pitch: uint64(4 * p.n), Value: math.Float32bits(value), Width: 4, Count: uint64(p.n), Height: 1}
	if err := p.Post(m); err != nil {
		p.t.Fatal(err)
	}
}

// step adds one to vector 1, by way of vector 2.
func (p *growing) step() {
	p.t.Helper()
	var params []byte
	for i := range 3 {
		params = binary.LittleEndian.AppendUint64(params, p.at(i))
	}
	params = binary.LittleEndian.AppendUint32(params, uint32(p.n))
	launch := &wire.Launch{Function: 1, GridX: uint32(p.n+255) / 256, GridY: 1, GridZ: 1, BlockX: 256, BlockY: 1, BlockZ: 1, Params: params}
	if err := errors.Join(p.Post(launch), p.Post(&wire.CopyWithin{Dst: p.at(1), Src: p.at(2), Size: uint64(4 * p.n)})); err != nil {
		p.t.Fatal(err)
	}
}

// value is what all elements of vector 1 are.
func (p *growing) value() (float32, error) {
	got, err := p.fetch(&wire.CopyOut{Src: p.at(1)}, uint64(4*p.n))
	if err != nil {
		return 0, err
	}
	for i := range p.n {
		if !bytes.Equal(got[4*i:4*i+4], got[:4]) {
			return 0, fmt.Errorf("element %d differs from the first", i)
		}
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(got)), nil
}

func (p *growing) expect(want float32) {
	p.t.Helper()
	if got, err := p.value(); err != nil || got != want {
		p.t.Fatalf("%v, %v: want %v", got, err, want)
	}
}

func (p *growing) id() uint64 { return p.attached.Client }

func scratch(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func save(t *testing.T, f *fixture, client uint64) *os.File {
	t.Helper()
	file := scratch(t)
	n, err := ask.Checkpoint(t.Context(), f.socket, client, file)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := file.Stat(); err != nil || uint64(info.Size()) != n {
		t.Fatalf("%d bytes, %v, %v", n, info.Size(), err)
	}
	return file
}

// A program is saved while its kernels run. After a fault has ended its work for good it
// goes on from there.
func TestCheckpointOfARunningProgram(t *testing.T) {
	f := realFixture(t)
	p, other := startGrowing(t, f), startGrowing(t, f)
	for range 50 {
		p.step()
	}
	file := save(t, f, p.id()) // some of them have run
	for range 50 {
		p.step()
		other.step()
	}
	p.expect(100)
	if _, err := ask.Restore(f.socket, p.id(), file); err != nil {
		t.Fatal(err)
	}
	at, err := p.value()
	if err != nil || at < 0 || at > 50 || at != float32(int(at)) {
		t.Fatalf("%v, %v: want a number up to 50", at, err)
	}
	// A fault: nothing is left of the client, and every call fails.
	if err := p.Post(&wire.Launch{Function: 1, GridX: 1, GridY: 1, GridZ: 1, BlockX: 1, BlockY: 1, BlockZ: 1, Params: append(make([]byte, 24), 1, 0, 0, 0)}); err != nil {
		t.Fatal(err)
	}
	if r, err := p.Call(&wire.Synchronise{}, nil); r != 700 || err != nil {
		t.Fatal(r, err)
	}
	if _, err := ask.Checkpoint(t.Context(), f.socket, p.id(), scratch(t)); err == nil || !strings.Contains(err.Error(), "a fault has ended") {
		t.Error(err)
	}
	if _, err := ask.Restore(f.socket, p.id(), file); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		p.step()
	}
	p.expect(at + 10)
	other.expect(50)
	if _, err := ask.Restore(f.socket, other.id(), file); err == nil || !strings.Contains(err.Error(), "another run of a program") {
		t.Error(err)
	}
	other.expect(50)
}

// Damaged files are refused, and the program goes on as if nothing had been.
func TestDamagedCheckpointsAreRefused(t *testing.T) {
	f := realFixture(t)
	p := startGrowing(t, f)
	p.step()
	good, err := os.ReadFile(save(t, f, p.id()).Name())
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		change func(b []byte) []byte
		want   string
	}{
		{func(b []byte) []byte { b[len(b)/2] ^= 1; return b }, "it is damaged"},
		{func(b []byte) []byte { return b[:len(b)/2] }, "it breaks off"},
		{func(b []byte) []byte { b[16] = 7; return b }, "it has version 7, and this program knows version 1"},
		{func([]byte) []byte { return nil }, "it has 0 bytes"},
	} {
		p.step()
		file := scratch(t)
		if _, err := file.Write(c.change(bytes.Clone(good))); err != nil {
			t.Fatal(err)
		}
		if _, err := ask.Restore(f.socket, p.id(), file); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v\nwant %s", err, c.want)
		}
		p.expect(float32(i + 2))
	}
}

// A user's clients are nobody else's business, but the node's owner's.
func TestOthersCannotSaveAClient(t *testing.T) {
	_, alice := needUsers(t)
	f := realFixture(t)
	p := startGrowing(t, f) // root's
	file := save(t, f, p.id())
	const want = "client 1 is user root's: only that user, user root, whose node it is, and root may do that"
	asUser(t, int(alice), func() {
		if _, err := ask.Checkpoint(t.Context(), f.socket, p.id(), file); err == nil || err.Error() != want {
			t.Error(err)
		}
		if _, err := ask.Restore(f.socket, p.id(), file); err == nil || err.Error() != want {
			t.Error(err)
		}
		if _, err := ask.Hold(f.socket, p.id(), file); err == nil || err.Error() != want {
			t.Error(err)
		}
		if _, err := ask.Revive(f.socket, checkpoint.Client{UID: 0, Name: "mine"}, settings.MinArena, ask.Under{}, file); err == nil || !strings.Contains(err.Error(), "the program is user root's") {
			t.Error(err)
		}
	})
	other := startAdder(t, f, alice)
	other.add()
	var theirs uint64
	for _, c := range statusOf(t, f).Clients {
		if c.ID != p.id() {
			theirs = c.ID
		}
	}
	save(t, f, theirs) // root may
	asUser(t, int(alice), func() {
		if _, err := ask.Checkpoint(t.Context(), f.socket, theirs, file); err != nil {
			t.Error("a user's own client:", err)
		}
	})
	other.add()
	p.step()
	p.expect(1)
}

// What is not understood is refused, and costs nobody anything.
func TestWrongOrders(t *testing.T) {
	f := realFixture(t)
	p := startGrowing(t, f)
	pipe, end, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	defer end.Close()
	if _, err := ask.Checkpoint(t.Context(), f.socket, 99, scratch(t)); err == nil || err.Error() != "there is no client 99: muster ps lists those there are" {
		t.Error(err)
	}
	if _, err := ask.Checkpoint(t.Context(), f.socket, p.id(), end); err == nil || !strings.Contains(err.Error(), "no other kind will do") {
		t.Error(err)
	}
	readOnly, err := os.Open(scratch(t).Name())
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	if _, err := ask.Checkpoint(t.Context(), f.socket, p.id(), readOnly); err == nil || !strings.Contains(err.Error(), "bad file descriptor") {
		t.Error(err)
	}
	for _, c := range []struct {
		line  string
		files int // that follow
		want  string
	}{
		{`{"request":"checkpoint","client":"x"}`, 0, "cannot unmarshal"},
		{`{"request":"checkpoint","client":1,"path":"/etc/passwd"}`, 0, `unknown field \"path\"`},
		{`{"request":"revive","arena_size":12345}`, 0, "no node gives that"},
		{`{"request":"revive","arena_size":8796093022208,"virtual_device":-1}`, 0, "a program sees at most"},
		{`{"request":"revive","arena_size":8796093022208,"grant":"nobody's"}`, 0, "the node knows no grant with this credential"},
		{`{"request":"checkpoint","client":1}`, 2, "no other kind will do"},
	} {
		if got := converse(t, f, c.line, c.files); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s\nwant %s", c.line, got, c.want)
		}
	}
	// Whoever goes away in the middle leaves nothing behind.
	for _, line := range []string{`{"request":"checkpoint","client":1}`, `{"request":"restore","client":1}`, `{"request":"revive","arena_size":8796093022208}`} {
		conn, err := net.Dial("unix", f.socket)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Write([]byte(line + "\n")); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	eventually(t, "the client can be saved again", func() bool { _, err := ask.Checkpoint(t.Context(), f.socket, p.id(), scratch(t)); return err == nil })
	if n := len(statusOf(t, f).Clients); n != 1 {
		t.Errorf("there are %d clients", n)
	}
	p.step()
	p.expect(1)
}

// converse says a line, and sends descriptors if a file is asked for; it returns the
// last answer.
func converse(t *testing.T, f *fixture, line string, files int) string {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: f.socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte(line + "\n")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4096)
	n, err := conn.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if files == 0 || !strings.Contains(string(b[:n]), `"send"`) {
		return string(b[:n])
	}
	var all []*os.File
	for range files {
		all = append(all, scratch(t))
	}
	if err := wire.SendFiles(conn, []byte("f"), all...); err != nil {
		t.Fatal(err)
	}
	if n, err = conn.Read(b); err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

// A held client waits, nobody else can order anything, and it goes on if whoever held it
// goes away.
func TestHeldClient(t *testing.T) {
	f := realFixture(t)
	p := startGrowing(t, f)
	p.step()
	p.expect(1)
	held, err := ask.Hold(f.socket, p.id(), scratch(t))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(held.Ring, "muster-ring-") || !strings.HasPrefix(held.Arena, "muster-arena-") || held.Socket == 0 {
		t.Errorf("%+v", held)
	}
	if _, err := ask.Checkpoint(t.Context(), f.socket, p.id(), scratch(t)); err == nil || !strings.Contains(err.Error(), "is being saved or restored already") {
		t.Error(err)
	}
	p.step()
	waits, err := p.Start(wire.Header{Op: wire.OpSynchronise}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if waits.Done() {
		t.Error("a held client goes on")
	}
	held.Close()
	if _, _, err := waits.Wait(); err != nil {
		t.Fatal(err)
	}
	p.expect(2)
	eventually(t, "it can be saved", func() bool { _, err := ask.Checkpoint(t.Context(), f.socket, p.id(), scratch(t)); return err == nil })

	held, err = ask.Hold(f.socket, p.id(), scratch(t))
	if err != nil {
		t.Fatal(err)
	}
	p.leave()
	eventually(t, "a held client ends with its program", func() bool { return len(statusOf(t, f).Clients) == 0 })
	if _, err := held.Save(); err == nil {
		t.Error("a client was saved that has ended")
	}
	held.Close()
}

// A client whose worker is killed while it is saved is an error for whoever saves it.
func TestWorkerIsKilledWhileHeld(t *testing.T) {
	f := realFixture(t)
	p := startGrowing(t, f)
	held, err := ask.Hold(f.socket, p.id(), scratch(t))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := syscall.Kill(workerOf(t, os.Getpid(), p.program), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	within(t, "the answer", func() error {
		if _, err := held.Save(); err == nil {
			return errors.New("a client without a worker was saved")
		}
		return nil
	})
}

// A program is saved as a whole, its node ends, and it goes on with another node, as
// after its processes were restored: at the same addresses, with other memory and
// another connection.
func TestProgramGoesOnWithAnotherNode(t *testing.T) {
	before := realFixture(t)
	p := startGrowing(t, before)
	for range 20 {
		p.step()
	}
	file := scratch(t)
	held, err := ask.Hold(before.socket, p.id(), file)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 { // nobody reads them before the program goes on
		p.step()
	}
	waits, err := p.Start(wire.Header{Op: wire.OpSynchronise}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Save(); err != nil {
		t.Fatal(err)
	}
	close(before.kill)
	if err := <-before.done; err != nil {
		t.Fatal(err)
	}
	before.done <- nil

	cfg := testConfig()
	cfg.Devices = cfg.Devices[1:]
	cfg.Devices[0].Index = 0
	opts := testOptions()
	opts.WorkerCommand = workerCommand("real worker")
	after := runWith(t, cfg, opts)
	was := checkpoint.Client{UID: uint32(os.Getuid()), Pid: os.Getpid(), Name: "test program", Memory: p.attached.Memory}
	revived, err := ask.Revive(after.socket, was, p.attached.ArenaSize, ask.Under{}, file)
	if err != nil {
		t.Fatal(err)
	}
	if err := remap(p.shared, revived.Ring, revived.Arena); err != nil {
		t.Fatal(err)
	}
	connection, err := net.FileConn(revived.Socket)
	if err != nil {
		t.Fatal(err)
	}
	p.conn.Close()
	p.conn = connection.(*net.UnixConn)
	if err := revived.Go(); err != nil {
		t.Fatal(err)
	}
	revived.Close()
	if r, _, err := waits.Wait(); r != 0 || err != nil {
		t.Fatal(r, err)
	}
	p.expect(40)
	p.step()
	p.expect(41)
	if s := statusOf(t, after); len(s.Clients) != 1 || s.Clients[0].Program != "test program" {
		t.Errorf("%+v", s.Clients)
	}
	eventually(t, "its kernels are counted", func() bool { return statusOf(t, after).Clients[0].Kernels > 0 })
	p.leave()
	eventually(t, "the client ends with its program", func() bool { return len(statusOf(t, after).Clients) == 0 })
}

// A client that nobody lets go on is none, and leaves nothing.
func TestRevivedWithoutAProgram(t *testing.T) {
	f := realFixture(t)
	p := startGrowing(t, f)
	file := scratch(t)
	held, err := ask.Hold(f.socket, p.id(), file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Save(); err != nil {
		t.Fatal(err)
	}
	held.Close()
	was := checkpoint.Client{UID: uint32(os.Getuid()), Memory: p.attached.Memory}
	revived, err := ask.Revive(f.socket, was, p.attached.ArenaSize, ask.Under{}, file)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(statusOf(t, f).Clients); n != 2 {
		t.Errorf("there are %d clients", n)
	}
	revived.Close()
	eventually(t, "the client is gone", func() bool { return len(statusOf(t, f).Clients) == 1 })
	if _, err := ask.Revive(f.socket, was, p.attached.ArenaSize, ask.Under{}, save(t, f, p.id())); err == nil || !strings.Contains(err.Error(), "of a client alone") {
		t.Error(err)
	}
	eventually(t, "the client is gone", func() bool { return len(statusOf(t, f).Clients) == 1 })
	p.step()
	p.expect(1)
}

// keepingFixture is a node whose clients outlive their workers.
func keepingFixture(t *testing.T) *fixture {
	t.Helper()
	cfg, opts := testConfig(), testOptions()
	cfg.Recover, cfg.Swap.Dir = true, t.TempDir()
	opts.WorkerCommand = workerCommand("real worker")
	return runWith(t, cfg, opts)
}

// killWorker kills the worker of the node's one client, and waits until another has its
// place.
func killWorker(t *testing.T, f *fixture) {
	t.Helper()
	before := statusOf(t, f).Clients[0].Rebuilds
	if err := syscall.Kill(theWorker(t), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the client is rebuilt", func() bool { return statusOf(t, f).Clients[0].Rebuilds > before })
}

// retried repeats an order for as long as the client has no worker.
func retried(t *testing.T, order func() error) error {
	t.Helper()
	var err error
	eventually(t, "the client has a worker", func() bool {
		err = order()
		return err == nil || !strings.Contains(err.Error(), "try again")
	})
	return err
}

// A client whose worker was killed is saved as any other; and what was restored outlives
// the worker that restored it.
func TestCheckpointsAndKilledWorkers(t *testing.T) {
	f := keepingFixture(t)
	p := startGrowing(t, f)
	for range 5 {
		p.step()
	}
	killWorker(t, f)
	p.expect(5)
	file := scratch(t)
	if err := retried(t, func() error { _, err := ask.Checkpoint(t.Context(), f.socket, p.id(), file); return err }); err != nil {
		t.Fatal(err)
	}
	p.step()
	p.expect(6)
	if _, err := ask.Restore(f.socket, p.id(), file); err != nil {
		t.Fatal(err)
	}
	killWorker(t, f)
	p.expect(5)
	for range 3 {
		p.step()
	}
	p.expect(8)
}

// A worker that is killed while its client is held ends the order, and not the client.
func TestHeldClientOutlivesItsWorker(t *testing.T) {
	f := keepingFixture(t)
	p := startGrowing(t, f)
	p.step()
	held, err := ask.Hold(f.socket, p.id(), scratch(t))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	p.step()
	killWorker(t, f)
	if _, err := held.Save(); err == nil || !strings.Contains(err.Error(), "the worker of client 1 ended before it had answered") {
		t.Error(err)
	}
	p.expect(2)
}

// revive gives a program that was saved as a whole to a node, as a restore of its
// processes does.
func (p *growing) revive(socket string, file *os.File) {
	p.t.Helper()
	was := checkpoint.Client{UID: uint32(os.Getuid()), Pid: os.Getpid(), Name: "test program", Memory: p.attached.Memory}
	revived, err := ask.Revive(socket, was, p.attached.ArenaSize, ask.Under{}, file)
	if err != nil {
		p.t.Fatal(err)
	}
	defer revived.Close()
	if err := remap(p.shared, revived.Ring, revived.Arena); err != nil {
		p.t.Fatal(err)
	}
	connection, err := net.FileConn(revived.Socket)
	if err != nil {
		p.t.Fatal(err)
	}
	p.conn.Close()
	p.conn = connection.(*net.UnixConn)
	p.attached.Client = revived.Client
	if err := revived.Go(); err != nil {
		p.t.Fatal(err)
	}
}

// A client that was made for a restored program outlives its worker.
func TestRevivedClientOutlivesItsWorker(t *testing.T) {
	f := keepingFixture(t)
	p := startGrowing(t, f)
	for range 5 {
		p.step()
	}
	file := scratch(t)
	held, err := ask.Hold(f.socket, p.id(), file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Save(); err != nil {
		t.Fatal(err)
	}
	held.Close()
	p.revive(f.socket, file)
	eventually(t, "the first client is gone", func() bool { return len(statusOf(t, f).Clients) == 1 })
	p.step()
	p.expect(6)
	killWorker(t, f)
	p.expect(6)
	p.step()
	p.expect(7)
}

// A client that is held, and one that was made for a restored program, outlive the
// daemon; orders that it had do not.
func TestCheckpointsAndKilledDaemons(t *testing.T) {
	h := newHouse(t)
	h.cfg.Recover = true
	h.start()
	socket := h.cfg.Socket.Address
	p := startGrowing(t, &fixture{socket: socket})
	for range 5 {
		p.step()
	}
	held, err := ask.Hold(socket, p.id(), scratch(t))
	if err != nil {
		t.Fatal(err)
	}
	p.step()
	h.restart()
	if _, err := held.Save(); err == nil {
		t.Error("an order outlived its daemon")
	}
	held.Close()
	p.expect(6)
	h.settled(p.id())
	if err := retried(t, func() error { _, err := ask.Checkpoint(t.Context(), socket, p.id(), scratch(t)); return err }); err != nil {
		t.Fatal(err)
	}
	file := scratch(t)
	if held, err = ask.Hold(socket, p.id(), file); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(held.Ring, "muster-ring-") || held.Socket == 0 || len(held.Shown) == 0 {
		t.Errorf("%+v", held)
	}
	if _, err := held.Save(); err != nil {
		t.Fatal(err)
	}
	held.Close()
	p.revive(socket, file)
	p.step()
	p.expect(7)
	h.restart()
	p.step()
	p.expect(8)
	h.settled(p.id())
	file = scratch(t)
	if err := retried(t, func() error { _, err := ask.Checkpoint(t.Context(), socket, p.id(), file); return err }); err != nil {
		t.Fatal(err)
	}
	p.step()
	p.expect(9)
	if _, err := ask.Restore(socket, p.id(), file); err != nil {
		t.Fatal(err)
	}
	p.expect(8)
}

// A daemon may say that a client is held, and that it has ended, before anybody has read
// the first: then both are in one packet.
func TestTwoAnswersAtOnce(t *testing.T) {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "node"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	near, err := net.DialUnix("unix", nil, listener.Addr().(*net.UnixAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer near.Close()
	far, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	if _, err := far.Write([]byte(`{"held":true,"bytes":7}` + "\n" + `{"error":"client 3 has ended"}` + "\n")); err != nil {
		t.Fatal(err)
	}
	c := &ask.Conversation{Conn: near, Socket: "@test"}
	if reply, _, err := c.Answer(); err != nil || !reply.Held || reply.Bytes != 7 {
		t.Error(reply, err)
	}
	if _, _, err := c.Answer(); err == nil || err.Error() != "client 3 has ended" {
		t.Error(err)
	}
}

// waits is a kernel that runs until a word in memory is not 0.
const waits = `.version 8.0
.target sm_70
.address_size 64
.visible .entry waits(.param .u64 flag) {
	.reg .u64 %a;
	.reg .u32 %v;
	.reg .pred %p;
	ld.param.u64 %a, [flag];
again:
	ld.volatile.global.u32 %v, [%a];
	setp.eq.u32 %p, %v, 0;
	@%p bra again;
	ret;
}
`

// A checkpoint waits for kernels that run. Whoever asked for it can give it up meanwhile: then the
// program goes on as before, which the kernel waits for.
func TestCheckpointGivenUp(t *testing.T) {
	f := realFixture(t)
	p := mustConnect(t, f)
	flag := p.attached.ArenaBase
	set := func(value, stream uint32) error {
		return p.Post(&wire.Fill{Dst: flag, Pitch: 4, Value: value, Width: 4, Count: 1, Height: 1, Stream: stream})
	}
	launch := &wire.Launch{Function: 1, GridX: 1, GridY: 1, GridZ: 1, BlockX: 1, BlockY: 1, BlockZ: 1, Params: binary.LittleEndian.AppendUint64(nil, flag)}
	err := errors.Join(p.do(&wire.MemAlloc{Addr: flag, Size: 4}, nil, true), p.load([]byte(waits), "waits"), set(0, 0), p.Post(&wire.StreamCreate{Stream: 3, Flags: 1}), p.Post(launch))
	if err != nil {
		t.Fatal(err)
	}
	const notReady = 600
	if r, err := p.Call(&wire.StreamQuery{}, nil); r != notReady || err != nil { // a checkpoint before the kernel would wait for nothing
		t.Fatal(r, err)
	}
	nothing := scratch(t)
	ctx, giveUp := context.WithCancel(t.Context())
	saved := make(chan error)
	go func() {
		for { // the order below may be a moment earlier
			_, err := ask.Checkpoint(ctx, f.socket, p.attached.Client, nothing)
			if err == nil || !strings.Contains(err.Error(), "already") {
				saved <- err
				return
			}
		}
	}()
	order := func() error {
		_, err := ask.Checkpoint(t.Context(), f.socket, p.attached.Client, scratch(t))
		return err
	}
	eventually(t, "the checkpoint has begun", func() bool {
		_, err := ask.Restore(f.socket, p.attached.Client, nothing)
		return strings.Contains(err.Error(), "is being saved or restored already")
	})
	giveUp()
	if err := <-saved; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := set(1, 3); err != nil { // the kernel ends only if the worker reads this
		t.Fatal(err)
	}
	if r, err := p.Call(&wire.Synchronise{}, nil); r != 0 || err != nil {
		t.Fatal(r, err)
	}
	if err := retried(t, order); err != nil {
		t.Error(err)
	}
}

// While memory is freed, which waits for kernels, the worker hears nothing: a checkpoint that was given up
// ends with the kernel. Who orders something meanwhile is told so.
func TestCheckpointGivenUpUnderACall(t *testing.T) {
	f := realFixture(t)
	p := mustConnect(t, f)
	flag := p.attached.ArenaBase
	other := flag + 1<<20
	launch := &wire.Launch{Function: 1, GridX: 1, GridY: 1, GridZ: 1, BlockX: 1, BlockY: 1, BlockZ: 1, Params: binary.LittleEndian.AppendUint64(nil, flag)}
	err := errors.Join(p.do(&wire.MemAlloc{Addr: flag, Size: 4}, nil, true), p.do(&wire.MemAlloc{Addr: other, Size: 4}, nil, true), p.load([]byte(waits), "waits"),
		p.Post(&wire.Fill{Dst: flag, Pitch: 4, Width: 4, Count: 1, Height: 1}), p.Post(launch), p.Post(&wire.MemFree{Addr: other}))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "it was given up", func() bool {
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer stop()
		_, err := ask.Checkpoint(ctx, f.socket, p.attached.Client, scratch(t))
		return err != nil && strings.Contains(err.Error(), "that an interrupted checkpoint waited for")
	})
}
