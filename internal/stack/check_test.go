package stack

import (
	"strings"
	"testing"
)

// muster run --check reports defects of an unmodified program, and its exit status says so.
func TestChecked(t *testing.T) {
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
