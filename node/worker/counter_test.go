package worker

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"muster/device"
)

// A file is given to a worker of the same user that knows its name, while the client has
// it; to nobody else.
func TestCounter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "memory")
	if err := os.WriteFile(path, []byte("contents"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	giver := counter{owner: "1000"}
	defer giver.close()
	asks := func(owner string) *worker { return &worker{counter: counter{owner: owner}} }
	name, err := giver.offer(f)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := asks("1000").fetch(name); err == nil {
		t.Error("it was given before the client had it")
	}
	if giver.take(name) != f || giver.take(name) != f {
		t.Fatal("the client does not get its own file")
	}
	other := name
	other[3]++
	nobody := name
	nobody[0]++
	for _, tt := range []struct {
		owner string
		name  [4]uint64
	}{{"1001", name}, {"", name}, {"10000", name}, {"1000", other}, {"1000", nobody}} {
		if _, err := asks(tt.owner).fetch(tt.name); err == nil {
			t.Errorf("user %q got %v", tt.owner, tt.name)
		}
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			w := asks("1000")
			defer w.counter.close()
			got, err := w.fetch(name)
			if err != nil {
				t.Error(err)
				return
			}
			b := make([]byte, 8)
			if n, err := got.ReadAt(b, 0); n != 8 || string(b) != "contents" {
				t.Errorf("the file has %q: %v", b[:n], err)
			}
			if w.counter.take(name) != got {
				t.Error("it is not found a second time")
			}
		})
	}
	all.Wait()
	giver.put(name, f)
	if _, err := asks("1000").fetch(name); err != nil {
		t.Errorf("the client still has it: %v", err)
	}
	giver.put(name, f)
	if _, err := asks("1000").fetch(name); err == nil {
		t.Error("it was given after the client had closed it")
	}
	if _, err := (&counter{}).offer(f); !errors.Is(err, device.ErrNotSupported) {
		t.Errorf("a program of another machine: %v", err)
	}
}
