package worker

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/node/clientcore"
	"muster/node/journal"
	"muster/wire"
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
		expose func(w *worker)
	}{
		{"INFO", func(w *worker) { w.exposeByUse("its kernels reach memory of the program's") }},
		{"WARN", func(w *worker) { w.expose(errors.New("the disk is full")) }},
	} {
		j := smallJournal(t)
		var log bytes.Buffer
		w := &worker{log: slog.New(slog.NewTextHandler(&log, nil))}
		w.journal = j
		tt.expose(w)
		if j.Valid() || !strings.Contains(log.String(), "level="+tt.level+" ") {
			t.Errorf("valid %v; the log has %q, want level %s", j.Valid(), log.String(), tt.level)
		}
	}
}

// A message is read ahead whose data the log has no room for. Its staging memory goes back to the
// program at once, so from then on the client cannot be rebuilt from this log.
func TestReadAheadBeyondTheLog(t *testing.T) {
	ring, arena := createShared(t)
	shared, err := wire.Map(ring, arena)
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Unmap()
	var back uint64
	w := &worker{log: slog.New(slog.DiscardHandler), core: &clientcore.Core{}, shared: shared, staging: &staging{release: func(to uint64) { back = to }}}
	w.journal = smallJournal(t)
	h := wire.Header{Op: wire.OpCopyIn, Slot: -1, Data: 0, Length: 64 << 10, Release: 64 << 10}
	for i := range 64 {
		w.latestEntry = w.journal.Append(uint64(i), []byte("a message of the program's"))
		if err := w.putBack(h, nil); err != nil {
			t.Fatal(err)
		}
	}
	if back == 0 || w.journal.Valid() {
		t.Errorf("memory up to %d was given back, and the journal is valid: %v", back, w.journal.Valid())
	}
}

// Data of the program's that neither the log nor a base has are not forgotten because other data were
// kept in staging memory meanwhile.
func TestKeptDataDoNotHideOthers(t *testing.T) {
	w := &worker{log: slog.New(slog.DiscardHandler), staging: &staging{release: func(uint64) {}}}
	w.journal = smallJournal(t)
	e := w.journal.Append(0, []byte("a message of the program's"))
	w.attachData(e, make([]byte, 2<<20), false)
	if !w.journal.Valid() {
		t.Fatal("a base that is still to be made would have been in time")
	}
	w.kept = append(w.kept, retained{e, make([]byte, 100), w.staging.take(100)})
	w.cannotFold()
	if w.journal.Valid() {
		t.Error("the journal is valid without the data")
	}
}
