package inventory

import (
	"strings"
	"testing"

	"muster/device"
	"muster/node/settings"
	"muster/node/vgpu"
)

func TestNumbersOfDevices(t *testing.T) {
	const up, lost, removed = vgpu.DeviceUp, vgpu.DeviceLost, vgpu.DeviceRemoved
	stock := func(names string) *Inventory {
		v := &Inventory{}
		for _, name := range strings.Fields(names) {
			v.Entries = append(v.Entries, Device{Info: device.Info{Name: name}})
		}
		return v
	}
	full := strings.Repeat("x ", settings.MaxDevices-2) + "y z"
	all := func(n int, is vgpu.DeviceState) []vgpu.DeviceState {
		list := make([]vgpu.DeviceState, n)
		for i := range list {
			list[i] = is
		}
		return list
	}
	for _, c := range []struct {
		names  string
		states []vgpu.DeviceState
		name   string
		wish   int
		want   int
		refuse string
	}{
		{"a b", []vgpu.DeviceState{up, up}, "c", -1, 2, ""},
		{"a b", []vgpu.DeviceState{up, up}, "a", -1, 2, ""},
		{"a b", []vgpu.DeviceState{up, removed}, "b", -1, 1, ""},
		{"a b", []vgpu.DeviceState{up, lost}, "b", -1, 1, ""},
		{"a b", []vgpu.DeviceState{up, removed}, "c", -1, 2, ""},
		{"a a", []vgpu.DeviceState{removed, removed}, "a", 1, 1, ""},
		{"a b", []vgpu.DeviceState{up, removed}, "a", 0, 0, "device #0 is there"},
		{full, all(settings.MaxDevices, up), "c", -1, 0, "the node has 16 devices, as many as it may: remove one first (muster device remove)"},
		{full, append(all(settings.MaxDevices-1, up), removed), "c", -1, settings.MaxDevices - 1, ""},
		{full, append(all(settings.MaxDevices-2, up), removed, lost), "z", -1, settings.MaxDevices - 1, ""},
		{full, append(all(settings.MaxDevices-1, up), lost), "c", -1, 0,
			"all numbers of devices are taken, some by devices that are lost: remove one of those first (muster device remove)"},
	} {
		got, err := stock(c.names).NumberFor(c.name, false, c.wish, func(i vgpu.DeviceID) vgpu.DeviceState { return c.states[i] })
		if c.refuse == "" && (err != nil || got != c.want) || c.refuse != "" && (err == nil || err.Error() != c.refuse) {
			t.Errorf("%s %v, %s (wish %d): %d, %v", c.names, c.states, c.name, c.wish, got, err)
		}
	}
}
