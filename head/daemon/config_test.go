package daemon

import (
	"os"
	"testing"
)

func TestDefaultState(t *testing.T) {
	t.Setenv("HOME", "/home/alice")
	for xdg, want := range map[string]string{
		"/state": "/state/muster/head", "": "/home/alice/.local/state/muster/head", "relative": "/home/alice/.local/state/muster/head",
	} {
		t.Setenv("XDG_STATE_HOME", xdg)
		if os.Getuid() == 0 {
			want = "/var/lib/muster/head"
		}
		if got := DefaultState(); got != want {
			t.Errorf("XDG_STATE_HOME=%s: got %s, want %s", xdg, got, want)
		}
	}
}
