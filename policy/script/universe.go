package script

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"go.starlark.net/starlark"
)

// maxCollected is how many values one function may put into a list.
const maxCollected = 1_000_000

// universe are the functions that every script has, in the place of those of the
// language: they do the same, and are charged for it.
var universe = map[string]function{
	"all":       overValues("all", 0),
	"any":       overValues("any", 0),
	"dict":      makeDict,
	"enumerate": pairs("enumerate"),
	"fail":      fail,
	"int": func(m *meter, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
		return m.passed("int", args, named)
	},
	"list":     overValues("list", valueBytes),
	"max":      extreme("max"),
	"min":      extreme("min"),
	"print":    printed,
	"repr":     textOf("repr"),
	"reversed": overValues("reversed", valueBytes),
	"set":      makeSet,
	"sorted":   sorted,
	"str":      textOf("str"),
	"tuple":    overValues("tuple", valueBytes),
	"zip":      pairs("zip"),
}

// unsupported are functions of the language that policies do not have.
var unsupported = []string{"bytes", "getattr"}

// passed calls the language's own function.
func (m *meter) passed(name string, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	z, err := starlark.Universe[name].(*starlark.Builtin).CallInternal(m.thread, args, named)
	if err != nil {
		return nil, err
	}
	return m.result(z)
}

// collect copies what can be iterated over, and charges it.
func (m *meter) collect(v starlark.Value, limit int) ([]starlark.Value, error) {
	if n := starlark.Len(v); n >= 0 {
		if n > limit {
			return nil, fmt.Errorf("%d values are too many: at most %d", n, limit)
		}
		if err := m.charge(n, valueBytes); err != nil {
			return nil, err
		}
		out := make([]starlark.Value, 0, n)
		return m.copyInto(out, v, n, false)
	}
	return m.copyInto(nil, v, limit, true)
}

func (m *meter) copyInto(out []starlark.Value, v starlark.Value, limit int, charged bool) ([]starlark.Value, error) {
	it := starlark.Iterate(v)
	if it == nil {
		return nil, fmt.Errorf("%s value is not iterable", v.Type())
	}
	defer it.Done()
	for e := starlark.Value(nil); it.Next(&e); {
		if len(out) >= limit {
			return nil, fmt.Errorf("more than %d values are too many", limit)
		}
		if charged {
			if err := m.charge(1, 2*valueBytes); err != nil {
				return nil, err
			}
		}
		out = append(out, e)
	}
	return out, nil
}

// gathered replaces the first argument by a list of its values, each charged
// with the given number of bytes more.
func (m *meter) gathered(args starlark.Tuple, each int64) (starlark.Tuple, error) {
	if len(args) == 0 || !is[starlark.Iterable](args[0]) {
		return args, nil
	}
	list, err := m.collect(args[0], maxCollected)
	if err != nil {
		return nil, err
	}
	out := append(starlark.Tuple{starlark.NewList(list)}, args[1:]...)
	return out, m.alloc(int64(len(list)) * each)
}

func overValues(name string, each int64) function {
	return func(m *meter, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
		args, err := m.gathered(args, each)
		if err != nil {
			return nil, err
		}
		return m.passed(name, args, named)
	}
}

// pairs is enumerate and zip: they make tuples of what others have made.
func pairs(name string) function {
	return func(m *meter, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
		lists := make(starlark.Tuple, len(args))
		for i, a := range args {
			lists[i] = a
			if !is[starlark.Iterable](a) {
				continue
			}
			list, err := m.collect(a, maxCollected)
			if err != nil {
				return nil, err
			}
			if err := m.alloc(int64(len(list)) * pairBytes); err != nil {
				return nil, err
			}
			lists[i] = starlark.NewList(list)
		}
		z, err := m.passed(name, lists, named)
		if err != nil {
			return nil, err
		}
		return m.tuples(z.(*starlark.List))
	}
}

// tuples checks the tuples of a list.
func (m *meter) tuples(list *starlark.List) (starlark.Value, error) {
	for i := range list.Len() {
		if _, err := m.tuple(list.Index(i).(starlark.Tuple)); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func makeDict(m *meter, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	if err := m.alloc(dictBytes); err != nil {
		return nil, err
	}
	if len(args) == 1 && is[*starlark.Dict](args[0]) {
		if err := m.charge(args[0].(*starlark.Dict).Len(), entryBytes); err != nil {
			return nil, err
		}
		return m.passed("dict", args, named)
	}
	args, err := m.gathered(args, entryBytes)
	if err != nil {
		return nil, err
	}
	if len(args) == 1 && is[*starlark.List](args[0]) {
		d, err := m.dictOf(args[0].(*starlark.List))
		if err != nil {
			return nil, fmt.Errorf("dict: %w", err)
		}
		args = starlark.Tuple{d}
	}
	return m.passed("dict", args, named)
}

func makeSet(m *meter, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	args, err := m.gathered(args, entryBytes)
	if err != nil {
		return nil, err
	}
	if len(args) == 1 && len(named) == 0 && is[*starlark.List](args[0]) {
		return m.setOf(elements(args[0].(*starlark.List)))
	}
	return m.passed("set", args, named)
}

// compared charges that values are put in order: each is compared with some others.
func (m *meter) compared(values []starlark.Value) error {
	sum := 0
	for _, v := range values {
		if scalar(v) {
			sum++
			continue
		}
		n, err := weigh(v, maxWeight)
		if err != nil {
			return err
		}
		sum += n
	}
	return m.work(sum * (1 + bits.Len(uint(len(values)))))
}

func extreme(name string) function {
	return func(m *meter, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
		values := []starlark.Value(args)
		if len(args) == 1 {
			var err error
			if args, err = m.gathered(args, 0); err != nil {
				return nil, err
			}
			if list, ok := args[0].(*starlark.List); ok {
				values = elements(list)
			}
		}
		if len(named) == 0 {
			if err := m.compared(values); err != nil {
				return nil, err
			}
		} else {
			named = m.weighingKeys(named, len(values))
		}
		return m.passed(name, args, named)
	}
}

func elements(list *starlark.List) []starlark.Value {
	out := make([]starlark.Value, list.Len())
	for i := range out {
		out[i] = list.Index(i)
	}
	return out
}

func sorted(m *meter, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("sorted: give what is to be sorted first, without a name")
	}
	args, err := m.gathered(args, 3*valueBytes)
	if err != nil {
		return nil, err
	}
	if is[*starlark.List](args[0]) {
		list := args[0].(*starlark.List)
		if err := m.work(list.Len() * bits.Len(uint(list.Len()))); err != nil {
			return nil, err
		}
		if !hasKey(named) {
			if err := m.compared(elements(list)); err != nil {
				return nil, err
			}
		}
		named = m.weighingKeys(named, list.Len())
	}
	return m.passed("sorted", args, named)
}

func hasKey(named []starlark.Tuple) bool {
	return slices.ContainsFunc(named, func(kv starlark.Tuple) bool { return kv[0] == starlark.String("key") })
}

// weighingKeys charges what a key function returns as it is compared with others.
func (m *meter) weighingKeys(named []starlark.Tuple, n int) []starlark.Tuple {
	out := make([]starlark.Tuple, len(named))
	for i, kv := range named {
		out[i] = kv
		key, ok := kv[1].(starlark.Callable)
		if kv[0] != starlark.String("key") || !ok {
			continue
		}
		out[i] = starlark.Tuple{kv[0], starlark.NewBuiltin(key.Name(), func(t *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
			v, err := starlark.Call(t, key, args, named)
			if err != nil || scalar(v) {
				return v, err
			}
			w, err := weigh(v, maxWeight)
			if err == nil {
				err = m.work(w * (1 + bits.Len(uint(n))))
			}
			return v, err
		})}
	}
	return out
}

func textOf(name string) function {
	return func(m *meter, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
		if err := m.format(0, args...); err != nil {
			return nil, err
		}
		return m.passed(name, args, named)
	}
}

// joined is the text of values with a blank between them.
func (m *meter) joined(args starlark.Tuple) (string, error) {
	if err := m.format(0, args...); err != nil {
		return "", err
	}
	var b strings.Builder
	for i, a := range args {
		if i > 0 {
			b.WriteByte(' ')
		}
		if s, ok := starlark.AsString(a); ok {
			b.WriteString(s)
		} else {
			b.WriteString(a.String())
		}
	}
	return b.String(), nil
}

func fail(m *meter, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
	text, err := m.joined(args)
	if err == nil {
		err = fmt.Errorf("fail: %s", text)
	}
	return nil, err
}

func printed(m *meter, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
	text, err := m.joined(args)
	if err == nil && m.thread.Print != nil {
		m.thread.Print(m.thread, text)
	}
	return starlark.None, err
}
