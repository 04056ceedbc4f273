package report

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Progress is a bar on a terminal that tells how far a long work has come and
// when it may end. Where the output is no terminal it writes nothing. Several
// goroutines may use one.
type Progress struct {
	// Now is the clock; set another before the first use.
	Now func() time.Time

	mu       sync.Mutex
	w        io.Writer
	terminal bool
	label    string
	total    int64
	done     int64
	start    time.Time
	drawn    time.Time
}

// redraw is the shortest time between two drawings.
const redraw = 100 * time.Millisecond

// NewProgress makes a bar for total pieces of work; with total 0 it only counts.
func NewProgress(w io.Writer, isTerminal bool, label string, total int64) *Progress {
	return &Progress{Now: time.Now, w: w, terminal: isTerminal, label: shorten(clean(label), 30), total: total}
}

// Set says that n pieces are done in all.
func (p *Progress) Set(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = n
	p.draw()
}

// Add says that n more pieces are done.
func (p *Progress) Add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	p.draw()
}

// Done takes the bar away.
func (p *Progress) Done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal && !p.drawn.IsZero() {
		io.WriteString(p.w, "\r\x1b[K")
	}
	p.terminal = false
}

// draw is called with the lock held.
func (p *Progress) draw() {
	if !p.terminal {
		return
	}
	now := p.Now()
	if p.start.IsZero() {
		p.start = now
	}
	if !p.drawn.IsZero() && now.Sub(p.drawn) < redraw {
		return
	}
	p.drawn = now
	io.WriteString(p.w, "\r"+p.line(now.Sub(p.start))+"\x1b[K")
}

func (p *Progress) line(spent time.Duration) string {
	if p.total <= 0 {
		return fmt.Sprintf("%s  %s", p.label, Number(float64(p.done)))
	}
	const width = 20
	part := min(1, max(0, float64(p.done)/float64(p.total)))
	full := int(part * width)
	line := fmt.Sprintf("%s  %s%s %3.0f %%", p.label, strings.Repeat("█", full), strings.Repeat("░", width-full), part*100)
	// The first moments say little about the rest.
	if part > 0 && part < 1 && spent >= time.Second {
		line += "  " + Duration(spent.Seconds()*(1-part)/part) + " left"
	}
	return line
}
