package node

import (
	"reflect"
	"testing"

	"muster/wire/control"
)

func TestWhoAWorkerBecomes(t *testing.T) {
	least := &control.User{UID: leastPrivileged, GID: leastPrivileged}
	for _, c := range []struct {
		name string
		who  account
		want *control.User
	}{
		{"root stays root", account{uid: 0, name: "root"}, nil},
		{"a user without an entry", account{uid: 3_999_999, name: "3999999"}, &control.User{UID: 3_999_999, GID: leastPrivileged}},
		{"a remote user without an account", account{uid: nobody, name: "no-such-user-here"}, least},
		{"a remote user who calls himself root", account{uid: nobody, name: "root"}, least},
	} {
		if got := c.who.process(); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	if got := (account{uid: 1, name: "daemon"}).process(); got == nil || got.UID != 1 || got.GID == 0 {
		t.Errorf("a user of the machine: %+v", got)
	}
}
