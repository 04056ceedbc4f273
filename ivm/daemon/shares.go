package daemon

import (
	"fmt"
	"sync/atomic"

	"muster/ivm/core"
)

// What one user may have on a node at a time, over all of the user's programs, and what all may. The
// daemon is everybody's: a program takes a connection and, while its output is stuck, two threads of
// it; an element a process, which the user's own limit of processes does not count; a wait for other
// elements a goroutine; an object a descriptor and two of the 65,530 mappings that Linux lets a
// process have.
const (
	maxPrograms, maxProgramsOfUser = 1024, 256
	maxWideOfUser                  = 32 // programs on several nodes, each of which takes connections between them
	maxElementsOfUser              = 4096
	maxWaitsOfUser                 = 65536
	maxObjects                     = 16384 // at most: see mostObjects
)

// mostObjects is how many objects there may be on a node whose daemon may have that many descriptors:
// a quarter of them. One user may have half of that.
func mostObjects(descriptors uint64) int64 { return int64(min(maxObjects, descriptors/4)) }

// share is what a user has. The service's mu protects the first three.
type share struct {
	programs                 int
	wide                     int // of these, on several nodes
	links                    map[reached]*links
	elements, waits, objects atomic.Int64
}

// share returns what a user has.
func (s *Service) share(user string) *share {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shares[user] == nil {
		s.shares[user] = &share{links: map[reached]*links{}}
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
	case !take(&of.objects, s.mostObjects/2):
		return &core.Failure{Code: core.NoMemory, Text: fmt.Sprintf("the user's programs have %d objects on node %s, as many as they may: free some", s.mostObjects/2, s.cfg.Name)}
	case !take(&s.objects, s.mostObjects):
		of.objects.Add(-1)
		return &core.Failure{Code: core.NoMemory, Text: fmt.Sprintf("the programs on node %s have %d objects, as many as they may: free some, or wait", s.cfg.Name, s.mostObjects)}
	}
	return nil
}

func (s *Service) giveObject(of *share) {
	of.objects.Add(-1)
	s.objects.Add(-1)
}
