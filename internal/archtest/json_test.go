package archtest

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
)

// One decoder decides what strict JSON is. encoding/json alone takes names in any case, and twice.
func TestOneStrictDecoder(t *testing.T) {
	files := os.DirFS("../..")
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || path.Dir(name) == "internal/strictjson" {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err == nil && bytes.Contains(text, []byte("DisallowUnknownFields")) {
			t.Errorf("%s has a strict decoder of its own: use internal/strictjson", name)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
