package offload

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// world is some nodes whose messages take time, get lost, and are of an earlier state when they arrive. A
// node's programs take its own slots first, then those that it borrowed; the rest wait.
type world struct {
	t     *testing.T
	dice  *rand.Rand
	now   Time
	nodes []*member
	mail  []letter // under way
	drawn int      // ticket IDs

	delay Time    // the most that a message takes
	loss  float64 // of messages

	names    []PeerID
	guestsAt [][2]int // of each node, by device

	asks, uses, leaves int
	lastChange         Time
}

type member struct {
	id       int
	core     *Core
	slots    int
	programs int // of its own
	stuck    int // of these, those that cannot run elsewhere
	wishes   int // devices more that they would use
	gains    int // devices on which they would run faster
	polls    Time
	talking  map[PeerID]bool
	loans    map[TicketID]*placed
	down     bool
}

// placed is a borrowed device, with the programs there.
type placed struct {
	lender   int
	device   int
	slots    int
	programs int
	leaving  bool
}

type letter struct {
	at      Time
	deliver func()
}

// name of a node; they sort as their numbers do.
func name(i int) PeerID { return PeerID(fmt.Sprintf("node%02d", i)) }

func newWorld(t *testing.T, seed uint64, slots []int) *world {
	w := &world{t: t, guestsAt: make([][2]int, len(slots)), dice: rand.New(rand.NewPCG(seed, 1)), delay: 200 * time.Millisecond}
	for i, n := range slots {
		m := &member{id: i, slots: n, talking: map[PeerID]bool{}, loans: map[TicketID]*placed{}, polls: Time(w.dice.Int64N(int64(time.Second)))}
		w.nodes, w.names = append(w.nodes, m), append(w.names, name(i))
	}
	for _, m := range w.nodes {
		w.boot(m, seed)
	}
	return w
}

// boot starts a node that knows nothing of before.
func (w *world) boot(m *member, seed uint64) {
	core, err := New(Config{Borrow: true, Lend: true, Seed: seed + uint64(m.id)})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range m.loans {
		w.put(l, 0)
	}
	m.core, m.loans = core, map[TicketID]*placed{}
	w.perform(m, core.Peers(w.now, w.names))
	core.IsSelf(w.names[m.id])
}

func (w *world) perform(m *member, effects []Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case Ask:
			w.asks++
			w.ask(m, e.Peer)
		case Use:
			w.uses++
			w.lastChange = w.now
			if m.loans[e.Ticket.ID] != nil {
				w.t.Errorf("node %d was handed ticket %s twice", m.id, e.Ticket.ID)
			}
			m.loans[e.Ticket.ID] = &placed{lender: w.lenderOf(e.Peer), device: e.Ticket.Device, slots: e.Ticket.Slots}
		case Leave:
			w.leaves++
			w.lastChange = w.now
			m.loans[e.Ticket].leaving = true
		}
	}
}

func (w *world) lenderOf(id PeerID) int {
	return slices.Index(w.names, id)
}

// send delivers something later, or never.
func (w *world) send(deliver, lost func()) {
	if w.loss > 0 && w.dice.Float64() < w.loss {
		w.mail = append(w.mail, letter{w.now + 2*w.delay + time.Second, lost}) // the sender's patience
		return
	}
	w.mail = append(w.mail, letter{w.now + Time(w.dice.Int64N(int64(w.delay)+1)), deliver})
}

// ask has one node ask another, and take its answer.
func (w *world) ask(m *member, id PeerID) {
	to := w.nodes[w.lenderOf(id)]
	if m.talking[id] || to == m {
		return
	}
	m.talking[id] = true
	core := m.core
	unreached := func() {
		delete(m.talking, id)
		if m.core == core {
			w.perform(m, core.Unreached(w.now, id))
		}
	}
	q := core.Says(id)
	w.send(func() {
		if to.down {
			unreached()
			return
		}
		w.tell(to)
		w.drawn++
		a, effects := to.core.Asked(w.now, NodeID(w.names[m.id]), q, TicketID(fmt.Sprint("t", w.drawn)))
		w.perform(to, effects)
		w.send(func() {
			delete(m.talking, id)
			if m.core == core {
				w.perform(m, core.Answered(w.now, id, a))
			}
		}, unreached)
	}, unreached)
}

// guests are the programs of others on a node.
func (w *world) guests(lender int) int { return w.guestsAt[lender][0] + w.guestsAt[lender][1] }

// put changes how many programs are on a borrowed device.
func (w *world) put(l *placed, programs int) {
	w.guestsAt[l.lender][l.device] += programs - l.programs
	l.programs = programs
}

// place puts a node's programs on slots, its own first; what leaves is empty one step later.
func (w *world) place(m *member) (used, pending int) {
	rest := m.programs
	used = min(rest, max(0, m.slots-w.guests(m.id)))
	rest -= used
	movable, wishes := max(0, rest-m.stuck), m.wishes+m.gains
	for _, id := range m.tickets() {
		l := m.loans[id]
		if l.leaving {
			w.put(l, 0)
			continue
		}
		served := min(movable, l.slots)
		further := min(wishes, l.slots-served)
		w.put(l, served+further)
		movable -= served
		rest -= served
		wishes -= further
	}
	return used, rest
}

// tickets that a node holds, in an order.
func (m *member) tickets() []TicketID {
	if len(m.loans) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(m.loans))
}

// wishesLeft are those that no borrowed slot serves: programs that have what they wished for wish no more.
func (m *member) wishesLeft() int {
	has := 0
	for _, l := range m.loans {
		has += l.programs
	}
	return max(0, m.wishes-has)
}

// gainsLeft are those for which nothing is borrowed: a device of any speed will do.
func (m *member) gainsLeft() (gains []Gain) {
	for range m.gains - len(m.loans) {
		gains = append(gains, Gain{Speed: 0.5, Stay: time.Second})
	}
	return gains
}

// devices of a node: its slots are on two, of which the first is filled first.
func (m *member) devices(used int, guests [2]int) []Device {
	if m.slots == 0 {
		return nil
	}
	half := m.slots / 2
	first := min(used, half-min(half, guests[0]))
	return []Device{{Number: 0, Slots: half, Used: first, Guests: guests[0], Speed: 1}, {Number: 1, Slots: m.slots - half, Used: used - first, Guests: guests[1], Speed: 1}}
}

// tell tells a node's core how the node is.
func (w *world) tell(m *member) {
	used, waiting := w.place(m)
	clients := map[TicketID]Clients{}
	for id, l := range m.loans {
		clients[id] = Clients{There: l.programs}
	}
	is := Local{Devices: m.devices(used, w.guestsAt[m.id]), Waiting: waiting, Pending: max(0, waiting-m.stuck), Clients: m.programs, Wishes: m.wishesLeft(), Gains: m.gainsLeft()}
	w.perform(m, m.core.Local(w.now, is, clients))
	for _, id := range m.tickets() {
		if l := m.loans[id]; l.leaving && l.programs == 0 {
			delete(m.loans, id)
			w.perform(m, m.core.Left(w.now, id))
		}
	}
}

const step = 50 * time.Millisecond

// run lets time go on, and looks at what must always hold after each step.
func (w *world) run(during Time, each func()) {
	for end := w.now + during; w.now < end; w.now += step {
		due := slices.DeleteFunc(slices.Clone(w.mail), func(l letter) bool { return l.at > w.now })
		w.mail = slices.DeleteFunc(w.mail, func(l letter) bool { return l.at <= w.now })
		for _, l := range due {
			l.deliver()
		}
		for _, m := range w.nodes {
			if m.down {
				continue
			}
			w.tell(m)
			w.perform(m, m.core.Tick(w.now))
			if w.now >= m.polls {
				m.polls = w.now + 400*time.Millisecond + Time(w.dice.Int64N(int64(200*time.Millisecond)))
				for i := range w.nodes {
					w.ask(m, w.names[i])
				}
			}
		}
		if each != nil {
			each()
		}
		w.check()
		if w.t.Failed() {
			w.t.Fatalf("at %v", w.now)
		}
	}
}

// check looks at what must hold at any time, whatever messages are under way.
func (w *world) check() {
	holders := map[TicketID]int{}
	for _, m := range w.nodes {
		if m.down {
			continue
		}
		for _, d := range m.core.local.Devices {
			if n := m.core.lentOf(d); n > d.Slots {
				w.t.Errorf("device %d of node %d has %d slots, of which %d are lent", d.Number, m.id, d.Slots, n)
			}
		}
		if len(m.core.lent) > 0 && len(m.core.borrowed) > 0 {
			w.t.Errorf("node %d borrows and lends: %+v", m.id, m.core.View(w.now))
		}
		for _, l := range m.core.borrowed {
			if other, twice := holders[l.ID]; twice {
				w.t.Errorf("ticket %s is held by nodes %d and %d", l.ID, other, m.id)
			}
			holders[l.ID] = m.id
		}
		if len(m.core.lent) != len(uniqueIDs(m.core.lent)) {
			w.t.Errorf("node %d gave a ticket twice: %+v", m.id, m.core.View(w.now).Lent)
		}
	}
}

func uniqueIDs(list []*lent) map[TicketID]bool {
	ids := map[TicketID]bool{}
	for _, l := range list {
		ids[l.ID] = true
	}
	return ids
}

// waits is how many programs wait, and lends how many slots are to be had, on all nodes.
func (w *world) waits() (waiting, lends int) {
	for _, m := range w.nodes {
		if m.down {
			continue
		}
		_, n := w.place(m)
		waiting += n
		lends += m.core.lendable()
	}
	return waiting, lends
}
