package node

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The user of a program that no device takes is told so, once, while the program waits.
func TestUserIsToldThatDevicesAreDrained(t *testing.T) {
	h := newHouse(t)
	h.start()
	p := h.connect()
	addVectors(t, p)
	socket := h.cfg.Socket.Address
	s, err := Ask(socket)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Devices {
		changes(t)(DrainDevice(socket, fmt.Sprintf("#%d", i)))
	}
	told := make(chan []string)
	go func() { // the program waits below, until a device is resumed
		var lines []string
		for range 1000 {
			if lines = p.shared.Notices(); len(lines) > 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		_, _ = ResumeDevice(socket, "#0")
		told <- lines
	}()
	addVectors(t, p)
	if lines := <-told; len(lines) != 1 || !strings.HasPrefix(lines[0], "all devices of the node are drained; the program waits until one is resumed") {
		t.Errorf("the user was told %q", lines)
	}
}
