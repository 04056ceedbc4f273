package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"muster/head"
	"muster/wire/api"
)

// A file of a head that named numbers without their units is brought up to date: the history is as
// it was, and what is worked out again is dropped.
func TestEarlierFormat(t *testing.T) {
	s := opened(t, t.TempDir())
	commit(t, s, head.Record{Bucket: head.WhatIf, Key: []byte("day"), Value: []byte(`{"from":1}`)})
	_ = s.Close()
	db, err := open(s.Path())
	if err != nil {
		t.Fatal(err)
	}
	const jobs = upgradeAtOnce + 5
	err = db.Update(func(tx *bolt.Tx) error {
		for i := uint64(1); i <= jobs; i++ {
			old := fmt.Sprintf(`{"job":%d,"user":"ann","state":"COMPLETED","submit":1,"eligible":2,"start":3,"end":%d,"time_limit":60,"elapsed":4,"memory":5,"cpu_time":6,"memory_peak":7,`+
				`"parts":[{"node":"n1","cores":2,"memory":8}],"devices":[{"for":"n1","node":"n2","device":0,"memory":9}]}`, i, 100+i)
			if i == 2 { // an upgrade that was cut off had come this far
				renamed, err := renameJob([]byte(old))
				if err != nil {
					return err
				}
				old = string(renamed)
			}
			at := append(instant(float64(100+i)), Key(i)...)
			if err := errors.Join(tx.Bucket(endedBucket).Put(Key(i), []byte(old)), tx.Bucket(atBucket).Put(at, []byte("ann"))); err != nil {
				return err
			}
		}
		return tx.Bucket(ownBucket).Put(versionKey, Key(1))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time there is nothing to do
		s = opened(t, filepath.Dir(s.Path()))
		for _, i := range []uint64{1, 2, jobs} {
			got, err := s.Ended(i)
			want := api.Job{
				ID: i, User: "ann", State: api.Completed, Submit: 1, Eligible: 2, Start: 3, End: float64(100 + i), TimeLimit: 60, Elapsed: 4, Memory: 5, CPUTime: 6, Peak: 7,
				Parts: []api.Part{{Node: "n1", Cores: 2, Memory: 8}}, Devices: []api.Device{{For: "n1", Node: "n2", Memory: 9}},
			}
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("job %d: %+v, %v, want %+v", i, got, err, want)
			}
		}
		if kept, err := s.WhatIf("day"); kept != nil || err != nil {
			t.Errorf("what was kept of the day: %q, %v", kept, err)
		}
		_ = s.Close()
	}
}

// A file of the earlier format with a record that is none is refused with what to do, as it was; and is
// brought up to date when that record is gone. One whose buckets are missing is brought up to date, too.
func TestEarlierFormatIsDamaged(t *testing.T) {
	change := func(t *testing.T, path string, do func(tx *bolt.Tx) error) {
		t.Helper()
		db, err := open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(db.Update(do), db.Close()); err != nil {
			t.Fatal(err)
		}
	}
	const good = `{"job":1,"user":"ann","state":"COMPLETED","end":5,"end_at":4,"parts":null,"devices":[null,{}]}`
	for _, broken := range []string{"", "x", "[]", `{"job":7`, `{"parts":{}}`, `{"devices":[1]}`, strings.Repeat("[", 100_000), `{"end":1}{}`} {
		s := opened(t, t.TempDir())
		path := s.Path()
		_ = s.Close()
		change(t, path, func(tx *bolt.Tx) error {
			return errors.Join(tx.Bucket(endedBucket).Put(Key(1), []byte(good)), tx.Bucket(endedBucket).Put(Key(7), []byte(broken)), tx.Bucket(ownBucket).Put(versionKey, Key(1)))
		})
		for range 2 {
			s, err := Open(filepath.Dir(path))
			if err == nil {
				_ = s.Close()
				t.Fatalf("%.20q is taken for a job", broken)
			}
			if text := err.Error(); !strings.Contains(text, "job 7") || !strings.Contains(text, whatToDo) {
				t.Errorf("%.20q: %v", broken, err)
			}
		}
		change(t, path, func(tx *bolt.Tx) error {
			if got := tx.Bucket(endedBucket).Get(Key(1)); string(got) != good {
				t.Errorf("a file that was refused has changed: %s", got)
			}
			return errors.Join(tx.Bucket(endedBucket).Delete(Key(7)), tx.DeleteBucket([]byte(head.WhatIf)), tx.DeleteBucket(atBucket))
		})
		s = opened(t, filepath.Dir(path))
		if got, err := s.Ended(1); err != nil || got.End != 5 || len(got.Devices) != 2 {
			t.Errorf("%+v, %v", got, err)
		}
		_ = s.Close()
	}
}

// A file of a head that kept no record of arrays gets those of the arrays whose tasks have ended.
func TestArraysAreTallied(t *testing.T) {
	s := opened(t, t.TempDir())
	const tasks = upgradeAtOnce + 5
	records := []head.Record{{Bucket: head.Ended, Key: head.Number(1), Value: []byte(`{"job":1,"user":"ann","state":"FAILED"}`)}}
	for i := range uint64(tasks) {
		state := api.Completed
		if i == 7 {
			state = api.Failed
		}
		if i == 9 {
			continue // it has not ended
		}
		value := fmt.Sprintf(`{"job":%d,"array_job":2,"array_task":%d,"user":"ann","state":%q,"options":"-n1 --array=5-%d"}`, 2+i, 5+i, state, 4+tasks)
		records = append(records, head.Record{Bucket: head.Ended, Key: head.Number(2 + i), Value: []byte(value)})
	}
	commit(t, s, records...)
	err := s.db.Update(func(tx *bolt.Tx) error {
		return errors.Join(tx.DeleteBucket([]byte(head.Arrays)), tx.Bucket(ownBucket).Put(versionKey, Key(2)))
	})
	if err := errors.Join(err, s.Close()); err != nil {
		t.Fatal(err)
	}
	s = opened(t, filepath.Dir(s.Path()))
	past, err := s.Past(2)
	if err != nil || past.Ends == nil || past.Ends.OK.Len() != tasks-2 || past.Ends.Bad.Len() != 1 || !past.Ends.Bad.Has(7) || past.Ends.OK.Has(9) {
		t.Errorf("%+v, %v", past.Ends, err)
	}
	if past, err := s.Past(1); err != nil || past.State != api.Failed {
		t.Error(past, err)
	}
}
