package vec

import "testing"

// What a process says of its kernels is true, and there is a reason where they
// are the slow ones.
func TestInUse(t *testing.T) {
	c := InUse()
	if (c.Name == "avx512") != (len(fast) > 0) || (c.Name == "plain") != (c.Reason != "") || c.Name != "avx512" && c.Name != "plain" {
		t.Errorf("%+v with %d fast kernels", c, len(fast))
	}
}
