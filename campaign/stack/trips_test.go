package stack

import (
	"regexp"
	"strconv"
	"testing"
)

var tripsLine = regexp.MustCompile(`round trips to the node: (\d+)`)

// The number of round trips of a remote program depends only on how often it needs a result, not on
// how much it requests: a training step costs one round trip.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	if err := compile("trips"); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	n, users := remoteNode(w)
	there := []string{"--node", n.gateway, "--tls-dir", users[0], "--round-trips"}
	trips := func(what string, times int) int {
		said := n.launchWith(there, made("trips"), what, strconv.Itoa(times)).right()
		found := tripsLine.FindStringSubmatch(said)
		if found == nil {
			t.Fatalf("%s: no word of round trips: %s", what, said)
		}
		count, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	for what, each := range map[string]int{
		"launch": 0, "in": 0, "within": 0, "events": 0, "objects": 0, "questions": 0, "again": 0,
		"out": 1, "wait": 1, "all-again": 1, "events-known": 1, "item": 1, "step": 1,
	} {
		few, many := trips(what, 3), trips(what, 13)
		if many-few != 10*each {
			t.Errorf("%s: %d round trips for 3, %d for 13: each should cost %d", what, few, many, each)
		}
	}
	// Copies out of the device that the program does not wait for share round trips.
	if few, many := trips("out-later", 3), trips("out-later", 100); many-few > 97 {
		t.Errorf("copies that nobody waits for: %d round trips for 3, %d for 100", few, many)
	}
	n.idle()
}
