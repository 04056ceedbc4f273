package sessions

import (
	"fmt"
	"testing"
	"time"
)

// Somebody may do a thing some times at once and then now and then, whatever others do, and what is remembered of
// whom is bounded.
func TestRate(t *testing.T) {
	var r Rate
	at := func(now time.Duration, who string) (n int) {
		for r.May(now, who) {
			n++
		}
		return n
	}
	if n := at(0, "a"); n != rateBurst {
		t.Errorf("%d at once", n)
	}
	if n := at(0, "b"); n != rateBurst {
		t.Errorf("%d of another at once", n)
	}
	if n := at(10*rateEvery, "a"); n != 10 {
		t.Errorf("%d after a while", n)
	}
	if wait, may := r.Wait(10*rateEvery, rateEvery, "a"); wait != rateEvery || !may {
		t.Errorf("%v, %v", wait, may)
	}
	if wait, may := r.Wait(10*rateEvery, rateEvery, "a"); wait != 2*rateEvery || may {
		t.Errorf("%v, %v", wait, may)
	}
	if n := at(time.Hour, "a"); n != rateBurst {
		t.Errorf("%d after an hour", n)
	}
	may := 0
	for i := range 2 * rateMost {
		if r.May(2*time.Hour, fmt.Sprint(i)) {
			may++
		}
	}
	if len(r.of) > rateMost+1 || may > rateMost+rateBurst {
		t.Errorf("%d are remembered, and %d may", len(r.of), may)
	}
	if n := at(3*time.Hour, "a"); n != rateBurst {
		t.Errorf("%d after that", n)
	}
}
