package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"

	"muster/head"
	"muster/head/record"
	"muster/wire/api"
)

// FileName is the name of the file in the head's folder.
const FileName = "head.db"

// Version is that of the format. A head refuses a file of a later one, and brings one of an earlier
// one up to date (upgrade.go).
const Version = 3

// The buckets that only the store knows.
var (
	ownBucket   = []byte("store")
	versionKey  = []byte("version")
	endedBucket = []byte(head.Ended)
	atBucket    = []byte("ended_at") // end and number of an ended job -> its user
	buckets     = []head.Bucket{head.Meta, head.Jobs, head.Bulk, head.Ended, head.Arrays, head.Nodes, head.Keys, head.NodeLog, head.WhatIf}
)

// lockWait is how long Open waits for the lock: a head that was killed may not have ended yet.
const lockWait = 2 * time.Second

// mapped is how much address space the file is given. When the file outgrows it, a commit must wait
// for all readers, and a backup may read for long.
const mapped = 16 << 30

// ErrNoSuch says that a record does not exist.
var ErrNoSuch = errors.New("there is no such record")

// Store is an open file. Its methods may be called concurrently.
type Store struct {
	path string

	mu sync.RWMutex // held for reading while db is used: Replace exchanges it
	db *bolt.DB
}

// Open opens the file in a folder, and creates what does not exist.
func Open(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("the head's folder: %w", err)
	}
	path := filepath.Join(dir, FileName)
	if err := takeReceived(path); err != nil {
		return nil, fmt.Errorf("replacing %s: %w", path, err)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := create(path); err != nil {
			return nil, fmt.Errorf("making %s: %w", path, err)
		}
	}
	return openFile(path)
}

// openFile opens a file, and brings it up to date.
func openFile(path string) (*Store, error) {
	db, err := open(path)
	if err != nil {
		return nil, trouble(path, err)
	}
	s := &Store{path: path, db: db}
	missing, version := false, uint64(0)
	err = s.checkVersion(&missing, &version)
	if err == nil && missing {
		err = trouble(path, guarded(func() error { return db.Update(addBuckets) }))
	}
	if err == nil && version < Version {
		err = trouble(path, guarded(func() error { return s.upgrade(version) }))
	}
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return s, nil
}

// addBuckets creates the buckets that do not exist.
func addBuckets(tx *bolt.Tx) error {
	for _, b := range append([][]byte{atBucket}, names()...) {
		if _, err := tx.CreateBucketIfNotExists(b); err != nil {
			return err
		}
	}
	return nil
}

// create makes an empty file under another name first, since a file that a crash left half made
// would look damaged.
func create(path string) error {
	made := path + ".new"
	if err := os.Remove(made); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	db, err := open(made)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		if err := addBuckets(tx); err != nil {
			return err
		}
		own, err := tx.CreateBucket(ownBucket)
		if err != nil {
			return err
		}
		return own.Put(versionKey, binary.BigEndian.AppendUint64(nil, Version))
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return err
	}
	// A link never replaces a file that another head has made meanwhile; a rename would.
	if err := os.Link(made, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return errors.Join(os.Remove(made), syncDir(filepath.Dir(path)))
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// open opens a bbolt file. The list of free pages is written with each commit, so that opening does
// not read the whole file.
func open(path string) (db *bolt.DB, err error) {
	err = guarded(func() (err error) {
		db, err = bolt.Open(path, 0o600, &bolt.Options{Timeout: lockWait, FreelistType: bolt.FreelistMapType, InitialMmapSize: mapped})
		var system syscall.Errno
		if err != nil && !errors.Is(err, bolt.ErrTimeout) && !errors.As(err, &system) {
			return fmt.Errorf("%w (%w)", errDamaged, err) // it is not an error of the system
		}
		return err
	})
	return db, err
}

// checkVersion finds out which version a file has, and refuses one that this program does not know.
// Buckets may be missing that an earlier program had no use for.
func (s *Store) checkVersion(missing *bool, found *uint64) error {
	file, err := os.Stat(s.path)
	if err != nil {
		return err
	}
	return s.view(func(tx *bolt.Tx) error {
		if file.Size() < tx.Size() {
			return fmt.Errorf("%w: it has %d bytes, and had %d", errDamaged, file.Size(), tx.Size())
		}
		var version []byte
		if own := tx.Bucket(ownBucket); own != nil {
			version = own.Get(versionKey)
		}
		if len(version) != 8 {
			return errors.New("it is no file of a head: give another folder (--state)")
		}
		*found = binary.BigEndian.Uint64(version)
		if *found == 0 || *found > Version {
			return fmt.Errorf("it has format %d, and this program knows format %d: use the program that wrote it, or restore a backup from before", *found, Version)
		}
		for _, b := range append([][]byte{atBucket}, names()...) {
			*missing = *missing || tx.Bucket(b) == nil
		}
		return nil
	})
}

func names() [][]byte {
	all := make([][]byte, len(buckets))
	for i, b := range buckets {
		all[i] = []byte(b)
	}
	return all
}

// Close closes the file.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.db.Close()
}

// Path is the path of the file.
func (s *Store) Path() string { return s.path }

// Size is the size of the file in bytes.
func (s *Store) Size() (size int64) {
	_ = s.view(func(tx *bolt.Tx) error {
		size = tx.Size()
		return nil
	})
	return size
}

// Commit writes records in one transaction. When it returns nil they are on disk. After an error
// they may or may not be there, now or after a later Commit: the caller must reopen the file and
// continue from its contents.
func (s *Store) Commit(records []head.Record) error {
	if len(records) == 0 {
		return nil
	}
	return s.update(func(tx *bolt.Tx) error { return putAll(tx, records) })
}

func putAll(tx *bolt.Tx, records []head.Record) error {
	for i := range records {
		if err := put(tx, &records[i]); err != nil {
			return err
		}
	}
	return nil
}

func put(tx *bolt.Tx, r *head.Record) error {
	b := tx.Bucket([]byte(r.Bucket))
	if b == nil || r.Bucket == head.Bucket(ownBucket) || r.Bucket == head.Bucket(atBucket) {
		return fmt.Errorf("a record for %q, which is no part of the store", r.Bucket)
	}
	if r.Bucket != head.Nodes {
		b.FillPercent = 0.95 // keys grow, so pages are filled from left to right and need no room for later inserts
	}
	if r.Bucket == head.Ended {
		if err := index(tx, b, r); err != nil {
			return err
		}
	}
	if r.Value == nil {
		return b.Delete(r.Key)
	}
	if r.Bucket == head.NodeLog {
		if err := forget(b, r.Key); err != nil {
			return err
		}
	}
	return b.Put(r.Key, seal(string(r.Bucket), r.Key, r.Value))
}

// keepNodeLog is how long changes of nodes' states are kept: longer than the longest simulated
// period.
const keepNodeLog = 15 * 24 * time.Hour

// forget drops old entries of the node log: at most two for each new one, so that no commit takes
// long.
func forget(log *bolt.Bucket, newest []byte) error {
	if len(newest) < 8 {
		return fmt.Errorf("a key of %d bytes in the log of nodes", len(newest))
	}
	at := binary.BigEndian.Uint64(newest)
	if at < uint64(keepNodeLog) {
		return nil
	}
	oldest := binary.BigEndian.AppendUint64(nil, at-uint64(keepNodeLog))
	for range 2 {
		k, _ := log.Cursor().First()
		if k == nil || bytes.Compare(k, oldest) >= 0 {
			return nil
		}
		if err := log.Delete(clone(k)); err != nil {
			return err
		}
	}
	return nil
}

// index keeps the list by time in step with the ended jobs.
func index(tx *bolt.Tx, ended *bolt.Bucket, r *head.Record) error {
	at := tx.Bucket(atBucket)
	at.FillPercent = 0.95
	if stored := ended.Get(r.Key); stored != nil {
		old, err := unseal(string(endedBucket), r.Key, stored)
		if err != nil {
			return err
		}
		key, _, err := atKey(r.Key, old)
		if err != nil {
			return err
		}
		if err := at.Delete(key); err != nil {
			return err
		}
	}
	if r.Value == nil {
		return nil
	}
	key, user, err := atKey(r.Key, r.Value)
	if err != nil {
		return err
	}
	return at.Put(key, seal(string(atBucket), key, []byte(user)))
}

// atKey is the key of an ended job in the list by time, and the job's user.
func atKey(key, value []byte) (at []byte, user string, err error) {
	if len(key) != 8 {
		return nil, "", fmt.Errorf("an ended job's key of %d bytes", len(key))
	}
	var job struct {
		End  float64 `json:"end_at"`
		User string  `json:"user"`
	}
	if err := json.Unmarshal(value, &job); err != nil {
		return nil, "", fmt.Errorf("ended job %d: %w", binary.BigEndian.Uint64(key), err)
	}
	return append(instant(job.End), key...), job.User, nil
}

// instant encodes seconds so that keys sort as times do.
func instant(seconds float64) []byte {
	micros := uint64(0)
	switch {
	case seconds >= math.MaxInt64/1e6:
		micros = math.MaxInt64
	case seconds > 0:
		micros = uint64(math.Round(seconds * 1e6))
	}
	return binary.BigEndian.AppendUint64(nil, micros)
}

// Each visits the records of a bucket in the order of their keys. visit may keep them.
func (s *Store) Each(bucket head.Bucket, visit func(head.Record) error) error {
	return s.view(func(tx *bolt.Tx) error {
		b := tx.Bucket([]byte(bucket))
		if b == nil {
			return fmt.Errorf("there is no part %q", bucket)
		}
		return b.ForEach(func(k, v []byte) error {
			value, err := unseal(string(bucket), k, v)
			if err != nil {
				return err
			}
			return visit(head.Record{Bucket: bucket, Key: clone(k), Value: clone(value)})
		})
	})
}

func clone(b []byte) []byte { return append(make([]byte, 0, len(b)), b...) }

// Bulk reads the record of what a job runs; ErrNoSuch if the job has ended.
func (s *Store) Bulk(job uint64) ([]byte, error) { return s.get(head.Bulk, job) }

// Ended reads one ended job.
func (s *Store) Ended(job uint64) (api.Job, error) {
	value, err := s.get(head.Ended, job)
	if err != nil {
		return api.Job{}, err
	}
	ended, err := record.ReadEnded(value)
	return *ended.Document(), err
}

// EndedRecord reads the record of one ended job; nil if there is none, or it is altered.
func (s *Store) EndedRecord(job uint64) *record.Ended {
	value, err := s.get(head.Ended, job)
	if err != nil {
		return nil
	}
	ended, err := record.ReadEnded(value)
	if err != nil {
		return nil
	}
	return ended
}

func (s *Store) get(bucket head.Bucket, number uint64) (value []byte, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		found := tx.Bucket([]byte(bucket)).Get(Key(number))
		if found == nil {
			return ErrNoSuch
		}
		found, err := unseal(string(bucket), Key(number), found)
		value = clone(found)
		return err
	})
	return value, err
}

// Key is the key of a job's records.
func Key(number uint64) []byte { return binary.BigEndian.AppendUint64(nil, number) }

// WriteTo writes a copy of the file as it is now, while commits continue.
func (s *Store) WriteTo(w io.Writer) (n int64, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		n, err = tx.WriteTo(w)
		return err
	})
	return n, err
}

func (s *Store) view(see func(*bolt.Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return trouble(s.path, guarded(func() error { return s.db.View(see) }))
}

func (s *Store) update(change func(*bolt.Tx) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return trouble(s.path, guarded(func() error { return s.db.Update(change) }))
}

// errDamaged says that bbolt found invalid pages, or the store invalid records.
var errDamaged = errors.New("it makes no sense")

// guarded turns the panics into errors with which bbolt reports a damaged file, and the faults that
// follow when the file has become shorter than its mapping.
func guarded(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w (%v)", errDamaged, p)
		}
	}()
	return do()
}

const whatToDo = "stop the head, keep the file, and put a backup in its place (docs/head.md, Backup)"

// trouble explains an error of a file to the administrator.
func trouble(path string, err error) error {
	switch {
	case err == nil, errors.Is(err, ErrNoSuch):
		return err
	case errors.Is(err, bolt.ErrTimeout):
		return &inUse{path}
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: start the head as the user who has the file, or give it another folder (--state)", err)
	case errors.Is(err, errDamaged):
		return fmt.Errorf("%s is no file of a head, or damaged: %w: %s", path, err, whatToDo)
	}
	return fmt.Errorf("%s: %w", path, err)
}

// inUse says that a head has the file open.
type inUse struct{ path string }

func (e *inUse) Error() string {
	return fmt.Sprintf("another head has %s open: stop it, or give this one another folder (--state)", e.path)
}
