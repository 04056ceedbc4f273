package daemon

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"muster/head"
	"muster/head/quorum"
	"muster/head/store"
	"muster/internal/door"
	"muster/wire/api"
	"muster/wire/dial"
	"muster/wire/identity"
	"muster/wire/trust"
)

// Several heads. Each has a store, and they agree on what is in it (head/quorum). One leads: it has a core, as
// a head that is alone has. The others follow: they say who leads, and nothing else. When another one leads,
// it restores its core from its store, as a head does that starts again.

// protocolHeads is what heads speak among themselves at their port.
const protocolHeads = "muster-heads"

// headsSilence is how long a connection of a node may be silent at most if there are several heads: a node
// whose head's machine has died looks for the next one after twice that time.
const headsSilence = 5 * time.Second

// errNotAlone ends the life of a head that was alone: another one joins it.
var errNotAlone = errors.New("another head joins this one")

// membership says whether a daemon is that of one of several heads.
type membership struct {
	peers *peers       // the heads of which this is one; nil if it is alone
	term  *quorum.Term // the time for which it leads them; nil if it does not
}

// follows says whether another head leads, and this one only says so.
func (m membership) follows() bool { return m.peers != nil && m.term == nil }

// ready tells that the head answers requests; once, though one of several begins to answer again and again.
func (m membership) ready(o *Options, at Addresses) {
	switch {
	case o.Ready == nil:
	case m.peers == nil:
		o.Ready(at)
	default:
		m.peers.ready.Do(func() { o.Ready(at) })
	}
}

// peers are the heads of which this is one.
type peers struct {
	tls     *tls.Config
	version string
	node    *quorum.Node
	log     *store.Log
	self    string
	ports   ports
	ready   sync.Once
}

// several runs a head that is one of several until ctx is done or it cannot continue.
func several(ctx context.Context, cfg Config, o Options, files *store.Store, first bool) error {
	open := ports{}
	defer open.close()
	var err error
	if cfg.Listen, err = open.fix(cfg.Listen); err != nil {
		return err
	}
	self, err := ownAddress(cfg, o.TLS)
	if err != nil {
		return err
	}
	log, err := store.OpenLog(cfg.State)
	if err != nil {
		return err
	}
	defer log.Close()
	if first {
		if err := errors.Join(log.Remember(joinedKey, []byte{}), quorum.Bootstrap(log, files, self)); err != nil {
			return err
		}
	}
	p := &peers{tls: o.TLS, version: o.Version, self: self, log: log, ports: open}
	if cfg.Core.Silence > headsSilence {
		cfg.Core.Silence = headsSilence
	}
	own := trust.Dial(o.TLS, identity.IsHead, protocolHeads)
	p.node, err = quorum.Open(quorum.Config{
		Self: self, Store: files, Log: log, Pace: cfg.Pace, Logger: o.Log,
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return (&tls.Dialer{Config: own}).DialContext(ctx, "tcp", address)
		},
	})
	if err != nil {
		return err
	}
	defer p.node.Close()
	for {
		term, err := (&follower{newDaemon(cfg, o, files, p, nil)}).follow(ctx)
		if err != nil || term == nil {
			return err
		}
		if err := newDaemon(p.again(cfg, o), o, files, p, term).live(ctx); !errors.Is(err, quorum.ErrDeposed) {
			p.node.Resign()
			return err
		}
	}
}

// again reads the configuration as a head does that starts: it may have changed while another head led.
func (p *peers) again(cfg Config, o Options) Config {
	if o.Load == nil {
		return cfg
	}
	again, err := o.Load()
	if err == nil {
		err = again.Check()
	}
	if err != nil {
		o.Log.Error("the configuration is wrong, and counts as it was", "error", err)
		return cfg
	}
	cfg.fixed(&again)
	cfg.Core, cfg.Policy = again.Core, again.Policy
	return cfg
}

// ownAddress is the address at which other heads reach this one.
func ownAddress(cfg Config, own *tls.Config) (string, error) {
	if cfg.Listen == "" || own == nil || len(own.Certificates) == 0 {
		return "", errors.New("heads reach each other at their ports, with their certificates: give --tls-dir with the folder that muster cert --head made")
	}
	host, port, err := net.SplitHostPort(cfg.Listen)
	if err != nil {
		return "", err
	}
	leaf := own.Certificates[0].Leaf
	if leaf != nil && len(leaf.ExtKeyUsage) > 0 && !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth) {
		return "", errors.New("the head's certificate is of an earlier version, and other heads do not accept it: make a new one with muster cert --head")
	}
	if cfg.Address != "" {
		_, address, err := dial.Address(cfg.Address)
		return address, err
	}
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() && leaf != nil && leaf.VerifyHostname(host) == nil {
		return net.JoinHostPort(host, port), nil
	}
	switch {
	case leaf != nil && len(leaf.DNSNames) > 0:
		return net.JoinHostPort(leaf.DNSNames[0], port), nil
	case leaf != nil && len(leaf.IPAddresses) > 0:
		return net.JoinHostPort(leaf.IPAddresses[0].String(), port), nil
	}
	return "", errors.New("the head's certificate has no name by which other heads could reach it: make one with muster cert --head NAME, or give --address HOST:PORT")
}

// follower is a daemon that does not lead: it has no core, and only says who leads.
type follower struct{ *daemon }

// follow serves until this head leads, ctx is done or it cannot continue.
func (d *follower) follow(ctx context.Context) (*quorum.Term, error) {
	var err error
	if d.doors, err = d.openDoors(); err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	var busy sync.WaitGroup
	defer busy.Wait()
	defer func() {
		stop()
		close(d.ending)
		d.doors.close(0)
	}()
	d.doors.serve()
	d.ready(&d.Options, d.doors.addresses)
	busy.Go(func() { d.belong(ctx) })
	for {
		select {
		case <-ctx.Done():
			return nil, nil
		case <-d.dead:
			return nil, d.reason
		case <-d.peers.node.Failed():
			return nil, d.peers.node.Reason()
		case term := <-d.peers.node.Terms():
			return term, nil
		case <-d.Reload: // read when this head leads
		}
	}
}

// joinedKey is the fact that this head has asked for a vote: if it is not one of the heads afterwards, it was
// removed.
var joinedKey = []byte("joined")

// belongEvery is how often a head that does not lead looks whether it is one of the others.
const belongEvery = 300 * time.Millisecond

// belong has the others take this head in, and notices when it was removed.
func (d *follower) belong(ctx context.Context) {
	_, err := d.peers.log.Fact(joinedKey)
	joined, said := err == nil, ""
	tick := time.NewTicker(belongEvery)
	defer tick.Stop()
	for without := 0; ; {
		members := d.peers.node.Members()
		at := slices.IndexFunc(members, func(m quorum.Member) bool { return m.Address == d.peers.self })
		switch {
		case at >= 0 && members[at].Votes:
			if without++; d.peers.node.Leader() != "" {
				without = 0
			}
			if without > 20 && d.removed(ctx, members) {
				d.fail(errRemoved)
				return
			}
		case joined && len(members) > 0:
			d.fail(errRemoved)
			return
		default:
			to := d.cfg.Join
			if leader := d.peers.node.Leader(); leader != "" {
				to = leader
			}
			vote := at >= 0 && d.peers.node.UpToDate()
			if at >= 0 && !vote {
				break // the others send what it lacks
			}
			if vote && !joined {
				if err := d.peers.log.Remember(joinedKey, []byte{}); err != nil {
					d.fail(err)
					return
				}
				joined = true
				d.log.Info("this head has what the others have, and joins them", "address", d.peers.self)
			}
			err := d.peers.ask(ctx, to, http.MethodPost, "/v1/heads", api.JoinHeads{Address: d.peers.self, Vote: vote}, nil)
			if err != nil && ctx.Err() == nil && err.Error() != said {
				said = err.Error()
				d.log.Warn("this head is not one of the others yet: it goes on asking", "head", to, "error", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

var errRemoved = errors.New("this head was removed by an administrator, and the others go on without it: to have it join again, remove its folder (--state) and start it with --join")

// removed asks the other heads whether this one was removed while it was away.
func (d *follower) removed(ctx context.Context, members []quorum.Member) bool {
	for _, m := range members {
		var all api.Heads
		if m.Address == d.peers.self || d.peers.ask(ctx, m.Address, http.MethodGet, "/v1/heads", nil, &all) != nil {
			continue
		}
		is := func(h api.Head) bool { return h.Address == d.peers.self }
		if slices.ContainsFunc(all.Heads, func(h api.Head) bool { return h.Leads && h.Address == m.Address }) && !slices.ContainsFunc(all.Heads, is) {
			return true
		}
	}
	return false
}

// headPatience is how long another head may take to answer.
const headPatience = 3 * time.Second

// ask asks another head, as a head.
func (p *peers) ask(ctx context.Context, address, method, path string, question, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, headPatience)
	defer cancel()
	return dial.Ask(ctx, dial.Config{Head: address, TLS: p.tls}, method, path, question, answer)
}

// elsewhere refuses a request that only the head that leads can answer, and says which one that is.
func (p *peers) elsewhere(w http.ResponseWriter, who *caller) error {
	leader := p.node.Leader()
	w.Header().Set(dial.LeaderHeader, leader)
	switch {
	case leader == "" || leader == p.self:
		return refuse(http.StatusMisdirectedRequest, "no head leads now: ask again in a moment; if it lasts, a majority of the heads is away (muster head status)")
	case who.local:
		return refuse(http.StatusMisdirectedRequest, "this machine's head does not lead, and %s does: ask it with --head %s (MUSTER_HEAD) and a certificate (--tls-dir)", leader, leader)
	}
	return refuse(http.StatusMisdirectedRequest, "this head does not lead, and %s does", leader)
}

// serveHeads lists the heads, and how far each one is.
func serveHeads(q *request) (any, error) {
	if q.peers == nil {
		return api.Heads{Heads: []api.Head{{Leads: true, Votes: true, Version: q.Version}}}, nil
	}
	members := q.peers.node.Members()
	all := api.Heads{Heads: make([]api.Head, len(members))}
	var asked sync.WaitGroup
	for i, m := range members {
		one := &all.Heads[i]
		asked.Go(func() {
			*one = api.Head{Address: m.Address, Votes: m.Votes}
			if m.Address == q.peers.self {
				*one = q.peers.itself()
				one.Votes = m.Votes
				return
			}
			var is api.Head
			if err := q.peers.ask(q.r.Context(), m.Address, http.MethodGet, "/v1/heads/self", nil, &is); err != nil {
				one.Error = err.Error()
				return
			}
			is.Address, is.Votes = m.Address, m.Votes
			*one = is
		})
	}
	asked.Wait()
	slices.SortFunc(all.Heads, func(a, b api.Head) int { return strings.Compare(a.Address, b.Address) })
	return all, nil
}

// itself is this head as it shows itself.
func (p *peers) itself() api.Head {
	s := p.node.Standing()
	return api.Head{
		Address: p.self, Leads: s.Leads, Votes: s.Votes, Leader: p.node.Leader(), Term: s.Term, Applied: s.Applied, Written: s.Written, Version: p.version,
	}
}

func serveOneHead(q *request) (any, error) {
	if q.peers == nil {
		return nil, refuse(http.StatusNotFound, "this head is alone")
	}
	return q.peers.itself(), nil
}

// serveJoin takes another head in. A head that was alone becomes the first of several before: it ends its life
// and begins another, and whoever joins asks again.
func serveJoin(q *request) (any, error) {
	var asks api.JoinHeads
	if err := q.body(&asks); err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(asks.Address)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "%.80q is no address: give HOST:PORT", asks.Address)
	}
	if err := q.who.head.VerifyHostname(host); err != nil {
		return nil, refuse(http.StatusForbidden, "the head says that others reach it as %s, and its certificate is not for that: %v", host, err)
	}
	if q.peers == nil {
		self, err := ownAddress(q.cfg, q.TLS)
		if err == nil && self == asks.Address {
			err = fmt.Errorf("both heads are %s to others: give each a certificate for its own name, or --address", self)
		}
		if err != nil {
			return nil, refuse(http.StatusConflict, "%v", err)
		}
		q.log.Info("another head joins: this one is no longer alone", "address", asks.Address)
		q.end(errNotAlone)
		return nil, refuse(http.StatusServiceUnavailable, "this head begins anew as one of several: ask again")
	}
	if asks.Address == q.peers.self {
		return nil, refuse(http.StatusConflict, "both heads are %s to others: give each a certificate for its own name, or --address", asks.Address)
	}
	if err := q.peers.node.Add(asks.Address, asks.Vote); err != nil {
		return nil, refuse(http.StatusServiceUnavailable, "the head is not taken in now: %v", err)
	}
	q.log.Info("a head has joined", "address", asks.Address, "votes", asks.Vote)
	return api.Changed{}, nil
}

// serveRemoveHead goes on without a head.
func serveRemoveHead(q *request) (any, error) {
	address, admin := q.r.PathValue("address"), false
	if err := q.see(func(core *head.Core, _ time.Duration) { admin = core.IsAdmin(q.who.user) }); err != nil {
		return nil, err
	}
	if !admin {
		return nil, refuse(http.StatusForbidden, "only administrators may remove a head")
	}
	if q.peers == nil || !slices.ContainsFunc(q.peers.node.Members(), func(m quorum.Member) bool { return m.Address == address }) {
		return nil, refuse(http.StatusNotFound, "there is no head %.80s: muster head status lists them", address)
	}
	if address == q.peers.self {
		return nil, refuse(http.StatusConflict, "%s leads: stop it first (SIGTERM), and remove it when another one leads", address)
	}
	if err := q.peers.node.Remove(address); err != nil {
		return nil, refuse(http.StatusServiceUnavailable, "the head is not removed: %v", err)
	}
	q.log.Info("an administrator has removed a head", "user", q.who.user, "address", address)
	return api.Changed{}, nil
}

// ports are the listeners of a head that is one of several. They stay open while its doors are exchanged, so
// that connections wait in between, and nobody else takes the port.
type ports map[string]net.Listener

// listen is net.Listen for doors.
func (p ports) listen(network, address string) (net.Listener, error) {
	key := network + " " + address
	if p[key] == nil {
		l, err := net.Listen(network, address)
		if err != nil {
			return nil, err
		}
		p[key] = l
	}
	shared, err := p[key].(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return nil, err
	}
	defer shared.Close()
	return net.FileListener(shared)
}

// fix opens the head's port, and returns its address also if the system chose it.
func (p ports) fix(address string) (string, error) {
	if address == "" {
		return "", nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", fmt.Errorf("the head's port (--listen): %w", door.PortTrouble(address, err))
	}
	address = l.Addr().String()
	p["tcp "+address] = l
	return address, nil
}

// has says whether a listener is open already.
func (p ports) has(network, address string) bool { return p[network+" "+address] != nil }

func (p ports) close() {
	for _, l := range p {
		_ = l.Close()
	}
}

// GoAlone has the head of a folder go on without the others, who must never come back.
func GoAlone(state string) error {
	if !store.HasLog(state) {
		return fmt.Errorf("the head of %s is alone already", state)
	}
	files, err := store.Open(state)
	if err != nil {
		return err
	}
	defer files.Close()
	log, err := store.OpenLog(state)
	if err != nil {
		return err
	}
	if err := errors.Join(quorum.Alone(log, files), log.Close()); err != nil {
		return err
	}
	return store.RemoveLog(state)
}
