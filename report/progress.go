package report

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Progress is a bar on a terminal that shows the progress of a long task and the estimated time
// left. If the output is no terminal it writes nothing. Several goroutines may use it concurrently.
type Progress struct {
	// Now is the clock. Tests may replace it before the first use.
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

// redraw is the minimum time between two drawings.
const redraw = 100 * time.Millisecond

// NewProgress makes a bar for total units of work; with total 0 it only counts.
func NewProgress(w io.Writer, isTerminal bool, label string, total int64) *Progress {
	return &Progress{Now: time.Now, w: w, terminal: isTerminal, label: shorten(clean(label), 30), total: total}
}

// Set says that n units are done in total.
func (p *Progress) Set(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = n
	p.draw()
}

// Add says that n more units are done.
func (p *Progress) Add(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	p.draw()
}

// Done removes the bar.
func (p *Progress) Done() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal && !p.drawn.IsZero() {
		io.WriteString(p.w, "\r\x1b[K")
	}
	p.terminal = false
}

// draw draws the bar. The caller must hold the lock.
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
	// An estimate from the first moments would be too inaccurate.
	if part > 0 && part < 1 && spent >= time.Second {
		line += "  " + Duration(spent.Seconds()*(1-part)/part) + " left"
	}
	return line
}
