package stock

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"muster/device"
	"muster/node/ask"
	"muster/node/grants"
	"muster/node/settings"
	"muster/node/survival"
	"muster/wire/control"
)

// A device that is new does not get the number of one that is gone and that a grant of the earlier daemon
// names: the job would be given what nobody granted it.
func TestNumbersThatAreGrantedAreNotGivenAgain(t *testing.T) {
	configured := []settings.Device{{DeviceConfig: control.DeviceConfig{Kind: "soft", Name: "new"}}}
	heritage := func(numbers int) *survival.Left {
		left := &survival.Left{}
		for i := range settings.MaxDevices {
			left.Node.Devices = append(left.Node.Devices, survival.DeviceFile{Config: control.DeviceConfig{Kind: "soft", Name: fmt.Sprint("old", i)}})
		}
		left.Node.Grants = make([]grants.Granted, 1)
		for i := range numbers {
			left.Node.Grants[0].Devices = append(left.Node.Grants[0].Devices, ask.GrantedDevice{Device: i})
		}
		return left
	}
	open := func(control.DeviceConfig) (device.Device, error) { return gpu{}, nil }
	is, _, err := AsBefore(configured, heritage(3), open, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range is.Entries {
		if e.Here != (i == 3) {
			t.Errorf("device %d is %+v", i, e.Device)
		}
	}
	if _, _, err := AsBefore(configured, heritage(settings.MaxDevices), open, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("all numbers are granted, and one is given to another device")
	}
}

// Devices that grants have of other nodes are looked at side by side: a daemon that begins does not wait for
// each lender in turn, since its programs wait meanwhile.
func TestLendersAreAskedSideBySide(t *testing.T) {
	left := &survival.Left{}
	left.Node.Grants = make([]grants.Granted, 1)
	for i := range 3 {
		c := control.DeviceConfig{Kind: settings.KindRemote, Index: i, Lender: control.Lender{Address: "far:1", Ticket: "t", Granted: true}}
		left.Node.Devices = append(left.Node.Devices, survival.DeviceFile{Config: c})
		left.Node.Grants[0].Devices = append(left.Node.Grants[0].Devices, ask.GrantedDevice{Device: i, Lender: "far:1", Place: i})
	}
	var asked sync.WaitGroup
	asked.Add(3)
	open := func(c control.DeviceConfig) (device.Device, error) {
		asked.Done()
		asked.Wait() // for the others
		if c.Index == 1 {
			return nil, errors.New("it hangs")
		}
		return gpu{}, nil
	}
	is, _, err := AsBefore(nil, left, open, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range is.Entries {
		if e.Here != (i != 1) || e.Index != i {
			t.Errorf("device %d is %+v", i, e)
		}
	}
	if len(left.Lost) != 1 || left.Lost[0] != 1 {
		t.Errorf("%v are lost", left.Lost)
	}
}
