package stack

import (
	"strings"
	"testing"
)

// Blocks of a software GPU form clusters, as those of the capability do that it claims.
func TestClustersOfBlocks(t *testing.T) {
	t.Parallel()
	if err := compile("clusters"); err != nil {
		t.Fatal(err)
	}
	const want = `clusters can be launched: 1
clusters of four: right
no clusters: right
clusters as compiled: right
compiled for 2
at most 8 blocks; at a time some
three do not divide eight: 912
sixteen are not portable: 912
other than compiled for: 912
`
	if got := newWorld(t).launchWith([]string{"--private"}, made("clusters")).right(); !strings.HasSuffix(got, want) {
		t.Errorf("it says\n%swant\n%s", got, want)
	}
}
