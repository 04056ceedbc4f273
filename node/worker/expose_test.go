package worker

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"muster/node/clientcore"
	"muster/node/journal"
	"muster/node/worker/keeper"
	"muster/node/worker/staging"
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
	w := &early{session: &session{log: slog.New(slog.DiscardHandler), core: &clientcore.Core{}, shared: shared, staging: staging.New(func(to uint64) { back = to })}}
	j := smallJournal(t)
	w.keeper = keeper.New(j, w.staging, w.log)
	h := wire.Header{Op: wire.OpCopyIn, Slot: -1, Data: 0, Length: 64 << 10, Release: 64 << 10}
	for i := range 64 {
		w.keeper.Record(uint64(i), []byte("a message of the program's"))
		if err := w.putBack(h, nil); err != nil {
			t.Fatal(err)
		}
	}
	if back == 0 || j.Valid() {
		t.Errorf("memory up to %d was given back, and the journal is valid: %v", back, j.Valid())
	}
}
