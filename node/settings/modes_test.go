package settings

import (
	"strings"
	"testing"
)

func TestRangesOfUIDs(t *testing.T) {
	for _, c := range []struct {
		r    UIDRange
		want string
	}{
		{UIDRange{}, ""}, {WideUIDs, ""}, {NarrowUIDs, ""}, {UIDRange{7, 7}, ""},
		{UIDRange{0, 5}, "worker_uids 0-5: give a range that begins above 0, as 1879048192-2147483647"},
		{UIDRange{9, 5}, "worker_uids 9-5: give a range"},
		{UIDRange{9, Nobody}, "worker_uids 9-4294967295: give a range"},
		{UIDRange{9, LeastPrivileged}, "worker_uids 9-65534: 65534 belongs to nobody"},
	} {
		if err := c.r.check(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.r, err)
		}
	}
}

func TestParseSpares(t *testing.T) {
	for text, want := range map[string]Spares{"auto": SparesAuto, "off": SparesOff, "0": SparesOff, "3": 3} {
		if got, err := ParseSpares(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "65", "on", "1.5"} {
		if got, err := ParseSpares(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
