package mps

import (
	"os"
	"time"

	"muster/node/fate"
	"muster/node/refusal"
	"muster/wire/control"
	"muster/wire/status"
)

// Sharing says which clients the service serves. Clients that share a GPU share faults: package fate decides
// what becomes of them. All of it but MayShare and ShareOf is the loop's.
type Sharing struct {
	*Service
	owner  string // whose node it is
	book   *fate.Book
	faults uint64 // that several clients saw
}

// Share begins with no clients.
func (s *Service) Share(owner string) *Sharing {
	return &Sharing{Service: s, owner: owner, book: fate.NewBook()}
}

// MayShare says whether the service may serve a user's client. A control daemon serves one user at a time and
// makes the others wait, so only the node's own user is served. On a node that runs as root,
// workers that become another user have contexts of their own.
func (s *Sharing) MayShare(uid uint32) bool {
	return s.Pipe != "" && (uid == 0 || os.Geteuid() != 0)
}

// ShareOf is the part of a device's multiprocessors that a user's program may use, in percent; 0 for
// all. A program gets what it asked for, but no more than its user may have (most). A request that
// cannot be met at all is refused. The user's limit from the configuration counts only where
// MPS serves the program.
func (s *Sharing) ShareOf(asked uint32, uid uint32, most int) (int, error) {
	switch {
	case asked > 100:
		return 0, refusal.New(refusal.NotPermitted, "a share of %d%% of the multiprocessors: give 1%% to 100%% (muster run --share, or MUSTER_SHARE)", asked)
	case asked != 0 && s.Pipe == "":
		return 0, refusal.New(refusal.NotPermitted, "the node serves programs without MPS, which a share of the multiprocessors needs: leave --share (or MUSTER_SHARE) out, or ask the administrator for mps: on")
	case asked != 0 && !s.MayShare(uid):
		return 0, refusal.New(refusal.NotPermitted, "the node's MPS serves programs of user %s only, and a share of the multiprocessors needs it: leave --share (or MUSTER_SHARE) out", s.owner)
	case asked == 0:
		return most, nil
	case most == 0:
		return int(asked), nil
	}
	return min(int(asked), most), nil
}

// Join notes a user's new client.
func (s *Sharing) Join(now time.Duration, id fate.Client, uid uint32) {
	state := fate.Apart
	if s.MayShare(uid) {
		state = fate.Shared
	}
	s.book.Join(now, id, state)
}

// Adopt notes a client of an earlier daemon, with the state that it had there.
func (s *Sharing) Adopt(now time.Duration, id fate.Client, state fate.State) {
	s.book.Join(now, id, state)
}

// Leave forgets a client.
func (s *Sharing) Leave(id fate.Client) { s.book.Leave(id) }

// State is whether a client shares, and if not, why.
func (s *Sharing) State(id fate.Client) fate.State { return s.book.State(id) }

// Serve is how the worker that will serve a client uses the service; nil: as if there were none.
func (s *Sharing) Serve(now time.Duration, id fate.Client, share int) *control.MPS {
	shares := s.book.Serve(id)
	if shares && s.Folder() == "" {
		s.book.Refused(now, id)
		shares = false
	}
	return s.Used(shares, share)
}

// Refused notes that a client's worker could not begin under the service.
func (s *Sharing) Refused(now time.Duration, id fate.Client) { s.book.Refused(now, id) }

// Fault notes that a client's worker has seen a fault that may be another client's. It says whether the
// others are to be told: told says that this client was told of the fault by one of them.
func (s *Sharing) Fault(now time.Duration, id fate.Client, told bool) (tell bool) {
	if !s.book.Fault(now, id) || told {
		return false
	}
	s.faults++
	return true
}

// Guilty notes that a program was told of a fault, and says whether it is the one that had caused that which
// others saw.
func (s *Sharing) Guilty(id fate.Client) bool { return s.book.Guilty(id) }

// Proven notes that a client has come through.
func (s *Sharing) Proven(now time.Duration, id fate.Client) { s.book.Proven(now, id) }

// Due are the clients that may share again.
func (s *Sharing) Due(now time.Duration) []fate.Client {
	if s.Folder() == "" {
		return nil
	}
	return s.book.Due(now)
}

// Next is when a client goes back to share.
func (s *Sharing) Next() (at time.Duration, ok bool) {
	if s.Folder() == "" {
		return 0, false
	}
	return s.book.Next()
}

// Status is what the node says of the service; nil if there is nothing to say.
func (s *Sharing) Status() *status.MPS {
	is := s.Service.Status()
	if is != nil {
		is.Faults = s.faults
	}
	return is
}
