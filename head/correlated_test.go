package head_test

import (
	"fmt"
	"strings"
	"testing"

	"muster/head"
	"muster/wire/api"
)

// Tasks that aftercorr lets go while others of their array wait at a gate must start in their turn.
func TestCorrelatedTasksBehindAGate(t *testing.T) {
	for _, limit := range []string{"%1", ""} {
		p := newPlayer()
		if limit == "" {
			p.cfg.Limits.Running = 2
		}
		play := func(line string) {
			if err := p.play(strings.Fields(line)); err != nil {
				t.Fatal(err)
			}
		}
		play("node n1 cores=16")
		play("alice submit --array=0-5")
		play("bob submit --array=0-5" + limit + " --dependency=aftercorr:1")
		if limit == "" {
			play("bob submit -n1")
			play("bob submit -n1")
		}
		for id := 1; id <= 6; id++ {
			play(fmt.Sprintf("ends %d exit=0", id))
		}
		for range 20 {
			for _, task := range p.sorted() {
				play(fmt.Sprintf("ends %d exit=0", task.Job))
			}
		}
		for _, d := range p.core.JobList(p.now, head.Filter{States: []api.State{api.Pending}}) {
			t.Errorf("limit %q: nothing runs, and job %d of %d (%s) waits: %s", limit, d.ID, d.ArrayJob, d.ArrayTasks, d.Reason)
		}
	}
}
