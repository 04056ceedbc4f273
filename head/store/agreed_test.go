package store

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"muster/head"
)

func meta(value string) []head.Record {
	return []head.Record{{Bucket: head.Meta, Key: []byte("k"), Value: []byte(value)}}
}

func value(t *testing.T, s *Store) (value string) {
	t.Helper()
	if err := s.Each(head.Meta, func(r head.Record) error { value = string(r.Value); return nil }); err != nil {
		t.Error(err)
	}
	return value
}

// An entry that the file has is not applied again, and a copy of the file has what it has.
func TestAgreed(t *testing.T) {
	a, b := openIn(t, t.TempDir()), openIn(t, t.TempDir())
	for entry, text := range []string{5: "five", 7: "seven"} {
		if text == "" {
			continue
		}
		if err := a.Apply(uint64(entry), meta(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Apply(5, meta("five")); err != nil || a.Applied() != 7 || value(t, a) != "seven" {
		t.Errorf("%v %d %s", err, a.Applied(), value(t, a))
	}
	copied, size, err := a.Copy()
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(copied)
	if err != nil || int64(len(text)) != size {
		t.Fatalf("%d of %d bytes: %v", len(text), size, err)
	}
	take := func(text []byte) error {
		r, err := b.Receive()
		if err == nil {
			_, err = r.Write(text)
		}
		return errors.Join(err, r.Keep())
	}
	if take(text[:len(text)/2]) == nil {
		t.Error("half a file is taken")
	}
	if err := errors.Join(take(text), b.Replace()); err != nil || b.Applied() != 7 || value(t, b) != "seven" {
		t.Errorf("%v %d %s", err, b.Applied(), value(t, b))
	}
	// What was altered on the way is refused.
	if err := a.update(func(tx *bolt.Tx) error { return tx.Bucket([]byte(head.Meta)).Put([]byte("k"), []byte("\x01abcdseven")) }); err != nil {
		t.Fatal(err)
	}
	if copied, _, err = a.Copy(); err != nil {
		t.Fatal(err)
	}
	if text, err = io.ReadAll(copied); err != nil || take(text) == nil {
		t.Errorf("an altered record is taken: %v", err)
	}
	// A copy that was kept takes the place at the next start, if it did not before.
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	c := openIn(t, t.TempDir())
	dir := filepath.Dir(c.Path())
	if err := errors.Join(c.Apply(9, meta("nine")), c.Close(), os.Rename(c.Path(), filepath.Join(dir, receivedName))); err != nil {
		t.Fatal(err)
	}
	if c = openIn(t, dir); c.Applied() != 9 || value(t, c) != "nine" {
		t.Errorf("%d %s", c.Applied(), value(t, c))
	}
	_ = c.Close()
}

func openIn(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The log keeps entries with gaps, is cut at both ends, and finds what was altered.
func TestLog(t *testing.T) {
	dir := t.TempDir()
	l, err := OpenLog(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var all []Entry
	for n := uint64(3); n < 3000; n++ {
		all = append(all, Entry{n, Key(n)})
	}
	if err := l.Append(append(all, Entry{5000, []byte("last")})); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Cut(0, 2500), l.Cut(2990, 4000)); err != nil {
		t.Fatal(err)
	}
	first, last, err := l.Ends()
	if first != 2501 || last != 5000 || err != nil {
		t.Errorf("%d %d %v", first, last, err)
	}
	for n, there := range map[uint64]bool{2500: false, 2501: true, 2989: true, 2990: false, 4999: false, 5000: true} {
		if _, err := l.Entry(n); (err == nil) != there || !there && !errors.Is(err, ErrNoSuch) {
			t.Errorf("entry %d: %v", n, err)
		}
	}
	if err := l.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(logBucket)
		return b.Put(Key(2600), clone(b.Get(Key(2601)))) // as it was written, under another number
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Entry(2600); !errors.Is(err, errDamaged) {
		t.Errorf("an altered entry: %v", err)
	}
	if !HasLog(dir) || HasLog(t.TempDir()) {
		t.Error("a log is not where it is")
	}
}
