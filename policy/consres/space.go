package consres

import (
	"math"
	"slices"
	"time"

	"muster/model"
	"muster/policy"
)

// never is later than any expected time.
const never = policy.Never

// nodeSpace is the reservations of a backfilling pass: Slurm's table of records. Each record says
// which nodes are reserved from its beginning to that of the next.
type nodeSpace struct {
	words   int
	records []record
	spare   []record
	lending bool         // some record has lenders
	reach   bitmap       // the result of reserved
	holds   []deviceHold // reservations of devices; records have nodes only
}

type record struct {
	begin time.Duration
	// hosts will run jobs; lenders will lend devices to jobs that run on other nodes.
	hosts, lenders bitmap
}

// deviceHold reserves a device, or some of its memory, for a period.
type deviceHold struct {
	begin, end time.Duration
	device     int32 // its number among all devices of the cluster
	share      int64 // bytes of its memory; wholeDevice for all of it
}

const wholeDevice = math.MaxInt64 / 2

// clear removes all reservations; the space begins now.
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

// at is the index of the record that is valid at an instant.
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

// begin is when record i begins; never if there is no such record.
func (s *nodeSpace) begin(i int) time.Duration {
	if i < len(s.records) {
		return s.records[i].begin
	}
	return never
}

// next is the record at which Slurm continues its search for a job that would end at end, if record
// i and the following ones leave too little for it. It is the first record at whose beginning a
// node is given back. If no node is given back up to the end of the first record that begins after
// end, Slurm skips to the second record after that one; past is then the beginning of the record
// that it skips. Otherwise past is never. If there is no such record, next is the number of
// records.
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

// gives says whether a node is reserved in record i and not in the next.
func (s *nodeSpace) gives(i int) bool {
	a, b := &s.records[i], &s.records[i+1]
	for w := range a.hosts {
		if a.hosts[w]&^b.hosts[w] != 0 || a.lenders[w]&^b.lenders[w] != 0 {
			return true
		}
	}
	return false
}

// reserved is the set of nodes that are reserved at any time from the beginning of record i to end,
// including a reservation that begins at end: Slurm lets no job end at that very instant. Lenders
// are in it if the job wants GPUs of its own nodes (local). It is valid until the next call.
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

// reserve reserves nodes from begin to end, and returns the range of records that it changed.
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

// holdDevices reserves the devices of an allocation from begin to end, which are the records from
// to to-1.
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

// heldDevices is what reservations hold of each device at any time in a period.
type heldDevices struct {
	first []int32 // by node: the number of its first device
	share []int64
	dirty []int32 // the devices with a share that is not 0
}

// during computes what is held from begin to end. Reservations that follow each other in that
// period are added up although they do not overlap: the sum is at least what is held at any time,
// so it is safe.
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

// of is what is held of a device. A nil receiver holds nothing.
func (h *heldDevices) of(n, device int32) int64 {
	if h == nil {
		return 0
	}
	return h.share[h.first[n]+device]
}

// clashes says whether any of the nodes is reserved from begin to end.
func (s *nodeSpace) clashes(nodes []int32, begin, end time.Duration, local bool) bool {
	reserved := s.reserved(s.at(begin), end, local)
	for _, n := range nodes {
		if reserved.has(n) {
			return true
		}
	}
	return false
}
