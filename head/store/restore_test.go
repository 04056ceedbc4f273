package store

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/head"
)

// made makes a file of a cluster with jobs, and returns its folder.
func made(t *testing.T, began time.Duration, jobs int) string {
	t.Helper()
	dir := t.TempDir()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for n := range jobs {
		records := []head.Record{
			{Bucket: head.Meta, Key: []byte("head"), Value: fmt.Appendf(nil, `{"began":%d,"next":%d}`, began, n+2)},
			{Bucket: head.Jobs, Key: Key(uint64(n + 1)), Value: fmt.Appendf(nil, `{"job":%d,"task":-1,"user":"alice","dir":"/","secret":"s","options":"","state":"PENDING","submit":1,"limit":-1}`, n+1)},
		}
		if err := s.Commit(records); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// copyOf is a backup of a file.
func copyOf(t *testing.T, dir string) string {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	path := filepath.Join(t.TempDir(), "backup.db")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteTo(io.Writer(f)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// A backup never takes the place of what is newer, another cluster's or damaged, unless it is forced, and that of an
// open file in no case. What it replaces is kept.
func TestRestore(t *testing.T) {
	ours := made(t, 5, 3)
	backup := copyOf(t, ours)
	damaged := t.TempDir()
	if err := os.WriteFile(filepath.Join(damaged, FileName), []byte(strings.Repeat("x", 100_000)), 0o600); err != nil {
		t.Fatal(err)
	}
	newer := t.TempDir()
	if _, err := Restore(t.Context(), backup, newer, false); err != nil {
		t.Fatalf("in an empty folder: %v", err)
	}
	s, err := Open(newer)
	if err == nil {
		err = s.Commit([]head.Record{{Bucket: head.Meta, Key: []byte("head"), Value: []byte(`{"began":5,"next":9}`)}})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, force := range []bool{false, true} {
		if _, err := Restore(t.Context(), backup, newer, force); err == nil || !strings.Contains(err.Error(), "another head has") {
			t.Errorf("under a head that runs: %v", err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ dir, refused string }{
		{ours, ""}, {made(t, 5, 0), ""}, {newer, "is newer than the backup: its next job is 9, and the backup's 4"},
		{made(t, 6, 1), "is that of another cluster"}, {damaged, "no file of a head, or damaged"},
	} {
		before, _ := os.ReadFile(filepath.Join(test.dir, FileName))
		facts, err := Restore(t.Context(), backup, test.dir, false)
		if test.refused != "" {
			if err == nil || !strings.Contains(err.Error(), test.refused) {
				t.Errorf("it should be refused because it %s, and got %v", test.refused, err)
			}
			facts, err = Restore(t.Context(), backup, test.dir, true)
		}
		if err != nil || facts.Jobs != 3 || facts.Next != 4 {
			t.Errorf("%s: %+v, %v", test.refused, facts, err)
		}
		if old, _ := os.ReadFile(filepath.Join(test.dir, OldName)); string(old) != string(before) {
			t.Errorf("%s: what was there is not kept", test.refused)
		}
		if is, err := Check(t.Context(), filepath.Join(test.dir, FileName)); err != nil || is.Jobs != 3 {
			t.Errorf("%s: restored is %+v, %v", test.refused, is, err)
		}
		if left, _ := filepath.Glob(filepath.Join(test.dir, "*.restored")); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

// A backup of which one byte is not as it was written is not restored.
func TestRestoreOfAnAlteredBackup(t *testing.T) {
	backup := copyOf(t, made(t, 5, 3))
	text, err := os.ReadFile(backup)
	if err != nil {
		t.Fatal(err)
	}
	altered := strings.ReplaceAll(string(text), `"user":"alice"`, `"user":"alicf"`)
	if err := os.WriteFile(backup, []byte(altered), 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := Restore(t.Context(), backup, dir, true); err == nil || !strings.Contains(err.Error(), "cannot be restored: 3 records are altered") {
		t.Errorf("got %v", err)
	}
	if files, _ := os.ReadDir(dir); len(files) > 0 {
		t.Errorf("left behind: %v", files)
	}
}

// The file of a head that is one of several is not replaced: its log would go on with what it does not belong to.
func TestRestoreOneOfSeveral(t *testing.T) {
	dir := made(t, 1, 2)
	backup := copyOf(t, dir)
	log, err := OpenLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), backup, dir, true); err == nil || !strings.Contains(err.Error(), "muster head alone") {
		t.Error(err)
	}
	if err := RemoveLog(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(t.Context(), backup, dir, false); err != nil {
		t.Error(err)
	}
}
