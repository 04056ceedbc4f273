package worker

import (
	"errors"
	"slices"
	"testing"

	"muster/node/clientcore"
	"muster/node/journal"
	"muster/wire"
)

// A replay has the executor do again what the program does not have, and nothing else; what fails ends both.
func TestAReplayLeavesOutWhatTheProgramHas(t *testing.T) {
	failing := clientcore.Op{Kind: clientcore.Fill}
	failure := errors.New("failed")
	var did []clientcore.Kind
	var p parts
	p.enter()
	for kind := range p.operations {
		p.operations[kind].do = func(_ *message, o *clientcore.Op) error {
			if o.Kind == failing.Kind {
				return failure
			}
			did = append(did, o.Kind)
			return nil
		}
		p.operations[kind].ask = nil
	}
	x := &executor{session: &session{}, operations: &p.operations}
	handled := []clientcore.Op{
		{Kind: clientcore.HostIn}, {Kind: clientcore.Write}, {Kind: clientcore.Query}, {Kind: clientcore.HostOut}, {Kind: clientcore.Launch},
		{Kind: clientcore.Reply, Slot: 3}, failing, {Kind: clientcore.Launch},
	}
	for _, test := range []struct {
		name     string
		answered bool
		marks    journal.Mark
		want     []clientcore.Kind
	}{
		{"answered", true, 0, []clientcore.Kind{clientcore.HostIn, clientcore.Launch}},
		{"not answered", false, 0, []clientcore.Kind{clientcore.HostIn, clientcore.Write, clientcore.Query, clientcore.HostOut, clientcore.Launch, clientcore.Reply}},
		{"bytes given", false, journal.Done, []clientcore.Kind{clientcore.HostIn, clientcore.Write, clientcore.Query, clientcore.Launch, clientcore.Reply}},
	} {
		did = nil
		r := &replay{recovery: &recovery{session: x.session, ops: x}, message: &journal.Message{Marks: test.marks}, silent: test.answered, sent: wire.Header{Slot: 3}}
		last, outcome := r.carryOut(&message{}, handled)
		if !slices.Equal(did, test.want) {
			t.Errorf("%s: did %v, want %v", test.name, did, test.want)
		}
		if last == nil || last.Kind != failing.Kind || outcome.Err != failure {
			t.Errorf("%s: ended with %v, %v", test.name, last, outcome.Err)
		}
	}
}

// A message that was carried out must not be refused when it is handled again.
func TestARefusalIsNotNew(t *testing.T) {
	for _, test := range []struct {
		name             string
		marks            journal.Mark
		answered, passed bool
		ends             bool
	}{
		{"refused before", journal.Refused, true, true, false},
		{"answered before, and not refused", 0, true, false, true},
		{"later ones were answered", 0, false, true, true},
		{"nobody knows", 0, false, false, false},
	} {
		r := &replay{message: &journal.Message{Marks: test.marks}, silent: test.answered, passed: test.passed}
		if _, err := refusedAgain(r, &clientcore.Op{}); errors.Is(err, errNotSame) != test.ends {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}
