// Package indexset is sets of small numbers that mostly come in long runs, as the tasks of an array
// that have not started yet. A run costs the same however long it is.
package indexset

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Max is larger than any number in a set.
const Max = 1 << 20

// Set is a set of numbers from 0 to Max-1; the zero value is empty.
type Set struct {
	spans []span // ascending, with a gap between one and the next
	n     int
}

// span is the numbers [from, to).
type span struct{ from, to int }

// Of is the numbers [from, to).
func Of(from, to int) Set {
	var s Set
	s.AddRange(from, to)
	return s
}

// Len is how many numbers are in the set.
func (s *Set) Len() int { return s.n }

// First is the smallest number; -1 if there is none.
func (s *Set) First() int {
	if s.n == 0 {
		return -1
	}
	return s.spans[0].from
}

// Last is the largest number; -1 if there is none.
func (s *Set) Last() int {
	if s.n == 0 {
		return -1
	}
	return s.spans[len(s.spans)-1].to - 1
}

// find returns the first span that ends behind i.
func (s *Set) find(i int) int {
	return sort.Search(len(s.spans), func(k int) bool { return s.spans[k].to > i })
}

// Has says whether a number is in the set.
func (s *Set) Has(i int) bool {
	k := s.find(i)
	return k < len(s.spans) && s.spans[k].from <= i
}

// Ascending is Has for numbers that are asked for in ascending order.
func (s *Set) Ascending() func(i int) bool {
	left := s.spans
	return func(i int) bool {
		if len(left) > 0 && left[0].to <= i {
			if left = left[1:]; len(left) > 0 && left[0].to <= i {
				left = left[sort.Search(len(left), func(k int) bool { return left[k].to > i }):]
			}
		}
		return len(left) > 0 && left[0].from <= i
	}
}

// Add adds a number.
func (s *Set) Add(i int) { s.AddRange(i, i+1) }

// AddRange adds the numbers [from, to).
func (s *Set) AddRange(from, to int) {
	if from >= to {
		return
	}
	if s.n == 0 || from > s.Last() { // the usual case: behind all others
		if k := len(s.spans) - 1; k >= 0 && s.spans[k].to == from {
			s.spans[k].to = to
		} else {
			s.spans = append(s.spans, span{from, to})
		}
		s.n += to - from
		return
	}
	low := sort.Search(len(s.spans), func(k int) bool { return s.spans[k].to >= from })
	high := low
	for high < len(s.spans) && s.spans[high].from <= to {
		x := s.spans[high]
		from, to = min(from, x.from), max(to, x.to)
		s.n -= x.to - x.from
		high++
	}
	s.n += to - from
	s.spans = slices.Replace(s.spans, low, high, span{from, to})
}

// AddAll adds all numbers of other sets.
func (s *Set) AddAll(others ...*Set) {
	var more []span
	for _, o := range others {
		more = append(more, o.spans...)
	}
	if len(more) == 1 {
		s.AddRange(more[0].from, more[0].to)
		return
	}
	// In order, since each span that is added before others moves all of them.
	slices.SortFunc(more, func(a, b span) int { return a.from - b.from })
	both := Set{spans: make([]span, 0, len(s.spans)+len(more))}
	for a, b := s.spans, more; len(a)+len(b) > 0; {
		next := &a
		if len(a) == 0 || len(b) > 0 && b[0].from < a[0].from {
			next = &b
		}
		both.AddRange((*next)[0].from, (*next)[0].to)
		*next = (*next)[1:]
	}
	*s = both
}

// Remove removes a number.
func (s *Set) Remove(i int) {
	k := s.find(i)
	if k == len(s.spans) || s.spans[k].from > i {
		return
	}
	s.n--
	x := s.spans[k]
	switch {
	case x.to-x.from == 1 && k == 0: // the usual case: tasks start in their order
		s.spans = s.spans[1:]
	case x.to-x.from == 1:
		s.spans = slices.Delete(s.spans, k, k+1)
	case x.from == i:
		s.spans[k].from++
	case x.to == i+1:
		s.spans[k].to--
	default:
		s.spans[k].to = i
		s.spans = slices.Insert(s.spans, k+1, span{i + 1, x.to})
	}
}

// Split divides the set into the numbers that are in another one too, and those that are not.
func (s *Set) Split(o *Set) (in, out Set) {
	for _, x := range s.spans {
		at := x.from
		for k := o.find(x.from); k < len(o.spans) && o.spans[k].from < x.to; k++ {
			from, to := max(x.from, o.spans[k].from), min(x.to, o.spans[k].to)
			out.AddRange(at, from)
			in.AddRange(from, to)
			at = to
		}
		out.AddRange(at, x.to)
	}
	return in, out
}

// RemoveAll removes all numbers of another set.
func (s *Set) RemoveAll(o *Set) {
	if o.n == 1 {
		s.Remove(o.First())
		return
	}
	_, *s = s.Split(o)
}

// Each calls do for the runs of the set, in order: the numbers [from, to).
func (s *Set) Each(do func(from, to int)) {
	for _, x := range s.spans {
		do(x.from, x.to)
	}
}

// All lists the numbers, ascending.
func (s *Set) All(yield func(int) bool) {
	for _, x := range s.spans {
		for i := x.from; i < x.to; i++ {
			if !yield(i) {
				return
			}
		}
	}
}

// longText is how long the text of a set may be before it is written as a map of bits.
const longText = 4096

// bitsMark begins a set that is written as a map of bits.
const bitsMark = "bits:"

// MarshalText writes runs, as 0-4,7, or a map of bits if there are very many runs.
func (s Set) MarshalText() ([]byte, error) {
	var out []byte
	for i, x := range s.spans {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(x.from), 10)
		if x.to > x.from+1 {
			out = strconv.AppendInt(append(out, '-'), int64(x.to-1), 10)
		}
		if len(out) > longText {
			return s.bits(), nil
		}
	}
	return out, nil
}

func (s Set) bits() []byte {
	raw := make([]byte, (s.spans[len(s.spans)-1].to+7)/8)
	s.All(func(i int) bool { raw[i/8] |= 1 << (i % 8); return true })
	return base64.StdEncoding.AppendEncode([]byte(bitsMark), raw)
}

// UnmarshalText reads what MarshalText writes.
func (s *Set) UnmarshalText(text []byte) error {
	*s = Set{}
	if len(text) == 0 {
		return nil
	}
	if coded, ok := strings.CutPrefix(string(text), bitsMark); ok {
		raw, err := base64.StdEncoding.Strict().DecodeString(coded)
		if err != nil || len(raw) > Max/8 {
			return errors.New("a set of numbers has a damaged map of bits")
		}
		for i := range 8 * len(raw) {
			if raw[i/8]>>(i%8)&1 != 0 {
				s.Add(i)
			}
		}
		return nil
	}
	for item := range strings.SplitSeq(string(text), ",") {
		low, high, isRange := strings.Cut(item, "-")
		from, err := strconv.ParseUint(low, 10, 20)
		to := from
		if err == nil && isRange {
			to, err = strconv.ParseUint(high, 10, 20)
		}
		if err != nil || to < from || len(s.spans) > 0 && int(from) <= s.spans[len(s.spans)-1].to {
			return fmt.Errorf("%.40q is no set of numbers", item)
		}
		s.AddRange(int(from), int(to)+1)
	}
	return nil
}
