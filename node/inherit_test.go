package node

import (
	"fmt"
	"testing"

	"muster/wire/control"
)

// A device that is new does not get the number of one that is gone and that a grant of the earlier daemon
// names: the job would be given what nobody granted it.
func TestNumbersThatAreGrantedAreNotGivenAgain(t *testing.T) {
	cfg := testConfig()
	cfg.Devices = []Device{softDevice("new")}
	heritage := func(numbers int) *inheritance {
		left := &inheritance{}
		for i := range maxDevices {
			left.node.Devices = append(left.node.Devices, deviceFile{Config: control.DeviceConfig{Kind: "soft", Name: fmt.Sprint("old", i)}})
		}
		left.node.Grants = make([]granted, 1)
		for i := range numbers {
			left.node.Grants[0].Devices = append(left.node.Grants[0].Devices, grantedDevice{Device: i})
		}
		return left
	}
	d := &daemon{cfg: cfg, opts: testOptions(), log: testOptions().Log}
	if _, err := d.stockAsBefore(heritage(3)); err != nil {
		t.Fatal(err)
	}
	for i, e := range d.stock.Load().entries {
		if e.here != (i == 3) {
			t.Errorf("device %d is %+v", i, e.Device)
		}
	}
	if _, err := d.stockAsBefore(heritage(maxDevices)); err == nil {
		t.Error("all numbers are granted, and one is given to another device")
	}
}
