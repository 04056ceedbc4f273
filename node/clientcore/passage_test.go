package clientcore

import (
	"reflect"
	"testing"
	"time"

	"muster/wire/control"
)

// What is told of the GPU time while an executor waits is no more told later, and all of it counts.
func TestPassage(t *testing.T) {
	c := &Core{}
	c.link()
	c.Activity = Activity{Busy: true, Since: time.Second, Kernels: 3, Ran: time.Millisecond, Spent: time.Hour}
	c.Further = []Further{{Device: 1, Number: 7, Kernels: 2, Ran: time.Minute}, {Device: 2}}
	p := c.Passage()
	if said := p.Tell(time.Second + reportEvery); said != nil {
		t.Errorf("told too early: %v", said)
	}
	untouched := c.savers.state()
	first, second := p.Tell(3*time.Second), p.Tell(4*time.Second)
	if want := []control.ToDaemon{
		control.Ran{Kernels: 3, Busy: time.Millisecond + 2*time.Second},
		control.RanFurther{Device: 1, Loan: 7, Kernels: 2, Busy: time.Minute},
	}; !reflect.DeepEqual(first, want) {
		t.Errorf("%v\nwant %v", first, want)
	}
	if want := []control.ToDaemon{control.Ran{Busy: time.Second}}; !reflect.DeepEqual(second, want) {
		t.Errorf("%v\nwant %v", second, want)
	}
	if !reflect.DeepEqual(c.savers.state(), untouched) {
		t.Error("the core has changed while the executor waited")
	}
	c.Passed(&p)
	if want := (Activity{Busy: true, Since: 4 * time.Second, Told: 4 * time.Second, Spent: time.Hour + 3*time.Second}); c.Activity != want || c.Now != 4*time.Second {
		t.Errorf("%+v\nwant %+v", c.Activity, want)
	}
	if f := c.Further[0]; f.Kernels != 0 || f.Ran != 0 {
		t.Errorf("still to be told: %+v", f)
	}
}
