package slurmopt

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Tasks is the task indices of an array, ascending, as runs. A task's place is its position among
// them. An array of 100,000 tasks is one run: it must cost no more than a short one.
type Tasks []Run

// Run is indices with the same distance from one to the next.
type Run struct {
	First, Last, Step uint32
	at                int // the place of First
}

func (r *Run) len() int { return int((r.Last-r.First)/r.Step) + 1 }

// TasksOf makes a set of sorted, unique indices.
func TasksOf(sorted []uint32) Tasks {
	var t Tasks
	for i := 0; i < len(sorted); {
		r := Run{First: sorted[i], Last: sorted[i], Step: 1, at: i}
		end := i + 1
		if end < len(sorted) {
			step := sorted[end] - sorted[i]
			for end < len(sorted) && sorted[end]-sorted[end-1] == step {
				end++
			}
			if step > 1 && end-i == 2 {
				end-- // two indices that are not neighbours are two runs
			} else {
				r.Last, r.Step = sorted[end-1], step
			}
		}
		t = append(t, r)
		i = end
	}
	return t
}

// ParseTasks reads 0-15,20,30-40:5.
func ParseTasks(text string) (Tasks, error) {
	var all []uint32
	for item := range strings.SplitSeq(text, ",") {
		first, last, step, err := arrayRange(item)
		if err != nil {
			return nil, err
		}
		last -= (last - first) % step
		if (last-first)/step >= uint64(MaxArrayTasks-len(all)) {
			return nil, fmt.Errorf("%q has more than %d tasks: submit several arrays", text, MaxArrayTasks)
		}
		if len(item) == len(text) && (step == 1 || last > first+step) {
			return Tasks{{First: uint32(first), Last: uint32(last), Step: uint32(step)}}, nil
		}
		for n := first; n <= last; n += step {
			all = append(all, uint32(n))
		}
	}
	slices.Sort(all)
	return TasksOf(slices.Compact(all)), nil
}

// Len is how many there are.
func (t Tasks) Len() int {
	if len(t) == 0 {
		return 0
	}
	last := &t[len(t)-1]
	return last.at + last.len()
}

// At is the index at a place.
func (t Tasks) At(place int) uint32 {
	r := &t[sort.Search(len(t), func(i int) bool { return t[i].at > place })-1]
	return r.First + uint32(place-r.at)*r.Step
}

// Place finds an index; false if it is not among them.
func (t Tasks) Place(task int64) (int, bool) {
	i := sort.Search(len(t), func(i int) bool { return int64(t[i].First) > task }) - 1
	if i < 0 || task > int64(t[i].Last) {
		return 0, false
	}
	r := &t[i]
	by := uint32(task) - r.First
	return r.at + int(by/r.Step), by%r.Step == 0
}

// Common calls do for the places [from, to) of the indices that are in another list, too, in order.
func (t Tasks) Common(list Tasks, do func(from, to int)) {
	for _, l := range list {
		i := sort.Search(len(t), func(i int) bool { return t[i].Last >= l.First })
		for ; i < len(t) && t[i].First <= l.Last; i++ {
			t[i].common(l, do)
		}
	}
}

// common is Common of two runs.
func (r *Run) common(l Run, do func(from, to int)) {
	first, last := max(r.First, l.First), min(r.Last, l.Last)
	place := func(index uint32) int { return r.at + int((index-r.First)/r.Step) }
	step := max(r.Step, l.Step)
	if l.Step == 1 { // all of r between the two
		from := place(first + r.Step - 1)
		do(from, max(from, place(last)+1))
		return
	}
	from := r.First // go through the one that has fewer there
	if l.Step == step {
		from = l.First
	}
	for index := uint64(first) + uint64((step-(first-from)%step)%step); index <= uint64(last); index += uint64(step) {
		if i := uint32(index); (i-r.First)%r.Step == 0 && (i-l.First)%l.Step == 0 {
			do(place(i), place(i)+1)
		}
	}
}

// AppendBetween appends the indices at the places [from, to), as String writes them, behind a comma if
// there is something already.
func (t Tasks) AppendBetween(out []byte, from, to int) []byte {
	first := sort.Search(len(t), func(i int) bool { return t[i].at > from })
	for i := max(0, first-1); i < len(t) && t[i].at < to; i++ {
		r := &t[i]
		if low, high := max(from, r.at), min(to, r.at+r.len()); low < high {
			out = Run{First: r.First + uint32(low-r.at)*r.Step, Last: r.First + uint32(high-1-r.at)*r.Step, Step: r.Step}.append(out)
		}
	}
	return out
}

// String writes the indices as --array reads them.
func (t Tasks) String() string {
	var out []byte
	for _, r := range t {
		out = r.append(out)
	}
	return string(out)
}

func (r Run) append(out []byte) []byte {
	if len(out) > 0 {
		out = append(out, ',')
	}
	out = strconv.AppendUint(out, uint64(r.First), 10)
	if r.Last > r.First {
		out = strconv.AppendUint(append(out, '-'), uint64(r.Last), 10)
	}
	if r.Step > 1 && r.Last > r.First {
		out = strconv.AppendUint(append(out, ':'), uint64(r.Step), 10)
	}
	return out
}
