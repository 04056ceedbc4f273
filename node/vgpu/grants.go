package vgpu

import (
	"errors"
	"fmt"
	"slices"

	"muster/internal/units"
	"muster/model"
)

// GrantID names a grant: the right of some clients to use certain devices.
type GrantID string

// Share is what a grant has of one device, which is the share's home.
type Share struct {
	Device DeviceID    `json:"device"`
	Memory uint64      `json:"memory"`           // bytes, contexts included; 0: all of the device, and no other client is placed there
	Beyond uint64      `json:"beyond,omitempty"` // bytes more that its clients may have of the device while they are free
	Reach  model.Reach `json:"reach,omitempty"`  // where else its clients may go
}

// Bounds on grants.
const (
	maxGrants = 4096
	maxShares = maxDevices // of one grant
)

// grant is what the core knows of one.
type grant struct {
	id      GrantID
	parts   []*device // one for each share, in the grant's order
	limit   int       // parts that may be used at a time; -1: all
	gone    bool      // it was withdrawn, and some of its clients are still there
	clients int
}

// active says whether what was granted is kept from others.
func (g *grant) active() bool { return g.limit != 0 && !g.gone }

// inUse is how many of its parts the grant's clients have or are promised, at home or away.
func (g *grant) inUse() (n int) {
	for _, p := range g.parts {
		if p.inUse() {
			n++
		}
	}
	return n
}

// inUse says whether a part has clients, or somebody was promised to be one.
func (d *device) inUse() bool {
	return d.bound+d.claims+d.called > 0 || slices.ContainsFunc(d.away, func(x *client) bool { return x.state == Assigned })
}

// --- parts of devices ----------------------------------------------------------

// base is the device that d is a part of, or d itself.
func (d *device) base() *device {
	if d.of != nil {
		return d.of
	}
	return d
}

// family is a device and its parts.
func (d *device) family() []*device { return append([]*device{d.base()}, d.base().parts...) }

// quota is how many bytes are there for the clients of d: for a part, what was granted; for a
// device, what no grant has, which is its pool: clients without a grant have it together with parts that may
// have more than they were granted. It is negative for a device that came back too small for its grants.
func (d *device) quota() int64 {
	switch {
	case d.of == nil:
		left := int64(d.Memory)
		for _, p := range d.parts {
			left -= p.quota()
		}
		return left
	case !d.grant.active():
		return 0
	}
	return int64(d.Memory)
}

// excess is how much the clients of d have, or were promised, beyond its quota: they may have more while it is
// free, were there before it was granted to others, or their grant is suspended.
func (d *device) excess() int64 { return max(0, d.used+d.claimed-d.quota()) }

// room is how much memory d's clients may still take: the rest of the quota, and of the pool what a part may
// have beyond that. While others have more of the pool than there is, because a grant came and they have not left yet,
// the quotas that came last are less by that.
func (d *device) room() int64 {
	b := d.base()
	pool, promised := b.quota()-b.used, int64(0)
	for _, p := range b.parts {
		if p != d {
			has := max(0, p.used-p.quota())
			pool -= has
			promised += p.excess() - has
		}
	}
	if d == b {
		return pool - promised
	}
	if pool < 0 {
		return d.quota() - d.used + min(0, pool+b.untakenAfter(d))
	}
	// What others were promised of the pool is not there beyond the quota. It takes nothing from the quota.
	promised += b.claimed
	return d.quota() - d.used + min(max(0, pool-promised), d.more())
}

// untakenAfter is how much those parts of a device leave of their quotas that came after one of them.
func (d *device) untakenAfter(p *device) (bytes int64) {
	for _, q := range d.parts[slices.Index(d.parts, p)+1:] {
		bytes += max(0, q.quota()-q.used)
	}
	return bytes
}

// most is how many bytes the clients of d may ever have.
func (d *device) most() uint64 {
	if d.of == nil {
		return d.Memory
	}
	return max(d.Memory, min(d.Memory+d.beyond, d.of.Memory))
}

// more is how much the clients of d may have beyond its quota, if others leave them that.
func (d *device) more() int64 {
	if d.of == nil || !d.grant.active() {
		return 0
	}
	return int64(d.most() - d.Memory)
}

// rivals are the others of d's family that have something of the pool which d's clients may have, too.
func (d *device) rivals() (all []*device) {
	b := d.base()
	if len(b.parts) == 0 || d != b && d.more() == 0 {
		return nil
	}
	if d != b {
		all = append(all, b)
	}
	for _, p := range b.parts {
		if p != d && p.excess() > 0 {
			all = append(all, p)
		}
	}
	return all
}

// yields is how much room d would have more if a client left that is there or on one of d's rivals, after
// some others and those that were told to leave, as far as they count. A part yields no more than its excess:
// what it is guaranteed, clients of others gain nothing by.
func (d *device) yields(v *client, after []victim, counts func(*client) bool) int64 {
	if v.dev == d || v.dev.of == nil {
		return v.taken()
	}
	_, leave := v.dev.leavers(counts)
	left := v.dev.excess() - leave
	for _, o := range after {
		if o.dev == v.dev {
			left -= o.taken()
		}
	}
	return max(0, min(left, v.taken()))
}

// within are the clients in slots of d and its rivals.
func (d *device) within() []*client {
	all := d.slots
	for _, m := range d.rivals() {
		if m.of == nil || m.grant.active() {
			all = append(slices.Clip(all), m.slots...)
		}
	}
	return all
}

// keepersWithin are those that only keep bytes on d and its rivals.
func (d *device) keepersWithin() []*client {
	all := d.keepers
	for _, m := range d.rivals() {
		all = append(slices.Clip(all), m.keepers...)
	}
	return all
}

// keptFor is the client for which what x would take of d is reserved; nil if there is none, or if it is x.
func (d *device) keptFor(x *client) *client {
	if r := d.reservedFor; r != nil && r != x {
		return r
	}
	if len(d.base().parts) == 0 || d.of != nil && int64(x.want.Need+d.ContextCost) <= d.quota()-d.used-d.claimed {
		return nil
	}
	for _, m := range d.rivals() {
		if r := m.reservedFor; r != nil && r != x {
			return r
		}
	}
	return nil
}

// exclusive says whether a grant has all of the device.
func (d *device) exclusive() bool {
	return slices.ContainsFunc(d.parts, func(p *device) bool { return p.whole && p.grant.active() })
}

// holdsNow says whether a client that needs this many bytes could be put on d if no other
// client were there, given the present grants.
func (d *device) holdsNow(need uint64) bool {
	return d.holdsEver(need) && int64(need+d.ContextCost) <= d.atMost() && !d.exclusive() && (d.of == nil || d.grant.active())
}

// atMost is how many bytes d's clients could have if all left that have no right to be there.
func (d *device) atMost() int64 { return d.quota() + min(d.base().quota(), d.more()) }

// vacated says whether d has none of the clients that must leave it first: a device that is granted
// whole must have no others.
func (d *device) vacated() bool { return !d.whole || d.of.bindings() == d.bound }

// mayRun says whether a client's grant allows it a device: no more of a grant are in use at a time
// than its limit says.
func (x *client) mayRun() bool {
	p := x.part
	switch {
	case p == nil:
		return true
	case !p.grant.active() || p.grant.limit < 0:
		return p.grant.active()
	case p.inUse():
		return !p.leaving()
	}
	return p.grant.inUse() < p.grant.limit
}

// bindings is how many clients are bound to a device, under any grant or none.
func (d *device) bindings() (n int) {
	for _, m := range d.family() {
		n += m.bound
	}
	return n
}

// isOf says whether d is for x: a part is for the clients of its grant, and a device for those without
// one and those whose grant lets them go there, unless it is for grants alone.
func (x *client) isOf(d *device) bool {
	p := x.part
	switch {
	case p == nil:
		return d.of == nil && !d.Granted
	case p == d:
		return true
	}
	return d.of == nil && !d.Granted && d != p.of && p.reach > model.ReachDevice && (p.reach == model.ReachCluster || !d.Elsewhere)
}

// seatOf is what x would be put on at a device: its part, at home.
func (f *fleet) seatOf(x *client, id DeviceID) *device {
	if x.part != nil && x.part.id == id {
		return x.part
	}
	return f.devices[id]
}

// sit puts a client on a device, or takes it from there (nil). A part keeps a list of those that are away.
func (x *client) sit(d *device) {
	if p := x.part; p != nil && x.dev != d {
		if x.dev != nil && x.dev != p {
			p.away = remove(p.away, x)
		}
		if d != nil && d != p {
			p.away = append(p.away, x)
		}
	}
	x.dev = d
}

// slotCount is what a client adds to its user's slots: 0 under a grant, which is a right
// of its own.
func (x *client) slotCount() int {
	if x.part != nil {
		return 0
	}
	return 1
}

// relist lists all devices and then all parts.
func (f *fleet) relist() {
	f.all = slices.Clone(f.devices)
	for _, g := range f.grants {
		f.all = append(f.all, g.parts...)
	}
	f.anew = true
}

// reshape gives a part the properties of its device.
func (d *device) reshape(of *device) {
	memory := d.Memory
	d.of, d.Device, d.slots = of, of.Device, make([]*client, of.Slots)
	if !d.whole {
		d.Memory = memory
	}
}

func (f *fleet) findGrant(id GrantID) *grant {
	for _, g := range f.grants {
		if g.id == id && !g.gone {
			return g
		}
	}
	return nil
}

// --- events --------------------------------------------------------------------

// Admit makes a grant known. Clients that are attached under it are put on the device of
// their share and nowhere else. What it has is kept from all others: clients that are in
// its way are told to leave (ForGrant).
type Admit struct {
	Grant  GrantID `json:"grant"`
	Shares []Share `json:"shares"`
	Limit  int     `json:"limit"` // devices that its clients may use at a time; -1: all; 0: none
}

func (e Admit) apply(c *Core) bool {
	if c.Refuses(e) != nil {
		return false
	}
	g := &grant{id: e.Grant, limit: e.Limit}
	for _, s := range e.Shares {
		of := c.devices[s.Device]
		p := &device{Device: Device{Memory: s.Memory}, id: of.id, portion: portion{grant: g, whole: s.Memory == 0, beyond: s.Beyond, reach: s.Reach}}
		p.reshape(of)
		g.parts = append(g.parts, p)
		of.parts = append(of.parts, p)
	}
	c.grants = append(c.grants, g)
	c.relist()
	c.grantsChanged()
	return true
}

// Withdraw ends a grant. The driver ends its clients. Until they are detached they hold
// what they have; the rest of what was granted is free for others.
type Withdraw struct {
	Grant GrantID `json:"grant"`
}

func (e Withdraw) apply(c *Core) bool {
	g := c.findGrant(e.Grant)
	if g == nil {
		return false
	}
	g.gone = true
	if g.clients == 0 {
		c.dropGrant(g)
	}
	c.grantsChanged()
	return true
}

// Restrict says how many of its devices a grant's clients may use at a time from now on.
// With 0 the grant is suspended: its clients leave their devices (ForLimit) and wait, and
// what was granted is free for others. With a larger limit they go on.
type Restrict struct {
	Grant GrantID `json:"grant"`
	Limit int     `json:"limit"`
}

func (e Restrict) apply(c *Core) bool {
	if c.Refuses(e) != nil {
		return false
	}
	g := c.findGrant(e.Grant)
	for _, p := range g.parts {
		if !g.active() { // it comes after those that were admitted meanwhile
			p.of.parts = append(remove(p.of.parts, p), p)
		}
	}
	g.limit = e.Limit
	c.grantsChanged()
	return true
}

// grantsChanged takes back promises that grants leave no room for, and determines anew
// what every client can hope for.
func (c *Core) grantsChanged() {
	for _, d := range c.all {
		if d.free() < 0 || d.exclusive() || d.of != nil && !d.grant.active() {
			c.closePart(d)
		}
	}
	for _, x := range c.clients { // in any order: nobody is told anything
		if x.target != AnyDevice && !c.seatOf(x, x.target).holdsNow(max(x.want.Need, x.memory)) {
			c.untarget(x)
		}
	}
	c.resort()
}

// forgetGranted takes a client out of its grant. A withdrawn grant ends with its last
// client.
func (f *fleet) forgetGranted(x *client) {
	if x.part == nil {
		return
	}
	g := x.part.grant
	if g.clients--; g.clients == 0 && g.gone {
		f.dropGrant(g)
	}
}

func (f *fleet) dropGrant(g *grant) {
	for _, p := range g.parts {
		p.of.parts = slices.DeleteFunc(p.of.parts, func(q *device) bool { return q == p })
	}
	f.grants = slices.DeleteFunc(f.grants, func(o *grant) bool { return o == g })
	f.relist()
}

// --- what is refused -----------------------------------------------------------

func (f *fleet) refusesAdmit(e Admit) error {
	switch {
	case e.Grant == "":
		return errors.New("the grant has no name")
	case f.findGrant(e.Grant) != nil:
		return fmt.Errorf("grant %s is known already", e.Grant)
	case len(f.grants) >= maxGrants:
		return fmt.Errorf("there are %d grants, as many as there may be", len(f.grants))
	case len(e.Shares) == 0 || len(e.Shares) > maxShares:
		return fmt.Errorf("a grant of %d devices: give 1 to %d", len(e.Shares), maxShares)
	case e.Limit < -1 || e.Limit > len(e.Shares):
		return fmt.Errorf("a limit of %d for a grant of %d devices: give 0 to %d, or -1 for all", e.Limit, len(e.Shares), len(e.Shares))
	}
	for i, s := range e.Shares {
		if slices.ContainsFunc(e.Shares[:i], func(o Share) bool { return o.Device == s.Device }) {
			return fmt.Errorf("device #%d is in the grant twice", s.Device)
		}
		if err := f.refusesShare(s, e.Limit != 0); err != nil {
			return err
		}
	}
	return nil
}

// exactly writes a number of bytes for people, in full where a few digits would not be the same number: it is a
// bound.
func exactly(bytes uint64) string {
	brief := units.BriefSize(bytes)
	if n, err := units.ParseSize(brief); err != nil || uint64(n) != bytes {
		return fmt.Sprintf("%d bytes", bytes)
	}
	return brief
}

// refusesShare says why a device has no such share to give. With now, the share must be
// available at present.
func (f *fleet) refusesShare(s Share, now bool) error {
	d := f.device(s.Device)
	switch {
	case d == nil:
		return noSuchDevice(s.Device)
	case d.removed:
		return d.gone()
	case model.CheckBeyond(s.Memory, s.Beyond) != nil:
		return fmt.Errorf("device %q: %w", d.Name, model.CheckBeyond(s.Memory, s.Beyond))
	case s.Memory > d.Memory:
		return fmt.Errorf("a share of %s of device %q: give at most %s", exactly(s.Memory), d.Name, exactly(d.Memory))
	case s.Memory != 0 && s.Memory <= d.ContextCost:
		return fmt.Errorf("a share of %s of device %q: give more than the %s that a context takes there, and at most %s", exactly(s.Memory), d.Name, exactly(d.ContextCost), exactly(d.Memory))
	case !now:
		return nil
	}
	granted := int64(d.Memory) - d.quota()
	switch {
	case s.Memory == 0 && granted > 0:
		return fmt.Errorf("device %q cannot be granted whole: %s of it are granted to others", d.Name, exactly(uint64(granted)))
	case int64(s.Memory) > d.quota() || d.exclusive():
		return fmt.Errorf("%s of device %q cannot be granted: %s of its %s are granted to others", exactly(s.Memory), d.Name, exactly(uint64(max(0, granted))), exactly(d.Memory))
	}
	return nil
}

func (f *fleet) refusesRestrict(e Restrict) error {
	g := f.findGrant(e.Grant)
	switch {
	case g == nil:
		return fmt.Errorf("there is no grant %s", e.Grant)
	case e.Limit < -1 || e.Limit > len(g.parts):
		return fmt.Errorf("a limit of %d for a grant of %d devices: give 0 to %d, or -1 for all", e.Limit, len(g.parts), len(g.parts))
	case g.limit != 0 || e.Limit == 0:
		return nil
	}
	for _, p := range g.parts { // it was suspended, and others may have been granted its shares
		share := Share{Device: p.id, Memory: p.Memory, Beyond: p.beyond, Reach: p.reach}
		if p.whole {
			share.Memory = 0
		}
		if err := f.refusesShare(share, true); err != nil {
			return err
		}
	}
	return nil
}

// --- who has to leave ----------------------------------------------------------

// enforceGrants tells clients to leave for which grants leave no room. A client that left
// may have kept bytes, so this runs after every event.
func (c *Core) enforceGrants() {
	if len(c.grants) == 0 {
		return
	}
	for _, g := range c.grants {
		c.enforceLimit(g)
	}
	for _, d := range c.devices {
		c.squeeze(d)
	}
}

// enforceLimit has a grant's clients leave surplus devices, the last in the grant's order
// first.
func (c *Core) enforceLimit(g *grant) {
	if g.limit < 0 || g.gone {
		return
	}
	surplus := g.inUse() - g.limit
	for _, p := range g.parts {
		if p.leaving() {
			surplus--
		}
	}
	for _, p := range slices.Backward(g.parts) {
		if surplus > 0 && p.inUse() && !p.leaving() {
			c.empty(p, ForLimit)
			surplus--
		}
		for _, x := range p.clients() {
			if g.limit == 0 && x.state != Assigned && !x.revoking {
				c.revoke(victim{client: x, why: ForLimit})
			}
		}
	}
}

// clients are all that have something of a part, or are away from it.
func (d *device) clients() (all []*client) {
	for _, x := range slices.Concat(d.slots, d.keepers, d.away) {
		if x != nil {
			all = append(all, x)
		}
	}
	return all
}

// leaving says whether all clients of a part were told to leave it.
func (d *device) leaving() bool {
	return d.inUse() && d.claims+d.called == 0 && !slices.ContainsFunc(d.clients(), func(x *client) bool { return x.state == Assigned && !x.revoking })
}

// empty tells all clients of a part to leave their devices, and takes back what they were promised.
func (c *Core) empty(p *device, why Reason) {
	c.closePart(p)
	for _, x := range p.clients() {
		if x.state == Assigned && !x.revoking {
			c.endGrow(x) // the Revoke is the answer
			c.revoke(victim{client: x, why: why})
		}
	}
}

// squeeze has clients leave a device to which no grant gives them a right: all who are there without one if
// it is granted whole, otherwise as many as grants leave no memory for, those first that have no grant.
func (c *Core) squeeze(d *device) {
	if len(d.parts) == 0 {
		return
	}
	all := d.exclusive()
	_, coming := d.coming(c.isComing)
	lack := -d.free() - coming
	for _, x := range d.keepersWithin() {
		if (all || lack > 0) && !x.revoking && d.yields(x, nil, c.isComing) > 0 {
			lack -= d.yields(x, nil, c.isComing)
			c.revoke(victim{client: x, why: ForGrant})
		}
	}
	for all || lack > 0 {
		x := pick(d.slots, lack, c.now, func(x *client) bool { return !x.revoking }, nil)
		if x == nil && lack > 0 {
			x = pick(d.within(), lack, c.now, func(x *client) bool { return !x.revoking && d.yields(x, nil, c.isComing) > 0 }, nil)
		}
		if x == nil {
			return
		}
		c.endGrow(x) // the Revoke is the answer
		lack -= d.yields(x, nil, c.isComing)
		c.revoke(victim{client: x, why: ForGrant})
	}
}

// takeTurns makes way for x, whose grant already uses as many devices as it may: idle
// clients of one of them leave or, once x has waited too long, busy ones.
func (c *Core) takeTurns(x *client) {
	g := x.part.grant
	if !g.active() || slices.ContainsFunc(g.parts, (*device).leaving) {
		return
	}
	may := c.mayLoseSlot
	if c.starved(x) {
		may = settled
	}
	for _, p := range g.parts {
		if !p.inUse() || p.claims+p.called > 0 || slices.ContainsFunc(p.clients(), func(v *client) bool { return v.state == Assigned && !may(v) }) {
			continue
		}
		c.empty(p, ForLimit)
		return
	}
}
