package node

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"muster/device"
	"muster/internal/strictjson"
	"muster/internal/units"
	"muster/node/ask"
	"muster/node/grants"
	"muster/node/proc"
	"muster/node/refusal"
	"muster/node/settings"
	"muster/node/shown"
	"muster/node/socket"
	"muster/node/vgpu"
	"muster/wire"
	"muster/wire/grant"
	"muster/wire/status"
)

// Grants are what the node knows of jobs: that programs which show a certain credential may
// use certain devices, each whole or with a share of its memory, and at most Limit of them
// at a time. Root, or the user whose node it is, admits and revokes them. Only hashes of
// credentials are kept.
//
// A program under a grant sees the granted devices and no others, in the grant's order. Its
// client is put on the device that it asked for and nowhere else: the dispatcher enforces
// that, and keeps reserved devices from others (vgpu, Grants). All clients of one grant on
// one device together have no more memory than the share. When a grant is revoked, or its
// time is over, its clients end with that reason.
//
// The daemon's state folder has the grants, so that the next daemon knows them before it
// adopts clients that are under them. A daemon that ends for good forgets them.

// --- programs ------------------------------------------------------------------

// identify finds out whose program a greeting comes from, and under which grant it is.
// Processes of the node's own user (the gateway) may speak for users of other machines.
func (d *daemon) identify(who *socket.Peer, hello *wire.Hello, lent *loan) (*grants.Granted, error) {
	if lent != nil {
		return lent.client.under.Granted, nil
	}
	name, address, speaks := wire.SpokenFor(hello.Token)
	speaks = speaks && who.User.UID == d.own.UID
	if speaks {
		who.Address = settings.Printable(address)
	}
	if speaks && name != "" {
		who.User = d.stranger(name)
	}
	if hello.Grant == "" && !speaks {
		if g, err := d.byClaim(who); g != nil || err != nil {
			return g, err
		}
	}
	if hello.Grant == "" {
		if d.settings.Load().Grants == settings.GrantsRequired && hello.Guest != 0 {
			return nil, refusal.New(refusal.NotPermitted, "this node serves programs with a grant only (grants: required), and lends its devices to no other node: leave it out of devices and peers there, or ask its administrator")
		}
		if d.settings.Load().Grants == settings.GrantsRequired {
			return nil, refusal.New(refusal.NotPermitted, "this node serves only programs that were granted its devices (grants: required): submit the program as a job, or have the administrator make a grant (muster grant)")
		}
		return nil, nil
	}
	var g *grants.Granted
	var borrower string
	hash := grant.Credential(hello.Grant).Hash()
	d.loop.Ask(func() {
		d.expireGrants()
		g = d.grants.Find(hash)
		borrower = d.lending.Borrower(hash)
	})
	switch {
	case g == nil && borrower != "" && speaks && name == "" && hello.Guest != 0:
		who.User = d.stranger(borrowerPrefix + borrower)
	case g == nil:
		return nil, refusal.New(refusal.NotPermitted, "the node knows no grant with this credential: it has ended or was revoked, or is not for this node")
	case speaks && name != "" && name != g.User, !speaks && who.User.Name != g.User:
		return nil, refusal.New(refusal.NotPermitted, "grant %s is user %s's, and user %s may not use it", g.ID, g.User, who.User.Name)
	case speaks:
		who.User = d.stranger(g.User)
	}
	return g, nil
}

// offers says what a program is shown. Without a grant that is as many devices as the node
// shows, each of which may be any real one; under a grant it is the granted ones. Guests
// are shown the node's own.
func (d *daemon) offers(hello *wire.Hello, limits settings.UserLimits, g *grants.Granted, l *loan) (*shown.Offer, error) {
	if l != nil {
		return d.offersLoan(l), nil
	}
	stock, o, wish, gpus := d.stock.Load(), &shown.Offer{}, hello.Memory, int(min(hello.Gpus, settings.MaxDevices))
	if hello.Guest != 0 {
		return d.offersGuests(stock, wish, limits, g)
	}
	if g == nil {
		infos := stock.Infos()
		if len(infos) == 0 {
			return nil, refusal.ErrNoDevices
		}
		memory := d.worldOf(infos, wish, limits)
		for i := range d.visibleCount(infos, gpus) {
			o.Add(infos, memory, shown.Visible(d.cfg.Name, infos, i, i, memory))
		}
		return o, nil
	}
	for i, share := range g.Devices {
		infos := []device.Info{stock.Entries[share.Device].Info}
		memory := min(d.worldOf(infos, wish, limits), grants.ShareOf(share, infos[0]))
		o.Add(infos, memory, shown.Visible(d.cfg.Name, infos, share.Device, i, memory))
	}
	return o, nil
}

// shareFull says why a client cannot have want bytes, given what the other clients of its
// grant have on its device; "" if it can.
func (d *daemon) shareFull(c *client, want uint64) string {
	if c.under.Granted == nil {
		return ""
	}
	others := uint64(0)
	for _, o := range d.clients {
		if o != c && o.under.Granted == c.under.Granted && o.under.Share == c.under.Share {
			others += o.committed
		}
	}
	all := grants.ShareOf(c.under.Devices[c.under.Share], d.stock.Load().Entries[c.under.Number()].Info)
	if others == 0 || want <= all && others <= all-want { // a client that is alone is bounded by the memory that it sees
		return ""
	}
	return fmt.Sprintf("the job's share of the device is used up (%s, of which its other processes have %s): free some memory there, or ask for a larger share when you submit the job",
		units.BriefSize(all), units.BriefSize(others))
}

// --- the book ------------------------------------------------------------------

// admitGrant makes a grant known. If it is known already and has not changed, only its
// limit is set: the admitting side may not know whether an earlier attempt succeeded.
func (d *daemon) admitGrant(g *grants.Granted) error {
	isNew, err := d.grants.Admit(g, d.opts.Now(), d.core.Tell)
	if err != nil {
		return err
	}
	if !isNew {
		return d.limitGrant(g.ID, g.Limit)
	}
	d.saveNode()
	d.log.Info("a grant was admitted", "grant", g.ID, "user", g.User, "devices", len(g.Devices), "limit", g.Limit)
	return nil
}

func (d *daemon) limitGrant(id string, limit int) error {
	changed, err := d.grants.Limit(id, limit, d.core.Tell)
	if changed {
		d.saveNode()
		d.log.Info("a grant has another limit", "grant", id, "limit", limit)
	}
	return err
}

// revokeGrant ends a grant, and its clients.
func (d *daemon) revokeGrant(id, reason string) error {
	g, err := d.grants.Revoke(id)
	if err != nil {
		return err
	}
	d.saveNode()
	d.core.Step(vgpu.Withdraw{Grant: vgpu.GrantID(id)})
	d.log.Info("a grant has ended", "grant", id, "user", g.User, "reason", reason)
	for _, number := range slices.Sorted(maps.Keys(d.clients)) {
		if c := d.clients[number]; c != nil && c.under.Granted == g {
			d.end(c, reason, false)
		}
	}
	return nil
}

// nextExpiry is when the first grant ends by itself, if any does.
func (d *daemon) nextExpiry() (at time.Duration, any bool) {
	ends, any := d.grants.Next()
	return ends.Sub(d.loop.Start()), any
}

// expireGrants ends the grants whose time is over.
func (d *daemon) expireGrants() {
	for _, id := range d.grants.Due(d.opts.Now()) {
		_ = d.revokeGrant(id, fmt.Sprintf("the time of grant %s is over", id))
	}
}

// inheritGrants makes the grants of an earlier daemon known. If one cannot be kept, the
// clients under it end.
func (d *daemon) inheritGrants(left []grants.Granted) {
	for i := range left {
		if err := d.grants.Inherit(&left[i], d.core.Tell); err != nil {
			d.log.Error("a grant of an earlier daemon cannot be kept", "grant", left[i].ID, "error", err)
		}
	}
}

// --- requests ------------------------------------------------------------------

// mayGrant refuses users who may not decide who uses the node.
func (d *daemon) mayGrant(who socket.Peer) error {
	if d.mayChangeDevices(who) != nil && !(d.opts.Agent && d.isOwner(who)) {
		return fmt.Errorf("only root and user %s, whose node it is, may do that with its grants, not %s", d.own.Name, who.User.Name)
	}
	return nil
}

func (d *daemon) answerGrantAdmit(who socket.Peer, line []byte) (any, error) {
	var r ask.AdmitRequest
	if err := strictly(line, &r); err != nil {
		return nil, err
	}
	g := &grants.Granted{ID: r.ID, User: r.User, Hash: r.Hash, Devices: r.Devices, Limit: grant.AllDevices}
	if r.Limit == nil {
		return nil, fmt.Errorf("the limit is missing: give %d for all devices", grant.AllDevices)
	}
	g.Limit = *r.Limit
	if r.Expires != 0 {
		g.Expires = time.Unix(r.Expires, 0)
	}
	return d.aboutGrant(who, r.ID, func() error { return d.admitGrant(g) })
}

func (d *daemon) answerGrantRevoke(who socket.Peer, line []byte) (any, error) {
	var r ask.GrantRequest
	if err := strictly(line, &r); err != nil {
		return nil, err
	}
	reason := fmt.Sprintf("grant %s was revoked", settings.Printable(r.ID))
	if r.Reason != "" {
		reason += ": " + settings.Printable(r.Reason)
	}
	return d.aboutGrant(who, "", func() error { return d.revokeGrant(r.ID, reason) })
}

func (d *daemon) answerGrantLimit(who socket.Peer, line []byte) (any, error) {
	var r ask.GrantRequest
	if err := strictly(line, &r); err != nil {
		return nil, err
	}
	if r.Limit == nil {
		return nil, fmt.Errorf("the limit is missing: give %d for all devices", grant.AllDevices)
	}
	return d.aboutGrant(who, r.ID, func() error { return d.limitGrant(r.ID, *r.Limit) })
}

func (d *daemon) answerGrants(who socket.Peer, line []byte) (any, error) {
	var r ask.GrantsRequest
	if err := strictly(line, &r); err != nil {
		return nil, err
	}
	if r.Claim == "" {
		return d.aboutGrant(who, r.ID, func() error { return nil })
	}
	claim, err := grant.ParseClaim(r.Claim)
	if err != nil {
		return nil, err
	}
	if !d.isOwner(who) { // the daemon's own process asks, which is the gateway's, too
		return nil, fmt.Errorf("only root and user %s, whose node it is, may ask what a claim means, not %s", d.own.Name, who.User.Name)
	}
	return d.listGrants(func() ([]string, error) {
		d.expireGrants()
		if g := d.grants.Claimed(claim, r.User); g != nil {
			return []string{g.ID}, nil
		}
		return nil, nil
	})
}

// aboutGrant has the loop run do, and answers with one grant, or with all if id is "".
func (d *daemon) aboutGrant(who socket.Peer, id string, do func() error) (any, error) {
	if err := d.mayGrant(who); err != nil {
		return nil, err
	}
	return d.listGrants(func() ([]string, error) {
		if err := do(); err != nil || id != "" {
			return []string{id}, err
		}
		return d.grants.Ids(), nil
	})
}

// listGrants answers with those grants that which names. The loop calls which.
func (d *daemon) listGrants(which func() ([]string, error)) (any, error) {
	answer := status.Grants{Node: d.cfg.Name, Grants: []status.Grant{}}
	err := d.loop.Try(func() error {
		ids, err := which()
		for _, id := range ids {
			if g := d.grants.Of(id); g != nil && err == nil {
				answer.Grants = append(answer.Grants, d.grantStatus(g))
			}
		}
		return err
	})
	return answer, err
}

// grantStatus is a grant for people, without anything secret.
func (d *daemon) grantStatus(g *grants.Granted) status.Grant {
	s := status.Grant{ID: g.ID, User: g.User, Limit: g.Limit, Devices: []status.GrantedDevice{}}
	if !g.Expires.IsZero() {
		s.Expires = g.Expires.Unix()
	}
	for i, share := range g.Devices {
		is := status.GrantedDevice{Device: share.Device, Name: d.stock.Load().NameOf(vgpu.DeviceID(share.Device)), Memory: share.Memory}
		for _, c := range d.clients {
			switch {
			case c.under.Granted != g:
			case c.under.Share == i:
				is.Clients++
				is.Allocated += c.memoryNow.Allocated
			case c.loans[vgpu.DeviceID(share.Device)] != nil: // its launches are mapped there too
				is.Clients++
			}
		}
		s.Devices = append(s.Devices, is)
	}
	return s
}

// Services start processes for programs (elements). Such a process is under the grant of the program
// that it belongs to, on this node and on others: its service says so (Service.Grant), since the
// process itself has no credential to show. A program comes to a service under a grant if the process
// that serves its job passes its connection on, and shows the credential.

// serviceRequest begins a conversation with a service, or passes on a job's program that asks the
// node anything else.
type serviceRequest struct {
	Request string `json:"request"`
	// Under a grant these are its name and its credential. The program's own connection comes then, as
	// a descriptor, after the daemon has answered {}.
	ID    string           `json:"id,omitempty"`
	Grant grant.Credential `json:"grant,omitempty"`
	// Line is what the program asked, if it is more than the request's name.
	Line string `json:"line,omitempty"`
}

// unknownGrantPrefix begins the name of a grant in a claim if the node does not know the grant: no
// grant of a job's parts is called so (grant.Claim.SameJob).
const unknownGrantPrefix = "unknown:"

// passedTime is how long a connection may take to pass another on.
const passedTime = setUpTime

// takePassed receives the connection of a program that another process passes on, which has shown
// the credential of the program's grant. It returns who the program is, and under which grant. A
// grant that this node does not know may have devices on other nodes; here the program has none.
//
// A process may pass on only what its own user has connected: anybody's programs connect to sockets
// of others, who would then act for them.
func (d *daemon) takePassed(conn *net.UnixConn, passer settings.Account, r *serviceRequest) (passed *net.UnixConn, who socket.Peer, claim grant.Claim, err error) {
	claim = grant.Claim{ID: r.ID, Hash: r.Grant.Hash()}
	if err := grant.CheckName("grant's id", r.ID); err != nil {
		return nil, who, claim, err
	}
	_ = conn.SetDeadline(d.opts.Now().Add(passedTime))
	if _, err := conn.Write([]byte("{}\n")); err != nil {
		return nil, who, claim, err
	}
	if passed, err = receiveConnection(conn); err != nil {
		return nil, who, claim, fmt.Errorf("the program's connection did not come: %w", err)
	}
	if who, err = socket.PeerOf(passed, d.names); err == nil {
		err = d.mayPass(passer, who.User, &claim)
	}
	if err != nil {
		_ = passed.Close()
		return nil, who, claim, err
	}
	_ = conn.Close()
	return passed, who, claim, nil
}

// mayPass checks whether a user's process may pass on what another's has connected, under a grant,
// whose name it completes.
func (d *daemon) mayPass(passer, program settings.Account, claim *grant.Claim) error {
	var g *grants.Granted
	d.loop.Ask(func() { d.expireGrants(); g = d.grants.Find(claim.Hash) })
	switch {
	case passer.UID != program.UID && passer.UID != 0 && passer.UID != d.own.UID:
		return fmt.Errorf("user %s may not pass on what user %s has connected", passer.Name, program.Name)
	case !d.settings.Load().MayUse(program, d.own.UID):
		return fmt.Errorf("user %s may not use this node", program.Name)
	case g != nil && g.User != program.Name:
		return fmt.Errorf("grant %s is user %s's, and user %s may not use it", g.ID, g.User, program.Name)
	case g != nil:
		claim.ID = g.ID
	default: // nobody has vouched for the name, so it stands for no part of a job
		claim.ID = unknownGrantPrefix + claim.ID
	}
	return nil
}

// passedOn reads a request that a job's relay passes on; others show no credential.
func passedOn(line []byte) (*serviceRequest, bool) {
	var r serviceRequest
	return &r, strictjson.Decode(line, &r) == nil && r.Grant != ""
}

// maxPasses is how many times a request may be passed on: by the relay of a job, and by those of the
// jobs within which it runs. What is answered after a pass has those before it on its stack, so a user
// who passed on for ever would end the daemon.
const maxPasses = 8

// answerPassed answers a request that a job's relay passes on, as if the job's program had connected
// to the node itself: the program has its user's rights, and nothing of the relay's.
func (d *daemon) answerPassed(passes int, conn *net.UnixConn, from socket.Peer, r *serviceRequest) error {
	switch {
	case d.isGateway(from):
		return errElsewhere
	case passes > maxPasses:
		return fmt.Errorf("the request was passed on %d times, as often as may be: run fewer jobs within each other", maxPasses)
	}
	passed, who, _, err := d.takePassed(conn, from.User, r)
	if err != nil {
		return err
	}
	defer passed.Close()
	line := cmp.Or(r.Line, fmt.Sprintf("{%q:%q}", "request", r.Request))
	d.answerAfter(passes, passed, io.MultiReader(strings.NewReader(line), passed), who)
	return nil
}

// isGateway says that a connection is of the node's gateway, which speaks for other machines.
func (d *daemon) isGateway(who socket.Peer) bool {
	return d.opts.Gateway != 0 && int(who.PID) == d.opts.Gateway
}

var errElsewhere = errors.New("programs of other machines cannot have that")

// receiveConnection receives one connection to this node's kind of socket.
func receiveConnection(conn *net.UnixConn) (*net.UnixConn, error) {
	_, files, err := wire.ReceiveFiles(conn, make([]byte, 1))
	if err != nil {
		return nil, err
	}
	defer proc.CloseAll(files)
	if len(files) != 1 {
		return nil, fmt.Errorf("%d descriptors came", len(files))
	}
	made, err := net.FileConn(files[0])
	if err != nil {
		return nil, err
	}
	passed, ok := made.(*net.UnixConn)
	if !ok {
		made.Close()
		return nil, fmt.Errorf("what came is no connection of a program")
	}
	return passed, nil
}

// claimOf is the claim of a process that a service has started; nil if it has none.
func (d *daemon) claimOf(pid int) (*grant.Claim, error) {
	for _, s := range d.opts.Services {
		if s.Grant == nil {
			continue
		}
		if text := s.Grant(pid); text != "" {
			c, err := grant.ParseClaim(text)
			return &c, err
		}
	}
	return nil, nil
}

// byClaim finds the grant of a process that a service has started; nil if the service's program has
// none. If its program has one, the process does not do without.
func (d *daemon) byClaim(who *socket.Peer) (*grants.Granted, error) {
	c, err := d.claimOf(int(who.PID))
	if c == nil || err != nil {
		return nil, err
	}
	var g *grants.Granted
	d.loop.Ask(func() { d.expireGrants(); g = d.grants.Claimed(*c, who.User.Name) })
	if g == nil {
		return nil, refusal.New(refusal.NotPermitted, "the process belongs to a program under grant %s, and the node knows no such grant: it has ended or was revoked, or has no devices here", settings.Printable(c.ID))
	}
	return g, nil
}
