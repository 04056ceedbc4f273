package daemon

import (
	"sync"
	"time"

	"muster/head/notices"
)

// noticeLog writes notices of nodes into the log.
type noticeLog struct {
	mu    sync.Mutex
	log   notices.Log
	again bool // later will be called
}

// noticed writes into the log which notices nodes have now, and which no more.
func (s *sessions) noticed(changes []notices.Change) {
	if len(changes) == 0 {
		return
	}
	s.notices.mu.Lock()
	defer s.notices.mu.Unlock()
	s.write(s.notices.log.Heard(s.now(), changes))
	s.writeLater(true)
}

// writeLater has what the log does not say yet written when it is due. The caller holds the lock.
func (s *sessions) writeLater(wanted bool) {
	if wanted && !s.notices.again {
		time.AfterFunc(notices.Pause, func() {
			select {
			case <-s.ending:
				return
			default:
			}
			s.notices.mu.Lock()
			defer s.notices.mu.Unlock()
			s.notices.again = false
			lines, again := s.notices.log.Due(s.now())
			s.write(lines)
			s.writeLater(again)
		})
		s.notices.again = true
	}
}

func (s *sessions) write(lines []notices.Line) {
	for _, l := range lines {
		log := s.log.With("node", l.Node, "notice", l.Name)
		if l.Changed > 1 {
			log = log.With("changes", l.Changed)
		}
		if l.Over {
			log.Info("a notice of a node is over", "now", l.Text)
		} else {
			log.Warn("a node has crossed a bound", "now", l.Text)
		}
	}
}
