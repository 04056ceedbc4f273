package balance

import (
	"context"
	"math"
	"time"

	"muster/ivm"
)

// element is what the balancers need of an element. A model in virtual time has it, too.
type element interface {
	ID() ivm.ID
	Device() ivm.Device
	SetMaxPEsID(ctx context.Context, most ivm.ID) error
	CreatePEs(ctx context.Context, d ivm.Device, n int) ([]ivm.ID, error)
	KillPEs(ctx context.Context, ids ...ivm.ID) error
	Signal(ctx context.Context) error
	Wait(ctx context.Context, id ivm.ID) error
	WaitLatest(ctx context.Context, id ivm.ID) error
	WaitAny(ctx context.Context) (ivm.ID, error)
	allocate(ctx context.Context, name string, words int) (board, error)
	open(ctx context.Context, name string) (board, error)
	Free(ctx context.Context, name string) error
	now() time.Time
}

// board is an object of the balancers: words that root and children write for each other.
type board interface {
	words() []int64
	Put(ctx context.Context, from, to int) error
	Get(ctx context.Context, from, to int) error
	PutGroup(ctx context.Context, others ...ivm.Part) error
}

// real is an element of a program.
type real struct{ *ivm.Element }

func (r real) allocate(ctx context.Context, name string, words int) (board, error) {
	s, err := ivm.Malloc[int64](ctx, r.Element, name, words)
	return slice{s}, err
}

func (r real) open(ctx context.Context, name string) (board, error) {
	s, err := ivm.Map[int64](ctx, r.Element, name)
	return slice{s}, err
}

func (r real) now() time.Time { return time.Now() }

type slice struct{ *ivm.Slice[int64] }

func (s slice) words() []int64 { return s.Data }

// The boards.
const (
	planName   = "balance.plan"
	reportName = "balance.reports"
)

// plan is what the root tells its children: the iteration and the number of elements, or for each
// element a piece. A signal of the root wakes all children, so a child may read while the root writes:
// the sum shows whether the plan is complete.
type plan struct {
	number   int64 // counts plans; -1 ends the child
	from, to int64
}

const planWords = 4

// sum is never 0 for a plan that was made.
func (p plan) sum() int64 {
	return p.number*0x1_0000_0001 ^ p.from*0x3b9aca07 ^ p.to*0x5deece66d ^ 0x2545f4914f6cdd1d
}

func (p plan) write(b board, slot int) {
	copy(b.words()[slot*planWords:], []int64{p.number, p.from, p.to, p.sum()})
}

func readPlan(b board, slot int) (p plan, complete bool) {
	w := b.words()[slot*planWords:]
	p = plan{number: w[0], from: w[1], to: w[2]}
	return p, w[3] == p.sum()
}

// report acknowledges work: the number of the plan, or of the element if it needs none, and how long it
// took. A signal or an end without it is no acknowledgement.
type report struct {
	number  int64
	seconds float64
}

const reportWords = 2

func readReport(b board, slot int) report {
	w := b.words()[slot*reportWords:]
	return report{w[0], math.Float64frombits(uint64(w[1]))}
}

// send writes a report to its slot, and says so.
func (r report) send(ctx context.Context, e element, b board, slot int) error {
	at := slot * reportWords
	copy(b.words()[at:], []int64{r.number, int64(math.Float64bits(r.seconds))})
	if err := b.Put(ctx, at, at+reportWords); err != nil {
		return err
	}
	return e.Signal(ctx)
}
