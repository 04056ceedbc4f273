package node

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"muster/device"
	"muster/internal/units"
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

// GrantMode says whether programs need a grant.
type GrantMode uint8

const (
	GrantsOptional GrantMode = iota // programs without one are served too, with what is not granted
	GrantsRequired                  // programs without one are refused, so that none bypasses the scheduler
)

var grantModes = [...]string{"optional", "required"}

func (m GrantMode) String() string { return grantModes[m] }

// ParseGrantMode reads the name that String gives.
func ParseGrantMode(name string) (GrantMode, error) {
	at := slices.Index(grantModes[:], name)
	if at < 0 {
		return 0, fmt.Errorf("grants can be optional or required, not %q", name)
	}
	return GrantMode(at), nil
}

// maxGrants is how many a node keeps at a time.
const maxGrants = 1024

// granted is a grant as the node knows it. Only Limit ever changes, and only the loop reads
// and writes it; the rest may be read anywhere.
type granted struct {
	ID      string          `json:"id"`
	User    string          `json:"user"`
	Hash    grant.Hash      `json:"hash"`
	Devices []grantedDevice `json:"devices"`
	Limit   int             `json:"limit"`
	Expires time.Time       `json:"expires,omitzero"` // it ends then; the zero time: never
}

// grantedDevice is what a grant has of one device.
type grantedDevice struct {
	Device int    `json:"device"`           // its number
	Memory uint64 `json:"memory,omitempty"` // bytes, contexts included; 0: all of it
}

func (g *granted) check() error {
	for what, name := range map[string]string{"grant's id": g.ID, "user": g.User} {
		if err := grant.CheckName(what, name); err != nil {
			return err
		}
	}
	if n := len(g.Devices); n == 0 || n > maxDevices {
		return fmt.Errorf("a grant of %d devices: give 1 to %d", n, maxDevices)
	}
	if g.Hash == (grant.Hash{}) {
		return fmt.Errorf("the hash of the grant's credential is missing")
	}
	return grant.CheckLimit(g.Limit, len(g.Devices))
}

func (g *granted) admit() vgpu.Admit {
	e := vgpu.Admit{Grant: vgpu.GrantID(g.ID), Limit: g.Limit}
	for _, d := range g.Devices {
		e.Shares = append(e.Shares, vgpu.Share{Device: vgpu.DeviceID(d.Device), Memory: d.Memory})
	}
	return e
}

// same says whether two grants are one, apart from their limits.
func (g *granted) same(o *granted) bool {
	return g.ID == o.ID && g.User == o.User && g.Hash == o.Hash && g.Expires.Equal(o.Expires) && slices.Equal(g.Devices, o.Devices)
}

// under is the grant that a client has, and which of the grant's devices it is on.
type under struct {
	*granted     // nil: none
	share    int // the place of the client's device among the grant's
}

// id is the grant's; "" without one.
func (u under) id() string {
	if u.granted == nil {
		return ""
	}
	return u.ID
}

// memory is the share of the device that the client may use; 0 for all of it.
func (u under) memory() uint64 {
	if u.granted == nil {
		return 0
	}
	return u.Devices[u.share].Memory
}

// number is that of the only device that the client may use; -1 for any.
func (u under) number() int {
	if u.granted == nil {
		return -1
	}
	return u.Devices[u.share].Device
}

// --- programs ------------------------------------------------------------------

// identify finds out whose program a greeting comes from, and under which grant it is.
// Processes of the node's own user (the gateway) may speak for users of other machines.
func (d *daemon) identify(who *peer, hello *wire.Hello) (*granted, error) {
	if who.loan != nil {
		return who.loan.client.under.granted, nil
	}
	name, address, speaks := wire.SpokenFor(hello.Token)
	speaks = speaks && who.user.uid == d.own.uid
	if speaks {
		who.address = printable(address)
	}
	if speaks && name != "" {
		who.user = d.stranger(name)
	}
	if hello.Grant == "" && !speaks {
		if g, err := d.byClaim(who); g != nil || err != nil {
			return g, err
		}
	}
	if hello.Grant == "" {
		if d.live().Grants == GrantsRequired && hello.Guest != 0 {
			return nil, refuse(resultNotPermitted, "this node serves programs with a grant only (grants: required), and lends its devices to no other node: leave it out of devices and peers there, or ask its administrator")
		}
		if d.live().Grants == GrantsRequired {
			return nil, refuse(resultNotPermitted, "this node serves only programs that were granted its devices (grants: required): submit the program as a job, or have the administrator make a grant (muster grant)")
		}
		return nil, nil
	}
	var g *granted
	var borrower string
	hash := grant.Credential(hello.Grant).Hash()
	d.ask(func() {
		d.expireGrants()
		g = d.findHash(hash)
		borrower = d.borrowerWith(hash)
	})
	switch {
	case g == nil && borrower != "" && speaks && name == "" && hello.Guest != 0:
		who.user = d.stranger(borrowerPrefix + borrower)
	case g == nil:
		return nil, refuse(resultNotPermitted, "the node knows no grant with this credential: it has ended or was revoked, or is not for this node")
	case speaks && name != "" && name != g.User, !speaks && who.user.name != g.User:
		return nil, refuse(resultNotPermitted, "grant %s is user %s's, and user %s may not use it", g.ID, g.User, who.user.name)
	case speaks:
		who.user = d.stranger(g.User)
	}
	return g, nil
}

// offer is what a program is shown.
type offer struct {
	infos   [][]device.Info // for each device, the real ones that may be behind it
	numbers []int           // the devices' numbers, for guests only
	memory  []uint64        // that the program sees on each
	devices []wire.Device
}

// driver is the version of CUDA that programs are told.
func (o *offer) driver() uint32 { return driverVersion(slices.Concat(o.infos...)) }

// offers says what a program is shown. Without a grant that is as many devices as the node
// shows, each of which may be any real one; under a grant it is the granted ones. Guests
// are shown the node's own.
func (d *daemon) offers(hello *wire.Hello, limits UserLimits, g *granted, l *loan) (*offer, error) {
	if l != nil {
		return d.offersLoan(l), nil
	}
	stock, o, wish, gpus := d.stock.Load(), &offer{}, hello.Memory, int(min(hello.Gpus, maxDevices))
	if hello.Guest != 0 {
		return d.offersGuests(stock, wish, limits, g)
	}
	if g == nil {
		infos := stock.infos()
		if len(infos) == 0 {
			return nil, errNoDevices
		}
		memory := d.worldOf(infos, wish, limits)
		for i := range d.visibleCount(infos, gpus) {
			o.add(infos, memory, visible(d.cfg.Name, infos, i, i, memory))
		}
		return o, nil
	}
	for i, share := range g.Devices {
		infos := []device.Info{stock.entries[share.Device].info}
		memory := min(d.worldOf(infos, wish, limits), shareOf(share, infos[0]))
		o.add(infos, memory, visible(d.cfg.Name, infos, share.Device, i, memory))
	}
	return o, nil
}

func (o *offer) add(infos []device.Info, memory uint64, shown wire.Device) {
	o.infos, o.memory, o.devices = append(o.infos, infos), append(o.memory, memory), append(o.devices, shown)
}

// shareOf is how many bytes all clients of a grant may allocate on a device together. The
// share includes one context, so that a device's memory can be granted to the last byte.
func shareOf(share grantedDevice, info device.Info) uint64 {
	if share.Memory == 0 {
		return info.Memory - info.ContextCost
	}
	return share.Memory - min(share.Memory, info.ContextCost)
}

// grantEnded says why a client cannot be under its grant; "" if it can. Only the loop calls
// it.
func (d *daemon) grantEnded(u under) string {
	if u.granted == nil || d.grants[u.ID] == u.granted {
		return ""
	}
	return fmt.Sprintf("grant %s has ended", u.ID)
}

// shareFull says why a client cannot have want bytes, given what the other clients of its
// grant have on its device; "" if it can.
func (d *daemon) shareFull(c *client, want uint64) string {
	if c.under.granted == nil {
		return ""
	}
	others := uint64(0)
	for _, o := range d.clients {
		if o != c && o.under.granted == c.under.granted && o.under.share == c.under.share {
			others += o.committed
		}
	}
	all := shareOf(c.under.Devices[c.under.share], d.stock.Load().entries[c.under.number()].info)
	if others == 0 || want <= all && others <= all-want { // a client that is alone is bounded by the memory that it sees
		return ""
	}
	return fmt.Sprintf("the job's share of the device is used up (%s, of which its other processes have %s): free some memory there, or ask for a larger share when you submit the job",
		units.BriefSize(all), units.BriefSize(others))
}

// --- the book ------------------------------------------------------------------

func (d *daemon) findHash(hash grant.Hash) *granted {
	for _, g := range d.grants {
		if g.Hash == hash {
			return g
		}
	}
	return nil
}

// admitGrant makes a grant known. If it is known already and has not changed, only its
// limit is set: the admitting side may not know whether an earlier attempt succeeded.
func (d *daemon) admitGrant(g *granted) error {
	if err := g.check(); err != nil {
		return err
	}
	if known := d.grants[g.ID]; known != nil {
		if !known.same(g) {
			return fmt.Errorf("grant %s is known already, and was another one: revoke it first", g.ID)
		}
		return d.limitGrant(g.ID, g.Limit)
	}
	switch {
	case d.findHash(g.Hash) != nil:
		return fmt.Errorf("grant %s has the credential of another grant: each needs its own", g.ID)
	case len(d.grants) >= maxGrants:
		return fmt.Errorf("the node has %d grants, as many as it may: revoke some first", len(d.grants))
	case !g.Expires.IsZero() && !g.Expires.After(d.opts.Now()):
		return fmt.Errorf("grant %s has expired already, at %s", g.ID, g.Expires.Format(time.RFC3339))
	}
	if err := d.tellCore(g.admit()); err != nil {
		return err
	}
	d.grants[g.ID] = g
	d.saveNode()
	d.log.Info("a grant was admitted", "grant", g.ID, "user", g.User, "devices", len(g.Devices), "limit", g.Limit)
	return nil
}

func (d *daemon) limitGrant(id string, limit int) error {
	g := d.grants[id]
	if g == nil {
		return unknownGrant(id)
	}
	if g.Limit == limit {
		return nil
	}
	if err := grant.CheckLimit(limit, len(g.Devices)); err != nil {
		return err
	}
	if err := d.tellCore(vgpu.Restrict{Grant: vgpu.GrantID(id), Limit: limit}); err != nil {
		return err
	}
	g.Limit = limit
	d.saveNode()
	d.log.Info("a grant has another limit", "grant", id, "limit", limit)
	return nil
}

// revokeGrant ends a grant, and its clients.
func (d *daemon) revokeGrant(id, reason string) error {
	g := d.grants[id]
	if g == nil {
		return unknownGrant(id)
	}
	delete(d.grants, id)
	d.saveNode()
	d.step(d.now(), vgpu.Withdraw{Grant: vgpu.GrantID(id)})
	d.log.Info("a grant has ended", "grant", id, "user", g.User, "reason", reason)
	for _, number := range slices.Sorted(maps.Keys(d.clients)) {
		if c := d.clients[number]; c != nil && c.under.granted == g {
			d.end(c, reason, false)
		}
	}
	return nil
}

func unknownGrant(id string) error {
	return fmt.Errorf("there is no grant %q: muster grant list names those there are", printable(id))
}

// nextExpiry is when the first grant ends by itself, if any does.
func (d *daemon) nextExpiry() (at time.Duration, any bool) {
	for _, g := range d.grants {
		if ends := g.Expires.Sub(d.start); !g.Expires.IsZero() && (!any || ends < at) {
			at, any = ends, true
		}
	}
	return at, any
}

// expireGrants ends the grants whose time is over.
func (d *daemon) expireGrants() {
	if at, any := d.nextExpiry(); !any || d.now() < at {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(d.grants)) {
		if g := d.grants[id]; !g.Expires.IsZero() && !g.Expires.After(d.opts.Now()) {
			_ = d.revokeGrant(id, fmt.Sprintf("the time of grant %s is over", id))
		}
	}
}

// inheritGrants makes the grants of an earlier daemon known. If one cannot be kept, the
// clients under it end.
func (d *daemon) inheritGrants(left []granted) {
	for i := range left {
		g := &left[i]
		err := g.check()
		if err == nil {
			err = d.tellCore(g.admit())
		}
		if err != nil {
			d.log.Error("a grant of an earlier daemon cannot be kept", "grant", g.ID, "error", err)
			continue
		}
		d.grants[g.ID] = g
	}
}

// --- requests ------------------------------------------------------------------

// mayGrant refuses users who may not decide who uses the node.
func (d *daemon) mayGrant(who peer) error {
	if d.mayChangeDevices(who) != nil && !(d.opts.Agent && d.isOwner(who)) {
		return fmt.Errorf("only root and user %s, whose node it is, may do that with its grants, not %s", d.own.name, who.user.name)
	}
	return nil
}

// admitRequest is a grant as it is told to the node that owns the devices. Its limit
// is for those devices alone.
type admitRequest struct {
	Request string          `json:"request"`
	ID      string          `json:"id"`
	User    string          `json:"user"`
	Hash    grant.Hash      `json:"hash"`
	Devices []grantedDevice `json:"devices"`
	Limit   *int            `json:"limit"`             // 0 has a meaning of its own
	Expires int64           `json:"expires,omitempty"` // in seconds since 1970; 0: never
}

func (d *daemon) answerGrantAdmit(who peer, line []byte) (any, error) {
	var r admitRequest
	if err := strictly(line, &r); err != nil {
		return nil, err
	}
	g := &granted{ID: r.ID, User: r.User, Hash: r.Hash, Devices: r.Devices, Limit: grant.AllDevices}
	if r.Limit == nil {
		return nil, fmt.Errorf("the limit is missing: give %d for all devices", grant.AllDevices)
	}
	g.Limit = *r.Limit
	if r.Expires != 0 {
		g.Expires = time.Unix(r.Expires, 0)
	}
	return d.aboutGrant(who, r.ID, func() error { return d.admitGrant(g) })
}

// grantRequest names a grant.
type grantRequest struct {
	Request string `json:"request"`
	ID      string `json:"id"`
	Limit   *int   `json:"limit,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

func (d *daemon) answerGrantRevoke(who peer, line []byte) (any, error) {
	var r grantRequest
	if err := strictly(line, &r); err != nil {
		return nil, err
	}
	reason := fmt.Sprintf("grant %s was revoked", printable(r.ID))
	if r.Reason != "" {
		reason += ": " + printable(r.Reason)
	}
	return d.aboutGrant(who, "", func() error { return d.revokeGrant(r.ID, reason) })
}

func (d *daemon) answerGrantLimit(who peer, line []byte) (any, error) {
	var r grantRequest
	if err := strictly(line, &r); err != nil {
		return nil, err
	}
	if r.Limit == nil {
		return nil, fmt.Errorf("the limit is missing: give %d for all devices", grant.AllDevices)
	}
	return d.aboutGrant(who, r.ID, func() error { return d.limitGrant(r.ID, *r.Limit) })
}

// grantsRequest asks for one grant, or for all. With a claim it asks for the one that this means here.
type grantsRequest struct {
	Request string `json:"request"`
	ID      string `json:"id"`
	Claim   string `json:"claim,omitempty"`
	User    string `json:"user,omitempty"` // whose claim
}

func (d *daemon) answerGrants(who peer, line []byte) (any, error) {
	var r grantsRequest
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
		return nil, fmt.Errorf("only root and user %s, whose node it is, may ask what a claim means, not %s", d.own.name, who.user.name)
	}
	return d.listGrants(func() ([]string, error) {
		d.expireGrants()
		if g := d.claimed(claim, r.User); g != nil {
			return []string{g.ID}, nil
		}
		return nil, nil
	})
}

// aboutGrant has the loop run do, and answers with one grant, or with all if id is "".
func (d *daemon) aboutGrant(who peer, id string, do func() error) (any, error) {
	if err := d.mayGrant(who); err != nil {
		return nil, err
	}
	return d.listGrants(func() ([]string, error) {
		if err := do(); err != nil || id != "" {
			return []string{id}, err
		}
		return slices.Sorted(maps.Keys(d.grants)), nil
	})
}

// listGrants answers with those grants that which names. The loop calls which.
func (d *daemon) listGrants(which func() ([]string, error)) (any, error) {
	answer := status.Grants{Node: d.cfg.Name, Grants: []status.Grant{}}
	err := d.inLoop(func() error {
		ids, err := which()
		for _, id := range ids {
			if g := d.grants[id]; g != nil && err == nil {
				answer.Grants = append(answer.Grants, d.grantStatus(g))
			}
		}
		return err
	})
	return answer, err
}

// grantStatus is a grant for people, without anything secret.
func (d *daemon) grantStatus(g *granted) status.Grant {
	s := status.Grant{ID: g.ID, User: g.User, Limit: g.Limit, Devices: []status.GrantedDevice{}}
	if !g.Expires.IsZero() {
		s.Expires = g.Expires.Unix()
	}
	for i, share := range g.Devices {
		is := status.GrantedDevice{Device: share.Device, Name: d.nameOf(vgpu.DeviceID(share.Device)), Memory: share.Memory}
		for _, c := range d.clients {
			switch {
			case c.under.granted != g:
			case c.under.share == i:
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
