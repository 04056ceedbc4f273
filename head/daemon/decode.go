package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"muster/head"
	"muster/internal/strictjson"
	"muster/model"
	"muster/model/slurmopt"
	"muster/wire/api"
	"muster/wire/identity"
)

// How large requests may be: their headers, a body, and the body of a submission.
const (
	maxHeader     = 256 << 10
	maxBody       = 64 << 10
	maxSubmitBody = 64 << 20
	// maxEscaped is how many bytes a submission may have as JSON, where some characters take six
	// bytes: it must fit into a message to an agent.
	maxEscaped = 12 << 20
)

// strictly decodes a request's body.
func strictly(b []byte, v any) error {
	if !utf8.Valid(b) { // the decoder would alter it
		return refuse(http.StatusBadRequest, "the body is not valid UTF-8: convert it with iconv")
	}
	if err := strictjson.Decode(b, v); err != nil {
		return refuse(http.StatusBadRequest, "the body: %v", err)
	}
	return nil
}

// submissions reads one submission, or a list of them.
func submissions(b []byte) (list []api.Submission, isList bool, err error) {
	if first := bytes.TrimLeft(b, " \t\r\n"); len(first) == 0 || first[0] != '[' {
		one, err := submission(b)
		return []api.Submission{one}, false, err
	}
	// Decode one by one: a list of many empty objects must not become much larger in memory.
	d := json.NewDecoder(bytes.NewReader(b))
	if _, err := d.Token(); err != nil {
		return nil, true, refuse(http.StatusBadRequest, "the body: %v", err)
	}
	for d.More() {
		if len(list) == api.MaxBatch {
			return nil, true, refuse(http.StatusRequestEntityTooLarge, "more than %d submissions: send the others in another request", api.MaxBatch)
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, true, refuse(http.StatusBadRequest, "submission %d: %v", len(list), err)
		}
		one, err := submission(raw)
		if err != nil {
			return nil, true, inSubmission(len(list), err)
		}
		list = append(list, one)
	}
	if _, err := d.Token(); err != nil {
		return nil, true, refuse(http.StatusBadRequest, "the body's list does not end: %v", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, true, refuse(http.StatusBadRequest, "something follows the body's list")
	}
	if len(list) == 0 {
		return nil, true, refuse(http.StatusBadRequest, "an empty list: give at least one submission")
	}
	return list, true, nil
}

func inSubmission(i int, err error) error {
	var refused *head.Refusal
	if errors.As(err, &refused) {
		return refuse(refused.Status, "submission %d: %s", i, refused.Reason)
	}
	return fmt.Errorf("submission %d: %w", i, err)
}

func submission(b []byte) (s api.Submission, err error) {
	// Escapes may make the JSON up to six times as long as the texts.
	if len(b) > 6*api.MaxSubmission {
		return s, tooLarge()
	}
	if err := strictly(b, &s); err != nil {
		return s, err
	}
	if s.User != "" {
		if err := identity.CheckUser(s.User); err != nil {
			return s, refuse(http.StatusBadRequest, "user: %v", err)
		}
	}
	size, escaped := 0, 0
	for _, list := range [][]string{{s.Script, s.Directory, s.Key, s.User}, s.Options, s.Arguments, s.Environment} {
		for _, text := range list {
			size += len(text)
			escaped += escapedSize(text)
		}
	}
	if size > api.MaxSubmission || escaped > maxEscaped {
		return s, tooLarge()
	}
	return s, nil
}

func tooLarge() error {
	return refuse(http.StatusRequestEntityTooLarge, "a submission may have %d bytes, less if many of its characters must be escaped: put what is large into files", api.MaxSubmission)
}

// escapedSize is an upper bound of the bytes that a text has as JSON.
func escapedSize(s string) int {
	n := len(s) + 3
	for i := range len(s) {
		switch c := s[i]; {
		case c < ' ', c == '<', c == '>', c == '&', c == '"', c == '\\':
			n += 5
		case c == 0xe2: // the first byte of U+2028 and U+2029, which are escaped too
			n += 3
		}
	}
	return n
}

// parameters are those of a request's query. err is the first error found while reading them.
type parameters struct {
	values url.Values
	err    error
}

// query parses a request's query and refuses parameters other than those named. Only a name that
// ends in * may occur more than once.
func query(raw string, names ...string) (*parameters, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "the query: %v", err)
	}
	keys := slices.Sorted(maps.Keys(values))
	for _, key := range keys {
		many := slices.Contains(names, key+"*")
		switch {
		case !many && !slices.Contains(names, key):
			return nil, refuse(http.StatusBadRequest, "?%.40s= means nothing here%s", key, instead(key, names))
		case !many && len(values[key]) > 1:
			return nil, refuse(http.StatusBadRequest, "?%s= is given twice", key)
		}
	}
	return &parameters{values: values}, nil
}

func instead(key string, names []string) string {
	plain := make([]string, len(names))
	for i, n := range names {
		plain[i] = strings.TrimSuffix(n, "*")
	}
	if nearest := model.Nearest(key, plain); nearest != "" {
		return ": is ?" + nearest + "= meant?"
	}
	return ""
}

func (p *parameters) text(name string) string { return p.values.Get(name) }

func (p *parameters) list(name string) []string { return p.values[name] }

func (p *parameters) fail(name, need string) {
	if p.err == nil {
		p.err = refuse(http.StatusBadRequest, "?%s=%.40s: give %s", name, p.values.Get(name), need)
	}
}

// number reads a whole number from 0 to most.
func (p *parameters) number(name string, otherwise, most uint64) uint64 {
	if !p.values.Has(name) {
		return otherwise
	}
	n, err := strconv.ParseUint(p.values.Get(name), 10, 64)
	if err != nil || n > most {
		p.fail(name, fmt.Sprintf("a whole number from 0 to %d", most))
	}
	return n
}

// instant reads seconds since 1970.
func (p *parameters) instant(name string) float64 {
	if !p.values.Has(name) {
		return 0
	}
	x, err := strconv.ParseFloat(p.values.Get(name), 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) || x < 0 {
		p.fail(name, "seconds since 1970")
	}
	return x
}

func (p *parameters) bool(name string) bool {
	switch p.values.Get(name) {
	case "", "false":
		return false
	case "true":
		return true
	}
	p.fail(name, "true or false")
	return false
}

func (p *parameters) oneOf(name, otherwise string, all ...string) string {
	if !p.values.Has(name) {
		return otherwise
	}
	if !slices.Contains(all, p.values.Get(name)) {
		p.fail(name, strings.Join(all, " or "))
	}
	return p.values.Get(name)
}

var allStates = []api.State{
	api.Pending, api.Running, api.Suspended, api.Completing, api.Completed, api.Failed, api.Cancelled, api.Timeout, api.NodeFail, api.OutOfMemory, api.Preempted,
}

// states reads a list of job states, separated by commas.
func (p *parameters) states(name string) (states []api.State) {
	if !p.values.Has(name) {
		return nil
	}
	for word := range strings.SplitSeq(p.values.Get(name), ",") {
		s := api.State(strings.ToUpper(word))
		if !slices.Contains(allStates, s) {
			p.fail(name, "states as PENDING,RUNNING")
			return nil
		}
		states = append(states, s)
	}
	return states
}

// The signals that may be given by name.
var signals = map[string]int{
	"HUP": 1, "INT": 2, "QUIT": 3, "ABRT": 6, "KILL": 9, "USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15,
	"CHLD": 17, "CONT": 18, "STOP": 19, "TSTP": 20, "TTIN": 21, "TTOU": 22, "URG": 23, "WINCH": 28,
}

// signal reads a signal's name or number; 0 if none is given.
func (p *parameters) signal(name string) int {
	if !p.values.Has(name) {
		return 0
	}
	word := p.values.Get(name)
	if n, ok := signals[strings.TrimPrefix(strings.ToUpper(word), "SIG")]; ok {
		return n
	}
	n, err := strconv.Atoi(word)
	if err != nil || n < 1 || n > 64 {
		p.fail(name, "a signal, as TERM or 15")
	}
	return n
}

// ref parses the name of a job: 17, or 17_3 for a task of an array, 17_[3-5,8] for several.
func ref(text string) (head.Ref, error) {
	number, task, isTask := strings.Cut(text, "_")
	r := head.Ref{Task: -1}
	var err, taskErr error
	r.Job, err = strconv.ParseUint(number, 10, 64)
	if list, several := strings.CutPrefix(task, "["); several && strings.HasSuffix(list, "]") {
		r.Tasks = strings.TrimSuffix(list, "]")
		_, taskErr = slurmopt.ParseTasks(r.Tasks)
	} else if isTask {
		var n uint64
		n, taskErr = strconv.ParseUint(task, 10, 32)
		r.Task = int64(n)
	}
	if err != nil || taskErr != nil || r.Job == 0 || strconv.FormatUint(r.Job, 10) != number {
		return r, refuse(http.StatusBadRequest, "%.40q is no job: write 17, or 17_3 for a task of an array", text)
	}
	return r, nil
}
