package stack

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// A device that stops answering is taken from all clients before a program that noticed is rebuilt
// elsewhere: so the program is rebuilt only once, although the lost device is the fastest.
func TestLostDeviceIsNotGrantedAgain(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"while a program computes": false, "before its first kernel": true} {
		t.Run(name, func(t *testing.T) { lostDevice(t, before) })
	}
}

func lostDevice(t *testing.T, before bool) {
	dir := t.TempDir()
	lost, rules := filepath.Join(dir, "lost"), filepath.Join(dir, "rules")
	lose := func() {
		if err := os.WriteFile(lost, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// To find out takes a while.
	if err := os.WriteFile(rules, []byte("any:while="+lost+":fail=device-lost\nopen:*:delay=200ms\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	n := newWorld(t).start("--devices", "soft:name=fast,memory=64M,faults="+rules+";soft:name=slow,memory=64M,speed=0.5", "--state", filepath.Join(dir, "state"))
	if before {
		lose()
	}
	p := n.launch(example(t, "weave"), "--size", "4k", "--repeat", "600")
	if !before {
		n.eventually("the program computes on the fast device", func() bool {
			clients := n.status().Clients
			return len(clients) == 1 && clients[0].Kernels > 5 && clients[0].Device != nil && *clients[0].Device == 0
		})
		lose()
	}
	p.right()
	tries := regexp.MustCompile(`"a client is rebuilt in another worker".*"try":(\d+)`).FindAllStringSubmatch(n.log.String(), -1)
	if len(tries) != 1 || tries[0][1] != "1" {
		t.Errorf("the program was rebuilt %d times: %v", len(tries), tries)
	}
	if n.logged("a device is lost", "name") != "fast" {
		t.Error("the device does not count as lost")
	}
}
