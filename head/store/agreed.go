package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"

	"muster/head"
)

// Of several heads each has a file of its own, and what they agree on is applied to all of them: see
// head/quorum. Each file knows which of those entries it has, so that none is applied twice after a restart.
var (
	appliedKey = []byte("applied") // the last entry that was applied
	groupKey   = []byte("group")   // which heads agree on this file
)

// receivedName is a file of another head that takes the place of this head's.
const receivedName = FileName + ".received"

// Apply commits the records of an entry, unless the file has that entry. Like Commit, it is one transaction.
func (s *Store) Apply(entry uint64, records []head.Record) error {
	return s.update(func(tx *bolt.Tx) error {
		own := tx.Bucket(ownBucket)
		if applied := own.Get(appliedKey); len(applied) == 8 && binary.BigEndian.Uint64(applied) >= entry {
			return nil
		}
		if err := putAll(tx, records); err != nil {
			return err
		}
		return own.Put(appliedKey, binary.BigEndian.AppendUint64(nil, entry))
	})
}

// Applied is the last entry that was applied; 0 if none was.
func (s *Store) Applied() (entry uint64) {
	_ = s.view(func(tx *bolt.Tx) error {
		if applied := tx.Bucket(ownBucket).Get(appliedKey); len(applied) == 8 {
			entry = binary.BigEndian.Uint64(applied)
		}
		return nil
	})
	return entry
}

// Group names the heads that agree on this file; "" if it is that of one head alone.
func (s *Store) Group() (group string) {
	_ = s.view(func(tx *bolt.Tx) error {
		group = string(tx.Bucket(ownBucket).Get(groupKey))
		return nil
	})
	return group
}

// SetGroup makes the file that of several heads, of which it is the first, or with "" that of one head alone.
// No entry counts as applied then.
func (s *Store) SetGroup(group string) error {
	return s.update(func(tx *bolt.Tx) error {
		own := tx.Bucket(ownBucket)
		return errors.Join(own.Delete(appliedKey), own.Put(groupKey, []byte(group)))
	})
}

// Empty says whether no head has written to the file yet.
func (s *Store) Empty() (empty bool, err error) {
	empty = true
	err = s.view(func(tx *bolt.Tx) error {
		for _, b := range names() {
			if k, _ := tx.Bucket(b).Cursor().First(); k != nil {
				empty = false
			}
		}
		return nil
	})
	return empty, err
}

// Copy is the file as it is now, for another head. It must be closed.
func (s *Store) Copy() (copied io.ReadCloser, size int64, err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	tx, err := s.db.Begin(false)
	if err != nil {
		return nil, 0, trouble(s.path, err)
	}
	out, in := io.Pipe()
	size = tx.Size()
	go func() {
		defer tx.Rollback()
		_ = in.CloseWithError(guarded(func() error { _, err := tx.WriteTo(in); return err }))
	}()
	return out, size, nil
}

// Received is a file that another head sends.
type Received struct {
	*os.File
	dir string
}

// Receive begins to take a copy of another head's file.
func (s *Store) Receive() (*Received, error) {
	dir := filepath.Dir(s.path)
	f, err := os.OpenFile(filepath.Join(dir, receivedName+".part"), os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	return &Received{f, dir}, err
}

// Keep puts a copy that has arrived where Replace finds it, or the next Open. Every record of it is checked
// before.
func (r *Received) Keep() error {
	if err := errors.Join(r.Sync(), r.File.Close()); err != nil {
		return err
	}
	db, err := open(r.Name())
	if err != nil {
		return err
	}
	copied := &Store{path: r.Name(), db: db}
	var altered error
	missing, version := false, uint64(0)
	if err = copied.checkVersion(&missing, &version); err == nil && (missing || version != Version) {
		err = fmt.Errorf("it has format %d, and this program knows format %d: run the same version of muster on all heads", version, Version)
	}
	if err == nil {
		err = copied.Verify(context.Background(), func(record error) { altered = record })
	}
	if err = errors.Join(err, altered, copied.Close()); err != nil {
		return fmt.Errorf("what another head sent cannot be used: %w", err)
	}
	return errors.Join(os.Rename(r.Name(), filepath.Join(r.dir, receivedName)), syncDir(r.dir))
}

// Drop forgets a copy that did not arrive.
func (r *Received) Drop() error { return errors.Join(r.File.Close(), os.Remove(r.Name())) }

// Replace puts the copy that was kept last in the place of the file.
func (s *Store) Replace() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.db.Close(); err != nil {
		return trouble(s.path, err)
	}
	if err := takeReceived(s.path); err != nil {
		return fmt.Errorf("replacing %s: %w", s.path, err)
	}
	db, err := open(s.path)
	if err == nil {
		s.db = db
	}
	return trouble(s.path, err)
}

// takeReceived puts a file that another head sent in the place of this head's, if there is one.
func takeReceived(path string) error {
	err := os.Rename(filepath.Join(filepath.Dir(path), receivedName), path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, syncDir(filepath.Dir(path)))
}
