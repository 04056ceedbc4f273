package bundled_test

import (
	"testing"

	"muster/policy"
	"muster/policy/easy"
	"muster/policy/script/bundled"
)

func fallback(string) (policy.Policy, error) { return easy.Entry.Make("") }

func TestScriptsLoad(t *testing.T) {
	for _, e := range bundled.Entries(fallback) {
		if _, err := e.Make(""); err != nil {
			t.Error(err)
		}
	}
}
