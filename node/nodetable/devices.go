package nodetable

import (
	"fmt"
	"io"

	"muster/internal/units"
	"muster/report"
	"muster/wire/status"
)

// device is a row of the table of devices.
type device struct {
	status.Device
	number int
	before *status.Node // how the node was; nil if that is not known
}

var deviceColumns = []column[device]{
	{">DEVICE", "number", func(_ *status.Node, d *device) string { return fmt.Sprint(d.number) }},
	{"<NAME", "name", func(_ *status.Node, d *device) string { return d.Name }},
	{"<KIND", "kind", func(_ *status.Node, d *device) string { return d.Kind }},
	{"<STATE", "state", func(_ *status.Node, d *device) string { return State(&d.Device) }},
	{">SPEED", "speed", func(_ *status.Node, d *device) string { return report.Number(d.Speed) }},
	{">MEMORY", "memory_bytes", func(_ *status.Node, d *device) string { return units.BriefSize(d.Memory) }},
	{">FREE", "free_bytes", func(_ *status.Node, d *device) string { return units.BriefSize(d.Free) }},
	{">VGPUS", "vgpus", func(_ *status.Node, d *device) string { return fmt.Sprint(d.Slots) }},
	{">ASSIGNED", "assigned", func(_ *status.Node, d *device) string { return fmt.Sprint(d.Assigned) }},
	{">BUSY", "busy", func(_ *status.Node, d *device) string { return fmt.Sprint(d.Busy) }},
	{">GPU", "gpu_s", func(s *status.Node, d *device) string {
		if d.before == nil {
			return report.BriefTime(d.BusyTime)
		}
		if use, ok := useSince(s, d.before, d.number); ok {
			return report.Percent(use)
		}
		return "-"
	}},
}

// Devices lists a node's devices, those that were removed if all are wanted; with an earlier status
// it says how busy they were since.
func Devices(s, before *status.Node, all bool) *report.Table {
	var list []device
	for i, d := range s.Devices {
		if d.State != "removed" || all {
			list = append(list, device{d, i, before})
		}
	}
	t := tableOf(deviceColumns, s, list)
	if before != nil {
		t.Columns[len(t.Columns)-1].Name = "GPU NOW"
	}
	return t
}

// WriteDevices writes Devices as they fit on a terminal of so many columns; 0 if it is none.
func WriteDevices(w io.Writer, s *status.Node, all bool, columns int) error {
	const telling = 4 // columns that say which device it is, and its state
	return writeNarrowed(w, Devices(s, nil, all), columns, telling, "--json")
}

// busyDevices is the table of muster top, which has no room for all of it.
func busyDevices(s, before *status.Node) *report.Table {
	return Devices(s, before, false).Without("SPEED", "BUSY")
}

// useSince is the part of the time since an earlier status for which a device ran kernels.
func useSince(s, before *status.Node, number int) (use float64, ok bool) {
	span := s.Up - before.Up
	if span <= 0 || number >= len(before.Devices) {
		return 0, false
	}
	return min(1, max(0, s.Devices[number].BusyTime-before.Devices[number].BusyTime)/span), true
}

// State is the state of a device, and whether it will be removed.
func State(d *status.Device) string {
	if d.Removing {
		return d.State + ", to be removed"
	}
	return d.State
}
