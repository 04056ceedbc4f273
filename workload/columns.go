package workload

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"muster/internal/units"
	"muster/model"
)

// column is one named value of a job, as text. CSV files consist of columns, and SWF files have
// those that the 18 standard fields cannot represent.
type column struct {
	name string
	// ofRequest marks columns that an alternative request may set, too.
	ofRequest bool
	// set parses the text; "" is the zero or unknown value.
	set func(j *model.Job, r *model.Request, text string) error
	// get writes the text that set reads; "" for zero or unknown.
	get func(j *model.Job, r *model.Request) string
	// beyondSWF says whether SWF's own fields would lose the value.
	beyondSWF func(j *model.Job) bool
}

// columns in the order of CSV files.
var columns = []column{
	textColumn("id", func(j *model.Job) *string { return &j.ID }),
	timeColumn("submit", func(j *model.Job) *time.Duration { return &j.Submit }),
	runColumn,
	wallTimeColumn,
	countColumn("nodes", func(r *model.Request) *int { return &r.Nodes }).unlessZero(),
	countColumn("cores", func(r *model.Request) *int { return &r.Cores }).
		when(func(j *model.Job) bool { return j.Request.Cores != j.Request.TotalCores() }),
	countColumn("cores_per_node", func(r *model.Request) *int { return &r.CoresPerNode }).unlessZero(),
	countColumn("cores_per_process", func(r *model.Request) *int { return &r.CoresPerProcess }).unlessZero(),
	countColumn("processes", func(r *model.Request) *int { return &r.Processes }).unlessZero(),
	sizeColumn("memory", func(r *model.Request) *int64 { return &r.Memory }).unlessZero(),
	sizeColumn("memory_per_core", func(r *model.Request) *int64 { return &r.MemoryPerCore }).
		when(func(j *model.Job) bool { return j.Request.Memory != 0 || j.Request.MemoryPerCore%1024 != 0 }),
	countColumn("gpus", func(r *model.Request) *int { return &r.GPUs }).unlessZero(),
	sizeColumn("gpu_memory", func(r *model.Request) *int64 { return &r.GPUMemory }).unlessZero(),
	gpuTypeColumn.unlessZero(),
	remoteGPUsColumn.unlessZero(),
	remoteMemoryColumn.unlessZero(),
	remoteSharedColumn.unlessZero(),
	intensityColumn.unlessZero(),
	flagColumn("contiguous", func(r *model.Request) *bool { return &r.Contiguous }).unlessZero(),
	flagColumn("exclusive", func(r *model.Request) *bool { return &r.Exclusive }).unlessZero(),
	nodeListColumn.unlessZero(),
	numberColumn("priority", func(j *model.Job) *int64 { return &j.Priority }).unlessZero(),
	bytesColumn("net_bytes", func(j *model.Job) *int64 { return &j.Traffic.NetBytes }).unlessZero(),
	numberColumn("net_conns", func(j *model.Job) *int64 { return &j.Traffic.NetConns }).unlessZero(),
	bytesColumn("gpu_bytes", func(j *model.Job) *int64 { return &j.Traffic.GPUBytes }).unlessZero(),
	numberColumn("gpu_conns", func(j *model.Job) *int64 { return &j.Traffic.GPUConns }).unlessZero(),
	textColumn("user", func(j *model.Job) *string { return &j.User }),
	textColumn("group", func(j *model.Job) *string { return &j.Group }),
	textColumn("queue", func(j *model.Job) *string { return &j.Queue }),
	textColumn("qos", func(j *model.Job) *string { return &j.QOS }).unlessZero(),
	statusColumn,
	loggedTimeColumn("wait", func(l *model.Logged) *time.Duration { return &l.Wait }),
	loggedTimeColumn("cpu_time", func(l *model.Logged) *time.Duration { return &l.CPUTime }),
	usedMemoryColumn,
	loggedTextColumn("executable", func(l *model.Logged) *string { return &l.Executable }),
	loggedTextColumn("partition", func(l *model.Logged) *string { return &l.Partition }),
	loggedTextColumn("preceding", func(l *model.Logged) *string { return &l.Preceding }),
	thinkTimeColumn,
}

// alternativeColumn marks a CSV row as an alternative request of the row above.
const alternativeColumn = "alternative"

func columnNames() []string {
	names := make([]string, 0, len(columns)+1)
	for i := range columns {
		names = append(names, columns[i].name)
	}
	return append(names, alternativeColumn)
}

// findColumn finds a column by its name; nil if there is none.
func findColumn(name string) *column {
	for i := range columns {
		if columns[i].name == name {
			return &columns[i]
		}
	}
	return nil
}

func (c column) when(lost func(*model.Job) bool) column {
	c.beyondSWF = lost
	return c
}

func (c column) unlessZero() column {
	get := c.get
	return c.when(func(j *model.Job) bool { return get(j, &j.Request) != "" })
}

func never(*model.Job) bool { return false }

func textColumn(name string, at func(*model.Job) *string) column {
	return column{
		name: name,
		set:  func(j *model.Job, _ *model.Request, text string) error { *at(j) = text; return nil },
		get:  func(j *model.Job, _ *model.Request) string { return *at(j) },
		beyondSWF: func(j *model.Job) bool {
			return *at(j) != "" && !isNumeral(*at(j))
		},
	}
}

// isNumeral says whether a name is a number that SWF can represent.
func isNumeral(s string) bool {
	if s == "" || len(s) > maxDigits || (s[0] == '0' && len(s) > 1) {
		return false
	}
	return strings.Trim(s, "0123456789") == ""
}

func timeColumn(name string, at func(*model.Job) *time.Duration) column {
	return column{
		name: name,
		set: func(j *model.Job, _ *model.Request, text string) error {
			d, err := parseSpan(text)
			*at(j) = d
			return err
		},
		get:       func(j *model.Job, _ *model.Request) string { return string(appendSeconds(nil, *at(j))) },
		beyondSWF: never,
	}
}

// In the row of an alternative, run and wall time are those that replace the job's.
var runColumn = column{
	name: "run", ofRequest: true,
	set: func(j *model.Job, r *model.Request, text string) (err error) {
		at := &r.Run
		if r == &j.Request {
			at = &j.Run
		}
		*at, err = parseSpan(text)
		return err
	},
	get: func(j *model.Job, r *model.Request) string {
		if r == &j.Request {
			return string(appendSeconds(nil, j.Run))
		}
		return positiveSeconds(r.Run)
	},
	beyondSWF: never,
}

var wallTimeColumn = column{
	name: "walltime", ofRequest: true,
	set: func(j *model.Job, r *model.Request, text string) (err error) {
		at := &r.WallTime
		if r == &j.Request {
			at = &j.WallTime
		}
		*at, err = parseSpan(text)
		return err
	},
	get: func(j *model.Job, r *model.Request) string {
		if r == &j.Request {
			return positiveSeconds(j.WallTime)
		}
		return positiveSeconds(r.WallTime)
	},
	beyondSWF: never,
}

var intensityColumn = column{
	name: "gpu_intensity",
	set: func(j *model.Job, _ *model.Request, text string) error {
		j.Intensity = 0
		if text == "" {
			return nil
		}
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || !(x >= 0 && x <= 1) {
			return fmt.Errorf("%q is not a number from 0 to 1", text)
		}
		if x > 0 { // avoids "-0"
			j.Intensity = x
		}
		return nil
	},
	get: func(j *model.Job, _ *model.Request) string {
		if j.Intensity == 0 {
			return ""
		}
		return strconv.FormatFloat(j.Intensity, 'g', -1, 64)
	},
}

// parseSpan parses a time within the limits of a log.
func parseSpan(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := units.ParseDuration(text)
	if err == nil && d > maxSeconds*time.Second {
		err = errors.New("the time is longer than any log can hold")
	}
	if err != nil {
		return 0, err
	}
	return d, nil
}

// positiveSeconds writes a time as seconds, with a fraction only where needed.
func positiveSeconds(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return string(appendSeconds(nil, d))
}

func appendSeconds(to []byte, d time.Duration) []byte {
	to = strconv.AppendInt(to, int64(d/time.Second), 10)
	if frac := d % time.Second; frac > 0 {
		digits := fmt.Sprintf("%09d", int64(frac))
		to = append(to, '.')
		to = append(to, strings.TrimRight(digits, "0")...)
	}
	return to
}

func countColumn(name string, at func(*model.Request) *int) column {
	return column{
		name: name, ofRequest: true,
		set: func(_ *model.Job, r *model.Request, text string) error {
			n, err := parseCount(text)
			*at(r) = int(n)
			return err
		},
		get: func(_ *model.Job, r *model.Request) string { return positive(int64(*at(r))) },
	}
}

func parseCount(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || !atMost(n) {
		return 0, fmt.Errorf("%q is not a whole number from 0 to 2147483647", text)
	}
	return n, nil
}

func positive(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func numberColumn(name string, at func(*model.Job) *int64) column {
	return column{
		name: name,
		set: func(j *model.Job, _ *model.Request, text string) error {
			*at(j) = 0
			if text == "" {
				return nil
			}
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				return fmt.Errorf("%q is not a whole number", text)
			}
			*at(j) = n
			return nil
		},
		get: func(j *model.Job, _ *model.Request) string { return positive(*at(j)) },
	}
}

func sizeColumn(name string, at func(*model.Request) *int64) column {
	return column{
		name: name, ofRequest: true,
		set: func(_ *model.Job, r *model.Request, text string) (err error) {
			*at(r), err = parseBytes(text)
			return err
		},
		get: func(_ *model.Job, r *model.Request) string { return positiveSize(*at(r)) },
	}
}

func bytesColumn(name string, at func(*model.Job) *int64) column {
	return column{
		name: name,
		set: func(j *model.Job, _ *model.Request, text string) (err error) {
			*at(j), err = parseBytes(text)
			return err
		},
		get: func(j *model.Job, _ *model.Request) string { return positiveSize(*at(j)) },
	}
}

func parseBytes(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	return units.ParseSize(text)
}

func positiveSize(n int64) string {
	if n == 0 {
		return ""
	}
	return units.FormatSize(n)
}

func flagColumn(name string, at func(*model.Request) *bool) column {
	return column{
		name: name, ofRequest: true,
		set: func(_ *model.Job, r *model.Request, text string) (err error) {
			*at(r), err = parseFlag(text)
			return err
		},
		get: func(_ *model.Job, r *model.Request) string { return yes(*at(r)) },
	}
}

func parseFlag(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "yes", "true", "1", "y":
		return true, nil
	case "", "no", "false", "0", "n":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither yes nor no", text)
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return ""
}

var gpuTypeColumn = column{
	name: "gpu_type", ofRequest: true,
	set: func(_ *model.Job, r *model.Request, text string) error { r.GPUType = text; return nil },
	get: func(_ *model.Job, r *model.Request) string { return r.GPUType },
}

var nodeListColumn = column{
	name: "node_list", ofRequest: true,
	set: func(_ *model.Job, r *model.Request, text string) (err error) {
		r.NodeList = nil
		if text != "" {
			r.NodeList, err = model.ExpandNodes(text)
		}
		return err
	},
	get: func(_ *model.Job, r *model.Request) string {
		if len(r.NodeList) == 0 {
			return ""
		}
		return model.CompressNodes(r.NodeList)
	},
}

// The three columns of remote GPUs form one value. In every file that we write remote_gpus is the
// first, but other files may have them in any order.
func remote(r *model.Request) *model.RemoteGPUs {
	if r.Remote == nil {
		r.Remote = new(model.RemoteGPUs)
	}
	return r.Remote
}

var remoteGPUsColumn = column{
	name: "remote_gpus", ofRequest: true,
	set: func(_ *model.Job, r *model.Request, text string) error {
		n, err := parseCount(text)
		if n > 0 {
			remote(r).Count = int(n)
		}
		return err
	},
	get: func(_ *model.Job, r *model.Request) string {
		if r.Remote == nil {
			return ""
		}
		return positive(int64(r.Remote.Count))
	},
}

var remoteMemoryColumn = column{
	name: "remote_gpu_memory", ofRequest: true,
	set: func(_ *model.Job, r *model.Request, text string) error {
		n, err := parseBytes(text)
		if n > 0 {
			remote(r).Memory = n
		}
		return err
	},
	get: func(_ *model.Job, r *model.Request) string {
		if r.Remote == nil {
			return ""
		}
		return positiveSize(r.Remote.Memory)
	},
}

var remoteSharedColumn = column{
	name: "remote_shared", ofRequest: true,
	set: func(_ *model.Job, r *model.Request, text string) error {
		shared, err := parseFlag(text)
		if shared {
			remote(r).Shared = true
		}
		return err
	},
	get: func(_ *model.Job, r *model.Request) string {
		return yes(r.Remote != nil && r.Remote.Shared)
	},
}

// logged is the job's log entry; if there was none, a new one with everything unknown.
func logged(j *model.Job) *model.Logged {
	if j.Logged == nil {
		l := unlogged
		j.Logged = &l
	}
	return j.Logged
}

func loggedTextColumn(name string, at func(*model.Logged) *string) column {
	get := func(j *model.Job, _ *model.Request) string {
		if j.Logged == nil {
			return ""
		}
		return *at(j.Logged)
	}
	return column{
		name: name,
		set: func(j *model.Job, _ *model.Request, text string) error {
			if text != "" {
				*at(logged(j)) = text
			}
			return nil
		},
		get: get,
		beyondSWF: func(j *model.Job) bool {
			text := get(j, nil)
			return text != "" && !isNumeral(text)
		},
	}
}

// loggedTimeColumn is a time for which 0 is a known value and -1 is unknown.
func loggedTimeColumn(name string, at func(*model.Logged) *time.Duration) column {
	return column{
		name: name,
		set: func(j *model.Job, _ *model.Request, text string) error {
			if text == "" {
				return nil
			}
			d, err := parseSpan(text)
			*at(logged(j)) = d
			return err
		},
		get: func(j *model.Job, _ *model.Request) string {
			if j.Logged == nil || *at(j.Logged) < 0 {
				return ""
			}
			return string(appendSeconds(nil, *at(j.Logged)))
		},
		beyondSWF: never,
	}
}

var usedMemoryColumn = column{
	name: "used_memory",
	set: func(j *model.Job, _ *model.Request, text string) error {
		if text == "" {
			return nil
		}
		n, err := units.ParseSize(text)
		logged(j).UsedMemory = n
		return err
	},
	get: func(j *model.Job, _ *model.Request) string {
		if j.Logged == nil || j.Logged.UsedMemory < 0 {
			return ""
		}
		return units.FormatSize(j.Logged.UsedMemory)
	},
	beyondSWF: func(j *model.Job) bool {
		return j.Logged != nil && j.Logged.UsedMemory > 0 && j.Logged.UsedMemory%1024 != 0
	},
}

var statusColumn = column{
	name: "status",
	set: func(j *model.Job, _ *model.Request, text string) error {
		switch s := model.Status(strings.ToLower(text)); s {
		case model.StatusUnknown:
			return nil
		case model.StatusCompleted, model.StatusFailed, model.StatusCancelled, model.StatusTimeout:
			logged(j).Status = s
			return nil
		}
		return fmt.Errorf("status %q is not one of completed, failed, cancelled, timeout", text)
	},
	get: func(j *model.Job, _ *model.Request) string {
		if j.Logged == nil {
			return ""
		}
		return string(j.Logged.Status)
	},
	beyondSWF: func(j *model.Job) bool {
		return j.Logged != nil && (j.Logged.Status == model.StatusTimeout || cancelledAtOnce(j))
	},
}

// A think time without the preceding job has no meaning.
var thinkTimeColumn = column{
	name: "think_time",
	set: func(j *model.Job, _ *model.Request, text string) error {
		d, err := parseSpan(text)
		if d > 0 {
			logged(j).ThinkTime = d
		}
		return err
	},
	get: func(j *model.Job, _ *model.Request) string {
		if j.Logged == nil || j.Logged.Preceding == "" {
			return ""
		}
		return positiveSeconds(j.Logged.ThinkTime)
	},
	beyondSWF: func(j *model.Job) bool {
		return j.Logged != nil && j.Logged.ThinkTime > 0 && j.Logged.Preceding != "" && !isNumeral(j.Logged.Preceding)
	},
}
