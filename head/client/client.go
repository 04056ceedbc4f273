package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"muster/wire/api"
	"muster/wire/client"
	"muster/wire/dial"
	"muster/wire/identity"
	"muster/wire/status"
)

// Head is a head to which requests can be sent. Its many methods are the requests.
type Head struct {
	http *http.Client
	base string
	// where is the head's address, for error messages.
	where string
	local bool
}

// patience is how long a head may take to answer. Following an output and running a command may
// take longer.
const patience = time.Minute

// maxAnswer is how many bytes of an answer are read.
const maxAnswer = 4 << 30

// Open makes a client of the head at an address: HOST, HOST:PORT, unix:ADDRESS, or "" for the
// socket of this machine's head. It does not connect yet. tlsDir is the folder with the user's
// certificate, for heads on other machines.
func Open(address, tlsDir string) (*Head, error) {
	if address == "" {
		address = "unix:" + dial.DefaultSocket
	}
	network, where, err := dial.Address(address)
	if err != nil {
		return nil, err
	}
	config := dial.Config{Head: address}
	if network != "unix" {
		if config.TLS, err = certificate(where, tlsDir); err != nil {
			return nil, err
		}
	}
	h := &Head{where: where, local: network == "unix"}
	if h.http, h.base, err = dial.Client(config); err != nil {
		return nil, err
	}
	// A head sends no redirections.
	h.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return h, nil
}

// certificate loads a user's certificate from its folder.
func certificate(where, tlsDir string) (*tls.Config, error) {
	if tlsDir == "" {
		return nil, fmt.Errorf("the head at %s is asked over TLS: give --tls-dir or MUSTER_TLS_DIR, the folder that muster cert made for you", where)
	}
	config, err := client.LoadTLS(tlsDir)
	if err != nil {
		return nil, err
	}
	if len(config.Certificates) == 0 {
		return nil, fmt.Errorf("there is no certificate in %s: give the folder that muster cert made for you (user-NAME)", tlsDir)
	}
	return config, nil
}

// Refused is a head's refusal of a request.
type Refused struct {
	Status int // an HTTP status
	Reason string
}

func (r *Refused) Error() string { return r.Reason }

// ErrUnreachable says that no head answered. The head may have carried the request out all the
// same.
var ErrUnreachable = errors.New("the head cannot be reached")

type unreachable struct{ error }

func (u unreachable) Is(target error) bool { return target == ErrUnreachable }
func (u unreachable) Unwrap() error        { return u.error }

// get requests a document.
func (h *Head) get(ctx context.Context, path string, query url.Values, answer any) error {
	return h.ask(ctx, http.MethodGet, path, query, nil, answer)
}

// ask sends a document, if there is one, and decodes the answer.
func (h *Head) ask(ctx context.Context, method, path string, query url.Values, question, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var body io.Reader
	if question != nil {
		text, err := json.Marshal(question)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	response, err := h.send(ctx, method, path, query, body, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if answer == nil {
		return nil
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(answer); err != nil {
		return unreachable{fmt.Errorf("the head at %s does not answer as a head does: %w", h.where, err)}
	}
	return nil
}

// send sends a request, and returns the answer if it is a success; all others become errors.
func (h *Head) send(ctx context.Context, method, path string, query url.Values, body io.Reader, upgrade http.Header) (*http.Response, error) {
	target := h.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	maps.Copy(request.Header, upgrade)
	response, err := h.http.Do(request)
	if err != nil {
		return nil, h.notReached(ctx, err)
	}
	if response.StatusCode < 300 && (upgrade == nil || response.StatusCode == http.StatusSwitchingProtocols) {
		return response, nil
	}
	defer response.Body.Close()
	return nil, h.refusal(response)
}

func (h *Head) refusal(response *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	var said api.Error
	if err := json.Unmarshal(text, &said); err != nil || said.Error == "" {
		return unreachable{fmt.Errorf("the head at %s answers %s and no reason: is that a head?", h.where, response.Status)}
	}
	return &Refused{Status: response.StatusCode, Reason: said.Error}
}

// notReached says why a head cannot be reached, and what the user can do.
func (h *Head) notReached(ctx context.Context, err error) error {
	var failed *url.Error
	if errors.As(err, &failed) {
		err = failed.Err
	}
	var refused *identity.Refusal
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case h.local && (errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT)):
		err = fmt.Errorf("no head answers at %s on this machine: say where it is with --head HOST or MUSTER_HEAD, or start one with muster head", h.where)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("the head at %s has not answered for %v: try again", h.where, patience)
	case errors.As(identity.Refused(err), &refused):
		err = fmt.Errorf("the head at %s: %w", h.where, identity.Refused(err))
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("the head at %s went away before it answered (%w): it may have done what it was asked for: look, or ask again, when it is back", h.where, err)
	default:
		err = fmt.Errorf("the head at %s cannot be reached: %w", h.where, err)
	}
	return unreachable{err}
}

// Cluster asks for the description of the cluster.
func (h *Head) Cluster(ctx context.Context) (*api.Cluster, error) {
	var c api.Cluster
	return &c, h.get(ctx, "/v1/cluster", nil, &c)
}

// submitTries is how often a submission is sent while the head does not answer. Its key makes that
// harmless.
const submitTries = 3

// Submit submits a job. If the submission has a key, it is repeated while the head does not answer.
func (h *Head) Submit(ctx context.Context, s *api.Submission) (*api.Submitted, error) {
	var err error
	for try := range submitTries {
		var answer api.Submitted
		err = h.ask(ctx, http.MethodPost, "/v1/jobs", nil, s, &answer)
		switch {
		case err == nil && answer.Error != "":
			return nil, &Refused{Status: http.StatusBadRequest, Reason: answer.Error}
		case err == nil:
			return &answer, nil
		case s.Key == "" || !errors.Is(err, ErrUnreachable) || try == submitTries-1:
			return nil, err
		}
		select {
		case <-time.After(100 * time.Millisecond << (2 * try)):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return nil, err
}

// Query says which jobs are wanted; an empty field admits all.
type Query struct {
	User, Node, Name, Account string
	States                    []api.State
}

func (q *Query) values() url.Values {
	v := url.Values{}
	for name, value := range map[string]string{"user": q.User, "node": q.Node, "name": q.Name, "account": q.Account} {
		if value != "" {
			v.Set(name, value)
		}
	}
	if len(q.States) > 0 {
		words := make([]string, len(q.States))
		for i, s := range q.States {
			words[i] = string(s)
		}
		v.Set("state", strings.Join(words, ","))
	}
	return v
}

// Jobs lists the jobs that have not ended, and those that ended in the last minutes.
func (h *Head) Jobs(ctx context.Context, q Query) ([]api.Job, error) {
	return h.pages(ctx, "/v1/jobs", q.values())
}

// pages reads all pages of a list of jobs.
func (h *Head) pages(ctx context.Context, path string, query url.Values) ([]api.Job, error) {
	var jobs []api.Job
	for {
		var page api.Jobs
		if err := h.get(ctx, path, query, &page); err != nil {
			return nil, err
		}
		jobs = append(jobs, page.Jobs...)
		after := strconv.FormatUint(page.Next, 10)
		switch {
		case page.Next == 0:
			return jobs, nil
		case query.Get("after") == after:
			return nil, unreachable{fmt.Errorf("the head at %s does not answer as a head does: its list does not go on after %s", h.where, after)}
		}
		query.Set("after", after)
	}
}

func jobPath(id string, rest ...string) string {
	return "/v1/jobs/" + url.PathEscape(id) + strings.Join(rest, "")
}

// Job asks for a job: 17, or 17_3 for a task of an array. For an array it returns all tasks,
// otherwise one job.
func (h *Head) Job(ctx context.Context, id string) ([]api.Job, error) {
	var text json.RawMessage
	if err := h.get(ctx, jobPath(id), nil, &text); err != nil {
		return nil, err
	}
	var either struct {
		api.Job
		Jobs []api.Job `json:"jobs"`
	}
	err := json.Unmarshal(text, &either)
	switch {
	case err == nil && len(either.Jobs) > 0:
		return either.Jobs, nil
	case err == nil && either.Job.ID != 0:
		return []api.Job{either.Job}, nil
	}
	return nil, unreachable{fmt.Errorf("the head at %s does not answer as a head does: it tells nothing about job %s (%v)", h.where, id, err)}
}

// Cancel ends a job or, if signal is not "", sends it that signal.
func (h *Head) Cancel(ctx context.Context, id, signal string) (*api.Changed, error) {
	query := url.Values{}
	if signal != "" {
		query.Set("signal", signal)
	}
	var c api.Changed
	return &c, h.ask(ctx, http.MethodDelete, jobPath(id), query, nil, &c)
}

// Change applies an action to a job: hold, release, suspend, resume, requeue, or, with a document,
// priority or limit.
func (h *Head) Change(ctx context.Context, id, action string, document any) (*api.Changed, error) {
	var c api.Changed
	return &c, h.ask(ctx, http.MethodPost, jobPath(id, "/", action), nil, document, &c)
}

// Keep says that the command is there to which an allocation belongs, and returns within which time it
// must be said again; 0 if it need not.
func Keep(ctx context.Context, h *Head, id string) (time.Duration, error) {
	var kept api.Kept
	err := h.ask(ctx, http.MethodPost, jobPath(id, "/keep"), nil, nil, &kept)
	return time.Duration(kept.Lapses * float64(time.Second)), err
}

// Output says which output of a job is wanted.
type Output struct {
	Error  bool // standard error instead of standard output
	Part   int
	Offset int64
	Follow bool
}

// Output reads what a job has written. The caller must close the reader.
func (h *Head) Output(ctx context.Context, id string, o Output) (io.ReadCloser, error) {
	stream := "output"
	if o.Error {
		stream = "error"
	}
	query := url.Values{"stream": {stream}}
	if o.Part > 0 {
		query.Set("part", strconv.Itoa(o.Part))
	}
	if o.Offset > 0 {
		query.Set("offset", strconv.FormatInt(o.Offset, 10))
	}
	if o.Follow {
		query.Set("follow", "true")
	}
	response, err := h.send(ctx, http.MethodGet, jobPath(id, "/output"), query, nil, nil)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// AllNodes lists the nodes, and those that the head refuses.
func (h *Head) AllNodes(ctx context.Context) (n api.Nodes, err error) {
	err = h.get(ctx, "/v1/nodes", nil, &n)
	return n, err
}

// Nodes lists the nodes.
func (h *Head) Nodes(ctx context.Context) ([]api.Node, error) {
	n, err := h.AllNodes(ctx)
	return n.Nodes, err
}

// Node asks about one node.
func (h *Head) Node(ctx context.Context, name string) (*api.Node, error) {
	var n api.Node
	return &n, h.get(ctx, "/v1/nodes/"+url.PathEscape(name), nil, &n)
}

// NodeStatus asks for what a node says of itself.
func (h *Head) NodeStatus(ctx context.Context, name string) (*status.Node, error) {
	var document json.RawMessage
	if err := h.get(ctx, "/v1/nodes/"+url.PathEscape(name)+"/status", nil, &document); err != nil {
		return nil, err
	}
	var s status.Node
	if err := json.Unmarshal(document, &s); err != nil {
		return nil, fmt.Errorf("node %s does not answer as a node does: %w", name, err)
	}
	return &s, nil
}

// Reload has the head read its configuration again.
func (h *Head) Reload(ctx context.Context) (done api.Reloaded, err error) {
	return done, h.ask(ctx, http.MethodPost, "/v1/reload", nil, nil, &done)
}

// ChangeNode applies an action to a node: resume, or drain, remove, rename and label with their documents.
func (h *Head) ChangeNode(ctx context.Context, name, action string, document any) error {
	return h.ask(ctx, http.MethodPost, "/v1/nodes/"+url.PathEscape(name)+"/"+action, nil, document, nil)
}

// Period restricts a history; a zero field admits all.
type Period struct {
	Since, Until time.Time
	User         string
}

// historyPage is how many jobs are requested at a time.
const historyPage = 10_000

// History lists jobs that have ended, the oldest first.
func (h *Head) History(ctx context.Context, p Period) ([]api.Job, error) {
	query := url.Values{"limit": {strconv.Itoa(historyPage)}}
	if !p.Since.IsZero() {
		query.Set("since", strconv.FormatInt(p.Since.Unix(), 10))
	}
	if !p.Until.IsZero() {
		query.Set("until", strconv.FormatInt(p.Until.Unix(), 10))
	}
	if p.User != "" {
		query.Set("user", p.User)
	}
	return h.pages(ctx, "/v1/history", query)
}

// WhatIf asks how other policies would have scheduled the jobs of the last day and week.
func (h *Head) WhatIf(ctx context.Context) (*api.WhatIf, error) {
	var w api.WhatIf
	return &w, h.get(ctx, "/v1/whatif", nil, &w)
}

// WhatIfNow makes the head simulate that again.
func (h *Head) WhatIfNow(ctx context.Context, wanted api.WhatIfWanted) (*api.WhatIf, error) {
	var w api.WhatIf
	return &w, h.ask(ctx, http.MethodPost, "/v1/whatif", nil, wanted, &w)
}

// whatIfPause is how often WhatIfDone asks the head how far it is.
const whatIfPause = 500 * time.Millisecond

// WhatIfDone has the head simulate its history now, and waits until it has. Meanwhile it calls progress,
// with numbers from 0 to 1.
func (h *Head) WhatIfDone(ctx context.Context, wanted api.WhatIfWanted, progress func(done float64)) (*api.WhatIf, error) {
	w, err := h.WhatIfNow(ctx, wanted)
	for err == nil {
		running, done := false, 0.0
		for _, p := range w.Periods {
			if wanted.Period == "" || p.Name == wanted.Period {
				running = running || p.Running
				done = max(done, p.Progress)
			}
		}
		if !running {
			return w, nil
		}
		progress(done)
		select {
		case <-time.After(whatIfPause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		w, err = h.WhatIf(ctx)
	}
	return nil, err
}

// Download returns what administrators take from the head: snapshot (what the policy knows now, and decides on that)
// or backup (what is on disk). The caller closes it.
func (h *Head) Download(ctx context.Context, what string) (io.ReadCloser, error) {
	response, err := h.send(ctx, http.MethodGet, "/v1/"+what, nil, nil, nil)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// Partitions asks for the partitions.
func (h *Head) Partitions(ctx context.Context) ([]api.Partition, error) {
	var list api.Partitions
	err := h.get(ctx, "/v1/partitions", nil, &list)
	return list.List, err
}

// Usage asks what users and accounts have used.
func (h *Head) Usage(ctx context.Context) (*api.Usage, error) {
	var u api.Usage
	return &u, h.get(ctx, "/v1/usage", nil, &u)
}

// Page asks for a one-time address of the head's page.
func (h *Head) Page(ctx context.Context) (*api.Page, error) {
	var p api.Page
	return &p, h.ask(ctx, http.MethodPost, "/v1/page", nil, nil, &p)
}

// Heads lists the heads of the cluster.
func (h *Head) Heads(ctx context.Context) (*api.Heads, error) {
	var all api.Heads
	return &all, h.get(ctx, "/v1/heads", nil, &all)
}

// RemoveHead has the heads go on without one of them.
func (h *Head) RemoveHead(ctx context.Context, address string) error {
	return h.ask(ctx, http.MethodDelete, "/v1/heads/"+url.PathEscape(address), nil, nil, nil)
}

// Local says whether the head is on this machine and reached through its socket.
func (h *Head) Local() bool { return h.local }

// Priorities asks for the waiting jobs' priorities and their factors.
func (h *Head) Priorities(ctx context.Context) (*api.Priorities, error) {
	var p api.Priorities
	return &p, h.get(ctx, "/v1/priorities", nil, &p)
}
