package worker

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"muster/node/journal"
)

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
		defer j.Unmap()
		if err := j.Commit([]byte("base")); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		w := &worker{log: slog.New(slog.NewTextHandler(&log, nil))}
		w.journal = j
		tt.expose(w)
		if j.Valid() || !strings.Contains(log.String(), "level="+tt.level+" ") {
			t.Errorf("valid %v; the log has %q, want level %s", j.Valid(), log.String(), tt.level)
		}
	}
}
