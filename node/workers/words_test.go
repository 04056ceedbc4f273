package workers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// heard is a log that may be read while it is written.
type heard struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *heard) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// heardLine is a line of the log, as far as these tests look.
type heardLine struct {
	Msg    string `json:"msg"`
	Client uint64 `json:"client"`
	Text   string `json:"text"`
	Bytes  int    `json:"bytes"`
}

func (l *heard) entries(t *testing.T) (all []heardLine) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(l.text.Bytes()) {
		var e heardLine
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func (l *heard) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

func TestWords(t *testing.T) {
	long := strings.Repeat("x", 3*maxLine)
	for _, c := range []struct {
		name    string
		written []string
		want    []string
		cause   string // of a worker that was ready
		early   string // of one that was not
	}{
		{"nothing", nil, nil, "", ""},
		{"pieces", []string{"on", "e\ntw", "o", "\n\n\nthree"}, []string{"one", "two", "three"}, "", "three"},
		{"a long line", []string{long, long + "\nshort\n"}, []string{long[:maxLine], "short"}, "", "short"},
		{"a panic", []string{"hm\npanic: no\n\ngoroutine 1:\n\tmain.main()\n"}, []string{"hm", "panic: no", "goroutine 1:", "\tmain.main()"}, "panic: no", "panic: no"},
		{"a panic made of another", []string{"panic: no [recovered]\n\tpanic: kernel k: no\n"}, []string{"panic: no [recovered]", "\tpanic: kernel k: no"}, "panic: kernel k: no", "panic: kernel k: no"},
		{"memory ran out", []string{"fatal error: out of memory\npanic: again\n"}, []string{"fatal error: out of memory", "panic: again"},
			"fatal error: out of memory", "fatal error: out of memory"},
		{"harmful text", []string{"panic: \x1b[2J\xff\n"}, []string{"panic: \x1b[2J\ufffd"}, "panic: ?[2J", "panic: ?[2J"},
		{"a long panic", []string{"panic: " + long + "\n"}, []string{("panic: " + long)[:maxLine]}, ("panic: " + long)[:maxCause], ("panic: " + long)[:maxCause]},
	} {
		t.Run(c.name, func(t *testing.T) {
			var log heard
			w := words{log: log.logger(), room: maxWords}
			w.serves(7)
			for _, part := range c.written {
				if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
					t.Error(n, err)
				}
			}
			w.close()
			var got []string
			for _, e := range log.entries(t) {
				if e.Msg != "a worker wrote" || e.Client != 7 {
					t.Errorf("%+v", e)
				}
				got = append(got, e.Text)
			}
			if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
				t.Errorf("got %q\nwant %q", got, c.want)
			}
			if cause, early := w.cause(true), w.cause(false); cause != c.cause || early != c.early {
				t.Errorf("the causes are %q and %q", cause, early)
			}
		})
	}
}
