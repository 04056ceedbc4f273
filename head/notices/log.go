package notices

import "time"

// Pause is the least time between two lines of a log about a notice of a node.
const Pause = time.Minute

// Log decides which lines about notices a log gets: the first at once, then at most one per Pause about each notice of a
// node, which says how it is by then. So an agent that crosses a bound all the time fills no disk. The zero
// value has heard nothing.
type Log struct {
	of map[key]*entry
}

type key struct {
	node, name string
	device     int
}

// entry is what a log knows of a notice.
type entry struct {
	last    Change
	changed int // how often since the last line
	at      time.Duration
}

// Line is a line of a log.
type Line struct {
	Change
	Changed int // how often the notice began or ended since the line before; 1 if there was none, or no more than this
}

// Heard takes in what has changed, and returns the lines that are due.
func (l *Log) Heard(now time.Duration, changes []Change) (lines []Line) {
	for _, c := range changes {
		k := key{c.Node, c.Name, c.Device}
		e := l.of[k]
		if e == nil {
			if l.of == nil {
				l.of = map[key]*entry{}
			}
			e = &entry{at: now - Pause}
			l.of[k] = e
		}
		e.last = c
		e.changed++
		if line, due := e.line(now); due {
			lines = append(lines, line)
		}
	}
	return lines
}

// Due returns the lines that had to wait and are due, and whether it is to be called again after Pause.
func (l *Log) Due(now time.Duration) (lines []Line, again bool) {
	for k, e := range l.of {
		line, due := e.line(now)
		switch {
		case due:
			lines = append(lines, line)
		case now-e.at >= Pause: // nothing has changed since the last line, for so long
			delete(l.of, k)
		}
	}
	return lines, len(l.of) > 0
}

// line is the next line about a notice, if there is something to be said and the last one was long enough ago.
func (e *entry) line(now time.Duration) (Line, bool) {
	if e.changed == 0 || now-e.at < Pause {
		return Line{}, false
	}
	line := Line{e.last, e.changed}
	e.changed, e.at = 0, now
	return line, true
}
