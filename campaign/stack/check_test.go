package stack

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// muster run --check reports defects of an unmodified program, and its exit status says so.
func TestChecked(t *testing.T) {
	t.Parallel()
	needReasons(t)
	w := newWorld(t)
	check := []string{"--check", "all", "--error-exitcode", "9"}
	faulty := w.launchWith(check, made("reasons"), "faults", "1")
	code, said := faulty.wait(), faulty.output.String()
	for _, want := range []string{"access outside every allocation in kernel poke: 4 bytes at global 0x10", "(st.global.u32 [%d0], %r0)", "muster check: 1 defect (race,init,memory)"} {
		if !strings.Contains(said, want) {
			t.Errorf("no %q in:\n%s", want, said)
		}
	}
	if code != 9 {
		t.Errorf("it ended with %d", code)
	}
	sound := w.launchWith(check, made("small"), "sums").right()
	if !strings.Contains(sound, "muster check: no defects (race,init,memory)") {
		t.Errorf("it said:\n%s", sound)
	}
}

var overruns = sync.OnceValue(func() error { return compile("overruns") })

// An access beyond an allocation is reported whatever its size, also if another allocation is next to it:
// before and behind, reads and writes, of device memory, pools, pitched and managed memory and variables.
// The report names the allocation, the distance, the kernel, the thread and the source line.
func TestOverruns(t *testing.T) {
	t.Parallel()
	if err := overruns(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	p := w.launchWith([]string{"--check", "memory", "--error-exitcode", "9"}, made("overruns"))
	code, said := p.wait(), p.output.String()
	cases := strings.Split(said, "\ncase ")[1:]
	if len(cases) < 70 || code != 9 || !strings.Contains(said, fmt.Sprintf("muster check: %d defects (memory)", len(cases))) {
		t.Fatalf("it ended with %d, after %d cases:\n%s", code, len(cases), said)
	}
	for _, c := range cases {
		var kernel, where string
		var bytes int
		_, rest, _ := strings.Cut(c, ": ")
		if _, err := fmt.Sscanf(rest, "%s %s %d bytes", &kernel, &where, &bytes); err != nil {
			t.Fatalf("%q: %v", c, err)
		}
		distance, deed := "0 bytes behind the end of", "write"
		if where == "before" {
			distance = "4 bytes before"
		}
		if kernel == "get" {
			deed = "read"
		}
		want := fmt.Sprintf(`(?s)access outside every allocation in kernel %s: 4 bytes at global 0x[0-9a-f]+, %s (the %d bytes allocated at 0x[0-9a-f]+|variable \w+ \(%d bytes\))\n[^\n]*%s by thread \(0,0,0\) of block \(0,0,0\) at line \d+, overruns.cu:\d+`, kernel, distance, bytes, bytes, deed)
		if !regexp.MustCompile(want).MatchString(c) {
			t.Errorf("case %s\nhas no\n%s", c, want)
		}
	}
}

// Guard zones are there only if memory is checked.
func TestGuardZonesOnlyWhereChecked(t *testing.T) {
	t.Parallel()
	if err := overruns(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	const plain = "4: 512\n512: 512\n4096: 4096\n5000: 5120\n1048576: 2097152\n"
	if said := w.launchWith([]string{"--check", "race"}, made("overruns"), "distances").right(); !strings.Contains(said, plain) {
		t.Errorf("with --check race:\n%s", said)
	}
	const guarded = "4: 1024\n512: 1024\n4096: 8192\n5000: 10240\n1048576: 2097152\n"
	if said := w.launchWith([]string{"--check", "memory"}, made("overruns"), "distances").right(); !strings.Contains(said, guarded) {
		t.Errorf("with --check memory:\n%s", said)
	}
}
