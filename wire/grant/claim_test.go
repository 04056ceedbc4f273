package grant

import "testing"

func TestClaims(t *testing.T) {
	c := Claim{ID: "17.2.0", Hash: NewCredential().Hash()}
	if got, err := ParseClaim(c.String()); err != nil || got != c {
		t.Errorf("%v %v", got, err)
	}
	for _, text := range []string{"", "x", c.Hash.String(), c.Hash.String() + " ", c.Hash.String() + " a b", "00 17.2.0"} {
		if got, err := ParseClaim(text); err == nil {
			t.Errorf("%q is claim %v", text, got)
		}
	}
	for _, x := range []struct {
		mine, other string
		same        bool
	}{
		{"17.2.0", "17.2.3", true}, {"17.2.0", "17.1.3", false}, {"17.2.0", "7.2.0", false}, {"17.2.0", "17.2.0.1", false},
		{"slurm-5-1700-0", "slurm-5-1700-12", true}, {"slurm-5-1700-0", "slurm-5-1701-0", false}, {"slurm-5-1700-0", "slurm-5-1700-", false},
		{"mine.1", "mine.2", false}, // names that users give mean nothing
	} {
		if got := (Claim{ID: x.mine}).SameJob(x.other); got != x.same {
			t.Errorf("%s and %s: %v", x.mine, x.other, got)
		}
	}
}
