package workload

import (
	"bufio"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/model"
)

// writeSWF writes the 18 standard fields, followed by the columns that some job needs beyond those,
// which a MusterColumns line in the header names. Other programs read the 18 fields and ignore the
// rest.
//
// SWF has numbers in place of names. If a name in some field is not a number, all names of that
// field are numbered in order of appearance, and the names are kept in a further column.
func writeSWF(w *bufio.Writer, wl *Workload) error {
	for i := range wl.Jobs {
		if j := &wl.Jobs[i]; len(j.Alternatives) > 0 {
			return fmt.Errorf("job %s has alternative requests, which SWF cannot hold: write csv", j.ID)
		}
	}
	enc := newSWFEncoder(wl)
	for _, line := range enc.header(wl) {
		fmt.Fprintln(w, strings.TrimRight("; "+line, " "))
	}
	var buf []byte
	for i := range wl.Jobs {
		buf = append(enc.line(buf[:0], &wl.Jobs[i]), '\n')
		if _, err := w.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

type swfEncoder struct {
	extra []*column
	// The numbers for the names of each field; nil if all its names are numbers.
	ids, users, groups, queues, executables, partitions map[string]int64
}

func newSWFEncoder(wl *Workload) *swfEncoder {
	e := new(swfEncoder)
	for i := range columns {
		c := &columns[i]
		if !anyJob(wl.Jobs, c.beyondSWF) {
			continue
		}
		e.extra = append(e.extra, c)
		switch c.name {
		case "id":
			e.ids = numberNames(wl.Jobs, c)
		case "user":
			e.users = numberNames(wl.Jobs, c)
		case "group":
			e.groups = numberNames(wl.Jobs, c)
		case "queue":
			e.queues = numberNames(wl.Jobs, c)
		case "executable":
			e.executables = numberNames(wl.Jobs, c)
		case "partition":
			e.partitions = numberNames(wl.Jobs, c)
		}
	}
	return e
}

// numberNames numbers the values of a column from 1, in order of appearance.
func numberNames(jobs []model.Job, c *column) map[string]int64 {
	numbers := make(map[string]int64)
	for i := range jobs {
		name := c.get(&jobs[i], &jobs[i].Request)
		if _, known := numbers[name]; !known && name != "" {
			numbers[name] = int64(len(numbers) + 1)
		}
	}
	return numbers
}

// header is the workload's own header, with the lines that describe the file corrected.
func (e *swfEncoder) header(wl *Workload) []string {
	lines := slices.Clone(wl.Header)
	set := func(key, value string) {
		line := key + ": " + value
		i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, key+":") })
		switch {
		case i < 0:
			lines = append(lines, line)
		default:
			lines[i] = line
		}
	}
	lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, musterColumns+":") })
	if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasPrefix(l, "Version:") }) {
		lines = slices.Insert(lines, 0, "Version: 2.2")
	}
	set("MaxJobs", strconv.Itoa(len(wl.Jobs)))
	set("MaxRecords", strconv.Itoa(len(wl.Jobs)))
	if !wl.Start.IsZero() {
		set("UnixStartTime", strconv.FormatInt(wl.Start.Unix(), 10))
	}
	if len(e.extra) > 0 {
		var names []string
		for _, c := range e.extra {
			names = append(names, c.name)
		}
		set(musterColumns, strings.Join(names, " "))
	}
	for i := range lines {
		lines[i] = strings.Map(func(r rune) rune {
			if r == '\n' || r == '\r' {
				return ' '
			}
			return r
		}, lines[i])
	}
	return lines
}

// number is the number of a name: the name itself, or the number assigned to it.
func number(names map[string]int64, name string) int64 {
	if names != nil {
		if n, ok := names[name]; ok {
			return n
		}
		return -1
	}
	n, err := strconv.ParseInt(name, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// line appends the fields of one job.
func (e *swfEncoder) line(to []byte, j *model.Job) []byte {
	l := j.Logged
	if l == nil {
		l = &unlogged
	}
	r := &j.Request
	cores := int64(r.TotalCores())
	integer := func(n int64) {
		to = strconv.AppendInt(to, n, 10)
		to = append(to, ' ')
	}
	span := func(d time.Duration) {
		if d < 0 {
			integer(-1)
			return
		}
		to = append(appendSeconds(to, d), ' ')
	}
	kilobytes := func(n int64) {
		if n < 0 {
			integer(-1)
			return
		}
		integer(ceilDiv(n, 1024))
	}
	integer(number(e.ids, j.ID))
	span(j.Submit)
	span(l.Wait)
	span(j.Run)
	integer(cores)
	span(l.CPUTime)
	kilobytes(l.UsedMemory)
	integer(cores)
	span(orUnknown(j.WallTime))
	kilobytes(memoryPerCore(r))
	integer(swfStatusOf(j))
	integer(number(e.users, j.User))
	integer(number(e.groups, j.Group))
	integer(number(e.executables, l.Executable))
	integer(number(e.queues, j.Queue))
	integer(number(e.partitions, l.Partition))
	integer(number(e.ids, l.Preceding))
	if l.Preceding == "" {
		integer(-1)
	} else {
		span(l.ThinkTime)
	}
	for _, c := range e.extra {
		to = append(escape(to, c.get(j, r)), ' ')
	}
	return to[:len(to)-1]
}

func orUnknown(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// memoryPerCore is the memory in the form that SWF supports; -1 if the job asks for none.
func memoryPerCore(r *model.Request) int64 {
	onNode := int64(max(1, r.CoresOnNode()))
	sum := r.MemoryPerCore + ceilDiv(r.Memory, onNode)
	if sum == 0 {
		return -1
	}
	return sum
}

func swfStatusOf(j *model.Job) int64 {
	if j.Logged == nil || cancelledAtOnce(j) {
		return -1
	}
	switch j.Logged.Status {
	case model.StatusCompleted:
		return swfCompleted
	case model.StatusFailed, model.StatusTimeout:
		return swfFailed
	case model.StatusCancelled:
		return swfCancelled
	}
	return -1
}

// cancelledAtOnce: SWF would read such a job as one that never started.
func cancelledAtOnce(j *model.Job) bool {
	return j.Run == 0 && j.Logged != nil && j.Logged.Status == model.StatusCancelled
}
