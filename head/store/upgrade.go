package store

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"

	bolt "go.etcd.io/bbolt"

	"muster/head"
	"muster/head/record"
	"muster/model/slurmopt"
	"muster/wire/api"
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

// upgradeAtOnce is how many records one transaction changes at most, so that a long history needs
// little memory.
const upgradeAtOnce = 1000

// upgrade brings a file of an earlier format up to date. Format 1 had other names in ended jobs, and
// neither it nor format 2 had checksums, or records of how the tasks of arrays ended; both kept private
// options in ended jobs. The version is written last, and records that are sealed stay as they are: an
// upgrade that was cut off goes on at the next start.
func (s *Store) upgrade(from uint64) error {
	if from < 2 { // what other policies would have done has other names, too; the head works it out again
		if err := s.db.Update(func(tx *bolt.Tx) error {
			if err := tx.DeleteBucket([]byte(head.WhatIf)); err != nil {
				return err
			}
			return addBuckets(tx)
		}); err != nil {
			return err
		}
	}
	for _, bucket := range append([][]byte{atBucket}, names()...) {
		for after, more := []byte(nil), true; more; {
			err := s.db.Update(func(tx *bolt.Tx) (err error) {
				after, err = sealSome(tx.Bucket(bucket), string(bucket), after)
				more = after != nil
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	if err := s.tallyArrays(); err != nil {
		return err
	}
	return s.db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket(ownBucket).Put(versionKey, binary.BigEndian.AppendUint64(nil, Version))
	})
}

// tallyArrays makes the records of how the tasks of arrays ended, from ended jobs that are sealed.
func (s *Store) tallyArrays() error {
	var array uint64 // whose tasks are being counted
	var ends *head.Ends
	for after, more := []byte(nil), true; more; {
		err := s.db.Update(func(tx *bolt.Tx) error {
			some := someBehind(tx.Bucket(endedBucket), after)
			more = len(some) > 0
			for _, r := range some {
				after = r.key
				value, err := unseal(string(endedBucket), r.key, r.value)
				if err != nil {
					return err
				}
				d, err := record.ReadEnded(value)
				if err != nil {
					return fmt.Errorf("%w (ended job %d: %w)", errDamaged, number(r.key), err)
				}
				if d.ArrayJob != array {
					if err := putEnds(tx, array, ends); err != nil {
						return err
					}
					array, ends = d.ArrayJob, head.EndsOf(d.Options)
				}
				if ends != nil {
					ends.Add(int(d.ID-array), api.State(d.State))
				}
			}
			if more {
				return nil
			}
			return putEnds(tx, array, ends)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func putEnds(tx *bolt.Tx, array uint64, ends *head.Ends) error {
	if array == 0 || ends == nil {
		return nil
	}
	value, err := json.Marshal(ends)
	if err != nil {
		return err
	}
	return tx.Bucket([]byte(head.Arrays)).Put(Key(array), seal(string(head.Arrays), Key(array), value))
}

// raw is a record as it lies there.
type raw struct{ key, value []byte }

// someBehind reads the next records behind a key.
func someBehind(b *bolt.Bucket, after []byte) (some []raw) {
	size := 0
	c := b.Cursor()
	for k, v := behind(c, after); k != nil && len(some) < upgradeAtOnce && size < pageBytes; k, v = c.Next() {
		some = append(some, raw{clone(k), clone(v)})
		size += len(v)
	}
	return some
}

// sealSome seals the records behind a key, and says behind which key to go on; nil at the end.
func sealSome(b *bolt.Bucket, bucket string, after []byte) (last []byte, err error) {
	for _, r := range someBehind(b, after) {
		last = r.key
		if isSealed(r.value) {
			continue
		}
		if bucket == string(endedBucket) {
			if r.value, err = renameJob(r.value); err != nil {
				return nil, fmt.Errorf("%w (ended job %d: %w)", errDamaged, number(r.key), err)
			}
		}
		if err := b.Put(r.key, seal(bucket, r.key, r.value)); err != nil {
			return nil, err
		}
	}
	return last, nil
}

func renameJob(value []byte) ([]byte, error) {
	var job map[string]json.RawMessage
	if err := json.Unmarshal(value, &job); err != nil {
		return nil, err
	}
	rename(job, renamed)
	if err := withoutPrivate(job); err != nil {
		return nil, err
	}
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

// withoutPrivate leaves of an ended job's options what everybody may see: values of --export do not
// outlive their job.
func withoutPrivate(job map[string]json.RawMessage) error {
	var line string
	if job["options"] == nil {
		return nil
	}
	if err := json.Unmarshal(job["options"], &line); err != nil {
		return err
	}
	public := ""
	if said, err := slurmopt.ParseSubmitted(line); err == nil {
		if public, err = said.Public().Format(); err != nil {
			public = ""
		}
	}
	text, err := json.Marshal(strings.TrimSpace(strings.TrimPrefix(public, slurmopt.Submit)))
	job["options"] = text
	return err
}
