// Package node is the daemon of a machine with GPUs: it accepts programs, checks and
// limits them, gives each a worker process, and performs what the dispatcher in node/vgpu
// decides.
//
// One goroutine, the loop (loop.go, package loop), owns the dispatcher and all that is known of
// clients. No lock protects that state: every other goroutine reaches it by handing the
// loop a function, with Do (does not wait) or Ask (waits until it has run). A function
// that the loop runs must therefore never wait, least of all with Ask for the loop
// itself. The daemon is a table of its parts (parts). What a part keeps is what belongs to no client;
// what it knows of one is a struct in client (client.go), and all parts see all clients (common). The
// daemon opens no contexts and sees none of the programs' data: those go through memory that program
// and worker share. It knows no job policy.
//
// Devices come and go (package stock). The devices that the node has now are an immutable
// value, the inventory, which the loop replaces and any goroutine may read; so is the
// configuration, which can be read again (reloads.go). The requests that people and
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
	"muster/node/spares"
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

// common is what most parts of the daemon use.
type common struct {
	loop       *loop.Loop
	dispatcher *dispatch.Dispatcher
	stock      *stock.Stock
	clients    map[vgpu.ClientID]*client // all that there are; the loop's
	settings   *settings.Live
	cfg        *settings.Config // as at the start; read only settings from it that cannot change
	log        *slog.Logger
}

// daemon is a running node. Its parts are the loop's, save where they say so.
type daemon struct {
	common
	opts       Options
	rights     requests.Rights
	names      *whois.Names
	socket     *door.Listener
	places     *door.Places     // of connections without a client, by user
	keeper     *survival.Keeper // nil: nothing outlives the daemon
	sharing    *mps.Sharing
	precedence precedence
	recording  *recording.Recording // nil if nothing is recorded
	tally      tally.Book
	parts
}

// parts are what the daemon is made of, beside its devices and its dispatcher. Each that is not a package
// is in the file of its name; parking and traces are in notices.go.
type parts struct {
	entrance  entrance         // connections come in
	terms     terms            // what programs are shown, and may have
	quota     quota            // the swap area
	staff     staff            // workers for clients
	spares    *spares.Spares   // workers that wait with a context
	programs  programs         // what devices that come and go are to clients
	rebuilder rebuilder        // clients whose workers end
	loans     loans            // further devices of clients
	loads     loads            // how busy devices are with whom
	faults    faults           // those that clients share under MPS
	grants    *grants.Book     // what jobs may use
	lending   *lending.Lending // nil: the node neither borrows nor lends
	lenders   *lending.Lenders // of devices that the configuration names
	borrowing borrowing        // what programs get of other nodes
	desk      *requests.Desk   // what people and commands ask
	orders    orders           // checkpoints
	parking   parking          // programs that no device can take
	traces    traces           // what traced programs hear of others
	files     files            // what the next daemon will know
	adoption  adoption         // the clients of the last one
	pictures  pictures         // status and metrics
	health    health           // what is wrong
	reloads   reloads          // another configuration
	ending    ending           // how the daemon ends
}

// Run runs the daemon until ctx ends and all clients have gone, for which it
// waits at most cfg.Grace, or until Kill. Nothing of it is left when it returns,
// unless it has handed over.
func Run(ctx context.Context, cfg settings.Config, opts Options) error {
	d, err := newDaemon(cfg, opts)
	if err != nil {
		return err
	}
	listener, err := socket.Listen(cfg.Socket, mode(&cfg, d.rights.Own), d.log)
	if err != nil {
		return err
	}
	d.socket = door.Listen(listener, true)
	d.socket.Notice = notice(d.log, "programs")
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
	d.loop.Go(d.reloads.listenToReloads)
	d.lending.Begin()
	accepted := make(chan struct{})
	go func() {
		defer close(accepted)
		d.entrance.accept()
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
	d.entrance.turned.Close()
	d.spares.Stop()
	d.staff.pool.Stop()
	for _, s := range opts.Services {
		s.Stop()
	}
	d.loop.Wait()
	if d.health.web != nil {
		d.health.web.close()
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
	if err := d.staff.openConfinement(); err != nil {
		d.stock.CloseLocks()
		return err
	}
	if d.recording, err = recording.Start(d.cfg.Record, vgpu.Header{
		Muster: d.opts.Version, Node: d.cfg.Name, Started: d.loop.Start().UTC().Format(time.RFC3339Nano), Config: d.dispatcher.Config(),
	}, d.log); err != nil {
		d.stock.CloseLocks()
		return fmt.Errorf("recording: %w", err)
	}
	if d.health.web, err = d.health.serveHTTP(); err != nil {
		d.recording.Close()
		d.stock.CloseLocks()
		return err
	}
	d.dispatcher.Record(d.recording.Add)
	d.precedence.open(&left, d.log)
	d.staff.pool = workers.NewPool(d.opts.WorkerCommand, d.staff.bounds, d.cfg.Warm, numbers, d.log)
	d.adoption.takeAll(&left)
	d.ending.left.Store(false)
	if len(left.Heirs) == 0 { // else their workers hold memory, and some may have to be found first
		d.stock.LookForNeighbours()
	}
	return nil
}

// mode is the file mode of the socket.
func mode(cfg *settings.Config, own settings.Account) os.FileMode {
	switch {
	case cfg.Socket.Mode != 0:
		return os.FileMode(cfg.Socket.Mode)
	case cfg.Allow == nil && own.UID != 0 || cfg.Allow != nil && len(cfg.Allow) == 0:
		return 0o600
	}
	return 0o666
}

// notice logs when a listener cannot accept connections, and when it can again.
func notice(log *slog.Logger, of string) func(error) {
	return func(trouble error) {
		if trouble != nil {
			log.Error("no connections of "+of+" can be accepted for now", "error", trouble)
		} else {
			log.Info("connections of " + of + " can be accepted again")
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
		common: common{loop: loop.New(opts.Now), clients: map[vgpu.ClientID]*client{}, settings: new(settings.Live), cfg: &cfg, log: opts.Log},
		opts:   opts, names: new(whois.Names), tally: tally.NewBook(), places: door.NewPlaces(cfg.Connections.Local, 4*cfg.Connections.Local),
	}
	d.settings.Store(&cfg)
	uid := uint32(os.Getuid())
	d.rights = requests.Rights{Own: settings.Account{UID: uid, Name: d.names.Of(uid)}, Gateway: opts.Gateway, Agent: opts.Agent}
	d.sharing = mps.At("").Share(d.rights.Own.Name) // until the service is opened
	d.ending = ending{
		common: d.common, rights: d.rights, places: d.places, mayLeave: cfg.Handover, killing: opts.Kill, handover: opts.Handover,
		stopBy: make(chan string, 1), kills: make(chan struct{}),
		files: &d.files, end: d.end, lookAtSpares: func() { d.spares.Look() }, picture: d.pictures.picture,
	}
	return d, nil
}

// equip gives the daemon its devices and its dispatcher, and then its parts.
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
	var devices []vgpu.Device
	for _, e := range has.Entries {
		devices = append(devices, e.Dispatched(d.cfg.VGPUs))
	}
	core, err := vgpu.New(d.cfg.Dispatcher(devices, d.names.Of))
	if err != nil {
		return err
	}
	d.dispatcher = dispatch.New(core, d.loop, d)
	d.stock = stock.New(has, d.loop, d.dispatcher, &d.programs, stock.Options{
		Open: d.opts.Open, Lock: d.keeper.DeviceLock, Slots: func() int { return d.settings.Load().VGPUs }, Closing: d.ending.closing.Load, Log: d.log,
		Probe: func(c control.DeviceConfig, lock *os.File) (control.Probed, error) {
			return d.staff.pool.Probe(c, lock)
		},
	})
	if err := d.assemble(); err != nil {
		return err
	}
	d.reloads.warnOfStrangers()
	return d.stock.MakeLocks()
}

// assemble makes the daemon's parts. Those that it refers to may still be empty.
func (d *daemon) assemble() (err error) {
	d.ending.common = d.common
	d.grants = grants.NewBook(grants.Node{
		Dispatcher: d.dispatcher, Now: d.loop.Clock, Save: d.files.saveNode, End: d.endGranted, Add: d.addLent, Remove: d.removeLent, Log: d.log,
	})
	d.spares = d.staff.newSpares(d.common, d.rights.Own.Name)
	d.lenders = lending.NewLenders(d.loop.Do, d.opts.Open, d.loop.Now, maxMissed)
	d.lending, err = lending.New(d.cfg, d.loop, &d.borrowing, struct {
		*stock.Stock
		*dispatch.Dispatcher
	}{d.stock, d.dispatcher}, lending.Options{
		Dial: d.opts.DialPeer, Peers: d.opts.Peers, Authority: d.opts.Authority, Revoked: d.opts.Revoked, Log: d.log,
	})
	if err != nil {
		return err
	}
	c := d.common
	d.borrowing = borrowing{common: c, rights: d.rights, lending: d.lending, lenders: d.lenders, loads: &d.loads, notNow: d.ending.notNow}
	d.terms = terms{common: c, rights: d.rights, names: d.names, grants: d.grants, lending: d.lending, loans: &d.loans, pictures: &d.pictures}
	d.quota = quota{common: c, perOwner: map[string]uint64{}, perUser: map[string]int{}}
	d.staff = staff{
		common: c, opts: &d.opts, rights: d.rights, terms: &d.terms, spares: d.spares, sharing: d.sharing, faults: &d.faults, files: &d.files,
		precedence: &d.precedence, keeper: d.keeper, mayRebuild: d.rebuilder.mayRebuild,
	}
	d.programs = programs{common: c, files: &d.files, staff: &d.staff, end: d.end}
	d.rebuilder = rebuilder{
		common: c, heart: newHeartbeat(d.cfg.WorkerTimeout), staff: &d.staff, loans: &d.loans, loads: &d.loads, keeper: d.keeper,
		awaitAnother: d.borrowing.awaitAnother, checkLenders: d.borrowing.checkLenders, accompany: d.entrance.accompany, assign: d.assign, forget: d.forget, end: d.end,
	}
	d.loads = loads{common: c, lending: d.lending, lenders: d.lenders, precedence: &d.precedence}
	d.loans = loans{
		common: c, grants: d.grants, tally: &d.tally, all: map[vgpu.ClientID]*loan{},
		tellBeside: d.loads.tellBeside, end: d.end, serve: d.entrance.handleLoan,
	}
	d.faults = faults{common: c, sharing: d.sharing, spares: d.spares, writeDown: d.files.writeDown, mayRebuild: d.rebuilder.mayRebuild}
	d.parking, d.traces = parking{common: c, asked: map[vgpu.ClientID]time.Duration{}, lending: d.lending, end: d.end}, traces{common: c}
	d.files = files{common: c, keeper: d.keeper, grants: d.grants, sharing: d.sharing, precedence: &d.precedence, tally: &d.tally}
	d.adoption = adoption{
		common: c, keeper: d.keeper, files: &d.files, grants: d.grants, sharing: d.sharing, quota: &d.quota, tally: &d.tally, terms: &d.terms, staff: &d.staff,
		accompany: d.entrance.accompany, listenTo: d.listenTo, finish: d.finish, workerEnded: d.rebuilder.workerEnded, end: d.end,
	}
	d.pictures = pictures{
		common: c, Options: d.opts, sharing: d.sharing, lending: d.lending, spares: d.spares, staff: &d.staff, tally: &d.tally, quota: &d.quota, places: d.places,
		grants: d.grants, problems: d.health.problems, end: d.end, lentBefore: map[lentTo]lentPast{},
	}
	d.health = health{common: c, checks: d.opts.Checks, socket: d.socket, keeper: d.keeper, staff: &d.staff, quota: &d.quota, pictures: &d.pictures}
	d.reloads = reloads{common: c, load: d.opts.Load, again: d.opts.Reload, rights: d.rights, names: d.names, staff: &d.staff, spares: d.spares, heart: &d.rebuilder.heart, lending: d.lending, own: *d.settings.Load()}
	d.orders = orders{
		common: c, rights: d.rights, owners: &d.pictures, notNow: d.ending.notNow,
		revivable: d.terms.revivable, provide: d.entrance.provide, entrust: d.adoption.entrust, accompany: d.entrance.accompany, end: d.end,
	}
	d.desk = requests.New(requests.Options{
		Rights: d.rights, Node: d.cfg.Name, Loop: d.loop, Dispatcher: d.dispatcher, Stock: d.stock, Grants: d.grants, Clients: &d.pictures, Services: d.opts.Services, Revoked: d.opts.Revoked,
		Handlers: map[string]requests.Handler{
			"status": requests.Read(d.pictures.answerStatus), "monitor": requests.Read(d.terms.answerMonitor), "peer": requests.Read(d.borrowing.answerPeer),
			"configure": requests.Read(d.reloads.answerConfigure), "stop": d.ending.answerStop, "adopt": d.adoption.answerAdopt,
		},
		Orders:  map[string]requests.Order{ask.CheckpointRequest: d.orders.checkpoint, ask.RestoreRequest: d.orders.restore, ask.ReviveRequest: d.orders.revive},
		Picture: d.pictures.picture, GrantStatus: d.pictures.grantStatus, Closing: d.ending.whyClosed, MayUse: d.terms.mayUse, Names: d.names, Log: d.log,
	})
	d.terms.desk = d.desk
	d.entrance = entrance{
		common: c, rights: d.rights, names: d.names, socket: d.socket, places: d.places, turned: door.NewPlaces(maxTurnedEach, maxTurned), refusals: door.Sparing{Most: maxRefusals},
		desk: d.desk, terms: &d.terms, staff: &d.staff, loads: &d.loads, ending: &d.ending, keeper: d.keeper, sharing: d.sharing,
		awaited: d.adoption.awaited, adoptFrom: d.adoption.adoptFrom, awaitDevice: d.borrowing.awaitDevice, admit: d.admit, attachWith: d.adoption.attachWith, assign: d.assign, end: d.end,
	}
	return nil
}
