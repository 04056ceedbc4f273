package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Errors are read by people who know no package: none begins with the name of its own, so nobody has
// to take one off. The library ivm is for programs of others, and says who it is, as such libraries
// do; so do panics, which are bugs.
func TestErrorsDoNotNameTheirPackage(t *testing.T) {
	err := fs.WalkDir(os.DirFS("../.."), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (path == ".git" || path == "bin" || path == "ivm" || entry.Name() == "testdata"):
			return fs.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, "../../"+path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			made, ok := call.Fun.(*ast.SelectorExpr)
			text, isText := call.Args[0].(*ast.BasicLit)
			if !ok || !isText || made.Sel.Name != "New" && made.Sel.Name != "Errorf" {
				return true
			}
			if said, _ := strconv.Unquote(text.Value); strings.HasPrefix(said, tree.Name.Name+": ") {
				t.Errorf("%s: the error begins with its package's name", set.Position(call.Pos()))
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
