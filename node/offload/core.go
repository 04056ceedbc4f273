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
	futile       backoff
	vain         backoff // like futile, for wishes
}

// never is a time that is never reached.
const never Time = math.MaxInt64

// peer is another node that may lend.
type peer struct {
	id      PeerID
	load    Load
	heard   Time // when it reported load; never if it has not
	asking  int  // slots that the next or present question wants; 0 for none
	apart   bool // of an unused device
	talking bool // a question is under way
	refusal backoff
	self    bool // it is this node
}

// loan is a ticket that this node holds.
type loan struct {
	Ticket
	peer    *peer
	clients int  // there
	empty   Time // when the last client left, or the ticket came
	used    bool // it has had a client
	apart   bool // it was borrowed for a wish
	leaving bool // its device is being drained
}

// lent is a ticket that this node gave.
type lent struct {
	Ticket
	to       NodeID
	heard    Time // when its borrower last named it, or was given it
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

// Local says how the node is now; clients says how many are on the device of each ticket.
func (c *Core) Local(now Time, is Local, clients map[TicketID]int) []Effect {
	c.advance(now)
	c.local = is
	for _, l := range c.borrowed {
		n := clients[l.ID]
		if n > 0 && !l.used {
			l.used = true
			*c.futility(l), l.peer.refusal = backoff{}, backoff{}
		}
		if n == 0 && l.clients > 0 {
			l.empty = c.now
		}
		l.clients = n
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
	return Question{Slots: p.asking, Apart: p.apart, Holds: c.held(p)}
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
	asked, apart := p.asking, p.apart
	p.asking, p.apart, p.talking, p.load, p.heard = 0, false, false, a.Load.bounded(), c.now
	var out []Effect
	switch {
	case asked == 0:
	case !a.Ticket.credible(asked) || c.loanOf(a.Ticket.ID) != nil:
		p.refusal.failed(c.now, c.cfg.Retry, c.cfg.Longest)
	default:
		c.borrowed = append(c.borrowed, &loan{Ticket: a.Ticket, peer: p, empty: c.now, apart: apart})
		out = append(out, Use{Peer: id, Ticket: a.Ticket})
	}
	for _, l := range c.borrowed {
		if l.peer == p && slices.Contains(a.Recalls, l.ID) {
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
	p.asking, p.apart, p.talking = 0, false, false
	p.refusal.failed(c.now, c.cfg.Retry, c.cfg.Longest)
	return c.decide()
}

// IsSelf says that a peer is this node: lists of peers may be the same on all nodes.
func (c *Core) IsSelf(id PeerID) {
	if p := c.peerOf(id); p != nil {
		p.self, p.asking, p.apart, p.talking = true, 0, false, false
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
	if want > 0 && id != "" {
		a.Ticket = c.ticket(id, want, q.Apart)
		c.lent = append(c.lent, &lent{Ticket: a.Ticket, to: from, heard: c.now})
	}
	a.Load = c.Load()
	return a, effects
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
		if apart && n < d.Slots {
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
	return Load{Slots: c.local.slots(), Free: c.lendable(), Waiting: c.local.Waiting, Idle: c.idle()}
}

// bounded cuts what a peer claims, so that nothing overflows.
func (l Load) bounded() Load {
	const most = 1 << 20
	return Load{Slots: min(max(l.Slots, 0), most), Free: min(max(l.Free, 0), most), Waiting: min(max(l.Waiting, 0), most), Idle: min(max(l.Idle, 0), most)}
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
		sooner(c.futile.until)
		for _, p := range c.peers {
			sooner(p.refusal.until)
		}
	}
	if c.local.Wishes > 0 {
		sooner(c.vain.until)
		for _, p := range c.peers {
			sooner(p.refusal.until)
		}
	}
	for _, l := range c.borrowed {
		if l.clients == 0 && !l.leaving {
			sooner(l.empty + c.cfg.Linger)
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

// recall marks tickets that the node wants back for its own waiting clients, the last given first.
func (c *Core) recall() {
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
		if l.clients > 0 || l.leaving || c.now-l.empty < c.cfg.Linger && !c.local.Closed || c.needed(l) {
			continue
		}
		if !l.used {
			c.futility(l).failed(c.now, c.cfg.Retry, c.cfg.Longest)
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

// futility is the backoff for the kind of ticket that this one is.
func (c *Core) futility(l *loan) *backoff {
	if l.apart {
		return &c.vain
	}
	return &c.futile
}

// borrow asks a peer for slots if clients wait for which there are none, or else for one slot of an
// unused device if a client would use one more.
func (c *Core) borrow(out []Effect) []Effect {
	if !c.cfg.Borrow || c.local.Closed || len(c.lent) > 0 || c.asks() {
		return out
	}
	want, apart := c.wanted(), false
	if want <= 0 {
		want, apart = min(1, c.wished()), true
	}
	if want <= 0 {
		return out
	}
	p := c.choose(apart)
	if p == nil {
		return out
	}
	p.asking, p.apart = min(want, p.load.Free), apart
	return append(out, Ask{Peer: p.id})
}

// wanted is how many slots to ask for now, for clients that wait.
func (c *Core) wanted() int {
	if !c.waitLong() || c.now < c.futile.until {
		return 0
	}
	spare, all := c.spare()
	return min(c.local.Pending-spare, c.cfg.Most-all)
}

// wished is how many further devices to ask for now.
func (c *Core) wished() int {
	if c.now < c.vain.until {
		return 0
	}
	spare, all := c.spare()
	return min(c.local.Wishes-spare, c.cfg.Most-all)
}

// spare is how many borrowed slots have no client, and how many are borrowed in all.
func (c *Core) spare() (spare, all int) {
	for _, l := range c.borrowed {
		all += l.Slots
		if !l.leaving {
			spare += max(0, l.Slots-l.clients)
		}
	}
	return spare, all
}

// asks says whether a question for slots is under way.
func (c *Core) asks() bool {
	return slices.ContainsFunc(c.peers, func(p *peer) bool { return p.asking > 0 })
}

// choose draws two of the peers that may have slots, or unused devices, and takes the one that is
// expected to have more.
func (c *Core) choose(apart bool) *peer {
	var may []*peer
	for _, p := range c.peers {
		if c.expected(p, apart) > 0 && !p.talking && c.now >= p.refusal.until {
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
	if c.expected(may[j], apart) > c.expected(may[i], apart) {
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
		if d.Slots > 0 && c.freeOf(d) == d.Slots {
			n++
		}
	}
	return min(n, c.lendable())
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
