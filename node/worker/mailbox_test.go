package worker

import (
	"reflect"
	"testing"

	"muster/internal/mailbox"
	"muster/wire/control"
)

// Of messages in a row that say the same of the present only the last is kept.
func TestInboxKeepsTheLast(t *testing.T) {
	b := mailbox.New(replaces)
	for _, m := range []control.ToWorker{
		control.Watch{On: true}, control.Watch{},
		control.Grant{Lease: 1, Memory: 1, Coming: 3}, control.Grant{Lease: 1, Memory: 2, Coming: 3}, control.Grant{Lease: 1, Memory: 3},
		control.Grant{Lease: 2, Memory: 1}, control.Watch{On: true}, control.Grant{Lease: 2, Memory: 2},
		control.Revoke{Reason: "quantum"}, control.Revoke{Reason: "memory"},
	} {
		b.Put(m)
	}
	var got []control.ToWorker
	for m, ok := b.Take(); ok; m, ok = b.Take() {
		got = append(got, m)
	}
	want := []control.ToWorker{
		control.Watch{}, control.Grant{Lease: 1, Memory: 3}, control.Grant{Lease: 2, Memory: 1}, control.Watch{On: true}, control.Grant{Lease: 2, Memory: 2},
		control.Revoke{Reason: "quantum"}, control.Revoke{Reason: "memory"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}
