package vitals

import (
	"slices"
	"testing"
)

func TestGrown(t *testing.T) {
	before := Vitals{descriptors: map[string]int{"socket": 5, "/memfd:muster-lock": 2}, threads: 10, resident: 30_000, sharedKiB: 100}
	for _, c := range []struct {
		name string
		now  Vitals
		want []string
	}{
		{"the same", before, nil},
		{"less, and a little more memory", Vitals{map[string]int{"socket": 4}, 12, 50_000, 200}, nil},
		{"a socket", Vitals{map[string]int{"socket": 6}, 10, 30_000, 100}, []string{"6 descriptors of socket, and 5 in the beginning"}},
		{"another kind", Vitals{map[string]int{"/memfd:muster-ring": 1}, 10, 30_000, 100}, []string{"1 descriptors of /memfd:muster-ring, and 0 in the beginning"}},
		{"threads", Vitals{nil, 43, 0, 0}, []string{"43 threads, and 10 in the beginning"}},
		{"memory", Vitals{nil, 0, 100_000, 0}, []string{"100000 KiB of memory, and 30000 KiB in the beginning"}},
		{"shared memory", Vitals{nil, 0, 0, 5000}, []string{"5000 KiB of shared memory, and 100 KiB in the beginning"}},
	} {
		if got := Grown(before, c.now); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if locks := (Vitals{map[string]int{"/tmp/lock-N": 3}, 0, 0, 0}); true {
		locks.AllowInAll("/tmp/lock-1", 5)
		locks.AllowInAll("/tmp/lock-1", 4)
		if got := Grown(locks, Vitals{map[string]int{"/tmp/lock-N": 6}, 0, 0, 0}); len(got) != 1 || Grown(locks, Vitals{map[string]int{"/tmp/lock-N": 5}, 0, 0, 0}) != nil {
			t.Errorf("of 5 descriptors that are allowed, 6 are %q", got)
		}
	}
	for to, want := range map[string]string{
		"socket:[123]": "socket", "pipe:[1]": "pipe", "anon_inode:[eventpoll]": "anon_inode:[eventpoll]",
		"/memfd:muster-ring (deleted)": "/memfd:muster-ring", "/tmp/a/node-12.log": "/tmp/a/node-N.log",
	} {
		if got := descriptorKind(to); got != want {
			t.Errorf("%s: %s, want %s", to, got, want)
		}
	}
}
