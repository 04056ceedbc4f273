package cuda

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

// sieve reads what is written to the process's standard error and keeps the lines that
// the driver writes of failed assertions. Everything else goes on to out.
type sieve struct {
	out io.Writer

	mu     sync.Mutex
	came   sync.Cond
	found  []byte
	marks  uint64 // given out
	passed uint64 // the last mark that was read
	ended  bool
}

// markLine ends up in the pipe, and nowhere else.
const markLine = "muster: everything before this line was read: "

var assertionLine = regexp.MustCompile(`: block: \[\d+,\d+,\d+\], thread: \[\d+,\d+,\d+\] Assertion .* failed\.\n$`)

func newSieve(out io.Writer) *sieve {
	s := &sieve{out: out}
	s.came.L = &s.mu
	return s
}

// What a kernel asserts is the program's own text, of any length and with anything in it. So
// much of a line is looked at as a whole, and so much that was found is kept until somebody
// takes it.
const (
	longestLine = 1 << 16
	longestMark = len(markLine) + 20 // digits
	mostFound   = 16 << 20
)

// run reads until the end.
func (s *sieve) run(in io.Reader) {
	lines := bufio.NewReaderSize(in, longestLine)
	var begun []byte // of a line that is too long
	for {
		line, err := lines.ReadSlice('\n')
		begun = append(begun, line...)
		if errors.Is(err, bufio.ErrBufferFull) {
			cut := len(begun) - longestMark // a mark may have begun there
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

func (s *sieve) line(line []byte) {
	// A mark may stand behind what was written without the end of its line.
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

// pass notes a mark. A kernel may have written what looks like one.
func (s *sieve) pass(mark []byte) {
	n, err := strconv.ParseUint(strings.TrimSpace(string(mark)), 10, 64)
	if err == nil && n > s.passed && n <= s.marks {
		s.passed = n
		s.came.Broadcast()
	}
}

// cutLast cuts around the last place of a separator.
func cutLast(b []byte, separator string) (before, after []byte, found bool) {
	if i := bytes.LastIndex(b, []byte(separator)); i >= 0 {
		return b[:i], b[i+len(separator):], true
	}
	return b, nil, false
}

// take returns the assertions that were written before the call. Write puts a line
// into the pipe; false if it cannot.
func (s *sieve) take(write func(line string) bool) []byte {
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
