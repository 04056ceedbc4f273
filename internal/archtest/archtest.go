// Package archtest enforces the architecture: on which floor each folder stands, which packages must
// not know which, which stay pure, where third-party modules may be used, and that every package says
// what it is for.
//
// The rules are data in its test; this file parses them and checks source files against them. It
// checks every file, whatever its build tags.
package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// sourcePackage is a folder with Go files.
type sourcePackage struct {
	path  string // relative to the module: "policy/easy"
	files []sourceFile
}

type sourceFile struct {
	path string
	test bool
	tree *ast.File
	set  *token.FileSet
}

// load parses all packages of a module.
func load(root fs.FS) ([]sourcePackage, error) {
	byPath := map[string]*sourcePackage{}
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := d.Name()
			if base == "testdata" || base == "vendor" || (name != "." && strings.HasPrefix(base, ".")) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, name, text, parser.ParseComments)
		if err != nil {
			return err
		}
		dir := path.Dir(name)
		if byPath[dir] == nil {
			byPath[dir] = &sourcePackage{path: dir}
		}
		byPath[dir].files = append(byPath[dir].files, sourceFile{name, strings.HasSuffix(name, "_test.go"), tree, set})
		return nil
	})
	if err != nil {
		return nil, err
	}
	var all []sourcePackage
	for _, p := range slices.Sorted(maps.Keys(byPath)) {
		all = append(all, *byPath[p])
	}
	return all, nil
}

// rules say what the packages of a module may do.
type rules struct {
	module string
	// floors has the number of each top folder's floor.
	floors map[string]int
	// ignorance lists who must not know whom, beyond what the floors say.
	ignorance []ignorance
	pure      []string
	// thirdParty says for each module path which packages may use it, and whether only their tests.
	thirdParty []foreign
}

// ignorance is a rule that some packages import none of others, directly or through packages between.
type ignorance struct{ who, of, except []string }

type foreign struct {
	module    string
	testsOnly bool
	users     []string
}

// parseRules parses the rules from their text form, which is explained beside them.
func parseRules(floors, text string) (*rules, error) {
	r := &rules{floors: map[string]int{}}
	floor := 0
	for i, line := range strings.Split(strings.TrimSpace(floors), "\n") {
		fields := strings.Fields(line)
		if n, err := strconv.Atoi(fields[0]); err == nil {
			floor, fields = n, fields[1:]
		}
		if floor == 0 || len(fields) < 2 {
			return nil, fmt.Errorf("floors, line %d: want: [FLOOR] FOLDER SENTENCE", i+1)
		}
		r.floors[fields[0]] = floor
	}
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		who, of, knows := strings.Cut(line, " know no ")
		switch {
		case knows:
			of, except, _ := strings.Cut(of, " except ")
			r.ignorance = append(r.ignorance, ignorance{names(who), names(of), names(except)})
		case word == "module":
			r.module = strings.TrimSpace(rest)
		case word == "pure:":
			r.pure = append(r.pure, names(rest)...)
		case word == "use" || word == "test":
			module, users, ok := strings.Cut(rest, ":")
			if !ok {
				return nil, fmt.Errorf("line %d: want: %s MODULE: PACKAGES", i+1, word)
			}
			r.thirdParty = append(r.thirdParty, foreign{strings.TrimSpace(module), word == "test", names(users)})
		default:
			return nil, fmt.Errorf("line %d: not understood: %s", i+1, line)
		}
	}
	return r, nil
}

func names(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' })
}

// matches says whether a pattern includes a package: "policy/*" includes all packages below policy,
// "everything" all.
func matches(pattern, pkg string) bool {
	if dir, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(pkg, dir) && len(pkg) > len(dir)
	}
	return pattern == pkg || pattern == "everything"
}

func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, pkg) })
}

// folder is the top folder of a package.
func folder(pkg string) string {
	top, _, _ := strings.Cut(pkg, "/")
	return top
}

// mayImport says whether an import stays in its folder or points to a lower floor.
func (r *rules) mayImport(pkg, imported string) bool {
	below, known := r.floors[folder(imported)]
	return folder(pkg) == folder(imported) || known && below < r.floors[folder(pkg)]
}

// check lists every way in which the packages break the rules.
func (r *rules) check(packages []sourcePackage) []string {
	var broken []string
	for _, p := range packages {
		if r.floors[folder(p.path)] == 0 {
			broken = append(broken, fmt.Sprintf("%s: its folder has no floor: decide which", p.path))
		}
		if !hasComment(p) {
			broken = append(broken, fmt.Sprintf("%s: the package has no comment: begin one with \"// Package NAME\" (or \"// Command NAME\") that says what it is for", p.path))
		}
		for _, f := range p.files {
			broken = append(broken, r.checkImports(p.path, f)...)
			if !f.test && matchesAny(r.pure, p.path) {
				broken = append(broken, impure(f)...)
			}
		}
	}
	return append(broken, r.checkIgnorance(packages)...)
}

// checkIgnorance lists the packages that know what they must not, with the way by which they do.
func (r *rules) checkIgnorance(packages []sourcePackage) []string {
	imports := map[string][]string{}
	for _, p := range packages {
		for _, f := range p.files {
			for _, spec := range f.tree.Imports {
				if inside, own := strings.CutPrefix(importPath(spec), r.module+"/"); own && !f.test {
					imports[p.path] = append(imports[p.path], inside)
				}
			}
		}
	}
	var broken []string
	for _, p := range packages {
		ways := waysFrom(p.path, imports)
		for _, rule := range r.ignorance {
			if !matchesAny(rule.who, p.path) || matchesAny(rule.except, p.path) {
				continue
			}
			for _, known := range slices.Sorted(maps.Keys(ways)) {
				if known != p.path && matchesAny(rule.of, known) && !matchesAny(rule.except, known) {
					broken = append(broken, fmt.Sprintf("%s must not know %s: %s", p.path, known, strings.Join(ways[known], " imports ")))
				}
			}
		}
	}
	return broken
}

// waysFrom has a shortest way to each package that one imports, directly or not.
func waysFrom(pkg string, imports map[string][]string) map[string][]string {
	ways := map[string][]string{pkg: {pkg}}
	for todo := []string{pkg}; len(todo) > 0; todo = todo[1:] {
		for _, next := range imports[todo[0]] {
			if ways[next] == nil {
				ways[next] = append(slices.Clone(ways[todo[0]]), next)
				todo = append(todo, next)
			}
		}
	}
	return ways
}

func hasComment(p sourcePackage) bool {
	return slices.ContainsFunc(p.files, func(f sourceFile) bool {
		if f.tree.Doc == nil {
			return false
		}
		words := strings.Fields(f.tree.Doc.Text())
		if len(words) < 3 {
			return false
		}
		name := strings.TrimRight(words[1], ".,:;")
		switch words[0] {
		case "Package":
			return name == f.tree.Name.Name
		case "Command":
			return f.tree.Name.Name == "main" && name == path.Base(p.path)
		}
		return false
	})
}

func (r *rules) checkImports(pkg string, f sourceFile) []string {
	var broken []string
	report := func(spec *ast.ImportSpec, format string, args ...any) {
		broken = append(broken, fmt.Sprintf("%s: %s", f.set.Position(spec.Pos()), fmt.Sprintf(format, args...)))
	}
	for _, spec := range f.tree.Imports {
		imported := importPath(spec)
		first, _, _ := strings.Cut(imported, "/")
		inside, own := strings.CutPrefix(imported, r.module+"/")
		switch {
		case own && f.test:
			// A test may import anything.
		case own:
			if !r.mayImport(pkg, inside) {
				report(spec, "%s must not import %s: imports point to lower floors", pkg, inside)
			}
		case strings.Contains(first, "."):
			if why := r.foreignImport(pkg, f.test, imported); why != "" {
				report(spec, "%s", why)
			}
		}
	}
	return broken
}

// foreignImport says what is wrong with an import of another module; "" if nothing, or if one of several
// rules about the module allows it.
func (r *rules) foreignImport(pkg string, test bool, imported string) string {
	wrong := fmt.Sprintf("%s is no module that was chosen", imported)
	for _, m := range r.thirdParty {
		switch {
		case imported != m.module && !strings.HasPrefix(imported, m.module+"/"):
		case m.testsOnly && !test:
			wrong = fmt.Sprintf("%s is for tests only", m.module)
		case !matchesAny(m.users, pkg):
			wrong = fmt.Sprintf("%s must not use %s: only %s may", pkg, m.module, strings.Join(m.users, ", "))
		default:
			return ""
		}
	}
	return wrong
}

func importPath(spec *ast.ImportSpec) string {
	p, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return spec.Path.Value // the parser has already refused it
	}
	return p
}

// effects are the packages with side effects and randomness.
var effects = []string{"os", "net", "log", "sync", "syscall", "crypto/rand"}

// clock lists the functions of package time that read or wait for the clock.
var clock = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

// seeded lists what may be used of math/rand: everything else draws from a source that the caller
// did not pass in.
var seeded = []string{"New", "NewSource", "NewPCG", "NewChaCha8", "NewZipf", "Rand", "Source", "Source64", "PCG", "ChaCha8", "Zipf"}

// impure lists the uses of effects, clocks and unseeded randomness in a file.
func impure(f sourceFile) []string {
	var broken []string
	report := func(pos token.Pos, format string, args ...any) {
		broken = append(broken, fmt.Sprintf("%s: a pure package must not %s", f.set.Position(pos), fmt.Sprintf(format, args...)))
	}
	watched := map[string]string{} // the name in this file -> time or rand
	for _, spec := range f.tree.Imports {
		imported := importPath(spec)
		for _, e := range effects {
			if imported == e || strings.HasPrefix(imported, e+"/") {
				report(spec.Pos(), "import %s", imported)
			}
		}
		what := ""
		switch imported {
		case "time":
			what = "time"
		case "math/rand", "math/rand/v2":
			what = "rand"
		default:
			continue
		}
		name := what
		if spec.Name != nil {
			name = spec.Name.Name
		}
		if name == "." {
			report(spec.Pos(), "import %s with a dot", imported)
		}
		watched[name] = what
	}
	ast.Inspect(f.tree, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok || x.Obj != nil { // an Obj is a variable that shadows the package
			return true
		}
		switch what := watched[x.Name]; {
		case what == "time" && slices.Contains(clock, sel.Sel.Name):
			report(sel.Pos(), "read the clock (time.%s): take the time as an argument", sel.Sel.Name)
		case what == "rand" && !slices.Contains(seeded, sel.Sel.Name):
			report(sel.Pos(), "use the global rand.%s: take a *rand.Rand as an argument", sel.Sel.Name)
		}
		return true
	})
	return broken
}
