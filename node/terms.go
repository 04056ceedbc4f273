package node

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"muster/device"
	"muster/internal/whois"
	"muster/mapping"
	"muster/model"
	"muster/node/grants"
	"muster/node/lending"
	"muster/node/refusal"
	"muster/node/requests"
	"muster/node/settings"
	"muster/node/shown"
	"muster/node/socket"
	"muster/node/stock"
	"muster/node/vgpu"
	"muster/wire"
	"muster/wire/grant"
)

// terms are those on which programs come in: who may, what each is shown, and what it may have. Any goroutine
// may ask.
type terms struct {
	common
	rights   requests.Rights
	names    *whois.Names
	grants   *grants.Book
	lending  *lending.Lending
	desk     *requests.Desk
	loans    *loans
	pictures *pictures
}

// identify finds out whose program a greeting comes from, and under which grant it is.
// Processes of the node's own user (the gateway) may speak for users of other machines.
func (t *terms) identify(who *socket.Peer, hello *wire.Hello, lent *loan) (*grants.Granted, error) {
	if lent != nil {
		return lent.client.under.Granted, nil
	}
	name, address, speaks := wire.SpokenFor(hello.Token)
	speaks = speaks && who.User.UID == t.rights.Own.UID
	if speaks {
		who.Address = settings.Printable(address)
	}
	if speaks && name != "" {
		who.User = t.stranger(name)
	}
	if hello.Grant == "" && !speaks {
		if g, err := t.byClaim(who); g != nil || err != nil {
			return g, err
		}
	}
	if hello.Grant == "" {
		if t.settings.Load().Grants == settings.GrantsRequired && hello.Guest != 0 {
			return nil, refusal.New(refusal.NotPermitted, "this node serves programs with a grant only (grants: required), and lends its devices to no other node: leave it out of devices and peers there, or ask its administrator")
		}
		if t.settings.Load().Grants == settings.GrantsRequired {
			return nil, refusal.New(refusal.NotPermitted, "this node serves only programs that were granted its devices (grants: required): submit the program as a job, or have the administrator make a grant (muster grant)")
		}
		return nil, nil
	}
	var g *grants.Granted
	var borrower string
	hash := grant.Credential(hello.Grant).Hash()
	t.loop.Ask(func() {
		t.grants.Expire()
		g = t.grants.Find(hash)
		borrower = t.lending.Borrower(hash)
	})
	switch {
	case g == nil && borrower != "" && speaks && name == "" && hello.Guest != 0:
		who.User = t.stranger(borrowerPrefix + borrower)
	case g == nil:
		return nil, refusal.New(refusal.NotPermitted, "the node knows no grant with this credential: it has ended or was revoked, or is not for this node")
	case speaks && name != "" && name != g.User, !speaks && who.User.Name != g.User:
		return nil, refusal.New(refusal.NotPermitted, "grant %s is user %s's, and user %s may not use it", g.ID, g.User, who.User.Name)
	case speaks:
		who.User = t.stranger(g.User)
	}
	return g, nil
}

// offers says what a program is shown. Without a grant that is as many devices as the node
// shows, each of which may be any real one; under a grant it is the granted ones. Guests
// are shown the node's own.
func (t *terms) offers(hello *wire.Hello, limits settings.UserLimits, g *grants.Granted, l *loan) (*shown.Offer, error) {
	if l != nil {
		return t.loans.offer(l), nil
	}
	stock, o, wish, gpus := t.stock.Load(), &shown.Offer{}, hello.Memory, int(min(hello.Gpus, settings.MaxDevices))
	if hello.Guest != 0 {
		return t.offersGuests(stock, wish, limits, g)
	}
	if g == nil {
		infos := stock.Infos()
		if len(infos) == 0 {
			return nil, refusal.ErrNoDevices
		}
		memory := t.worldOf(infos, wish, limits)
		for i := range t.visibleCount(infos, gpus) {
			o.Add(infos, memory, shown.Visible(t.cfg.Name, infos, i, i, memory))
		}
		return o, nil
	}
	for i, share := range g.Devices {
		infos := []device.Info{stock.Entries[share.Device].Info}
		memory := t.worldOf(infos, wish, limits)
		if share.Beyond < model.AllBeyond { // else it may see more than there is, as without a grant
			memory = min(memory, grants.ShareOf(share, infos[0]))
		}
		for number := range stock.Entries {
			if e := &stock.Entries[number]; share.Reach > model.ReachDevice && number != share.Device && e.Lends() {
				infos = append(infos, e.Info)
			}
		}
		o.Add(infos, memory, shown.Visible(t.cfg.Name, infos, share.Device, i, memory))
	}
	return o, nil
}

// endGranted ends the clients under a grant.
func (d *daemon) endGranted(g *grants.Granted, reason string) {
	delete(d.tally.Granted, g.ID)
	for _, number := range slices.Sorted(maps.Keys(d.clients)) {
		if c := d.clients[number]; c != nil && c.under.Granted == g {
			d.end(c, reason, false)
		}
	}
}

// addLent gives the node a device of another one that a grant has.
func (d *daemon) addLent(lent grants.Lent) (int, error) {
	id, err := d.stock.Add(lent.Device, lent.Info, stock.AnyNumber, true)
	return int(id), err
}

// removeLent takes it away.
func (d *daemon) removeLent(number int) {
	if all := d.stock.Load().Entries; number >= len(all) || !all[number].Lender.Granted {
		return // the state of an earlier daemon says what is not so
	}
	if err := d.stock.Remove(vgpu.DeviceID(number), true); err != nil {
		d.log.Error("a device of another node, which a grant had, cannot be removed", "device", number, "error", err)
	}
}

// nextExpiry is when the first grant ends by itself, if any does.
func (d *daemon) nextExpiry() (at time.Duration, any bool) {
	ends, any := d.grants.Next()
	return ends.Sub(d.loop.Start()), any
}

// byClaim finds the grant of a process that a service has started; nil if the service's program has
// none. If its program has one, the process does not do without.
func (t *terms) byClaim(who *socket.Peer) (*grants.Granted, error) {
	c, err := t.desk.ClaimOf(int(who.PID))
	if c == nil || err != nil {
		return nil, err
	}
	var g *grants.Granted
	t.loop.Ask(func() { t.grants.Expire(); g = t.grants.Claimed(*c, who.User.Name) })
	if g == nil {
		return nil, refusal.New(refusal.NotPermitted, "the process belongs to a program under grant %s, and the node knows no such grant: it has ended or was revoked, or has no devices here", settings.Printable(c.ID))
	}
	return g, nil
}

// mayUse says whether the configuration lets a user in.
func (t *terms) mayUse(user settings.Account) bool {
	return t.settings.Load().MayUse(user, t.rights.Own.UID)
}

// stranger is the account of a user of another machine. That machine's root is not root
// here, and is kept apart from this machine's users by its name.
func (t *terms) stranger(name string) settings.Account {
	if name == t.names.Of(0) {
		name = "remote:" + name
	}
	return settings.Account{UID: settings.Nobody, Name: settings.Printable(name)}
}

// visibleCount is how many devices a program sees: as many as it asks for, or as the node
// shows.
func (t *terms) visibleCount(infos []device.Info, asked int) int {
	if asked > 0 {
		return asked
	}
	if visible := t.settings.Load().Visible; visible > 0 {
		return visible
	}
	if t.stock.Load().OnlyBorrows() {
		return 1
	}
	return len(infos)
}

// worldOf is how much device memory a client sees.
func (t *terms) worldOf(infos []device.Info, wish uint64, limits settings.UserLimits) uint64 {
	memory := wish
	if memory == 0 {
		for _, info := range infos {
			memory = max(memory, info.Memory-info.ContextCost)
		}
	}
	memory = min(memory, t.settings.Load().Swap.Size, settings.MaxArena/4)
	if limits.Memory > 0 {
		memory = min(memory, limits.Memory)
	}
	return memory
}

// lacking says what a device of the node cannot do that a program was shown; "" if
// there is nothing.
func (t *terms) lacking(c *client) string {
	for i, e := range t.stock.Load().Entries {
		if c.keepsOff(i, &e) {
			continue
		}
		if why := shown.CannotDo(e.Info, c.shown); e.Here && why != "" {
			return fmt.Sprintf("%s %s", e.Info.Name, why)
		}
	}
	return ""
}

// mapperOf is the mapper of a program: the one that it asks for, or the node's.
func (t *terms) mapperOf(asked string) (string, error) {
	spec := asked
	if spec == "" {
		return t.nodeMapper(), nil
	}
	if spec == settings.MappingOff {
		return "", nil
	}
	if err := mapping.Check(spec); err != nil {
		return "", refusal.New(refusal.NotPermitted, "%v (muster run --mapping, or MUSTER_MAPPING)", err)
	}
	return spec, nil
}

// nodeMapper is the mapper of programs that ask for none; "" for none.
func (t *terms) nodeMapper() string {
	if spec := t.settings.Load().Mapping; spec != settings.MappingOff {
		return spec
	}
	return ""
}
