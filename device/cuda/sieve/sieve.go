// Package sieve picks what NVIDIA's driver writes about failed assertions out of a process's standard error.
// It knows no driver.
package sieve

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Sieve reads what is written to the process's standard error and keeps the lines that
// the driver writes about failed assertions. Everything else is passed on to out.
//
// To know that all earlier lines have been read, take writes a numbered mark into the same pipe and
// waits until run has read it.
type Sieve struct {
	out io.Writer

	mu     sync.Mutex
	came   sync.Cond // passed or ended has changed
	found  []byte    // lines about assertions that take has not returned
	marks  uint64    // number of the latest mark that take has issued
	passed uint64    // number of the latest mark that was read
	ended  bool      // the pipe is closed
}

// markLine begins a mark. Marks are removed from the text that is passed on.
const markLine = "muster: everything before this line was read: "

var assertionLine = regexp.MustCompile(`: block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion .* failed\.\n$`)

// New returns a sieve that passes everything else on.
func New(out io.Writer) *Sieve {
	s := &Sieve{out: out}
	s.came.L = &s.mu
	return s
}

// The text of an assertion is the program's and may have any length and contents. So the memory
// that the sieve uses is bounded: longestLine is how much of a line is examined at once, and
// mostFound how much is kept for take.
const (
	longestLine = 1 << 16
	longestMark = len(markLine) + 20 // digits
	mostFound   = 16 << 20
)

// Run reads until the end of the pipe. It examines a line longer than longestLine in parts.
func (s *Sieve) Run(in io.Reader) {
	lines := bufio.NewReaderSize(in, longestLine)
	var begun []byte // what was read of the current line and not examined yet
	for {
		line, err := lines.ReadSlice('\n')
		begun = append(begun, line...)
		if errors.Is(err, bufio.ErrBufferFull) {
			cut := len(begun) - longestMark // the rest may be the beginning of a mark
			s.line(begun[:cut])
			begun = append(begun[:0], begun[cut:]...)
			continue
		}
		s.line(begun)
		begun = begun[:0]
		if err != nil {
			s.mu.Lock()
			s.ended = true
			s.came.Broadcast()
			s.mu.Unlock()
			return
		}
	}
}

func (s *Sieve) line(line []byte) {
	// A mark may follow text that was written without a newline.
	before, mark, marked := cutLast(line, markLine)
	s.mu.Lock()
	defer s.mu.Unlock()
	if assertionLine.Match(before) {
		s.found = append(s.found, before[:min(len(before), mostFound-len(s.found))]...)
	} else if len(before) > 0 {
		_, _ = s.out.Write(before)
	}
	if marked {
		s.pass(mark)
	}
}

// pass records that a mark was read. It ignores numbers that were not issued, since a kernel may print
// text that looks like a mark.
func (s *Sieve) pass(mark []byte) {
	n, err := strconv.ParseUint(strings.TrimSpace(string(mark)), 10, 64)
	if err == nil && n > s.passed && n <= s.marks {
		s.passed = n
		s.came.Broadcast()
	}
}

// cutLast cuts b around the last occurrence of a separator.
func cutLast(b []byte, separator string) (before, after []byte, found bool) {
	if i := bytes.LastIndex(b, []byte(separator)); i >= 0 {
		return b[:i], b[i+len(separator):], true
	}
	return b, nil, false
}

// Take returns the messages of assertions that were written before the call. write puts a line
// into the pipe; false if it cannot.
func (s *Sieve) Take(write func(line string) bool) []byte {
	s.mu.Lock()
	s.marks++
	mark := s.marks
	s.mu.Unlock()
	sent := write(fmt.Sprint(markLine, mark, "\n"))
	s.mu.Lock()
	defer s.mu.Unlock()
	for sent && s.passed < mark && !s.ended {
		s.came.Wait()
	}
	found := s.found
	s.found = nil
	return found
}
