package store

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"muster/head"
)

// A record of which any byte was altered, or that another record was put in place of, is not served
// by anything that reads it, and is named with what to do.
func TestAlteredRecords(t *testing.T) {
	s := opened(t, t.TempDir())
	s.db.NoSync = true // it writes hundreds of times
	period := []byte("day")
	commit(t, s,
		head.Record{Bucket: head.Meta, Key: []byte("head"), Value: []byte(`{"began":1,"next":9}`)},
		head.Record{Bucket: head.Jobs, Key: Key(8), Value: []byte(`{"job":8}`)},
		head.Record{Bucket: head.Bulk, Key: Key(8), Value: []byte(`{"script":"x"}`)},
		head.Record{Bucket: head.NodeLog, Key: Key(5), Value: []byte(`{"node":1}`)},
		head.Record{Bucket: head.WhatIf, Key: period, Value: []byte(`{"from":1}`)},
		ended(3, "ann", 100), ended(4, "bob", 101),
	)
	none := func(head.Record) error { return nil }
	readers := map[string]func() error{
		string(head.Meta):    func() error { return s.Each(head.Meta, none) },
		string(head.Jobs):    func() error { return s.Each(head.Jobs, none) },
		string(head.Bulk):    func() error { _, err := s.Bulk(8); return err },
		string(head.NodeLog): func() error { _, err := s.NodeLog(0); return err },
		string(head.WhatIf):  func() error { _, err := s.WhatIf("day"); return err },
		string(atBucket):     func() error { _, _, err := s.History(0, 10, Filter{}); return err },
		string(endedBucket): func() error {
			_, err1 := s.Ended(3)
			_, err2 := s.EndedAll(3, -1)
			_, err3 := s.Past(3)
			_, _, err4 := s.History(0, 10, Filter{})
			_, _, err5 := s.History(3, 10, Filter{})
			err6 := s.EndedBetween(0, 1e9, func([]byte) (bool, error) { return true, nil })
			err7 := s.Commit([]head.Record{ended(3, "ann", 7)}) // the list by time would keep the old entry
			for _, err := range []error{err1, err2, err3, err4, err5, err6, err7} {
				if err == nil {
					return nil
				}
			}
			return err1
		},
	}
	set := func(bucket string, key, value []byte) {
		if err := s.db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucket)).Put(key, value) }); err != nil {
			t.Fatal(err)
		}
	}
	altered := 0
	for bucket, read := range readers {
		if bucket != string(endedBucket) { // its commit would succeed
			if err := read(); err != nil {
				t.Fatalf("%s: %v", bucket, err)
			}
		}
		var key, stored []byte
		if err := s.view(func(tx *bolt.Tx) error {
			k, v := tx.Bucket([]byte(bucket)).Cursor().First()
			key, stored = clone(k), clone(v)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		wrong := [][]byte{{}, stored[:len(stored)-1], append(clone(stored), ' '), stored[sealSize:], seal(bucket, []byte("other"), stored[sealSize:]), seal("other", key, stored[sealSize:])}
		for i := range stored {
			one := clone(stored)
			one[i] ^= 1 << (i % 8)
			wrong = append(wrong, one)
		}
		for _, value := range wrong {
			set(bucket, key, value)
			altered++
			err := read()
			if err == nil || !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), whatToDo) || !strings.Contains(err.Error(), "the record "+bucket) || !strings.Contains(err.Error(), s.path) {
				t.Fatalf("%s as %q: %v", bucket, value, err)
			}
			found := 0
			if err := s.Verify(t.Context(), func(error) { found++ }); err != nil || found != 1 {
				t.Fatalf("%s as %q: %d found, %v", bucket, value, found, err)
			}
		}
		set(bucket, key, stored)
	}
	if altered < 300 {
		t.Errorf("only %d records were altered", altered)
	}
}

// A file of format 2, which had no checksums, is sealed at start, also if that was cut off before, and
// what was private in the options of ended jobs is gone.
func TestFormatWithoutChecksums(t *testing.T) {
	s := opened(t, t.TempDir())
	commit(t, s, ended(3, "ann", 100), head.Record{Bucket: head.Jobs, Key: Key(8), Value: []byte(`{"job":8}`)}, head.Record{Bucket: head.Bulk, Key: Key(8), Value: []byte(`{"script":"x"}`)})
	err := s.db.Update(func(tx *bolt.Tx) error {
		old := []byte(`{"job":3,"user":"ann","state":"COMPLETED","end_at":100,"options":"-n 2 --export=PASSWORD=secret --comment=secret"}`)
		odd := []byte(`{"job":4,"user":"ann","state":"COMPLETED","end_at":101,"options":"--nonsense=secret"}`)
		at := append(instant(101), Key(4)...)
		return errors.Join(
			tx.Bucket(endedBucket).Put(Key(3), old), tx.Bucket(endedBucket).Put(Key(4), odd), tx.Bucket(atBucket).Put(at, []byte("ann")),
			tx.Bucket([]byte(head.Bulk)).Put(Key(8), []byte(`{"script":"x"}`)), tx.Bucket(ownBucket).Put(versionKey, Key(2)))
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		s = opened(t, filepath.Dir(s.Path()))
		if err := s.Verify(t.Context(), func(err error) { t.Error(err) }); err != nil {
			t.Error(err)
		}
		jobs, _, err := s.History(0, 10, Filter{})
		if err != nil || len(jobs) != 2 || jobs[0].Options != "-n 2 -c 1" || jobs[1].Options != "" {
			t.Errorf("%+v, %v", jobs, err)
		}
		if bulk, err := s.Bulk(8); err != nil || string(bulk) != `{"script":"x"}` {
			t.Errorf("%s, %v", bulk, err)
		}
		_ = s.Close()
	}
}
