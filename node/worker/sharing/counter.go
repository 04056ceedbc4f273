// Package sharing is where the workers of a user's programs give each other the files of memory that their
// clients share. It knows names, files and who may ask; what the memory is for, and how it is mapped, it
// does not know.
package sharing

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"muster/device"
	"muster/internal/whois"
	"muster/node/clientcore"
)

// Counter is where the workers of other clients get the files of memory that this client shares. It
// is a socket in the abstract namespace, so it ends with this process and needs no daemon. A worker
// that asks must run as the same user of the machine, serve the same user of the node, and know the
// memory's secret.
type Counter struct {
	ctx   context.Context // the worker's
	heard func() bool     // the daemon has sent something, so that the worker is not to wait for long
	owner string          // the client's user on the node; "": on another machine
	serve sync.WaitGroup

	mu       sync.Mutex
	listener *net.UnixListener
	socket   [2]uint64
	files    map[clientcore.Name]*offered
	asking   []*net.UnixConn // connections being answered, oldest first
	ended    bool
}

// offered is a file, and how many times this client has it mapped.
type offered struct {
	file *os.File
	uses int
	ours bool // made by this client, so other workers may ask for it
}

const (
	counterTime = 10 * time.Second // the most that a question may take
	urgentTime  = time.Second      // ... once the daemon has sent something
	mostAsking  = 64               // at a time
)

// New makes a counter for a user of the node. Heard says whether the daemon has sent something to the worker.
func New(ctx context.Context, owner string, heard func() bool) *Counter {
	return &Counter{ctx: ctx, owner: owner, heard: heard}
}

var errAfar = fmt.Errorf("programs of other machines share no memory: copy it, or run the program on the node's own machine: %w", device.ErrNotSupported)

func counterName(socket [2]uint64) string {
	return fmt.Sprintf("@muster-shared-%016x%016x", socket[0], socket[1])
}

func randomWords() (w [2]uint64, err error) {
	var b [16]byte
	_, err = rand.Read(b[:])
	return [2]uint64{binary.LittleEndian.Uint64(b[:8]), binary.LittleEndian.Uint64(b[8:])}, err
}

// Offer gives a file a name, under which other workers can ask for it once it is in use.
// DropUnused closes it if it never is.
func (c *Counter) Offer(f *os.File) (clientcore.Name, error) {
	if c.owner == "" {
		return clientcore.Name{}, errAfar
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.listener == nil {
		socket, err := randomWords()
		if err != nil {
			return clientcore.Name{}, err
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: counterName(socket), Net: "unix"})
		if err != nil {
			return clientcore.Name{}, fmt.Errorf("sharing memory with other programs: %w", err)
		}
		c.listener, c.socket, c.files = l, socket, map[clientcore.Name]*offered{}
		c.serve.Go(func() { c.answerAll(l) })
	}
	secret, err := randomWords()
	if err != nil {
		return clientcore.Name{}, err
	}
	name := clientcore.Name{c.socket[0], c.socket[1], secret[0], secret[1]}
	c.files[name] = &offered{file: f, ours: true}
	return name, nil
}

// DropUnused closes files that were offered and never taken: the operation they were made for has
// failed.
func (c *Counter) DropUnused() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, o := range c.files {
		if o.uses == 0 {
			delete(c.files, name)
			o.file.Close()
		}
	}
}

// Take returns the file that the client has under a name, for one more use; nil if it has none.
func (c *Counter) Take(name clientcore.Name) *os.File {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.files[name]
	if o == nil {
		return nil
	}
	o.uses++
	return o.file
}

// keep registers a file that came from another client.
func (c *Counter) keep(name clientcore.Name, f *os.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.files == nil {
		c.files = map[clientcore.Name]*offered{}
	}
	c.files[name] = &offered{file: f, uses: 1}
}

// Put ends one use of a file. The last one closes it, and other workers cannot get it any more.
func (c *Counter) Put(name clientcore.Name, f *os.File) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o := c.files[name]
	if o == nil || o.file != f {
		return
	}
	if o.uses--; o.uses <= 0 {
		delete(c.files, name)
		f.Close()
	}
}

// Close ends the counter and closes all files. It also closes connections, so that a peer that says
// nothing does not keep this process alive.
func (c *Counter) Close() {
	c.mu.Lock()
	c.ended = true
	if c.listener != nil {
		c.listener.Close()
	}
	for _, conn := range c.asking {
		conn.Close()
	}
	for _, o := range c.files {
		o.file.Close()
	}
	c.files = nil
	c.mu.Unlock()
	c.serve.Wait()
}

func (c *Counter) answerAll(l *net.UnixListener) {
	for {
		conn, err := l.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // this process has too many files open
			continue
		}
		if peer, err := whois.Of(conn); err != nil || int(peer.Uid) != os.Geteuid() || !c.begin(conn) {
			conn.Close()
			continue
		}
		c.serve.Go(func() {
			defer c.finish(conn)
			_ = conn.SetDeadline(time.Now().Add(counterTime))
			c.answer(conn)
		})
	}
}

// begin registers a connection. Workers ask as soon as they have connected, so when there are too
// many silent connections the oldest is closed.
func (c *Counter) begin(conn *net.UnixConn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	if len(c.asking) >= mostAsking {
		c.asking[0].Close()
		c.asking = slices.Delete(c.asking, 0, 1)
	}
	c.asking = append(c.asking, conn)
	return true
}

func (c *Counter) finish(conn *net.UnixConn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking = slices.DeleteFunc(c.asking, func(other *net.UnixConn) bool { return other == conn })
	conn.Close()
}

// answer gives a file to a worker that may have it. Any other peer gets no answer.
func (c *Counter) answer(conn *net.UnixConn) {
	var question [18]byte
	if _, err := io.ReadFull(conn, question[:]); err != nil {
		return
	}
	owner := make([]byte, binary.LittleEndian.Uint16(question[16:]))
	if _, err := io.ReadFull(conn, owner); err != nil || string(owner) != c.owner {
		return
	}
	c.mu.Lock()
	name := clientcore.Name{c.socket[0], c.socket[1], binary.LittleEndian.Uint64(question[:]), binary.LittleEndian.Uint64(question[8:])}
	var rights []byte
	if o := c.files[name]; o != nil && o.ours && o.uses > 0 {
		rights = syscall.UnixRights(int(o.file.Fd()))
		_, _, _ = conn.WriteMsgUnix([]byte{1}, rights, nil)
	}
	c.mu.Unlock()
}

// Fetch gets the file of memory that another client shares, from that client's worker.
func (c *Counter) Fetch(name clientcore.Name) (*os.File, error) {
	began := time.Now()
	conn, err := dialCounter(name, began)
	if err != nil {
		return nil, err
	}
	_ = conn.SetDeadline(began.Add(counterTime))
	answered := make(chan struct{})
	defer close(answered)
	go c.loseInterest(conn, answered)
	if peer, err := whois.Of(conn); err != nil || int(peer.Uid) != os.Geteuid() {
		return nil, errors.New("another user answers there")
	}
	question := binary.LittleEndian.AppendUint64(nil, name[2])
	question = binary.LittleEndian.AppendUint64(question, name[3])
	question = binary.LittleEndian.AppendUint16(question, uint16(len(c.owner)))
	if _, err := conn.Write(append(question, c.owner...)); err != nil {
		return nil, err
	}
	f, err := receiveFile(conn)
	if err == nil {
		c.keep(name, f)
	}
	return f, err
}

// dialCounter connects. It tries again if the listener's queue is full.
func dialCounter(name clientcore.Name, began time.Time) (*net.UnixConn, error) {
	at := &net.UnixAddr{Name: counterName([2]uint64{name[0], name[1]}), Net: "unix"}
	for {
		conn, err := net.DialUnix("unix", nil, at)
		if !errors.Is(err, syscall.EAGAIN) || time.Since(began) > urgentTime {
			return conn, err
		}
		time.Sleep(time.Millisecond)
	}
}

// loseInterest closes the connection when the daemon has sent something, or this worker ends. The
// peer may be a program that never answers, and meanwhile the loop would not hear the daemon
// although other clients wait for the device.
func (c *Counter) loseInterest(conn *net.UnixConn, answered <-chan struct{}) {
	defer conn.Close()
	looks := time.NewTicker(10 * time.Millisecond)
	defer looks.Stop()
	for began := time.Now(); ; {
		select {
		case <-answered:
			return
		case <-c.ctx.Done():
			return
		case <-looks.C:
			if c.heard() && time.Since(began) > urgentTime {
				return
			}
		}
	}
}

// receiveFile receives the one descriptor of an answer.
func receiveFile(conn *net.UnixConn) (*os.File, error) {
	answer, control := make([]byte, 1), make([]byte, syscall.CmsgSpace(4))
	n, size, _, _, err := conn.ReadMsgUnix(answer, control)
	if err != nil || n != 1 {
		return nil, errors.Join(errors.New("there is no such memory"), err)
	}
	messages, err := syscall.ParseSocketControlMessage(control[:size])
	if err != nil || len(messages) != 1 {
		return nil, errors.Join(errors.New("no descriptor came"), err)
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		for _, fd := range fds { // the buffer has room for two
			syscall.Close(fd)
		}
		return nil, errors.Join(errors.New("no descriptor came"), err)
	}
	syscall.CloseOnExec(fds[0])
	return os.NewFile(uintptr(fds[0]), "shared memory"), nil
}
