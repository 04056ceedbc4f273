package kinds

import (
	"slices"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	all := []string{"kill", "move", "stop"}
	for text, want := range map[string]string{"": "kill move stop", "move,kill": "move kill", "break": "break", "-kill,-stop": "move"} {
		if got, err := Parse(text, "fault", all, "break"); err != nil || !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"move,": `there is no kind of fault ""`, "mov": `there is no kind of fault "mov": did you mean move?`, "kill,-move": "name those to try, or those to leave out",
	} {
		if got, err := Parse(text, "fault", all, "break"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
