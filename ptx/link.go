package ptx

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Input is a PTX text to link with others.
type Input struct{ Name, Text string }

// LinkError says why inputs that are valid on their own cannot be linked.
type LinkError struct{ Lines []string }

// Error returns one line for each problem.
func (e *LinkError) Error() string { return strings.Join(e.Lines, "\n") }

// Link makes one module of several. A name that one input declares as .extern refers to what
// another defines as .visible, .weak or .common. Names that are private to an input are changed
// if another input has them too. Line numbers are those of the linked module's own
// text (String). Errors in single inputs are Errors, others a *LinkError.
//
// A module linked from several inputs is printed and parsed again, so that all its names are
// resolved anew.
//
// With stubs, Link gives functions that no input defines an empty body. Loading such a module
// shows whether its inputs are valid; it must not be run.
func Link(inputs []Input, stubs bool) (*Module, error) {
	l := linker{first: map[string]definition{}}
	for _, in := range inputs {
		m, err := Parse(in.Name, in.Text)
		if err != nil {
			return nil, err
		}
		l.modules = append(l.modules, m)
	}
	if len(inputs) == 1 && !stubs {
		return l.modules[0], nil
	}
	l.separate()
	for i, m := range l.modules {
		for _, item := range m.Items {
			l.define(inputs[i].Name, item)
		}
	}
	merged := l.merge(stubs)
	if len(l.wrong.Lines) > 0 {
		return nil, &l.wrong
	}
	return Parse("linked.ptx", merged.String())
}

type linker struct {
	modules []*Module
	first   map[string]definition // shared names: the definition so far, or else the first declaration
	wrong   LinkError
}

// definition is the symbol of a name in the linked module, and the input that it comes from.
type definition struct {
	symbol Symbol
	input  string
}

func (l *linker) fail(format string, args ...any) {
	if len(l.wrong.Lines) < maxErrors {
		l.wrong.Lines = append(l.wrong.Lines, fmt.Sprintf(format, args...))
	}
}

// separate renames private symbols whose name another module uses too.
func (l *linker) separate() {
	users := map[string]int{}
	for _, m := range l.modules {
		for name := range m.symbols {
			users[name]++
		}
	}
	for i, m := range l.modules {
		renamed := map[string]string{}
		for name, symbol := range m.symbols {
			if users[name] < 2 || !private(symbol) {
				continue
			}
			fresh := name + "$" + strconv.Itoa(i)
			for users[fresh] > 0 {
				fresh += "$"
			}
			users[fresh]++
			renamed[name] = fresh
		}
		if len(renamed) > 0 {
			rename(m, renamed)
		}
	}
}

// private says whether a symbol is visible only in its own module. Kernels are visible to all.
func private(s Symbol) bool {
	switch s := s.(type) {
	case *Function:
		return s.Linkage == Internal && !s.Entry
	case *Variable:
		return s.Linkage == Internal
	case *Alias:
		f, _ := s.Target.(*Function)
		return f != nil && private(f)
	}
	return false
}

// define enters what an item declares or defines. Of two definitions one must be .weak or .common;
// it becomes a declaration. Of two such variables the larger stays, else the first.
func (l *linker) define(input string, item Item) {
	symbol, ok := item.(Symbol)
	if !ok || private(symbol) {
		return
	}
	name := symbol.SymbolName()
	old, known := l.first[name]
	if known && !sameSort(old.symbol, symbol) {
		if _, alias := symbol.(*Alias); !alias {
			l.fail("'%s' in '%s' is of another kind than in '%s'", name, input, old.input)
			return
		}
	}
	if known && !agree(old.symbol, symbol) {
		l.fail("'%s' in '%s' does not match '%s'", name, input, old.input)
		return
	}
	switch {
	case !known || defines(symbol) && !defines(old.symbol):
		l.first[name] = definition{symbol, input}
	case !defines(symbol):
	case replaceable(symbol) && !(replaceable(old.symbol) && larger(symbol, old.symbol)):
		undefine(symbol)
	case replaceable(old.symbol):
		undefine(old.symbol)
		l.first[name] = definition{symbol, input}
	default:
		l.fail("multiple definition of '%s' in '%s', first defined in '%s'", name, input, old.input)
	}
}

// agree says whether two declarations can refer to the same thing.
func agree(a, b Symbol) bool {
	switch a := a.(type) {
	case *Function:
		b, ok := b.(*Function)
		return !ok || a.Entry || sameSizes(a.Returns, b.Returns) && sameSizes(a.Params, b.Params)
	case *Variable:
		b, ok := b.(*Variable)
		return !ok || a.Open() || b.Open() || a.Linkage == Common || b.Linkage == Common || a.Size() == b.Size()
	}
	return true
}

func sameSizes(a, b []*Variable) bool {
	return slices.EqualFunc(a, b, func(a, b *Variable) bool { return a.Size() == b.Size() })
}

// replaceable says whether another definition may replace this one.
func replaceable(s Symbol) bool {
	switch s := s.(type) {
	case *Function:
		return s.Linkage == Weak
	case *Variable:
		return s.Linkage == Weak || s.Linkage == Common
	}
	return false
}

// larger says whether both are variables and a has more bytes.
func larger(a, b Symbol) bool {
	x, _ := a.(*Variable)
	y, _ := b.(*Variable)
	return x != nil && y != nil && x.Size() > y.Size()
}

// undefine turns a definition into a declaration.
func undefine(s Symbol) {
	switch s := s.(type) {
	case *Function:
		s.Linkage, s.Defined, s.Body, s.Directives = Extern, false, nil, nil
	case *Variable:
		s.Linkage, s.Init = Extern, nil
	}
}

// merge concatenates the modules. It leaves out tables of source files and debugging
// information, whose numbers are valid in one module only, and declarations of kernels.
func (l *linker) merge(stubs bool) *Module {
	merged := &Module{AddressSize: l.modules[0].AddressSize}
	for _, m := range l.modules {
		if m.AddressSize != merged.AddressSize {
			l.fail("addresses of %d and of %d bits", merged.AddressSize, m.AddressSize)
		}
		if v := m.Version; v.Major > merged.Version.Major || v.Major == merged.Version.Major && v.Minor > merged.Version.Minor {
			merged.Version = v
		}
		if len(merged.Targets) == 0 || arch(m) > arch(merged) {
			merged.Targets = m.Targets
		}
	}
	for _, m := range l.modules {
		for _, item := range m.Items {
			switch item := item.(type) {
			case *Variable:
				merged.Items = append(merged.Items, item)
			case *Function:
				if !item.Entry || item.Defined {
					merged.Items = append(merged.Items, item)
				}
			case *Alias:
				merged.Items = append(merged.Items, item)
			}
		}
	}
	if stubs {
		for _, name := range slices.Sorted(maps.Keys(l.first)) {
			if f, ok := l.first[name].symbol.(*Function); ok && !f.Defined && !f.Entry {
				stub := *f
				stub.Linkage, stub.Defined, stub.Body = Visible, true, []Statement{&Instruction{Opcode: "ret"}}
				merged.Items = append(merged.Items, &stub)
			}
		}
	}
	return merged
}

// arch returns 90 for sm_90a, and 0 for other names.
func arch(m *Module) int {
	if len(m.Targets) == 0 {
		return 0
	}
	digits := strings.TrimRight(strings.TrimPrefix(m.Targets[0], "sm_"), "abcdefghijklmnopqrstuvwxyz")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 0
	}
	return n
}

// rename changes the names of module-level symbols, where they are declared and where they are used.
func rename(m *Module, names map[string]string) {
	r := renamer(names)
	for _, item := range m.Items {
		switch item := item.(type) {
		case *Variable:
			r.name(&item.Name)
			r.value(item.Init)
		case *Function:
			r.name(&item.Name)
			r.body(item.Body)
		case *Alias:
			r.name(&item.Name)
			r.name(&item.TargetName)
		}
	}
}

type renamer map[string]string

func (r renamer) name(name *string) {
	if fresh, ok := r[*name]; ok {
		*name = fresh
	}
}

func (r renamer) value(v *Value) {
	if v == nil {
		return
	}
	if v.Kind == SymbolValue {
		r.name(&v.Name)
	}
	for i := range v.Elements {
		r.value(&v.Elements[i])
	}
}

func (r renamer) body(all []Statement) {
	for _, s := range all {
		switch s := s.(type) {
		case *Instruction:
			r.operands(s.Operands)
		case *Variable:
			r.value(s.Init)
		case *Block:
			r.body(s.Body)
		case *TargetList:
			r.operands(s.Targets)
		}
	}
}

func (r renamer) operands(all []Operand) {
	for i := range all {
		o := &all[i]
		if ofModule(o.Symbol) {
			r.name(&o.Name)
		}
		r.operands(o.Elements)
	}
}

// ofModule says whether a name belongs to the module, not to a function's body.
func ofModule(s Symbol) bool {
	switch s := s.(type) {
	case *Variable:
		return s.Function == nil
	case *Function, *Alias:
		return true
	}
	return false
}
