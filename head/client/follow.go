package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"muster/wire/api"
)

// A job that is waited for is asked about often at first, and then less.
const (
	firstLook = 50 * time.Millisecond
	lastLook  = 2 * time.Second
)

// AwaitEnd waits until a job, or all tasks of an array, have ended.
func (h *Head) AwaitEnd(ctx context.Context, id string) ([]api.Job, error) {
	return h.Await(ctx, id, func(j *api.Job) bool { return j.State.Over() })
}

// Await waits until a job and its tasks are as wanted. A head that is away for a while,
// to be started again, is asked again.
func (h *Head) Await(ctx context.Context, id string, wanted func(*api.Job) bool) ([]api.Job, error) {
	unwanted := func(j api.Job) bool { return !wanted(&j) }
	away := time.Duration(0)
	for pause := firstLook; ; pause = min(lastLook, pause*3/2) {
		jobs, err := h.Job(ctx, id)
		switch {
		case err == nil && !slices.ContainsFunc(jobs, unwanted):
			return jobs, nil
		case err == nil:
			away = 0
		case !errors.Is(err, ErrUnreachable) || away > headRestart:
			return nil, err
		default:
			away += pause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// headRestart is how long a head may be away while a job is waited for.
const headRestart = 5 * time.Minute

// CopyOutput writes to w what a job has written. A node forgets a job some time after its
// end: then its file is read here, if it is to be seen from here.
func (h *Head) CopyOutput(ctx context.Context, w io.Writer, id string, o Output) error {
	output, err := h.awaitOutput(ctx, id, o)
	var refused *Refused
	if errors.As(err, &refused) && o.Part == 0 {
		file, why := h.openOutput(ctx, id, o)
		switch {
		case file != nil:
			output, err = file, nil
		case why != "":
			if strings.Contains(why, "written to") {
				why += ": it cannot be read there now, nor here: " + refused.Reason
			}
			err = &Refused{refused.Status, why}
		}
	}
	if err != nil {
		return err
	}
	defer output.Close()
	n, err := io.Copy(w, output)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return &brokenOff{n, err}
	}
	return nil
}

// awaitOutput asks for a job's output. A job that is to be followed may still wait, or its node may
// not have been told of it, since nodes that lend it GPUs are told first: its output is asked for
// again until it runs.
func (h *Head) awaitOutput(ctx context.Context, id string, o Output) (io.ReadCloser, error) {
	begun := false // when it was last refused
	for pause := firstLook; ; pause = min(lastLook, pause*3/2) {
		output, err := h.Output(ctx, id, o)
		var refused *Refused
		if !o.Follow || begun || !errors.As(err, &refused) || refused.Status == http.StatusForbidden {
			return output, err
		}
		if begun = !h.isStarting(ctx, id, o.Part); begun {
			continue // it may have begun after the refusal: the next answer counts
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// MayFollow returns an error if a job is not one whose output this user may read, whether there is
// any or not.
func MayFollow(ctx context.Context, h *Head, id string) error {
	output, err := h.Output(ctx, id, Output{})
	var refused *Refused
	switch {
	case err == nil:
		return output.Close()
	case errors.As(err, &refused) && refused.Status == http.StatusForbidden:
		return err
	}
	return nil // what else is in the way may pass
}

// isStarting says whether a part of a job has yet to begin.
func (h *Head) isStarting(ctx context.Context, id string, part int) bool {
	jobs, err := h.Job(ctx, id)
	if err != nil || len(jobs) != 1 || jobs[0].State.Over() {
		return false
	}
	j := &jobs[0]
	return j.State == api.Pending || part < len(j.Parts) && j.Parts[part].State == "starting"
}

// brokenOff says that a job's output ended before the job's end was seen: the head or
// the job's node is away.
type brokenOff struct {
	copied int64 // bytes that were written before
	cause  error
}

func (b *brokenOff) Error() string {
	return fmt.Sprintf("the output breaks off, as the head or the job's node is away; the job is not affected, ask again: %v", b.cause)
}

func (b *brokenOff) Unwrap() error { return b.cause }

// FollowOutput writes to w what a job writes until it ends. Where the output breaks off it
// waits for the head, and for the job's node, and goes on behind what was written;
// broken is called the first time.
func (h *Head) FollowOutput(ctx context.Context, w io.Writer, id string, o Output, broken func()) error {
	broke, away := false, time.Duration(0)
	for pause := firstLook; ; pause = min(lastLook, pause*3/2) {
		err := h.CopyOutput(ctx, w, id, o)
		var off *brokenOff
		var refused *Refused
		switch {
		case errors.As(err, &off):
			if !broke {
				broken()
			}
			broke = true
			if off.copied > 0 {
				pause, away = firstLook, 0
			}
			o.Offset += off.copied
		case broke && away < headRestart && (errors.Is(err, ErrUnreachable) || errors.As(err, &refused) && refused.Status == http.StatusServiceUnavailable):
		default:
			return err
		}
		away += pause
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// openOutput opens the file of a job that has ended. If it cannot be read here, why says where it is;
// "" if that is not known.
func (h *Head) openOutput(ctx context.Context, id string, o Output) (output io.ReadCloser, why string) {
	jobs, err := h.Job(ctx, id)
	if err != nil || len(jobs) != 1 || !jobs[0].State.Over() {
		return nil, ""
	}
	j := &jobs[0]
	if j.Start == 0 {
		return nil, fmt.Sprintf("job %s is %s: it never started, and has written nothing", id, j.State)
	}
	name := j.Output
	if o.Error && j.Error != "" {
		name = j.Error
	}
	if name == "" { // of another user's job it is not told
		return nil, ""
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(j.Directory, name)
	}
	why = fmt.Sprintf("job %s has ended, and its output was written to %s", id, name)
	if j.NodeList != "" {
		why += " on " + j.NodeList
	}
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe would wait for one that writes
	if err != nil {
		return nil, why
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() {
		_, err = file.Seek(o.Offset, io.SeekStart)
	}
	if err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, why
	}
	return file, ""
}
