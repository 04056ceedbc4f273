package ptx

import "strconv"

// scope has the names declared in one pair of braces. Registers and variables must
// be declared before their use. Labels may come later, so a name that is no register or
// variable waits until the scope is complete.
type scope struct {
	parent   *scope
	names    map[string]Symbol
	families map[string]*RegisterDecl // %r<10> under %r
	// numbered has, for each prefix that a register of names has before a number, the lowest such
	// number as Count: with it declareRegister sees at once whether a family %r<N> would contain a
	// register that is already declared.
	numbered map[string]*RegisterDecl
	waiting  []reference
}

// reference is a use of a name that waits for its symbol.
type reference struct {
	name string
	pos  Pos
	into *Symbol
}

func newScope(parent *scope) *scope {
	return &scope{parent: parent, names: map[string]Symbol{}}
}

// family finds the declaration that a numbered name such as %r12 belongs to.
func (s *scope) family(name string) *RegisterDecl {
	if s.families == nil {
		return nil
	}
	for prefix, number := range splits(name) {
		if d := s.families[prefix]; d != nil && number < d.Count {
			return d
		}
	}
	return nil
}

// splits yields the ways to read a name as prefix and number: %f12 is %f and
// 12, or %f1 and 2. A number has no leading zeros and fits 31 bits.
func splits(name string) func(func(string, int) bool) {
	return func(yield func(string, int) bool) {
		for cut := len(name) - 1; cut > 0 && cut >= len(name)-10; cut-- {
			c := name[cut]
			if c < '0' || c > '9' {
				return
			}
			if c == '0' && cut != len(name)-1 {
				continue
			}
			number, err := strconv.ParseInt(name[cut:], 10, 32)
			if err != nil {
				return
			}
			if !yield(name[:cut], int(number)) {
				return
			}
		}
	}
}

// declare enters a name into a scope. The name _ is never entered: it means no variable.
func (p *parser) declare(s *scope, name string, symbol Symbol) {
	if name == "_" {
		return
	}
	if old := s.declared(name); old != nil {
		p.reportDuplicate(symbol.Position(), name, old.Position())
		return
	}
	s.names[name] = symbol
}

type positioned interface{ Position() Pos }

func (s *scope) declared(name string) positioned {
	if old := s.names[name]; old != nil {
		return old
	}
	if d := s.family(name); d != nil {
		return d
	}
	return nil
}

func (p *parser) reportDuplicate(pos Pos, name string, old Pos) {
	p.report(pos, "%s is already declared at line %d", quote(name), old.Line)
}

func (p *parser) declareRegister(s *scope, d *RegisterDecl) {
	if !d.Family {
		if d.Name == "_" {
			p.report(d.Pos, "a register cannot be called _")
			return
		}
		p.declare(s, d.Name, &Register{Name: d.Name, Index: -1, Type: d.Type, Vector: d.Vector, Decl: d, Pos: d.Pos})
		for prefix, number := range splits(d.Name) {
			if s.numbered == nil {
				s.numbered = map[string]*RegisterDecl{}
			}
			if old := s.numbered[prefix]; old == nil || number < old.Count {
				s.numbered[prefix] = &RegisterDecl{Pos: d.Pos, Count: number}
			}
		}
		return
	}
	if old := s.families[d.Name]; old != nil {
		p.reportDuplicate(d.Pos, d.Name+"<>", old.Pos)
		return
	}
	if old := s.numbered[d.Name]; old != nil && old.Count < d.Count {
		p.reportDuplicate(d.Pos, d.Name+strconv.Itoa(old.Count), old.Pos)
		return
	}
	if s.families == nil {
		s.families = map[string]*RegisterDecl{}
	}
	s.families[d.Name] = d
}

// lookup searches for a name from the innermost scope outwards. At a register's first use it makes the
// register, if it is one of a family, and gives it its index.
func (p *parser) lookup(name string) Symbol {
	for s := p.scope; s != nil; s = s.parent {
		found := s.names[name]
		if found == nil {
			d := s.family(name)
			if d == nil {
				continue
			}
			found = &Register{Name: name, Index: -1, Type: d.Type, Vector: d.Vector, Decl: d, Pos: d.Pos}
			s.names[name] = found
		}
		if r, ok := found.(*Register); ok && r.Index < 0 {
			r.Index = len(p.function.Registers)
			p.function.Registers = append(p.function.Registers, r)
		}
		return found
	}
	return nil
}

// resolve connects a name to its symbol, at once or when its scope is complete.
func (p *parser) resolve(name string, pos Pos, into *Symbol) {
	symbol := p.lookup(name)
	switch symbol.(type) {
	case *Register, *Variable:
		*into = symbol
	default: // a label of that name may still follow in this scope
		p.scope.waiting = append(p.scope.waiting, reference{name, pos, into})
	}
}

func (p *parser) resolveOperands(ops []Operand) {
	for i := range ops {
		p.resolveOperand(&ops[i])
	}
}

func (p *parser) resolveOperand(o *Operand) {
	p.resolveOperands(o.Elements)
	if o.Name == "" || o.Kind == SpecialOperand {
		return
	}
	switch found := p.lookup(o.Name).(type) {
	case *Register:
		o.Register = found
		if o.Offset != 0 && o.Kind == SymbolOperand {
			p.report(o.Pos, "expected a variable before the offset, found register %s", quote(o.Name))
		}
		if o.Kind == SymbolOperand {
			o.Kind = RegisterOperand
		}
		return
	case nil:
		if o.Kind == SymbolOperand && o.Offset == 0 && isSpecial(o.Name) {
			o.Kind = SpecialOperand
			return
		}
	}
	if o.Component != "" || o.Negated {
		p.report(o.Pos, "expected a register, found %s", quote(o.Name))
		return
	}
	p.resolve(o.Name, o.Pos, &o.Symbol)
}

// closeScope resolves the waiting names that the scope has declared, and passes the others to the
// enclosing scope.
func (p *parser) closeScope() {
	s := p.scope
	p.scope = s.parent
	for _, r := range s.waiting {
		switch found := s.names[r.name].(type) {
		case *Register, *Variable:
			p.report(r.pos, "%s is used before its declaration at line %d", quote(r.name), found.Position().Line)
		case nil:
			if s.parent != nil {
				s.parent.waiting = append(s.parent.waiting, r)
			} else {
				p.waiting = append(p.waiting, r)
			}
		default:
			*r.into = found
		}
	}
}

// resolveModule resolves the names that are left to the module's variables and functions.
func (p *parser) resolveModule() {
	for _, r := range p.waiting {
		found := p.module.symbols[r.name]
		if found == nil {
			p.report(r.pos, "%s is not declared", quote(r.name))
			continue
		}
		*r.into = found
	}
}

// declareModule enters a variable, function or alias; a definition replaces a declaration.
func (p *parser) declareModule(name string, symbol Symbol) {
	old := p.module.symbols[name]
	switch {
	case old == nil:
	case !sameSort(old, symbol) || defines(old) && defines(symbol):
		p.reportDuplicate(symbol.Position(), name, old.Position())
		return
	case !defines(symbol):
		return
	}
	p.module.symbols[name] = symbol
}

func sameSort(a, b Symbol) bool {
	switch a := a.(type) {
	case *Function:
		b, ok := b.(*Function)
		return ok && a.Entry == b.Entry
	case *Variable:
		b, ok := b.(*Variable)
		return ok && a.Space == b.Space
	}
	return false
}

func defines(s Symbol) bool {
	switch s := s.(type) {
	case *Function:
		return s.Defined
	case *Variable:
		return s.Linkage != Extern
	}
	return true
}

var specialNames = func() map[string]bool {
	m := map[string]bool{}
	for _, name := range []string{
		"tid", "ntid", "laneid", "warpid", "nwarpid", "ctaid", "nctaid", "smid", "nsmid", "gridid",
		"is_explicit_cluster", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid", "cluster_ctarank", "cluster_nctarank",
		"lanemask_eq", "lanemask_le", "lanemask_lt", "lanemask_ge", "lanemask_gt",
		"clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi",
		"reserved_smem_offset_begin", "reserved_smem_offset_end", "reserved_smem_offset_cap",
		"reserved_smem_offset_0", "reserved_smem_offset_1", "total_smem_size", "aggr_smem_size", "dynamic_smem_size",
		"current_graph_exec",
	} {
		m["%"+name] = true
	}
	for i := range 32 {
		m["%envreg"+strconv.Itoa(i)] = true
	}
	for i := range 8 {
		m["%pm"+strconv.Itoa(i)] = true
		m["%pm"+strconv.Itoa(i)+"_64"] = true
	}
	return m
}()

func isSpecial(name string) bool { return specialNames[name] }
