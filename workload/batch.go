package workload

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/units"
	"muster/model"
)

// maxSeconds is the longest time, and the latest Unix time, that a log may have: 142 years, so that
// the sum of two still fits into a time.Duration.
const maxSeconds = 9_000_000_000 / 2

// batch collects the jobs of a log as it is read.
type batch struct {
	opt    ReadOptions
	file   string
	wl     *Workload
	report *ReadReport

	// origin is the Unix time from which submissions count, if known.
	origin      time.Duration
	originKnown bool
	expected    int // number of jobs that the log claims to have

	kept        int64 // bytes of jobs and names
	headerBytes int

	counts []count
	words  map[string]string // strings that many jobs share, to save memory
	small  []string          // decimal texts of small numbers
	ids    strings.Builder
	logged []model.Logged
}

// count is the text of a note, with the number of jobs that it applies to.
type count struct {
	what string
	n    int
}

func newBatch(file string, format Format, opt ReadOptions) *batch {
	name := filepath.Base(file)
	return &batch{
		opt: opt, file: file,
		wl:     &Workload{Name: name},
		report: &ReadReport{Format: format},
		words:  make(map[string]string),
	}
}

// read feeds every line to the decoder.
func (b *batch) read(src *lines, dec decoder) error {
	for {
		text, err := src.next()
		if errors.Is(err, io.EOF) {
			b.report.Lines = src.number
			return nil
		}
		if err != nil {
			return err
		}
		f := dec.line(text)
		if f == nil {
			continue
		}
		f.reason = shortReason(f.reason)
		if f.fatal || !b.opt.SkipBad {
			return &LineError{b.file, src.number, f.column, f.reason}
		}
		b.report.Bad++
		if len(b.report.FirstBad) < maxFirstBad {
			b.report.FirstBad = append(b.report.FirstBad, Bad{src.number, f.column, f.reason})
		}
	}
}

// finish sorts the jobs, counts time from the first submission, and makes the report.
func (b *batch) finish() (*Workload, *ReadReport, error) {
	for _, c := range b.counts {
		b.report.Notes = append(b.report.Notes, units.Plural(c.n, "job")+" "+c.what)
	}
	b.report.Jobs = len(b.wl.Jobs)
	if b.report.Jobs == 0 {
		why := ""
		if b.report.Bad > 0 {
			bad := b.report.FirstBad[0]
			why = fmt.Sprintf("; %s, the first is line %d: %s", units.Plural(b.report.Bad, "bad line"), bad.Line, bad.Reason)
		} else if len(b.report.Notes) > 0 {
			why = "; " + strings.Join(b.report.Notes, "; ")
		}
		return nil, nil, fmt.Errorf("%s: no job that can be simulated in %s%s", b.file, units.Plural(b.report.Lines, "line"), why)
	}
	b.wl.countFromFirst(b.origin, b.originKnown)
	return b.wl, b.report, nil
}

// countFromFirst sorts the jobs and shifts time so that the first is submitted at 0.
func (wl *Workload) countFromFirst(origin time.Duration, originKnown bool) {
	byOrder(wl.Jobs)
	first := wl.Jobs[0].Submit
	for i := range wl.Jobs {
		wl.Jobs[i].Submit -= first
	}
	if originKnown {
		wl.Start = time.Unix(0, int64(origin+first)).UTC()
	}
}

// job adds an empty job for the decoder to fill, and then to keep or drop.
func (b *batch) job() *model.Job {
	// A header may claim any number of jobs, so the claim is trusted only after enough jobs have
	// been seen.
	const real = 4096
	if n := len(b.wl.Jobs); n >= real && n == cap(b.wl.Jobs) && b.expected > n {
		b.wl.Jobs = slices.Grow(b.wl.Jobs, min(b.expected, 8*n)-n)
	}
	b.wl.Jobs = append(b.wl.Jobs, model.Job{})
	return &b.wl.Jobs[len(b.wl.Jobs)-1]
}

func (b *batch) drop() { b.wl.Jobs = b.wl.Jobs[:len(b.wl.Jobs)-1] }

// keep validates the job added last, and drops it if it is invalid.
func (b *batch) keep(column int) *fault {
	job := &b.wl.Jobs[len(b.wl.Jobs)-1]
	if err := job.Validate(); err != nil {
		b.drop()
		return faultf(column, "%v", err)
	}
	if b.opt.SkipLogged {
		job.Logged = nil
	}
	return b.charge(jobCost(job))
}

// note counts a job for a note. what must read well after "12 jobs".
func (b *batch) note(what string) {
	for i := range b.counts {
		if b.counts[i].what == what {
			b.counts[i].n++
			return
		}
	}
	if len(b.counts) == maxNotes {
		last := &b.counts[maxNotes-1]
		last.what, last.n = "with notes of other kinds", last.n+1
		return
	}
	b.counts = append(b.counts, count{what, 1})
}

// word is a string that jobs with the same text share.
func (b *batch) word(text []byte) string {
	if len(text) == 0 {
		return ""
	}
	s, ok := b.words[string(text)]
	if !ok {
		s = string(text)
		b.words[s] = s
		b.kept += 4*sizeOfText + int64(len(s)) // keep checks the total
	}
	return s
}

// numeral is word for the decimal text of a number.
func (b *batch) numeral(n int64) string {
	const most = 1 << 16
	if n < 0 || n >= most {
		var text [20]byte
		return b.word(strconv.AppendInt(text[:0], n, 10))
	}
	if int(n) >= len(b.small) {
		b.small = append(b.small, make([]string, int(n)+1-len(b.small))...)
	}
	if b.small[n] == "" {
		b.small[n] = strconv.Itoa(int(n))
	}
	return b.small[n]
}

// id copies the text of an ID into memory that it shares with its neighbours: one allocation serves
// thousands of IDs.
func (b *batch) id(text []byte) string { return appendShared(&b.ids, text) }

func appendShared(room *strings.Builder, text []byte) string {
	const block = 1 << 16
	if room.Len()+len(text) > room.Cap() {
		*room = strings.Builder{}
		room.Grow(max(block, len(text)))
	}
	start := room.Len()
	room.Write(text)
	return room.String()[start:]
}

// log keeps what a log says beyond the job; nil if it says nothing.
func (b *batch) log(l model.Logged) *model.Logged {
	if b.opt.SkipLogged || l == unlogged {
		return nil
	}
	if len(b.logged) == cap(b.logged) {
		b.logged = make([]model.Logged, 0, 1024)
	}
	b.logged = append(b.logged, l)
	return &b.logged[len(b.logged)-1]
}

// unlogged is a log entry in which everything is unknown.
var unlogged = model.Logged{Wait: -1, CPUTime: -1, UsedMemory: -1}

func ceilDiv(a, b int64) int64 { return a/b + min(1, a%b) }

// atMost says whether a number fits an int field of a request.
func atMost(n int64) bool { return 0 <= n && n <= math.MaxInt32 }

// didYouMean is the end of an error about a name that is not known.
func didYouMean(text string, names []string) string {
	if near := model.Nearest(text, names); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "use one of " + strings.Join(names, ", ")
}
