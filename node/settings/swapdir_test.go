package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSwapFolders(t *testing.T) {
	folder := t.TempDir()
	if err := tryFile(folder, MinArena); err != nil {
		t.Error(err)
	}
	hasOnly(t, folder)
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		filepath.Join(folder, "none"): "there is no such folder: make it, or name another",
		file:                          "it is no folder: name one",
		"/proc":                       "no file can be made there: ",
	} {
		err := tryFile(dir, MinArena)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	hasOnly(t, folder, "file")
	if os.Getuid() == 0 {
		return // root may write anywhere
	}
	closed := filepath.Join(folder, "closed")
	if err := os.Mkdir(closed, 0o500); err != nil {
		t.Fatal(err)
	}
	if err := tryFile(closed, MinArena); err == nil || !strings.Contains(err.Error(), "permission denied: give the node's user the right to") {
		t.Errorf("got %v", err)
	}
}

// A filesystem without large files, as far as a test can have one: a size that no
// file has.
func TestTryFileSaysWhatItCannot(t *testing.T) {
	if err := tryFile(t.TempDir(), -1); err == nil || !strings.Contains(err.Error(), "raise the limit of file sizes (ulimit -f), or name a folder on another filesystem") {
		t.Errorf("got %v", err)
	}
}

// hasOnly checks what is in a folder.
func hasOnly(t *testing.T, folder string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("in the folder is %q, want %q", got, names)
	}
}
