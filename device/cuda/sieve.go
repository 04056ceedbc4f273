package cuda

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"regexp"
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

// run reads until the end.
func (s *sieve) run(in io.Reader) {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n')
		s.line(line)
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
	before, mark, marked := bytes.Cut(line, []byte(markLine))
	s.mu.Lock()
	defer s.mu.Unlock()
	if assertionLine.Match(before) {
		s.found = append(s.found, before...)
	} else if len(before) > 0 {
		_, _ = s.out.Write(before)
	}
	if marked {
		_, _ = fmt.Sscan(strings.TrimSpace(string(mark)), &s.passed)
		s.came.Broadcast()
	}
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
