package wire

import (
	"strings"
	"sync"
	"sync/atomic"
	"unicode"
)

// Notices are lines for the user of the program: the reason of a failure that the result cannot
// tell. The worker writes them into the head of the ring's memory, before the result, and the library
// prints them when a call fails. They need no message, so neither side waits, and the program gets
// them even if its worker is gone.
//
// The bytes are a ring of noticesSize bytes. Each side keeps a count of the bytes that it has written
// or read so far, and publishes it to the other.
type notices struct {
	mu            sync.Mutex
	written, read uint32 // this side's private count: the other side could overwrite the published one
}

// MaxNotice is how many bytes a notice may have; a longer one is cut.
const MaxNotice = 1000

// Notify gives the program a notice, as one line. It returns false if there is no room because the
// program has not read earlier ones: then the notice is lost.
func (s *Shared) Notify(text string) bool {
	line := shorten(oneLine(text), MaxNotice) + "\n"
	n := &s.notices
	n.mu.Lock()
	defer n.mu.Unlock()
	unread := n.written - atomic.LoadUint32(s.u32(atNoticesRead))
	if unread > noticesSize || uint32(len(line)) > noticesSize-unread {
		return false
	}
	for i := range len(line) {
		s.ring[atNotices+(n.written+uint32(i))%noticesSize] = line[i]
	}
	n.written += uint32(len(line))
	atomic.StoreUint32(s.u32(atNoticesWritten), n.written)
	return true
}

// resumeNotices continues after the notices of a worker that has died.
func (s *Shared) resumeNotices() {
	s.notices.mu.Lock()
	defer s.notices.mu.Unlock()
	s.notices.written = atomic.LoadUint32(s.u32(atNoticesWritten))
}

// Notices takes the notices that have not been taken yet, on the program's side.
func (s *Shared) Notices() []string {
	n := &s.notices
	written := atomic.LoadUint32(s.u32(atNoticesWritten))
	if written == atomic.LoadUint32(&n.read) {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	var text strings.Builder
	if written-n.read <= noticesSize { // otherwise the counts are damaged
		for i := n.read; i != written; i++ {
			text.WriteByte(s.ring[atNotices+i%noticesSize])
		}
	}
	atomic.StoreUint32(&n.read, written)
	atomic.StoreUint32(s.u32(atNoticesRead), written)
	var lines []string
	for line := range strings.Lines(text.String()) {
		if line = oneLine(strings.TrimSuffix(line, "\n")); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// oneLine removes control characters from a text, which could command a terminal, and line ends.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
}

// shorten cuts a text to at most that many bytes, at the end of a word if one is near, and marks the
// cut.
func shorten(text string, most int) string {
	const mark, near = "...", 80
	if len(text) <= most {
		return text
	}
	text = strings.ToValidUTF8(text[:most-len(mark)], "")
	if space := strings.LastIndexByte(text, ' '); space >= len(text)-near && space > 0 {
		text = strings.TrimRight(text[:space], " ,;:")
	}
	return text + mark
}
