package store

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"muster/head"
)

// renamed has the numbers of an ended job that had no unit in their names in format 1, by their
// present names. Those of its parts and devices are in renamedWithin.
var (
	renamed = map[string]string{
		"submit": "submit_at", "eligible": "eligible_at", "start": "start_at", "end": "end_at",
		"time_limit": "time_limit_s", "elapsed": "elapsed_s", "cpu_time": "cpu_s",
		"memory": "memory_bytes", "memory_peak": "memory_peak_bytes",
	}
	renamedWithin = map[string]string{"memory": "memory_bytes"}
)

// upgradeAtOnce is how many records one transaction changes, so that a long history needs little
// memory.
const upgradeAtOnce = 1000

// upgrade brings a file of format 1 up to date. The version is written last, and records that have
// their new names stay as they are: an upgrade that was cut off goes on at the next start.
func (s *Store) upgrade() error {
	for after, more := []byte(nil), true; more; {
		err := s.db.Update(func(tx *bolt.Tx) (err error) {
			after, err = renameSome(tx.Bucket(endedBucket), after)
			more = after != nil
			return err
		})
		if err != nil {
			return err
		}
	}
	return s.db.Update(func(tx *bolt.Tx) error {
		// What other policies would have done has other names, too; the head works it out again.
		if err := tx.DeleteBucket([]byte(head.WhatIf)); err != nil {
			return err
		}
		if err := addBuckets(tx); err != nil {
			return err
		}
		return tx.Bucket(ownBucket).Put(versionKey, binary.BigEndian.AppendUint64(nil, Version))
	})
}

// renameSome renames the numbers of the records behind a key, and says behind which key to go on;
// nil at the end.
func renameSome(ended *bolt.Bucket, after []byte) (last []byte, err error) {
	type record struct{ key, value []byte }
	var some []record
	c := ended.Cursor()
	k, v := c.First()
	if after != nil {
		if k, v = c.Seek(after); string(k) == string(after) {
			k, v = c.Next()
		}
	}
	for ; k != nil && len(some) < upgradeAtOnce; k, v = c.Next() {
		some = append(some, record{clone(k), clone(v)})
	}
	for _, r := range some {
		value, err := renameJob(r.value)
		if err != nil {
			return nil, fmt.Errorf("%w (ended job %d: %w)", errDamaged, number(r.key), err)
		}
		if err := ended.Put(r.key, value); err != nil {
			return nil, err
		}
		last = r.key
	}
	return last, nil
}

func renameJob(value []byte) ([]byte, error) {
	var job map[string]json.RawMessage
	if err := json.Unmarshal(value, &job); err != nil {
		return nil, err
	}
	rename(job, renamed)
	for _, list := range []string{"parts", "devices"} {
		if job[list] == nil {
			continue
		}
		var within []map[string]json.RawMessage
		if err := json.Unmarshal(job[list], &within); err != nil {
			return nil, err
		}
		for _, each := range within {
			rename(each, renamedWithin)
		}
		text, err := json.Marshal(within)
		if err != nil {
			return nil, err
		}
		job[list] = text
	}
	return json.Marshal(job)
}

func rename(document map[string]json.RawMessage, names map[string]string) {
	for old, name := range names {
		if value, ok := document[old]; ok {
			document[name] = value
			delete(document, old)
		}
	}
}
