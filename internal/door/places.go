package door

import (
	"container/list"
	"errors"
	"sync"
)

// The reasons why Take gives no place.
var (
	// ErrUserFull says that the user's places are all in use.
	ErrUserFull = errors.New("the user's places are all in use")
	// ErrFull says that all places are in use.
	ErrFull = errors.New("all places are in use")
	// ErrClosed says that there are no places any more.
	ErrClosed = errors.New("there are no places any more")
)

// Places limits connections. A connection takes a place when it is accepted, and leaves it when it
// ends or another limit applies to it.
//
// If all places of a user are taken, a new connection replaces an old one of the same user: the
// oldest waiting connection (whose other side can reconnect), or else the oldest silent one. If all
// places together are taken, the victim is a connection of the user with the most places. So a user
// who opens many connections displaces only his own.
//
// mu protects all fields, including those of users and Places. The hangUp functions are called
// without it, because they belong to the caller.
type Places struct {
	each, all int

	mu     sync.Mutex
	users  map[string]*user
	taken  int
	came   uint64 // numbers the places in order of arrival
	closed bool
}

// user is a user with places. Each connection that may be closed is in one of the lists, the oldest
// first.
type user struct {
	name            string
	taken           int
	silent, waiting list.List
}

// Place is the place of one connection. The methods of a nil Place do nothing: such a connection is
// not counted.
type Place struct {
	places *Places
	user   *user
	came   uint64
	hangUp func()

	list    *list.List // nil while the connection is in use
	element *list.Element
	gone    bool
}

// NewPlaces makes places: at most each per user, and all in total.
func NewPlaces(each, all int) *Places {
	return &Places{each: each, all: all, users: map[string]*user{}}
}

// Take gives a user a place for a connection that has not said anything yet. hangUp closes the
// connection if its place is needed for another; it must not block. The total limit does not apply
// to a user with a reserve.
func (p *Places) Take(name string, reserve bool, hangUp func()) (*Place, error) {
	p.mu.Lock()
	victim, err := p.makeRoom(name, reserve)
	if err != nil {
		p.mu.Unlock()
		return nil, err
	}
	u := p.users[name]
	if u == nil {
		u = &user{name: name}
		p.users[name] = u
	}
	u.taken++
	p.taken++
	p.came++
	place := &Place{places: p, user: u, came: p.came, hangUp: hangUp}
	place.enlist(&u.silent)
	p.mu.Unlock()
	if victim != nil {
		victim.hangUp()
	}
	return place, nil
}

// makeRoom frees a place if none is free for the user, and returns its victim, whose hangUp the
// caller must call after unlocking. The caller must hold the lock.
func (p *Places) makeRoom(name string, reserve bool) (*Place, error) {
	if p.closed {
		return nil, ErrClosed
	}
	if u := p.users[name]; u != nil && u.taken >= p.each {
		victim := u.oldest()
		if victim == nil {
			return nil, ErrUserFull
		}
		victim.drop()
		return victim, nil
	}
	if p.taken < p.all || reserve {
		return nil, nil
	}
	victim := p.greediest()
	if victim == nil {
		return nil, ErrFull
	}
	victim.drop()
	return victim, nil
}

// oldest is the user's connection to close first; nil if all are in use.
func (u *user) oldest() *Place {
	if place := front(&u.waiting); place != nil {
		return place
	}
	return front(&u.silent)
}

func front(l *list.List) *Place {
	if first := l.Front(); first != nil {
		return first.Value.(*Place)
	}
	return nil
}

// greediest is a connection of the user with the most places; of several such users, the oldest
// connection.
func (p *Places) greediest() *Place {
	var victim *Place
	for _, u := range p.users {
		place := u.oldest()
		switch {
		case place == nil:
		case victim == nil || u.taken > victim.user.taken:
			victim = place
		case u.taken == victim.user.taken && place.came < victim.came:
			victim = place
		}
	}
	return victim
}

// Close closes all connections that are not in use. Take fails from then on.
func (p *Places) Close() {
	p.mu.Lock()
	p.closed = true
	victims := p.clear((*user).oldest)
	p.mu.Unlock()
	for _, place := range victims {
		place.hangUp()
	}
}

// CloseWaiting closes the connections whose other side can reconnect.
func (p *Places) CloseWaiting() {
	p.mu.Lock()
	victims := p.clear(func(u *user) *Place { return front(&u.waiting) })
	p.mu.Unlock()
	for _, place := range victims {
		place.hangUp()
	}
}

// clear drops, for each user, the places that next returns until it returns nil. The caller must
// hold the lock.
func (p *Places) clear(next func(*user) *Place) []*Place {
	var victims []*Place
	for _, u := range p.users {
		for place := next(u); place != nil; place = next(u) {
			place.drop()
			victims = append(victims, place)
		}
	}
	return victims
}

// Taken is the number of taken places.
func (p *Places) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

// Wait says that the other side can reconnect if its connection is closed now, so it will be closed
// before silent ones. It returns false if the connection has already been closed.
func (l *Place) Wait() bool {
	return l.move(func() { l.enlist(&l.user.waiting) })
}

// Use says that the connection is in use, so that it will not be closed for others. It returns
// false if it has already been closed.
func (l *Place) Use() bool { return l.move(func() {}) }

func (l *Place) move(to func()) bool {
	if l == nil {
		return true
	}
	l.places.mu.Lock()
	defer l.places.mu.Unlock()
	if l.gone {
		return false
	}
	l.delist()
	to()
	return true
}

// Leave gives the place back. It may be called more than once.
func (l *Place) Leave() {
	if l == nil {
		return
	}
	l.places.mu.Lock()
	defer l.places.mu.Unlock()
	l.drop()
}

func (l *Place) enlist(to *list.List) { l.list, l.element = to, to.PushBack(l) }

func (l *Place) delist() {
	if l.list != nil {
		l.list.Remove(l.element)
		l.list, l.element = nil, nil
	}
}

// drop gives up the place. The caller must hold the lock.
func (l *Place) drop() {
	if l.gone {
		return
	}
	l.gone = true
	l.delist()
	l.places.taken--
	if l.user.taken--; l.user.taken == 0 {
		delete(l.places.users, l.user.name)
	}
}
