package archtest

import (
	"go/ast"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// What a reader can hold in mind: of a type so many methods, so many fields, of a package so many files. More is
// only for a type whose comment says what its many methods or fields are: one a call of an interface, say, or one
// a thing that a document tells.
var mostOf = map[string]int{"methods": 40, "fields": 25, "files": 25}

func TestNothingGrowsBeyondWhatAReaderHolds(t *testing.T) {
	packages, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	is, explained := map[string]int{}, map[string]bool{}
	for _, p := range packages {
		measure(p, is, explained)
	}
	for _, what := range slices.Sorted(maps.Keys(is)) {
		kind, _, _ := strings.Cut(what, " ")
		if is[what] > mostOf[kind] && !explained[what] {
			t.Errorf("%d %s: at most %d: give a part of it a type or a package of its own, or say in its comment what they are (\"Its many methods are ...\")", is[what], what, mostOf[kind])
		}
	}
}

var explains = map[string]*regexp.Regexp{
	"methods": regexp.MustCompile(`many methods (and fields )?are|a method for each`),
	"fields":  regexp.MustCompile(`many (methods and )?fields are|a field for each|is described in messages\.txt`),
}

// measure counts the methods and fields of a package's types, and its files, and finds the comments that
// explain them.
func measure(p sourcePackage, is map[string]int, explained map[string]bool) {
	for _, f := range p.files {
		if f.test {
			continue
		}
		is["files "+p.path]++
		for _, d := range f.tree.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv != nil {
					is["methods "+path.Join(p.path, receiver(d.Recv.List[0].Type))]++
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if named, ok := s.(*ast.TypeSpec); ok {
						for kind, words := range explains {
							explained[kind+" "+path.Join(p.path, named.Name.Name)] = words.MatchString(d.Doc.Text() + named.Doc.Text())
						}
						if fields, ok := named.Type.(*ast.StructType); ok {
							for _, f := range fields.Fields.List {
								is["fields "+path.Join(p.path, named.Name.Name)] += max(1, len(f.Names))
							}
						}
					}
				}
			}
		}
	}
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}
