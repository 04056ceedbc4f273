package agent

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	wire "muster/wire/agent"
)

// A command for a task whose supervisor has not begun yet waits for it; one for a task
// that is over, or that there is not, does not.
func TestReachWaitsForTheSupervisor(t *testing.T) {
	dir, id := t.TempDir(), wire.Task{Job: 1, Attempt: 1}
	reached := make(chan error, 1)
	go func() {
		conn, err := reach(t.Context(), dir, id)
		if err == nil {
			conn.Close()
		}
		reached <- err
	}()
	select {
	case err := <-reached:
		t.Fatalf("there is no supervisor, and it says %v", err)
	default:
	}
	l, err := listenIn(dir, socketName)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-reached; err != nil {
		t.Errorf("the supervisor is there, and it says %v", err)
	}
	l.Close()
	_ = os.Remove(filepath.Join(dir, socketName))
	if err := os.WriteFile(filepath.Join(dir, endName), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := reach(t.Context(), dir, id); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the task is over, and it says %v", err)
	}
	if _, err := reach(t.Context(), filepath.Join(dir, "none"), id); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("there is no task, and it says %v", err)
	}
}
