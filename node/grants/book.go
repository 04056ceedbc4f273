package grants

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"muster/device"
	"muster/model"
	"muster/node/ask"
	"muster/node/settings"
	"muster/node/vgpu"
	"muster/wire/grant"
)

// maxGrants is how many a node keeps at a time.
const maxGrants = 1024

// Granted is a grant as the node knows it. Only Limit ever changes, and only the loop reads
// and writes it; the rest may be read anywhere.
type Granted struct {
	ID      string              `json:"id"`
	User    string              `json:"user"`
	Hash    grant.Hash          `json:"hash"`
	Shown   grant.Hash          `json:"shown,omitzero"` // of the credential that programs of other nodes show
	Devices []ask.GrantedDevice `json:"devices"`
	Limit   int                 `json:"limit"`
	model.Turns
	Expires time.Time `json:"expires,omitzero"` // it ends then; the zero time: never
}

// Check refuses what cannot be a grant.
func (g *Granted) Check() error {
	for what, name := range map[string]string{"grant's id": g.ID, "user": g.User} {
		if err := grant.CheckName(what, name); err != nil {
			return err
		}
	}
	if n := len(g.Devices); n == 0 || n > settings.MaxDevices {
		return fmt.Errorf("a grant of %d devices: give 1 to %d", n, settings.MaxDevices)
	}
	if g.Hash == (grant.Hash{}) {
		return fmt.Errorf("the hash of the grant's credential is missing")
	}
	for i, d := range g.Devices {
		if err := checkDevice(d); err != nil {
			return fmt.Errorf("device %d: %w", i, err)
		}
	}
	return errors.Join(grant.CheckLimit(g.Limit, len(g.Devices)), g.Turns.Validate())
}

func checkDevice(d ask.GrantedDevice) error {
	switch {
	case d.Lender == "" && d.Place != 0:
		return errors.New("it has a place at a lender, and no lender")
	case d.Lender == "":
	case d.Memory != 0 || d.Beyond != 0:
		return errors.New("how much of a device of another node a grant has is that node's affair: leave it out")
	case d.Place < 0 || d.Place >= settings.MaxDevices:
		return fmt.Errorf("its place at the lender is %d: give 0 to %d", d.Place, settings.MaxDevices-1)
	default:
		if err := grant.CheckAddress(d.Lender); err != nil {
			return err
		}
	}
	return grant.CheckTerms(d.Memory, d.Reach, d.Beyond)
}

func (g *Granted) admit() vgpu.Admit {
	e := vgpu.Admit{Grant: vgpu.GrantID(g.ID), Limit: g.Limit}
	for _, d := range g.Devices {
		e.Shares = append(e.Shares, vgpu.Share{Device: vgpu.DeviceID(d.Device), Memory: d.Memory, Beyond: d.Beyond, Reach: d.Reach})
	}
	return e
}

// same says whether two grants are one, apart from their limits, and from the numbers that the node gave
// devices of others.
func (g *Granted) same(o *Granted) bool {
	return g.ID == o.ID && g.User == o.User && g.Hash == o.Hash && g.Shown == o.Shown && g.Turns == o.Turns && g.Expires.Equal(o.Expires) && slices.EqualFunc(g.Devices, o.Devices, sameDevice)
}

func sameDevice(a, b ask.GrantedDevice) bool {
	if a.Lender != "" && b.Lender != "" {
		a.Device = b.Device
	}
	return a == b
}

// Under is the grant that a client has, and which of the grant's devices it is on.
type Under struct {
	*Granted     // nil: none
	Share    int // the place of the client's device among the grant's
}

// Id is the grant's; "" without one.
func (u Under) Id() string {
	if u.Granted == nil {
		return ""
	}
	return u.ID
}

// Memory is how much of a device the client may use at most; 0 for all of it.
func (u Under) Memory() uint64 {
	if u.Granted == nil {
		return 0
	}
	return most(u.Devices[u.Share])
}

// most is how much of a device a share may have, with what is beyond it; 0: all.
func most(share ask.GrantedDevice) uint64 { return share.Memory + share.Beyond }

// Home is the number of the device that the client was granted; -1 without a grant.
func (u Under) Home() int {
	if u.Granted == nil {
		return -1
	}
	return u.Devices[u.Share].Device
}

// Reach is how far from home the client may be; without a grant it may be anywhere.
func (u Under) Reach() model.Reach {
	if u.Granted == nil {
		return model.ReachCluster
	}
	return u.Devices[u.Share].Reach
}

// ShareOf is how many bytes all clients of a grant may allocate on a device together. The
// share includes one context, so that a device's memory can be granted to the last byte.
func ShareOf(share ask.GrantedDevice, info device.Info) uint64 {
	all := info.Memory
	if share.Memory > 0 {
		all = min(all, most(share))
	}
	return all - min(all, info.ContextCost)
}

func Unknown(id string) error {
	return fmt.Errorf("there is no grant %q: muster grant list names those there are", settings.Printable(id))
}

// Dispatcher is told of grants. Tell returns an error if it refuses.
type Dispatcher interface {
	Tell(vgpu.Event) error
	Step(vgpu.Event)
}

// Node is what the node has to do with its grants.
type Node struct {
	Dispatcher
	Now  func() time.Time
	Save func()                          // writes all grants down for the next daemon
	End  func(g *Granted, reason string) // ends the clients under a grant
	// Add makes a device of another node one of this node's, for the grant alone, and Remove takes it away once
	// no client is there.
	Add    func(Lent) (number int, err error)
	Remove func(number int)
	Log    *slog.Logger
}

// Lent is a device of another node that a grant has, as it was found there.
type Lent struct {
	settings.Device
	Info device.Info
}

// Book is the grants that a node knows, by their names. Only the loop uses it.
type Book struct {
	node Node
	byID map[string]*Granted
}

func NewBook(node Node) *Book { return &Book{node, map[string]*Granted{}} }

// Of is the grant with a name; nil if there is none.
func (b *Book) Of(id string) *Granted { return b.byID[id] }

// Ids are the names of all grants, in order.
func (b *Book) Ids() []string { return slices.Sorted(maps.Keys(b.byID)) }

// Find is the grant with a credential; nil if there is none.
func (b *Book) Find(hash grant.Hash) *Granted {
	for _, g := range b.byID {
		if g.Hash == hash || g.Shown == hash && hash != (grant.Hash{}) {
			return g
		}
	}
	return nil
}

// Claimed is the grant that a claim of a user's means on this node: the same one, or the part of the same
// job that has devices here. nil if there is none.
func (b *Book) Claimed(c grant.Claim, user string) *Granted {
	if g := b.Find(c.Hash); g != nil && g.User == user {
		return g
	}
	for _, id := range b.Ids() {
		if g := b.byID[id]; g.User == user && c.SameJob(id) {
			return g
		}
	}
	return nil
}

// Ended says why a client cannot be under its grant; "" if it can.
func (b *Book) Ended(u Under) string {
	if u.Granted == nil || b.byID[u.ID] == u.Granted {
		return ""
	}
	return fmt.Sprintf("grant %s has ended", u.ID)
}

// Admit makes a grant known, unless the dispatcher refuses it. If it is known already and has not
// changed, only its limit is set: the admitting side may not know whether an earlier attempt succeeded. lent
// are those of its devices that are other nodes', in order.
func (b *Book) Admit(g *Granted, lent ...Lent) error {
	if err := g.Check(); err != nil {
		return err
	}
	if known := b.byID[g.ID]; known != nil {
		if !known.same(g) {
			return fmt.Errorf("grant %s is known already, and was another one: revoke it first", g.ID)
		}
		return b.Limit(g.ID, g.Limit)
	}
	switch {
	case b.Find(g.Hash) != nil:
		return fmt.Errorf("grant %s has the credential of another grant: each needs its own", g.ID)
	case len(b.byID) >= maxGrants:
		return fmt.Errorf("the node has %d grants, as many as it may: revoke some first", len(b.byID))
	case !g.Expires.IsZero() && !g.Expires.After(b.node.Now()):
		return fmt.Errorf("grant %s has expired already, at %s", g.ID, g.Expires.Format(time.RFC3339))
	}
	err := b.add(g, lent)
	if err == nil {
		err = b.enter(g)
	}
	if err != nil {
		b.remove(g)
		return err
	}
	b.node.Save()
	b.node.Log.Info("a grant was admitted", "grant", g.ID, "user", g.User, "devices", len(g.Devices), "limit", g.Limit)
	return nil
}

// unadded is the number of a device that the node does not have yet.
const unadded = -1

// add gives the node the devices of others that a grant has.
func (b *Book) add(g *Granted, lent []Lent) error {
	for i := range g.Devices {
		if g.Devices[i].Lender != "" {
			g.Devices[i].Device = unadded
		}
	}
	for i := range g.Devices {
		d := &g.Devices[i]
		if d.Lender == "" {
			continue
		}
		if len(lent) == 0 {
			return fmt.Errorf("device %d is another node's, and was not looked at", i)
		}
		number, err := b.node.Add(lent[0])
		if err != nil {
			return fmt.Errorf("device %d, of the node at %s: %w", i, d.Lender, err)
		}
		d.Device, lent = number, lent[1:]
	}
	return nil
}

// remove takes away what add gave.
func (b *Book) remove(g *Granted) {
	for _, d := range g.Devices {
		if d.Lender != "" && d.Device != unadded {
			b.node.Remove(d.Device)
		}
	}
}

// enter makes a grant known, unless the dispatcher refuses it.
func (b *Book) enter(g *Granted) error {
	if err := b.node.Tell(g.admit()); err != nil {
		return err
	}
	b.byID[g.ID] = g
	return nil
}

// Inherit makes the grants of an earlier daemon known. If one cannot be kept, the clients under it end.
func (b *Book) Inherit(left []Granted) {
	for i := range left {
		g := &left[i]
		err := g.Check()
		if err == nil {
			err = b.enter(g)
		}
		if err != nil {
			b.node.Log.Error("a grant of an earlier daemon cannot be kept", "grant", g.ID, "error", err)
			b.remove(g)
		}
	}
}

// Limit says how many of its devices a grant may use at a time.
func (b *Book) Limit(id string, limit int) error {
	g := b.byID[id]
	if g == nil {
		return Unknown(id)
	}
	if g.Limit == limit {
		return nil
	}
	if err := grant.CheckLimit(limit, len(g.Devices)); err != nil {
		return err
	}
	if err := b.node.Tell(vgpu.Restrict{Grant: vgpu.GrantID(id), Limit: limit}); err != nil {
		return err
	}
	g.Limit = limit
	b.node.Save()
	b.node.Log.Info("a grant has another limit", "grant", id, "limit", limit)
	return nil
}

// Revoke ends a grant, and its clients.
func (b *Book) Revoke(id, reason string) error {
	g := b.byID[id]
	if g == nil {
		return Unknown(id)
	}
	delete(b.byID, id)
	b.node.Save()
	b.node.Step(vgpu.Withdraw{Grant: vgpu.GrantID(id)})
	b.node.Log.Info("a grant has ended", "grant", id, "user", g.User, "reason", reason)
	b.node.End(g, reason)
	b.remove(g)
	return nil
}

// Next is when the first grant ends by itself, if any does.
func (b *Book) Next() (at time.Time, any bool) {
	for _, g := range b.byID {
		if !g.Expires.IsZero() && (!any || g.Expires.Before(at)) {
			at, any = g.Expires, true
		}
	}
	return at, any
}

// Expire ends the grants whose time is over.
func (b *Book) Expire() {
	now := b.node.Now()
	if at, any := b.Next(); !any || at.After(now) {
		return
	}
	for _, id := range b.Ids() {
		if g := b.byID[id]; g != nil && !g.Expires.IsZero() && !g.Expires.After(now) {
			_ = b.Revoke(id, fmt.Sprintf("the time of grant %s is over", id))
		}
	}
}
