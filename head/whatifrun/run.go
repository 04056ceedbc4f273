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

	"muster/head/api"
)

// Jobs visits the records of ended jobs, one line each, until visit has enough.
type Jobs func(visit func(record []byte) (more bool, err error)) error

// Run has a process do what the order says, and returns what came of it. command is the
// process, with Serve at the other end; it is killed when ctx is over. tell is told what
// it says meanwhile.
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
		_ = c.Process.Kill() // whatever it still does is of no use
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
		return said.period, nil // how it ended behind that does not matter
	case notFed != nil && !errors.Is(notFed, errNotTaken):
		return nil, notFed
	}
	return nil, fmt.Errorf("the process that simulates has ended (%v)%s", ended, complaints)
}

// errNotTaken says that the process did not read what it was to know: why it ended
// says more.
var errNotTaken = errors.New("the process that simulates does not read")

// feed hands over what the head knows. The pipe stays open.
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

// heard is what came of listening.
type heard struct {
	period *api.WhatIfPeriod // the last one, if it is done
	err    error
	words  bool // the error is what the process said
}

// maxSaid bounds a line that the process says.
const maxSaid = 64 << 20

// listen hears the process out.
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

// opening keeps the beginning of what a process complains about: of a panic it says most.
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
