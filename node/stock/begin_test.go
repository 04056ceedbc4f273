package stock

import (
	"fmt"
	"log/slog"
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
