package sessions

import (
	"fmt"
	"maps"
	"sync"
	"time"
)

// What somebody may do that costs those who listen: rateBurst times at once, and then every rateEvery. Agents that
// mean well pause longer between two attempts.
const (
	rateBurst = 20
	rateEvery = 3 * time.Second
	rateMost  = 4096 // of whom something is remembered
)

// Rate says how often somebody has done something lately. The zero value has seen nobody.
type Rate struct {
	mu sync.Mutex
	of map[string]time.Duration // when all that somebody has done is paid for, at one per rateEvery
}

// Wait is how long somebody has to wait before he does it, if that is no longer than most. Whoever would have to wait
// longer may not, and nothing is noted.
func (r *Rate) Wait(now, most time.Duration, who string) (wait time.Duration, may bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	paid, known := r.of[who]
	if !known && len(r.of) >= rateMost {
		maps.DeleteFunc(r.of, func(_ string, paid time.Duration) bool { return paid <= now })
		if len(r.of) >= rateMost {
			who = "" // all others, together
			paid = r.of[who]
		}
	}
	paid = max(paid, now)
	if wait = max(0, paid-now-(rateBurst-1)*rateEvery); wait > most {
		return wait, false
	}
	if r.of == nil {
		r.of = map[string]time.Duration{}
	}
	r.of[who] = paid + rateEvery
	return wait, true
}

// May says whether somebody may do it now.
func (r *Rate) May(now time.Duration, who string) bool {
	_, may := r.Wait(now, 0, who)
	return may
}

// mostPaced is how long an agent that greets too often waits for its session.
const mostPaced = 2 * rateEvery

// pace has an agent wait that greets again and again: each greeting costs its leader lines of the log and records.
func (v *Server) pace(node string) error {
	wait, may := v.greetings.Wait(v.Now(), mostPaced, node)
	if !may {
		return fmt.Errorf("it greets again and again, which it may %d times at once and then every %v: find out why its connections end", rateBurst, rateEvery)
	}
	if wait == 0 {
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-v.isClosed():
		return fmt.Errorf("the %s is ending", v.Leader)
	}
}

// isClosed is closed when the server is.
func (v *Server) isClosed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.closing()
}

// closing is isClosed for whoever holds mu.
func (v *Server) closing() chan struct{} {
	if v.end == nil {
		v.end = make(chan struct{})
	}
	return v.end
}
