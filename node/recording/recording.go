package recording

import (
	"fmt"
	"log/slog"

	"muster/internal/recordfile"
	"muster/node/settings"
	"muster/node/vgpu"
)

// NodeEnded is the last line's reason of a recording that is whole.
const NodeEnded = "the node has ended"

// leastLimit is how much a recording must at least be allowed, beside its first line.
const leastLimit = 512

// Recording writes what the dispatcher is told and decides to a file. A nil recording records nothing.
type Recording struct {
	to    *recordfile.Writer
	line  []byte // buffer for the next line
	ended bool   // nothing is added any more
}

// Start begins to record; nil if the settings say nothing of that.
func Start(cfg settings.Record, h vgpu.Header, log *slog.Logger) (*Recording, error) {
	if cfg.File == "" {
		return nil, nil
	}
	first, err := vgpu.AppendHeader(nil, h)
	if err != nil {
		return nil, err
	}
	if least := uint64(len(first)) + leastLimit; cfg.Limit < least {
		return nil, fmt.Errorf("the limit of %d bytes is too small: give at least %d", cfg.Limit, least)
	}
	file, err := recordfile.Open(cfg.File, vgpu.HeaderPrefix, "node")
	if err != nil {
		return nil, err
	}
	r := &Recording{to: recordfile.NewWriter(file, cfg.Limit, lastLine, log)}
	_, _ = r.to.Write(first) // if there is trouble, Start says so
	if err := r.to.Start(); err != nil {
		return nil, err
	}
	log.Info("what the dispatcher decides is recorded", "file", cfg.File, "limit", cfg.Limit)
	return r, nil
}

// lastLine is the line that says why a recording ends; nothing if the reason cannot be written.
func lastLine(why string) []byte {
	line, err := vgpu.AppendEnd(nil, why)
	if err != nil {
		return nil
	}
	return line
}

// Add records one event. It never waits.
func (r *Recording) Add(e vgpu.Entry) {
	if r == nil || r.ended {
		return
	}
	var err error
	if r.line, err = vgpu.AppendEntry(r.line[:0], e); err != nil {
		r.to.End(err)
	} else {
		_, err = r.to.Write(r.line)
	}
	r.ended = err != nil
}

// Close writes what is left. The loop must have ended.
func (r *Recording) Close() {
	if r != nil {
		r.to.Close(NodeEnded)
	}
}
