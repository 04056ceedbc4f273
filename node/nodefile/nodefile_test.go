package nodefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"muster/model/strictyaml"
	"muster/node/settings"
	"muster/node/vgpu"
	"muster/wire/control"
)

const everything = `
name: node7
socket: {path: /run/muster.sock, mode: 0660, group: gpu}
allow: [alice, 1001]
devices:
  - cuda: [0, 2]
    reserve: 1GiB
  - soft: {name: Slow one, memory: 512MiB, speed: 0.5, rate: 2e8, copy_bandwidth: 2GB/s, workers: 4}
  - soft: {memory: 2MiB}
    count: 2
  - cuda: all
vgpus: 8
visible: 2
policy: credit
max_idle: 25ms
quantum: 500ms
kernel_time: {batch: 1h, latency: none}
latency: {share: 0.5, window: 100us}
mps: on
confine: on
migrate: off
swap: {size: 32GiB, dir: /var/tmp/muster}
defer: true
limits:
  clients: 100
  default: {clients: 16, memory: 32GiB, vgpus: 4, weight: 1}
  users:
    alice: {memory: 64GiB, weight: 2, priority: 3, class: latency, share: 50%, kernel_time: 5m}
    1001: {clients: 1}
grants: required
warm: 0
spare: 3
worker_timeout: 1m
worker_uids: 70000-79999
grace: 2m
orphan_grace: 90s
state: /run/muster/state
handover: true
http: 127.0.0.1:9420
listen: ":9421"
tls: {cert: node.pem, key: node.key, ca: ca.pem}
token: SECRET
ivm: true
ivm_root: true
peers: [n2, "n3:19421", 10.0.0.7, "[fe80::1]:9421"]
offload: {mode: borrow, above: 3, keep: 1}
record: {file: decisions.jsonl, limit: 64MiB}
connections: {local: 100, unknown: 32, remote: 300, user: 30, greet: 5s, idle: 1m, silence: 30s, resume: 2m}
`

func TestRead(t *testing.T) {
	cfg := settings.Default()
	if err := Read([]byte(everything), "f", &cfg); err != nil {
		t.Fatal(err)
	}
	slow := control.DeviceConfig{Kind: "soft", Name: "Slow one", Memory: 512 << 20, Speed: 0.5, Rate: 2e8, CopyBandwidth: 2e9, Workers: 4}
	first := control.DeviceConfig{Kind: "soft", Name: settings.UnnamedDevice, Memory: 2 << 20, Speed: 1, Index: 1}
	second := first
	second.Index = 2
	want := settings.Config{
		Name: "node7", Socket: settings.Socket{Address: "/run/muster.sock", Mode: 0o660, Group: "gpu"}, Allow: []string{"alice", "1001"},
		Devices: []settings.Device{
			{DeviceConfig: control.DeviceConfig{Kind: "cuda", Index: 0}, Reserve: 1 << 30},
			{DeviceConfig: control.DeviceConfig{Kind: "cuda", Index: 2}, Reserve: 1 << 30},
			{DeviceConfig: slow}, {DeviceConfig: first}, {DeviceConfig: second},
			{DeviceConfig: control.DeviceConfig{Kind: "cuda", Index: AllCUDA}},
		},
		VGPUs: 8, Visible: 2, Policy: vgpu.Credit, MaxIdle: 25 * time.Millisecond, Quantum: 500 * time.Millisecond, KernelTime: settings.KernelTimes{Batch: settings.KernelTime(time.Hour), Latency: settings.NoKernelTime}, Latency: settings.Latency{Share: 0.5, Window: 100 * time.Microsecond}, MPS: settings.MPSOn, Confine: settings.ConfineOn, Spare: 3,
		Swap: settings.Swap{Size: 32 << 30, Dir: "/var/tmp/muster"}, Defer: true, Recover: true,
		Limits: settings.Limits{Clients: 100, Default: settings.UserLimits{Clients: 16, Memory: 32 << 30, VGPUs: 4, Weight: 1},
			Users: map[string]settings.UserLimits{"alice": {Memory: 64 << 30, Weight: 2, Priority: 3, Class: settings.ClassLatency, Share: 50, KernelTime: settings.KernelTime(5 * time.Minute)}, "1001": {Clients: 1}}},
		Grants: settings.GrantsRequired, Warm: 0, WorkerTimeout: time.Minute, WorkerUIDs: settings.UIDRange{First: 70000, Last: 79999}, Grace: 2 * time.Minute,
		OrphanGrace: 90 * time.Second, State: "/run/muster/state", Handover: true, HTTP: "127.0.0.1:9420",
		Offload:     settings.Offload{Peers: []string{"n2:9421", "n3:19421", "10.0.0.7:9421", "[fe80::1]:9421"}, Mode: settings.OffloadBorrow, Above: 3, Keep: 1},
		Record:      settings.Record{File: "decisions.jsonl", Limit: 64 << 20},
		Remote:      settings.Remote{Listen: ":9421", Cert: "node.pem", Key: "node.key", CA: "ca.pem", Token: "SECRET", IVM: true, IVMRoot: true},
		Connections: settings.Connections{Local: 100, Unknown: 32, Remote: 300, User: 30, Greet: 5 * time.Second, Idle: time.Minute, Silence: 30 * time.Second, Resume: 2 * time.Minute},
	}
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("got\n%+v, want\n%+v", cfg, want)
	}
}

func TestReadLeavesTheRest(t *testing.T) {
	cfg := settings.Default()
	if err := Read([]byte("vgpus: 2\nmax_idle: 0\n"), "f", &cfg); err != nil {
		t.Fatal(err)
	}
	want := settings.Default()
	want.VGPUs, want.MaxIdle = 2, 0
	if !reflect.DeepEqual(cfg, want) {
		t.Errorf("%+v", cfg)
	}
}

// Rules by which devices fail are for tests, in either form.
func TestFaults(t *testing.T) {
	cfg := settings.Default()
	if err := Read([]byte("devices: [{cuda: 1, faults: /run/rules}, {soft: {memory: 2MiB}, count: 2, faults: /run/soft}]\n"), "f", &cfg); err != nil {
		t.Fatal(err)
	}
	short, err := Devices("soft:memory=2M,faults=/run/soft,count=2")
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Devices; got[0].Faults != "/run/rules" || !reflect.DeepEqual(got[1:], short) || short[1].Faults != "/run/soft" {
		t.Errorf("%+v, and in short %+v", got, short)
	}
	if _, err := Devices("soft:memory=2M,faults=rules"); err == nil || !strings.Contains(err.Error(), `faults must be the absolute path of a file with rules, not "rules"`) {
		t.Error(err)
	}
}

func TestAllow(t *testing.T) {
	for text, want := range map[string][]string{"any": {"any"}, "own": {}, "alice": {"alice"}, "alice,1001": {"alice", "1001"}} {
		if got, err := Allow(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		var cfg settings.Config
		if text == "any" || text == "own" {
			if err := Read([]byte("allow: "+text+"\n"), "f", &cfg); err != nil || !reflect.DeepEqual(cfg.Allow, want) {
				t.Errorf("%s: %v, %v", text, cfg.Allow, err)
			}
		}
	}
	for _, text := range []string{"", "alice,", "any,alice", "a b"} {
		if got, err := Allow(text); err == nil {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestReadErrors(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "f:1:1: the file is empty: say what the node has, as devices: [{soft: {memory: 1GiB}}], or do without a file"},
		{"key", "vgpu: 3\n", `f:1:1: "vgpu" is no key of a node's configuration: did you mean vgpus?`},
		{"twice", "warm: 1\nwarm: 2\n", `f:2:1: "warm" is given twice, first on line 1: remove one`},
		{"vgpus", "vgpus: 0\n", `f:1:8: vgpus: must be a whole number from 1 to 1024, not "0"`},
		{"grants", "grants: yes\n", `f:1:9: grants: grants can be optional or required, not "yes"`},
		{"migrate", "migrate: yes\n", `f:1:10: migrate: must be auto or off, not "yes"`},
		{"policy", "policy: lifo\n", `f:1:9: policy: there is no policy "lifo": use fcfs, sjf or credit`},
		{"kernel time", "kernel_time: 1ms\n", `f:1:14: kernel_time: must be a time of 10ms or more, as 30s or 1h, or none, not "1ms"`},
		{"quantum", "quantum: 1us\n", `f:1:10: quantum: must be a time of 1ms to 1h0m0s, as 500ms or 2s, or off, not "1us"`},
		{"class", "limits: {default: {class: fast}}\n", `f:1:27: class: must be any, batch or latency, not "fast"`},
		{"latency", "latency: {share: 1}\n", `f:1:18: share: must be a number from 0 to 0.99, not "1"`},
		{"idle", "max_idle: 10\n", `f:1:11: max_idle: must be a time as 10ms, 2s or 1m, not "10"`},
		{"negative", "grace: -3s\n", `f:1:8: grace: must be a time as 10ms, 2s or 1m, not "-3s"`},
		{"timeout", "worker_timeout: never\n", `f:1:17: worker_timeout: must be a time as 10ms, 2s or 1m, not "never"`},
		{"short timeout", "worker_timeout: 100ms\n", `f:1:17: worker_timeout: 100ms would kill workers that are only busy: give 1s or more, or 0 for none`},
		{"http", "http: 99999\n", `f:1:7: http: must be HOST:PORT with a port up to 65535, as 127.0.0.1:9420, or :9420 for all addresses, not "99999"`},
		{"http port", "http: 127.0.0.1:99999\n", `f:1:7: http: must be HOST:PORT with a port up to 65535`},
		{"listen", "listen: gpu1\n", `f:1:9: listen: must be HOST:PORT with a port up to 65535`},
		{"uids", "worker_uids: 70000\n", `f:1:14: worker_uids: must be a range of user numbers that nobody has, as 1879048192-2147483647, not "70000"`},
		{"uids of root", "worker_uids: 0-9\n", `f:1:14: worker_uids: must be a range`},
		{"uids backwards", "worker_uids: 9-8\n", `f:1:14: worker_uids: must be a range`},
		{"defer", "defer: maybe\n", `f:1:8: defer: must be true or false, not "maybe"`},
		{"mode", "socket: {path: /a, mode: 0999}\n", `f:1:26: mode: must be a file mode as 0660, not "0999"`},
		{"devices", "devices: soft\n", `f:1:10: devices must be a list, not a plain value: write - soft: {memory: 1GiB}, or - cuda: all`},
		{"no devices", "devices: []\n", `f:1:10: there are no devices: write - soft: {memory: 1GiB}, or - cuda: all, or leave it out`},
		{"memory", "devices:\n  - soft: {speed: 0.5}\n", `f:2:11: this software GPU has no memory: add memory: 1GiB`},
		{"odd memory", "devices: [{soft: {memory: 3MiB}}]\n", `f:1:27: memory: must be a multiple of 2MiB, not "3MiB"`},
		{"speed", "devices: [{soft: {memory: 2MiB, speed: 2}}]\n", `f:1:40: speed: must be a number above 0, and at most 1, not "2"`},
		{"both", "devices: [{soft: {memory: 2MiB}, cuda: all}]\n", `f:1:11: a device is one of soft, cuda and remote: write soft: {memory: 1GiB}, or cuda: all, or remote: {address: HOST:PORT, tls: FOLDER}`},
		{"neither", "devices: [{count: 3}]\n", `a device is one of soft, cuda and remote`},
		{"mps", "mps: yes\n", `f:1:6: mps: must be auto, on or off, not "yes"`},
		{"confine", "confine: yes\n", `f:1:10: confine: must be auto, on or off, not "yes"`},
		{"a share", "limits: {default: {share: 25}}\n", `f:1:27: share: must be a part of 1% to 100%, as 25%, not "25"`},
		{"faults", "devices: [{soft: {memory: 2MiB}, faults: rules}]\n", `f:1:42: faults: must be the absolute path of a file with rules, not "rules"`},
		{"count of cuda", "devices: [{cuda: all, count: 2}]\n", `only software GPUs have a count: name several CUDA devices as cuda: [0, 1]`},
		{"cuda", "devices: [{cuda: some}]\n", `f:1:18: a CUDA device: must be a whole number from 0 to 2147483647, not "some": write cuda: all, or cuda: [0, 1]`},
		{"no cuda", "devices: [{cuda: []}]\n", `f:1:18: no CUDA device is named: write cuda: all, or cuda: [0, 1]`},
		{"too many", "devices: [{soft: {memory: 2MiB}, count: 16}, {cuda: 0}]\n", "a node has at most 16 devices"},
		{"name twice", "devices: [{soft: {memory: 2MiB, name: a}}, {soft: {memory: 4MiB, name: a}}]\n", `f:1:44: another device is named "a" already: give this one a name of its own, or leave the name out`},
		{"name and count", "devices: [{soft: {memory: 2MiB, name: a}, count: 2}]\n", `f:1:11: 2 devices would be named "a": give each an entry and a name of its own, or leave the name out`},
		{"allow", "allow: all\n", `f:1:8: allow must be any, own or a list of users, as [alice, bob], not "all"`},
		{"allow any among others", "allow: [alice, any]\n", `f:1:16: any stands for itself, not in a list of users`},
		{"allow nobody", "allow: [\"\"]\n", `f:1:9: the name of a user must`},
		{"connections", "connections: {users: 3}\n", `"users" is no key of connections: did you mean user?`},
		{"peers that are no list", "peers: n2\n", `f:1:8: peers must be a list of nodes, as [n2, n3:9421], or head, not`},
		{"a peer with a path", "peers: [n2/x]\n", `f:1:9: a peer is a node's HOST or HOST:PORT, as n2 or 10.0.0.7:9421, not "n2/x"`},
		{"a peer's port", "peers: ['n2:0']\n", `f:1:9: a peer is a node's HOST or HOST:PORT, as n2 or 10.0.0.7:9421, not "n2:0"`},
		{"offload", "offload: maybe\n", `offload can be auto, borrow, lend or off, not "maybe"`},
		{"offload's threshold", "offload: {above: 0}\n", `f:1:18: above: must be a whole number from 1 to 1048576, not "0"`},
		{"a head without an address", "head: {spool: /var/spool/muster}\n", `f:1:7: head needs an address: write address: HOST, or unix:@muster-head`},
		{"a head's memory", "head: {address: h, memory: lots}\n", `f:1:28: memory: `},
		{"no connections", "connections: {user: 0}\n", `f:1:21: user: must be a whole number from 1 to 1048576, not "0"`},
		{"no time", "connections: {idle: 0}\n", `f:1:21: idle: must be a time above 0 as 10ms, 2s or 1m, not "0"`},
		{"user", "limits: {users: {\"a b\": {clients: 1}}}\n", `f:1:18: the name of a user must be made of letters, digits and ._-+, not "a b"`},
		{"limit", "limits: {default: {client: 1}}\n", `"client" is no key of default: did you mean clients?`},
		{"size", "swap: {size: big}\n", `f:1:14: size: size "big": write it as 4GiB`},
		{"two documents", "warm: 1\n---\nwarm: 2\n", "f:3:1: a second document: write a node's configuration into a file of its own"},
	} {
		cfg := settings.Default()
		err := Read([]byte(c.text), "f", &cfg)
		if err == nil || !strings.HasPrefix(err.Error(), "f:") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v\nwant %s", c.name, err, c.want)
		}
		if !reflect.DeepEqual(cfg, settings.Default()) {
			t.Errorf("%s: a bad file changed the configuration: %+v", c.name, cfg)
		}
	}
}

func TestReadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.yaml")
	cfg := settings.Default()
	if err := ReadFile(path, &cfg); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("warm: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReadFile(path, &cfg); err != nil || cfg.Warm != 7 {
		t.Error(cfg.Warm, err)
	}
	if err := os.WriteFile(path, []byte(strings.Repeat("# much\n", 3<<20)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReadFile(path, &cfg); err == nil || !strings.Contains(err.Error(), "larger than 16MiB: is it the configuration of a node?") {
		t.Error(err)
	}
}

func TestDevices(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"soft:memory=256M,speed=0.5;soft:memory=512M", "soft 256MiB 0.5 #0; soft 512MiB 1 #1"},
		{"soft:memory=2M,count=2 ; cuda:0,3", "soft 2MiB 1 #0; soft 2MiB 1 #1; cuda #0; cuda #3"},
		{"cuda:all", "cuda #-1"},
		{"", `error: device "": write soft:memory=256M,speed=0.5, or cuda:all, or remote:HOST:PORT,tls=FOLDER`},
		{"soft", `error: device "soft": "" is no setting: write it as soft:memory=256M`},
		{"soft:speed=1", `error: device "soft:speed=1": it has no memory: write soft:memory=256M`},
		{"soft:memory=1", `error: device "soft:memory=1": must be a multiple of 2MiB, not "1"`},
		{"soft:memory=2M,speed=0", `error: device "soft:memory=2M,speed=0": speed must be above 0 and at most 1, not "0"`},
		{"soft:memory=2M,colour=red", `error: device "soft:memory=2M,colour=red": "colour" is no setting: it is one of name, memory, speed, rate, copy_bandwidth, workers, engine, own_process, count`},
		{"soft:memory=2M,rate=1e9", "soft 2MiB 1 rate 1e+09 #0"},
		{"soft:memory=2M,engine=compile", "soft 2MiB 1 compile #0"},
		{"soft:memory=2M,own_process=true", "soft 2MiB 1 #0"},
		{"soft:memory=2M,own_process=maybe", `error: device "soft:memory=2M,own_process=maybe": own_process must be true or false, not "maybe"`},
		{"soft:memory=2M,engine=steam", `error: device "soft:memory=2M,engine=steam": engine must be one of auto, interpret, compile, not "steam"`},
		{"soft:memory=2M,rate=7", `error: device "soft:memory=2M,rate=7": rate must be a number of operations a second, from 1e3 to 1e15, not "7"`},
		{"soft:memory=2M,rate=NaN", `error: device "soft:memory=2M,rate=NaN": rate must be a number of operations a second, from 1e3 to 1e15, not "NaN"`},
		{"soft:memory=2M,count=17", `error: device "soft:memory=2M,count=17": must be a whole number from 1 to 16, not "17"`},
		{"soft:memory=2M,name=a;soft:memory=2M,name=a", `error: device "soft:memory=2M,name=a": another device is named "a" already: give this one a name of its own, or leave the name out`},
		{"soft:memory=2M,name=a,count=2", `error: device "soft:memory=2M,name=a,count=2": 2 devices would be named "a": give each an entry and a name of its own, or leave the name out`},
		{"soft:memory=2M,name=a;soft:memory=2M,name=b", "soft 2MiB 1 #0; soft 2MiB 1 #1"},
		{"cuda:x", `error: device "cuda:x": write cuda:all, or the devices' numbers, as cuda:0,1`},
		{"soft:memory=2M,count=16;cuda:0", "error: a node has at most 16 devices"},
	} {
		devices, err := Devices(c.text)
		var parts []string
		for _, d := range devices {
			if d.Kind == "soft" {
				rate := ""
				if d.Rate > 0 {
					rate = fmt.Sprintf(" rate %v", d.Rate)
				}
				if d.Engine != "" {
					rate += " " + d.Engine
				}
				parts = append(parts, fmt.Sprintf("soft %dMiB %v%s #%d", d.Memory>>20, d.Speed, rate, d.Index))
			} else {
				parts = append(parts, fmt.Sprintf("cuda #%d", d.Index))
			}
		}
		got := strings.Join(parts, "; ")
		if err != nil {
			got = "error: " + err.Error()
		}
		if got != c.want {
			t.Errorf("%s: got  %s\nwant %s", c.text, got, c.want)
		}
	}
}

func manyUsers(n int) []byte {
	var b strings.Builder
	b.WriteString("limits:\n  users:\n")
	for i := range n {
		fmt.Fprintf(&b, "    user%06d: {memory: 64GiB, weight: 2}\n", i)
	}
	return []byte(b.String())
}

func TestManyUsers(t *testing.T) {
	cfg := settings.Default()
	if err := Read(manyUsers(100_000), "f", &cfg); err != nil || len(cfg.Limits.Users) != 100_000 {
		t.Error(len(cfg.Limits.Users), err)
	}
}

func TestReadFileRefusesWhatIsNone(t *testing.T) {
	cfg := settings.Default()
	folder := t.TempDir()
	for path, want := range map[string]string{"/dev/zero": "/dev/zero is a device: name a file", folder: folder + " is a folder: name a file in it"} {
		if err := ReadFile(path, &cfg); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		text := manyUsers(n)
		b.Run(fmt.Sprint(n, "-users"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				cfg := settings.Default()
				if err := Read(text, "f", &cfg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(everything))
	f.Add([]byte("devices: [{soft: {memory: 2MiB}}]"))
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg := settings.Default()
		err := Read(text, "f", &cfg)
		var at *strictyaml.Error
		if err != nil && !errors.As(err, &at) {
			t.Errorf("an error without a place: %v", err)
		}
		if len(cfg.Devices) > 16 {
			t.Errorf("%d devices", len(cfg.Devices))
		}
	})
}

func FuzzDevices(f *testing.F) {
	f.Add("soft:memory=256M,speed=0.5;soft:memory=512M,count=2;cuda:all")
	f.Fuzz(func(t *testing.T, text string) {
		if devices, err := Devices(text); err == nil && (len(devices) == 0 || len(devices) > 16) {
			t.Errorf("%d devices", len(devices))
		}
	})
}
