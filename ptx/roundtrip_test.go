package ptx

import (
	"fmt"
	"io/fs"
	"os"
	"reflect"
	"strings"
	"testing"
)

// difference compares two trees field by field, positions aside, and says
// where they first differ. It follows pointers in both trees in step, so that
// it also sees whether names were resolved to the same things.
func difference(a, b *Module) string {
	seen := map[[2]any]bool{}
	var walk func(path string, a, b reflect.Value) string
	walk = func(path string, a, b reflect.Value) string {
		if a.Type() != b.Type() {
			return fmt.Sprintf("%s: %s against %s", path, a.Type(), b.Type())
		}
		switch a.Kind() {
		case reflect.Pointer, reflect.Interface:
			if a.IsNil() || b.IsNil() {
				if a.IsNil() != b.IsNil() {
					return path + ": nil on one side"
				}
				return ""
			}
			if a.Kind() == reflect.Pointer {
				key := [2]any{a.Interface(), b.Interface()}
				if seen[key] {
					return ""
				}
				seen[key] = true
			}
			return walk(path, a.Elem(), b.Elem())
		case reflect.Struct:
			for i := range a.NumField() {
				f := a.Type().Field(i)
				if f.Type == reflect.TypeFor[Pos]() || !f.IsExported() {
					continue
				}
				if d := walk(path+"."+f.Name, a.Field(i), b.Field(i)); d != "" {
					return d
				}
			}
		case reflect.Slice, reflect.Array:
			if a.Len() != b.Len() {
				return fmt.Sprintf("%s: %d elements against %d", path, a.Len(), b.Len())
			}
			for i := range a.Len() {
				if d := walk(fmt.Sprintf("%s[%d]", path, i), a.Index(i), b.Index(i)); d != "" {
					return d
				}
			}
		default:
			if !a.Equal(b) {
				return fmt.Sprintf("%s: %v against %v", path, a, b)
			}
		}
		return ""
	}
	return walk("module", reflect.ValueOf(a), reflect.ValueOf(b))
}

// roundTrip prints a module and parses the text again, and returns how the result differs.
func roundTrip(m *Module) error {
	text := m.String()
	again, err := Parse("printed.ptx", text)
	if err != nil {
		return fmt.Errorf("what was printed cannot be read: %w\n%s", err, text)
	}
	if d := difference(m, again); d != "" {
		return fmt.Errorf("the tree changed at %s\n%s", d, text)
	}
	if second := again.String(); second != text {
		return fmt.Errorf("the text changed, from\n%s\nto\n%s", text, second)
	}
	return nil
}

// corpus returns all PTX files below testdata.
func corpus(t testing.TB) map[string]string {
	files := map[string]string{}
	root := os.DirFS("testdata")
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".ptx") {
			return err
		}
		text, err := fs.ReadFile(root, name)
		files[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no PTX files below testdata")
	}
	return files
}

func TestCompilerOutputRoundTrip(t *testing.T) {
	for name, text := range corpus(t) {
		t.Run(name, func(t *testing.T) {
			m, err := Parse(name, text)
			if err != nil {
				t.Fatal(err)
			}
			if err := roundTrip(m); err != nil {
				t.Fatal(err)
			}
		})
	}
}
