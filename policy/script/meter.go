package script

import (
	"fmt"

	"go.starlark.net/starlark"
)

// Limits of one call of a script, where its settings do not say otherwise, and those
// that nothing changes.
const (
	// DefaultSteps and DefaultMemory are what one call may take.
	DefaultSteps  = 1_000_000
	DefaultMemory = 16 << 20
	// MaxSource is the size of a file.
	MaxSource = 64 << 10
	// maxString bounds a string: looking one up in a dictionary reads all of it.
	maxString = 1024
	// maxBits bounds integers.
	maxBits = 256
	// maxTuple bounds what comparing or hashing a tuple looks at, with all inside it.
	maxTuple = 1000
	// maxWeight bounds what comparing or printing a value looks at, and maxDepth how
	// deep it may be nested there.
	maxWeight = 100_000
	maxDepth  = 32
	// maxState is what a script may keep between two calls.
	maxState = 1 << 20
)

// What values take in memory, about: the guards charge it.
const (
	valueBytes = 16  // a value in a list
	dictBytes  = 512 // an empty dictionary or set
	entryBytes = 128 // an entry of one
	pairBytes  = 64  // a pair in a list
)

// meter counts what a call of a script takes.
type meter struct {
	thread *starlark.Thread
	steps  uint64 // the limit
	memory int64  // the limit
	used   int64
	// crowds are the keys of the tables that were changed in this call.
	crowds map[starlark.Value]*crowd
}

// begin starts a call: nothing is used.
func (m *meter) begin() {
	m.thread.Uncancel()
	m.thread.Steps = 0
	m.thread.SetMaxExecutionSteps(m.steps)
	m.used = 0
	m.crowds = nil
}

// work charges steps for what a function written in Go is about to do.
func (m *meter) work(n int) error {
	if n < 0 || uint64(n) >= m.steps || m.thread.Steps+uint64(n) >= m.steps {
		m.thread.Steps = m.steps
		return m.tooManySteps()
	}
	m.thread.Steps += uint64(n)
	return nil
}

func (m *meter) tooManySteps() error {
	return fmt.Errorf("the script was stopped after %d steps (setting steps)", m.steps)
}

// alloc charges memory before the script takes it.
func (m *meter) alloc(bytes int64) error {
	if bytes < 0 || bytes > m.memory-m.used {
		m.used = m.memory
		return fmt.Errorf("the script was stopped: it wants more than %d bytes of memory in one call (setting memory)", m.memory)
	}
	m.used += bytes
	return nil
}

// charge is work and alloc for n values of the given number of bytes each.
func (m *meter) charge(n int, each int64) error {
	if err := m.work(n); err != nil {
		return err
	}
	return m.alloc(int64(n) * each)
}

// text charges a string before it is made.
func (m *meter) text(n int) error {
	if n > maxString {
		return fmt.Errorf("a string of %d bytes is too long: at most %d", n, maxString)
	}
	if err := m.work(n / 64); err != nil {
		return err
	}
	return m.alloc(int64(n) + valueBytes)
}

// weigh counts what an operation that looks at all of a value looks at; the
// text of strings counts by eight bytes. More than limit is an error, whatever it costs.
func weigh(v starlark.Value, limit int) (int, error) {
	w := weigher{left: limit, limit: limit}
	if err := w.add(v, 0); err != nil {
		return limit, err
	}
	return limit - w.left, nil
}

type weigher struct{ left, limit int }

func (w *weigher) add(v starlark.Value, depth int) error {
	if v == nil { // a name that was not given a value
		return nil
	}
	cost := 1
	switch v := v.(type) {
	case starlark.String:
		cost += len(v) / 8
	case starlark.Tuple, *starlark.List, starlark.Int, starlark.Float, starlark.Bool, starlark.NoneType, *Job:
	case *starlark.Dict, *starlark.Set:
		cost += dictBytes / 32
	default:
		cost += maxString / 8 // whatever it holds beside what is looked at below
	}
	if w.left -= cost; w.left < 0 {
		return fmt.Errorf("the value is too large: it has more than %d parts", w.limit)
	}
	if depth > maxDepth {
		return fmt.Errorf("the value is nested more than %d levels deep", maxDepth)
	}
	switch v := v.(type) {
	case starlark.Tuple:
		for _, e := range v {
			if err := w.add(e, depth+1); err != nil {
				return err
			}
		}
	case *starlark.List:
		for i := range v.Len() {
			if err := w.add(v.Index(i), depth+1); err != nil {
				return err
			}
		}
	case *starlark.Dict:
		for k, e := range v.Entries() {
			if err := w.add(k, depth+1); err != nil {
				return err
			}
			if err := w.add(e, depth+1); err != nil {
				return err
			}
		}
	case *starlark.Function: // it keeps what it has seen where it was made
		for i := range v.NumFreeVars() {
			_, e := v.FreeVar(i)
			if err := w.add(e, depth+1); err != nil {
				return err
			}
		}
		for i := range v.NumParams() {
			if e := v.ParamDefault(i); e != nil {
				if err := w.add(e, depth+1); err != nil {
					return err
				}
			}
		}
	case *starlark.Builtin:
		if e := v.Receiver(); e != nil {
			return w.add(e, depth+1)
		}
	case *starlark.Set:
		for e := range v.Elements() {
			if err := w.add(e, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// weighed charges the steps of an operation that looks at all of its values.
func (m *meter) weighed(values ...starlark.Value) (int, error) {
	sum := 0
	for _, v := range values {
		n, err := weigh(v, maxWeight)
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, m.work(sum)
}

// tuple refuses tuples that are costly to hash: they may be keys.
func (m *meter) tuple(t starlark.Tuple) (starlark.Value, error) {
	n, err := weigh(t, maxTuple)
	if err != nil {
		return nil, fmt.Errorf("a tuple may have %d parts, with those of the tuples in it", maxTuple)
	}
	return t, m.work(n / 8)
}
