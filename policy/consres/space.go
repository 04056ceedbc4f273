package consres

import (
	"math"
	"slices"
	"time"

	"muster/model"
	"muster/policy"
)

// never is later than all that is expected.
const never = policy.Never

// nodeSpace is who has reserved what, when: Slurm's table of records, each of
// which says which nodes are spoken for from its beginning to that of the next.
type nodeSpace struct {
	words   int
	records []record
	spare   []record
	lending bool // some record has lenders
	reach   bitmap
	holds   []deviceHold
}

type record struct {
	begin time.Duration
	// hosts will run jobs. Lenders will lend devices to jobs that run elsewhere.
	hosts, lenders bitmap
}

// deviceHold keeps a device, or so much of its memory, for a while.
type deviceHold struct {
	begin, end time.Duration
	device     int32 // of all
	share      int64 // wholeDevice for all of it
}

const wholeDevice = math.MaxInt64 / 2

// clear makes it a space without reservations that begins now.
func (s *nodeSpace) clear(nodes int, now time.Duration) {
	if words := (nodes + 63) / 64; words != s.words || s.reach == nil {
		*s = nodeSpace{words: words, reach: newBitmap(nodes)}
	}
	s.spare = append(s.spare, s.records...)
	s.records = append(s.records[:0], s.newRecord(now))
	s.lending = false
	s.holds = s.holds[:0]
}

func (s *nodeSpace) newRecord(begin time.Duration) record {
	if l := len(s.spare); l > 0 {
		r := s.spare[l-1]
		s.spare = s.spare[:l-1]
		r.begin = begin
		clear(r.hosts)
		clear(r.lenders)
		return r
	}
	return record{begin, make(bitmap, s.words), make(bitmap, s.words)}
}

// at is the index of the record that holds at an instant.
func (s *nodeSpace) at(t time.Duration) int {
	i, found := slices.BinarySearchFunc(s.records, t, func(r record, t time.Duration) int {
		if r.begin < t {
			return -1
		} else if r.begin > t {
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	return max(0, i)
}

// begin is when record i begins; never, if there is none.
func (s *nodeSpace) begin(i int) time.Duration {
	if i < len(s.records) {
		return s.records[i].begin
	}
	return never
}

// next is the record with whose beginning the search for a job goes on that would end at end, and
// cannot have what it needs while record i and those behind it hold: the first at whose beginning a
// node is given back. If none is before the first record that begins after end is over, Slurm goes
// on two records behind the beginning of that one, whatever they are; past is then the beginning of
// the one between, and else never. There is no next if it is the number of records.
func (s *nodeSpace) next(i int, end time.Duration) (next int, past time.Duration) {
	for ; i+1 < len(s.records); i++ {
		switch {
		case s.gives(i):
			return i + 1, never
		case s.records[i].begin > end:
			return min(i+2, len(s.records)), s.records[i+1].begin
		}
	}
	return len(s.records), never
}

// gives says whether something is spoken for in record i and not in the next.
func (s *nodeSpace) gives(i int) bool {
	a, b := &s.records[i], &s.records[i+1]
	for w := range a.hosts {
		if a.hosts[w]&^b.hosts[w] != 0 || a.lenders[w]&^b.lenders[w] != 0 {
			return true
		}
	}
	return false
}

// reserved is the set of nodes that are spoken for at any time from the beginning
// of record i to end, or from end on: Slurm lets no job end just then. Lenders are in it
// where local GPUs are wanted. It is valid until the next call.
func (s *nodeSpace) reserved(i int, end time.Duration, local bool) bitmap {
	copy(s.reach, s.records[i].hosts)
	lenders := local && s.lending
	if lenders {
		s.reach.add(s.records[i].lenders)
	}
	for i++; i < len(s.records) && s.records[i].begin <= end; i++ {
		s.reach.add(s.records[i].hosts)
		if lenders {
			s.reach.add(s.records[i].lenders)
		}
	}
	return s.reach
}

// split makes t the beginning of a record, and returns its index.
func (s *nodeSpace) split(t time.Duration) int {
	i := s.at(t)
	if s.records[i].begin >= t {
		return i
	}
	r := s.newRecord(t)
	copy(r.hosts, s.records[i].hosts)
	copy(r.lenders, s.records[i].lenders)
	s.records = slices.Insert(s.records, i+1, r)
	return i + 1
}

// reserve speaks for nodes from begin to end.
func (s *nodeSpace) reserve(hosts []int32, begin, end time.Duration) (from, to int) {
	from = s.split(begin)
	to = len(s.records)
	if end < never {
		to = s.split(end)
	}
	for i := from; i < to; i++ {
		for _, n := range hosts {
			s.records[i].hosts.set(n)
		}
	}
	return from, to
}

// holdDevices speaks for the devices of an allocation.
func (s *nodeSpace) holdDevices(a *model.Allocation, t *table, begin, end time.Duration, from, to int) {
	add := func(n, d int32, share int64) {
		s.holds = append(s.holds, deviceHold{begin, end, t.first[n] + d, share})
	}
	for i := range a.Parts {
		p := &a.Parts[i]
		for d := range int32(len(t.cluster.Nodes[p.Node].GPUs)) {
			if p.Exclusive || p.GPUs>>d&1 != 0 {
				add(p.Node, d, wholeDevice)
			}
		}
	}
	for _, g := range a.Grants {
		share := g.Memory
		if share == 0 {
			share = wholeDevice
		}
		add(g.Node, g.Device, share)
		if a.Borrowed(g) {
			s.lending = true
			for i := from; i < to; i++ {
				s.records[i].lenders.set(g.Node)
			}
		}
	}
}

// heldDevices is what reservations keep of each device at any time in a stretch.
type heldDevices struct {
	first []int32
	share []int64
	dirty []int32
}

// during works out what is held from begin to end. What one reservation holds
// after another counts together: nothing can go wrong then.
func (h *heldDevices) during(s *nodeSpace, begin, end time.Duration) {
	for _, d := range h.dirty {
		h.share[d] = 0
	}
	h.dirty = h.dirty[:0]
	for i := range s.holds {
		if x := &s.holds[i]; x.begin <= end && x.end > begin {
			if h.share[x.device] == 0 {
				h.dirty = append(h.dirty, x.device)
			}
			h.share[x.device] = min(wholeDevice, h.share[x.device]+x.share)
		}
	}
}

// of is what is held of a device; nil holds nothing.
func (h *heldDevices) of(n, device int32) int64 {
	if h == nil {
		return 0
	}
	return h.share[h.first[n]+device]
}

// clashes says whether any of the nodes is spoken for from begin to end.
func (s *nodeSpace) clashes(nodes []int32, begin, end time.Duration, local bool) bool {
	reserved := s.reserved(s.at(begin), end, local)
	for _, n := range nodes {
		if reserved.has(n) {
			return true
		}
	}
	return false
}
