package offload

import (
	"fmt"
	"math"
	"time"
)

// Time is the time since the daemon's start. A time before the last one counts as the last one.
type Time = time.Duration

// PeerID names a lender: the address of its gateway.
type PeerID string

// NodeID names a borrower: as its certificate does.
type NodeID string

// TicketID names a ticket. The lender's driver draws it at random, so that it cannot be
// guessed.
type TicketID string

// Config bounds what a node borrows and lends. Fields left zero take the defaults.
type Config struct {
	Borrow bool // slots of others, for clients that wait
	Lend   bool // slots to others

	Above    int  // how many clients must wait
	Patience Time // how long they must wait before slots are borrowed, or lent ones are recalled
	Keep     int  // free slots that are not lent
	Most     int  // slots borrowed in all; and lent to one borrower
	Calm     Time // how long after a client of the node waited nothing is lent
	Linger   Time // how long a ticket without a client is kept; a quarter of it if clients went there to run faster
	Fresh    Time // how long a peer's claim counts
	Half     Time // after which a claim counts half as much
	Term     Time // after which the ticket of a silent borrower is free
	Retry    Time // how long a peer that refused is not asked; doubles each time
	Longest  Time // the most that Retry grows to

	Seed uint64
}

// Defaults for zero fields of Config.
const (
	DefaultAbove    = 1
	DefaultPatience = 100 * time.Millisecond
	DefaultMost     = 64
	DefaultCalm     = time.Second
	DefaultLinger   = 2 * time.Second
	DefaultFresh    = 15 * time.Second
	DefaultHalf     = 2 * time.Second
	DefaultTerm     = 10 * time.Second
	DefaultRetry    = 500 * time.Millisecond
	DefaultLongest  = 30 * time.Second
)

func (c Config) complete() (Config, error) {
	if c.Above < 0 || c.Keep < 0 || c.Most < 0 {
		return c, fmt.Errorf("above, keep and most must not be negative")
	}
	c.Above, c.Most = orDefault(c.Above, DefaultAbove), orDefault(c.Most, DefaultMost)
	for _, t := range []struct {
		field *Time
		usual Time
	}{
		{&c.Patience, DefaultPatience}, {&c.Calm, DefaultCalm}, {&c.Linger, DefaultLinger}, {&c.Fresh, DefaultFresh}, {&c.Half, DefaultHalf},
		{&c.Term, DefaultTerm}, {&c.Retry, DefaultRetry}, {&c.Longest, DefaultLongest},
	} {
		if *t.field < 0 {
			return c, fmt.Errorf("a time in the configuration is negative")
		}
		*t.field = orDefault(*t.field, t.usual)
	}
	return c, nil
}

func orDefault[T comparable](v, usual T) T {
	var zero T
	if v == zero {
		return usual
	}
	return v
}

// Local is how the node itself is, as its dispatcher knows.
type Local struct {
	Devices []Device // the node's own that take clients
	Waiting int      // clients that wait for a device and are no guests
	Pending int      // of these, those that could run on another node
	Clients int      // clients that could run on another node, waiting or not
	Wishes  int      // further devices that clients would use if no other client did
	Gains   []Gain   // of clients that would move to an unused device of a peer to run faster; those that go to the slowest first
	Closed  bool     // the node is ending: it neither borrows nor lends
}

// Gain is what a client would move for.
type Gain struct {
	Speed float64 // that the device must have at least
	Stay  Time    // how long it must be there for the moves there and home to pay
}

// Clients are those that use the device of a ticket.
type Clients struct {
	There  int // on it
	Coming int // on their way to it
}

// Device is one of the node's own.
type Device struct {
	Number  int  // by which guests ask for it
	Slots   int  // 0 if all of it is granted: guests get nothing of it
	Used    int  // slots that clients of the node have
	Guests  int  // slots that guests have
	Granted bool // some of it is, so that it may be used at any moment
	Speed   float64
}

// slots are those of all devices.
func (l Local) slots() (n int) {
	for _, d := range l.Devices {
		n += d.Slots
	}
	return n
}

// Load is what a node tells others of itself.
type Load struct {
	Slots   int // of its devices
	Free    int // slots that it would lend now
	Waiting int // clients that wait
	Idle    int // unused devices of which it would lend a slot

	Fastest float64 // the speed of its fastest device; 0 if it never lends
	Unused  float64 // the speed of the fastest of the Idle; 0 if there are none
}

// Ticket is the right to use slots of a lender's device.
type Ticket struct {
	ID     TicketID
	Device int // its number there
	Slots  int
	Speed  float64 // of the device for a newcomer, beside the lender's own clients
}

// maxSpeed is more than any device has, relative to others.
const maxSpeed = 1e6

// credible refuses a ticket that no honest lender would give to a borrower that asked so.
func (t Ticket) credible(asked Question) bool {
	return t.ID != "" && t.Device >= 0 && t.Slots >= 1 && t.Slots <= asked.Slots && t.Speed > 0 && t.Speed >= asked.Speed && t.Speed <= maxSpeed && !math.IsNaN(t.Speed)
}

// Question is what a borrower says to a lender.
type Question struct {
	Slots int  // wanted; 0 for none
	Apart bool // they must be of a device that has no client and no ticket
	// Speed is how fast the device must be at least, so that clients run faster there; 0: any will do. With
	// it the ticket lasts only for as long as no client of the lender's own uses the device.
	Speed float64
	Holds []TicketID // of this lender
}

// Answer is what a lender says to a borrower.
type Answer struct {
	Load    Load
	Ticket  Ticket     // without an ID: none
	Recalls []TicketID // tickets that it wants back, or does not know
}

// Effect is something for the driver to do: one of the types below.
type Effect interface{ effect() }

// Ask has the driver ask a peer now instead of at the next regular time. Says gives the
// question.
type Ask struct{ Peer PeerID }

// Use makes a ticket a device of the node. The driver calls Failed if that is not possible.
type Use struct {
	Peer   PeerID
	Ticket Ticket
}

// Leave drains the device of a ticket. The driver calls Left when the device is empty.
type Leave struct {
	Ticket TicketID
	Why    string
}

func (Ask) effect()   {}
func (Use) effect()   {}
func (Leave) effect() {}
