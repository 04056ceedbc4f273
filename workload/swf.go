package workload

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/model"
)

// The fields of a line of the Standard Workload Format, version 2.2. Any
// negative number means unknown.
const (
	swfID = iota
	swfSubmit
	swfWait
	swfRun
	swfProcs
	swfCPUTime
	swfUsedMemory // KB per processor
	swfReqProcs
	swfReqTime
	swfReqMemory // KB per processor
	swfStatus
	swfUser
	swfGroup
	swfExecutable
	swfQueue
	swfPartition
	swfPreceding
	swfThinkTime
	swfFields // how many there are
)

var swfFieldNames = [swfFields]string{
	"job number", "submit time", "wait time", "run time", "allocated processors", "CPU time",
	"used memory", "requested processors", "requested time", "requested memory", "status", "user",
	"group", "executable", "queue", "partition", "preceding job", "think time",
}

// The status codes of SWF.
const (
	swfFailed        = 0
	swfCompleted     = 1
	swfPartial       = 2 // part of a job that was swapped out
	swfLastCompleted = 3
	swfLastFailed    = 4
	swfCancelled     = 5
)

// maxDigits keeps numbers within an int64, so that the parser need not check for overflow at each
// digit.
const maxDigits = 18

// absoluteSubmit: if the first submission of a log is later than this many seconds, and the log
// does not give its start, submissions are Unix times.
const absoluteSubmit = 500_000_000

// musterColumns is the header line that names the fields from the 19th on.
const musterColumns = "MusterColumns"

// swfDecoder reads SWF.
//
// Jobs without a run time, without processors, or cancelled with a run time of 0
// never ran: they cannot be simulated and are left out, with a note. So are the
// lines for pieces of a job that was swapped out, since its own line has the sum.
//
// Fields beyond the 18th are read where the header names them (MusterColumns)
// or where they are those of the Alea simulator's logs: {nodes} queue
// count:ppn=cores, with the requested memory in bytes per node.
type swfDecoder struct {
	*batch
	extra    []*column // the fields from the 19th on
	hasNodes bool      // extra gives the nodes
	began    bool
	number   swfNumbers
}

// swfNumbers are the first 18 fields of a line.
type swfNumbers struct {
	whole [swfFields]int64
	// frac is what follows the decimal points; few logs have any.
	frac      [swfFields]time.Duration
	fractions bool
}

func (d *swfDecoder) line(text []byte) *fault {
	i := 0
	for i < len(text) && (text[i] == ' ' || text[i] == '\t') {
		i++
	}
	if i == len(text) {
		return nil
	}
	if text[i] == ';' {
		return d.comment(text[i+1:])
	}
	rest, f := d.number.scan(text)
	if f != nil {
		return f
	}
	return d.decode(text, rest)
}

// comment keeps a header line, and interprets those that say how to read the rest.
func (d *swfDecoder) comment(text []byte) *fault {
	line := strings.TrimRight(strings.TrimPrefix(string(text), " "), " \t")
	key, value, ok := strings.Cut(line, ":")
	if ok {
		value = strings.TrimSpace(value)
		switch key {
		case musterColumns:
			return d.nameColumns(value)
		case "MaxJobs", "MaxRecords":
			if n, err := strconv.Atoi(value); err == nil {
				d.expected = max(d.expected, n)
			}
		case "UnixStartTime":
			if n, err := strconv.ParseInt(value, 10, 64); err == nil && 0 < n && n <= maxSeconds {
				d.origin, d.originKnown = time.Duration(n)*time.Second, true
			}
		}
	}
	return d.keepComment(line)
}

func (d *swfDecoder) nameColumns(names string) *fault {
	d.extra = nil
	for _, name := range strings.Fields(names) {
		c := findColumn(name)
		if c == nil {
			return fatalf(1, "%s: unknown column %q: %s", musterColumns, name, didYouMean(name, columnNames()))
		}
		if slices.Contains(d.extra, c) {
			return fatalf(1, "%s: the column %q is there twice", musterColumns, name)
		}
		d.extra = append(d.extra, c)
		d.hasNodes = d.hasNodes || name == "nodes"
	}
	return nil
}

// scan parses the first 18 fields and returns the position of the rest.
func (v *swfNumbers) scan(text []byte) (rest int, f *fault) {
	if v.fractions {
		v.frac, v.fractions = [swfFields]time.Duration{}, false
	}
	i := 0
	for field := range v.whole {
		for i < len(text) && (text[i] == ' ' || text[i] == '\t') {
			i++
		}
		if i == len(text) {
			return 0, faultf(i+1, "the line has %d fields, SWF has %d", field, swfFields)
		}
		start := i
		if text[i] == '-' {
			i++
		}
		digits := i
		var n int64
		for i < len(text) {
			d := text[i] - '0'
			if d > 9 {
				break
			}
			n = n*10 + int64(d)
			i++
		}
		length := i - digits
		if i < len(text) && text[i] != ' ' && text[i] != '\t' {
			if text[i] == '.' {
				i = v.fraction(field, text, i+1)
				length = max(length, i-digits-1)
			}
			if i < len(text) && text[i] != ' ' && text[i] != '\t' {
				length = 0
			}
		}
		if length-1 >= maxDigits || length == 0 {
			return 0, v.badNumber(text, field, start, length)
		}
		if digits > start {
			n = -1
		}
		v.whole[field] = n
	}
	return i, nil
}

func (v *swfNumbers) badNumber(text []byte, field, start, length int) *fault {
	why := "is not a number"
	if length > 0 {
		why = "is too long"
	}
	return faultf(start+1, "%s: %q %s", swfFieldNames[field], word(text[start:]), why)
}

// fraction reads what follows a decimal point, as billionths.
func (v *swfNumbers) fraction(field int, text []byte, i int) int {
	v.fractions = true
	scale := time.Second / 10
	for i < len(text) && text[i]-'0' <= 9 {
		v.frac[field] += time.Duration(text[i]-'0') * scale
		scale /= 10
		i++
	}
	return i
}

// word is the first word of a text, shortened for a message.
func word(text []byte) []byte {
	if i := bytes.IndexAny(text, " \t"); i >= 0 {
		text = text[:i]
	}
	return text[:min(len(text), 40)]
}

// seconds is a field as a time; -1 if it is unknown.
func (v *swfNumbers) seconds(field int) time.Duration {
	if v.whole[field] < 0 {
		return -1
	}
	return time.Duration(v.whole[field])*time.Second + v.frac[field]
}

// bytes is a field in KB as bytes; -1 if it is unknown.
func (v *swfNumbers) bytes(field int) int64 {
	if v.whole[field] < 0 {
		return -1
	}
	return v.whole[field]*1024 + int64(v.frac[field])*1024/int64(time.Second)
}

// check reports the first field that is out of bounds.
func (v *swfNumbers) check(text []byte) *fault {
	bad := func(field int, reason string) *fault {
		return faultf(columnOf(text, field), "%s %s", swfFieldNames[field], reason)
	}
	for _, field := range [...]int{swfSubmit, swfWait, swfRun, swfCPUTime, swfReqTime, swfThinkTime} {
		if v.whole[field] > maxSeconds {
			return bad(field, "is longer than any log can hold")
		}
	}
	for _, field := range [...]int{swfUsedMemory, swfReqMemory} {
		if v.whole[field] > 1<<52 {
			return bad(field, "is more than any machine has")
		}
	}
	switch {
	case v.whole[swfID] < 0:
		return bad(swfID, "must not be negative")
	case v.whole[swfSubmit] < 0:
		return bad(swfSubmit, "must be known")
	case v.whole[swfReqProcs] > 0 && !atMost(v.whole[swfReqProcs]):
		return bad(swfReqProcs, "are more than any machine has")
	case v.whole[swfProcs] > 0 && !atMost(v.whole[swfProcs]):
		return bad(swfProcs, "are more than any machine has")
	}
	return nil
}

// columnOf is the position of a field, from 1.
func columnOf(text []byte, field int) int {
	i := 0
	for {
		for i < len(text) && (text[i] == ' ' || text[i] == '\t') {
			i++
		}
		if field == 0 || i == len(text) {
			return i + 1
		}
		field--
		for i < len(text) && text[i] != ' ' && text[i] != '\t' {
			i++
		}
	}
}

func (d *swfDecoder) decode(text []byte, rest int) *fault {
	v := &d.number
	if f := v.check(text); f != nil {
		return f
	}
	if !d.began {
		d.began = true
		if !d.originKnown && v.whole[swfSubmit] >= absoluteSubmit {
			d.originKnown = true // submissions are Unix times
		}
	}
	procs := v.whole[swfReqProcs]
	if procs <= 0 {
		procs = v.whole[swfProcs]
	}
	status := v.whole[swfStatus]
	run := v.seconds(swfRun)
	switch {
	case status >= swfPartial && status <= swfLastFailed:
		d.note("in pieces: lines for partial executions left out, the line of the whole job stands")
		return nil
	case run < 0:
		d.note("without a run time left out (cancelled before the start, or lost)")
		return nil
	case status == swfCancelled && run == 0:
		d.note("cancelled before the start left out")
		return nil
	case procs <= 0:
		d.note("without processors left out")
		return nil
	}

	j := d.job()
	j.ID = d.swfJobID()
	j.Submit = v.seconds(swfSubmit)
	j.Run = run
	j.WallTime = max(0, v.seconds(swfReqTime))
	j.User = d.optional(swfUser)
	j.Group = d.optional(swfGroup)
	j.Queue = d.optional(swfQueue)
	j.Request.Cores = int(procs)
	j.Request.MemoryPerCore = max(0, v.bytes(swfReqMemory))
	if n := d.opt.CoresPerNode; n > 0 && !d.hasNodes {
		j.Request.Nodes = int(ceilDiv(procs, int64(n)))
	}
	if !d.opt.SkipLogged {
		j.Logged = d.swfLogged(status)
	}
	if f := d.more(j, text, rest); f != nil {
		d.drop()
		return f
	}
	return d.keep(1)
}

func (d *swfDecoder) swfJobID() string {
	var text [20]byte
	return d.id(strconv.AppendInt(text[:0], d.number.whole[swfID], 10))
}

func (d *swfDecoder) optional(field int) string {
	if n := d.number.whole[field]; n >= 0 {
		return d.numeral(n)
	}
	return ""
}

func (d *swfDecoder) swfLogged(status int64) *model.Logged {
	v := &d.number
	l := model.Logged{
		Wait:       v.seconds(swfWait),
		CPUTime:    v.seconds(swfCPUTime),
		UsedMemory: v.bytes(swfUsedMemory),
		Executable: d.optional(swfExecutable),
		Partition:  d.optional(swfPartition),
		Preceding:  d.optional(swfPreceding),
	}
	if l.Preceding != "" {
		l.ThinkTime = max(0, v.seconds(swfThinkTime))
	}
	switch status {
	case swfCompleted:
		l.Status = model.StatusCompleted
	case swfFailed:
		l.Status = model.StatusFailed
	case swfCancelled:
		l.Status = model.StatusCancelled
	}
	return d.log(l)
}

// more reads the fields from the 19th on.
func (d *swfDecoder) more(j *model.Job, text []byte, rest int) *fault {
	i := rest
	next := func() []byte {
		for i < len(text) && (text[i] == ' ' || text[i] == '\t') {
			i++
		}
		start := i
		for i < len(text) && text[i] != ' ' && text[i] != '\t' {
			i++
		}
		return text[start:i]
	}
	if len(d.extra) == 0 {
		if nodes := next(); len(nodes) > 0 && nodes[0] == '{' {
			d.alea(j, next(), next())
		}
		return nil
	}
	for k, c := range d.extra {
		token := next()
		if len(token) == 0 {
			return faultf(len(text)+1, "the line has %d fields, the header promises %d", swfFields+k, swfFields+len(d.extra))
		}
		value, err := unescape(token)
		if err == nil {
			err = c.set(j, &j.Request, value)
		}
		if err != nil {
			return faultf(i-len(token)+1, "%s: %v", c.name, err)
		}
	}
	return nil
}

// alea reads the last two fields of Alea's logs. A node specification that is
// not a plain count leaves the cores spread.
func (d *swfDecoder) alea(j *model.Job, queue, spec []byte) {
	j.Queue = d.word(queue)
	memory := d.number.whole[swfReqMemory]
	j.Request.MemoryPerCore = 0
	if nodes, err := parseNodeSpec(string(spec)); err == nil && nodes.count > 0 {
		j.Request.Nodes, j.Request.Cores, j.Request.CoresPerNode = nodes.count, 0, nodes.cores
		j.Request.Memory = max(0, memory)
		return
	}
	j.Request.MemoryPerCore = max(0, memory) / int64(max(1, j.Request.Cores))
	d.note("with a node specification that was not understood: their cores are spread over any nodes")
}

// escape makes a text a single token: blanks and control characters become %20 and so on, and an
// empty text "-".
func escape(to []byte, s string) []byte {
	switch s {
	case "":
		return append(to, '-')
	case "-":
		return append(to, "%2D"...)
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == '%' || c == 0x7f {
			to = fmt.Appendf(to, "%%%02X", c)
		} else {
			to = append(to, c)
		}
	}
	return to
}

func unescape(token []byte) (string, error) {
	if len(token) == 1 && token[0] == '-' {
		return "", nil
	}
	if bytes.IndexByte(token, '%') < 0 {
		return string(token), nil
	}
	var out []byte
	for i := 0; i < len(token); i++ {
		if token[i] != '%' {
			out = append(out, token[i])
			continue
		}
		if i+2 >= len(token) {
			return "", fmt.Errorf("%q ends in the middle of an escaped character", token)
		}
		n, err := strconv.ParseUint(string(token[i+1:i+3]), 16, 8)
		if err != nil {
			return "", fmt.Errorf("%q holds %% without two hexadecimal digits after it", token)
		}
		out = append(out, byte(n))
		i += 2
	}
	return string(out), nil
}
