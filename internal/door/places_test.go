package door

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// street is Places with a list of the connections that were closed, in order.
type street struct {
	*Places
	closed []string
	places map[string]*Place
}

func newStreet(each, all int) *street {
	return &street{Places: NewPlaces(each, all), places: map[string]*Place{}}
}

func (s *street) take(user, conn string, reserve bool) error {
	place, err := s.Take(user, reserve, func() { s.closed = append(s.closed, conn) })
	s.places[conn] = place
	return err
}

// run does what lines say: USER +CONN takes a place, =CONN waits, !CONN is in use,
// -CONN leaves, and root takes from the reserve.
func (s *street) run(t *testing.T, script string) {
	t.Helper()
	for _, word := range strings.Fields(script) {
		switch what, conn := word[0], word[1:]; what {
		case '+':
			user := strings.TrimRight(conn, "0123456789")
			if err := s.take(user, conn, user == "root"); err != nil {
				s.closed = append(s.closed, conn+": "+err.Error())
			}
		case '=':
			s.places[conn].Wait()
		case '!':
			s.places[conn].Use()
		case '-':
			s.places[conn].Leave()
		default:
			t.Fatalf("the test's script has %q", word)
		}
	}
}

func TestPlaces(t *testing.T) {
	for _, c := range []struct{ name, script, closed string }{
		{"enough", "+a1 +a2 +b1", ""},
		{"the oldest of the same user goes", "+a1 +b1 +a2 +a3", "a1"},
		{"who waits goes first", "+a1 +a2 =a2 +a3", "a2"},
		{"of those who wait the first to wait", "+a1 +a2 =a2 =a1 +a3", "a2"},
		{"who is in use stays", "+a1 !a1 +a2 +a3", "a2"},
		{"all in use", "+a1 !a1 +a2 !a2 +a3", "a3: the user's places are all in use"},
		{"back from use", "+a1 !a1 +a2 !a2 =a1 +a3", "a1"},
		{"room again", "+a1 +a2 -a1 +a3", ""},
		{"left twice", "+a1 +a2 -a1 -a1 +a3 +a4", "a2"},
		{"closed, then left", "+a1 +a2 +a3 -a1 +a4", "a1 a2"},
		{"all full: the greediest", "+b1 +a1 +a2 +c1 +d1", "a1"},
		{"all full: of equals the oldest", "+b1 +a1 +a2 !a1 !a2 +c1 +d1", "b1"},
		{"all full and in use", "+b1 !b1 +a1 +a2 !a1 !a2 +c1 !c1 +d1", "d1: all places are in use"},
		{"the reserve is not the others'", "+b1 !b1 +a1 +a2 !a1 !a2 +c1 !c1 +root1 !root1 +root2 !root2 +root3", "root3: the user's places are all in use"},
	} {
		s := newStreet(2, 4)
		s.run(t, c.script)
		if got := strings.Join(s.closed, " "); got != c.closed {
			t.Errorf("%s: closed %q, want %q", c.name, got, c.closed)
		}
	}
}

func TestPlacesClose(t *testing.T) {
	s := newStreet(9, 9)
	s.run(t, "+a1 +a2 !a2 +b1 =b1")
	s.CloseWaiting()
	if strings.Join(s.closed, " ") != "b1" {
		t.Errorf("closed %q", s.closed)
	}
	s.Close()
	if slices.Sort(s.closed); strings.Join(s.closed, " ") != "a1 b1" {
		t.Errorf("closed %q", s.closed)
	}
	if err := s.take("c", "c1", true); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if s.places["a1"].Use() || s.places["b1"].Wait() || !s.places["a2"].Use() {
		t.Error("a connection that was closed does not know")
	}
	s.run(t, "-a1 -a2 -b1")
	if s.Taken() != 0 {
		t.Errorf("%d places are taken", s.Taken())
	}
	var none *Place
	if !none.Use() || !none.Wait() {
		t.Error("a connection that is not counted was closed")
	}
	none.Leave()
}

// Whatever users do, none has more than each places, the total exceeds all only by the reserve, and
// a user without a place gets one unless all are in use.
func TestPlacesProperties(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		each, all := 1+random.IntN(4), 1+random.IntN(10)
		s := newStreet(each, all)
		inUse := map[string]bool{}
		for i := range 300 {
			user, reserve := string(rune('a'+random.IntN(5))), random.IntN(5) == 0
			conn := fmt.Sprint(user, i)
			switch random.IntN(4) {
			case 0, 1:
				err := s.take(user, conn, reserve)
				if err != nil {
					delete(s.places, conn)
				}
				if errors.Is(err, ErrFull) && len(inUse) < all {
					t.Fatalf("seed %d: refused, and only %d of %d are in use", seed, len(inUse), all)
				}
			default:
				if len(s.places) == 0 {
					continue
				}
				conns := slices.Sorted(maps.Keys(s.places))
				conn := conns[random.IntN(len(conns))]
				switch place := s.places[conn]; random.IntN(3) {
				case 0:
					place.Wait()
					delete(inUse, conn)
				case 1:
					if place.Use() {
						inUse[conn] = true
					}
				default:
					place.Leave()
					delete(s.places, conn)
					delete(inUse, conn)
				}
			}
			sum := 0
			for name, u := range s.users {
				sum += u.taken
				if u.taken > each || u.taken == 0 {
					t.Fatalf("seed %d: %s has %d of %d", seed, name, u.taken, each)
				}
			}
			if sum != s.taken || sum > all+5*each {
				t.Fatalf("seed %d: %d are taken, and users have %d", seed, s.taken, sum)
			}
		}
	}
}
