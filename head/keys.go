package head

import "time"

// A client that repeats a submission with its key gets the first answer again. A key is remembered
// for keepKeys, and at most MaxKeys of a user are: the oldest leave first. A key is short (maxKey), and
// nothing else that is remembered with it has a length, so this bounds the bytes as well.
const (
	keepKeys = time.Hour
	MaxKeys  = 4096
)

// keys are those of submissions that are remembered, by user.
type keys struct {
	out    *outbox
	timers *timers
	of     map[string]*userKeys
}

type userKeys struct {
	keys  map[string]keyed
	order []string // the oldest first
}

// keyed is what a submission that had a key became.
type keyed struct {
	job   uint64
	tasks int
	at    time.Duration
}

func (u *userKeys) find(name string) (k keyed, known bool) {
	if u != nil {
		k, known = u.keys[name]
	}
	return k, known
}

// keep remembers the latest key of a user. The timer is always that of the oldest.
func (ks *keys) keep(owner, name string, k keyed) {
	u := ks.of[owner]
	if u == nil {
		u = &userKeys{keys: map[string]keyed{}}
		ks.of[owner] = u
	}
	u.keys[name] = k
	u.order = append(u.order, name)
	switch {
	case len(u.order) == 1:
		ks.timers.set(timer{at: k.at + keepKeys, what: ringKey, user: owner})
	case len(u.order) > MaxKeys:
		ks.forget(owner, u)
	}
}

// forgetOld forgets the keys of a user that have become too old.
func (ks *keys) forgetOld(owner string, now time.Duration) {
	for u := ks.of[owner]; len(u.order) > 0; {
		if at := u.keys[u.order[0]].at + keepKeys; at > now {
			ks.timers.set(timer{at: at, what: ringKey, user: owner})
			return
		}
		ks.forget(owner, u)
	}
}

// forget forgets the oldest key of a user.
func (ks *keys) forget(owner string, u *userKeys) {
	delete(u.keys, u.order[0])
	ks.out.write(Record{Bucket: Keys, Key: keyBytes(owner, u.order[0])})
	u.order = u.order[1:]
}
