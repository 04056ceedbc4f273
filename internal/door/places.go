package door

import (
	"container/list"
	"errors"
	"sync"
)

// Why Take gives no place.
var (
	// ErrUserFull says that the user's places are all in use.
	ErrUserFull = errors.New("the user's places are all in use")
	// ErrFull says that all places are in use.
	ErrFull = errors.New("all places are in use")
	// ErrClosed says that there are no places any more.
	ErrClosed = errors.New("there are no places any more")
)

// Places bounds connections. A place is taken when a connection is accepted, and
// left when it ends or is bounded by something else.
//
// A user whose places are all taken gets a new one instead of an old one: of
// the connections that wait and whose other side can come again, the one that came
// first is closed, else the silent one that came first. When all places are
// taken, that happens to the user who has the most of them. So a user who opens
// many connections closes nobody's but his own.
type Places struct {
	each, all int

	mu     sync.Mutex
	users  map[string]*user
	taken  int
	came   uint64 // counts places
	closed bool
}

// user is a user with places. The connections that may be closed are in one of
// the lists, the oldest first.
type user struct {
	name            string
	taken           int
	silent, waiting list.List
}

// Place is one connection's. Of a nil Place the methods do nothing: such a
// connection is not counted.
type Place struct {
	places *Places
	user   *user
	came   uint64
	hangUp func()

	list    *list.List // nil while the connection is in use
	element *list.Element
	gone    bool
}

// NewPlaces makes places: each is how many a user has, all how many there are.
func NewPlaces(each, all int) *Places {
	return &Places{each: each, all: all, users: map[string]*user{}}
}

// Take gives a user a place for a connection that has said nothing yet. hangUp
// closes the connection when its place is needed; it must not wait. A user
// with a reserve is not bounded by what others take.
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

// makeRoom closes a connection to free its place if none is free for the user,
// and returns that place.
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

// oldest returns the user's connection to be closed first; nil if all are in use.
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

// greediest returns a connection of the user who has the most places; of
// several such users, the oldest connection.
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

// Close ends all connections that are not in use. There are no places any more.
func (p *Places) Close() {
	p.mu.Lock()
	p.closed = true
	victims := p.clear((*user).oldest)
	p.mu.Unlock()
	for _, place := range victims {
		place.hangUp()
	}
}

// CloseWaiting ends the connections whose other side can come again.
func (p *Places) CloseWaiting() {
	p.mu.Lock()
	victims := p.clear(func(u *user) *Place { return front(&u.waiting) })
	p.mu.Unlock()
	for _, place := range victims {
		place.hangUp()
	}
}

// clear takes the places of all users that next names, and returns them.
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

// Taken is how many places are taken.
func (p *Places) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

// Wait says that the other side can come again if its connection is closed now:
// it will be closed before those that have said nothing yet. It returns false if
// it was closed already.
func (l *Place) Wait() bool {
	return l.move(func() { l.enlist(&l.user.waiting) })
}

// Use says that the connection is in use: it will not be closed for others. It
// returns false if it was closed already.
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

// drop takes the place away. The caller holds the lock.
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
