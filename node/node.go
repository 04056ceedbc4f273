package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"muster/device"
	"muster/node/vgpu"
	"muster/wire"
	"muster/wire/control"
)

// Options are the daemon's surroundings.
type Options struct {
	// Open makes a device of which only Info is used.
	Open func(control.DeviceConfig) (device.Device, error)
	// WorkerCommand starts a worker, which finds its connection at descriptor 3.
	WorkerCommand []string
	Log           *slog.Logger
	Now           func() time.Time
	// Ready is called when programs can connect; nil for nobody.
	Ready func()
	// Kill, when closed, ends everything at once.
	Kill <-chan struct{}
}

// daemon is a running node.
type daemon struct {
	cfg   Config
	opts  Options
	log   *slog.Logger
	infos []device.Info
	locks []*os.File // one for each device, for workers that share it
	pool  *pool
	uids  *uids
	names userNames
	start time.Time

	// events are run by the loop, one after the other; it closes ended.
	events chan func()
	ended  chan struct{}
	state  // the loop's

	mu       sync.Mutex
	conns    map[*net.UnixConn]uint32 // whose it is, until it has a client
	unsettle map[uint32]int           // connections of each user that have no client yet
	closing  bool
	handlers sync.WaitGroup
}

// Run runs the daemon until ctx ends and all clients have gone, for which it
// waits at most cfg.Grace, or until Kill. Nothing of it is left when it returns.
func Run(ctx context.Context, cfg Config, opts Options) error {
	d, err := newDaemon(cfg, opts)
	if err != nil {
		return err
	}
	defer d.closeLocks()
	listener, err := listen(cfg.Socket)
	if err != nil {
		return err
	}
	web, err := d.serveHTTP()
	if err != nil {
		listener.Close()
		return err
	}
	d.pool = newPool(opts.WorkerCommand, cfg.Warm, d.log)
	go d.loop()
	accepted := make(chan error, 1)
	go func() { accepted <- d.accept(listener) }()
	d.log.Info("the node is up", "socket", cfg.Socket.Address, "devices", len(cfg.Devices), "policy", cfg.Policy.String())
	if opts.Ready != nil {
		opts.Ready()
	}

	var failed error
	select {
	case <-ctx.Done():
	case <-opts.Kill:
	case failed = <-accepted:
	}
	listener.Close()
	d.shutDown()
	if web != nil {
		web.Close()
	}
	return failed
}

func newDaemon(cfg Config, opts Options) (*daemon, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	d := &daemon{
		cfg: cfg, opts: opts, log: opts.Log, start: opts.Now(),
		names:  userNames{known: map[uint32]string{}},
		events: make(chan func(), 256), ended: make(chan struct{}),
		conns: map[*net.UnixConn]uint32{}, unsettle: map[uint32]int{},
	}
	var devices []vgpu.Device
	for i, c := range cfg.Devices {
		opened, err := opts.Open(c.DeviceConfig)
		if err != nil {
			return nil, fmt.Errorf("device %d (%s %s): %w", i, c.Kind, c.Name, err)
		}
		info := opened.Info()
		if info.Memory < c.Reserve+info.ContextCost+info.Granularity {
			return nil, fmt.Errorf("device %d (%s): of its memory of %d bytes nothing is left for programs", i, info.Name, info.Memory)
		}
		info.Memory -= c.Reserve
		d.infos = append(d.infos, info)
		devices = append(devices, vgpu.Device{Name: info.Name, Slots: cfg.VGPUs, Speed: info.Speed, Memory: info.Memory, ContextCost: info.ContextCost})
	}
	var err error
	if d.uids, err = newUIDs(cfg.WorkerUIDs); err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 && d.uids.all == (UIDRange{}) {
		d.log.Warn("this container has no user numbers for workers: users can stop and kill their own workers, and remote users each other's; name some that it has with worker_uids")
	}
	core, err := vgpu.New(cfg.dispatcher(devices, d.names.of))
	if err != nil {
		return nil, err
	}
	d.state = newState(core, len(devices), cfg.WorkerTimeout)
	for range cfg.Devices {
		lock, err := wire.CreateLock()
		if err != nil {
			d.closeLocks()
			return nil, err
		}
		d.locks = append(d.locks, lock)
	}
	return d, nil
}

func (d *daemon) closeLocks() {
	for _, f := range d.locks {
		f.Close()
	}
}

// accept serves connections until the listener is closed.
func (d *daemon) accept(listener *net.UnixListener) error {
	for {
		conn, err := listener.AcceptUnix()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil
		case err != nil && !isPassing(err):
			return fmt.Errorf("accepting connections: %w", err)
		case err != nil:
			d.log.Error("a connection could not be accepted", "error", err)
			time.Sleep(50 * time.Millisecond) // until some descriptors are free again
			continue
		}
		d.handlers.Add(1)
		go func() {
			defer d.handlers.Done()
			defer conn.Close()
			d.handle(conn)
		}()
	}
}

// isPassing says whether it may be better soon: descriptors or memory are used
// up, or the other side gave up first.
func isPassing(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ECONNABORTED, syscall.EINTR} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// shutDown ends clients, connections and workers, and waits for all of them.
func (d *daemon) shutDown() {
	d.log.Info("the node is shutting down", "grace", d.cfg.Grace.String())
	d.closeUnsettled()
	d.do(func() { d.drain() })
	grace := time.NewTimer(d.cfg.Grace)
	defer grace.Stop()
	const reason = "the node has been shut down"
	select {
	case <-d.ended:
	case <-grace.C:
		d.do(func() { d.endAll(reason, false) })
	case <-d.opts.Kill:
		d.do(func() { d.endAll(reason, true) })
	}
	select {
	case <-d.ended:
	case <-d.opts.Kill:
		d.do(func() { d.endAll(reason, true) })
		<-d.ended
	}
	d.pool.stop()
	d.handlers.Wait()
	d.log.Info("the node is down")
}

// serveHTTP starts the server for metrics and health, if one is wanted.
func (d *daemon) serveHTTP() (*http.Server, error) {
	if d.cfg.HTTP == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", d.cfg.HTTP)
	if err != nil {
		return nil, fmt.Errorf("opening the port for metrics: %w", err)
	}
	server := &http.Server{Handler: d.web(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }()
	d.log.Info("metrics and health are served", "address", "http://"+l.Addr().String())
	return server, nil
}
