package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"testing"

	bolt "go.etcd.io/bbolt"

	"muster/head"
	"muster/head/api"
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
