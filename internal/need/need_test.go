package need

import (
	"strings"
	"testing"
)

func TestRequired(t *testing.T) {
	for _, c := range []struct {
		variable string
		what     Thing
		required bool
		wrong    string
	}{
		{"", Browser, false, ""},
		{"browser", Browser, true, ""},
		{"root,browser", Browser, true, ""},
		{"root browser", MPI, false, ""},
		{"all", MPI, true, ""},
		{"root,brwser", Root, false, "brwser"},
	} {
		t.Setenv(Variable, c.variable)
		required, err := Required(c.what)
		if required != c.required || (err != nil) != (c.wrong != "") || err != nil && !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("%q, %s: %v, %v", c.variable, c.what, required, err)
		}
	}
}
