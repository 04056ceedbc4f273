package script

import (
	"errors"
	"fmt"
	"iter"

	"go.starlark.net/starlark"
)

// The language finds keys by hashes that are easily made the same: those of numbers are
// their lowest 32 bits, those of fractions are 0. All keys of one hash are looked at one
// after the other, in one step. So a dictionary or a set takes only so many that are
// alike: what looks a key up needs no guard then.

const (
	// fewKeys is how many keys a table may have of which nothing is known, and how many
	// that are alike.
	fewKeys = 64
	// classes is by how much of their hash keys are told apart.
	classes = 512
)

// crowd counts the keys of a table by their hashes.
type crowd struct {
	class [classes]uint32
	total int
}

// errCrowded says that too many keys are alike.
var errCrowded = errors.New("too many keys are alike for a dictionary or set: use texts instead, as str(key), or fewer")

// add counts one more key; false if there are too many like it.
func (c *crowd) add(hash uint32) bool {
	n := &c.class[hash%classes]
	if int(*n) >= fewKeys+c.total/(classes/2) {
		return false
	}
	*n++
	c.total++
	return true
}

// plainKey says that keys of this kind cannot be alike in large numbers.
func plainKey(k starlark.Value) bool {
	switch k := k.(type) {
	case starlark.Int:
		n, ok := k.Int64()
		return ok && n >= 0 && n < 1<<16
	case *Job, *nodeValue, *libraryJobValue, *libraryNode, starlark.Bool, starlark.NoneType:
		return true
	}
	return false
}

// keysOf are the keys of a dictionary or a set.
func keysOf(table starlark.Value) iter.Seq[starlark.Value] {
	return func(yield func(starlark.Value) bool) {
		switch t := table.(type) {
		case *starlark.Dict:
			for k := range t.Entries() {
				if !yield(k) {
					return
				}
			}
		case *starlark.Set:
			for k := range t.Elements() {
				if !yield(k) {
					return
				}
			}
		}
	}
}

// contains says whether a table has a key. A value that cannot be a key is left to the insertion,
// which reports it.
func contains(table, k starlark.Value) bool {
	found := false
	switch t := table.(type) {
	case *starlark.Dict:
		_, found, _ = t.Get(k)
	case *starlark.Set:
		found, _ = t.Has(k)
	}
	return found
}

// count counts the keys of a table, of which it was made sure that they are few enough.
func (m *meter) count(table starlark.Value) (*crowd, error) {
	if err := m.charge(starlark.Len(table)/4, 0); err != nil {
		return nil, err
	}
	c := &crowd{}
	for k := range keysOf(table) {
		if plainKey(k) {
			continue
		}
		if h, err := k.Hash(); err == nil {
			c.class[h%classes]++
			c.total++
		}
	}
	return c, nil
}

// mayInsert makes sure that a table can take one more key, which is put there next.
func (m *meter) mayInsert(table, k starlark.Value) error {
	if starlark.Len(table) < fewKeys || plainKey(k) {
		return nil
	}
	h, err := k.Hash()
	if err != nil || contains(table, k) {
		return nil
	}
	c := m.crowds[table]
	if c != nil && c.add(h) {
		return nil
	}
	// It is not known, or has had keys that have left.
	if err := m.alloc(classes * 4); err != nil {
		return err
	}
	if c, err = m.count(table); err != nil {
		return err
	}
	if !c.add(h) {
		return errCrowded
	}
	if m.crowds == nil {
		m.crowds = map[starlark.Value]*crowd{}
	}
	m.crowds[table] = c
	return nil
}

// mayMerge makes sure that a table can take the keys of another.
func (m *meter) mayMerge(table, more starlark.Value) error {
	if starlark.Len(table)+starlark.Len(more) < fewKeys {
		return nil
	}
	delete(m.crowds, table)
	c, err := m.count(table)
	if err != nil {
		return err
	}
	for k := range keysOf(more) {
		if plainKey(k) || contains(table, k) {
			continue
		}
		if h, err := k.Hash(); err == nil && !c.add(h) {
			return errCrowded
		}
	}
	return nil
}

// isTable says whether a value is a dictionary or a set.
func isTable(v starlark.Value) bool { return is[*starlark.Dict](v) || is[*starlark.Set](v) }

// setOf makes a set of values.
func (m *meter) setOf(values []starlark.Value) (*starlark.Set, error) {
	s := starlark.NewSet(0)
	for _, v := range values {
		if err := m.mayInsert(s, v); err != nil {
			return nil, err
		}
		if err := s.Insert(v); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// put puts an entry into a dictionary.
func (m *meter) put(d *starlark.Dict, k, v starlark.Value) error {
	if err := m.mayInsert(d, k); err != nil {
		return err
	}
	return d.SetKey(k, v)
}

// dictOf makes a dictionary of a list of pairs, whatever the pairs are.
func (m *meter) dictOf(list *starlark.List) (*starlark.Dict, error) {
	d := starlark.NewDict(0)
	for i := range list.Len() {
		pair := list.Index(i)
		it := starlark.Iterate(pair)
		if it == nil || starlark.Len(pair) != 2 {
			return nil, fmt.Errorf("element %d is no pair", i)
		}
		var k, v starlark.Value
		it.Next(&k)
		it.Next(&v)
		it.Done()
		if err := m.put(d, k, v); err != nil {
			return nil, err
		}
	}
	return d, nil
}
