package assembly

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"muster/agent"
	"muster/internal/door"
	"muster/internal/machine"
	"muster/ivm/daemon"
	"muster/ivm/proto"
	"muster/node/ask"
	"muster/node/nodefile"
	"muster/node/requests"
	"muster/node/settings"
	"muster/wire/status"
)

// elements is the node's part of programs with elements (IVM).
type elements struct {
	cfg       settings.Config
	part      *daemon.Service
	listening net.Addr // the gateway is; nil if there is none
	log       *slog.Logger
}

// newElements makes the node's part of programs with elements. Without a certificate they have
// this node only.
func newElements(cfg settings.Config, log *slog.Logger) (*elements, error) {
	e := &elements{cfg: cfg, log: log}
	memory, err := machine.Memory()
	if err != nil {
		return nil, err
	}
	d := daemon.Config{
		Name: cfg.Name, Socket: cfg.Socket.Address, Address: e.address, Port: nodefile.GatewayPort, Info: e.info, Memory: memory / 4 * 3, Account: e.account, Silence: cfg.Connections.Silence, Log: log,
	}
	if cfg.Remote.Listen != "" && cfg.Remote.Cert != "" && cfg.Remote.CA != "" {
		dial, err := nodeDialler(cfg.Remote, proto.ALPN)
		if err != nil {
			return nil, fmt.Errorf("programs on other machines cannot be served: %w", err)
		}
		d.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			conn, err := dial(ctx, address)
			if err == nil { // a node reads nothing while nobody reads the output of the program, and its heartbeat says that it is there
				door.GiveUpNever(conn)
			}
			return conn, err
		}
	}
	e.part = daemon.New(d)
	return e, nil
}

// service is what elements of this machine talk to.
func (e *elements) service() requests.Service {
	return requests.Service{
		Serve:  func(conn *net.UnixConn, who requests.Peer) { e.part.Element(conn, e.whoIs(who)) },
		Stop:   e.part.Close,
		Grant:  e.part.Grant,
		Status: func(s *status.Node) { s.IVM = e.part.Status() },
	}
}

// peers is what the daemons of other nodes talk to.
func (e *elements) peers() map[string]func(context.Context, net.Conn) {
	if e.cfg.Remote.CA == "" {
		return nil // without TLS no peer can show a certificate
	}
	return map[string]func(context.Context, net.Conn){proto.ALPN: e.part.Peer}
}

// address is where other nodes reach this one: at the port that the gateway has, which the
// configuration may leave to the system.
func (e *elements) address() string {
	host, port, err := net.SplitHostPort(gatewayOf(e.cfg))
	if err != nil || e.listening == nil {
		return ""
	}
	if port == "0" {
		_, port, _ = net.SplitHostPort(e.listening.String())
	}
	return net.JoinHostPort(host, port)
}

// info is what the node has for a program of a user's under a grant, or without one (""): its
// processors, and the devices that the program sees.
func (e *elements) info(user, grant string) (cores, gpus int) {
	if grant != "" {
		gpus, err := ask.GrantClaimed(e.cfg.Socket.Address, grant, user)
		if err != nil {
			e.log.Warn("the node does not say what a program's grant means here: it has no GPUs for the program", "user", user, "error", err)
		}
		return machine.CPUs(), gpus
	}
	s, err := ask.Status(e.cfg.Socket.Address)
	if err != nil {
		return machine.CPUs(), 0
	}
	if gpus = len(s.Devices); e.cfg.Visible > 0 {
		gpus = min(gpus, e.cfg.Visible)
	}
	return machine.CPUs(), gpus
}

// whoIs is the name under which a user of this machine has elements.
func (e *elements) whoIs(who requests.Peer) daemon.Who {
	w := daemon.Who{Name: who.Name, Grant: who.Grant}
	if who.UID == uint32(os.Geteuid()) {
		return w
	}
	var err error
	if w.Credential, err = agent.Credential(who.Name); err != nil {
		w.Refused = err.Error()
	}
	return w
}

// account is the local account under which a user of another node has elements here.
func (e *elements) account(name string) (*syscall.Credential, error) {
	if !e.cfg.Remote.IVM {
		return nil, fmt.Errorf("node %s starts no elements of programs that began elsewhere: start it with --ivm (ivm: true)", e.cfg.Name)
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("node %s has no user %s: every node must know a program's user by the same name", e.cfg.Name, name)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err == nil && uid == 0 && !e.cfg.Remote.IVMRoot {
		return nil, fmt.Errorf("node %s starts no elements of root that other nodes ask for: start the program as another user, or the node with --ivm-root (ivm_root: true)", e.cfg.Name)
	}
	if err != nil || !e.cfg.Allows(uint32(uid), name) {
		return nil, fmt.Errorf("user %s may not use node %s (allow: in its configuration)", name, e.cfg.Name)
	}
	return agent.Credential(name)
}
