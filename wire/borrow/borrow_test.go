package borrow

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// The bytes of messages, which other versions must be able to read.
func TestBytes(t *testing.T) {
	for _, c := range []struct {
		say  any
		want string
	}{
		{Question{Version: 4, Node: "n1"}, `{"version":4,"node":"n1","slots":0}`},
		{Question{Version: 4, Node: "n1", Slots: 4, Holds: []string{"a", "b"}}, `{"version":4,"node":"n1","slots":4,"holds":["a","b"]}`},
		{Question{Version: 4, Node: "n1", Slots: 1, Apart: true, Speed: 0.75}, `{"version":4,"node":"n1","slots":1,"apart":true,"speed":0.75}`},
		{Answer{Version: 4, Node: "n2", Slots: 8, Free: 8, Idle: 2, Fastest: 2, Unused: 1.5}, `{"version":4,"node":"n2","slots":8,"free":8,"waiting":0,"idle":2,"fastest":2,"unused":1.5}`},
		{Answer{Version: 4, Node: "n2", Slots: 8, Free: 3, Waiting: 1, Idle: 2}, `{"version":4,"node":"n2","slots":8,"free":3,"waiting":1,"idle":2}`},
		{Answer{Version: 4, Node: "n2", Ticket: &Ticket{ID: "a", Device: 1, Slots: 2, Speed: 0.5}, Recalls: []string{"b"}, Loads: []Load{{Device: 1, Calls: 990, Each: 5}}},
			`{"version":4,"node":"n2","slots":0,"free":0,"waiting":0,"idle":0,"ticket":{"id":"a","device":1,"slots":2,"speed":0.5},"recalls":["b"],"loads":[{"device":1,"calls":990,"each":5}]}`},
	} {
		got, err := Encode(c.say)
		if err != nil || string(got) != c.want+"\n" {
			t.Errorf("got %s, %v; want %s", got, err, c.want)
		}
		var back any
		switch c.say.(type) {
		case Question:
			back, err = ReadQuestion(got)
		case Answer:
			back, err = ReadAnswer(got)
		}
		if err != nil || !reflect.DeepEqual(back, c.say) {
			t.Errorf("%s is read as %+v, %v", got, back, err)
		}
	}
}

func TestRefused(t *testing.T) {
	ids := strings.Repeat(`"x",`, MaxHolds) + `"x"`
	for line, want := range map[string]string{
		``:                                     "not what nodes say",
		`null`:                                 "version 0",
		`{"version":3,"node":"n"}`:             "speaks version 3",
		`{"version":4,"node":"n","more":1}`:    "unknown field",
		`{"version":4,"node":"n"} {}`:          "not what nodes say",
		`{"version":4,"node":""}`:              "no name",
		`{"version":4,"node":"a\u001b[2J"}`:    "no name",
		`{"version":4,"node":"n","slots":-1}`:  "slots is -1",
		`{"version":4,"node":"n","slots":1e9}`: "slots",
		`{"version":4,"node":"n","apart":true,"speed":-1}`:        "speed is -1",
		`{"version":4,"node":"n","apart":true,"speed":2e6}`:       "speed is 2e+06",
		`{"version":4,"node":"n","slots":1,"speed":1}`:            "no other client uses",
		`{"version":4,"node":"n","holds":[""]}`:                   "no ticket",
		`{"version":4,"node":"n","holds":[` + ids + `]}`:          "at most 64",
		`{"version":4,"node":"n","holds":[1]}`:                    "cannot unmarshal",
		`{"version":4,"node":"` + strings.Repeat("n", MaxLine):    "bytes",
		`{"version":4,"node":"` + strings.Repeat("n", 254) + `"}`: "no name",
	} {
		if _, err := ReadQuestion([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %v, want %q", line, err, want)
		}
	}
	for line, want := range map[string]string{
		`{"version":4,"node":"n","ticket":{"id":"a","device":0,"slots":1,"speed":0}}`:  "speed 0",
		`{"version":4,"node":"n","ticket":{"id":"a","device":-1,"slots":1,"speed":1}}`: "device is -1",
		`{"version":4,"node":"n","ticket":{"id":"","device":0,"slots":1,"speed":1}}`:   "no ticket",
		`{"version":4,"node":"n","free":-3}`:                                           "free is -3",
		`{"version":4,"node":"n","fastest":-2}`:                                        "fastest is -2",
		`{"version":4,"node":"n","fastest":1e7}`:                                       "fastest is 1e+07",
		`{"version":4,"node":"n","idle":1,"fastest":1,"unused":2}`:                     "an idle device of speed 2",
		`{"version":4,"node":"n","fastest":1,"unused":1}`:                              "of 0 idle ones",
		`{"version":4,"node":"n","fastest":1,"unused":-1}`:                             "unused is -1",
		`{"version":4,"node":"n","loads":[{"device":-1,"calls":1,"each":1}]}`:          "device is -1",
		`{"version":4,"node":"n","loads":[{"device":0,"calls":1,"each":-1}]}`:          "kernels of -1ns",
		`{"version":4,"error":"no\n room"}`:                                            "it refuses: no? room",
	} {
		if _, err := ReadAnswer([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: got %v, want %q", line, err, want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(`{"version":4,"node":"n1","slots":4,"holds":["a","b"]}`))
	f.Add([]byte(`{"version":4,"node":"n2","slots":8,"free":3,"waiting":1,"ticket":{"id":"a","device":1,"slots":2,"speed":0.5},"recalls":["b"]}`))
	f.Add([]byte(`{"version":4,"node":"n1","slots":1,"apart":true,"speed":0.75}`))
	f.Add([]byte(`{"version":4,"node":"n2","slots":8,"free":8,"waiting":0,"idle":2,"fastest":2,"unused":1.5}`))
	f.Add([]byte(`{"version":4,"error":"no"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		if q, err := ReadQuestion(line); err == nil {
			again(t, q, func(b []byte) (any, error) { return ReadQuestion(b) })
		}
		if a, err := ReadAnswer(line); err == nil {
			again(t, a, func(b []byte) (any, error) { return ReadAnswer(b) })
		}
	})
}

// again encodes what was parsed, and parses it.
func again(t *testing.T, m any, read func([]byte) (any, error)) {
	line, err := Encode(m)
	if err != nil {
		return // it was shorter as it arrived
	}
	back, err := read(line)
	if err != nil || fmt.Sprintf("%+v", back) != fmt.Sprintf("%+v", m) {
		if a, ok := m.(Answer); !ok || a.Ticket == nil { // a ticket is printed as an address
			t.Fatalf("%+v is written as %s and read as %+v, %v", m, line, back, err)
		}
	}
}
