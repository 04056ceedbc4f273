package workload

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"muster/internal/units"
)

// guessBytes is how much of a log is read to guess its format.
const guessBytes = 1 << 13

var bom = []byte("\xef\xbb\xbf") // byte order mark, which some editors put first in UTF-8 files

// lines reads a log line by line, and decompresses it.
type lines struct {
	name    string
	r       *bufio.Reader
	number  int // of the last line that next returned
	bytes   int64
	gzipped bool
}

func openLines(r io.Reader, name string) (*lines, error) {
	l := &lines{name: name}
	packed := &counter{r: r}
	raw := bufio.NewReaderSize(packed, 1<<16)
	magic, err := raw.Peek(2)
	if len(magic) == 0 {
		if err != io.EOF {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return nil, fmt.Errorf("%s: the file is empty: there is no job in it", name)
	}
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		l.r = bufio.NewReaderSize(raw, maxLine)
		return l, nil
	}
	l.gzipped = true
	unzipped, err := newUnpacker(packed, raw)
	if err != nil {
		return nil, l.readError(err)
	}
	l.r = bufio.NewReaderSize(unzipped, maxLine)
	return l, nil
}

// peek returns the first bytes without consuming them. A read error is left for next to report.
func (l *lines) peek() []byte {
	head, _ := l.r.Peek(guessBytes)
	return head
}

// next returns the next line without its end, valid until the next call. After the last line it
// returns io.EOF.
func (l *lines) next() ([]byte, error) {
	text, err := l.r.ReadSlice('\n')
	switch {
	case err == nil:
		text = text[:len(text)-1]
	case errors.Is(err, io.EOF) && len(text) > 0:
		// the last line lacks its newline
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, &LineError{l.name, l.number + 1, 1, fmt.Sprintf("the line is longer than %d bytes: this is no job log", maxLine)}
	default:
		return nil, l.readError(err)
	}
	l.number++
	if l.bytes += int64(len(text)) + 1; l.bytes > maxText {
		return nil, &LineError{l.name, l.number, 1, fmt.Sprintf("the log has more than %s up to here: split it", units.FormatSize(maxText))}
	}
	if l.number == 1 {
		text = bytes.TrimPrefix(text, bom)
	}
	return bytes.TrimSuffix(text, []byte("\r")), nil
}

func (l *lines) readError(err error) error {
	switch {
	case errors.Is(err, errBomb):
		return &LineError{l.name, l.number + 1, 1, err.Error()}
	case l.gzipped && errors.Is(err, io.ErrUnexpectedEOF), l.gzipped && errors.Is(err, io.EOF):
		return fmt.Errorf("%s: the gzip data ends early, after line %d: the file is truncated, fetch it again", l.name, l.number)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader):
		return fmt.Errorf("%s: the gzip data is damaged, after line %d: fetch the file again (%w)", l.name, l.number, err)
	}
	return fmt.Errorf("%s: after line %d: %w", l.name, l.number, err)
}
