package node

import (
	"context"
	"log/slog"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"muster/device"
	"muster/internal/confine"
	"muster/internal/door"
	"muster/internal/whois"
	"muster/node/vgpu"
	"muster/wire/control"
	"muster/wire/status"
)

// Options are what the daemon needs from its surroundings.
type Options struct {
	// Open opens a device. The daemon uses only its Info.
	Open func(control.DeviceConfig) (device.Device, error)
	// Needs is what a worker must reach of the system to use devices of a kind, beside what every worker
	// reaches; nil if nothing. It is given Kind, Lender and Faults, and must not wait.
	Needs func(control.DeviceConfig) confine.Rules
	// WorkerCommand starts a worker, which finds its connection at descriptor 3.
	WorkerCommand []string
	Log           *slog.Logger
	Now           func() time.Time
	// Ready is called when programs can connect; may be nil.
	Ready func()
	// Kill, when closed, ends everything at once.
	Kill <-chan struct{}
	// Handover, when closed, ends the daemon and leaves its clients to the next.
	Handover <-chan struct{}
	// Load reads the configuration again, whenever Reload says so; nil: it never changes.
	Load   func() (Config, error)
	Reload <-chan struct{}
	// Version is this program's, for recordings.
	Version string
	// Gateway is the number of the process that connects on behalf of users of other machines, and
	// bounds their connections itself; 0 if there is none.
	Gateway int
	// Parcels tells what the gateway has exchanged with those of other lenders; nil if there is none.
	Parcels func() status.Parcels
	// Sessions tells of programs of other machines whose connections broke; nil without a gateway.
	Sessions func() status.Sessions
	// Cut says how long each client that has no connection may still be resumed; nil without a gateway.
	Cut func() map[uint64]time.Duration
	// DialPeer connects to the gateway of another node, to ask what it lends (wire/borrow); nil if
	// the node borrows nothing.
	DialPeer func(ctx context.Context, address string) (net.Conn, error)
	// Peers delivers the gateways of other nodes whenever the cluster's head names them; nil if
	// there is no head.
	Peers <-chan []string
	// Authority vouches for other nodes to workers that use their devices, in PEM form.
	Authority string
	// Revoked is the file with the list of certificates that the authority has revoked.
	Revoked string
	// Agent says that the same process is also the node's agent, and so may admit and revoke
	// grants. The gateway never passes such requests on.
	Agent bool
	// Checks are health checks beside the daemon's own.
	Checks []Check
	// Services handle conversations on the socket that are not the daemon's own, by the name of the
	// request that begins them. They are not offered to programs of other machines.
	Services map[string]Service
}

// Service holds conversations of programs on this machine.
type Service struct {
	// Serve handles one conversation to its end. It speaks first: until then the other side must
	// send nothing after its request, since the daemon may have read that into its buffer.
	Serve func(conn *net.UnixConn, who Peer)
	// Stop ends all conversations; the daemon calls it at its end.
	Stop func()
	// Grant is the claim of the program that a process of the service's belongs to (grant.Claim); ""
	// if the process is none of the service's, or the program has no grant. It may be nil.
	Grant func(pid int) string
	// Status adds to the node's status; it may be nil. The loop calls it, so it must not wait.
	Status func(*status.Node)
}

// Peer is who is at the other end of a connection, as the system says.
type Peer struct {
	UID   uint32
	Name  string
	Grant string // the claim of the grant that the program is under (grant.Claim); "" without one
}

// daemon is a running node.
type daemon struct {
	cfg      Config // as at the start; read only settings from it that cannot change
	opts     Options
	log      *slog.Logger
	stock    atomic.Pointer[inventory] // the present devices; only the loop stores
	settings atomic.Pointer[Config]    // see live
	pool     *pool
	uids     *uids
	names    whois.Names
	own      account // whose node it is
	start    time.Time

	// events are functions that the loop runs, one after the other; the loop closes ended when it
	// returns.
	events chan func()
	ended  chan struct{}
	state  // the loop's

	recording *recording // nil if nothing is recorded

	mps         *mpsService
	confinement confinement

	folder  *stateFolder  // nil: nothing outlives the daemon
	missing atomic.Int32  // how many workers of an earlier daemon have not come back yet
	left    atomic.Bool   // the clients are left to the next daemon
	stopBy  chan string   // how a request wants the daemon to end
	kills   chan struct{} // closed when the daemon is to end at once
	killed  sync.Once

	places   *door.Places // of connections without a client, by user
	turned   *door.Places // of connections that are being told why they are refused
	refusals door.Sparing // what is logged of them
	handlers sync.WaitGroup
	closing  atomic.Bool // no connection becomes a client any more

	socket *door.Listener
	web    *webServer // nil if there is none

	precedence *os.File // memory in which workers claim devices; nil if there is none
	examined   examination
}

// Run runs the daemon until ctx ends and all clients have gone, for which it
// waits at most cfg.Grace, or until Kill. Nothing of it is left when it returns,
// unless it has handed over.
func Run(ctx context.Context, cfg Config, opts Options) error {
	d, err := newDaemon(cfg, opts)
	if err != nil {
		return err
	}
	listener, err := listen(cfg.Socket, d.mode(), d.log)
	if err != nil {
		return err
	}
	d.socket = door.Listen(listener, true)
	d.socket.Notice = d.notice("programs")
	// Programs that connect from now on wait until the node is up, instead of being refused.
	if err := d.begin(); err != nil {
		d.socket.Close()
		d.closeMPS()
		d.closeFolder()
		return err
	}
	defer d.closeLocks()
	defer d.closeFolder()
	defer d.closeMPS()
	defer d.recording.close()
	go d.loop()
	d.handlers.Go(d.listenToReloads)
	d.askPeers()
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		d.accept()
	}()
	d.log.Info("the node is up", "socket", cfg.Socket.Address, "devices", len(cfg.Devices), "policy", cfg.Policy.String())
	if opts.Ready != nil {
		opts.Ready()
	}

	go d.listenToKill()
	if d.awaitEnd(ctx) {
		d.handOver()
	} else {
		d.drainClients()
	}
	// The socket was kept open until now, so that newcomers could be told that the node shuts down.
	d.socket.Close()
	<-accepted
	d.places.Close()
	d.turned.Close()
	d.stopSpares()
	d.pool.stop()
	for _, s := range opts.Services {
		s.Stop()
	}
	d.handlers.Wait()
	if d.web != nil {
		d.web.close()
	}
	d.log.Info("the node is down")
	return nil
}

// begin makes the daemon ready to serve, with what an earlier one left. It may fail until the end
// of this function; then the folder and the clients in it must be left for another try, which is
// why left is set meanwhile.
func (d *daemon) begin() error {
	if err := d.openFolder(); err != nil {
		return err
	}
	left, err := d.inherit()
	d.left.Store(len(left.heirs) > 0) // if this fails, they are left for the next daemon
	if err == nil {
		err = d.openMPS()
	}
	if err == nil {
		err = d.equip(&left)
	}
	if err != nil {
		return err
	}
	if err := d.openConfinement(); err != nil {
		d.closeLocks()
		return err
	}
	if err := d.record(); err != nil {
		d.closeLocks()
		return err
	}
	if d.web, err = d.serveHTTP(); err != nil {
		d.recording.close()
		d.closeLocks()
		return err
	}
	d.openPrecedence(&left)
	d.pool = newPool(d.opts.WorkerCommand, d.bounds, d.cfg.Warm, d.log)
	d.adoptAll(&left)
	d.left.Store(false)
	if len(left.heirs) == 0 { // else their workers hold memory, and some may have to be found first
		d.lookForNeighbours()
	}
	return nil
}

// mode is the file mode of the socket.
func (d *daemon) mode() os.FileMode {
	allow := d.live().Allow
	switch {
	case d.cfg.Socket.Mode != 0:
		return os.FileMode(d.cfg.Socket.Mode)
	case allow == nil && d.own.uid != 0 || allow != nil && len(allow) == 0:
		return 0o600
	}
	return 0o666
}

// notice logs when a listener cannot accept connections, and when it can again.
func (d *daemon) notice(of string) func(error) {
	return func(trouble error) {
		if trouble != nil {
			d.log.Error("no connections of "+of+" can be accepted for now", "error", trouble)
		} else {
			d.log.Info("connections of " + of + " can be accepted again")
		}
	}
}

// newDaemon makes a daemon that has no devices yet.
func newDaemon(cfg Config, opts Options) (*daemon, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	warning, err := cfg.Swap.look()
	if err != nil {
		return nil, err
	}
	if warning != "" {
		opts.Log.Warn(warning)
	}
	d := &daemon{
		cfg: cfg, opts: opts, log: opts.Log, start: opts.Now(),
		events: make(chan func(), 256), ended: make(chan struct{}),
		places: door.NewPlaces(cfg.Connections.Local, 4*cfg.Connections.Local),
		turned: door.NewPlaces(maxTurnedEach, maxTurned), refusals: door.Sparing{Most: maxRefusals},
		stopBy: make(chan string, 1), kills: make(chan struct{}),
	}
	d.settings.Store(&cfg)
	uid := uint32(os.Getuid())
	d.own = account{uid, d.names.Of(uid)}
	return d, nil
}

// equip gives the daemon its devices and its dispatcher.
func (d *daemon) equip(left *inheritance) error {
	stockUp := d.stockUp
	if left.isAny() {
		stockUp = func() ([]vgpu.Device, error) { return d.stockAsBefore(left) }
	}
	devices, err := stockUp()
	if err != nil {
		return err
	}
	d.warnOfStrangers()
	if d.uids, err = newUIDs(d.cfg.WorkerUIDs); err != nil {
		return err
	}
	if os.Geteuid() == 0 && d.uids.all == (UIDRange{}) {
		d.log.Warn("this container has no user numbers for workers: users can stop and kill their own workers, and remote users each other's; name some that it has with worker_uids")
	}
	core, err := vgpu.New(d.cfg.dispatcher(devices, d.names.Of))
	if err != nil {
		return err
	}
	counted := d.before
	d.state = newState(core, d.cfg.WorkerTimeout)
	d.before = counted
	if d.borrowing, err = newBorrowing(&d.cfg); err != nil {
		return err
	}
	return d.makeLocks()
}

// accept serves connections until the socket is closed.
func (d *daemon) accept() {
	for {
		accepted, err := d.socket.Accept()
		if err != nil {
			return
		}
		conn := accepted.(*door.Conn)
		d.handlers.Add(1)
		go func() {
			defer d.handlers.Done()
			defer conn.Close()
			d.handle(conn.Conn.(*net.UnixConn), conn.Last)
		}()
	}
}

// drainClients lets no more clients in and waits until all have gone. It ends the remaining ones
// after Config.Grace, or at once when the daemon is killed.
func (d *daemon) drainClients() {
	patience := d.live().Grace
	d.log.Info("the node is shutting down", "grace", patience.String())
	d.closing.Store(true)
	d.places.CloseWaiting() // their programs connect again, and are told then
	d.do(func() { d.drain() })
	grace := time.NewTimer(patience)
	defer grace.Stop()
	const reason = "the node has been shut down"
	select {
	case <-d.ended:
	case <-grace.C:
		d.do(func() { d.endAll(reason, false) })
	case <-d.kills:
		d.do(func() { d.endAll(reason, true) })
	}
	select {
	case <-d.ended:
	case <-d.kills:
		d.do(func() { d.endAll(reason, true) })
		<-d.ended
	}
}
