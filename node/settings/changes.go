package settings

import (
	"reflect"
	"slices"
)

// KeepFixed returns next with the present values of all settings that cannot change while
// the node runs.
func KeepFixed(is *Config, next Config) Config {
	next.Name, next.Socket, next.HTTP, next.Remote, next.Record = is.Name, is.Socket, is.HTTP, is.Remote, is.Record
	next.Head, next.MPS, next.Confine = is.Head, is.MPS, is.Confine
	next.Offload.Peers, next.Offload.Head, next.Offload.Mode = is.Offload.Peers, is.Offload.Head, is.Offload.Mode
	next.WorkerUIDs, next.Connections, next.Swap.Dir = is.WorkerUIDs, is.Connections, is.Swap.Dir
	next.OrphanGrace, next.State, next.Handover = is.OrphanGrace, is.State, is.Handover
	return next
}

// Changed names the settings in which two configurations differ, as the file
// has them.
func Changed(a, b *Config) []string {
	var names []string
	for _, s := range []struct {
		name string
		of   func(*Config) any
	}{
		{"name", func(c *Config) any { return c.Name }},
		{"socket", func(c *Config) any { return c.Socket }},
		{"allow", func(c *Config) any { return c.Allow }},
		{"devices", func(c *Config) any { return c.Devices }},
		{"vgpus", func(c *Config) any { return c.VGPUs }},
		{"visible", func(c *Config) any { return c.Visible }},
		{"policy", func(c *Config) any { return c.Policy }},
		{"max_idle", func(c *Config) any { return c.MaxIdle }},
		{"quantum", func(c *Config) any { return c.Quantum }},
		{"kernel_time", func(c *Config) any { return c.KernelTime }},
		{"migrate", func(c *Config) any { return c.Migrate }},
		{"mapping", func(c *Config) any { return c.Mapping }},
		{"latency", func(c *Config) any { return c.Latency }},
		{"mps", func(c *Config) any { return c.MPS }},
		{"confine", func(c *Config) any { return c.Confine }},
		{"swap.size", func(c *Config) any { return c.Swap.Size }},
		{"swap.dir", func(c *Config) any { return c.Swap.Dir }},
		{"defer", func(c *Config) any { return c.Defer }},
		{"recover", func(c *Config) any { return c.Recover }},
		{"limits", func(c *Config) any { return c.Limits }},
		{"grants", func(c *Config) any { return c.Grants }},
		{"warm", func(c *Config) any { return c.Warm }},
		{"spare", func(c *Config) any { return c.Spare }},
		{"worker_timeout", func(c *Config) any { return c.WorkerTimeout }},
		{"worker_uids", func(c *Config) any { return c.WorkerUIDs }},
		{"grace", func(c *Config) any { return c.Grace }},
		{"orphan_grace", func(c *Config) any { return c.OrphanGrace }},
		{"state", func(c *Config) any { return c.State }},
		{"handover", func(c *Config) any { return c.Handover }},
		{"http", func(c *Config) any { return c.HTTP }},
		{"listen", func(c *Config) any { return c.Remote.Listen }},
		{"tls", func(c *Config) any { return [3]string{c.Remote.Cert, c.Remote.Key, c.Remote.CA} }},
		{"token", func(c *Config) any { return c.Remote.Token }},
		{"plain", func(c *Config) any { return c.Remote.Plain }},
		{"ivm", func(c *Config) any { return c.Remote.IVM }},
		{"ivm_root", func(c *Config) any { return c.Remote.IVMRoot }},
		{"head", func(c *Config) any { return c.Head }},
		{"record", func(c *Config) any { return c.Record }},
		{"peers", func(c *Config) any { return [2]any{c.Offload.Peers, c.Offload.Head} }},
		{"offload", func(c *Config) any { return [3]any{c.Offload.Mode, c.Offload.Above, c.Offload.Keep} }},
		{"connections", func(c *Config) any { return c.Connections }},
	} {
		if !reflect.DeepEqual(s.of(a), s.of(b)) {
			names = append(names, s.name)
		}
	}
	return names
}

// AddedDevices lists the devices of b that are not among those of a. The index of a software
// device is only its place in the file, and makes no difference.
func AddedDevices(a, b []Device) []Device {
	left := slices.Clone(a)
	var more []Device
	for _, c := range b {
		if at := slices.IndexFunc(left, func(other Device) bool { return SameDevice(other, c) }); at >= 0 {
			left = slices.Delete(left, at, at+1)
			continue
		}
		more = append(more, c)
	}
	return more
}

// SameDevice says whether two descriptions mean the same device.
func SameDevice(a, b Device) bool {
	if a.Kind == "soft" && b.Kind == "soft" {
		a.Index, b.Index = 0, 0
	}
	return a == b
}
