package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"muster/node/ask"
)

// The user of a program that no device takes is told so, once, while the program waits.
func TestUserIsToldThatDevicesAreDrained(t *testing.T) {
	h := newHouse(t)
	h.start()
	p := h.connect()
	addVectors(t, p)
	socket := h.cfg.Socket.Address
	s, err := ask.Status(socket)
	if err != nil {
		t.Fatal(err)
	}
	for i := range s.Devices {
		changes(t)(ask.DrainDevice(socket, fmt.Sprintf("#%d", i)))
	}
	told := make(chan []string)
	go func() { // the program waits below, until a device is resumed
		var lines []string
		for deadline := time.Now().Add(4 * time.Minute); len(lines) == 0 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			lines = p.shared.Notices()
		}
		_, _ = ask.ResumeDevice(socket, "#0")
		told <- lines
	}()
	for {
		addVectors(t, p) // once more if its worker had not heard that it must leave the device
		select {
		case lines := <-told:
			if len(lines) != 1 || !strings.HasPrefix(lines[0], "all devices of the node are drained; the program waits until one is resumed") {
				t.Errorf("the user was told %q", lines)
			}
			return
		default:
		}
	}
}
