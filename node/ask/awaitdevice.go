package ask

import (
	"fmt"
	"io"
	"strings"
	"time"

	"muster/wire/status"
)

// When the user is told that a device takes long to empty, and how often.
const (
	firstWord = 2 * time.Second
	moreWords = 10 * time.Second
	lookEvery = 100 * time.Millisecond
)

// AwaitDevice waits until a device of the node at a socket is in a state, and notes in changed how it
// is then. It tells w whom it waits for, if that takes long.
func AwaitDevice(w io.Writer, socket string, changed *status.Changed, state string) error {
	next := time.Now().Add(firstWord)
	for {
		s, err := Status(socket)
		if err != nil {
			return err
		}
		d := s.Devices[*changed.Number]
		changed.Device = &d
		switch {
		case d.State == state || d.State == "removed":
			return nil
		case d.State == "up" || state == "removed" && !d.Removing:
			return fmt.Errorf("device #%d (%s) is %s: somebody has resumed it meanwhile", *changed.Number, d.Name, d.State)
		case d.State == "lost" && state != "removed":
			return fmt.Errorf("device #%d (%s) is lost", *changed.Number, d.Name)
		}
		if time.Now().After(next) {
			next = time.Now().Add(moreWords)
			fmt.Fprintln(w, "muster:", whoHoldsUp(s, *changed.Number))
		}
		time.Sleep(lookEvery)
	}
}

// whoHoldsUp names the clients that a draining device waits for.
func whoHoldsUp(s *status.Node, number int) string {
	var there, waiting []string
	for _, c := range s.Clients {
		switch {
		case c.Device != nil && *c.Device == number:
			there = append(there, fmt.Sprint(c.ID))
		case c.Parked:
			waiting = append(waiting, fmt.Sprint(c.ID))
		}
	}
	name, drained := fmt.Sprintf("device #%d (%s)", number, s.Devices[number].Name), drainedBeside(s, number)
	switch {
	case len(there) > 0:
		return fmt.Sprintf("waiting for client %s to leave %s: kernels are let to their end", strings.Join(there, ", "), name)
	case len(waiting) > 0 && len(drained) > 0:
		return fmt.Sprintf("client %s waits for a device, and other devices are drained: let one take programs again (muster device resume %s), add one, or remove %s with --force, after which the client fails",
			strings.Join(waiting, ", "), drained[0], name)
	case len(waiting) > 0:
		return fmt.Sprintf("client %s waits for a device, and may be able to use none but %s: add one that it can use, or remove this one with --force", strings.Join(waiting, ", "), name)
	}
	return "waiting for what programs keep on " + name
}

// drainedBeside are the numbers of the other devices that are drained or
// draining and that a user could resume.
func drainedBeside(s *status.Node, number int) []string {
	var list []string
	for i, d := range s.Devices {
		if i != number && (d.State == "draining" || d.State == "drained") && !d.Removing {
			list = append(list, fmt.Sprintf("'#%d'", i))
		}
	}
	return list
}
