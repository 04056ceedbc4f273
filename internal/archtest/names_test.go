package archtest

import (
	"go/ast"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

var (
	quoted     = regexp.MustCompile("`([^`\n]+)`")
	sourceName = regexp.MustCompile(`^[a-z][\w-]*(/[\w.-]+)+\.(go|c|h|lua|txt|js)$`)
	ofPackage  = regexp.MustCompile(`^([a-z]\w*)\.([A-Z]\w*)(\(\))?$`)
)

// Texts that name sources go out of date when these change: each file that is quoted must be there, and each name
// of a package of ours must be declared in it.
func TestTextsNameWhatIsThere(t *testing.T) {
	packages, err := load(os.DirFS("../.."))
	if err != nil {
		t.Fatal(err)
	}
	declared := map[string]map[string]bool{} // by the last word of a package's path
	for _, p := range packages {
		name := path.Base(p.path)
		if declared[name] == nil {
			declared[name] = map[string]bool{}
		}
		for _, f := range p.files {
			declares(f.tree, declared[name])
		}
	}
	found := 0
	for _, name := range markdowns(t) {
		for _, m := range quoted.FindAllStringSubmatch(document(t, name), -1) {
			switch word := m[1]; {
			case sourceName.MatchString(word):
				if _, err := os.Stat("../../" + strings.SplitN(word, "/", 2)[0]); err != nil {
					continue // a folder of something else
				}
				if _, err := os.Stat("../../" + word); err != nil {
					t.Errorf("%s names %s, which is not there", name, word)
				}
				found++
			case ofPackage.MatchString(word):
				part := ofPackage.FindStringSubmatch(word)
				if names := declared[part[1]]; names != nil && !names[part[2]] {
					t.Errorf("%s names %s, and package %s declares no %s", name, word, part[1], part[2])
				}
				found++
			}
		}
	}
	if found < 100 {
		t.Errorf("%d names were found in all texts: are they still quoted with `?", found)
	}
}

// declares adds what a file declares at its top level.
func declares(f *ast.File, names map[string]bool) {
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names[d.Name.Name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					names[s.Name.Name] = true
				case *ast.ValueSpec:
					for _, n := range s.Names {
						names[n.Name] = true
					}
				}
			}
		}
	}
}
