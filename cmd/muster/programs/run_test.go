package programs

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// The line that says how muster run is used has all of its flags.
func TestRunUsage(t *testing.T) {
	c := NewRun()
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(c.Use, "--"+f.Name) {
			t.Errorf("--%s is missing in\n%s", f.Name, c.Use)
		}
	})
}
