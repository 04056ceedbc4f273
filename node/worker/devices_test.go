package worker

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"muster/device"
	"muster/device/soft"
	"muster/wire/control"
)

// add tells the worker of a device, under a number.
func (c *client) add(number int, name string) {
	c.t.Helper()
	lock, err := os.Open(os.DevNull)
	if err != nil {
		c.t.Fatal(err)
	}
	defer lock.Close()
	if err := c.daemon.control.Send(control.AddDevice{Device: number, Config: control.DeviceConfig{Kind: "soft", Name: name}}, lock); err != nil {
		c.t.Fatal(err)
	}
}

// addNext lets the next device come, if there is one.
func (c *client) addNext() {
	c.t.Helper()
	d := c.daemon
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.o.later == 0 {
		return
	}
	number := len(d.o.devices) - d.o.later
	c.add(number, d.o.devices[number].Name)
	d.o.later--
}

// A device that has no name of its own, as one of another node, is named by its number.
func TestNamelessDeviceIsNamed(t *testing.T) {
	d := newDevices(make([]control.DeviceConfig, 2), make([]*os.File, 2), 0, nil, func(control.DeviceConfig, *os.File) (device.Device, error) {
		return nil, errors.New("a device of another node: no answer")
	}, nil)
	if _, err := d.at(1); err == nil || err.Error() != "opening device 1: a device of another node: no answer" {
		t.Error(err)
	}
}

// A device comes while a program runs, and is where it goes on; the first one goes, and
// another comes in its place.
func TestDeviceComesWhileAProgramRuns(t *testing.T) {
	var where int
	c := newClient(t, options{
		devices: []soft.Profile{
			{Name: "one", Memory: 64 * mib, Speed: 1, Workers: 1}, {Name: "two", Memory: 32 * mib, Speed: 0.5, Workers: 2}, {Name: "three", Memory: 64 * mib, Speed: 1, Workers: 1},
		},
		later: 2,
		grant: func(m control.Want) (int, uint64) { return where, m.Memory },
	})
	goTo := func(number int) { // the daemon's mutex guards where
		c.daemon.mu.Lock()
		where = number
		c.daemon.mu.Unlock()
	}
	v := newVectors(c, 200_000)
	v.round(1)
	c.addNext()
	goTo(1)
	c.revoke("drain")
	if kept := hear[control.Released](c, 1).Keeps; kept != 0 {
		t.Errorf("%d bytes are kept on a device that is drained", kept)
	}
	v.round(2)
	c.revoke("move")
	if kept := hear[control.Released](c, 2).Keeps; kept != 0 {
		t.Errorf("%d bytes are kept on a device that the client is to leave", kept)
	}
	c.tell(control.Lost{Device: 0, Reason: "taken out"})
	want := floats(v.n, func(k int) float32 { return float32(k+2) + float32(2*k) })
	if got := v.out(v.c, uint64(4*v.n)); !bytes.Equal(got, want) {
		t.Error("the sum is lost after a device went on which nothing was")
	}
	c.addNext()
	goTo(2)
	v.round(3)
	c.revoke("idle")
}

// The daemon cannot leave a gap in the numbers, nor replace a device that is used.
func TestDevicesThatCannotCome(t *testing.T) {
	for name, want := range map[string]string{"gap": "the daemon adds device 2 to 1", "used": "the daemon adds device 0, which the client uses"} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, options{})
			v := newVectors(c, 1000)
			v.round(1)
			c.add(map[string]int{"gap": 2, "used": 0}[name], "test")
			err := <-c.ended
			c.ended <- err
			reason, closed := c.shared.Closed()
			if !closed || !strings.Contains(reason, want) {
				t.Errorf("the program was told %q, %v (%v)", reason, closed, err)
			}
		})
	}
}
