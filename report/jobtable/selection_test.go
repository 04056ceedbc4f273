package jobtable

import (
	"fmt"
	"strings"
	"testing"

	"muster/head/api"
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
