package script

import (
	"fmt"

	"go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// function is a function of scripts that is written in Go. args and named are as the
// interpreter gives them.
type function func(m *meter, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error)

// guarded makes functions into values that a file can call.
func (m *meter) guarded(table map[string]function) starlark.StringDict {
	out := starlark.StringDict{}
	for name, f := range table {
		out[name] = starlark.NewBuiltin(name, func(_ *starlark.Thread, _ *starlark.Builtin, args starlark.Tuple, named []starlark.Tuple) (starlark.Value, error) {
			return f(m, args, named)
		})
	}
	return out
}

// operators are the guards that rewrite puts in the place of operations. They get as
// many arguments as it gives them.
var operators = map[string]function{
	guardTuple: func(m *meter, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		return m.tuple(args[0].(starlark.Tuple))
	},
	guardDict: func(m *meter, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		return args[0], m.alloc(dictBytes)
	},
	guardPairs: func(m *meter, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		list := args[0].(*starlark.List)
		if err := m.alloc(dictBytes + int64(list.Len())*pairBytes); err != nil {
			return nil, err
		}
		return m.dictOf(list)
	},
	guardKey: func(m *meter, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		if !is[*starlark.Dict](args[0]) {
			return args[1], nil
		}
		return args[1], m.mayInsert(args[0], args[1])
	},
	guardAssign: setElement,
	guardSlice: func(m *meter, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		return args[0], m.charge(max(0, starlark.Len(args[0])), valueBytes)
	},
	guardMethod: func(m *meter, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		return m.method(args[0], string(args[1].(starlark.String)))
	},
	guardArgs: func(m *meter, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		list, err := m.collect(args[0], maxArguments)
		return starlark.Tuple(list), err
	},
	guardNamed: guardNamedArguments,
}

// maxArguments is how many values a call may spread.
const maxArguments = 100

func init() {
	for op := syntax.PLUS; op <= syntax.GTGT; op++ {
		operators[guardOf(op)] = operator(op)
		operators["("+op.String()+guardInPlace+")"] = inPlace(op)
	}
	for _, op := range []syntax.Token{syntax.EQL, syntax.NEQ, syntax.LT, syntax.LE, syntax.GT, syntax.GE} {
		operators[guardOf(op)] = comparison(op)
	}
	operators[guardOf(syntax.IN)] = membership
	operators[guardSetIndex] = changeElement
}

func guardNamedArguments(m *meter, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
	d, ok := args[0].(*starlark.Dict)
	if !ok {
		return nil, fmt.Errorf("argument after ** must be a dictionary, not %s", args[0].Type())
	}
	if d.Len() > maxArguments {
		return nil, fmt.Errorf("%d arguments are too many: at most %d", d.Len(), maxArguments)
	}
	return d, m.charge(d.Len(), pairBytes)
}

// scalar says that comparing and adding a value costs a small constant: strings are
// bounded.
func scalar(v starlark.Value) bool {
	switch v.(type) {
	case starlark.Int, starlark.Float, starlark.String, starlark.Bool, starlark.NoneType, *Job, *libraryJobValue, *libraryNode:
		return true
	}
	return false
}

func comparison(op syntax.Token) function {
	return func(m *meter, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		x, y := args[0], args[1]
		if !scalar(x) && !scalar(y) {
			if _, err := m.weighed(x, y); err != nil {
				return nil, err
			}
		}
		ok, err := starlark.Compare(op, x, y)
		return starlark.Bool(ok), err
	}
}

// membership is the operator in: lists and tuples are searched from the front.
func membership(m *meter, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
	x, y := args[0], args[1]
	var err error
	switch y.(type) {
	case *starlark.List, starlark.Tuple:
		if err = m.work(starlark.Len(y)); err == nil && !scalar(x) {
			_, err = m.weighed(x, y)
		}
	case starlark.String:
		err = m.work(len(y.(starlark.String)) / 64)
	}
	if err != nil {
		return nil, err
	}
	return starlark.Binary(syntax.IN, x, y)
}

// operator guards x op y.
func operator(op syntax.Token) function {
	return func(m *meter, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		return m.binary(op, args[0], args[1])
	}
}

func (m *meter) binary(op syntax.Token, x, y starlark.Value) (starlark.Value, error) {
	if err := m.before(op, x, y); err != nil {
		return nil, err
	}
	z, err := starlark.Binary(op, x, y)
	if err != nil {
		return nil, err
	}
	return m.result(z)
}

// result refuses what is too large to be handed on.
func (m *meter) result(z starlark.Value) (starlark.Value, error) {
	switch z := z.(type) {
	case starlark.Int:
		return m.integer(z)
	case starlark.String:
		if len(z) > maxString {
			return nil, m.text(len(z))
		}
	case starlark.Tuple:
		return m.tuple(z)
	}
	return z, nil
}

func (m *meter) integer(z starlark.Int) (starlark.Value, error) {
	if _, small := z.Int64(); !small && z.BigInt().BitLen() > maxBits {
		return nil, fmt.Errorf("the number has more than %d bits", maxBits)
	}
	return z, nil
}

// before charges an operation by its operands, and refuses those whose result would
// be too large.
func (m *meter) before(op syntax.Token, x, y starlark.Value) error {
	switch x := x.(type) {
	case starlark.Int:
		if n, ok := repeated(op, y, x); ok {
			return m.repeat(y, n)
		}
		if op == syntax.LTLT {
			if n, err := starlark.AsInt32(y); err != nil || n > maxBits {
				return fmt.Errorf("a number cannot be shifted so far: it has at most %d bits", maxBits)
			}
		}
		return nil
	case starlark.String:
		if n, ok := repeated(op, x, y); ok {
			return m.repeat(x, n)
		}
		if s, ok := y.(starlark.String); ok && op == syntax.PLUS {
			return m.text(len(x) + len(s))
		}
		if op == syntax.PERCENT {
			return m.format(len(x), y)
		}
		return nil
	case *starlark.List, starlark.Tuple, starlark.Bytes:
		if n, ok := repeated(op, x, y); ok {
			return m.repeat(x, n)
		}
		return m.charge(max(0, starlark.Len(x))+max(0, starlark.Len(y)), valueBytes)
	case *starlark.Dict, *starlark.Set:
		if err := m.alloc(dictBytes); err != nil {
			return err
		}
		if err := m.charge(max(0, starlark.Len(x))+max(0, starlark.Len(y)), entryBytes); err != nil || !isTable(y) {
			return err
		}
		return m.mayMerge(x, y)
	}
	return nil
}

// repeated says that x op y repeats a sequence.
func repeated(op syntax.Token, sequence, times starlark.Value) (starlark.Int, bool) {
	n, ok := times.(starlark.Int)
	if !ok || op != syntax.STAR {
		return n, false
	}
	switch sequence.(type) {
	case starlark.String, starlark.Bytes, *starlark.List, starlark.Tuple:
		return n, true
	}
	return n, false
}

func (m *meter) repeat(sequence starlark.Value, times starlark.Int) error {
	n, err := starlark.AsInt32(times)
	switch l := int64(starlark.Len(sequence)); {
	case err != nil:
		return fmt.Errorf("repeated %s times: at most %d", times, maxWeight)
	case n <= 0 || l == 0:
		return nil
	case l > maxWeight*10/int64(n):
		return fmt.Errorf("%d times %d is too long: at most %d elements", n, l, maxWeight*10)
	default:
		n *= int(l)
	}
	if is[starlark.String](sequence) {
		return m.text(n)
	}
	return m.charge(n, valueBytes)
}

func is[T any](v starlark.Value) bool {
	_, ok := v.(T)
	return ok
}

// format charges a text that is made of a template and values.
func (m *meter) format(template int, values ...starlark.Value) error {
	n, err := m.weighed(values...)
	if err != nil {
		return err
	}
	// A part of a value is eight bytes of text, or a number, or what is around it.
	if n > maxString {
		return fmt.Errorf("the text would be too long: at most %d bytes", maxString)
	}
	return m.alloc(int64(template) + int64(n)*32)
}

// inPlace guards x op= y: lists grow where they are, and dictionaries, as elsewhere.
func inPlace(op syntax.Token) function {
	return func(m *meter, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
		return m.inPlace(op, args[0], args[1])
	}
}

func (m *meter) inPlace(op syntax.Token, x, y starlark.Value) (starlark.Value, error) {
	switch {
	case op == syntax.PLUS && is[*starlark.List](x) && is[starlark.Iterable](y):
		return x, m.extend(x.(*starlark.List), y)
	case op == syntax.PIPE && is[*starlark.Dict](x) && is[*starlark.Dict](y):
		d, more := x.(*starlark.Dict), y.(*starlark.Dict)
		if err := m.charge(more.Len(), entryBytes); err != nil {
			return nil, err
		}
		if err := m.mayMerge(d, more); err != nil {
			return nil, err
		}
		for k, v := range more.Entries() {
			if err := d.SetKey(k, v); err != nil {
				return nil, err
			}
		}
		return d, nil
	}
	return m.binary(op, x, y)
}

// extend appends what can be iterated over to a list.
func (m *meter) extend(list *starlark.List, y starlark.Value) error {
	more, err := m.collect(y, maxCollected)
	if err != nil {
		return err
	}
	for _, v := range more {
		if err := list.Append(v); err != nil {
			return err
		}
	}
	return nil
}

// changeElement is a[i] op= y.
func changeElement(m *meter, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
	name, a, i, y := string(args[0].(starlark.String)), args[1], args[2], args[3]
	apply := func(x starlark.Value) (starlark.Value, error) { return operators[name](m, starlark.Tuple{x, y}, nil) }
	switch a := a.(type) {
	case *starlark.Dict:
		x, found, err := a.Get(i)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, fmt.Errorf("key %s not in dict", i)
		}
		z, err := apply(x)
		if err != nil {
			return nil, err
		}
		return starlark.None, a.SetKey(i, z)
	case *starlark.List:
		n, err := indexOf(a, i)
		if err != nil {
			return nil, err
		}
		z, err := apply(a.Index(n))
		if err != nil {
			return nil, err
		}
		return starlark.None, a.SetIndex(n, z)
	}
	return nil, fmt.Errorf("elements of %s cannot be changed", a.Type())
}

// setElement is a[i] = y.
func setElement(m *meter, args starlark.Tuple, _ []starlark.Tuple) (starlark.Value, error) {
	switch a := args[0].(type) {
	case *starlark.Dict:
		return starlark.None, m.put(a, args[1], args[2])
	case *starlark.List:
		n, err := indexOf(a, args[1])
		if err != nil {
			return nil, err
		}
		return starlark.None, a.SetIndex(n, args[2])
	}
	return nil, fmt.Errorf("elements of %s cannot be changed", args[0].Type())
}

// indexOf is where an index of a list points to; negative ones count from its end.
func indexOf(list *starlark.List, i starlark.Value) (int, error) {
	n, err := starlark.AsInt32(i)
	if err != nil {
		return 0, fmt.Errorf("an index of a list is a number, not %s", i.Type())
	}
	if n < 0 {
		n += list.Len()
	}
	if n < 0 || n >= list.Len() {
		return 0, fmt.Errorf("index %s is out of range: the list has %d elements", i, list.Len())
	}
	return n, nil
}
