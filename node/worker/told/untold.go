package told

import "sync"

// Untold is why a client has failed while the daemon does not know. The loop says control.Failed when
// the device is free, which may take a while; if the worker must end before that, it says the reason first.
type Untold struct {
	mu   sync.Mutex // held while something is said: the process may end as soon as it is unlocked
	why  string
	over bool // it was said with the worker's end
}

// Note keeps the reason.
func (u *Untold) Note(why string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.why = why
}

// Failed calls say, which tells the daemon, unless the daemon knows from the worker's last words.
func (u *Untold) Failed(say func()) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.over {
		u.why = ""
		say()
	}
}

// AtEnd calls say with the reason if the daemon does not know it.
func (u *Untold) AtEnd(say func(why string)) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.why != "" && !u.over {
		u.over = true
		say(u.why)
	}
}
