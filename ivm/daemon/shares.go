package daemon

import (
	"fmt"
	"sync/atomic"

	"muster/ivm/core"
)

// What one user may have on a node at a time, over all of the user's programs, and what all may. The
// daemon is everybody's: a program takes a connection and, while its output is stuck, two threads of
// it; an element a process, which the user's own limit of processes does not count; an object a
// descriptor and two of the 65,530 mappings that Linux lets a process have.
const (
	maxPrograms, maxProgramsOfUser = 1024, 256
	maxElementsOfUser              = 4096
	maxObjects, maxObjectsOfUser   = 16384, 8192
)

// share is what a user has. The service's mu protects programs.
type share struct {
	programs          int
	elements, objects atomic.Int64
}

// share returns what a user has.
func (s *Service) share(user string) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shares[user] == nil {
		s.shares[user] = &share{}
	}
	return s.shares[user]
}

// take adds one to a count, unless it is as large as it may be.
func take(count *atomic.Int64, most int64) bool {
	if count.Add(1) <= most {
		return true
	}
	count.Add(-1)
	return false
}

// takeObject counts an object of a user's.
func (s *Service) takeObject(of *share) error {
	switch {
	case !take(&of.objects, maxObjectsOfUser):
		return &core.Failure{Code: core.NoMemory, Text: fmt.Sprintf("the user's programs have %d objects on node %s, as many as they may: free some", maxObjectsOfUser, s.cfg.Name)}
	case !take(&s.objects, maxObjects):
		of.objects.Add(-1)
		return &core.Failure{Code: core.NoMemory, Text: fmt.Sprintf("the programs on node %s have %d objects, as many as they may: free some, or wait", s.cfg.Name, maxObjects)}
	}
	return nil
}

func (s *Service) giveObject(of *share) {
	of.objects.Add(-1)
	s.objects.Add(-1)
}
