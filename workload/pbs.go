package workload

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"time"

	"muster/internal/units"
	"muster/model"
)

// pbsDecoder reads the accounting logs of PBS Pro, OpenPBS and Torque:
//
//	04/01/2013 00:10:12;E;1234.head;user=a queue=G ctime=... Resource_List.nodes=4:ppn=8:gpus=3 ...
//
// It reads only end records (E), since each has everything about its job. A chunk of a select
// statement counts as a node, unless place=pack puts all of them on one. If groups joined by +
// differ, each node gets what the largest group asks for. Memory for the whole job is divided
// evenly over its nodes.
type pbsDecoder struct {
	*batch
}

// isPBS recognises an accounting record by its start: "04/01/2013 00:10:12;E;".
func isPBS(line []byte) bool {
	const form = "00/00/0000 00:00:00;"
	if len(line) < len(form) {
		return false
	}
	for i := range len(form) {
		digit := '0' <= line[i] && line[i] <= '9'
		if (form[i] == '0') != digit || (!digit && form[i] != line[i]) {
			return false
		}
	}
	return true
}

func (d *pbsDecoder) line(text []byte) *fault {
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	if !isPBS(text) {
		return faultf(1, "this is no accounting record: it must start like 04/01/2013 00:10:12;E;")
	}
	parts := bytes.SplitN(text, []byte(";"), 4)
	if len(parts) < 4 {
		return faultf(len(text)+1, "the record is cut short: date;type;job;values are expected")
	}
	if string(parts[1]) != "E" {
		return nil
	}
	message := parts[3]
	rec := pbsRecord{values: pbsValues(string(message)), column: len(text) - len(message) + 1}
	return d.decode(string(parts[2]), &rec)
}

// pbsRecord is the content of an end record.
type pbsRecord struct {
	values map[string]string
	column int // where the values start
	fault  *fault
}

// pbsValues parses key=value pairs. A value in quotes may contain blanks, and a word without =
// belongs to the value before it.
func pbsValues(message string) map[string]string {
	values := make(map[string]string)
	last := ""
	var words []string // of the last value, where it has several
	for rest := strings.TrimLeft(message, " "); rest != ""; rest = strings.TrimLeft(rest, " ") {
		end := strings.IndexByte(rest, ' ')
		if end < 0 {
			end = len(rest)
		}
		key, value, ok := strings.Cut(rest[:end], "=")
		if !ok {
			if last != "" {
				words = append(words, rest[:end])
			}
			rest = rest[end:]
			continue
		}
		if len(words) > 1 {
			values[last] = strings.Join(words, " ")
		}
		if strings.HasPrefix(value, `"`) {
			if length := strings.IndexByte(rest[len(key)+2:], '"'); length >= 0 {
				end = len(key) + 2 + length + 1
				value = rest[len(key)+2 : end-1]
			}
		}
		values[key], last, words = value, key, append(words[:0], value)
		rest = rest[end:]
	}
	if len(words) > 1 {
		values[last] = strings.Join(words, " ")
	}
	return values
}

// fail keeps the first error.
func (r *pbsRecord) fail(key string, err error) {
	if r.fault == nil {
		r.fault = faultf(r.column, "%s: %v", key, err)
	}
}

// instant reads a Unix time from the first of the keys that exists.
func (r *pbsRecord) instant(keys ...string) (time.Duration, bool) {
	for _, key := range keys {
		text, ok := r.values[key]
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > maxSeconds {
			r.fail(key, fmt.Errorf("%q is not in seconds since 1970", text))
			return 0, false
		}
		if n > 0 {
			return time.Duration(n) * time.Second, true
		}
	}
	return 0, false
}

func (r *pbsRecord) span(key string) (time.Duration, bool) {
	text, ok := r.values[key]
	if !ok {
		return 0, false
	}
	d, err := parseSpan(text)
	if err != nil {
		r.fail(key, err)
		return 0, false
	}
	return d, true
}

func (r *pbsRecord) count(key string) int {
	text, ok := r.values[key]
	if !ok {
		return 0
	}
	n, err := parseCount(text)
	if err != nil {
		r.fail(key, err)
	}
	return int(n)
}

func (r *pbsRecord) size(key string) int64 {
	text, ok := r.values[key]
	if !ok {
		return 0
	}
	n, err := parsePBSSize(text)
	if err != nil {
		r.fail(key, err)
	}
	return n
}

// parsePBSSize parses 22gb, 500mb, 4kb, 17b. Units are powers of 1024, and w stands for words of 8
// bytes.
func parsePBSSize(text string) (int64, error) {
	lower := strings.ToLower(text)
	words := strings.HasSuffix(lower, "w")
	n, err := units.ParseSize(strings.ToUpper(strings.TrimRight(lower, "bw")))
	if err != nil {
		return 0, fmt.Errorf("%q is not a size such as 22gb", text)
	}
	if words {
		if n > 1<<60 {
			return 0, fmt.Errorf("%q is too large", text)
		}
		n *= 8
	}
	return n, nil
}

func (d *pbsDecoder) decode(id string, rec *pbsRecord) *fault {
	submit, submitted := rec.instant("ctime", "qtime", "etime")
	start, started := rec.instant("start")
	end, ended := rec.instant("end")
	run, known := rec.span("resources_used.walltime")
	if !known && started && ended {
		run, known = max(0, end-start), true
	}
	limit, _ := rec.span("Resource_List.walltime")
	request, unlike := rec.request()
	switch {
	case rec.fault != nil:
		return rec.fault
	case id == "":
		return faultf(rec.column, "the job has no number")
	case !submitted:
		return faultf(rec.column, "ctime, qtime and etime are missing: when was the job submitted?")
	case !known:
		d.note("without a run time left out (resources_used.walltime, start or end is missing)")
		return nil
	}
	if unlike {
		d.note("asking for groups of unlike nodes: each node is given what the largest group asks for")
	}
	request.GPUType = d.word([]byte(request.GPUType))
	d.originKnown = true
	j := d.job()
	j.ID = d.id([]byte(id))
	j.User = d.word([]byte(rec.values["user"]))
	j.Group = d.word([]byte(rec.values["group"]))
	j.Queue = d.word([]byte(rec.values["queue"]))
	j.Submit, j.Run, j.WallTime = submit, run, limit
	j.Request = request
	l := unlogged
	if started && start >= submit {
		l.Wait = start - submit
	}
	if cput, ok := rec.span("resources_used.cput"); ok {
		l.CPUTime = cput / time.Duration(max(1, request.TotalCores()))
	}
	if used, ok := rec.values["resources_used.mem"]; ok {
		if n, err := parsePBSSize(used); err == nil {
			l.UsedMemory = n / int64(max(1, request.TotalCores()))
		}
	}
	l.Executable = d.word([]byte(rec.values["jobname"]))
	l.Status = pbsStatus(rec.values["Exit_status"], run, limit)
	j.Logged = d.log(l)
	return d.keep(rec.column)
}

// request is what the job asks for, and whether its groups of nodes differ.
func (r *pbsRecord) request() (request model.Request, unlike bool) {
	const list = "Resource_List."
	nodes := nodeGroup{count: max(1, r.count(list+"nodect"))}
	if text, ok := r.values[list+"select"]; ok {
		g, err := parseSelect(text)
		if err != nil {
			r.fail(list+"select", err)
			return request, false
		}
		nodes = g
		for word := range strings.SplitSeq(r.values[list+"place"], ":") {
			switch word {
			case "excl", "exclhost":
				request.Exclusive = true
			case "pack":
				nodes = nodes.packed()
			}
		}
	} else if text, ok := r.values[list+"nodes"]; ok {
		g, err := parseNodeSpec(text)
		if err != nil {
			r.fail(list+"nodes", err)
			return request, false
		}
		nodes = g
	} else {
		nodes.cores = int(ceilDiv(int64(r.count(list+"ncpus")), int64(nodes.count)))
		nodes.gpus = int(ceilDiv(int64(r.count(list+"ngpus")), int64(nodes.count)))
	}
	request.Nodes = nodes.count
	request.CoresPerNode = max(1, nodes.cores)
	request.GPUs = nodes.gpus
	request.GPUType = nodes.gpuType
	request.Processes = nodes.processes
	request.Memory = nodes.memory
	if request.Memory == 0 {
		request.Memory = ceilDiv(r.size(list+"mem"), int64(nodes.count))
	}
	if request.Memory == 0 {
		request.MemoryPerCore = r.size(list + "pmem")
	}
	return request, nodes.unlike
}

func pbsStatus(exit string, run, limit time.Duration) model.Status {
	const (
		killedByLimit = -29 // PBS Pro
		terminated    = 256 + 15
		killed        = 256 + 9
	)
	n, err := strconv.Atoi(exit)
	switch {
	case err != nil:
		return model.StatusUnknown
	case n == 0:
		return model.StatusCompleted
	case n == killedByLimit || (limit > 0 && run >= limit):
		return model.StatusTimeout
	case n == terminated || n == killed:
		return model.StatusCancelled
	}
	return model.StatusFailed
}

// nodeGroup is a number of equal nodes.
type nodeGroup struct {
	count     int
	cores     int // each
	gpus      int // each
	gpuType   string
	memory    int64 // each
	processes int   // in total
	unlike    bool  // it combines groups that differ
}

// parseNodeSpec parses Torque's 4:ppn=8:gpus=3+2:ppn=4, or names of nodes in place of numbers. It
// ignores properties that do not concern the size.
func parseNodeSpec(text string) (nodeGroup, error) {
	return parseGroups(text, func(g *nodeGroup, key, value string) (err error) {
		switch key {
		case "ppn":
			g.cores, err = groupCount(key, value)
		case "gpus":
			g.gpus, err = groupCount(key, value)
		case "mem":
			g.memory, err = parsePBSSize(value)
		}
		return err
	})
}

// parseSelect reads PBS Pro's 2:ncpus=8:ngpus=1:mem=4gb:mpiprocs=2+1:ncpus=4.
func parseSelect(text string) (nodeGroup, error) {
	return parseGroups(text, func(g *nodeGroup, key, value string) (err error) {
		switch key {
		case "ncpus":
			g.cores, err = groupCount(key, value)
		case "ngpus":
			g.gpus, err = groupCount(key, value)
		case "mem":
			g.memory, err = parsePBSSize(value)
		case "mpiprocs":
			g.processes, err = groupCount(key, value)
		case "gpu_type", "gpu_model":
			g.gpuType = value
		}
		return err
	})
}

func groupCount(key, value string) (int, error) {
	// Some logs have ppn=4.0.
	n, err := parseCount(strings.TrimSuffix(value, ".0"))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", key, err)
	}
	return int(n), nil
}

// parseGroups parses groups joined by +, each a count and properties separated by colons.
func parseGroups(text string, property func(g *nodeGroup, key, value string) error) (nodeGroup, error) {
	var sum nodeGroup
	for i, part := range strings.Split(text, "+") {
		g := nodeGroup{count: 1}
		for k, item := range strings.Split(part, ":") {
			key, value, ok := strings.Cut(item, "=")
			if !ok {
				if n, err := parseCount(item); k == 0 && item != "" && err == nil {
					g.count = int(n)
				}
				continue
			}
			value, _, _ = strings.Cut(value, "#") // Torque's #excl and #shared
			if err := property(&g, key, value); err != nil {
				return sum, err
			}
		}
		g.cores = max(1, g.cores)
		if !atMost(int64(g.processes) * int64(g.count)) {
			return sum, fmt.Errorf("%q asks for more processes than any machine runs", text)
		}
		g.processes *= g.count
		if i == 0 {
			sum = g
			continue
		}
		sum.unlike = sum.unlike || sum.cores != g.cores || sum.gpus != g.gpus || sum.memory != g.memory
		sum.cores, sum.gpus, sum.memory = max(sum.cores, g.cores), max(sum.gpus, g.gpus), max(sum.memory, g.memory)
		sum.count += g.count
		sum.processes += g.processes
	}
	if sum.count == 0 || !atMost(int64(sum.count)) {
		return sum, fmt.Errorf("%q does not ask for a number of nodes", text)
	}
	return sum, nil
}

// packed is the group with all its chunks on one node.
func (g nodeGroup) packed() nodeGroup {
	cores, gpus := int64(g.count)*int64(g.cores), int64(g.count)*int64(g.gpus)
	const most = 1 << 30
	if cores > most || gpus > most || g.memory > (1<<60)/int64(g.count) {
		return g
	}
	g.cores, g.gpus, g.memory = int(cores), int(gpus), g.memory*int64(g.count)
	g.count = 1
	return g
}
