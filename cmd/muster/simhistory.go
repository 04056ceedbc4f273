package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"

	"muster/model"
	"muster/policy/history"
	"muster/workload"
)

// isHistory says whether a file is what --record of muster head, muster slurm drive or muster sim
// writes: its first line begins with the version of the format.
func isHistory(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return false
	}
	in, err := unzipped(file)
	if err != nil {
		return false
	}
	begin, _ := bufio.NewReader(io.LimitReader(in, 64)).Peek(11)
	return bytes.HasPrefix(begin, []byte(`{"history":`))
}

// readHistoryJobs reads the jobs of a record.
func readHistoryJobs(path string) (*history.Workload, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	in, err := unzipped(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	h, err := history.Jobs(in)
	if err != nil {
		return nil, badHistory(path, err)
	}
	if len(h.Jobs) == 0 {
		return nil, fmt.Errorf("%s: no job of this record has run yet: let it go on for a while", path)
	}
	return h, nil
}

// historyWorkload is a record as a log of jobs.
func historyWorkload(path string) (*workload.Workload, *workload.ReadReport, error) {
	h, err := readHistoryJobs(path)
	if err != nil {
		return nil, nil, err
	}
	report := &workload.ReadReport{Format: "history", Jobs: len(h.Jobs)}
	note := func(n int, what string) {
		if n > 0 {
			report.Notes = append(report.Notes, model.Plural(n, "job")+" "+what)
		}
	}
	note(h.Waiting, "left out, since never started")
	note(h.Running, "still running at the end: as long as was seen")
	return &workload.Workload{Name: path, Jobs: h.Jobs}, report, nil
}
