package kernelmemory

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"muster/device"
)

// What a device runs is not always what the PTX beside it says: machine code for one architecture may
// be made from other source lines than the PTX for another.
func TestOfImage(t *testing.T) {
	for _, c := range []struct {
		image string
		major int
		minor int
		want  string
	}{
		{"default", 9, 0, "PTX"},      // for 75, which the driver compiles for 90
		{"default", 7, 5, "PTX"},      // machine code for 75, and PTX for 75
		{"default", 7, 0, "nothing"},  // all is for newer devices
		{"elf", 9, 0, "nothing"},      // machine code alone
		{"many", 9, 0, "nothing"},     // machine code for 90, PTX for 80 and 120
		{"many", 8, 6, "PTX"},         // PTX for 80
		{"many", 12, 0, "PTX"},        // both for 120
		{"many", 13, 0, "PTX"},        // PTX for 120
		{"compress-all", 9, 0, "PTX"}, // decompressed
		{"mode-size", 9, 0, "PTX"},
		{"debug", 9, 0, "PTX"},
		{"variants", 9, 0, "PTX"}, // for 90a alone, beside 100f
	} {
		image, err := os.ReadFile(filepath.Join("../../ptx/fatbin/testdata", c.image+".fatbin"))
		if err != nil {
			t.Fatal(err)
		}
		got := text(OfImage(image, device.Compute{Major: c.major, Minor: c.minor}))
		if c.want == "PTX" && got == "" || c.want == "nothing" && got != "" {
			t.Errorf("%s on %d.%d: %q, should be known from %s", c.image, c.major, c.minor, got, c.want)
		}
	}
}

func text(all map[string]*device.Touches) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		line := name + ":"
		for _, a := range all[name].Accesses {
			line += fmt.Sprintf(" %v", a.Words)
			if a.Writes {
				line += "w"
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

// An image that cannot be read tells nothing, and no image ends the worker.
func FuzzOfImage(f *testing.F) {
	files, err := filepath.Glob("../../ptx/fatbin/testdata/*.fatbin")
	if err != nil || len(files) == 0 {
		f.Fatal("no images", err)
	}
	for _, file := range files {
		image, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(image)
	}
	f.Add([]byte(".version 7.0\n.target sm_70\n.address_size 64\n.entry k() { ret; }"))
	f.Fuzz(func(t *testing.T, image []byte) { OfImage(image, device.Compute{Major: 9}) })
}
