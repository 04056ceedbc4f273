package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

// goroutines lists where packages start goroutines, including their tests. Patterns are those of
// make: % stands for anything.
func goroutines(files fs.FS, patterns []string) ([]string, error) {
	var found []string
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".go" || strings.Contains(name, "testdata/") || !isOneOf(path.Dir(name), patterns) {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		positions := token.NewFileSet()
		file, err := parser.ParseFile(positions, name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			call, isCall := n.(*ast.CallExpr)
			_, starts := n.(*ast.GoStmt)
			if isCall {
				selector, ok := call.Fun.(*ast.SelectorExpr)
				starts = ok && (selector.Sel.Name == "Go" || selector.Sel.Name == "Parallel" || selector.Sel.Name == "RunParallel")
			}
			if starts {
				found = append(found, fmt.Sprintf("%s: a goroutine: take the package out of RACELESS in the Makefile", positions.Position(n.Pos())))
			}
			return true
		})
		return nil
	})
	return found, err
}

func isOneOf(folder string, patterns []string) bool {
	for _, p := range patterns {
		before, _, any := strings.Cut(p, "%")
		if folder == p || any && strings.HasPrefix(folder, before) {
			return true
		}
	}
	return false
}

// make test does not run packages under the race detector that have no goroutines: there
// must be none. The Makefile's first line with RACELESS names them; its second names
// those that test something else than Go.
func TestPackagesWithoutRaceDetectorHaveNoGoroutines(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^RACELESS := (.*)$`).FindSubmatch(text)
	if line == nil {
		t.Fatal("the Makefile has no RACELESS")
	}
	found, err := goroutines(os.DirFS("../.."), strings.Fields(string(line[1])))
	if err != nil {
		t.Fatal(err)
	}
	for _, where := range found {
		t.Error(where)
	}
}

func TestGoroutinesAreFound(t *testing.T) {
	for _, c := range []struct {
		file, text string
		found      bool
	}{
		{"policy/p.go", "package p\nfunc f() { go f() }", true},
		{"policy/easy/p.go", "package p\nfunc f() { go f() }", true},
		{"policy/p_test.go", "package p\nfunc f(t *testing.T) { t.Parallel() }", true},
		{"policy/p.go", "package p\nfunc f(g *sync.WaitGroup) { g.Go(f) }", true},
		{"policy/p.go", "package p\nfunc f() { f() }", false},
		{"policyfile/p.go", "package p\nfunc f() { go f() }", false},
	} {
		found, err := goroutines(fstest.MapFS{c.file: {Data: []byte(c.text)}}, []string{"policy", "policy/%"})
		if err != nil || (len(found) > 0) != c.found {
			t.Errorf("%s, %q: %v, %v", c.file, c.text, found, err)
		}
	}
}
