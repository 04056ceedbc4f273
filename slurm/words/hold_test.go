package words

import "testing"

func TestUserHold(t *testing.T) {
	for comment, want := range map[string][2]bool{
		"": {false, false}, "night run": {false, false}, "muster:held": {true, true}, "muster:held night run": {true, true},
		"muster:released": {false, true}, "muster:released muster:req muster:wait why=x": {false, true}, "night muster:held": {false, false}, "muster:heldx": {false, false},
	} {
		if held, said := UserHold(comment); held != want[0] || said != want[1] {
			t.Errorf("%q: %t, %t", comment, held, said)
		}
	}
}
