// Package nodefile reads the configuration of a node: a strict YAML file, and
// the short form of a list of devices that a command line takes.
//
// What is wrong is named with file, line, column and remedy. The package knows nothing of
// how a node works, and does not look at the machine.
package nodefile

import (
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"muster/internal/units"
	"muster/internal/wholefile"
	"muster/mapping"
	"muster/model/strictyaml"
	"muster/node/settings"
	"muster/node/vgpu"
	"muster/wire/control"
)

// fileLimit is larger than any real configuration: one with 100,000 users fits.
var fileLimit = wholefile.Limit{Bytes: 16 << 20, Remedy: "is it the configuration of a node?"}

// AllCUDA, as the Index of a device of kind cuda, stands for all devices that the driver
// has.
const AllCUDA = -1

// ReadFile reads the file into a configuration. Settings that the file does not name keep
// their values.
func ReadFile(path string, into *settings.Config) error {
	text, err := fileLimit.ReadFile(path)
	if err != nil {
		return err
	}
	return Read(text, path, into)
}

// Read reads a configuration. The name stands for the file in errors.
func Read(text []byte, name string, into *settings.Config) error {
	d := &decoder{File: strictyaml.File{
		Name: name, What: "a node's configuration", Empty: "say what the node has, as devices: [{soft: {memory: 1GiB}}], or do without a file",
	}}
	return strictyaml.Into(&d.File, text, into, d.document)
}

type decoder struct{ strictyaml.File }

func (d *decoder) document(root strictyaml.Node, c *settings.Config) error {
	_, err := d.Fields(root, d.What,
		strictyaml.Key("name", d.Identifier("name", &c.Name)),
		strictyaml.Key("socket", func(n strictyaml.Node) error { return d.socket(n, &c.Socket) }),
		strictyaml.Key("allow", func(n strictyaml.Node) error { return d.allow(n, c) }),
		strictyaml.Key("devices", func(n strictyaml.Node) error { return d.devices(n, c) }),
		strictyaml.Key("vgpus", d.Count("vgpus", 1, 1024, &c.VGPUs)),
		strictyaml.Key("visible", d.Count("visible", 1, 16, &c.Visible)),
		strictyaml.Key("policy", strictyaml.Value(&d.File, "policy", &c.Policy, parsePolicy)),
		strictyaml.Key("max_idle", strictyaml.Value(&d.File, "max_idle", &c.MaxIdle, parseShort)),
		strictyaml.Key("quantum", strictyaml.Value(&d.File, "quantum", &c.Quantum, Quantum)),
		strictyaml.Key("kernel_time", func(n strictyaml.Node) error { return d.kernelTimes(n, &c.KernelTime) }),
		strictyaml.Key("mps", strictyaml.Value(&d.File, "mps", &c.MPS, settings.ParseMPS)),
		strictyaml.Key("confine", strictyaml.Value(&d.File, "confine", &c.Confine, settings.ParseConfine)),
		strictyaml.Key("latency", func(n strictyaml.Node) error { return d.latency(n, &c.Latency) }),
		strictyaml.Key("migrate", strictyaml.Value(&d.File, "migrate", &c.Migrate, Migrate)),
		strictyaml.Key("mapping", strictyaml.Value(&d.File, "mapping", &c.Mapping, Mapping)),
		strictyaml.Key("swap", func(n strictyaml.Node) error {
			_, err := d.Fields(n, "swap", strictyaml.Key("size", d.bytes("size", &c.Swap.Size)), strictyaml.Key("dir", d.Text("dir", &c.Swap.Dir)))
			return err
		}),
		strictyaml.Key("defer", d.Bool("defer", &c.Defer)),
		strictyaml.Key("recover", strictyaml.Value(&d.File, "recover", &c.Recover, OnOff)),
		strictyaml.Key("limits", func(n strictyaml.Node) error { return d.limits(n, &c.Limits) }),
		strictyaml.Key("grants", strictyaml.Value(&d.File, "grants", &c.Grants, settings.ParseGrantMode)),
		strictyaml.Key("warm", d.Count("warm", 0, 256, &c.Warm)),
		strictyaml.Key("spare", strictyaml.Value(&d.File, "spare", &c.Spare, settings.ParseSpares)),
		strictyaml.Key("worker_timeout", strictyaml.Value(&d.File, "worker_timeout", &c.WorkerTimeout, parseTimeout)),
		strictyaml.Key("worker_uids", strictyaml.Value(&d.File, "worker_uids", &c.WorkerUIDs, parseUIDs)),
		strictyaml.Key("grace", strictyaml.Value(&d.File, "grace", &c.Grace, parseShort)),
		strictyaml.Key("orphan_grace", strictyaml.Value(&d.File, "orphan_grace", &c.OrphanGrace, parseShort)),
		strictyaml.Key("state", d.Text("state", &c.State)),
		strictyaml.Key("handover", d.Bool("handover", &c.Handover)),
		strictyaml.Key("http", strictyaml.Value(&d.File, "http", &c.HTTP, parseAddress)),
		strictyaml.Key("listen", strictyaml.Value(&d.File, "listen", &c.Remote.Listen, parseAddress)),
		strictyaml.Key("tls", func(n strictyaml.Node) error {
			_, err := d.Fields(n, "tls", strictyaml.Key("cert", d.Text("cert", &c.Remote.Cert)),
				strictyaml.Key("key", d.Text("key", &c.Remote.Key)), strictyaml.Key("ca", d.Text("ca", &c.Remote.CA)))
			return err
		}),
		strictyaml.Key("token", d.Text("token", &c.Remote.Token)),
		strictyaml.Key("plain", d.Bool("plain", &c.Remote.Plain)),
		strictyaml.Key("ivm", d.Bool("ivm", &c.Remote.IVM)),
		strictyaml.Key("ivm_root", d.Bool("ivm_root", &c.Remote.IVMRoot)),
		strictyaml.Key("head", func(n strictyaml.Node) error { return d.head(n, &c.Head) }),
		strictyaml.Key("peers", func(n strictyaml.Node) error { return d.peers(n, &c.Offload) }),
		strictyaml.Key("offload", func(n strictyaml.Node) error { return d.offload(n, &c.Offload) }),
		strictyaml.Key("record", func(n strictyaml.Node) error {
			_, err := d.Fields(n, "record", strictyaml.Key("file", d.Text("file", &c.Record.File)), strictyaml.Key("limit", d.bytes("limit", &c.Record.Limit)))
			return err
		}),
		strictyaml.Key("connections", func(n strictyaml.Node) error { return d.connections(n, &c.Connections) }),
	)
	return err
}

// head reads an address, or {address, spool, checkpoint_dir, criu, gateway, cores, memory}.
func (d *decoder) head(n strictyaml.Node, h *settings.Head) error {
	if !strictyaml.IsMapping(n) {
		return d.Text("head", &h.Address)(n)
	}
	given, err := d.Fields(n, "head",
		strictyaml.Key("address", d.Text("address", &h.Address)),
		strictyaml.Key("spool", d.Text("spool", &h.Spool)),
		strictyaml.Key("checkpoint_dir", d.Text("checkpoint_dir", &h.CheckpointDir)),
		strictyaml.Key("criu", d.Text("criu", &h.CRIU)),
		strictyaml.Key("gateway", strictyaml.Value(&d.File, "gateway", &h.Gateway, parseAddress)),
		strictyaml.Key("cores", d.Count("cores", 1, 1<<20, &h.Cores)),
		strictyaml.Key("memory", d.Size("memory", &h.Memory)),
	)
	if err == nil && !given["address"] {
		return d.Errorf(strictyaml.Start(n), "head needs an address: write address: HOST, or unix:@muster-head")
	}
	return err
}

// peers reads a list of nodes, or head.
func (d *decoder) peers(n strictyaml.Node, o *settings.Offload) error {
	o.Peers, o.Head = nil, false
	items, ok := strictyaml.Items(n)
	if !ok {
		if w, err := d.Scalar(n, "peers"); err == nil && w.Text == peersOfHead {
			o.Head = true
			return nil
		}
		return d.Errorf(strictyaml.Start(n), "peers must be a list of nodes, as [n2, n3:9421], or %s, not %s", peersOfHead, strictyaml.Kind(n))
	}
	for _, item := range items {
		w, err := d.Scalar(item, "a peer")
		if err != nil {
			return err
		}
		address, err := Peer(w.Text)
		if err != nil {
			return d.Errorf(strictyaml.Start(item), "%v", err)
		}
		o.Peers = append(o.Peers, address)
	}
	return nil
}

// peersOfHead is the word for the nodes that the cluster's head names.
const peersOfHead = "head"

// Peers reads the short form of a list of nodes: n2,n3:9421; or head.
func Peers(text string) (list []string, head bool, err error) {
	if text == peersOfHead {
		return nil, true, nil
	}
	for _, word := range strings.Split(text, ",") {
		address, err := Peer(word)
		if err != nil {
			return nil, false, err
		}
		list = append(list, address)
	}
	return list, false, nil
}

// GatewayPort is where nodes listen for others, unless they are told otherwise.
const GatewayPort = "9421"

// Peer reads the address of a node's gateway, HOST[:PORT].
func Peer(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.Trim(text, "[]"), GatewayPort
	}
	number, wrong := strconv.ParseUint(port, 10, 16)
	if host == "" || strings.ContainsAny(host, " /@[]") || strings.Contains(host, ":") && net.ParseIP(host) == nil || wrong != nil || number == 0 {
		return "", fmt.Errorf("a peer is a node's HOST or HOST:PORT, as n2 or 10.0.0.7:9421, not %q", text)
	}
	return net.JoinHostPort(host, port), nil
}

// offload reads auto, borrow, lend or off, or {mode, above, keep}.
func (d *decoder) offload(n strictyaml.Node, o *settings.Offload) error {
	mode := strictyaml.Value(&d.File, "offload", &o.Mode, settings.ParseOffload)
	if !strictyaml.IsMapping(n) {
		return mode(n)
	}
	_, err := d.Fields(n, "offload",
		strictyaml.Key("mode", mode),
		strictyaml.Key("above", d.Count("above", 1, 1<<20, &o.Above)),
		strictyaml.Key("keep", d.Count("keep", 0, 1<<20, &o.Keep)),
	)
	return err
}

// OnOff reads on or off.
func OnOff(text string) (bool, error) {
	switch text {
	case "on", "off":
		return text == "on", nil
	}
	return false, errors.New("give on or off")
}

// maxConnections is more than a process can have descriptors.
const maxConnections = 1 << 20

func (d *decoder) connections(n strictyaml.Node, c *settings.Connections) error {
	_, err := d.Fields(n, "connections",
		strictyaml.Key("local", d.Count("local", 1, maxConnections, &c.Local)),
		strictyaml.Key("unknown", d.Count("unknown", 1, maxConnections, &c.Unknown)),
		strictyaml.Key("remote", d.Count("remote", 1, maxConnections, &c.Remote)),
		strictyaml.Key("user", d.Count("user", 1, maxConnections, &c.User)),
		strictyaml.Key("greet", strictyaml.Value(&d.File, "greet", &c.Greet, parseSome)),
		strictyaml.Key("idle", strictyaml.Value(&d.File, "idle", &c.Idle, parseSome)),
		strictyaml.Key("silence", strictyaml.Value(&d.File, "silence", &c.Silence, parseSome)),
		strictyaml.Key("resume", strictyaml.Value(&d.File, "resume", &c.Resume, parseShort)),
	)
	return err
}

// parseSome reads a time above 0.
func parseSome(s string) (time.Duration, error) {
	t, err := parseShort(s)
	if err != nil || t == 0 {
		return 0, fmt.Errorf("must be a time above 0 as 10ms, 2s or 1m, not %q", s)
	}
	return t, nil
}

// allow reads any, own, or a list of users.
func (d *decoder) allow(n strictyaml.Node, c *settings.Config) error {
	items, isList := strictyaml.Items(n)
	if !isList {
		w, err := d.Scalar(n, "allow")
		if err != nil {
			return err
		}
		if w.Text != "any" && w.Text != "own" {
			return d.Errorf(strictyaml.Start(n), "allow must be any, own or a list of users, as [alice, bob], not %q", w.Text)
		}
		c.Allow, _ = Allow(w.Text)
		return nil
	}
	c.Allow = []string{}
	for _, item := range items {
		w, err := d.Scalar(item, "a user")
		if err != nil {
			return err
		}
		if err := checkUser(w.Text); err != nil {
			return d.Errorf(strictyaml.Start(item), "%v", err)
		}
		c.Allow = append(c.Allow, w.Text)
	}
	return nil
}

// checkUser refuses what cannot name one user.
func checkUser(name string) error {
	if name == "any" || name == "own" {
		return fmt.Errorf("%s stands for itself, not in a list of users", name)
	}
	if err := strictyaml.CheckName(name); err != nil {
		return fmt.Errorf("the name of a user %v", err)
	}
	return nil
}

// Allow reads the short form of who may use a node: any, own, or alice,bob.
func Allow(text string) ([]string, error) {
	switch text {
	case "any":
		return []string{settings.AllowAny}, nil
	case "own":
		return []string{}, nil
	}
	names := strings.Split(text, ",")
	for _, name := range names {
		if err := checkUser(name); err != nil {
			return nil, fmt.Errorf("%w: write any, own or alice,bob", err)
		}
	}
	return names, nil
}

func parsePolicy(s string) (vgpu.Policy, error) {
	p, err := vgpu.ParsePolicy(s)
	if err != nil {
		return 0, fmt.Errorf("there is no policy %q: use fcfs, sjf or credit", s)
	}
	return p, nil
}

// Migrate reads whether programs move to faster devices: auto or off.
func Migrate(s string) (bool, error) {
	if s != "auto" && s != "off" {
		return false, fmt.Errorf("must be auto or off, not %q", s)
	}
	return s == "auto", nil
}

// parseShort reads a short time, as nodes use them.
func parseShort(s string) (time.Duration, error) {
	if s == "0" {
		return 0, nil
	}
	t, err := time.ParseDuration(s)
	if err != nil || t < 0 {
		return 0, fmt.Errorf("must be a time as 10ms, 2s or 1m, not %q", s)
	}
	return t, nil
}

// parseTimeout reads how long a worker may be silent.
func parseTimeout(s string) (time.Duration, error) {
	t, err := parseShort(s)
	if err == nil && t > 0 && t < settings.MinWorkerTimeout {
		return 0, fmt.Errorf("%v would kill workers that are only busy: give %v or more, or 0 for none", t, settings.MinWorkerTimeout)
	}
	return t, err
}

var parseAddress = strictyaml.ListenAddress("9420")

// parseUIDs reads a range of user numbers.
func parseUIDs(s string) (settings.UIDRange, error) {
	first, last, _ := strings.Cut(s, "-")
	from, errFrom := strconv.ParseUint(first, 10, 32)
	to, errTo := strconv.ParseUint(last, 10, 32)
	if errFrom != nil || errTo != nil || from == 0 || from > to {
		return settings.UIDRange{}, fmt.Errorf("must be a range of user numbers that nobody has, as 1879048192-2147483647, not %q", s)
	}
	return settings.UIDRange{First: uint32(from), Last: uint32(to)}, nil
}

func (d *decoder) bytes(what string, into *uint64) func(strictyaml.Node) error {
	return func(n strictyaml.Node) error {
		var size int64
		if err := d.Size(what, &size)(n); err != nil {
			return err
		}
		*into = uint64(size)
		return nil
	}
}

// socket reads an address, or {path, mode, group}.
func (d *decoder) socket(n strictyaml.Node, s *settings.Socket) error {
	if !strictyaml.IsMapping(n) {
		return d.Text("socket", &s.Address)(n)
	}
	_, err := d.Fields(n, "socket",
		strictyaml.Key("path", d.Text("path", &s.Address)),
		strictyaml.Key("mode", strictyaml.Value(&d.File, "mode", &s.Mode, func(text string) (uint32, error) {
			mode, err := strconv.ParseUint(text, 8, 32)
			if err != nil || mode == 0 || mode > 0o777 {
				return 0, fmt.Errorf("must be a file mode as 0660, not %q", text)
			}
			return uint32(mode), nil
		})),
		strictyaml.Key("group", d.Text("group", &s.Group)),
	)
	return err
}

func (d *decoder) devices(n strictyaml.Node, c *settings.Config) error {
	items, ok := strictyaml.Items(n)
	if word := ""; !ok && !strictyaml.IsMapping(n) && d.Text("devices", &word)(n) == nil && word == noDevices {
		c.Devices = []settings.Device{}
		return nil
	}
	if !ok {
		return d.Errorf(strictyaml.Start(n), "devices must be a list, not %s: write - soft: {memory: 1GiB}, or - cuda: all; or none", strictyaml.Kind(n))
	}
	if len(items) == 0 {
		return d.Errorf(strictyaml.Start(n), "there are no devices: write - soft: {memory: 1GiB}, or - cuda: all, or leave it out")
	}
	c.Devices = nil
	for _, item := range items {
		if err := d.device(item, c); err != nil {
			return err
		}
		if len(c.Devices) > 16 {
			return d.Errorf(strictyaml.Start(item), "a node has at most 16 devices")
		}
	}
	return nil
}

// device reads one entry, which may stand for several devices.
func (d *decoder) device(n strictyaml.Node, c *settings.Config) error {
	var found []settings.Device
	var reserve uint64
	var faults string
	count := 1
	given, err := d.Fields(n, "a device",
		strictyaml.Key("soft", func(n strictyaml.Node) error {
			one, err := d.soft(n)
			found = append(found, one)
			return err
		}),
		strictyaml.Key("cuda", func(n strictyaml.Node) (err error) {
			found, err = d.cuda(n)
			return err
		}),
		strictyaml.Key("remote", func(n strictyaml.Node) error {
			one, err := d.remote(n)
			found = append(found, one)
			return err
		}),
		strictyaml.Key("count", d.Count("count", 1, 16, &count)),
		strictyaml.Key("reserve", d.bytes("reserve", &reserve)),
		strictyaml.Key("faults", strictyaml.Value(&d.File, "faults", &faults, parseFaults)),
	)
	switch {
	case err != nil:
		return err
	case len(found) == 0 || given["soft"] && given["cuda"] || given["soft"] && given["remote"] || given["cuda"] && given["remote"]:
		return d.Errorf(strictyaml.Start(n), "a device is one of soft, cuda and remote: write soft: {memory: 1GiB}, or cuda: all, or remote: {address: HOST:PORT, tls: FOLDER}")
	case given["count"] && given["remote"]:
		return d.Errorf(strictyaml.Start(n), "only software GPUs have a count: name several devices of another node by their numbers there (device: 1)")
	case given["count"] && given["cuda"]:
		return d.Errorf(strictyaml.Start(n), "only software GPUs have a count: name several CUDA devices as cuda: [0, 1]")
	}
	if err := checkNames(found, count, c.Devices); err != nil {
		return d.Errorf(strictyaml.Start(n), "%v", err)
	}
	for range count {
		for _, one := range found {
			one.Reserve, one.Faults = reserve, faults
			c.Devices = append(c.Devices, number(one, c.Devices))
		}
	}
	return nil
}

// checkNames refuses devices of an entry that were given a name which another one has:
// names are how people say which device they mean.
func checkNames(found []settings.Device, count int, before []settings.Device) error {
	for _, one := range found {
		switch {
		case !one.IsNamed():
		case count > 1:
			return fmt.Errorf("%d devices would be named %q: give each an entry and a name of its own, or leave the name out", count, one.Name)
		case slices.ContainsFunc(before, func(other settings.Device) bool { return other.IsNamed() && other.Name == one.Name }):
			return fmt.Errorf("another device is named %q already: give this one a name of its own, or leave the name out", one.Name)
		}
	}
	return nil
}

// parseFaults reads the name of a file with rules for tests. It must be absolute, because
// workers have another working directory.
func parseFaults(s string) (string, error) {
	if !filepath.IsAbs(s) {
		return "", fmt.Errorf("must be the absolute path of a file with rules, not %q", s)
	}
	return s, nil
}

// number gives a software device an index, to tell it from others that are described alike.
func number(one settings.Device, before []settings.Device) settings.Device {
	if one.Kind == "soft" {
		one.Index = 0
		for _, other := range before {
			if other.Kind == "soft" {
				one.Index++
			}
		}
	}
	return one
}

func (d *decoder) soft(n strictyaml.Node) (settings.Device, error) {
	one := softDevice()
	var memory, bandwidth int64
	given, err := d.Fields(n, "soft",
		strictyaml.Key("name", d.Text("name", &one.Name)),
		strictyaml.Key("memory", strictyaml.Value(&d.File, "memory", &memory, parseMemory)),
		strictyaml.Key("speed", d.Number("speed", "above 0, and at most 1", isSpeed, &one.Speed)),
		strictyaml.Key("rate", d.Number("rate", rateLimits, isRate, &one.Rate)),
		strictyaml.Key("copy_bandwidth", d.Bandwidth("copy_bandwidth", &bandwidth)),
		strictyaml.Key("workers", d.Count("workers", 1, 1024, &one.Workers)),
		strictyaml.Key("engine", strictyaml.Value(&d.File, "engine", &one.Engine, parseEngine)),
		strictyaml.Key("own_process", d.Bool("own_process", &one.OwnProcess)),
	)
	if err == nil && !given["memory"] {
		err = d.Errorf(strictyaml.Start(n), "this software GPU has no memory: add memory: 1GiB")
	}
	one.Memory, one.CopyBandwidth = uint64(memory), uint64(bandwidth)
	return one, err
}

// parseEngine reads the name of the engine that runs kernels.
func parseEngine(s string) (string, error) {
	if !slices.Contains(control.Engines, s) {
		return "", fmt.Errorf("must be one of %s, not %q", strings.Join(control.Engines, ", "), s)
	}
	return s, nil
}

// softDevice is a software GPU with default settings. The caller sets Workers, to the
// number of the machine's processors.
func softDevice() settings.Device {
	return settings.Device{DeviceConfig: control.DeviceConfig{Kind: "soft", Name: settings.UnnamedDevice, Speed: 1}}
}

func isRate(x float64) bool { return x >= 1e3 && x <= 1e15 }

const rateLimits = "of operations a second, from 1e3 to 1e15"

func isSpeed(x float64) bool { return x >= 1e-6 && x <= 1 }

const granule = 2 << 20

func parseMemory(s string) (int64, error) {
	n, err := units.ParseSize(s)
	if err != nil {
		return 0, err
	}
	if n == 0 || n%granule != 0 {
		return 0, fmt.Errorf("must be a multiple of 2MiB, not %q", s)
	}
	return n, nil
}

func (d *decoder) cuda(n strictyaml.Node) ([]settings.Device, error) {
	items, isList := strictyaml.Items(n)
	if !isList {
		w, err := d.Scalar(n, "cuda")
		if err != nil {
			return nil, err
		}
		if w.Text == "all" {
			return []settings.Device{cudaDevice(AllCUDA)}, nil
		}
		items = []strictyaml.Node{n}
	}
	var all []settings.Device
	for _, item := range items {
		var index int
		if err := d.Count("a CUDA device", 0, math.MaxInt32, &index)(item); err != nil {
			return nil, fmt.Errorf("%w: write cuda: all, or cuda: [0, 1]", err)
		}
		all = append(all, cudaDevice(index))
	}
	if len(all) == 0 {
		return nil, d.Errorf(strictyaml.Start(n), "no CUDA device is named: write cuda: all, or cuda: [0, 1]")
	}
	return all, nil
}

func cudaDevice(index int) settings.Device {
	return settings.Device{DeviceConfig: control.DeviceConfig{Kind: "cuda", Index: index}}
}

func (d *decoder) limits(n strictyaml.Node, l *settings.Limits) error {
	_, err := d.Fields(n, "limits",
		strictyaml.Key("clients", d.Count("clients", 1, 1<<20, &l.Clients)),
		strictyaml.Key("default", func(n strictyaml.Node) error { return d.userLimits(n, "default", &l.Default) }),
		strictyaml.Key("users", func(n strictyaml.Node) error {
			entries, err := d.Entries(n, "users")
			if err != nil {
				return err
			}
			l.Users = map[string]settings.UserLimits{}
			for _, e := range entries {
				if err := strictyaml.CheckName(e.Key.Text); err != nil {
					return d.Errorf(e.Key.Place, "the name of a user %v", err)
				}
				var u settings.UserLimits
				if err := d.userLimits(e.Value, "user "+e.Key.Text, &u); err != nil {
					return err
				}
				l.Users[e.Key.Text] = u
			}
			return nil
		}),
	)
	return err
}

func (d *decoder) userLimits(n strictyaml.Node, what string, u *settings.UserLimits) error {
	_, err := d.Fields(n, what,
		strictyaml.Key("clients", d.Count("clients", 1, 1<<20, &u.Clients)),
		strictyaml.Key("memory", d.bytes("memory", &u.Memory)),
		strictyaml.Key("vgpus", d.Count("vgpus", 1, 1<<20, &u.VGPUs)),
		strictyaml.Key("weight", d.Count("weight", 1, 1000, &u.Weight)),
		strictyaml.Key("priority", d.Count("priority", 0, 100, &u.Priority)),
		strictyaml.Key("class", strictyaml.Value(&d.File, "class", &u.Class, parseClass)),
		strictyaml.Key("share", strictyaml.Value(&d.File, "share", &u.Share, settings.ParseShare)),
		strictyaml.Key("kernel_time", strictyaml.Value(&d.File, "kernel_time", &u.KernelTime, settings.ParseKernelTime)),
	)
	return err
}

// parseClass reads which class a user's programs may have.
func parseClass(s string) (settings.Class, error) {
	switch c := settings.Class(s); c {
	case settings.ClassAny, settings.ClassBatch, settings.ClassLatency:
		return c, nil
	}
	return "", fmt.Errorf("must be any, batch or latency, not %q", s)
}

// kernelTimes reads a limit for programs of both classes, or {batch, latency}.
func (d *decoder) kernelTimes(n strictyaml.Node, t *settings.KernelTimes) error {
	if !strictyaml.IsMapping(n) {
		err := strictyaml.Value(&d.File, "kernel_time", &t.Batch, settings.ParseKernelTime)(n)
		t.Latency = t.Batch
		return err
	}
	_, err := d.Fields(n, "kernel_time",
		strictyaml.Key("batch", strictyaml.Value(&d.File, "batch", &t.Batch, settings.ParseKernelTime)),
		strictyaml.Key("latency", strictyaml.Value(&d.File, "latency", &t.Latency, settings.ParseKernelTime)),
	)
	return err
}

// latency reads what programs of class latency may do to others.
func (d *decoder) latency(n strictyaml.Node, l *settings.Latency) error {
	_, err := d.Fields(n, "latency",
		strictyaml.Key("share", d.Number("share", "from 0 to 0.99", func(x float64) bool { return x >= 0 && x <= 0.99 }, &l.Share)),
		strictyaml.Key("window", strictyaml.Value(&d.File, "window", &l.Window, parseWindow)),
	)
	return err
}

// parseWindow reads how much work may be in flight.
func parseWindow(s string) (time.Duration, error) {
	t, err := parseSome(s)
	if err == nil && t > time.Second {
		return 0, fmt.Errorf("must be at most 1s, not %q", s)
	}
	return t, err
}

// Quantum reads how long a busy program keeps a device that others wait for: a time, or
// off.
func Quantum(s string) (time.Duration, error) {
	if s == "off" || s == "0" {
		return 0, nil
	}
	t, err := time.ParseDuration(s)
	if err != nil || vgpu.CheckQuantum(t) != nil {
		return 0, fmt.Errorf("must be a time of %v to %v, as 500ms or 2s, or off, not %q", vgpu.MinQuantum, vgpu.MaxQuantum, s)
	}
	return t, nil
}

// noDevices stands for none at all.
const noDevices = "none"

// Devices reads the short form: soft:memory=256M,speed=0.5;soft:memory=1G,count=2;cuda:all.
//
// none is an empty list, and not nil: the node of a cluster may have no devices.
func Devices(text string) ([]settings.Device, error) {
	if text == noDevices {
		return []settings.Device{}, nil
	}
	var all []settings.Device
	for _, part := range strings.Split(text, ";") {
		found, err := deviceWord(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("device %q: %w", part, err)
		}
		if err := checkNames(found[:1], len(found), all); err != nil {
			return nil, fmt.Errorf("device %q: %w", part, err)
		}
		for _, one := range found {
			all = append(all, number(one, all))
		}
		if len(all) > 16 {
			return nil, fmt.Errorf("a node has at most 16 devices")
		}
	}
	return all, nil
}

func deviceWord(text string) ([]settings.Device, error) {
	kind, rest, _ := strings.Cut(text, ":")
	switch kind {
	case "soft":
		return softWord(rest)
	case settings.KindRemote:
		return remoteWord(rest)
	case "cuda":
		if rest == "all" || rest == "" {
			return []settings.Device{cudaDevice(AllCUDA)}, nil
		}
		var all []settings.Device
		for _, word := range strings.Split(rest, ",") {
			index, err := strconv.Atoi(word)
			if err != nil || index < 0 {
				return nil, fmt.Errorf("write cuda:all, or the devices' numbers, as cuda:0,1")
			}
			all = append(all, cudaDevice(index))
		}
		return all, nil
	}
	return nil, fmt.Errorf("write soft:memory=256M,speed=0.5, or cuda:all, or remote:HOST:PORT,tls=FOLDER")
}

func softWord(text string) ([]settings.Device, error) {
	one, count := softDevice(), 1
	for _, setting := range strings.Split(text, ",") {
		key, value, ok := strings.Cut(setting, "=")
		if !ok {
			return nil, fmt.Errorf("%q is no setting: write it as soft:memory=256M", setting)
		}
		var err error
		switch key {
		case "name":
			one.Name = value
		case "memory":
			err = into(&one.Memory, value, parseMemory)
		case "copy_bandwidth":
			err = into(&one.CopyBandwidth, value, units.ParseBandwidth)
		case "speed":
			one.Speed, err = strconv.ParseFloat(value, 64)
			if err != nil || !isSpeed(one.Speed) {
				err = fmt.Errorf("speed must be above 0 and at most 1, not %q", value)
			}
		case "rate":
			one.Rate, err = strconv.ParseFloat(value, 64)
			if err != nil || !isRate(one.Rate) {
				err = fmt.Errorf("rate must be a number %s, not %q", rateLimits, value)
			}
		case "workers":
			one.Workers, err = parseCount(value, 1024)
		case "engine":
			if one.Engine, err = parseEngine(value); err != nil {
				err = fmt.Errorf("engine %w", err)
			}
		case "own_process":
			if one.OwnProcess, err = strconv.ParseBool(value); err != nil {
				err = fmt.Errorf("own_process must be true or false, not %q", value)
			}
		case "count":
			count, err = parseCount(value, 16)
		case "faults": // for tests, and so not named in the list below
			if one.Faults, err = parseFaults(value); err != nil {
				err = fmt.Errorf("faults %w", err)
			}
		default:
			keys := []string{"name", "memory", "speed", "rate", "copy_bandwidth", "workers", "engine", "own_process", "count"}
			err = fmt.Errorf("%q is no setting: it is one of %s", key, strings.Join(keys, ", "))
		}
		if err != nil {
			return nil, err
		}
	}
	if one.Memory == 0 {
		return nil, fmt.Errorf("it has no memory: write soft:memory=256M")
	}
	return slices.Repeat([]settings.Device{one}, count), nil
}

func parseCount(s string, most int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > most {
		return 0, fmt.Errorf("must be a whole number from 1 to %d, not %q", most, s)
	}
	return n, nil
}

func into(to *uint64, text string, parse func(string) (int64, error)) error {
	n, err := parse(text)
	*to = uint64(n)
	return err
}

// Mapping reads the name of a mapper, or off.
func Mapping(s string) (string, error) {
	if err := mapping.CheckSetting(s); err != nil {
		return "", err
	}
	return s, nil
}
