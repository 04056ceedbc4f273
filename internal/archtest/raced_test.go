package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// goroutines returns where packages start goroutines, by the package's folder. Tests do not count.
func goroutines(files fs.FS) (map[string]token.Position, error) {
	found := map[string]token.Position{}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata/") {
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
				starts = ok && selector.Sel.Name == "Go"
			}
			if starts {
				found[path.Dir(name)] = positions.Position(n.Pos())
			}
			return true
		})
		return nil
	})
	return found, err
}

// racedElsewhere are packages with goroutines whose tests make race does not run, and why.
var racedElsewhere = map[string]string{
	"cmd/muster": "starts what other packages have", "cmd/muster/": "starts what other packages have", "demo": "starts processes, and waits for them", "node/assembly": "starts what node and ivm/daemon have",
	"examples/": "programs of users",
	"exp":       "sweeps of simulations, by internal/parallel", "exp/": "drive processes", "sim": "sweeps, by internal/parallel", "sim/": "sweeps, by internal/parallel",
	"head/whatifrun": "one simulation beside the caller", "campaign/": "drive processes",
	"internal/passthrough": "is run by exp and campaign/stack", "internal/testrun": "runs processes", "internal/browser": "reads a process's output", "slurm/emulate": "drives processes", "slurm/emulate/": "drive processes", "slurm/fetch": "reads a process's output",
	"ptx/simt": "its threads are tested by device/soft", "ptx/onekernel": "runs ptx/simt", "device/devicetest": "is run by device/soft",
}

func isRacedElsewhere(folder string) bool {
	for name := range racedElsewhere {
		if folder == name || strings.HasSuffix(name, "/") && strings.HasPrefix(folder, name) {
			return true
		}
	}
	return false
}

// make race runs packages that start goroutines under the race detector: the Makefile's RACED names
// them.
func TestPackagesWithGoroutinesRunUnderTheRaceDetector(t *testing.T) {
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^RACED := (.*)$`).FindSubmatch(text)
	if line == nil {
		t.Fatal("the Makefile has no RACED")
	}
	found, err := goroutines(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	raced := strings.Fields(string(line[1]))
	for folder, where := range found {
		if !slices.Contains(raced, folder) && !isRacedElsewhere(folder) {
			t.Errorf("%s: a goroutine: add %s to RACED in the Makefile", where, folder)
		}
	}
	for _, folder := range raced {
		if _, err := os.Stat("../../" + folder); err != nil {
			t.Errorf("RACED in the Makefile: %v", err)
		}
	}
}

func TestGoroutinesAreFound(t *testing.T) {
	for _, c := range []struct {
		file, text string
		found      bool
	}{
		{"node/p.go", "package p\nfunc f() { go f() }", true},
		{"node/p.go", "package p\nfunc f(g *sync.WaitGroup) { g.Go(f) }", true},
		{"node/p_test.go", "package p\nfunc f() { go f() }", false},
		{"node/p.go", "package p\nfunc f() { f() }", false},
	} {
		found, err := goroutines(fstest.MapFS{c.file: {Data: []byte(c.text)}})
		if _, is := found["node"]; err != nil || is != c.found {
			t.Errorf("%s, %q: %v, %v", c.file, c.text, found, err)
		}
	}
}
