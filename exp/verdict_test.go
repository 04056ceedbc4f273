package exp

import "testing"

func TestVerdicts(t *testing.T) {
	wide := Over("p", "m", "", []float64{1, 3})     // 2 ± 12.7
	narrow := Over("p", "m", "", []float64{2, 2.1}) // 2.05 ± 0.64
	single := Over("p", "m", "", []float64{2})
	for _, c := range []struct {
		name  string
		judge Judge
		row   Row
		want  Verdict
	}{
		{"above, wide", Above(0), wide, Direction}, {"above, narrow", Above(0), narrow, Confirmed}, {"above, single", Above(0), single, Confirmed}, {"above, less", Above(3), narrow, Refuted},
		{"above, as much", Above(2), single, Refuted},
		{"below, wide", Below(3), wide, Direction}, {"below, narrow", Below(3), narrow, Confirmed}, {"below, more", Below(0), single, Refuted},
		{"at least, wide", AtLeast(2), wide, Direction}, {"at least, as much", AtLeast(2), single, Confirmed}, {"at least, less", AtLeast(2.5), wide, Refuted},
		{"at most, wide", AtMost(2), wide, Direction}, {"at most, as much", AtMost(2), single, Confirmed}, {"at most, more", AtMost(1), single, Refuted},
		{"mostly, two of three", Mostly(3), single, Confirmed}, {"mostly, half", Mostly(4), single, Refuted},
		{"mostly, 8 of 15", Mostly(15), Over("p", "m", "", []float64{8}), Direction}, {"mostly, 10 of 15", Mostly(15), Over("p", "m", "", []float64{10}), Confirmed},
	} {
		if got := c.judge(c.row); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
