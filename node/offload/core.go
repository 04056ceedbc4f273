package offload

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Core is what a node knows of others, as a value that events change.
// Its many methods are what it is told, one each, and the reasons of one decision, one each.
type Core struct {
	cfg   Config
	now   Time
	dice  *rand.Rand
	local Local

	peers    []*peer // by name
	borrowed []*loan // as they came
	lent     []*lent // as they were given

	pendingSince Time // since when Above clients or more that could run elsewhere have waited; never if fewer do
	waitingSince Time // since when clients of the node's own have waited; never if none does
	waitedAt     Time // when one last waited
	futile       [reasons]backoff
}

// reason is why a ticket is borrowed.
type reason uint8

const (
	toServe   reason = iota // clients that wait
	toWiden                 // clients that wish for a further device
	toQuicken               // clients that would run faster
	reasons
)

// never is a time that is never reached.
const never Time = math.MaxInt64

// peer is another node that may lend.
type peer struct {
	id      PeerID
	load    Load
	heard   Time     // when it reported load; never if it has not
	want    Question // that the next or present question asks for; no slots: nothing
	why     reason   // of want
	talking bool     // a question is under way
	refusal backoff
	unrest  backoff // it wanted devices back soon that clients ran faster on
	self    bool    // it is this node
}

// loan is a ticket that this node holds.
type loan struct {
	Ticket
	peer *peer
	Clients
	why     reason
	stay    Time // how long clients must be there to have gained from it
	since   Time // when the first client came
	empty   Time // when the last client left, or the ticket came
	used    bool // it has had a client
	leaving bool // its device is being drained
}

// lent is a ticket that this node gave.
type lent struct {
	Ticket
	to       NodeID
	heard    Time // when its borrower last named it, or was given it
	loose    bool // it lasts only until the device is used or granted here
	recalled bool
}

// backoff is how long something that failed is not tried again. The time doubles with each failure
// in a row.
type backoff struct {
	until Time
	row   int
}

func (b *backoff) failed(now, first, longest Time) {
	wait := longest
	if b.row < 30 && first<<b.row < longest {
		wait = first << b.row
	}
	b.row++
	b.until = now + wait
}

// New makes the core of a node that knows no peers yet.
func New(cfg Config) (*Core, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	return &Core{cfg: cfg, dice: rand.New(rand.NewPCG(cfg.Seed, 20)), pendingSince: never, waitingSince: never, waitedAt: -cfg.Calm}, nil
}

// Configure changes how many clients must wait, and how many free slots are not lent. What is borrowed and lent
// stays so.
func (c *Core) Configure(now Time, above, keep int) []Effect {
	c.advance(now)
	c.cfg.Above, c.cfg.Keep = orDefault(max(above, 0), DefaultAbove), max(keep, 0)
	c.pendingSince = since(c.pendingSince, c.now, c.local.Pending >= c.cfg.Above)
	return c.decide()
}

// advance moves the time forward, and never back.
func (c *Core) advance(now Time) { c.now = max(c.now, now) }

// Peers says which nodes there are to borrow from. A peer that is no longer named is forgotten when
// the node holds none of its tickets; until then it is not asked for new ones.
func (c *Core) Peers(now Time, ids []PeerID) []Effect {
	c.advance(now)
	known := c.peers
	c.peers = nil
	for _, l := range c.borrowed { // peers that are no longer named live on in their tickets, and may be named again
		known = append(known, l.peer)
	}
	for _, id := range slices.Compact(slices.Sorted(slices.Values(ids))) {
		i := slices.IndexFunc(known, func(p *peer) bool { return p.id == id })
		if i < 0 {
			c.peers = append(c.peers, &peer{id: id, heard: never})
			continue
		}
		c.peers = append(c.peers, known[i])
	}
	return c.decide()
}

// Holds says whether the node holds a ticket of a peer.
func (c *Core) Holds(id PeerID) bool {
	return slices.ContainsFunc(c.borrowed, func(l *loan) bool { return l.peer.id == id })
}

// Local says how the node is now; clients says how many use the device of each ticket.
func (c *Core) Local(now Time, is Local, clients map[TicketID]Clients) []Effect {
	c.advance(now)
	c.local = is
	for _, l := range c.borrowed {
		n := clients[l.ID]
		if n.There > 0 && !l.used {
			l.used, l.since = true, c.now
			c.futile[l.why], l.peer.refusal = backoff{}, backoff{}
		}
		if n == (Clients{}) && l.Clients != n {
			l.empty = c.now
		}
		l.Clients = n
	}
	if is.Waiting > 0 {
		c.waitedAt = c.now
	}
	c.pendingSince = since(c.pendingSince, c.now, is.Pending >= c.cfg.Above)
	c.waitingSince = since(c.waitingSince, c.now, is.Waiting > 0)
	return c.decide()
}

// since is from when on something has held without interruption.
func since(before, now Time, holds bool) Time {
	switch {
	case !holds:
		return never
	case before == never:
		return now
	}
	return before
}

// Says is what to ask a peer now. The driver reports the outcome with Answered or Unreached, and
// must not ask the peer again before that.
func (c *Core) Says(id PeerID) Question {
	p := c.peerOf(id)
	if p == nil {
		return Question{}
	}
	p.talking = true
	q := p.want
	q.Holds = c.held(p)
	return q
}

// held lists the tickets of a lender that this node has not given up.
func (c *Core) held(p *peer) (ids []TicketID) {
	for _, l := range c.borrowed {
		if l.peer == p {
			ids = append(ids, l.ID)
		}
	}
	return ids
}

// Answered takes a peer's answer.
func (c *Core) Answered(now Time, id PeerID, a Answer) []Effect {
	c.advance(now)
	p := c.peerOf(id)
	if p == nil {
		return nil
	}
	asked := p.want
	p.want, p.talking, p.load, p.heard = Question{}, false, a.Load.bounded(), c.now
	var out []Effect
	switch {
	case asked.Slots == 0:
	case !a.Ticket.credible(asked) || c.loanOf(a.Ticket.ID) != nil:
		p.refusal.failed(c.now, c.cfg.Retry, c.cfg.Longest)
	default:
		c.borrowed = append(c.borrowed, &loan{Ticket: a.Ticket, peer: p, empty: c.now, why: p.why, stay: c.stay(a.Ticket)})
		out = append(out, Use{Peer: id, Ticket: a.Ticket})
	}
	for _, l := range c.borrowed {
		if l.peer == p && !l.leaving && slices.Contains(a.Recalls, l.ID) {
			c.unsettled(l)
			out = c.leave(out, l, "the lender needs it")
		}
	}
	return append(out, c.decide()...)
}

// Unreached says that a peer did not answer, or not as a peer does.
func (c *Core) Unreached(now Time, id PeerID) []Effect {
	c.advance(now)
	p := c.peerOf(id)
	if p == nil {
		return nil
	}
	p.want, p.talking = Question{}, false
	p.refusal.failed(c.now, c.cfg.Retry, c.cfg.Longest)
	return c.decide()
}

// IsSelf says that a peer is this node: lists of peers may be the same on all nodes.
func (c *Core) IsSelf(id PeerID) {
	if p := c.peerOf(id); p != nil {
		p.self, p.want, p.talking = true, Question{}, false
	}
}

// Failed says that the device of a ticket could not be had, or was lost. The ticket is given up.
func (c *Core) Failed(now Time, id TicketID) []Effect {
	c.advance(now)
	if l := c.loanOf(id); l != nil {
		l.peer.refusal.failed(c.now, c.cfg.Retry, c.cfg.Longest)
		l.peer.load.Free = 0
		c.drop(l)
	}
	return c.decide()
}

// Left says that the device of a ticket that was to be left is empty. The ticket is given up.
func (c *Core) Left(now Time, id TicketID) []Effect {
	c.advance(now)
	if l := c.loanOf(id); l != nil {
		c.drop(l)
		return append(c.decide(), Ask{Peer: l.peer.id}) // so that it can be lent to another
	}
	return c.decide()
}

// Tick says that time has passed.
func (c *Core) Tick(now Time) []Effect {
	c.advance(now)
	return c.decide()
}

// Asked answers a borrower. If the borrower gets a ticket, it has the ID that the driver drew.
// Tickets that the question does not name are free first: at most one question is under way, so the
// borrower has given them up or never got them.
func (c *Core) Asked(now Time, from NodeID, q Question, id TicketID) (Answer, []Effect) {
	c.advance(now)
	var a Answer
	c.lent = slices.DeleteFunc(c.lent, func(l *lent) bool { return l.to == from && !slices.Contains(q.Holds, l.ID) })
	for _, held := range q.Holds {
		l := c.lentTo(from, held)
		if l == nil {
			a.Recalls = append(a.Recalls, held)
			continue
		}
		if l.heard = c.now; l.recalled {
			a.Recalls = append(a.Recalls, held)
		}
	}
	effects := c.decide()
	want := min(q.Slots, c.lendable(), c.cfg.Most-c.lentSlots(from))
	if q.Apart {
		want = min(want, 1, c.idle())
	}
	if want > 0 && id != "" && q.Speed <= c.unused() {
		a.Ticket = c.ticket(id, want, q.Apart)
		c.lent = append(c.lent, &lent{Ticket: a.Ticket, to: from, heard: c.now, loose: q.Speed > 0})
	}
	a.Load = c.Load()
	return a, effects
}

// Withdraw ends a ticket that the node gave: the borrower hears of it with the next answer.
func (c *Core) Withdraw(to NodeID, id TicketID) {
	c.lent = slices.DeleteFunc(c.lent, func(l *lent) bool { return l.to == to && l.ID == id })
}

// ticket takes slots of the device where a newcomer is served best. It takes only the device's
// proportional part of the wanted slots, so that the next question finds another device. With
// apart, only unused devices count.
func (c *Core) ticket(id TicketID, want int, apart bool) Ticket {
	var best Device
	free, all := 0, 0
	for _, d := range c.local.Devices {
		n := c.freeOf(d)
		all += n
		if apart && !c.isUnused(d) {
			continue
		}
		if n > 0 && (free == 0 || c.worth(d) > c.worth(best)) {
			best, free = d, n
		}
	}
	share := (want*free + all - 1) / all
	return Ticket{ID: id, Device: best.Number, Slots: min(want, free, share), Speed: best.Speed / float64(1+best.Used)}
}

// worth is the part of a device's speed that a newcomer gets, beside the clients that are there or
// may come with a ticket.
func (c *Core) worth(d Device) float64 {
	return d.Speed / float64(1+d.Used+max(d.Guests, c.lentOf(d)))
}

// freeOf is how many slots of a device are neither used nor lent.
func (c *Core) freeOf(d Device) int {
	return max(0, d.Slots-d.Used-max(d.Guests, c.lentOf(d)))
}

// lentOf is how many slots of a device are lent.
func (c *Core) lentOf(d Device) (slots int) {
	for _, l := range c.lent {
		if l.Device == d.Number {
			slots += l.Slots
		}
	}
	return slots
}

// Load is what the node tells others of itself.
func (c *Core) Load() Load {
	return Load{Slots: c.local.slots(), Free: c.lendable(), Waiting: c.local.Waiting, Idle: c.idle(), Fastest: c.fastest(), Unused: c.unused()}
}

// bounded cuts what a peer claims, so that nothing overflows.
func (l Load) bounded() Load {
	const most = 1 << 20
	count := func(n int) int { return min(max(n, 0), most) }
	speed := func(v float64) float64 {
		if v > 0 && v <= maxSpeed {
			return v
		}
		return 0
	}
	return Load{count(l.Slots), count(l.Free), count(l.Waiting), count(l.Idle), speed(l.Fastest), speed(l.Unused)}
}

// Next is when the core needs a Tick, if no other event comes before.
func (c *Core) Next() (Time, bool) {
	next := never
	sooner := func(at Time) {
		if at > c.now {
			next = min(next, at)
		}
	}
	if c.waitingSince != never {
		sooner(c.waitingSince + c.cfg.Patience)
	}
	if c.pendingSince != never {
		sooner(c.pendingSince + c.cfg.Patience)
	}
	wants := [reasons]bool{toServe: c.pendingSince != never, toWiden: c.local.Wishes > 0, toQuicken: len(c.local.Gains) > 0}
	for why, does := range wants {
		if does {
			sooner(c.futile[why].until)
		}
	}
	if wants != ([reasons]bool{}) {
		for _, p := range c.peers {
			sooner(p.refusal.until)
			sooner(p.unrest.until)
		}
	}
	for _, l := range c.borrowed {
		if l.Clients == (Clients{}) && !l.leaving {
			sooner(l.empty + c.linger(l))
		}
	}
	for _, l := range c.lent {
		sooner(l.heard + c.cfg.Term)
	}
	return next, next != never
}

// --- decisions -----------------------------------------------------------------

// decide does whatever the present state calls for.
func (c *Core) decide() []Effect {
	c.expire()
	c.recall()
	return c.borrow(c.giveUp(nil))
}

// expire frees the tickets of borrowers that are silent.
func (c *Core) expire() {
	c.lent = slices.DeleteFunc(c.lent, func(l *lent) bool { return c.now-l.heard >= c.cfg.Term })
}

// recall marks tickets that the node wants back: those of devices that it needs itself, and for its own
// waiting clients the last given first.
func (c *Core) recall() {
	for _, l := range c.lent {
		l.recalled = l.recalled || c.needs(l)
	}
	if c.now-c.waitingSince < c.cfg.Patience && !c.local.Closed {
		return
	}
	missing := c.local.Waiting
	if c.local.Closed {
		missing = math.MaxInt
	}
	for _, l := range slices.Backward(c.lent) {
		if missing <= 0 {
			return
		}
		l.recalled = true
		missing -= l.Slots
	}
}

// waitLong says whether enough clients have waited long enough to borrow slots for them.
func (c *Core) waitLong() bool {
	return c.pendingSince != never && (c.now-c.pendingSince >= c.cfg.Patience || len(c.local.Devices) == 0)
}

// giveUp leaves tickets that are of no use any more.
func (c *Core) giveUp(out []Effect) []Effect {
	for _, l := range c.borrowed {
		if l.Clients != (Clients{}) || l.leaving || c.now-l.empty < c.linger(l) && !c.local.Closed || c.needed(l) {
			continue
		}
		if !l.used {
			c.futile[l.why].failed(c.now, c.cfg.Retry, c.cfg.Longest)
			l.peer.refusal.failed(c.now, c.cfg.Retry, c.cfg.Longest)
		}
		out = c.leave(out, l, "no program uses it")
	}
	return out
}

// needed says whether a ticket is the only place where the clients of a node without devices could
// run.
func (c *Core) needed(l *loan) bool {
	if len(c.local.Devices) > 0 || c.local.Clients == 0 || c.local.Closed {
		return false
	}
	return !slices.ContainsFunc(c.borrowed, func(o *loan) bool { return o != l && !o.leaving })
}

func (c *Core) leave(out []Effect, l *loan, why string) []Effect {
	if l.leaving {
		return out
	}
	l.leaving = true
	return append(out, Leave{Ticket: l.ID, Why: why})
}

// linger is how long a ticket without a client is kept. One that clients went to only to run faster is
// soon given to others.
func (c *Core) linger(l *loan) Time {
	if l.why == toQuicken && l.used {
		return c.cfg.Linger / 4
	}
	return c.cfg.Linger
}

// stay is how long clients must be on the device of a ticket for their moves to pay.
func (c *Core) stay(t Ticket) (stay Time) {
	for _, g := range c.local.Gains {
		if g.Speed <= t.Speed {
			stay = max(stay, g.Stay)
		}
	}
	return stay
}

// unsettled notes that a lender wants a device back on which clients were to run faster. If that was too
// soon for the moves there and home to pay, the lender is left alone for a while.
func (c *Core) unsettled(l *loan) {
	switch {
	case l.why != toQuicken:
	case !l.used || c.now-l.since < l.stay:
		l.peer.unrest.failed(c.now, c.cfg.Retry, c.cfg.Longest)
	default:
		l.peer.unrest = backoff{}
	}
}

// borrow asks a peer for slots if clients wait for which there are none, or else for one slot of an
// unused device if a client would use one more, or would run faster there.
func (c *Core) borrow(out []Effect) []Effect {
	if !c.mayBorrow() || c.asks() {
		return out
	}
	q, why := Question{Slots: c.wanted()}, toServe
	if q.Slots <= 0 {
		q, why = Question{Slots: min(1, c.wished()), Apart: true}, toWiden
	}
	if q.Slots <= 0 && c.quickens() {
		q, why = Question{Slots: 1, Apart: true, Speed: c.local.Gains[0].Speed}, toQuicken
	}
	if q.Slots <= 0 {
		return out
	}
	p := c.choose(q)
	if p == nil {
		return out
	}
	q.Slots = min(q.Slots, p.load.Free)
	p.want, p.why = q, why
	return append(out, Ask{Peer: p.id})
}

// mayBorrow says whether the node borrows at all at present.
func (c *Core) mayBorrow() bool { return c.cfg.Borrow && !c.local.Closed && len(c.lent) == 0 }

// wanted is how many slots to ask for now, for clients that wait.
func (c *Core) wanted() int {
	if !c.waitLong() || c.now < c.futile[toServe].until {
		return 0
	}
	spare, all := c.spare()
	return min(c.local.Pending-spare, c.cfg.Most-all)
}

// wished is how many further devices to ask for now.
func (c *Core) wished() int {
	if c.now < c.futile[toWiden].until {
		return 0
	}
	spare, all := c.spare()
	return min(c.local.Wishes-spare, c.cfg.Most-all)
}

// quickens says whether to ask now for a device on which a client would run faster: one at a time, so none while
// a borrowed one is unused on which it would.
func (c *Core) quickens() bool {
	if len(c.local.Gains) == 0 || c.now < c.futile[toQuicken].until {
		return false
	}
	_, all := c.spare()
	return all < c.cfg.Most && !slices.ContainsFunc(c.borrowed, func(l *loan) bool {
		return !l.leaving && l.Clients == Clients{} && (!l.used || l.Speed >= c.local.Gains[0].Speed)
	})
}

// Keen says whether a peer is to be asked often: clients run faster on a device that it may need at any
// moment, or would run faster on one if it were unused.
func (c *Core) Keen(id PeerID) bool {
	if slices.ContainsFunc(c.borrowed, func(l *loan) bool { return l.peer.id == id && l.why == toQuicken }) {
		return true
	}
	p := c.peerOf(id)
	return p != nil && !p.self && c.now >= p.refusal.until && c.now >= p.unrest.until && c.mayBorrow() && c.quickens() && p.load.Fastest >= c.local.Gains[0].Speed
}

// spare is how many borrowed slots have no client, and how many are borrowed in all.
func (c *Core) spare() (spare, all int) {
	for _, l := range c.borrowed {
		all += l.Slots
		if !l.leaving {
			spare += max(0, l.Slots-l.There)
		}
	}
	return spare, all
}

// asks says whether a question for slots is under way.
func (c *Core) asks() bool {
	return slices.ContainsFunc(c.peers, func(p *peer) bool { return p.want.Slots > 0 })
}

// choose draws two of the peers that may have what is asked for, and takes the one that is expected to
// have more. If clients are to run faster, only those with the fastest unused devices are drawn.
func (c *Core) choose(q Question) *peer {
	var may []*peer
	least := q.Speed
	for _, p := range c.peers {
		switch {
		case c.expected(p, q.Apart) == 0 || p.talking || c.now < p.refusal.until:
		case q.Speed > 0 && (p.load.Unused < least || c.now < p.unrest.until):
		case q.Speed > 0 && p.load.Unused > least:
			least, may = p.load.Unused, append(may[:0], p)
		default:
			may = append(may, p)
		}
	}
	switch len(may) {
	case 0:
		return nil
	case 1:
		return may[0]
	}
	i := c.dice.IntN(len(may))
	j := c.dice.IntN(len(may) - 1)
	if j >= i {
		j++
	}
	if c.expected(may[j], q.Apart) > c.expected(may[i], q.Apart) {
		i = j
	}
	return may[i]
}

// expected is how many slots, or unused devices, a peer is expected to lend: what it claimed,
// discounted by the age of the claim.
func (c *Core) expected(p *peer, apart bool) float64 {
	if p.self || p.heard == never || c.now-p.heard > c.cfg.Fresh {
		return 0
	}
	said := p.load.Free
	if apart {
		said = min(said, p.load.Idle)
	}
	return float64(said) * math.Exp2(-float64(c.now-p.heard)/float64(c.cfg.Half))
}

// lendable is how many slots the node would lend now.
func (c *Core) lendable() int {
	if !c.cfg.Lend || c.local.Closed || c.local.Waiting > 0 || c.now-c.waitedAt < c.cfg.Calm || len(c.borrowed) > 0 || c.asks() {
		return 0
	}
	free := 0
	for _, d := range c.local.Devices {
		free += c.freeOf(d)
	}
	return max(0, free-c.cfg.Keep)
}

// idle is of how many unused devices the node would lend a slot.
func (c *Core) idle() (n int) {
	for _, d := range c.local.Devices {
		if c.isUnused(d) {
			n++
		}
	}
	return min(n, c.lendable())
}

// fastest is the speed of the node's fastest device, if it ever lends.
func (c *Core) fastest() (speed float64) {
	for _, d := range c.local.Devices {
		if c.cfg.Lend && !c.local.Closed {
			speed = max(speed, d.Speed)
		}
	}
	return speed
}

// unused is the speed of the fastest unused device of which the node would lend a slot.
func (c *Core) unused() (speed float64) {
	if c.idle() == 0 {
		return 0
	}
	for _, d := range c.local.Devices {
		if c.isUnused(d) {
			speed = max(speed, d.Speed)
		}
	}
	return speed
}

// isUnused says whether a device is used by nobody, lent to nobody and granted to nobody.
func (c *Core) isUnused(d Device) bool { return d.Slots > 0 && !d.Granted && c.freeOf(d) == d.Slots }

// needs says whether the node needs the device of a ticket that it gave, or has it no more.
func (c *Core) needs(l *lent) bool {
	return !slices.ContainsFunc(c.local.Devices, func(d Device) bool {
		return d.Number == l.Device && d.Slots > 0 && (!l.loose || d.Used == 0 && !d.Granted)
	})
}

// lentSlots is how many slots were lent to a borrower.
func (c *Core) lentSlots(to NodeID) (slots int) {
	for _, l := range c.lent {
		if l.to == to {
			slots += l.Slots
		}
	}
	return slots
}

// --- finding -------------------------------------------------------------------

func (c *Core) peerOf(id PeerID) *peer {
	for _, p := range c.peers {
		if p.id == id {
			return p
		}
	}
	for _, l := range c.borrowed { // it is no longer listed, but the node holds its ticket
		if l.peer.id == id {
			return l.peer
		}
	}
	return nil
}

func (c *Core) loanOf(id TicketID) *loan {
	for _, l := range c.borrowed {
		if l.ID == id {
			return l
		}
	}
	return nil
}

func (c *Core) lentTo(to NodeID, id TicketID) *lent {
	for _, l := range c.lent {
		if l.to == to && l.ID == id {
			return l
		}
	}
	return nil
}

// drop forgets a ticket. The next question does not name it, which tells its lender.
func (c *Core) drop(l *loan) {
	c.borrowed = slices.DeleteFunc(c.borrowed, func(o *loan) bool { return o == l })
}
