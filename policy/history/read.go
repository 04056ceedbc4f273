package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"muster/internal/strictjson"
)

// maxLine bounds a line: the header of a cluster with 100,000 nodes fits.
const maxLine = 64 << 20

// LineError is what is wrong with a line of a history.
type LineError struct {
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }
func (e *LineError) Unwrap() error { return e.Err }

// reader reads a history line by line.
type reader struct {
	in   *bufio.Reader
	line int
	// cut: the last line has no end, and was left out.
	cut bool
}

// next is the next line without its end; nil at the end of all.
func (r *reader) next() ([]byte, error) {
	var line []byte
	for {
		piece, err := r.in.ReadSlice('\n')
		line = append(line, piece...)
		switch {
		case len(line) > maxLine:
			r.line++
			return nil, r.wrong(fmt.Errorf("it is longer than %d bytes", maxLine))
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case errors.Is(err, io.EOF):
			r.cut = len(line) > 0
			return nil, nil
		case err != nil:
			return nil, err
		}
		r.line++
		return line[:len(line)-1], nil
	}
}

func (r *reader) wrong(err error) error { return &LineError{r.line, err} }

// header reads the first line.
func (r *reader) header() (*Header, error) {
	line, err := r.next()
	if err != nil {
		return nil, err
	}
	if line == nil {
		return nil, errors.New("it has no header: it is empty, or no history")
	}
	var h headerLine
	var peek struct {
		Version *int `json:"history"`
	}
	if err := json.Unmarshal(line, &peek); err != nil || peek.Version == nil {
		return nil, r.wrong(errors.New(`no header: a history begins with {"history":1,...}`))
	}
	if *peek.Version != Version {
		return nil, r.wrong(fmt.Errorf("it is of version %d, and version %d is read", *peek.Version, Version))
	}
	if err := strictjson.Decode(line, &h); err != nil {
		return nil, r.wrong(err)
	}
	c := h.Cluster.model()
	if len(c.Nodes) > 0 || len(c.GPUTypes) > 0 {
		check := *c
		if len(c.Nodes) == 0 {
			check.Nodes = append(check.Nodes, (&node{Name: "none", Cores: 1}).model())
		}
		if err := check.Validate(); err != nil {
			return nil, r.wrong(err)
		}
	}
	return &Header{Policy: h.Policy, Muster: h.Muster, Note: h.Note, Cluster: c}, nil
}

// event reads the next event, with its line; nil at the end of all.
func (r *reader) event() (event, []byte, error) {
	line, err := r.next()
	if err != nil || line == nil {
		return nil, nil, err
	}
	var peek struct {
		Do string `json:"do"`
	}
	if err := json.Unmarshal(line, &peek); err != nil {
		return nil, nil, r.wrong(errors.New(plain(err)))
	}
	e := newEvent(peek.Do)
	if e == nil {
		return nil, nil, r.wrong(fmt.Errorf("there is no event %q", peek.Do))
	}
	if err := strictjson.Decode(line, e); err != nil {
		return nil, nil, r.wrong(err)
	}
	if err := e.check(); err != nil {
		return nil, nil, r.wrong(err)
	}
	return e, line, nil
}

// plain is an error of the decoder without the words of this package.
func plain(err error) string { return strings.TrimPrefix(err.Error(), "json: ") }
