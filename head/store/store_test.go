package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"muster/head"
	"muster/wire/api"
)

func opened(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func commit(t testing.TB, s *Store, records ...head.Record) {
	t.Helper()
	if err := s.Commit(records); err != nil {
		t.Fatal(err)
	}
}

func ended(number uint64, user string, end float64) head.Record {
	value, err := json.Marshal(api.Job{ID: number, User: user, State: api.Completed, End: end})
	if err != nil {
		panic(err)
	}
	return head.Record{Bucket: head.Ended, Key: Key(number), Value: value}
}

func all(t testing.TB, s *Store, b head.Bucket) string {
	t.Helper()
	var list []string
	if err := s.Each(b, func(r head.Record) error {
		list = append(list, fmt.Sprintf("%s=%s", r.Key, r.Value))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(list, " ")
}

func TestRecordsAreThereAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	s := opened(t, dir)
	commit(t, s, head.Record{Bucket: head.Meta, Key: []byte("b"), Value: []byte("2")}, head.Record{Bucket: head.Meta, Key: []byte("a"), Value: []byte("1")})
	commit(t, s, head.Record{Bucket: head.Nodes, Key: []byte("n1"), Value: []byte{}}, head.Record{Bucket: head.Bulk, Key: Key(7), Value: []byte("script")})
	commit(t, s, head.Record{Bucket: head.Meta, Key: []byte("b")}, head.Record{Bucket: head.Meta, Key: []byte("not there")})
	if err := s.Commit([]head.Record{{Bucket: head.Meta, Key: []byte("c"), Value: []byte("3")}, {Bucket: "store", Key: []byte("version"), Value: []byte("x")}}); err == nil {
		t.Error("the store's own part was written")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = opened(t, dir)
	if got := all(t, s, head.Meta); got != "a=1" {
		t.Errorf("meta has %q", got)
	}
	if got := all(t, s, head.Nodes); got != "n1=" {
		t.Errorf("nodes has %q", got)
	}
	if b, err := s.Bulk(7); err != nil || string(b) != "script" {
		t.Errorf("bulk is %q, %v", b, err)
	}
	if _, err := s.Bulk(8); !errors.Is(err, ErrNoSuch) {
		t.Error(err)
	}
	if info, err := os.Stat(s.Path()); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
}

func TestOneHeadAtATime(t *testing.T) {
	s := opened(t, t.TempDir())
	_, err := Open(filepath.Dir(s.Path()))
	want := "another head has " + s.Path() + " open: stop it, or give this one another folder (--state)"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

// Whatever is found in place of the file causes an error that says what to do.
func TestDamagedFiles(t *testing.T) {
	whole := func() []byte {
		s := opened(t, t.TempDir())
		var many []head.Record
		for i := range uint64(5000) {
			many = append(many, head.Record{Bucket: head.Jobs, Key: Key(i), Value: bytes.Repeat([]byte{1}, 100)})
		}
		commit(t, s, many...)
		_ = s.Close()
		text, err := os.ReadFile(s.Path())
		if err != nil {
			t.Fatal(err)
		}
		return text
	}()
	for name, text := range map[string][]byte{
		"some text":        []byte("not a database"),
		"much text":        bytes.Repeat([]byte("not a database"), 10_000),
		"zeros":            make([]byte, 1<<20),
		"cut in the metas": whole[:5000],
		"cut":              whole[:300<<10],
		"zeros in between": slices.Concat(whole[:16<<10], make([]byte, len(whole)-16<<10)),
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, FileName), text, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(dir)
		if err == nil {
			err = s.Each(head.Jobs, func(head.Record) error { return nil })
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "put a backup in its place") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestLaterFormat(t *testing.T) {
	s := opened(t, t.TempDir())
	_ = s.Close()
	db, err := open(s.Path())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tx.Bucket(ownBucket).Put(versionKey, Key(Version+1)), tx.Commit(), db.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Dir(s.Path())); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("it has format %d, and this program knows format %d", Version+1, Version)) {
		t.Errorf("got %v", err)
	}
}

// A file of a program that had no use for a bucket is taken.
func TestMissingBucket(t *testing.T) {
	s := opened(t, t.TempDir())
	_ = s.Close()
	db, err := open(s.Path())
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(tx.DeleteBucket([]byte(head.Keys)), tx.Commit(), db.Close()); err != nil {
		t.Fatal(err)
	}
	s = opened(t, filepath.Dir(s.Path()))
	commit(t, s, head.Record{Bucket: head.Keys, Key: []byte("a"), Value: []byte("1")})
	if got := all(t, s, head.Keys); got != "a=1" {
		t.Errorf("keys has %q", got)
	}
}

// The pages of the history, put together, equal a sorted list.
func TestHistory(t *testing.T) {
	s := opened(t, t.TempDir())
	const seed = 1
	random := rand.New(rand.NewPCG(seed, 0))
	type line struct {
		number uint64
		user   string
		end    float64
	}
	var want []line
	var records []head.Record
	for number := uint64(1); number <= 500; number++ {
		l := line{number, string(rune('a' + random.IntN(3))), float64(random.IntN(100)) + 0.5}
		want = append(want, l)
		records = append(records, ended(l.number, "x", 3), ended(l.number, l.user, l.end)) // the second counts
	}
	records = append(records, ended(501, "a", 1), head.Record{Bucket: head.Ended, Key: Key(501)})
	commit(t, s, records...)
	slices.SortFunc(want, func(a, b line) int {
		if a.end != b.end {
			return int(a.end - b.end)
		}
		return int(a.number) - int(b.number)
	})
	for _, f := range []Filter{{}, {Since: 20.5}, {Until: 60.5}, {Since: 30, Until: 40, User: "b"}, {User: "nobody"}} {
		var got, expected []uint64
		for _, l := range want {
			if l.end >= f.Since && (f.Until == 0 || l.end < f.Until) && (f.User == "" || f.User == l.user) {
				expected = append(expected, l.number)
			}
		}
		for after := uint64(0); ; {
			jobs, next, err := s.History(after, 7, f)
			if err != nil {
				t.Fatal(err)
			}
			for _, j := range jobs {
				got = append(got, j.ID)
			}
			if after = next; next == 0 {
				break
			}
		}
		if !slices.Equal(got, expected) {
			t.Errorf("seed %d: %+v: got %v, want %v", seed, f, got, expected)
		}
	}
	if _, _, err := s.History(9999, 1, Filter{}); !errors.Is(err, ErrNoSuch) {
		t.Error(err)
	}
	if j, err := s.Ended(3); err != nil || j.ID != 3 {
		t.Error(j, err)
	}
}

// A copy that was written while commits continued can be opened by a head.
func TestBackup(t *testing.T) {
	s := opened(t, t.TempDir())
	commit(t, s, head.Record{Bucket: head.Meta, Key: []byte("a"), Value: []byte("1")})
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, FileName))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteTo(f); err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	if got := all(t, opened(t, dir), head.Meta); got != "a=1" {
		t.Errorf("the copy has %q", got)
	}
}

// submissions is what n submissions write.
func submissions(first uint64, n int) []head.Record {
	job, bulk := bytes.Repeat([]byte("j"), 600), bytes.Repeat([]byte("b"), 1500)
	var records []head.Record
	for i := range uint64(n) {
		records = append(records, head.Record{Bucket: head.Jobs, Key: Key(first + i), Value: job}, head.Record{Bucket: head.Bulk, Key: Key(first + i), Value: bulk})
	}
	return append(records, head.Record{Bucket: head.Meta, Key: []byte("next"), Value: Key(first)})
}

// BenchmarkCommit measures how many submissions per second become durable, by how many share a
// transaction.
func BenchmarkCommit(b *testing.B) {
	for _, batch := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint("batch=", batch), func(b *testing.B) {
			s := opened(b, b.TempDir())
			next := uint64(1)
			for b.Loop() {
				commit(b, s, submissions(next, batch)...)
				next += uint64(batch)
			}
			b.ReportMetric(float64(batch)*float64(b.N)/b.Elapsed().Seconds(), "submissions/s")
		})
	}
}

// BenchmarkOpen measures what a history costs at a restart.
func BenchmarkOpen(b *testing.B) {
	for _, jobs := range []int{1000, 1_000_000} {
		b.Run(fmt.Sprint("history=", jobs), func(b *testing.B) {
			dir := b.TempDir()
			s := opened(b, dir)
			for at := 0; at < jobs; at += 10_000 {
				var records []head.Record
				for i := at; i < min(at+10_000, jobs); i++ {
					records = append(records, ended(uint64(i+1), "alice", float64(i)))
				}
				commit(b, s, records...)
			}
			_ = s.Close()
			for b.Loop() {
				s := opened(b, dir)
				for _, bucket := range []head.Bucket{head.Meta, head.Jobs, head.Nodes} {
					all(b, s, bucket)
				}
				_ = s.Close()
			}
		})
	}
}

func TestPast(t *testing.T) {
	s := opened(t, t.TempDir())
	one := uint32(1)
	ends := head.EndsOf("--array=1-9:2")
	ends.Add(0, api.Completed)
	for place := 1; place < 4; place++ {
		ends.Add(place, api.Cancelled)
	}
	ends.Rests = []uint64{5}
	records := []head.Record{{Bucket: head.Arrays, Key: head.Number(4), Value: document(t, ends)}}
	for _, j := range []api.Job{
		{ID: 3, State: api.Failed}, {ID: 4, ArrayJob: 4, ArrayTask: &one, State: api.Completed},
		{ID: 5, ArrayJob: 4, ArrayTasks: "3-7:2", ArrayCount: 3, State: api.Cancelled}, {ID: 9, State: api.Completed},
	} {
		records = append(records, head.Record{Bucket: head.Ended, Key: head.Number(j.ID), Value: document(t, j)})
	}
	if err := s.Commit(records); err != nil {
		t.Fatal(err)
	}
	for job, want := range map[uint64]head.Past{3: {State: api.Failed}, 4: {Ends: ends}, 5: {State: api.Cancelled}, 7: {State: api.Cancelled}, 9: {State: api.Completed}} {
		if got, err := s.Past(job); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("job %d: got %+v, %v; want %+v", job, got, err, want)
		}
	}
	for _, job := range []uint64{2, 8, 10} { // 8 has not ended
		if _, err := s.Past(job); !errors.Is(err, ErrNoSuch) {
			t.Error(job, err)
		}
	}
	for name, want := range map[head.Ref]string{
		{Job: 4, Task: -1}: "4 5", {Job: 4, Task: 1}: "4 1", {Job: 4, Task: 5}: "6 5", {Job: 7, Task: -1}: "7 7", {Job: 3, Task: -1}: "3",
		{Job: 4, Task: 9}: "", {Job: 4, Task: 2}: "", {Job: 3, Task: 1}: "", {Job: 7, Task: 7}: "",
	} {
		jobs, err := s.EndedAll(name.Job, name.Task)
		got := ""
		for _, j := range jobs {
			got += fmt.Sprint(" ", j.ID)
		}
		if len(jobs) == 1 && jobs[0].ArrayTask != nil {
			got += fmt.Sprint(" ", *jobs[0].ArrayTask)
		}
		if strings.TrimSpace(got) != want || (want == "") != errors.Is(err, ErrNoSuch) {
			t.Errorf("%+v: %q, %v, want %q", name, got, err, want)
		}
	}
}

func document(t *testing.T, v any) []byte {
	t.Helper()
	value, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// Records of ended jobs are visited from the latest on, page by page.
func TestEndedBetween(t *testing.T) {
	s := opened(t, t.TempDir())
	const jobs = 2*rawPage + 7
	var records []head.Record
	for i := range uint64(jobs) {
		records = append(records, ended(i+1, "alice", 1000+float64(i/2))) // two at a time
	}
	commit(t, s, records...)
	for _, c := range []struct {
		since, until float64
		enough, want int
	}{{0, 1e9, jobs * 2, jobs}, {1000, 1001, 10, 2}, {1003, 1005, 10, 4}, {0, 1e9, 5, 5}, {5000, 6000, 10, 0}, {0, 1000, 10, 0}} {
		seen, last := map[uint64]bool{}, 1e18
		err := s.EndedBetween(c.since, c.until, func(value []byte) (bool, error) {
			var j api.Job
			if err := json.Unmarshal(value, &j); err != nil {
				return false, err
			}
			if seen[j.ID] || j.End > last || j.End < c.since || j.End >= c.until {
				t.Errorf("[%v, %v): job %d, which ended at %v, comes after %v", c.since, c.until, j.ID, j.End, last)
			}
			seen[j.ID], last = true, j.End
			return len(seen) < c.enough, nil
		})
		if err != nil || len(seen) != c.want {
			t.Errorf("[%v, %v): %d jobs, want %d: %v", c.since, c.until, len(seen), c.want, err)
		}
	}
}

func TestSinceFor(t *testing.T) {
	s := opened(t, t.TempDir())
	var records []head.Record
	for i := range uint64(100) {
		records = append(records, ended(i+1, "alice", 1000+float64(i/2)))
	}
	commit(t, s, records...)
	for most, want := range map[int]int{1000: 100, 100: 100, 99: 98, 10: 10, 9: 8, 1: 0, 0: 0} {
		at, err := s.SinceFor(1000, most)
		n := 0
		if err == nil {
			err = s.EndedBetween(at, 1e9, func([]byte) (bool, error) { n++; return true, nil })
		}
		if err != nil || n != want {
			t.Errorf("at most %d: %d jobs since %v, want %d: %v", most, n, at, want, err)
		}
	}
}

// The log of nodes forgets what is too old, and what was kept of a simulation is replaced.
func TestNodeLogAndWhatIf(t *testing.T) {
	s := opened(t, t.TempDir())
	day := 24 * time.Hour
	for i := range 40 {
		at := time.Duration(i) * day
		turn := head.NodeTurn{At: at, Node: 3, Was: "up", Is: "down"}
		value, err := json.Marshal(turn)
		if err != nil {
			t.Fatal(err)
		}
		commit(t, s, head.Record{Bucket: head.NodeLog, Key: append(Key(uint64(at)), 0, 0, 0, 3), Value: value})
	}
	turns, err := s.NodeLog(0)
	if err != nil || len(turns) != 16 || turns[0].At != 24*day || turns[15].At != 39*day || turns[15].Is != "down" {
		t.Errorf("%d turns are left: %+v, %v", len(turns), turns, err)
	}
	if turns, err = s.NodeLog(38 * day); err != nil || len(turns) != 2 {
		t.Errorf("since the day before yesterday: %+v, %v", turns, err)
	}
	if value, err := s.WhatIf("day"); value != nil || err != nil {
		t.Errorf("before anything was kept: %s, %v", value, err)
	}
	for _, text := range []string{"a", "b"} {
		commit(t, s, head.Record{Bucket: head.WhatIf, Key: []byte("day"), Value: []byte(text)})
	}
	if value, err := s.WhatIf("day"); string(value) != "b" || err != nil {
		t.Errorf("kept: %s, %v", value, err)
	}
}
