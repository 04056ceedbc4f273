package report

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// Progress is a bar on a terminal that shows the progress of a long task and the estimated time
// left. If the output is no terminal it writes the same as a line now and then, and nothing for a
// short task. Several goroutines may use it concurrently.
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
	ended    bool
}

// The minimum time between two drawings, and between two lines where there is no terminal.
const (
	redraw  = 100 * time.Millisecond
	newLine = 30 * time.Second
)

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
	p.ended = true
}

// draw draws the bar. The caller must hold the lock.
func (p *Progress) draw() {
	if p.ended {
		return
	}
	now := p.Now()
	if p.start.IsZero() {
		p.start = now
	}
	if !p.terminal {
		if p.drawn.IsZero() {
			p.drawn = now
		}
		if now.Sub(p.drawn) >= newLine {
			p.drawn = now
			io.WriteString(p.w, p.words(now.Sub(p.start))+"\n")
		}
		return
	}
	if !p.drawn.IsZero() && now.Sub(p.drawn) < redraw {
		return
	}
	p.drawn = now
	io.WriteString(p.w, "\r"+p.line(now.Sub(p.start))+"\x1b[K")
}

// line is the bar.
func (p *Progress) line(spent time.Duration) string {
	if p.total <= 0 {
		return fmt.Sprintf("%s  %s", p.label, Number(float64(p.done)))
	}
	const width = 20
	full := int(p.part() * width)
	return fmt.Sprintf("%s  %s%s %3.0f %%", p.label, strings.Repeat("█", full), strings.Repeat("░", width-full), p.part()*100) + p.left("  ", spent)
}

// words says without a bar how far the task is.
func (p *Progress) words(spent time.Duration) string {
	if p.total <= 0 {
		return fmt.Sprintf("%s: %s", p.label, Number(float64(p.done)))
	}
	return fmt.Sprintf("%s: %.0f %%", p.label, p.part()*100) + p.left(", ", spent)
}

// part is the part of the work that is done.
func (p *Progress) part() float64 { return min(1, max(0, float64(p.done)/float64(p.total))) }

// left is the estimated time left. An estimate from the first moments would be too inaccurate.
func (p *Progress) left(before string, spent time.Duration) string {
	part := p.part()
	if part <= 0 || part >= 1 || spent < time.Second {
		return ""
	}
	return before + Duration(spent.Seconds()*(1-part)/part) + " left"
}
