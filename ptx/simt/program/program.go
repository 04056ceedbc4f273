// Package program turns the functions of a PTX module into instructions over slots of
// registers, and puts the code of a kernel together.
//
// It knows the instructions of PTX, what each does (Operation), which registers, numbers and
// data it needs (Inst), and what is not supported. It does not know how an instruction is run: no
// gang, no lane, no memory. Whoever runs a program has a function for each operation. The same
// module always gives the same code.
package program

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"

	"muster/ptx"
	"muster/ptx/reach"
	"muster/ptx/simt/shape"
)

// Program is a module with its variables at fixed addresses. Many goroutines may use it
// at the same time: only the code of functions is kept in it, under locks. It reads the
// module's tree as long as it is used, since code is made when an image is asked for.
type Program struct {
	file      string
	module    *ptx.Module
	kernels   []*Kernel
	globals   []Global
	constants []Global // those of globals, by address
	addresses map[*ptx.Variable]uint64
	functions map[*ptx.Function]uint64 // addresses of code

	units   []*unit
	unitOf  map[*ptx.Function]*unit
	anyone  *unit // the callee of indirect calls, which stands for all functions; see findUnits
	largest int   // bytes of the largest frame of a function

	instructions int // of all functions that kernels reach, each once

	digest func() [sha256.Size]byte // of the module
}

// Kernel is a kernel of a program.
type Kernel struct {
	Name      string
	Params    []Param // without hidden ones, which are zeros unless the caller gives all ParamSize bytes itself
	ParamSize int
	Shared    int       // static bytes a block
	Local     int       // bytes a thread, frames of called functions included where their depth is known
	Registers int       // of 32 bits, a thread, along the calls that need most
	MaxBlock  int       // threads of the largest block that the kernel accepts
	Required  shape.Dim // the only block that it accepts (.reqntid); zero if there are others
	Cluster   shape.Dim // the only cluster that it accepts (.reqnctapercluster); zero if there are others
	Recursive bool      // calls without a known depth: Launch.Stack bounds them
	Heap      bool      // may call malloc or free: Launch.Heap must be set

	program *Program
	unit    *unit
}

// Finding says what a kernel uses that is not supported; Errors is empty if it
// uses nothing of the kind.
type Finding struct {
	Kernel string
	Errors ptx.Errors
}

// Kernels returns the kernels in the order of the module.
func (p *Program) Kernels() []*Kernel { return p.kernels }

// Instructions returns how many instructions the functions have that kernels reach, each counted once.
func (p *Program) Instructions() int { return p.instructions }

// Globals returns the variables that must be in memory before a kernel runs.
func (p *Program) Globals() []Global { return p.globals }

// Load prepares a module to run. It calls place once for each variable in global
// or constant memory, in the order of the module, to learn where it lies. Load
// refuses everything that is not supported; Assemble never does. The code of a
// kernel is made then, so the caller must not change the module any more. If the text is to blame, the error is a ptx.Errors with at
// most maxErrors errors.
func Load(name string, m *ptx.Module, place func(v *ptx.Variable) (uint64, error)) (*Program, error) {
	p, err := link(name, m, place)
	if err != nil {
		return nil, err
	}
	p.examine()
	var errs ptx.Errors
	for _, u := range p.units {
		errs = append(errs, u.errs...)
	}
	if len(errs) > 0 {
		sort.SliceStable(errs, func(i, j int) bool { return errs[i].Line < errs[j].Line })
		return nil, errs[:min(len(errs), maxErrors)]
	}
	p.makeKernels()
	return p, nil
}

// maxErrors is how many errors of a kernel or a module are reported.
const maxErrors = 100

// examine lowers each function that a kernel reaches, to find what is not
// supported in it and what it needs. It keeps these facts and drops the code:
// most kernels of a module are never launched. Recursion must be known before,
// since a recursive function saves registers at its calls.
func (p *Program) examine() {
	p.findUnits()
	groups := p.groups()
	findRecursion(groups)
	var room []Op
	for _, u := range p.reached() {
		s, errs := lowerUnit(p, u, &room)
		if u.errs = errs; len(errs) > 0 {
			continue
		}
		u.frame, u.shared, u.carried, u.private, u.block = s.frame, s.shared, s.carried, s.private, s.block
		p.instructions += len(s.ops)
		if !u.f.Entry {
			p.largest = max(p.largest, u.frame)
		}
	}
	p.sumUp(groups)
	p.checkSizes()
}

// makeKernels describes the kernels.
func (p *Program) makeKernels() {
	for _, u := range p.units {
		if u == p.anyone || !u.f.Entry {
			continue
		}
		p.kernels = append(p.kernels, p.newKernel(u))
	}
}

// newKernel describes a kernel. It copies the name, which is a slice of the
// module's text: a caller that remembers the name must not keep all of the text
// in memory.
func (p *Program) newKernel(u *unit) *Kernel {
	f := u.f
	k := &Kernel{
		Name: strings.Clone(f.Name), ParamSize: f.ParamSize, Shared: u.sharedBytes, Local: u.depth, Recursive: !u.bounded,
		MaxBlock: u.block.most, Required: u.block.required, Cluster: u.block.cluster, Heap: u.anyHeap, program: p, unit: u,
	}
	for _, v := range f.Params {
		if !v.Hidden {
			k.Params = append(k.Params, Param{v.Offset, v.Size()})
		}
	}
	registers := u.registers
	if len(u.calls) > 0 {
		registers += 3 // frame and link
	}
	k.Registers = max(16, registers)
	return k
}

// Uses tells what memory the kernel uses, as far as its code says so.
func (k *Kernel) Uses() reach.Memory { return reach.Of(k.unit.f) }

// Sum identifies the kernel among the kernels of all modules: a saved state
// resumes only on the kernel with the same sum.
func (k *Kernel) Sum() [sha256.Size]byte {
	module := k.program.digest()
	return sha256.Sum256(append(module[:], k.Name...))
}

// Check says, kernel by kernel, what a module uses that is not supported.
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
	p.examine()
	var findings []Finding
	walks := marks{last: make([]int, len(p.units))}
	for _, u := range p.units {
		if u == p.anyone || !u.f.Entry {
			continue
		}
		found := Finding{Kernel: u.f.Name}
		if u.anyErrs {
			for _, below := range p.closure(u, walks.begin()) {
				found.Errors = append(found.Errors, below.errs...)
			}
			found.Errors = found.Errors[:min(len(found.Errors), maxErrors)]
		}
		findings = append(findings, found)
	}
	return findings, nil
}

// link gives variables and functions their addresses, then computes the initial
// bytes of the variables: these may hold addresses of any other variable, so all
// must be placed first. Addresses of functions lie in a window of their own,
// where no memory is.
func link(name string, m *ptx.Module, place func(v *ptx.Variable) (uint64, error)) (*Program, error) {
	fail := func(pos ptx.Pos, format string, args ...any) error {
		return ptx.Errors{{File: name, Pos: pos, Msg: fmt.Sprintf(format, args...)}}
	}
	if m.AddressSize != 64 {
		return nil, fail(ptx.Pos{Line: 1, Column: 1}, "addresses of %d bits are not supported: compile for a 64-bit target", m.AddressSize)
	}
	p := &Program{file: name, module: m, addresses: map[*ptx.Variable]uint64{}, functions: map[*ptx.Function]uint64{}}
	p.digest = sync.OnceValue(func() [sha256.Size]byte { return sha256.Sum256([]byte(m.String())) })
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
			continue // a declaration of a variable that is defined elsewhere in the module
		}
		if v.Linkage == ptx.Extern {
			// Unoptimised code takes addresses of variables that it never reads,
			// such as threadIdx. Their address is null: an access faults.
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
		g := Global{Name: strings.Clone(v.Name), Address: at, Data: data, Constant: v.Space == ptx.ConstSpace}
		p.globals = append(p.globals, g)
		if g.Constant {
			p.constants = append(p.constants, g)
		}
	}
	slices.SortFunc(p.constants, func(a, b Global) int { return cmp.Compare(a.Address, b.Address) })
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

// IsConstant says whether an address is in a constant variable.
func (k *Kernel) IsConstant(addr uint64) bool {
	all := k.program.constants
	i := sort.Search(len(all), func(i int) bool { return all[i].Address > addr }) - 1
	return i >= 0 && addr-all[i].Address < uint64(len(all[i].Data))
}

// SourceOf returns the source file and line of an instruction, or "".
func (k *Kernel) SourceOf(in *ptx.Instruction) string {
	if in.Loc == nil || in.Loc.Line == 0 {
		return ""
	}
	for _, item := range k.program.module.Items {
		if f, ok := item.(*ptx.File); ok && f.Number == in.Loc.File {
			return fmt.Sprintf("%s:%d", path.Base(f.Name), in.Loc.Line)
		}
	}
	return ""
}
