package source

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"

	"muster/internal/units"
	"muster/policy/history"
	"muster/workload"
)

// IsRecord says whether a file is what --record of muster head, muster slurm drive or muster sim
// writes: its first line begins with the version of the format.
func IsRecord(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return false
	}
	in, err := Unzipped(file)
	if err != nil {
		return false
	}
	begin, _ := bufio.NewReader(io.LimitReader(in, 64)).Peek(11)
	return bytes.HasPrefix(begin, []byte(`{"history":`))
}

// Record reads the cluster and the jobs of a record.
func Record(path string) (*history.Workload, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	in, err := Unzipped(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	h, err := history.Jobs(in)
	if err != nil {
		return nil, BadRecord(path, err)
	}
	if len(h.Jobs) == 0 {
		return nil, fmt.Errorf("%s: no job of this record has run yet: let it go on for a while", path)
	}
	return h, nil
}

// recordAsLog reads a record as a log of jobs.
func recordAsLog(path string) (*workload.Workload, *workload.ReadReport, error) {
	h, err := Record(path)
	if err != nil {
		return nil, nil, err
	}
	report := &workload.ReadReport{Format: "history", Jobs: len(h.Jobs)}
	note := func(n int, what string) {
		if n > 0 {
			report.Notes = append(report.Notes, units.Plural(n, "job")+" "+what)
		}
	}
	note(h.Waiting, "left out, since never started")
	note(h.Running, "still running at the end: as long as was seen")
	return &workload.Workload{Name: path, Jobs: h.Jobs}, report, nil
}

// Unzipped reads what may be gzipped.
func Unzipped(in io.Reader) (io.Reader, error) {
	b := bufio.NewReader(in)
	if magic, err := b.Peek(2); err == nil && magic[0] == 0x1f && magic[1] == 0x8b {
		return gzip.NewReader(b)
	}
	return b, nil
}

// BadRecord names the place where a record cannot be read.
func BadRecord(name string, err error) error {
	var bad *history.LineError
	if errors.As(err, &bad) {
		return fmt.Errorf("%s:%d: %w", name, bad.Line, bad.Err)
	}
	return fmt.Errorf("%s: %w", name, err)
}
