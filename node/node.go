// Package node is the daemon of a machine with GPUs: it accepts programs, checks and
// limits them, gives each a worker process, and performs what the dispatcher in node/vgpu
// decides.
//
// One goroutine, the loop (loop.go, package loop), owns the dispatcher and all that is known of
// clients. No lock protects that state: every other goroutine reaches it by handing the
// loop a function, with Do (does not wait) or Ask (waits until it has run). A function
// that the loop runs must therefore never wait, least of all with Ask for the loop
// itself. The daemon opens no contexts and sees none of the programs' data: those go
// through memory that program and worker share. It knows no job policy.
//
// Devices come and go (package stock). The devices that the node has now are an immutable
// value, the inventory, which the loop replaces and any goroutine may read; so is the
// configuration, which can be read again (reload.go). The requests that people and
// commands make on the socket are answered by package requests.
//
// A new connection must say within Connections.Greet what it wants. It is either a
// request, which is answered at once, or a program's greeting; the daemon then waits
// until that program uses a device. Until the connection belongs to a client it occupies
// one of its user's places, and the daemon may close it to make room for a newer one of
// the same user. Connections that only wait are closed first, since their programs
// connect again when they need to.
package node

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"muster/device"
	"muster/internal/confine"
	"muster/internal/door"
	"muster/internal/whois"
	"muster/node/ask"
	"muster/node/dispatch"
	"muster/node/grants"
	"muster/node/inventory"
	"muster/node/lending"
	"muster/node/loop"
	"muster/node/mps"
	"muster/node/recording"
	"muster/node/requests"
	"muster/node/settings"
	"muster/node/socket"
	"muster/node/stock"
	"muster/node/survival"
	"muster/node/tally"
	"muster/node/vgpu"
	"muster/node/workers"
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
	Load   func() (settings.Config, error)
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
	Services map[string]requests.Service
}

// daemon is a running node.
type daemon struct {
	cfg      settings.Config // as at the start; read only settings from it that cannot change
	opts     Options
	log      *slog.Logger
	stock    *stock.Stock
	settings settings.Live // as they are now
	pool     *workers.Pool
	names    *whois.Names
	rights   requests.Rights
	desk     *requests.Desk
	orders   orders
	loop     *loop.Loop
	state    // the loop's

	tally     tally.Book           // the loop's
	recording *recording.Recording // nil if nothing is recorded

	sharing     *mps.Sharing
	confinement *workers.Confinement

	keeper  *survival.Keeper // nil: nothing outlives the daemon
	missing atomic.Int32     // how many workers of an earlier daemon have not come back yet

	places   *door.Places // of connections without a client, by user
	turned   *door.Places // of connections that are being told why they are refused
	refusals door.Sparing // what is logged of them
	ending   ending

	socket *door.Listener
	web    *webServer // nil if there is none

	precedence precedence
	examined   examination

	parking  parking
	traces   traces
	loads    loads
	faults   faults
	files    files
	quota    quota
	pictures pictures
}

// Run runs the daemon until ctx ends and all clients have gone, for which it
// waits at most cfg.Grace, or until Kill. Nothing of it is left when it returns,
// unless it has handed over.
func Run(ctx context.Context, cfg settings.Config, opts Options) error {
	d, err := newDaemon(cfg, opts)
	if err != nil {
		return err
	}
	listener, err := socket.Listen(cfg.Socket, d.mode(), d.log)
	if err != nil {
		return err
	}
	d.socket = door.Listen(listener, true)
	d.socket.Notice = d.notice("programs")
	d.ending.socket = d.socket
	// Programs that connect from now on wait until the node is up, instead of being refused.
	if err := d.begin(); err != nil {
		d.socket.Close()
		d.closeMPS()
		d.ending.closeFolder()
		return err
	}
	defer d.stock.CloseLocks()
	defer d.precedence.Close()
	defer d.ending.closeFolder()
	defer d.closeMPS()
	defer d.recording.Close()
	go d.run()
	d.loop.Go(d.listenToReloads)
	d.lending.Begin()
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		d.accept()
	}()
	d.log.Info("the node is up", "socket", cfg.Socket.Address, "devices", len(cfg.Devices), "policy", cfg.Policy.String())
	if opts.Ready != nil {
		opts.Ready()
	}

	go d.ending.listenToKill()
	if d.ending.awaitEnd(ctx) {
		d.ending.handOver()
	} else {
		d.ending.drainClients()
	}
	// The socket was kept open until now, so that newcomers could be told that the node shuts down.
	d.socket.Close()
	<-accepted
	d.places.Close()
	d.turned.Close()
	d.spares.Stop()
	d.pool.Stop()
	for _, s := range opts.Services {
		s.Stop()
	}
	d.loop.Wait()
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
	d.ending.keeper = d.keeper
	left, err := d.inherit()
	d.ending.left.Store(len(left.Heirs) > 0) // if this fails, they are left for the next daemon
	if err == nil {
		err = d.openMPS()
	}
	var numbers *workers.Uids
	if err == nil {
		numbers, err = workers.NewUIDs(d.cfg.WorkerUIDs, d.log)
	}
	if err == nil {
		err = d.equip(&left)
	}
	if err != nil {
		return err
	}
	if err := d.openConfinement(); err != nil {
		d.stock.CloseLocks()
		return err
	}
	if d.recording, err = recording.Start(d.cfg.Record, vgpu.Header{
		Muster: d.opts.Version, Node: d.cfg.Name, Started: d.loop.Start().UTC().Format(time.RFC3339Nano), Config: d.core.Config(),
	}, d.log); err != nil {
		d.stock.CloseLocks()
		return fmt.Errorf("recording: %w", err)
	}
	if d.web, err = d.serveHTTP(); err != nil {
		d.recording.Close()
		d.stock.CloseLocks()
		return err
	}
	d.core.Record(d.recording.Add)
	d.precedence.open(&left, d.log)
	d.pool = workers.NewPool(d.opts.WorkerCommand, d.bounds, d.cfg.Warm, numbers, d.log)
	d.adoptAll(&left)
	d.ending.left.Store(false)
	if len(left.Heirs) == 0 { // else their workers hold memory, and some may have to be found first
		d.stock.LookForNeighbours()
	}
	return nil
}

// mode is the file mode of the socket.
func (d *daemon) mode() os.FileMode {
	allow := d.settings.Load().Allow
	switch {
	case d.cfg.Socket.Mode != 0:
		return os.FileMode(d.cfg.Socket.Mode)
	case allow == nil && d.rights.Own.UID != 0 || allow != nil && len(allow) == 0:
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
func newDaemon(cfg settings.Config, opts Options) (*daemon, error) {
	if err := cfg.Check(); err != nil {
		return nil, err
	}
	warning, err := cfg.Swap.Look()
	if err != nil {
		return nil, err
	}
	if warning != "" {
		opts.Log.Warn(warning)
	}
	d := &daemon{
		cfg: cfg, opts: opts, log: opts.Log, loop: loop.New(opts.Now),
		names: new(whois.Names), tally: tally.NewBook(),
		places: door.NewPlaces(cfg.Connections.Local, 4*cfg.Connections.Local),
		turned: door.NewPlaces(maxTurnedEach, maxTurned), refusals: door.Sparing{Most: maxRefusals},
	}
	d.settings.Store(&cfg)
	uid := uint32(os.Getuid())
	d.state = newState(cfg.WorkerTimeout)
	d.rights = requests.Rights{Own: settings.Account{UID: uid, Name: d.names.Of(uid)}, Gateway: opts.Gateway, Agent: opts.Agent}
	d.sharing = mps.At("").Share(d.rights.Own.Name) // until the service is opened
	d.ending = ending{
		loop: d.loop, settings: &d.settings, clients: d.clients, rights: d.rights, places: d.places, log: d.log,
		mayLeave: cfg.Handover, killing: opts.Kill, handover: opts.Handover, stopBy: make(chan string, 1), kills: make(chan struct{}),
		end: d.end, files: &d.files, lookAtSpares: func() { d.spares.Look() }, picture: d.pictures.picture,
	}
	return d, nil
}

// equip gives the daemon its devices and its dispatcher.
func (d *daemon) equip(left *survival.Left) error {
	var has *inventory.Inventory
	var err error
	if left.IsAny() {
		has, d.tally.Before.Devices, err = stock.AsBefore(d.cfg.Devices, left, d.opts.Open, d.log)
	} else {
		has, err = stock.Fresh(d.cfg.Devices, d.opts.Open)
	}
	if err != nil {
		return err
	}
	d.warnOfStrangers()
	var devices []vgpu.Device
	for _, e := range has.Entries {
		devices = append(devices, inventory.Dispatched(e.Info, d.cfg.VGPUs))
	}
	core, err := vgpu.New(d.cfg.Dispatcher(devices, d.names.Of))
	if err != nil {
		return err
	}
	d.core = dispatch.New(core, d.loop, d)
	d.stock = stock.New(has, d.loop, d.core, d, stock.Options{
		Open: d.opts.Open, Lock: d.keeper.DeviceLock, Slots: func() int { return d.settings.Load().VGPUs }, Closing: d.ending.closing.Load, Log: d.log,
		Probe: func(c control.DeviceConfig, lock *os.File) (control.Probed, error) { return d.pool.Probe(c, lock) },
	})
	d.grants = grants.NewBook(grants.Node{Dispatcher: d.core, Now: d.opts.Now, Save: d.files.saveNode, End: d.endGranted, Log: d.log})
	d.parking = parking{loop: d.loop, core: d.core, clients: d.clients}
	d.traces = traces{clients: d.clients}
	d.quota = quota{settings: &d.settings, stock: d.stock, clients: d.clients, perOwner: map[string]uint64{}}
	d.files = files{
		loop: d.loop, core: d.core, keeper: d.keeper, clients: d.clients, stock: d.stock, grants: d.grants, sharing: d.sharing, precedence: &d.precedence, tally: &d.tally, settings: &d.settings,
	}
	d.orders = orders{
		loop: d.loop, rights: d.rights, owners: actable{&d.pictures, d.end}, clients: d.clients, now: d.opts.Now, notNow: d.ending.notNow, log: d.log,
		newcomers: newcomers{revivable: d.revivable, provide: d.provide, entrust: d.entrust, accompany: d.accompany, end: d.end},
	}
	d.desk = requests.New(requests.Options{
		Rights: d.rights, Node: d.cfg.Name, Loop: d.loop, Core: d.core, Stock: d.stock, Grants: d.grants, Clients: actable{&d.pictures, d.end}, Services: d.opts.Services,
		Handlers: map[string]requests.Handler{
			"status": d.pictures.answerStatus, "monitor": d.answerMonitor, "stop": d.ending.answerStop, "adopt": d.answerAdopt, "peer": d.answerPeer,
		},
		Orders:  map[string]requests.Order{ask.CheckpointRequest: d.orders.checkpointClient, ask.RestoreRequest: d.orders.restoreClient, ask.ReviveRequest: d.orders.revive},
		Picture: d.pictures.picture, GrantStatus: d.pictures.grantStatus, Closing: d.ending.whyClosed, MayUse: d.mayUse, Names: d.names, Now: d.opts.Now, Log: d.log,
	})
	d.loans = loans{
		loop: d.loop, core: d.core, stock: d.stock, grants: d.grants, tally: &d.tally, name: d.cfg.Name, log: d.log, all: map[vgpu.ClientID]*loan{},
		tellBeside: d.loads.tellBeside, end: d.end, serve: d.handleLoan,
	}
	d.spares = d.newSpares()
	d.lenders = lending.NewLenders(d.loop.Do, d.opts.Open, d.loop.Now, maxMissed)
	d.lending, err = lending.New(&d.cfg, d.loop, lendingNode{d}, struct {
		*stock.Stock
		*dispatch.Dispatcher
	}{d.stock, d.core}, lending.Options{
		Dial: d.opts.DialPeer, Peers: d.opts.Peers, Authority: d.opts.Authority, Revoked: d.opts.Revoked, Log: d.log,
	})
	if err != nil {
		return err
	}
	d.loads = loads{loop: d.loop, clients: d.clients, stock: d.stock, lending: d.lending, lenders: d.lenders, precedence: &d.precedence, log: d.log}
	d.pictures = pictures{
		Options: d.opts, loop: d.loop, core: d.core, stock: d.stock, clients: d.clients, settings: &d.settings, sharing: d.sharing, lending: d.lending, spares: d.spares,
		tally: &d.tally, quota: &d.quota, places: d.places, name: d.cfg.Name, problems: d.problems, lentBefore: map[lentTo]lentPast{},
	}
	d.faults = faults{loop: d.loop, clients: d.clients, sharing: d.sharing, spares: d.spares, log: d.log, writeDown: d.files.writeDown, mayRebuild: d.mayRebuild}
	return d.stock.MakeLocks()
}

// accept serves connections until the socket is closed.
func (d *daemon) accept() {
	for {
		accepted, err := d.socket.Accept()
		if err != nil {
			return
		}
		conn := accepted.(*door.Conn)
		d.loop.Go(func() {
			defer conn.Close()
			d.handle(conn.Conn.(*net.UnixConn), conn.Last)
		})
	}
}
