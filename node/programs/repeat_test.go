package programs

import (
	"context"
	"errors"
	"math"
	"os"
	"slices"
	"testing"

	"muster/wire/status"
)

// Saves go on after one that failed, and end with what is saved or with the context.
func TestRepeat(t *testing.T) {
	broken := errors.New("the disk is full")
	saves, failures := 0, 0
	save := func(context.Context) error {
		saves++
		if saves == 2 || saves == 4 { // the last time it is gone
			return broken
		}
		return nil
	}
	Repeat(t.Context(), 1, func() bool { return saves >= 4 }, save, func(err error) {
		failures++
		if err != broken {
			t.Error(err)
		}
	})
	if saves != 4 || failures != 1 {
		t.Errorf("%d saves, %d failures", saves, failures)
	}
	ctx, cancel := context.WithCancel(t.Context())
	Repeat(ctx, 1, func() bool { return false }, func(context.Context) error { cancel(); return broken }, func(err error) { t.Error(err) })
}

func TestAddArguments(t *testing.T) {
	pid := int32(os.Getpid())
	s := status.Node{Clients: []status.Client{
		{Pid: pid, Program: os.Args[0]}, {Pid: pid, Program: "another"}, {Pid: pid, Program: os.Args[0], Address: "192.0.2.7:1234"},
		{Pid: pid, Program: os.Args[0], Address: "127.0.0.1:1234"}, {Pid: pid, Program: os.Args[0], Guest: true}, {Pid: math.MaxInt32, Program: os.Args[0]},
	}}
	AddArguments(&s)
	for i, here := range []bool{true, false, false, true, false, false} {
		want := []string(nil)
		if here {
			want = os.Args[1:]
		}
		if got := s.Clients[i].Arguments; !slices.Equal(got, want) {
			t.Errorf("client %d: got %q, want %q", i, got, want)
		}
	}
}
