package daemon

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"muster/head"
	"muster/wire/api"
	"muster/wire/dial"
	"muster/wire/identity"
	"muster/wire/status"
)

// route is one kind of request. The table of routes is what the head answers, and what its OpenAPI
// document describes.
type route struct {
	method, path string
	summary      string
	query        []parameter
	// body and answer are values of the documents' types; nil for none.
	body, answer any
	also         any // an alternative type of the answer, or of the body
	upgrade      string
	forAgents    bool
	forHeads     bool
	// anyHead says that a head answers that does not lead, too.
	anyHead bool
	long    bool // the answer may be long: see lists
	// notForPages refuses to browsers what could run something in a job or reveal secrets.
	notForPages bool
	// serve returns the document of the answer. A handler that answers by itself returns
	// errAnswered, or another error as long as it has sent nothing.
	serve func(*request) (any, error)
}

// parameter is a parameter of a query.
type parameter struct {
	name string
	kind string // a type of JSON schema, or list: a string that may occur several times
	help string
}

// request is a request that is being served.
type request struct {
	*daemon
	w     http.ResponseWriter
	r     *http.Request
	who   *caller
	query *parameters
}

var jobFilters = []parameter{
	{"user", "string", "jobs of this user"}, {"state", "string", "jobs in these states, as PENDING,RUNNING"}, {"node", "string", "jobs that have something of this node"},
	{"name", "string", "jobs of this name"}, {"account", "string", "jobs of this account"},
	{"job", "string", "these jobs, as 17,18_3, at most 100, with what the policy says of each"},
}

// routes lists all requests.
func routes() []route {
	change := func(path, summary string, action head.Action, body any) route {
		return route{method: "POST", path: "/v1/jobs/{id}/" + path, summary: summary, body: body, answer: api.Changed{}, serve: changer(action)}
	}
	all := []route{
		{method: "GET", path: "/v1/cluster", summary: "What cluster this is, and who asks.", answer: api.Cluster{}, serve: serveCluster},
		{method: "POST", path: "/v1/jobs", summary: "Submit a job, or a list of them.", body: api.Submission{}, answer: api.Submitted{}, also: []api.Submission{}, serve: serveSubmit},
		{method: "GET", path: "/v1/jobs", long: true, summary: "Jobs that have not ended, and those of the last minutes.", query: jobFilters, answer: api.Jobs{}, serve: serveJobs},
		{method: "GET", path: "/v1/jobs/{id}", long: true, summary: "One job; of an array, its tasks.", answer: api.Job{}, also: api.Jobs{}, serve: serveJob},
		{method: "DELETE", path: "/v1/jobs/{id}", summary: "Cancel a job, or send it a signal.", query: []parameter{{"signal", "string", "only send this signal, as TERM or 15"}}, answer: api.Changed{}, serve: serveCancel},
		change("hold", "Keep a waiting job from being started.", head.Hold, nil),
		change("release", "Let a job that is held be started.", head.Release, nil),
		change("suspend", "Stop a running job's processes where they are.", head.SuspendJob, nil),
		change("resume", "Let a suspended job go on.", head.ResumeJob, nil),
		change("move", "Have a job go on elsewhere, with what it has done so far.", head.MoveJob, nil),
		change("requeue", "End a running job's processes, and let it wait again.", head.RequeueJob, nil),
		change("priority", "Change a waiting job's priority or nice value.", head.Prioritise, api.Priority{}),
		change("limit", "Change how many of its devices a running job may use at a time.", head.LimitDevices, api.Limit{}),
		{method: "POST", path: "/v1/jobs/{id}/keep", summary: "Say that the command is there to which an allocation belongs.", notForPages: true, answer: api.Kept{}, serve: serveKeep},
		{method: "POST", path: "/v1/jobs/{id}/finish", summary: "End an allocation with the exit status of its command.", notForPages: true, body: api.Finished{}, answer: api.Changed{}, serve: serveFinish},
		{method: "GET", path: "/v1/jobs/{id}/output", summary: "What a job has written, as it is.", query: []parameter{
			{"stream", "string", "output or error"}, {"part", "integer", "the place of the node in the job's list"}, {"offset", "integer", "begin at this byte"}, {"follow", "boolean", "go on until the job has ended"},
		}, serve: serveOutput},
		{method: "POST", path: "/v1/jobs/{id}/exec", summary: "Run a command among a job's processes.", upgrade: dial.ProtocolStream, notForPages: true, query: []parameter{
			{"node", "string", "one of the job's nodes; its first if not given"}, {"arg", "list", "the command and its arguments"}, {"dir", "string", "where to run it"}, {"env", "list", "variables, as NAME=VALUE"},
			{"terminal", "string", "on a terminal with so many rows and columns, as 24x80"},
		}, serve: serveExec},
		{method: "GET", path: "/v1/nodes", long: true, summary: "All nodes, by name.", answer: api.Nodes{}, serve: serveNodes},
		{method: "GET", path: "/v1/nodes/{name}", long: true, summary: "One node.", answer: api.Node{}, serve: serveNode},
		{method: "GET", path: "/v1/nodes/{name}/status", summary: "What a node says of itself: its devices, and the programs that use them.", answer: status.Node{}, serve: serveNodeStatus},
		{method: "POST", path: "/v1/nodes/{name}/drain", summary: "Take a node out of use; what runs there goes on (administrators).", body: api.Drain{}, answer: api.Changed{}, serve: nodeChanger(head.DrainNode)},
		{method: "POST", path: "/v1/nodes/{name}/resume", summary: "Take a node into use again (administrators).", answer: api.Changed{}, serve: nodeChanger(head.ResumeNode)},
		{method: "POST", path: "/v1/nodes/{name}/remove", summary: "Forget a node (administrators).", body: api.RemoveNode{}, answer: api.Changed{}, serve: nodeChanger(head.RemoveNode)},
		{method: "POST", path: "/v1/nodes/{name}/rename", summary: "Give a node that is away another name (administrators).", body: api.RenameNode{}, answer: api.Changed{}, serve: nodeChanger(head.RenameNode)},
		{method: "POST", path: "/v1/nodes/{name}/label", summary: "Set labels of a node, or take them away (administrators).", body: api.LabelNode{}, answer: api.Changed{}, serve: nodeChanger(head.LabelNode)},
		{method: "GET", path: "/v1/partitions", summary: "The partitions, in the order of the configuration.", answer: api.Partitions{}, serve: servePartitions},
		{method: "GET", path: "/v1/history", long: true, summary: "Jobs that have ended, the oldest first, page by page.", query: []parameter{
			{"since", "number", "ended at this instant or later"}, {"until", "number", "ended before this instant"}, {"user", "string", "jobs of this user"}, {"after", "integer", "go on behind this job"}, {"limit", "integer", "at most so many"},
		}, answer: api.Jobs{}, serve: serveHistory},
		{method: "GET", path: "/v1/usage", long: true, summary: "What users and accounts used.", answer: api.Usage{}, serve: serveUsage},
		{method: "GET", path: "/v1/priorities", long: true, summary: "Why the queue stands as it does.", answer: api.Priorities{}, serve: servePriorities},
		{method: "GET", path: "/v1/whatif", long: true, summary: "What other policies would have made of the last day and week, simulated.", answer: api.WhatIf{}, serve: serveWhatIf},
		{method: "POST", path: "/v1/whatif", summary: "Simulate that now (administrators).", body: api.WhatIfWanted{}, answer: api.WhatIf{}, serve: serveWhatIfNow},
		{method: "GET", path: "/v1/events", summary: "Changes as they happen, as server-sent events.", answer: api.Change{}, serve: serveEvents},
		{method: "GET", path: "/v1/openapi.json", summary: "This document.", serve: serveOpenAPI},
		{method: "POST", path: "/v1/reload", summary: "Have the head read its configuration again (administrators).", answer: api.Reloaded{}, notForPages: true, serve: serveReload},
		{method: "GET", path: "/v1/backup", summary: "A copy of what the head has on disk (administrators).", notForPages: true, serve: serveBackup},
		{method: "GET", path: "/v1/snapshot", summary: "What the policy knows now, and decides on it, for muster sim replay (administrators).", notForPages: true, serve: serveSnapshot},
		{method: "GET", path: "/v1/heads", anyHead: true, summary: "The heads, which of them leads, and how far each one is.", answer: api.Heads{}, serve: serveHeads},
		{method: "DELETE", path: "/v1/heads/{address}", summary: "Go on without a head (administrators).", answer: api.Changed{}, serve: serveRemoveHead},
		{method: "POST", path: "/v1/heads", forHeads: true, summary: "Take another head in.", body: api.JoinHeads{}, answer: api.Changed{}, serve: serveJoin},
		{method: "GET", path: "/v1/heads/self", forHeads: true, anyHead: true, summary: "One head, as the others ask it.", answer: api.Head{}, serve: serveOneHead},
		{method: "POST", path: "/v1/page", summary: "A one-time address of the page, good for a minute.", notForPages: true, answer: api.Page{}, serve: servePage},
		{method: "GET", path: "/v1/agent", summary: "The conversation with an agent.", upgrade: dial.ProtocolAgent, forAgents: true, serve: serveAgent},
		{method: "GET", path: "/v1/agent/streams/{stream}", summary: "A connection that the head asked an agent for.", upgrade: dial.ProtocolStream, forAgents: true, serve: serveStream},
	}
	return all
}

// handler serves the table of routes.
func (d *daemon) handler() http.Handler {
	mux := http.NewServeMux()
	byPath := map[string]map[string]*route{}
	for _, r := range routes() {
		if byPath[r.path] == nil {
			methods := map[string]*route{}
			byPath[r.path] = methods
			mux.HandleFunc(r.path, func(w http.ResponseWriter, q *http.Request) { d.dispatch(w, q, methods) })
		}
		byPath[r.path][r.method] = &r
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		sendError(w, refuse(http.StatusNotFound, "there is nothing at %.80s: GET /v1/openapi.json lists what there is", r.URL.Path))
	})
	protection := http.NewCrossOriginProtection()
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sendError(w, refuse(http.StatusForbidden, "a page of another site cannot ask the head for changes"))
	}))
	checked := protection.Handler(mux)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		d.allow(w) // the deadline of an earlier request on this connection may have passed
		checked.ServeHTTP(w, r)
	})
}

// dispatch serves a request by its method.
func (d *daemon) dispatch(w http.ResponseWriter, r *http.Request, methods map[string]*route) {
	d.metrics.requests.Add(1)
	who, _ := r.Context().Value(callerKey{}).(*caller)
	// A client that sends a body must do so in time. Without a body there must be no deadline:
	// nothing is read, and it would end answers that take long.
	if r.ContentLength != 0 {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(d.cfg.Connections.Request))
	}
	done := func() {}
	defer func() { done() }()
	answer, err := d.admit(w, r, who, methods, &done)
	if err == errAnswered {
		return
	}
	if err != nil && d.another() {
		// Whether it was carried out is not known, as if this head had been killed. Whoever asks looks for the
		// head that leads.
		panic(http.ErrAbortHandler)
	}
	d.allow(w)
	if err != nil {
		d.metrics.refusedRequests.Add(1)
		sendError(w, err)
		return
	}
	sendJSON(w, http.StatusOK, answer)
}

// allow sets the deadline by which the client must have taken what is written next.
func (d *daemon) allow(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(d.cfg.Connections.Request))
}

// errAnswered is returned by handlers that have answered by themselves.
var errAnswered = errors.New("answered")

// admit checks whether the caller may make the request, and serves it. It sets done to what must be
// called after the answer was sent.
func (d *daemon) admit(w http.ResponseWriter, r *http.Request, who *caller, methods map[string]*route, done *func()) (any, error) {
	route := methods[r.Method]
	switch {
	case who == nil:
		return nil, errors.New("it is not known who asks")
	case who.wrong != nil:
		return nil, refuse(http.StatusForbidden, "%v", who.wrong)
	}
	if revoked := d.revoked(who.vouched); revoked != nil {
		w.Header().Set("Connection", "close")
		return nil, refuse(http.StatusForbidden, "%v", revoked)
	}
	switch {
	case route == nil:
		allowed := allowed(methods)
		w.Header().Set("Allow", allowed)
		return nil, refuse(http.StatusMethodNotAllowed, "%.20s cannot be done there: use %s", r.Method, allowed)
	case who.head != nil && !route.forHeads && !route.anyHead:
		_, wrong := identity.UserOf(who.head)
		return nil, refuse(http.StatusForbidden, "%v", wrong)
	case route.forHeads && who.head == nil:
		return nil, refuse(http.StatusForbidden, "this is for heads: the certificate of a head is needed")
	case route.forAgents && who.node == nil && !who.root:
		return nil, refuse(http.StatusForbidden, "this is for nodes: a node's certificate is needed, or root at the head's socket")
	case route.notForPages && who.page:
		return nil, refuse(http.StatusForbidden, "this cannot be done from a page: use the command line")
	case !route.forAgents && who.node != nil:
		return nil, refuse(http.StatusForbidden, "this is for users, and the certificate is that of a node")
	}
	if d.follows() && !route.anyHead {
		return nil, d.peers.elsewhere(w, who)
	}
	select {
	case <-d.dead:
		return nil, refuse(http.StatusServiceUnavailable, "%v", d.reason)
	default:
	}
	names := make([]string, len(route.query))
	for i, p := range route.query {
		names[i] = p.name
		if p.kind == "list" {
			names[i] += "*"
		}
	}
	asked, err := query(r.URL.RawQuery, names...)
	if err != nil {
		return nil, err
	}
	if route.body == nil && (r.ContentLength > 0 || len(r.TransferEncoding) > 0) {
		return nil, refuse(http.StatusBadRequest, "nothing is expected in the body")
	}
	if route.long {
		leave, err := d.lists.enter(r.Context(), who.user, d.ending)
		if err != nil {
			return nil, err
		}
		*done = leave
	}
	return route.serve(&request{daemon: d, w: w, r: r, who: who, query: asked})
}

func allowed(methods map[string]*route) string {
	var names []string
	for _, m := range []string{"GET", "POST", "DELETE"} {
		if methods[m] != nil {
			names = append(names, m)
		}
	}
	return strings.Join(names, ", ")
}

// sendJSON answers with a document.
func sendJSON(w http.ResponseWriter, status int, document any) {
	text, err := json.Marshal(document)
	if err != nil {
		sendError(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n'))
}

// sendError answers with an error and its status.
func sendError(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var refused *head.Refusal
	switch {
	case errors.As(err, &refused):
		status = refused.Status
	case errors.Is(err, errBusy), errors.Is(err, errEnding):
		status = http.StatusServiceUnavailable
		w.Header().Set("Retry-After", "1")
	case errors.Is(err, errNotKnown):
		status = http.StatusGatewayTimeout
	}
	sendJSON(w, status, api.Error{Error: err.Error()})
}
