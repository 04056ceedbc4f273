package script

import (
	"fmt"
	"testing"

	"muster/model"
	"muster/policy"
	"muster/policy/easy"
)

// A script says how nodes serve programs: a line of the plan when that changes, and nothing that nodes refuse.
func TestScriptSaysHowNodesServe(t *testing.T) {
	p, err := Load("test.star", []byte(`
def decide(view, plan):
    for job in view.arrived():
        state["n"] = 2
    n = state.get("n", 1)
    plan.configure(view.nodes()[0], vgpus = n, sharing = "shared", policy = "credit", above = 2, keep = 0, profiling = 5 * SECOND)
    plan.configure("b")
`), "", func(string) (policy.Policy, error) { return easy.Entry.Make("") })
	if err != nil {
		t.Fatal(err)
	}
	s := policy.NewState(twoNodes(), p)
	step := func(want string) {
		t.Helper()
		got := ""
		for _, n := range s.Step(0).Nodes {
			got += fmt.Sprintf("%d: %v %v", n.Node, n.Settings, n.Err)
		}
		if f := p.Trouble().Last; f != nil || got != want {
			t.Errorf("%s, %v; want %s", got, f, want)
		}
	}
	step("0: vgpus 1, shared, policy credit, above 2, keep 0, profiling 5s <nil>")
	step("")
	if _, err := s.Submit(&model.Job{ID: "two", Request: model.Request{Cores: 2, CoresPerProcess: 1}}); err != nil {
		t.Fatal(err)
	}
	step("0: vgpus 2, shared, policy credit, above 2, keep 0, profiling 5s <nil>")
	if !s.SettingsOf(1).IsZero() {
		t.Error(s.SettingsOf(1))
	}
}
