package keeper

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"muster/node/journal"
	"muster/node/worker/staging"
)

// smallJournal is a journal with a base and hardly any room for a log.
func smallJournal(t *testing.T) *journal.Journal {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(1 << 20); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Map(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(j.Unmap)
	if err := j.Commit([]byte("base")); err != nil {
		t.Fatal(err)
	}
	return j
}

// What a program does by itself is no warning on its user's terminal; what the
// administrator can help with is one.
func TestLevelOfWhatCannotBeRebuilt(t *testing.T) {
	for _, tt := range []struct {
		level  string
		expose func(k *Keeper)
	}{
		{"INFO", func(k *Keeper) { k.ExposeByUse("its kernels reach memory of the program's") }},
		{"WARN", func(k *Keeper) { k.Expose(errors.New("the disk is full")) }},
	} {
		j := smallJournal(t)
		var log bytes.Buffer
		tt.expose(New(j, nil, slog.New(slog.NewTextHandler(&log, nil))))
		if j.Valid() || !strings.Contains(log.String(), "level="+tt.level+" ") {
			t.Errorf("valid %v; the log has %q, want level %s", j.Valid(), log.String(), tt.level)
		}
	}
}

// Data of the program's that neither the log nor a base has are not forgotten because other data were
// kept in staging memory meanwhile.
func TestKeptDataDoNotHideOthers(t *testing.T) {
	back := staging.New(func(uint64) {})
	k := New(smallJournal(t), back, slog.New(slog.DiscardHandler))
	e := k.journal.Append(0, []byte("a message of the program's"))
	k.Attach(e, make([]byte, 2<<20), false)
	if !k.Valid() {
		t.Fatal("a base that is still to be made would have been in time")
	}
	k.kept = append(k.kept, retained{e, make([]byte, 100), back.Take(100)})
	k.CannotFold()
	if k.Valid() {
		t.Error("the journal is valid without the data")
	}
}

// A program that sends nothing for long is noticed once, and again after it has gone on.
func TestPausesOfAProgram(t *testing.T) {
	var p pause
	start := time.Now()
	for i, c := range []struct {
		position uint64
		after    time.Duration
		want     bool
	}{
		{8, 0, false}, {8, spareTime - 1, false}, {8, spareTime, true}, {8, 5 * spareTime, false},
		{16, 6 * spareTime, false}, {24, 8 * spareTime, false}, {24, 9 * spareTime, true}, {24, 10 * spareTime, false},
	} {
		if got := p.lasts(c.position, start.Add(c.after)); got != c.want {
			t.Errorf("look %d: %v", i, got)
		}
	}
}
