package recordfile

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(at(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("earlier", "{\"it\": 1}\n", 0o600)
	write("thesis", "Once upon a time", 0o600)
	write("short", "{", 0o600)
	write("shared", "{\"it\": 1}\n", 0o666)
	if err := os.Symlink(at("earlier"), at("link")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(at("pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"new": "", "earlier": "", "thesis": "is no recording, so it is not replaced", "short": "is no recording", "shared": "or a folder of the node's own",
		"link": "is no ordinary file", "pipe": "is no ordinary file", "nowhere/file": "no such file",
	} {
		file, err := Open(at(name), `{"it":`, "node")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
		if err != nil {
			continue
		}
		if info, err := file.Stat(); err != nil || info.Size() != 0 || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: it is not empty, or others may read it: %v, %v", name, info, err)
		}
		if _, err := Open(at(name), `{"it":`, "node"); err == nil || !strings.Contains(err.Error(), "another node records to") {
			t.Errorf("%s: two record to it: %v", name, err)
		}
		file.Close()
	}
	if text, err := os.ReadFile(at("thesis")); err != nil || string(text) != "Once upon a time" {
		t.Errorf("%q, %v", text, err)
	}
}
