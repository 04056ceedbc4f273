package daemon

import (
	"fmt"

	"muster/head"
	"muster/internal/recordfile"
	"muster/policy/history"
)

// DefaultRecordLimit is how large a recording may become if nothing is said.
const DefaultRecordLimit = 1 << 30

// record starts to record everything that the policy is told and decides, if the configuration names a file.
func (d *daemon) record(core *head.Core) error {
	if d.cfg.Record == "" {
		return nil
	}
	file, err := recordfile.Open(d.cfg.Record, `{"history":`, "head")
	if err != nil {
		return fmt.Errorf("recording: %w", err)
	}
	w := recordfile.NewWriter(file, uint64(d.cfg.RecordLimit), nil, d.log)
	core.Record(w, d.header())
	if err := w.Start(); err != nil {
		return fmt.Errorf("recording: %w", err)
	}
	d.recording = w
	d.log.Info("what the policy decides is recorded", "file", d.cfg.Record, "limit", d.cfg.RecordLimit)
	return nil
}

// header is the first line of recordings and snapshots.
func (d *daemon) header() history.Header {
	return history.Header{Policy: d.spec(), Muster: d.Version, Note: "muster head of cluster " + d.cfg.Core.Cluster}
}

// spec is the full specification of the policy in force, including preemption classes.
func (d *daemon) spec() string {
	c := d.inForce.Load()
	return d.fullSpec(c.name, c.rules)
}
