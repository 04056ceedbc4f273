package dial

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// LeaderHeader is in the answer of a head that does not lead: who does, as far as it knows.
const LeaderHeader = "Muster-Leader"

// Elsewhere says that a head does not lead.
type Elsewhere struct {
	Leader string // "" if it does not know one
	Reason string
}

func (e *Elsewhere) Error() string { return e.Reason }

// Led remembers which of several heads led last.
type Led struct {
	mu   sync.Mutex
	head string
}

func (l *Led) is() string {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head
}

func (l *Led) note(head string) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head = head
}

const (
	// listTime is how long one of several heads may take to accept a connection.
	listTime = 3 * time.Second
	// leaderTime is how long a request waits while the heads choose who leads, and leaderPause how long it waits
	// between two looks.
	leaderTime  = 20 * time.Second
	leaderPause = 200 * time.Millisecond
)

// isList says whether a name is that of several heads.
func isList(name string) bool { return strings.Contains(name, ",") }

// addresses splits the names of several heads.
func addresses(name string) (all []string, err error) {
	for one := range strings.SplitSeq(name, ",") {
		network, address, err := Address(strings.TrimSpace(one))
		switch {
		case err != nil:
			return nil, err
		case network != "tcp":
			return nil, fmt.Errorf("%q: several heads are reached over TLS: write HOST,HOST,HOST", name)
		}
		all = append(all, address)
	}
	return all, nil
}

// notDialled is an error before anything was sent.
type notDialled struct{ error }

func (e notDialled) Unwrap() error { return e.error }

// mostHeads is how many heads one request is sent to.
const mostHeads = 16

// find tries one head after the other until one leads. What was said to one that does not lead has changed
// nothing; after any other error but one of dialling, no other head is tried.
func find(ctx context.Context, c Config, try func(one Config) error) error {
	heads, err := addresses(c.Head)
	if err != nil {
		return err
	}
	if led := c.Led.is(); led != "" {
		heads = append([]string{led}, heads...)
	}
	var last error
	tried := map[string]bool{}
	for len(heads) > 0 && ctx.Err() == nil {
		head := heads[0]
		heads = heads[1:]
		if tried[head] || len(tried) >= mostHeads { // a head that lies could name others for ever
			continue
		}
		tried[head] = true
		err := try(Config{Head: head, TLS: c.TLS, within: listTime})
		var other *Elsewhere
		var dialled notDialled
		switch {
		case err == nil:
			c.Led.note(head)
			return nil
		case errors.As(err, &other):
			if last = err; other.Leader != "" {
				heads = slices.Insert(heads, 0, other.Leader)
			}
		case errors.As(err, &dialled):
			if !errors.As(last, &other) {
				last = err
			}
		default:
			c.Led.note("")
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.Led.note("")
	return last
}

// finder sends requests to the head that leads.
type finder struct {
	Config
	http *http.Transport
}

func (f *finder) CloseIdleConnections() { f.http.CloseIdleConnections() }

func (f *finder) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	if r.Body != nil {
		defer r.Body.Close()
	}
	for began, tries := time.Now(), 0; ; {
		err := find(r.Context(), f.Config, func(one Config) (err error) {
			sent := r.Clone(r.Context())
			sent.URL.Host, sent.Host = one.Head, ""
			switch tries++; {
			case r.GetBody != nil:
				if sent.Body, err = r.GetBody(); err != nil {
					return err
				}
			case tries > 1 && r.Body != nil && r.Body != http.NoBody:
				return errors.New("it does not lead, and what was to be sent cannot be sent again")
			}
			said, err := f.send(sent, one.Head)
			if err != nil {
				return err
			}
			if err := elsewhere(said); err != nil {
				said.Body.Close()
				return err
			}
			answer = said
			return nil
		})
		var other *Elsewhere
		if !errors.As(err, &other) || time.Since(began) > leaderTime {
			return answer, err
		}
		select {
		case <-time.After(leaderPause):
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

// errMoved says that another head leads than the one that was asked, and does not answer.
var errMoved = fmt.Errorf("another head leads now: %w", io.ErrUnexpectedEOF)

// send sends a request to one of several heads. If its machine has died, or is busy for long, the others know
// sooner that it leads no longer than its silence would tell.
func (f *finder) send(r *http.Request, head string) (*http.Response, error) {
	if !isList(f.Head) {
		return f.http.RoundTrip(r)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	answered := make(chan struct{})
	go func() {
		for {
			select {
			case <-time.After(listTime / 2):
				if f.movedFrom(ctx, head) {
					cancel(errMoved)
					return
				}
			case <-answered:
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	answer, err := f.http.RoundTrip(r.WithContext(ctx))
	close(answered)
	if err != nil {
		defer cancel(nil)
		if context.Cause(ctx) == errMoved && r.Method == http.MethodGet {
			return nil, notDialled{errMoved} // the next one may be asked the same
		}
		if context.Cause(ctx) == errMoved {
			return nil, errMoved
		}
		return nil, err
	}
	if answer.StatusCode != http.StatusSwitchingProtocols {
		answer.Body = &ending{answer.Body, cancel}
	}
	return answer, nil
}

// ending ends the context of a request when its answer was read.
type ending struct {
	io.ReadCloser
	end context.CancelCauseFunc
}

func (e *ending) Close() error {
	defer e.end(nil)
	return e.ReadCloser.Close()
}

// movedFrom asks the other heads whether one of them leads now.
func (f *finder) movedFrom(ctx context.Context, head string) bool {
	all, _ := addresses(f.Head)
	for _, other := range all {
		if other == head {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, listTime)
		r, err := http.NewRequestWithContext(asking, http.MethodGet, "https://"+other+"/v1/cluster", nil)
		var said *http.Response
		if err == nil {
			said, err = f.http.RoundTrip(r)
		}
		if err == nil {
			leader, leads := said.Header.Get(LeaderHeader), said.StatusCode == http.StatusOK
			said.Body.Close()
			cancel()
			return leads || leader != "" && leader != head
		}
		cancel()
	}
	return false
}

// elsewhere is an *Elsewhere if an answer is that of a head which does not lead.
func elsewhere(answer *http.Response) error {
	if answer.StatusCode != http.StatusMisdirectedRequest || answer.Header[LeaderHeader] == nil {
		return nil
	}
	leader := answer.Header.Get(LeaderHeader)
	if network, _, err := Address(leader); err != nil || network != "tcp" || isList(leader) {
		leader = ""
	}
	return &Elsewhere{leader, refusal(answer).Error()}
}

// Ask sends a document to a head, if there is one, and decodes the answer, unless it is nil.
func Ask(ctx context.Context, c Config, method, path string, question, answer any) error {
	h, base, err := Client(c)
	if err != nil {
		return err
	}
	defer h.CloseIdleConnections()
	var body io.Reader
	if question != nil {
		text, err := json.Marshal(question)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, base+path, body)
	if err != nil {
		return err
	}
	said, err := h.Do(r)
	if err != nil {
		return err
	}
	defer said.Body.Close()
	if said.StatusCode != http.StatusOK {
		return refusal(said)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(io.LimitReader(said.Body, maxRefusal)).Decode(answer)
}

// dialAny opens a connection with one of several heads.
func dialAny(ctx context.Context, c Config) (conn net.Conn, err error) {
	err = find(ctx, c, func(one Config) error {
		conn, err = Dial(ctx, one)
		return err
	})
	return conn, err
}
