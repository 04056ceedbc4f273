package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

// LogName is the name of the file with the log of what several heads agree on.
const LogName = "heads.db"

var logBucket, factsBucket = []byte("log"), []byte("facts")

// Log is the log of what several heads agree on, and what a head must remember of the others. Its entries
// are sealed like records. It is a file of its own: it shrinks, and the store is replaced.
type Log struct {
	db   *bolt.DB
	path string
}

// HasLog says whether the head of a folder is one of several.
func HasLog(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, LogName))
	return err == nil
}

// OpenLog opens the log in a folder, and creates it if there is none.
func OpenLog(dir string) (*Log, error) {
	path := filepath.Join(dir, LogName)
	db, err := open(path)
	if err != nil {
		return nil, trouble(path, err)
	}
	l := &Log{db, path}
	err = l.update(func(tx *bolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(logBucket)
		_, err2 := tx.CreateBucketIfNotExists(factsBucket)
		return errors.Join(err, err2)
	})
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return l, nil
}

// RemoveLog makes the head of a folder one alone. The log is kept beside, for a person to look at.
func RemoveLog(dir string) error {
	path := filepath.Join(dir, LogName)
	if err := os.Rename(path, path+".old"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return syncDir(dir)
}

func (l *Log) Close() error { return l.db.Close() }

func (l *Log) update(change func(*bolt.Tx) error) error {
	return trouble(l.path, guarded(func() error { return l.db.Update(change) }))
}

func (l *Log) view(see func(*bolt.Tx) error) error {
	return trouble(l.path, guarded(func() error { return l.db.View(see) }))
}

// Entry is an entry of the log.
type Entry struct {
	Number uint64
	Value  []byte
}

// Append writes entries in one transaction. One that is there under a number is replaced.
func (l *Log) Append(entries []Entry) error {
	return l.update(func(tx *bolt.Tx) error {
		b := tx.Bucket(logBucket)
		b.FillPercent = 0.95
		for _, e := range entries {
			if err := b.Put(Key(e.Number), seal(string(logBucket), Key(e.Number), e.Value)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Entry reads an entry; ErrNoSuch if there is none of that number.
func (l *Log) Entry(n uint64) ([]byte, error) { return l.read(logBucket, Key(n)) }

// Ends are the numbers of the first and the last entry; 0 if there is none.
func (l *Log) Ends() (first, last uint64, err error) {
	err = l.view(func(tx *bolt.Tx) error {
		c := tx.Bucket(logBucket).Cursor()
		if k, _ := c.First(); k != nil {
			first = binary.BigEndian.Uint64(k)
		}
		if k, _ := c.Last(); k != nil {
			last = binary.BigEndian.Uint64(k)
		}
		return nil
	})
	return first, last, err
}

// Cut removes the entries from one number to another.
func (l *Log) Cut(from, to uint64) error {
	for more := true; more; {
		err := l.update(func(tx *bolt.Tx) error {
			b, removed := tx.Bucket(logBucket), 0
			more = false
			c := b.Cursor()
			for k, _ := c.Seek(Key(from)); k != nil && binary.BigEndian.Uint64(k) <= to; k, _ = c.Seek(Key(from)) {
				if removed++; removed > upgradeAtOnce { // so that no transaction is large
					more = true
					return nil
				}
				if err := c.Delete(); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Remember writes a fact.
func (l *Log) Remember(key, value []byte) error {
	return l.update(func(tx *bolt.Tx) error {
		return tx.Bucket(factsBucket).Put(key, seal(string(factsBucket), key, value))
	})
}

// Fact reads a fact; ErrNoSuch if there is none.
func (l *Log) Fact(key []byte) ([]byte, error) { return l.read(factsBucket, key) }

func (l *Log) read(bucket, key []byte) (value []byte, err error) {
	err = l.view(func(tx *bolt.Tx) error {
		stored := tx.Bucket(bucket).Get(key)
		if stored == nil {
			return ErrNoSuch
		}
		found, err := unseal(string(bucket), key, stored)
		value = clone(found)
		return err
	})
	if errors.Is(err, errDamaged) {
		return nil, fmt.Errorf("%w; or stop this head, remove its folder, and have it join the others again (muster head --join)", err)
	}
	return value, err
}
