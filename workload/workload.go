package workload

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/model"
)

// Workload is a log of jobs, read or generated.
type Workload struct {
	Name string
	// Start is the absolute time of offset 0; zero if unknown.
	Start time.Time
	// Header holds the comment lines at the head of the log, without their mark.
	Header []string
	// Jobs are in the order of submission; ties keep the order of the log. The first is submitted
	// at 0.
	Jobs []model.Job
}

// Format names a kind of log.
type Format string

// The formats. All can be read; swf and csv can be written.
const (
	SWF    Format = "swf"
	Sacct  Format = "sacct"
	PBS    Format = "pbs"
	Openb  Format = "openb"
	Philly Format = "philly"
	CSV    Format = "csv"
	Submit Format = "submit"
)

// Formats lists the formats that Read understands.
func Formats() []Format { return []Format{SWF, Sacct, PBS, Openb, Philly, CSV, Submit} }

// ParseFormat finds a format by its name.
func ParseFormat(name string) (Format, error) {
	if f := Format(strings.ToLower(name)); slices.Contains(Formats(), f) {
		return f, nil
	}
	return "", fmt.Errorf("there is no log format %q: use one of %s", name, formatNames())
}

func formatNames() string {
	var names []string
	for _, f := range Formats() {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}

// ReadOptions control how a log is read. The zero value suits most logs.
type ReadOptions struct {
	// Format, if "", is guessed from the name and the first bytes.
	Format Format
	// SkipBad counts invalid lines instead of stopping at the first.
	SkipBad bool
	// CoresPerNode converts a log's total of cores to nodes; 0 leaves the cores spread over any
	// nodes. GPUsPerNode does the same for GPUs; 0 means 8, as in Philly.
	CoresPerNode, GPUsPerNode int
	// MilliCores counts cores in thousandths if the log does (openb), so that nothing is rounded.
	// The cluster must do the same.
	MilliCores bool
	// SkipLogged omits Job.Logged, which is a quarter of the memory of a large log. No simulation
	// needs it.
	SkipLogged bool
}

// Bad is an invalid line.
type Bad struct {
	Line   int    `json:"line"`
	Column int    `json:"column"`
	Reason string `json:"reason"`
}

// maxFirstBad is the number of invalid lines that a report names.
const maxFirstBad = 10

// ReadReport describes what reading a log found beside its jobs.
type ReadReport struct {
	Format   Format `json:"format"`
	Lines    int    `json:"lines"`
	Jobs     int    `json:"jobs"`
	Bad      int    `json:"bad"`
	FirstBad []Bad  `json:"first_bad,omitempty"`
	// Notes say what was left out or assumed, with numbers.
	Notes []string `json:"notes,omitempty"`
}

// LineError describes what is wrong with a line of a file. Lines and columns count from 1; columns
// count bytes.
type LineError struct {
	File         string
	Line, Column int
	Reason       string
}

func (e *LineError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Reason)
}

// ReadFile reads the log at path; see Read.
func ReadFile(path string, opt ReadOptions) (*Workload, *ReadReport, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.IsDir() {
		return nil, nil, fmt.Errorf("%s is a folder: name a file in it", path)
	}
	return Read(f, path, opt)
}

// Read reads a log, and decompresses it if necessary. The name is used in errors, as Workload.Name,
// and to guess the format. Every job that it returns is valid.
func Read(r io.Reader, name string, opt ReadOptions) (*Workload, *ReadReport, error) {
	src, err := openLines(r, name)
	if err != nil {
		return nil, nil, err
	}
	format := opt.Format
	if format == "" {
		if format, err = guess(src.peek(), name); err != nil {
			return nil, nil, err
		}
	}
	b := newBatch(name, format, opt)
	dec, err := newDecoder(format, b)
	if err != nil {
		return nil, nil, err
	}
	if err := b.read(src, dec); err != nil {
		return nil, nil, err
	}
	return b.finish()
}

// Write writes the workload as swf or csv. If the format cannot represent something that Read would
// return differently, that is an error, and never a silent loss.
func Write(w io.Writer, wl *Workload, f Format) error {
	for i := range wl.Jobs {
		if r := &wl.Jobs[i].Request; r.Run != 0 || r.WallTime != 0 {
			return fmt.Errorf("job %s: its first request has a run or wall time of its own: put it into the job", wl.Jobs[i].ID)
		}
	}
	out := bufio.NewWriterSize(w, 1<<16)
	var err error
	switch f {
	case SWF:
		err = writeSWF(out, wl)
	case CSV:
		err = writeCSV(out, wl)
	default:
		err = fmt.Errorf("logs cannot be written as %q: use swf or csv", f)
	}
	return errors.Join(err, out.Flush())
}

// decoder converts the lines of one format to jobs.
type decoder interface {
	line(text []byte) *fault
}

// fault describes what is wrong with a line. A fatal fault makes the rest unreadable, so it cannot
// be skipped.
type fault struct {
	column int
	reason string
	fatal  bool
}

func faultf(column int, format string, args ...any) *fault {
	return &fault{column: column, reason: fmt.Sprintf(format, args...)}
}

func fatalf(column int, format string, args ...any) *fault {
	f := faultf(column, format, args...)
	f.fatal = true
	return f
}

func newDecoder(format Format, b *batch) (decoder, error) {
	switch format {
	case SWF:
		return &swfDecoder{batch: b}, nil
	case Sacct:
		return &sacctDecoder{batch: b}, nil
	case PBS:
		return &pbsDecoder{batch: b}, nil
	case Openb:
		return &openbDecoder{batch: b}, nil
	case Philly:
		return &phillyDecoder{batch: b}, nil
	case CSV:
		return &csvDecoder{batch: b}, nil
	case Submit:
		return &submitDecoder{batch: b}, nil
	}
	_, err := ParseFormat(string(format))
	return nil, err
}

// guess determines the format of a log by its first bytes, or else by its name.
func guess(head []byte, name string) (Format, error) {
	head = bytes.TrimLeft(bytes.TrimPrefix(head, bom), " \t\r\n")
	first, _, _ := bytes.Cut(head, []byte("\n"))
	text := strings.ToLower(strings.TrimSpace(string(first)))
	switch {
	case strings.HasPrefix(text, ";"):
		return SWF, nil
	case strings.Contains(text, "|") && strings.Contains(text, "jobid"):
		return Sacct, nil
	case isPBS(first):
		return PBS, nil
	case strings.HasPrefix(text, "name,cpu_milli,"):
		return Openb, nil
	case strings.HasPrefix(text, "timestamp,duration,num_gpus"):
		return Philly, nil
	case isSubmit(text):
		return Submit, nil
	case len(strings.Fields(text)) >= swfFields && !strings.Contains(text, ",") && !strings.HasPrefix(text, "#"):
		return SWF, nil
	}
	switch filepath.Ext(strings.TrimSuffix(strings.ToLower(name), ".gz")) {
	case ".swf":
		return SWF, nil
	case ".csv":
		return CSV, nil
	case ".sacct":
		return Sacct, nil
	case ".pbs":
		return PBS, nil
	case ".submit":
		return Submit, nil
	}
	if strings.Contains(text, ",") || strings.HasPrefix(text, "#") {
		return CSV, nil
	}
	return "", fmt.Errorf("%s: cannot tell the format of this log: say which of %s it is", name, formatNames())
}

// anyJob says whether the predicate holds for some job.
func anyJob(jobs []model.Job, so func(*model.Job) bool) bool {
	for i := range jobs {
		if so(&jobs[i]) {
			return true
		}
	}
	return false
}

// byOrder sorts jobs by submission; ties keep their order. Jobs are large, so it sorts their
// indices and moves each job once.
func byOrder(jobs []model.Job) {
	sorted := true
	for i := 1; i < len(jobs) && sorted; i++ {
		sorted = jobs[i-1].Submit <= jobs[i].Submit
	}
	if sorted {
		return
	}
	order := make([]int32, len(jobs))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int {
		return cmp.Or(cmp.Compare(jobs[a].Submit, jobs[b].Submit), cmp.Compare(a, b))
	})
	for start := range order {
		if order[start] < 0 {
			continue
		}
		first := jobs[start]
		to := start
		for {
			from := int(order[to])
			order[to] = -1
			if from == start {
				jobs[to] = first
				break
			}
			jobs[to] = jobs[from]
			to = from
		}
	}
}
