package head_test

import (
	"strings"
	"testing"

	"muster/wire/api"
)

// Whenever the head is killed while a job is moved, the job goes on: from where it was saved, in one place,
// with the folder removed in the end; or, if the head had not heard of the move yet, where it was.
func TestHeadIsKilledWhileAJobMoves(t *testing.T) {
	kills := 0
	for killAt := 0; ; killAt++ {
		p := newPlayer()
		play := func(lines ...string) {
			t.Helper()
			for _, line := range lines {
				if err := p.play(strings.Fields(line)); err != nil {
					t.Fatalf("%q: %v", line, err)
				}
			}
		}
		play("node n1 gpus=1 checkpoints=f", "alice submit --gres=gpu:1 -t10", "at 60", "root drain n1", "node n2 gpus=1 checkpoints=f")
		before := p.steps
		if killAt > 0 {
			p.killAt = before + killAt
		}
		play("alice move 1")
		if killAt > 0 && p.steps < p.killAt {
			break
		}
		kills++
		docs, _ := p.core.Job(p.now, ref("1"))
		if len(docs) != 1 || docs[0].State != api.Running || len(p.tasks) != 1 {
			t.Errorf("killed at %d: %+v, tasks %v\n%s", killAt, docs, p.tasks, p.out.String())
		}
		out := p.out.String()
		starts, froms := strings.Count(out, ": start 1."), strings.Count(out, " from 1.1.1-")
		moved := len(docs[0].Before) > 0
		// A Start may be sent again, as its agent may not have got it.
		if moved && (starts < 2 || froms != starts-1 || docs[0].NodeList != "n2") || !moved && starts != 1 {
			t.Errorf("killed at %d: %d starts, %d from the folder, on %s\n%s", killAt, starts, froms, docs[0].NodeList, out)
		}
		play("ends 1")
		if moved && !strings.Contains(p.out.String(), ": discard 1.1.1-") {
			t.Errorf("killed at %d: the folder is left\n%s", killAt, p.out.String())
		}
		if docs, _ = p.core.Job(p.now, ref("1")); docs[0].State != api.Completed {
			t.Errorf("killed at %d: %+v", killAt, docs[0])
		}
	}
	if kills < 5 {
		t.Errorf("the head was killed at %d moments only", kills)
	}
}
