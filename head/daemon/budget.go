package daemon

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"muster/head"
)

// How many bytes of request bodies may be in memory at a time, in all and of one user.
const (
	maxBodies     = 512 << 20
	maxBodiesEach = 128 << 20
)

// budget limits how many bytes all users together, and each of them, may hold.
type budget struct {
	all, each int64

	mu    sync.Mutex
	taken int64
	users map[string]int64
}

func newBudget(all, each int64) *budget {
	return &budget{all: all, each: each, users: map[string]int64{}}
}

func (b *budget) take(user string, n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.taken+n > b.all || b.users[user]+n > b.each {
		return false
	}
	b.taken += n
	b.users[user] += n
	return true
}

func (b *budget) giveBack(user string, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.taken -= n
	if b.users[user] -= n; b.users[user] == 0 {
		delete(b.users, user)
	}
}

// body reads a request's body, of at most limit bytes. The bytes count against the budget until the
// caller calls free, which it must also do after an error.
func (b *budget) body(w http.ResponseWriter, r *http.Request, user string, limit int64) (text []byte, free func(), err error) {
	taken := int64(0)
	free = func() { b.giveBack(user, taken) }
	tooLarge := refuse(http.StatusRequestEntityTooLarge, "the request has more than %d bytes: send less at once", limit)
	if r.ContentLength > limit {
		return nil, free, tooLarge
	}
	const part = 64 << 10
	for {
		// Two parts are taken at a time; growing the slice may need twice the text.
		if int64(len(text))+part > taken {
			if !b.take(user, 2*part) {
				return nil, free, refuse(http.StatusServiceUnavailable, "too much of what was sent is waiting: send the next request when some are answered")
			}
			taken += 2 * part
		}
		n := len(text)
		if cap(text)-n < part {
			text = append(make([]byte, 0, max(2*cap(text), part)), text...)
		}
		got, err := r.Body.Read(text[n : n+part])
		text = text[:n+got]
		switch {
		case int64(len(text)) > limit:
			return nil, free, tooLarge
		case errors.Is(err, io.EOF):
			_ = http.NewResponseController(w).SetReadDeadline(time.Time{}) // the body arrived in time: the deadline must not hit the answer
			return text, free, nil
		case err != nil:
			return nil, free, refuse(http.StatusRequestTimeout, "the request breaks off after %d bytes: %v", len(text), err)
		}
	}
}

func refuse(status int, format string, args ...any) *head.Refusal {
	return &head.Refusal{Status: status, Reason: fmt.Sprintf(format, args...)}
}
