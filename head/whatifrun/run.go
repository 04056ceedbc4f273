package whatifrun

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"muster/wire/api"
)

// Jobs visits the records of ended jobs, one line each, until visit has enough.
type Jobs func(visit func(record []byte) (more bool, err error)) error

// Run starts a process that carries out an order, and returns the result. command makes the
// process, which must run Serve; it is killed when ctx is done. tell is called with each message
// until the last.
func Run(ctx context.Context, command func(ctx context.Context) *exec.Cmd, o Order, jobs Jobs, tell func(Message)) (*api.WhatIfPeriod, error) {
	c := command(ctx)
	c.WaitDelay = 2 * time.Second
	complaints := &opening{}
	c.Stderr = complaints
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, fmt.Errorf("the process that simulates cannot be started: %w", err)
	}
	fed := make(chan error, 1)
	go func() { fed <- feed(in, &o, jobs) }()
	said := listen(out, tell)
	if said.err != nil || said.period == nil {
		_ = c.Process.Kill() // it said something wrong, or nothing: it has no result to give
	}
	_ = in.Close()
	ended := c.Wait()
	notFed := <-fed
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case said.err != nil && said.words:
		return nil, said.err
	case said.period != nil:
		return said.period, nil // how the process ended after its result does not matter
	case notFed != nil && !errors.Is(notFed, errNotTaken):
		return nil, notFed
	}
	return nil, fmt.Errorf("the process that simulates has ended (%v)%s", ended, complaints)
}

// errNotTaken says that the process did not read its input. Why it ended explains more.
var errNotTaken = errors.New("the process that simulates does not read")

// feed writes the input of the process. The pipe stays open.
func feed(in io.Writer, o *Order, jobs Jobs) error {
	w := bufio.NewWriterSize(in, 1<<16)
	line, err := json.Marshal(o)
	if err != nil {
		return err
	}
	put := func(line []byte) error {
		_, err := w.Write(line)
		if err == nil {
			err = w.WriteByte('\n')
		}
		if err != nil {
			return fmt.Errorf("%w: %w", errNotTaken, err)
		}
		return nil
	}
	if err := put(line); err != nil {
		return err
	}
	if err := jobs(func(record []byte) (bool, error) {
		if bytes.IndexByte(record, '\n') >= 0 {
			return false, errors.New("a record has several lines")
		}
		return true, put(record)
	}); err != nil {
		return err
	}
	if err := put([]byte(last)); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
	return nil
}

// heard is the result of listen.
type heard struct {
	period *api.WhatIfPeriod // the final result; nil if there is none
	err    error
	words  bool // the error is one that the process reported
}

// maxSaid limits a line of the process.
const maxSaid = 64 << 20

// listen reads messages until the result, an error, or the end.
func listen(out io.Reader, tell func(Message)) heard {
	lines := bufio.NewScanner(out)
	lines.Buffer(make([]byte, 1<<16), maxSaid)
	for lines.Scan() {
		var m Message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return heard{err: fmt.Errorf("what the process that simulates says makes no sense: %w", err), words: true}
		}
		switch {
		case m.Error != "":
			return heard{err: errors.New(m.Error), words: true}
		case m.Done && m.Period != nil:
			return heard{period: m.Period}
		}
		tell(m)
	}
	return heard{err: lines.Err()}
}

// opening keeps the beginning of the process's standard error: the first line of a panic says most.
type opening struct{ text []byte }

const maxOpening = 500

func (t *opening) Write(b []byte) (int, error) {
	if room := maxOpening - len(t.text); room > 0 {
		t.text = append(t.text, b[:min(room, len(b))]...)
	}
	return len(b), nil
}

func (t *opening) String() string {
	first, _, _ := strings.Cut(strings.TrimSpace(string(t.text)), "\n")
	if first == "" {
		return ""
	}
	return ": " + first
}
