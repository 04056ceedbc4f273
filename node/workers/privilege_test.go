package workers

import (
	"os"
	"reflect"
	"testing"

	"muster/internal/need"
	"muster/node/settings"
	"muster/wire/control"
)

func TestWhoAWorkerBecomes(t *testing.T) {
	least := &control.User{UID: settings.LeastPrivileged, GID: settings.LeastPrivileged}
	for _, c := range []struct {
		name string
		who  settings.Account
		want *control.User
	}{
		{"root stays root", settings.Account{UID: 0, Name: "root"}, nil},
		{"a user without an entry", settings.Account{UID: 3_999_999, Name: "3999999"}, &control.User{UID: 3_999_999, GID: settings.LeastPrivileged}},
		{"a remote user without an account", settings.Account{UID: settings.Nobody, Name: "no-such-user-here"}, least},
		{"a remote user who calls himself root", settings.Account{UID: settings.Nobody, Name: "root"}, least},
	} {
		if got := processOf(c.who); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
	if got := processOf(settings.Account{UID: 1, Name: "daemon"}); got == nil || got.UID != 1 || got.GID == 0 {
		t.Errorf("a user of the machine: %+v", got)
	}
}

// What a worker is told of its user, with numbers of workers and without.
func TestWhatWorkersAreLent(t *testing.T) {
	if os.Geteuid() != 0 {
		need.Missing(t, need.Root, "only a node that runs as root gives its workers to users")
	}
	const local = 3_999_999
	numbered := func() *Uids {
		return &Uids{all: settings.UIDRange{First: 70, Last: 79}, next: 70, lent: map[uint32]bool{}, inUse: func(uint32) bool { return false }}
	}
	for _, c := range []struct {
		name string
		from *Uids
		who  settings.Account
		want *control.User
	}{
		{"root stays root", numbered(), settings.Account{UID: 0, Name: "root"}, nil},
		{"a user", numbered(), settings.Account{UID: local, Name: "3999999"}, &control.User{UID: local, GID: settings.LeastPrivileged, Own: 70}},
		{"a remote user", numbered(), settings.Account{UID: settings.Nobody, Name: "no-such-user-here"}, &control.User{UID: 70, GID: settings.LeastPrivileged, Own: 70}},
		{"a user, without numbers", &Uids{}, settings.Account{UID: local, Name: "3999999"}, &control.User{UID: local, GID: settings.LeastPrivileged}},
		{"a remote user, without numbers", &Uids{}, settings.Account{UID: settings.Nobody, Name: "no-such-user-here"}, &control.User{UID: settings.LeastPrivileged, GID: settings.LeastPrivileged}},
	} {
		p, w, serve := &Pool{uids: c.from}, &Process{}, control.Serve{}
		if err := p.Lend(w, &c.who, &serve); err != nil || !reflect.DeepEqual(serve.User, c.want) || c.want != nil && int(w.UID) != c.want.Own {
			t.Errorf("%s: %+v, number %d, %v", c.name, serve.User, w.UID, err)
		}
	}
}
