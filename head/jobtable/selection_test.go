package jobtable

import (
	"fmt"
	"strings"
	"testing"

	"muster/wire/api"
)

func TestSelection(t *testing.T) {
	task := uint32(3)
	list := func() []api.Job {
		return []api.Job{
			{ID: 1, User: "alice", Name: "train", Account: "a", Partition: "p", State: api.Running, Nodes: []string{"n1", "n2"}},
			{ID: 2, User: "bob", Name: "train", Account: "b", Partition: "q", State: api.Pending},
			{ID: 3, User: "alice", Name: "test", Account: "a", Partition: "p", State: api.Completed, Nodes: []string{"n2"}},
			{ID: 9, User: "bob", State: api.Running, ArrayJob: 8, ArrayTask: &task},
		}
	}
	for _, c := range []struct {
		chosen Selection
		want   string
	}{
		{Selection{}, "1 2 3 9"},
		{Selection{Live: true}, "1 2 9"},
		{Selection{Live: true, States: []api.State{api.Completed}}, "3"},
		{Selection{Users: []string{"alice"}}, "1 3"},
		{Selection{Users: []string{"alice", "bob"}, Names: []string{"train"}}, "1 2"},
		{Selection{Accounts: []string{"b"}}, "2"},
		{Selection{Partitions: []string{"p"}}, "1 3"},
		{Selection{Nodes: []string{"n1", "n7"}}, "1"},
		{Selection{IDs: []string{"2", "8_3"}}, "2 9"},
		{Selection{IDs: []string{"8"}}, "9"}, // with its array
		{Selection{IDs: []string{"8_4"}}, ""},
	} {
		var got []string
		for _, j := range c.chosen.Of(list()) {
			got = append(got, fmt.Sprint(j.ID))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%+v: %v, want %s", c.chosen, got, c.want)
		}
	}
}

// TestNamedTasks: of a job that stands for several tasks, only those are chosen that are named.
func TestNamedTasks(t *testing.T) {
	for ids, want := range map[string]string{
		"20": "20_[2-8:2]", "20_4": "20_4", "21": "20_2", "20_8,23": "20_[6,8]", "20_0,20_3,19_4,30": "", "20_[2-8:2]": "20_[2-8:2]",
	} {
		s := Selection{IDs: strings.Split(ids, ",")}
		jobs := s.Of([]api.Job{{ID: 21, ArrayJob: 20, ArrayTasks: "2-8:2", ArrayCount: 4, Options: "-n1 --array=0-8:2", State: api.Pending}})
		got := ""
		for i := range jobs {
			got += Name(&jobs[i])
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", ids, got, want)
		}
	}
	rest := api.Job{ID: 21, ArrayJob: 20, ArrayTasks: "2-4:2", ArrayCount: 2, Options: "-n1 --array=0-8:2", State: api.Pending, Reason: "Resources"}
	if lines := Lines([]api.Job{rest}, true); len(lines) != 2 || lines[1].id != "20_4" || lines[1].ID != 22 {
		t.Errorf("%+v", lines)
	}
	task := uint32(0)
	born := api.Job{ID: 20, ArrayJob: 20, ArrayTask: &task, State: api.Pending, Reason: "Resources"}
	if lines := Lines([]api.Job{born, rest}, false); len(lines) != 1 || lines[0].id != "20_[0-4:2]" {
		t.Errorf("%+v", lines)
	}
}
