package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// configurations lists where packages other than wire/trust make configurations of TLS: they would
// have to remember every check by themselves. Tests may.
func configurations(files fs.FS) ([]string, error) {
	var found []string
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || path.Dir(name) == "wire/trust" || strings.Contains(name, "testdata/") {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil || !strings.Contains(string(text), "crypto/tls") {
			return err
		}
		positions := token.NewFileSet()
		file, err := parser.ParseFile(positions, name, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, i := range file.Imports {
			if i.Path.Value == `"crypto/tls"` && i.Name != nil {
				found = append(found, fmt.Sprintf("%s: crypto/tls under another name: this test looks for tls.Config", positions.Position(i.Pos())))
			}
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if star, ok := n.(*ast.StarExpr); ok && isConfig(star.X) {
				return false // one that another package has made
			}
			if e, ok := n.(ast.Expr); ok && isConfig(e) {
				found = append(found, fmt.Sprintf("%s: a configuration of TLS: let wire/trust make it", positions.Position(n.Pos())))
			}
			return true
		})
		return nil
	})
	return found, err
}

// isConfig says whether an expression is the type tls.Config.
func isConfig(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, ok := s.X.(*ast.Ident)
	return ok && from.Name == "tls" && s.Sel.Name == "Config"
}

func TestOnePlaceConfiguresTLS(t *testing.T) {
	found, err := configurations(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		t.Error(f)
	}
	code := func(body string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("package a\nimport \"crypto/tls\"\nvar c = " + body)}
	}
	found, err = configurations(fstest.MapFS{
		"a/a.go": code("&tls.Config{MinVersion: 1}"), "b/b.go": code("new(tls.Config)"), "c/c.go": code("[]*tls.Config{nil}"),
		"a/a_test.go": code("&tls.Config{}"), "wire/trust/a.go": code("&tls.Config{}"),
		"d/d.go": code("struct{ c tls.Config }{}"), "e/e.go": {Data: []byte("package a\nimport other \"crypto/tls\"\nvar c other.Config")},
		"f/f.go": {Data: []byte("package a\nimport \"crypto/tls\"\nvar c tls.Config")},
	})
	var where []string
	for _, f := range found {
		where = append(where, f[:1])
	}
	if err != nil || !slices.Equal(where, []string{"a", "b", "d", "e", "f"}) {
		t.Errorf("%q, %v", found, err)
	}
}
