package await

import "testing"

func TestUntil(t *testing.T) {
	asked := 0
	Until(t, "three", func() bool { asked++; return asked == 3 })
	if asked != 3 {
		t.Error(asked)
	}
}
