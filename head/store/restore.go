package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"muster/head"
	"muster/head/record"
	"muster/internal/strictjson"
)

// Facts are what is in a file.
type Facts struct {
	Jobs, Ended, Nodes int
	Next               uint64        // the number of the next job
	began              time.Duration // when the cluster began: no two have the same
	change             int           // counts the changes that were made to the file
}

// Check reads all of a file that no head has open, and says what is in it. A file of an earlier format is brought
// up to date.
func Check(ctx context.Context, path string) (f Facts, err error) {
	if _, err := os.Stat(path); err != nil {
		return f, err
	}
	s, err := openFile(path)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	altered, first := 0, error(nil)
	if err := s.Verify(ctx, func(wrong error) { altered, first = altered+1, cmp.Or(first, wrong) }); err != nil {
		return f, err
	}
	if altered > 0 {
		return f, fmt.Errorf("%d records are altered, the first: %w", altered, first)
	}
	return s.facts()
}

func (s *Store) facts() (f Facts, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		f.change = tx.ID()
		f.Jobs, f.Ended = tx.Bucket([]byte(head.Jobs)).Stats().KeyN, tx.Bucket(endedBucket).Stats().KeyN
		return nil
	})
	err = errors.Join(err, s.Each(head.Nodes, func(r head.Record) error {
		var n record.Node
		err := strictjson.Decode(r.Value, &n)
		if !n.Removed {
			f.Nodes++
		}
		return err
	}), s.Each(head.Meta, func(r head.Record) error {
		var m record.Meta
		if strictjson.Decode(r.Value, &m) == nil && m.Began != 0 { // the book of priorities is no such record
			f.began, f.Next = m.Began, m.Next
		}
		return nil
	}))
	return f, err
}

// OldName is the name that Restore gives the file that was there.
const OldName = FileName + ".old"

// Restore puts a copy of a backup into the folder of a head that does not run. Unless it is forced, it refuses if
// what is there is newer, of another cluster, or cannot be read. What was there is kept as OldName.
//
// A head that is one of several would go on with the backup and a log that does not belong to it, so its file is
// never replaced.
func Restore(ctx context.Context, backup, dir string, force bool) (f Facts, err error) {
	if HasLog(dir) {
		return f, fmt.Errorf("the head of %s is one of several: stop all of them, run muster head alone here, restore again, and have the others join with empty folders", dir)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return f, fmt.Errorf("the head's folder: %w", err)
	}
	copied, path := filepath.Join(dir, FileName+".restored"), filepath.Join(dir, FileName)
	defer func() {
		if rest := os.Remove(copied); !errors.Is(rest, fs.ErrNotExist) {
			err = errors.Join(err, rest)
		}
	}()
	if err := copyFile(backup, copied); err != nil {
		return f, err
	}
	if f, err = Check(ctx, copied); err != nil {
		return f, fmt.Errorf("the backup cannot be restored: %w", err)
	}
	if _, err := os.Lstat(path); err == nil {
		here, is, err := peek(path)
		if here != nil {
			defer here.Close() // no head can open it meanwhile
		}
		if err == nil {
			err = is.older(&f, path)
		}
		var running *inUse
		if err != nil && (!force || errors.As(err, &running)) {
			return f, err
		}
		old := filepath.Join(dir, OldName)
		if err := os.Remove(old); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		if err := os.Link(path, old); err != nil {
			return f, err
		}
	}
	return f, errors.Join(os.Rename(copied, path), syncDir(dir))
}

// peek opens a file as it is, and says what is in it.
func peek(path string) (s *Store, f Facts, err error) {
	db, err := open(path)
	if err != nil {
		return nil, f, trouble(path, err)
	}
	s = &Store{db: db, path: path}
	missing, version := false, uint64(0)
	if err := s.checkVersion(&missing, &version); err != nil {
		return s, f, trouble(path, err)
	}
	if missing || version < Version {
		return s, f, fmt.Errorf("%s has format %d, which this program does not compare with the backup: --force restores the backup, and keeps this file as %s", path, version, OldName)
	}
	f, err = s.facts()
	return s, f, err
}

// older refuses to put a file in the place of one that is newer.
func (f *Facts) older(backup *Facts, path string) error {
	const how = "--force restores the backup all the same, and keeps this file as " + OldName
	switch {
	case f.began == 0 || f.began == backup.began && f.change <= backup.change:
		return nil
	case f.began != backup.began:
		return fmt.Errorf("%s is that of another cluster (%d jobs, %d ended): give another folder (--state); %s", path, f.Jobs, f.Ended, how)
	}
	return fmt.Errorf("%s is newer than the backup: its next job is %d, and the backup's %d; %s", path, f.Next, backup.Next, how)
}

// copyFile copies a file, which only the head's user may read.
func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	copied, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(copied, source)
	return errors.Join(err, copied.Sync(), copied.Close())
}
