package simt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"sync"

	"muster/ptx"
)

// Program is a module, ready to run, with its variables at fixed addresses.
// It does not change any more and may be used by many executions at a time.
type Program struct {
	kernels   []*Kernel
	globals   []Global
	addresses map[*ptx.Variable]uint64
	functions map[*ptx.Function]uint64 // addresses of code
}

// Kernel is a kernel of a program.
type Kernel struct {
	Name      string
	Params    []Param // but hidden ones, which are zeros unless a launch gives all ParamSize bytes itself
	ParamSize int
	Shared    int  // static bytes a block
	Local     int  // bytes a thread, frames of called functions included where their depth is known
	Registers int  // of 32 bits, a thread
	MaxBlock  int  // threads of the largest block that the kernel accepts
	Required  Dim  // the only block that it accepts (.reqntid); zero if there are others
	Recursive bool // calls without a known depth: Launch.Stack bounds them

	program   *Program
	code      []inst
	entry     int32
	entries   map[uint64]int32 // address of a function -> its code
	constants []constant
	perBlock  []constant
	n32, n64  int // slots
	np        int
	carried   [predicate + 1][2]int32 // slots that carry values between basic blocks: first, and behind the last
	stack     bool                    // Launch.Stack is needed
	sum       [32]byte

	kept  sync.Mutex
	teams []*team // of launches that have ended
}

// Finding says what of a kernel is not supported; nothing if Errors is empty.
type Finding struct {
	Kernel string
	Errors ptx.Errors
}

// Kernels returns the kernels in the order of the module.
func (p *Program) Kernels() []*Kernel { return p.kernels }

// Kernel returns the kernel with a name, or nil.
func (p *Program) Kernel(name string) *Kernel {
	for _, k := range p.kernels {
		if k.Name == name {
			return k
		}
	}
	return nil
}

// Globals returns the variables that must be in memory before a kernel runs.
func (p *Program) Globals() []Global { return p.globals }

// Load prepares a module to run. Place says where each variable in global or
// constant memory lies; it is asked once for each, in the order of the module.
// All that is not supported is an error here, never later. The error is a
// ptx.Errors if the text is to blame.
func Load(name string, m *ptx.Module, place func(v *ptx.Variable) (uint64, error)) (*Program, error) {
	p, err := link(name, m, place)
	if err != nil {
		return nil, err
	}
	var errs ptx.Errors
	seen := map[ptx.Error]bool{}
	for _, f := range m.Functions {
		if !f.Entry || !f.Defined {
			continue
		}
		k, kerrs := lowerKernel(p, name, m, f)
		for _, e := range kerrs {
			if !seen[*e] { // kernels share functions
				seen[*e] = true
				errs = append(errs, e)
			}
		}
		p.kernels = append(p.kernels, k)
	}
	if len(errs) > 0 {
		sort.SliceStable(errs, func(i, j int) bool { return errs[i].Line < errs[j].Line })
		return nil, errs
	}
	return p, nil
}

// Check says, kernel by kernel, what of a module is not supported.
func Check(name string, m *ptx.Module) ([]Finding, error) {
	next := uint64(1 << 32)
	p, err := link(name, m, func(v *ptx.Variable) (uint64, error) {
		next = (next + uint64(v.Alignment()) - 1) &^ (uint64(v.Alignment()) - 1)
		at := next
		next += uint64(v.Size())
		return at, nil
	})
	if err != nil {
		return nil, err
	}
	var findings []Finding
	for _, f := range m.Functions {
		if f.Entry && f.Defined {
			_, errs := lowerKernel(p, name, m, f)
			findings = append(findings, Finding{f.Name, errs})
		}
	}
	return findings, nil
}

// link gives variables and functions their addresses.
func link(name string, m *ptx.Module, place func(v *ptx.Variable) (uint64, error)) (*Program, error) {
	fail := func(pos ptx.Pos, format string, args ...any) error {
		return ptx.Errors{{File: name, Pos: pos, Msg: fmt.Sprintf(format, args...)}}
	}
	if m.AddressSize != 64 {
		return nil, fail(ptx.Pos{Line: 1, Column: 1}, "addresses of %d bits are not supported: compile for a 64-bit target", m.AddressSize)
	}
	p := &Program{addresses: map[*ptx.Variable]uint64{}, functions: map[*ptx.Function]uint64{}}
	for i, f := range m.Functions {
		if f.Defined && !f.Entry {
			p.functions[f] = codeWindow + uint64(i+1)*16
		}
	}
	for _, v := range m.Variables {
		if v.Space != ptx.GlobalSpace && v.Space != ptx.ConstSpace {
			continue
		}
		if def, _ := m.Lookup(v.Name).(*ptx.Variable); def != v {
			continue // a declaration of what is defined elsewhere
		}
		if v.Linkage == ptx.Extern {
			// Unoptimised code takes the address of what it never touches, such
			// as threadIdx. The null address faults if anything is read there.
			p.addresses[v] = 0
			continue
		}
		at, err := place(v)
		if err != nil {
			return nil, fmt.Errorf("%s: variable %s: %w", name, v.Name, err)
		}
		if at%uint64(v.Alignment()) != 0 || at >= GlobalEnd || uint64(v.Size()) > GlobalEnd-at {
			return nil, fmt.Errorf("%s: variable %s cannot lie at %#x", name, v.Name, at)
		}
		p.addresses[v] = at
	}
	for _, v := range m.Variables {
		at, ok := p.addresses[v]
		if !ok || v.Linkage == ptx.Extern {
			continue
		}
		data, err := p.initial(m, v)
		if err != nil {
			return nil, fail(v.Pos, "%s", err)
		}
		p.globals = append(p.globals, Global{Name: v.Name, Address: at, Data: data, Constant: v.Space == ptx.ConstSpace})
	}
	return p, nil
}

// initial returns the first bytes of a variable with addresses filled in.
func (p *Program) initial(m *ptx.Module, v *ptx.Variable) ([]byte, error) {
	data, relocations, err := v.Data()
	if err != nil {
		return nil, err
	}
	for _, r := range relocations {
		at, err := p.address(m, r.Symbol)
		if err != nil {
			return nil, fmt.Errorf("initial value of %s: %w", v.Name, err)
		}
		at += uint64(r.Addend)
		if r.Mask != 0 {
			at = at & r.Mask >> r.Shift
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], at)
		copy(data[r.Offset:][:r.Size], b[:])
	}
	return data, nil
}

// address returns the address of a variable in global memory or of a function.
func (p *Program) address(m *ptx.Module, s ptx.Symbol) (uint64, error) {
	switch def := m.Lookup(s.SymbolName()).(type) {
	case *ptx.Variable:
		if at, ok := p.addresses[def]; ok {
			return at, nil
		}
		return 0, fmt.Errorf("%s is in %v memory and has no address before the launch", def.Name, def.Space)
	case *ptx.Function, *ptx.Alias:
		if f := m.Function(s.SymbolName()); f != nil && p.functions[f] != 0 {
			return p.functions[f], nil
		}
	}
	return 0, errors.New(s.SymbolName() + " is not defined in this module")
}

// isConstant says whether an address is in a constant variable.
func (k *Kernel) isConstant(addr uint64) bool {
	for _, v := range k.program.globals {
		if v.Constant && addr-v.Address < uint64(len(v.Data)) {
			return true
		}
	}
	return false
}
