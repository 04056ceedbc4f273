package bundled_test

import (
	"slices"
	"testing"

	"muster/policy"
	"muster/policy/easy"
	"muster/policy/script"
	"muster/policy/script/bundled"
)

func fallback(string) (policy.Policy, error) { return easy.Entry.Make("") }

// Each script can be read, and has the settings of its entry.
func TestScriptsLoad(t *testing.T) {
	for _, e := range bundled.Entries(fallback) {
		p, err := e.Make("")
		if err != nil {
			t.Error(err)
			continue
		}
		own := e.Options[:len(e.Options)-len(script.Common)]
		if has := p.(*script.Policy).Options(); !slices.Equal(own, has) {
			t.Errorf("the settings of %s are %v, and its script has %v", e.Name, own, has)
		}
	}
}
