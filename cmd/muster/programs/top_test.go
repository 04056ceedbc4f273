package programs

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"muster/internal/need"
	"muster/wire/status"
)

// atWork is a node at two moments, a second apart.
func atWork() (before, now *status.Node) {
	const gib = 1 << 30
	before = &status.Node{Node: "n1", Up: 10, Policy: "fcfs",
		Devices: []status.Device{{Name: "a", State: "up", Memory: 80 * gib, Free: 80 * gib, BusyTime: 3}, {Name: "b", State: "up", Memory: 8 * gib, Free: 8 * gib}},
		Clients: []status.Client{{ID: 1, CopiedIn: gib}, {ID: 2, SwapOut: 7}}}
	now = &status.Node{Node: "n1", Up: 11, Policy: "fcfs",
		Devices: []status.Device{{Name: "a", State: "up", Memory: 80 * gib, Free: 20 * gib, BusyTime: 3.5}, {Name: "b", State: "removed", Memory: 8 * gib}},
		Clients: []status.Client{{ID: 1, CopiedIn: gib + 2_000_000_000, CopiedOut: 500_000}},
		Ended:   []status.Client{{ID: 2, SwapOut: 7, SwapIn: 1234, CopiedOut: 500_000}, {ID: 3, CopiedIn: 10}}}
	return before, now
}

// fakeNode answers the question for a status with one after the other, and then with the
// last.
func fakeNode(t *testing.T, all ...*status.Node) (socket string) {
	socket = filepath.Join(t.TempDir(), "socket")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for i := 0; ; i++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(conn).ReadString('\n')
			b, _ := json.Marshal(all[min(i, len(all)-1)])
			fmt.Fprintf(conn, "%s\n", b)
			conn.Close()
		}
	}()
	return socket
}

// openTerminal makes a terminal of a size, and the end that a person has.
func openTerminal(t *testing.T, columns, rows uint16) (person, terminal *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		need.Missing(t, need.System, "no terminals can be made here:", err)
	}
	t.Cleanup(func() { person.Close() })
	var number, unlocked int32
	if err := ioctl(person, syscall.TIOCSPTLCK, unsafe.Pointer(&unlocked)); err != nil {
		t.Fatal(err)
	}
	if err := ioctl(person, syscall.TIOCGPTN, unsafe.Pointer(&number)); err != nil {
		t.Fatal(err)
	}
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminal.Close() })
	size := struct{ rows, columns, x, y uint16 }{rows, columns, 0, 0}
	if err := ioctl(terminal, syscall.TIOCSWINSZ, unsafe.Pointer(&size)); err != nil {
		t.Fatal(err)
	}
	return person, terminal
}

// A small terminal has bars that fit, drawn over each other; a dumb one has lines only.
func TestTopOnATerminal(t *testing.T) {
	before, now := atWork()
	for _, c := range []struct {
		name, term, noColour, want string
		columns                    uint16
	}{
		{"narrow", "xterm", "", "\x1b[KGPU 0      [\x1b[32m###\x1b[0m--] 50.0 % in use", 53},
		{"without colours", "xterm", "1", "\x1b[KGPU 0      [###--] 50.0 % in use\r", 53},
		{"dumb", "dumb", "", "\nGPU 0      50.0 % in use\r", 40},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("TERM", c.term)
			t.Setenv("NO_COLOR", c.noColour)
			person, terminal := openTerminal(t, c.columns, 24)
			f := topFlags{where: whereFlags{socket: fakeNode(t, before, now)}, interval: 10 * time.Millisecond}
			root := NewTop()
			root.SetOut(terminal)
			root.SetContext(t.Context())
			stop, ended := make(chan os.Signal, 1), make(chan error, 1)
			go func() {
				if isDumb() {
					ended <- f.print(root, stop)
				} else {
					ended <- f.live(root, terminal, stop)
				}
			}()
			var seen strings.Builder
			for b := make([]byte, 4096); !strings.Contains(seen.String(), c.want); {
				n, err := person.Read(b)
				if err != nil {
					t.Fatalf("%v after %q", err, seen.String())
				}
				if seen.Write(b[:n]); seen.Len() > 1<<20 {
					t.Fatalf("no %q in %q", c.want, seen.String()[:1<<13])
				}
			}
			if escapes := strings.Contains(seen.String(), "\x1b"); escapes == isDumb() {
				t.Errorf("escapes: %v in %q", escapes, seen.String())
			}
			stop <- os.Interrupt
			go io.Copy(io.Discard, person)
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

func ioctl(f *os.File, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}
