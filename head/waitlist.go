package head

import (
	"slices"

	"muster/wire/api"
)

// waitlist is the jobs that wait for others, by what they wait for, and those that are to look whether
// what they wait for has happened: the core lets some of them look at a time.
type waitlist struct {
	waiters map[awaited][]*job
	waking  []wake
	woken   int // how many have looked, since the last Take
}

// add has a job wait under a key.
func (l *waitlist) add(on awaited, j *job) {
	list := l.waiters[on]
	if len(list) > 0 && list[len(list)-1] == j {
		return // another of its terms waits for the same
	}
	if len(list) == cap(list) { // before growing, drop jobs that no longer wait
		list = slices.DeleteFunc(list, func(w *job) bool { return w.state != api.Pending })
		list = slices.Grow(list, max(1, len(list)))
	}
	l.waiters[on] = append(list, j)
}

// wake has the jobs that wait under a key look at what they wait for; last says that nothing more will
// happen under it. A rest that is to look at many tasks looks at all of them instead, once; other jobs
// are to look once, since they leave the key.
func (l *waitlist) wake(on awaited, task int64, last bool) {
	for _, w := range l.waiters[on] {
		one := task
		if on.each {
			switch {
			case w.looks > maxLooks:
				continue // the look at all tasks is due behind the others
			case w.looks == maxLooks:
				one = -1
			}
			w.looks++
		}
		l.waking = append(l.waking, wake{w, on, one})
	}
	if !on.each || last { // rests wait there until the array has ended
		delete(l.waiters, on)
	}
}

// lookAt has a job look at everything that it waits for.
func (l *waitlist) lookAt(j *job) { l.waking = append(l.waking, wake{job: j, task: -1}) }

// next is the job that looks next.
func (l *waitlist) next() wake {
	w := l.waking[0]
	l.waking[0] = wake{}
	l.waking = l.waking[1:]
	if w.on.each {
		w.job.looks--
	}
	return w
}
