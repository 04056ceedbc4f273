package history

import (
	"testing"

	"muster/model"
)

// The name of a program is kept: a policy that goes by it must decide the same in a replay.
func TestNamesAreKept(t *testing.T) {
	request := model.Request{Cores: 1}
	named := &model.Job{ID: "1", Request: request, Logged: &model.Logged{Executable: "adfa"}}
	kept := jobOf(named)
	if got := kept.model().Logged; got == nil || got.Executable != "adfa" {
		t.Errorf("%+v", got)
	}
	nameless := jobOf(&model.Job{ID: "2", Request: request})
	if got := nameless.model().Logged; got != nil {
		t.Errorf("%+v", got)
	}
}
