package node

import (
	"os"
	"reflect"
	"testing"

	"muster/internal/need"
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

// What a worker is told of its user, with numbers of workers and without.
func TestWhatWorkersAreLent(t *testing.T) {
	if os.Geteuid() != 0 {
		need.Missing(t, need.Root, "only a node that runs as root gives its workers to users")
	}
	const local = 3_999_999
	numbered := func() *uids {
		return &uids{all: UIDRange{70, 79}, next: 70, lent: map[uint32]bool{}, inUse: func(uint32) bool { return false }}
	}
	for _, c := range []struct {
		name string
		from *uids
		who  account
		want *control.User
	}{
		{"root stays root", numbered(), account{uid: 0, name: "root"}, nil},
		{"a user", numbered(), account{uid: local, name: "3999999"}, &control.User{UID: local, GID: leastPrivileged, Own: 70}},
		{"a remote user", numbered(), account{uid: nobody, name: "no-such-user-here"}, &control.User{UID: 70, GID: leastPrivileged, Own: 70}},
		{"a user, without numbers", &uids{}, account{uid: local, name: "3999999"}, &control.User{UID: local, GID: leastPrivileged}},
		{"a remote user, without numbers", &uids{}, account{uid: nobody, name: "no-such-user-here"}, &control.User{UID: leastPrivileged, GID: leastPrivileged}},
	} {
		d, w, serve := &daemon{uids: c.from}, &workerProcess{}, control.Serve{}
		if err := d.lend(w, &c.who, &serve); err != nil || !reflect.DeepEqual(serve.User, c.want) || c.want != nil && int(w.uid) != c.want.Own {
			t.Errorf("%s: %+v, number %d, %v", c.name, serve.User, w.uid, err)
		}
	}
}
