package agent

import (
	"io"
	"log/slog"
	"testing"

	wire "muster/wire/agent"
)

// A task that is suspended before its first process has opened the files starts the others when it goes on, and
// not before: in a frozen group they would not come to their program, and the supervisor would wait for that
// and hear no more.
func TestNoProcessIsStartedWhileSuspended(t *testing.T) {
	s := &supervisor{
		dir: t.TempDir(), f: &taskFile{}, spec: &wire.Spec{Processes: 3, Arguments: []string{"true"}}, env: newEnvironment(nil), who: &account{},
		log: slog.New(slog.NewTextHandler(io.Discard, nil)), starts: make(chan *startRequest), inbox: make(chan func(), 8), children: map[int]*child{}, passage: &passage{},
	}
	s.passage.s = s
	forked := 0
	go func() {
		for r := range s.starts {
			forked++
			r.reply <- started{pid: 1000 + forked}
		}
	}()
	s.begun, s.suspended = true, true
	s.ranks = []*child{{pid: 1000, exited: true}}
	s.entered(0, nil)
	if forked != 0 || s.isOver() {
		t.Errorf("suspended: %d processes were started; over: %t", forked, s.isOver())
	}
	if why := s.passage.cannot(); why == "" {
		t.Error("suspended: it can be saved with one of its processes")
	}
	s.resume(nil)
	if forked != 2 || len(s.ranks) != 3 {
		t.Errorf("resumed: %d processes were started, %d are known", forked, len(s.ranks))
	}
	close(s.starts)
}
