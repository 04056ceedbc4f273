package agent

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"muster/wire/grant"
)

// silent is a daemon that waits for lenders that do not answer.
type silent struct {
	Grants
	takes time.Duration
	asked int
}

func (s *silent) Admit(grant.Loan) error {
	s.asked++
	time.Sleep(s.takes)
	return errors.New("device 0, of the node at far:9421: no answer")
}

// The daemon is told again of devices of other nodes as long as its answers come at once. What waits for silent
// lenders holds up the loans of other jobs, and is not repeated.
func TestSilentLendersAreNotAskedAgain(t *testing.T) {
	for takes, want := range map[time.Duration]struct {
		asked int
		in    time.Duration
	}{
		0:                    {homeTries, (homeTries - 1) * askTime},
		3 * time.Second:      {1, 3 * time.Second},
		homeTime - askTime/2: {2, 2 * homeTime},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &silent{takes: takes}
			a, began := &agent{cfg: Config{Grants: d}}, time.Now()
			told, err := a.admit(t.Context(), grant.Loan{Home: "n1"})
			if took := time.Since(began); !told || err == nil || d.asked != want.asked || took != want.in {
				t.Errorf("%v: asked %d times in %v: %v, %v", takes, d.asked, took, told, err)
			}
		})
	}
}
