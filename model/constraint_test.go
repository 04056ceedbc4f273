package model

import (
	"strings"
	"testing"
)

func TestConstraint(t *testing.T) {
	for _, c := range []struct{ text, allows, refuses string }{
		{"a", "a; a b", "; b"},
		{"a&b", "a b; c b a", "a; b"},
		{"a|b", "a; b; a b", "; c"},
		{"[a|b]", "a; b", "; c"},
		{"a&(b|c)", "a b; a c", "a; b c"},
		{"(a&b)|(c&(d|e))", "a b; c e; c d", "a c; d e"},
		{"gpu+a-1.5_x", "gpu+a-1.5_x", "gpu"},
	} {
		got, err := ParseConstraint(c.text)
		if err != nil || got.String() != c.text || got.Same != strings.HasPrefix(c.text, "[") {
			t.Errorf("%s: %+v, %v", c.text, got, err)
			continue
		}
		for _, features := range strings.Split(c.allows, ";") {
			if !got.Allows(strings.Fields(features)) {
				t.Errorf("%s refuses a node with %q", c.text, features)
			}
		}
		for _, features := range strings.Split(c.refuses, ";") {
			if got.Allows(strings.Fields(features)) {
				t.Errorf("%s allows a node with %q", c.text, features)
			}
		}
	}
	for _, text := range []string{"", "&", "a&", "a|", "a b", "(a", "a)", "()", "a&b|c", "a*2", "[a]|[b]", "[a", "a!", "[]", "(a)b", strings.Repeat("a|", 512) + "a", strings.Repeat("(", 20) + "a" + strings.Repeat(")", 20), strings.Repeat("(a|b)&", 9) + "(a|b)", strings.Repeat("(a|b)&", 8) + strings.Repeat("a&", 400) + "a"} {
		if c, err := ParseConstraint(text); err == nil {
			t.Errorf("%q is read as %+v", text, c)
		}
	}
	var none *Constraint
	if !none.Allows(nil) || none.String() != "" || none.Unknown(nil) != "" {
		t.Error("no constraint refuses something")
	}
}
