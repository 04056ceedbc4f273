package programs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/cobra"
)

// A timeline that could not be written is an error, also where the file could not be synced anyway.
func TestTimelineIsWrittenOrRefused(t *testing.T) {
	for _, test := range []struct {
		output string
		want   error
	}{{filepath.Join(t.TempDir(), "timeline"), nil}, {os.DevNull, nil}, {"/dev/full", syscall.ENOSPC}} {
		out, err := os.OpenFile(test.output, os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		var said strings.Builder
		c := &cobra.Command{}
		c.SetErr(&said)
		err = (&traceFlags{output: test.output}).show(c, out, t.TempDir(), true)
		if !errors.Is(err, test.want) || (err == nil) != strings.Contains(said.String(), "the timeline in "+test.output) {
			t.Errorf("%s: %v, and it says %q", test.output, err, said.String())
		}
	}
}
