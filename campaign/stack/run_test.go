package stack

import (
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// ways are the ways in which muster run reaches a node. None may affect the program.
func ways(t *testing.T) map[string]func(*world) []string {
	return map[string]func(*world) []string{
		"a node":         func(w *world) []string { return []string{"--socket", w.start("--devices", "soft:memory=64M").socket} },
		"a private node": func(*world) []string { return []string{"--private"} },
		"a node elsewhere": func(w *world) []string {
			certs, user := certificates(w)
			n := w.start("--devices", "soft:memory=64M", "--listen", "127.0.0.1:0", "--tls-dir", certs)
			return []string{"--node", n.gateway, "--tls-dir", user}
		},
	}
}

// The exit status is the program's.
func TestRunStatus(t *testing.T) {
	t.Parallel()
	noProgram := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(noProgram, []byte("not a program"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, options := range ways(t) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			way := options(w)
			for _, c := range []struct {
				want int
				args []string
			}{
				{0, []string{"/bin/true"}},
				{3, []string{"/bin/sh", "-c", "exit 3"}},
				{255, []string{"/bin/sh", "-c", "exit 255"}},
				{127, []string{"no-such-program"}},
				{127, []string{"/no/such/program"}},
				{126, []string{noProgram}},
				{126, []string{"/"}},
				{0, []string{made("small"), "sums"}},
				{2, []string{made("small"), "nonsense"}},
			} {
				p := w.launchWith(way, c.args[0], c.args[1:]...)
				if got := p.wait(); got != c.want {
					t.Errorf("%v: %d, not %d: %s", c.args, got, c.want, p.output)
				}
			}
		})
	}
}

// If no worker can serve a program, the program prints why, however it reaches the node.
func TestRunSaysWhyThereIsNoWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	certs, user := certificates(w)
	swap := filepath.Join(t.TempDir(), "swap")
	if err := os.Mkdir(swap, 0o700); err != nil {
		t.Fatal(err)
	}
	n := w.start("--devices", "soft:memory=64M", "--swap-dir", swap, "--listen", "127.0.0.1:0", "--tls-dir", certs)
	if err := os.Remove(swap); err != nil { // while it runs
		t.Fatal(err)
	}
	for name, way := range map[string][]string{
		"a node":           {"--socket", n.socket},
		"a node elsewhere": {"--node", n.gateway, "--tls-dir", user},
	} {
		p := w.launchWith(way, made("small"), "sums")
		why := "muster: no worker can serve the program: making the swap file: open " + swap + "/muster-swap-"
		if got := p.wait(); got == 0 || !strings.Contains(p.output.String(), why) {
			t.Errorf("%s: the program ended with %d: %s", name, got, p.output)
		}
	}
	n.idle()
}

// muster run forwards its signals to the program, and a signal that ends the program ends muster
// run.
func TestRunSignals(t *testing.T) {
	t.Parallel()
	for name, options := range ways(t) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			way := options(w)
			for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGQUIT} {
				if signal.Ignored(s) {
					continue // as SIGHUP under nohup: a shell cannot trap what it was started to ignore
				}
				p := w.launchWith(way, "/bin/sh", "-c", fmt.Sprintf("trap 'echo caught; exit 7' %d; echo waiting; while :; do sleep 0.01; done", int(s)))
				p.says("waiting")
				_ = p.cmd.Process.Signal(s)
				if got := p.wait(); got != 7 || !strings.Contains(p.output.String(), "caught") {
					t.Errorf("%v: %d: %s", s, got, p.output)
				}
			}
			for _, s := range []syscall.Signal{syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGKILL, syscall.SIGTERM, syscall.SIGFPE} {
				p := w.launchWith(way, "/bin/sh", "-c", fmt.Sprintf("ulimit -c 0; kill -%d $$", int(s)))
				p.wait()
				if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Signaled() || status.Signal() != s {
					t.Errorf("%v: muster run ended with %v", s, p.cmd.ProcessState)
				}
			}
			// What muster run was started to ignore, the program ignores too: nohup muster run.
			nohup := append([]string{"-c", `trap '' HUP; exec "$@"`, "sh", made("muster"), "run"}, way...)
			if got := w.execute("/bin/sh", append(nohup, "--", "/bin/sh", "-c", "kill -HUP $$; exit 7")...).wait(); got != 7 {
				t.Errorf("under nohup the program ended with %d", got)
			}
			p := w.launchWith(way, made("small"), "hold", "1000") // one that has a client
			p.says("holding")
			_ = p.cmd.Process.Signal(syscall.SIGTERM)
			<-p.exited // its input stays open: at the end of that it would end by itself
			if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGTERM {
				t.Errorf("muster run ended with %v", p.cmd.ProcessState)
			}
		})
	}
}

// Standard input and output are the program's; a private node says so once, on
// standard error.
func TestRunPipes(t *testing.T) {
	t.Parallel()
	for name, options := range ways(t) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.launchWith(options(w), "/bin/sh", "-c", "cat; echo to stderr >&2")
			text := strings.Repeat("0123456789abcdef\n", 20000)
			go func() {
				_, _ = p.stdin.Write([]byte(text))
				p.stdin.Close()
			}()
			<-p.exited
			got := p.output.String()
			private := strings.Count(got, "muster: started a node for this program alone")
			if want := map[bool]int{true: 1}[name == "a private node"]; private != want || strings.Count(got, "muster: ") != want {
				t.Errorf("a private node was announced %d times: %.300s", private, got)
			}
			if strings.Count(got, "0123456789abcdef\n") != 20000 || !strings.Contains(got, "to stderr\n") {
				t.Errorf("%d bytes came back of %d", len(got), len(text))
			}
		})
	}
}
