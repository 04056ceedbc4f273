package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"muster/slurm"
)

// maxAnswer is far more than the largest Slurm answers.
const maxAnswer = 1 << 30

// tokenKeeper caches the token until it is refused.
type tokenKeeper struct {
	mu    sync.Mutex
	token string
}

func (k *tokenKeeper) get(ctx context.Context, ask func(context.Context) (string, error)) (string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.token != "" || ask == nil {
		return k.token, nil
	}
	t, err := ask(ctx)
	if err != nil {
		return "", fmt.Errorf("getting a token for slurmrestd: %w", err)
	}
	k.token = strings.TrimSpace(t)
	return k.token, nil
}

// drop forgets a token that was refused, unless another goroutine has replaced it already.
func (k *tokenKeeper) drop(token string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.token == token {
		k.token = ""
	}
}

// notice is an error or a warning in an answer.
type notice struct {
	Description string `json:"description"`
	Number      int    `json:"error_number"`
	Error       string `json:"error"`
	Source      string `json:"source"`
}

func (n notice) String() string {
	text := n.Description
	if text == "" {
		text = n.Error
	}
	if n.Number != 0 {
		text += fmt.Sprintf(" (%d)", n.Number)
	}
	return text
}

// notices are the errors and warnings that any answer may have.
type notices struct {
	Errors   []notice `json:"errors"`
	Warnings []notice `json:"warnings"`
}

// unchanged says whether a listing was omitted because nothing has changed.
func (n *notices) unchanged() bool {
	return len(n.Errors) == 0 && len(n.Warnings) == 1 && strings.HasPrefix(n.Warnings[0].Description, "No ") && strings.Contains(n.Warnings[0].Description, "changes since")
}

// none says whether a listing is empty because there is nothing to list.
func (n *notices) none() bool {
	return len(n.Errors) == 0 && len(n.Warnings) == 1 && strings.HasPrefix(n.Warnings[0].Description, "Zero ")
}

// fault is what is wrong with an answer; a warning counts as an error.
func (n *notices) fault() error {
	if len(n.Errors) > 0 {
		return errors.New(n.Errors[0].String())
	}
	if len(n.Warnings) > 0 {
		return fmt.Errorf("slurmrestd warns, which counts as a refusal: %s", n.Warnings[0])
	}
	return nil
}

// ask sends one request and returns the answer. body is nil for a GET. If the token is refused, it
// tries once more with a new one.
func (e *Engine) ask(ctx context.Context, path string, body any) ([]byte, error) {
	for try := 0; ; try++ {
		token, err := e.token.get(ctx, e.o.Token)
		if err != nil {
			return nil, err
		}
		answer, status, err := e.send(ctx, path, token, body)
		if err != nil {
			return nil, err
		}
		if status == http.StatusUnauthorized && try == 0 {
			e.token.drop(token)
			continue
		}
		if status == http.StatusUnauthorized {
			return nil, errors.New("slurmrestd refuses the token: is it for " + e.o.User + ", and is the key the one of slurm.conf?")
		}
		return answer, nil
	}
}

func (e *Engine) send(ctx context.Context, path, token string, body any) ([]byte, int, error) {
	method, content := http.MethodGet, io.Reader(nil)
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, 0, err
		}
		method, content = http.MethodPost, bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(e.o.Address, "/")+"/slurm/"+e.release.API+path, content)
	if err != nil {
		return nil, 0, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("X-SLURM-USER-NAME", e.o.User)
	r.Header.Set("X-SLURM-USER-TOKEN", token)
	answer, err := e.http.Do(r)
	if err != nil {
		return nil, 0, broken(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, 0, broken(err)
	}
	return text, answer.StatusCode, nil
}

// broken classifies a failed connection: the outcome is unknown, unless no connection was made.
func broken(err error) error {
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" && errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("slurmrestd does not answer: %w", err)
	}
	return fmt.Errorf("slurmrestd: %w: %v", ErrUnknown, err)
}

// controllerAway are the error numbers with which slurmrestd reports that slurmctld did not answer:
// it is not known whether the request reached slurmctld.
var controllerAway = map[int]bool{1001: true, 1002: true, 1003: true, 1004: true, 1005: true, 1007: true, 1900: true, 2010: true, 5003: true, 5004: true, 5005: true}

// update changes fields of a job.
func (e *Engine) update(ctx context.Context, job slurm.Ref, document map[string]any) error {
	text, err := e.ask(ctx, "/job/"+strconv.FormatUint(job.ID, 10), document)
	if err != nil {
		return fmt.Errorf("changing job %s: %w", job, err)
	}
	var n notices
	if err := json.Unmarshal(text, &n); err != nil {
		return fmt.Errorf("changing job %s: %w: the answer is no document: %v", job, ErrUnknown, err)
	}
	if err := n.fault(); err != nil {
		if len(n.Errors) == 0 || controllerAway[n.Errors[0].Number] {
			// After a warning, the rest was done: a listing will show what.
			return fmt.Errorf("changing job %s: %w: %w", job, ErrUnknown, err)
		}
		return fmt.Errorf("changing job %s: %w", job, err)
	}
	return nil
}

// MakeToken makes a token for a user with scontrol, valid for a day; command is as in Options.
func MakeToken(ctx context.Context, command func(context.Context, string, ...string) *exec.Cmd, user string) (string, error) {
	if command == nil {
		command = exec.CommandContext
	}
	out, err := command(ctx, "scontrol", "token", "username="+user, "lifespan=86400").Output()
	if err != nil {
		return "", fmt.Errorf("scontrol token: %w: is AuthAltTypes=auth/jwt in slurm.conf, and may this user make tokens?", err)
	}
	_, token, ok := strings.Cut(strings.TrimSpace(string(out)), "SLURM_JWT=")
	if !ok {
		return "", errors.New("scontrol token printed no token")
	}
	return token, nil
}
