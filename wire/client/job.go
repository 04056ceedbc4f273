package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"muster/internal/whois"
	"muster/wire"
	"muster/wire/grant"
	"muster/wire/trust"
)

// The programs of a job use the devices of its grant, wherever they are, as devices 0, 1 and so on.
// Each device that a program uses has a connection of its own, so one program can use devices of
// several nodes. All connections come to one socket (Serve).
//
// A connection for a device of this machine is passed on to the local daemon, which answers with
// the descriptors of the ring and the arena; these go to the program. From then on program and
// worker share memory, and nothing is copied on the way: the process that serves the job only makes
// each side learn of the other's end. So it is with a borrowed device if the daemon was told of it
// with the grant: the program's client is at home then, and outlives the lender. Where there is no such
// daemon, a connection for a borrowed device goes through a relay to the lender's gateway, and the
// client lives there.
//
// The process that serves the job presents the credential to nodes. Programs never see it.

// CUresults of refusals.
const (
	resultInvalidDevice = 101
	resultTryAgain      = 600 // from a daemon that is being replaced
)

// How long to wait for this machine's daemon while it restarts, and how often to try.
const restartTime, restartLook = 10 * time.Second, 20 * time.Millisecond

// Serve lets the programs of a job that connect to a socket use the devices of its grant. Devices
// of this machine are those of the daemon at the socket local. Only programs of the same user are
// served. Serve returns when ctx is done and all programs were told.
func Serve(ctx context.Context, listener *net.UnixListener, g *grant.Grant, local string, log *slog.Logger) error {
	j, err := NewJob(g, local, os.Getuid())
	if err != nil {
		return err
	}
	return j.Serve(ctx, listener, log)
}

// Serve is the function Serve, for the programs of the job's user.
func (j *Job) Serve(ctx context.Context, listener *net.UnixListener, log *slog.Logger) error {
	return acceptPrograms(ctx, listener, j.user, log, j.serve)
}

// CheckGrant asks all nodes of a grant for their devices, so that errors are known before a program
// is started.
func CheckGrant(ctx context.Context, g *grant.Grant, local string) error {
	j, err := NewJob(g, local, os.Getuid())
	if err != nil {
		return err
	}
	_, err = j.describe(ctx, Hello("", 0))
	return err
}

// Job serves one grant.
type Job struct {
	grant *grant.Grant
	local string
	user  int         // the user whose programs are served
	tls   *tls.Config // authenticates lenders

	mu    sync.Mutex
	shown map[shownKey]*said
	links Links

	asking sync.Mutex  // held while it is found out whether
	holds  atomic.Bool // this machine's daemon has devices of other nodes for the grant
	asked  bool        // that is known
}

// Links are the connections of a job's programs that have a device, for whoever saves these programs. Each
// is known by the inode of the end that this process has.
type Links struct {
	// Passed are those for devices of this machine: that to the daemon, and that to the program.
	Passed map[uint64]uint64
	// Borrowed are programs' connections for devices of other machines.
	Borrowed map[uint64]bool
}

// Links are those there are now.
func (j *Job) Links() Links {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Links{maps.Clone(j.links.Passed), maps.Clone(j.links.Borrowed)}
}

// link notes a program's connection, and that to the daemon; nil for a borrowed device. It returns what
// forgets it again.
func (j *Job) link(program, daemon *net.UnixConn) (forget func()) {
	near := whois.Inode(program)
	j.mu.Lock()
	defer j.mu.Unlock()
	if daemon == nil {
		j.links.Borrowed[near] = true
		return func() { j.mu.Lock(); delete(j.links.Borrowed, near); j.mu.Unlock() }
	}
	far := whois.Inode(daemon)
	j.links.Passed[far] = near
	return func() { j.mu.Lock(); delete(j.links.Passed, far); j.mu.Unlock() }
}

// shownKey is a node, "" for this machine's, and how much memory of each device a program wants to see.
type shownKey struct {
	node   string
	memory uint64
}

// maxShown is how many answers of nodes are cached.
const maxShown = 256

// NewJob makes what serves a grant to the programs of a user. If that is not this process's own user, the
// grant must be that user's, and only root may do it: the daemon trusts it to name the user.
func NewJob(g *grant.Grant, local string, user int) (*Job, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	j := &Job{grant: g, local: local, user: user, shown: map[shownKey]*said{}, links: Links{map[uint64]uint64{}, map[uint64]bool{}}}
	if g.Authority != "" {
		believed, err := trust.BelieveText(g.Authority, "")
		if err != nil {
			return nil, fmt.Errorf("the authority of the grant: %w", err)
		}
		j.tls = trust.Dial(believed, trust.Anyone, wire.StreamProtocol)
	}
	return j, nil
}

// serve serves one connection of a program until it ends.
func (j *Job) serve(ctx context.Context, near *net.UnixConn) error {
	pid, err := programOf(near, j.user)
	if err != nil {
		return err
	}
	_ = near.SetDeadline(time.Now().Add(setUpTime))
	in, request, err := greeting(near)
	if err != nil {
		return fmt.Errorf("a program's greeting: %w", err)
	}
	if request != nil {
		return j.passRequest(ctx, near, request)
	}
	var hello wire.Hello
	if err := wire.ReadAs(in, &hello); err != nil {
		return fmt.Errorf("a program's greeting: %w", err)
	}
	hello.Pid, hello.Token, hello.Grant = uint32(pid), "", string(j.grant.Secret)
	r := &relay{near: near, hello: hello}
	// Closing the connections ends all goroutines that wait on them.
	defer context.AfterFunc(ctx, func() { r.finish("the job is ending") })()
	defer r.finish("")
	shown, err := j.describe(ctx, hello)
	if err != nil {
		return r.lost(err)
	}
	wanted, err := shown.offer(near)
	if err != nil {
		return err
	}
	if int64(wanted.Device) >= int64(len(j.grant.Devices)) {
		return r.lost(&wire.Refused{Result: resultInvalidDevice, Reason: fmt.Sprintf("there is no device %d: the job has %d", wanted.Device, len(j.grant.Devices))})
	}
	device := j.grant.Devices[wanted.Device]
	place := wire.Attach{Device: uint32(j.place(int(wanted.Device))), Place: wanted.Device}
	if !j.isHere(device) {
		return j.borrow(ctx, r, device, place)
	}
	return j.passOn(ctx, r, place)
}

// offer tells a program its devices, and waits until it wants one. The program may do much else
// before, so there is no deadline.
func (s *said) offer(near *net.UnixConn) (wanted wire.Attach, err error) {
	_ = near.SetDeadline(time.Now().Add(setUpTime))
	if err := wire.WriteRecord(near, &s.welcome); err != nil {
		return wanted, err
	}
	for i := range s.devices {
		if err := wire.WriteRecord(near, &s.devices[i]); err != nil {
			return wanted, err
		}
	}
	_ = near.SetDeadline(time.Time{})
	if err := wire.ReadAs(near, &wanted); err != nil {
		return wanted, fmt.Errorf("a program that used no device: %w", err)
	}
	return wanted, nil
}

// --- what a program sees -------------------------------------------------------

// describe asks those nodes of the grant that have not been asked yet for their devices, and lists
// all devices in the grant's order. Answers are cached: programs find the same devices for as long
// as the job runs, even while a lender is away.
func (j *Job) describe(ctx context.Context, hello wire.Hello) (*said, error) {
	hello.Grant = string(j.grant.Secret)
	if err := j.findRoads(ctx, hello); err != nil {
		return nil, err
	}
	all := &said{}
	nodes := map[string]*said{}
	for i, d := range j.grant.Devices {
		at := j.nodeOf(d)
		if nodes[at] == nil {
			one, err := j.ask(ctx, d, hello)
			if err != nil {
				return nil, about(d, err)
			}
			nodes[at] = one
			if all.welcome.Driver == 0 || one.welcome.Driver < all.welcome.Driver {
				all.welcome = one.welcome
			}
		}
		device := nodes[at].devices[j.place(i)]
		device.Attributes = atBus(device.Attributes, 1+i)
		all.devices = append(all.devices, device)
	}
	all.welcome.Devices = uint32(len(all.devices))
	return all, nil
}

// findRoads finds out whether the grant's devices of other nodes are reached by way of this machine's daemon,
// which then has them as its own, or by relays to their nodes. It is asked once: clients of the job are where
// the first one is.
func (j *Job) findRoads(ctx context.Context, hello wire.Hello) error {
	j.asking.Lock()
	defer j.asking.Unlock()
	own := slices.IndexFunc(j.grant.Devices, func(d grant.Device) bool { return !d.IsBorrowed() })
	if j.asked || !j.grant.NeedsHome() {
		return nil
	}
	known, err := j.askLocal(ctx, hello, own >= 0)
	switch {
	case err == nil:
		j.holds.Store(len(known.devices) == len(j.grant.ForHome()))
	case own >= 0:
		return about(j.grant.Devices[own], err)
	}
	j.asked = true
	return nil
}

// isHere says whether a device is reached by way of this machine's daemon.
func (j *Job) isHere(d grant.Device) bool { return !d.IsBorrowed() || d.IsForHome() && j.holds.Load() }

// nodeOf is the node by way of which a device is reached; "" for this machine's.
func (j *Job) nodeOf(d grant.Device) string {
	if j.isHere(d) {
		return ""
	}
	return d.Node
}

// place is the place of device i among those by way of the same node.
func (j *Job) place(i int) (n int) {
	for _, d := range j.grant.Devices[:i] {
		if j.nodeOf(d) == j.nodeOf(j.grant.Devices[i]) {
			n++
		}
	}
	return n
}

// shows is how many devices a node must show: "" is this machine's.
func (j *Job) shows(node string) (n int) {
	for _, d := range j.grant.Devices {
		if j.nodeOf(d) == node {
			n++
		}
	}
	return n
}

// ask asks the node by way of which a device is reached for its devices, unless it has answered before.
func (j *Job) ask(ctx context.Context, d grant.Device, hello wire.Hello) (*said, error) {
	key := shownKey{j.nodeOf(d), hello.Memory}
	j.mu.Lock()
	known := j.shown[key]
	j.mu.Unlock()
	if known != nil {
		return known, nil
	}
	var err error
	if key.node != "" {
		r := &relay{remote: j.lender(d), hello: hello}
		r.hello.Grant = r.remote.Grant
		known, err = r.greet(ctx)
		if r.far != nil {
			_ = r.far.Close()
		}
	} else {
		known, err = j.askLocal(ctx, hello, true)
	}
	if err != nil {
		return nil, err
	}
	if n := j.shows(key.node); len(known.devices) != n {
		return nil, fmt.Errorf("it shows %d devices, and the grant has %d there: admit it there as it is", len(known.devices), n)
	}
	j.remember(key, known)
	return known, nil
}

// remember caches what a node said.
func (j *Job) remember(key shownKey, what *said) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.shown) >= maxShown {
		clear(j.shown)
	}
	j.shown[key] = what
}

// about adds the node to an error; a refusal stays a refusal.
func about(d grant.Device, err error) error {
	var refused *wire.Refused
	if errors.As(err, &refused) {
		return &wire.Refused{Result: refused.Result, Reason: "node " + d.Node + ": " + refused.Reason}
	}
	return fmt.Errorf("node %s: %w", d.Node, err)
}

// CUdevice_attribute: a device's place on the PCI bus.
const attrPCIBus = 33

// atBus changes a device's place on the PCI bus: no two devices of a program may have the same, and
// nodes do not know of each other's.
func atBus(attributes []byte, bus int) []byte {
	changed := bytes.Clone(attributes)
	for at := 0; at+8 <= len(changed); at += 8 {
		if binary.LittleEndian.Uint32(changed[at:]) == attrPCIBus {
			binary.LittleEndian.PutUint32(changed[at+4:], uint32(bus))
		}
	}
	return changed
}

// --- devices of this machine ---------------------------------------------------

// askLocal asks this machine's daemon for its devices, and waits for one that restarts if there must be one.
func (j *Job) askLocal(ctx context.Context, hello wire.Hello, must bool) (*said, error) {
	var s *Session
	try := func() (err error) {
		s, err = j.dial(hello)
		return err
	}
	var err error
	if must {
		err = j.patiently(ctx, try)
	} else {
		err = try()
	}
	if err != nil {
		return nil, err
	}
	s.Close()
	return &said{s.Welcome, s.Devices}, nil
}

// patiently calls try again while this machine's daemon is restarting.
func (j *Job) patiently(ctx context.Context, try func() error) error {
	for end := time.Now().Add(restartTime); ; {
		err := try()
		var refused *wire.Refused
		again := isGone(err) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) || errors.As(err, &refused) && refused.Result == resultTryAgain
		if !again || time.Now().After(end) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(restartLook):
		}
	}
}

// dial greets this machine's daemon. The daemon must run as root or as the same user, since it is
// shown the credential.
func (j *Job) dial(hello wire.Hello) (*Session, error) {
	conn, err := net.DialTimeout("unix", j.local, setUpTime)
	if err != nil {
		return nil, fmt.Errorf("no node answers at %s (start one with muster node): %w", j.local, err)
	}
	s := &Session{conn: conn.(*net.UnixConn)}
	if j.user != os.Getuid() { // the grant says whose programs these are
		hello.Token = wire.SpeaksFor
	}
	if err = trusted(s.conn); err == nil {
		err = s.greet(hello)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// trusted refuses daemons of users other than root, this user, and the one that MUSTER_UID names,
// as programs do.
func trusted(conn *net.UnixConn) error {
	peer, err := whois.Of(conn)
	if err != nil {
		return err
	}
	if peer.Uid != 0 && int(peer.Uid) != os.Getuid() && strconv.FormatUint(uint64(peer.Uid), 10) != os.Getenv("MUSTER_UID") {
		return fmt.Errorf("the node's daemon runs as user %d: set MUSTER_UID=%d if that is right", peer.Uid, peer.Uid)
	}
	return nil
}

// passOn makes a program the client of a device of this machine, and returns when one side has
// ended.
func (j *Job) passOn(ctx context.Context, r *relay, wanted wire.Attach) error {
	device := j.grant.Devices[wanted.Place]
	var session *Session
	err := j.patiently(ctx, func() (err error) {
		if session, err = j.dial(r.hello); err != nil {
			return err
		}
		if err = j.attachLocal(session, r, device, wanted); err != nil {
			session.Close()
		}
		return err
	})
	if err != nil {
		return r.lost(about(device, err))
	}
	defer session.Close()
	defer j.link(r.near, session.conn)()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, reading{session.conn})
		_ = r.near.Close()
	}()
	_, _ = io.Copy(io.Discard, reading{r.near}) // a program sends nothing more
	session.HangUp()
	<-ended
	return nil
}

// attachLocal asks the daemon for a device, and passes its answer to the program.
func (j *Job) attachLocal(session *Session, r *relay, device grant.Device, wanted wire.Attach) error {
	known, err := j.ask(context.Background(), device, r.hello)
	if err != nil {
		return err
	}
	if !session.Shows(known.welcome, known.devices) {
		return errChanged
	}
	_ = session.conn.SetDeadline(time.Now().Add(attachTime))
	if err := wire.WriteRecord(session.conn, &wanted); err != nil {
		return err
	}
	in := &fileReader{conn: session.conn}
	defer in.close()
	var attached wire.Attached
	if err := wire.ReadAs(in, &attached); err != nil {
		return err
	}
	_ = session.conn.SetDeadline(time.Time{})
	var record bytes.Buffer
	if err := wire.WriteRecord(&record, &attached); err != nil {
		return err
	}
	_ = r.near.SetWriteDeadline(time.Now().Add(setUpTime))
	if err := wire.SendFiles(r.near, record.Bytes(), in.files...); err != nil {
		return fmt.Errorf("the program has gone: %v", err) // %v and not %w: patiently must not take it for a restarting daemon
	}
	return nil
}

// errChanged says that a program would not find the devices that it was told of.
var errChanged = errors.New("the node's devices are not those of which the program was told: start it again")

// --- borrowed devices ----------------------------------------------------------

// lender is the node of a borrowed device.
func (j *Job) lender(d grant.Device) Remote {
	r := Secure(d.Address, j.tls, "")
	r.Grant = string(j.grant.SecretFor(d))
	return r
}

// borrow serves a program with a device of another node.
func (j *Job) borrow(ctx context.Context, r *relay, device grant.Device, wanted wire.Attach) error {
	r.remote, r.node = j.lender(device), device.Node
	r.hello.Grant = r.remote.Grant
	known, err := j.ask(ctx, device, r.hello)
	if err != nil {
		return r.lost(about(device, err))
	}
	now, err := r.greet(ctx)
	if err == nil && !reflect.DeepEqual(known, now) {
		err = errChanged
	}
	if err != nil {
		return r.lost(about(device, err))
	}
	attached, err := r.attach(wanted)
	if err != nil {
		return r.lost(about(device, err))
	}
	defer j.link(r.near, nil)()
	return r.serve(attached)
}
