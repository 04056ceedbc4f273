package store

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"muster/head"
	"muster/head/record"
	"muster/wire/api"
)

// Filter chooses among ended jobs.
type Filter struct {
	// Since and Until bound the time of the end, [Since, Until); 0 is no bound.
	Since, Until float64
	User         string // "" is all users
}

// Limits of one page of the history: jobs, and entries that are examined to find them. The latter
// limits the cost of a search for a user who has no jobs.
const (
	MaxPage   = 10_000
	maxLooked = 200_000
)

// History lists ended jobs in the order in which they ended, at most limit of them, beginning after
// a job (0: from the beginning). next is the job after which to continue; 0 at the end. A page may
// have fewer jobs than limit, even none, and still be followed by others.
func (s *Store) History(after uint64, limit int, f Filter) (jobs []api.Job, next uint64, err error) {
	limit = max(1, min(limit, MaxPage))
	err = s.view(func(tx *bolt.Tx) error {
		ended, at := tx.Bucket(endedBucket), tx.Bucket(atBucket)
		from := instant(f.Since)
		if after != 0 {
			stored := ended.Get(Key(after))
			if stored == nil {
				return fmt.Errorf("after job %d: %w", after, ErrNoSuch)
			}
			value, err := unseal(string(endedBucket), Key(after), stored)
			if err != nil {
				return err
			}
			behind, _, err := atKey(Key(after), value)
			if err != nil {
				return err
			}
			if behind = append(behind, 0); bytes.Compare(behind, from) > 0 {
				from = behind
			}
		}
		jobs, next, err = page(at, ended, from, limit, f)
		return err
	})
	return jobs, next, err
}

func page(at, ended *bolt.Bucket, from []byte, limit int, f Filter) (jobs []api.Job, next uint64, err error) {
	jobs = []api.Job{}
	var until []byte
	if f.Until > 0 {
		until = instant(f.Until)
	}
	c, looked := at.Cursor(), 0
	last := uint64(0)
	for k, stored := c.Seek(from); k != nil; k, stored = c.Next() {
		user, err := unseal(string(atBucket), k, stored)
		if err != nil || len(k) != 16 {
			return nil, 0, cmp.Or(err, errDamaged)
		}
		if until != nil && bytes.Compare(k[:8], until) >= 0 {
			return jobs, 0, nil
		}
		if len(jobs) == limit || looked == maxLooked {
			return jobs, last, nil
		}
		looked++
		last = number(k[8:])
		if f.User != "" && f.User != string(user) {
			continue
		}
		value, err := listed(ended, k[8:])
		if err != nil {
			return nil, 0, err
		}
		job, err := record.ReadEnded(value)
		if err != nil {
			return nil, 0, errors.Join(errDamaged, err)
		}
		jobs = append(jobs, *job.Document())
	}
	return jobs, 0, nil
}

// listed reads an ended job that the list by time names.
func listed(ended *bolt.Bucket, key []byte) ([]byte, error) {
	stored := ended.Get(key)
	if stored == nil {
		return nil, fmt.Errorf("%w: ended job %d is listed and not there", errDamaged, number(key))
	}
	return unseal(string(endedBucket), key, stored)
}

// rawPage is how many records are read in one transaction. A transaction that is open for long
// keeps pages of the file from being reused.
const rawPage = 1000

// EndedBetween visits the records of jobs that ended in [since, until), the latest first, until
// visit has enough.
func (s *Store) EndedBetween(since, until float64, visit func(value []byte) (more bool, err error)) error {
	from, before := instant(since), instant(until)
	for {
		page, last, err := s.rawPage(from, before)
		if err != nil {
			return err
		}
		for _, value := range page {
			if more, err := visit(value); err != nil || !more {
				return err
			}
		}
		if len(page) < rawPage {
			return nil
		}
		before = last
	}
}

// rawPage reads backwards the records that stand before a key of the list by time.
func (s *Store) rawPage(from, before []byte) (page [][]byte, last []byte, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		ended, c := tx.Bucket(endedBucket), tx.Bucket(atBucket).Cursor()
		k, _ := c.Seek(before)
		if k == nil {
			k, _ = c.Last()
		} else {
			k, _ = c.Prev()
		}
		for ; k != nil && bytes.Compare(k, from) >= 0 && len(page) < rawPage; k, _ = c.Prev() {
			if len(k) != 16 {
				return errDamaged
			}
			value, err := listed(ended, k[8:])
			if err != nil {
				return err
			}
			page, last = append(page, clone(value)), clone(k)
		}
		return nil
	})
	return page, last, err
}

// SinceFor is the earliest instant, not before since, after which at most most jobs have ended.
func (s *Store) SinceFor(since float64, most int) (at float64, err error) {
	at = since
	err = s.view(func(tx *bolt.Tx) error {
		from, c := instant(since), tx.Bucket(atBucket).Cursor()
		k, _ := c.Last()
		for n := 0; k != nil && bytes.Compare(k, from) >= 0; k, _ = c.Prev() {
			if n++; n > most && len(k) == 16 {
				at = float64(number(k[:8])+1) / 1e6 // just after that job's end
				return nil
			}
		}
		return nil
	})
	return at, err
}

// NodeLog lists the changes of nodes' states since an instant, in order.
func (s *Store) NodeLog(since time.Duration) (turns []head.NodeTurn, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		c := tx.Bucket([]byte(head.NodeLog)).Cursor()
		for k, v := c.Seek(Key(uint64(max(0, since)))); k != nil; k, v = c.Next() {
			var t head.NodeTurn
			value, err := unseal(string(head.NodeLog), k, v)
			if err != nil {
				return err
			}
			if err := json.Unmarshal(value, &t); err != nil {
				return errors.Join(errDamaged, err)
			}
			turns = append(turns, t)
		}
		return nil
	})
	return turns, err
}

// WhatIf reads the stored result of a period; nil if there is none.
func (s *Store) WhatIf(period string) (value []byte, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		found := tx.Bucket([]byte(head.WhatIf)).Get([]byte(period))
		if found == nil {
			return nil
		}
		found, err := unseal(string(head.WhatIf), []byte(period), found)
		value = clone(found)
		return err
	})
	return value, err
}

func number(key []byte) (n uint64) {
	for _, b := range key {
		n = n<<8 | uint64(b)
	}
	return n
}

// maxTasks is how many records from an array's number on are examined for its tasks.
const maxTasks = 200_000

// EndedAll reads an ended job, or the ended tasks of an array: all, or one of them. Tasks have the
// array's number and those that follow it.
func (s *Store) EndedAll(job uint64, task int64) (jobs []api.Job, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		array, ends, err := arrayWith(tx, job)
		if err != nil {
			return err
		}
		place, one := int(job-array), true
		if ends != nil && array == job {
			if task < 0 {
				jobs, err = tasksOf(tx, array)
				return err
			}
			place, one = ends.Place(task)
		}
		if !one || task >= 0 && array != job {
			return ErrNoSuch
		}
		var ended *record.Ended
		r := &reader{tx: tx}
		if ends != nil {
			ended, err = ends.Ended(array, place, r.get)
		} else if value := r.get(head.Ended, job); value != nil && task < 0 {
			ended, err = record.ReadEnded(value)
		}
		switch {
		case r.altered != nil:
			return r.altered
		case err != nil:
			return errors.Join(errDamaged, err)
		case ended == nil:
			return ErrNoSuch
		}
		jobs = append(jobs, *ended.Document())
		return nil
	})
	return jobs, err
}

// tasksOf reads the ended tasks of an array.
func tasksOf(tx *bolt.Tx, array uint64) (jobs []api.Job, err error) {
	c, looked := tx.Bucket(endedBucket).Cursor(), 0
	for k, stored := c.Seek(Key(array)); k != nil && looked < maxTasks; k, stored = c.Next() {
		looked++
		value, err := unseal(string(endedBucket), k, stored)
		if err != nil {
			return nil, err
		}
		ended, err := record.ReadEnded(value)
		if err != nil {
			return nil, errors.Join(errDamaged, err)
		}
		if ended.ArrayJob != array {
			break // the numbers of an array's tasks are consecutive
		}
		jobs = append(jobs, *ended.Document())
	}
	if len(jobs) == 0 {
		return nil, ErrNoSuch
	}
	return jobs, nil
}

// arrayWith finds the array that has a job number, and how its tasks ended; nil if no task of an
// array with that number has ended.
func arrayWith(tx *bolt.Tx, job uint64) (array uint64, ends *head.Ends, err error) {
	c := tx.Bucket([]byte(head.Arrays)).Cursor()
	k, value := c.Seek(Key(job))
	if k == nil {
		k, value = c.Last()
	} else if number(k) != job {
		k, value = c.Prev()
	}
	if k == nil {
		return 0, nil, nil
	}
	if value, err = unseal(string(head.Arrays), k, value); err != nil {
		return 0, nil, err
	}
	if ends, err = head.DecodeEnds(value); err != nil {
		return 0, nil, fmt.Errorf("%w (array %d: %w)", errDamaged, number(k), err)
	}
	if _, in := ends.Task(job - number(k)); !in {
		return 0, nil, nil
	}
	return number(k), ends, nil
}

// reader reads records by their numbers, and notes if one is altered.
type reader struct {
	tx      *bolt.Tx
	altered error
}

func (r *reader) get(b head.Bucket, number uint64) []byte {
	stored := r.tx.Bucket([]byte(b)).Get(Key(number))
	if stored == nil {
		return nil
	}
	value, err := unseal(string(b), Key(number), stored)
	if err != nil {
		r.altered = err
		return nil
	}
	return value
}

// Past reads how a job ended, or those tasks of an array that have ended. It takes no longer for a
// large array: the core's loop waits for it.
func (s *Store) Past(job uint64) (past head.Past, err error) {
	err = s.view(func(tx *bolt.Tx) error {
		known, r := false, &reader{tx: tx}
		if past, known, err = head.PastOf(job, r.get); known || err != nil || r.altered != nil {
			return errors.Join(err, r.altered)
		}
		// It may be a task that ended together with others.
		array, ends, err := arrayWith(tx, job)
		if err != nil || ends == nil {
			return errors.Join(err, ErrNoSuch)
		}
		ended, err := ends.Ended(array, int(job-array), r.get)
		switch {
		case r.altered != nil:
			return r.altered
		case err != nil || ended == nil:
			return errors.Join(err, ErrNoSuch)
		}
		past.State = api.State(ended.State)
		return nil
	})
	return past, err
}
