package node

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"
	"unicode"

	"muster/node/vgpu"
	"muster/wire"
	"muster/wire/control"
)

// setUpTime is how long a connection may take to greet, and to read answers.
const setUpTime = 10 * time.Second

// maxUnsettled is how many connections without a client one user may have.
const maxUnsettled = 256

// CUresult, as far as the daemon refuses with one.
const (
	resultOutOfMemory    = 2
	resultNoDevice       = 100
	resultInvalidDevice  = 101
	resultNotPermitted   = 800
	resultSystemNotReady = 802
	resultMismatch       = 803
)

func refuse(result int32, format string, args ...any) *wire.Refused {
	return &wire.Refused{Result: result, Reason: fmt.Sprintf(format, args...)}
}

// handle serves one connection to its end.
func (d *daemon) handle(conn *net.UnixConn) {
	who, err := peerOf(conn, &d.names)
	if err != nil {
		d.log.Warn("a connection was dropped", "error", err)
		return
	}
	_ = conn.SetDeadline(d.opts.Now().Add(setUpTime))
	if refused := d.enter(conn, who); refused != nil {
		d.turnAway(conn, refused)
		return
	}
	defer d.settle(conn)
	in := bufio.NewReader(conn)
	if isRequest(in) {
		d.answer(conn, in)
		return
	}
	c, err := d.setUp(conn, in, who)
	var refused *wire.Refused
	switch {
	case errors.As(err, &refused):
		d.log.Info("a client was refused", "user", who.user.name, "pid", who.pid, "reason", refused.Reason)
		d.turnAway(conn, refused)
		return
	case err != nil:
		d.log.Debug("a connection ended", "user", who.user.name, "pid", who.pid, "error", err)
		return
	}
	d.settle(conn)
	_ = conn.SetDeadline(time.Time{})
	reason := ""
	if _, err := in.ReadByte(); err == nil {
		reason = "it sent what it must not, on its socket"
	}
	d.do(func() { d.end(c, reason, false) })
	<-c.gone
}

// turnAway says why not. It then listens for a moment: what the other side is
// about to say would otherwise keep it from hearing.
func (d *daemon) turnAway(conn *net.UnixConn, refused *wire.Refused) {
	_ = conn.SetDeadline(d.opts.Now().Add(time.Second))
	if wire.WriteRecord(conn, refused) == nil && conn.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, wire.MaxRecord))
	}
}

// enter counts a connection against its user's.
func (d *daemon) enter(conn *net.UnixConn, who peer) *wire.Refused {
	d.mu.Lock()
	defer d.mu.Unlock()
	uid := who.user.uid
	switch {
	case d.closing:
		return refuse(resultSystemNotReady, "the node is shutting down")
	case d.unsettle[uid] >= maxUnsettled:
		return refuse(resultSystemNotReady, "user %s has %d connections without a client: too many", who.user.name, maxUnsettled)
	}
	d.conns[conn] = uid
	d.unsettle[uid]++
	return nil
}

// settle says that a connection is a client's, or no more.
func (d *daemon) settle(conn *net.UnixConn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	uid, ok := d.conns[conn]
	if !ok {
		return
	}
	delete(d.conns, conn)
	if d.unsettle[uid]--; d.unsettle[uid] == 0 {
		delete(d.unsettle, uid)
	}
}

func (d *daemon) isClosing() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.closing
}

// closeUnsettled lets no connection become a client any more.
func (d *daemon) closeUnsettled() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closing = true
	for conn := range d.conns {
		_ = conn.SetReadDeadline(time.Unix(1, 0))
	}
}

// isRequest tells a person's request, a line of JSON, from a program's hello:
// no JSON has a frame's bytes there.
func isRequest(in *bufio.Reader) bool {
	head, err := in.Peek(8)
	return err == nil && head[0] == '{' && binary.LittleEndian.Uint32(head[4:]) != uint32(wire.OpHello)
}

const maxRequest = 4096

// answer answers a person's request.
func (d *daemon) answer(conn io.Writer, in io.Reader) {
	var request struct {
		Request string `json:"request"`
	}
	var reply any
	err := json.NewDecoder(io.LimitReader(in, maxRequest)).Decode(&request)
	switch {
	case err != nil:
		reply = map[string]string{"error": "a request is one JSON object, as {\"request\":\"status\"}"}
	case request.Request == "status":
		if status, ok := d.status(); ok {
			reply = status
		} else {
			reply = map[string]string{"error": "the node is shutting down"}
		}
	default:
		reply = map[string]string{"error": fmt.Sprintf("there is no request %q: ask for status", request.Request)}
	}
	_ = json.NewEncoder(conn).Encode(reply)
}

// setUp makes a client of a connection.
func (d *daemon) setUp(conn *net.UnixConn, in io.Reader, who peer) (*client, error) {
	var hello wire.Hello
	if err := wire.ReadAs(in, &hello); err != nil {
		if isSpoken(err) {
			return nil, refuse(resultMismatch, "this is a Muster node, and what came first is no greeting that it knows: %v", err)
		}
		return nil, err
	}
	if err := checkHello(&hello); err != nil {
		return nil, err
	}
	ours := who.user.uid == uint32(os.Getuid())
	if name, ok := strings.CutPrefix(hello.Token, wire.SpeaksFor); ok && ours && name != "" {
		who.user = account{uid: nobody, name: printable(name)}
	}
	limits := d.cfg.Limits.of(who.user)
	memory := d.worldOf(hello.Memory, limits)
	devices := visible(d.cfg.Name, d.infos, d.visibleCount(), memory)
	var out bytes.Buffer
	_ = wire.WriteRecord(&out, &wire.Welcome{Version: wire.Version, Driver: driverVersion(d.infos), Devices: uint32(len(devices))})
	for i := range devices {
		if err := wire.WriteRecord(&out, &devices[i]); err != nil {
			return nil, err
		}
	}
	if _, err := conn.Write(out.Bytes()); err != nil {
		return nil, err
	}
	// A program may do much else before it uses a device.
	_ = conn.SetReadDeadline(time.Time{})
	if d.isClosing() {
		return nil, refuse(resultSystemNotReady, "the node is shutting down")
	}
	var attach wire.Attach
	if err := wire.ReadAs(in, &attach); err != nil {
		if isSpoken(err) {
			return nil, refuse(resultMismatch, "the greeting was not followed by a request for a device: %v", err)
		}
		return nil, err
	}
	_ = conn.SetWriteDeadline(d.opts.Now().Add(setUpTime))
	if int64(attach.Device) >= int64(len(devices)) {
		return nil, refuse(resultInvalidDevice, "there is no device %d: the node shows %d", attach.Device, len(devices))
	}
	c := &client{
		peer: who, limits: limits, memory: memory, memoryBy: d.memoryBy(hello.Memory, memory, limits), program: printable(hello.Program), ordinal: int(attach.Device),
		arena: arenaOf(int(attach.Device), memory), conn: conn, gone: make(chan struct{}), device: vgpu.AnyDevice,
	}
	if hello.Pid != 0 && ours {
		c.peer.pid = int32(hello.Pid) // someone of ours speaks for it
	}
	return c, d.attach(c)
}

// isSpoken says whether the other side said something wrong, rather than
// nothing.
func isSpoken(err error) bool {
	var network net.Error
	return !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) && !errors.As(err, &network)
}

func checkHello(h *wire.Hello) error {
	switch {
	case h.Magic != wire.Magic:
		return refuse(resultMismatch, "this is a Muster node, and the greeting is not Muster's")
	case h.Version != wire.Version:
		return refuse(resultMismatch, "the program's library speaks version %d of Muster's protocol and the node version %d: use the library that came with the node", h.Version, wire.Version)
	case h.Schema != wire.Schema:
		return refuse(resultMismatch, "the program's library and the node are from different builds of Muster: use the library that came with the node")
	}
	return nil
}

// printable keeps what a program says of itself from doing harm to terminals.
func printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
	const most = 200
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most])
	}
	return text
}

func (d *daemon) visibleCount() int {
	if d.cfg.Visible > 0 {
		return d.cfg.Visible
	}
	return len(d.infos)
}

// worldOf is how much device memory a client sees.
func (d *daemon) worldOf(wish uint64, limits UserLimits) uint64 {
	memory := wish
	if memory == 0 {
		for _, info := range d.infos {
			memory = max(memory, info.Memory-info.ContextCost)
		}
	}
	memory = min(memory, d.cfg.Swap.Size, maxArena/4)
	if limits.Memory > 0 {
		memory = min(memory, limits.Memory)
	}
	return memory
}

// attach gives a client its worker and its memory, or says why not.
func (d *daemon) attach(c *client) (err error) {
	if err := d.admit(c); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			d.do(func() { d.end(c, "", false) })
		}
	}()
	ring, arena, err := wire.Create(wire.DefaultGeometry)
	if err != nil {
		return refuse(resultOutOfMemory, "there is no shared memory for the client: %v", err)
	}
	defer arena.Close()
	defer ring.Close()
	shared, err := wire.Map(ring, nil)
	if err != nil {
		return refuse(resultOutOfMemory, "there is no shared memory for the client: %v", err)
	}
	worker, err := d.pool.take()
	if err != nil {
		shared.Unmap()
		return refuse(resultSystemNotReady, "%v", err)
	}
	serve := control.Serve{
		Client: uint64(c.id), ArenaBase: c.arena.Base, ArenaSize: c.arena.Size, Memory: c.memory, MemoryBy: c.memoryBy,
		SwapDir: d.cfg.Swap.Dir, Defer: d.cfg.Defer,
	}
	if os.Geteuid() == 0 {
		serve.User = c.peer.user.process()
	}
	for _, device := range d.cfg.Devices {
		serve.Devices = append(serve.Devices, device.DeviceConfig)
	}
	assigned := false
	if !d.ask(func() { assigned = d.assign(c, worker, shared) }) || !assigned {
		worker.stop()
		<-worker.exited
		shared.Unmap()
		return refuse(resultSystemNotReady, "the node is shutting down")
	}
	if err := worker.serve(serve, append([]*os.File{ring, arena}, d.locks...)); err != nil {
		return refuse(resultSystemNotReady, "%v", err)
	}
	var out bytes.Buffer
	_ = wire.WriteRecord(&out, &wire.Attached{
		ArenaBase: c.arena.Base, ArenaSize: c.arena.Size, Memory: c.memory, Warp: uint32(d.infos[0].Limits.Warp), Client: uint64(c.id),
	})
	return wire.SendFiles(c.conn, out.Bytes(), ring, arena)
}
