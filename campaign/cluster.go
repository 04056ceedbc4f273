package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"muster/campaign/chaos"
	"muster/campaign/cluster"
	"muster/campaign/kinds"
)

// runCluster plays a campaign against clusters, with a new cluster for each share of the faults.
// With has the content that they are sent; how are the options that have this played again.
func runCluster(o *chaos.Options, faults string, nodes int, with cluster.Options, how string) int {
	chosen, err := kinds.Parse(faults, "fault", cluster.Kinds)
	switch {
	case err != nil:
	case flag.NArg() > 0:
		err = fmt.Errorf("%q is no option: --help shows them", flag.Arg(0))
	case o.Faults < 1 || o.Share < 1 || o.Patience <= 0 || o.Only < 0 || nodes < 2:
		err = fmt.Errorf("give numbers above 0, and at least two nodes")
	default:
		err = place(o, &o.Muster)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 2
	}
	for number, left := 1, o.Faults; left > 0; number++ {
		share := min(o.Share, left)
		left -= share
		if o.Only != 0 && o.Only != number {
			continue
		}
		dir := filepath.Join(o.Dir, fmt.Sprintf("cluster-%d", number))
		if !playCluster(o, dir, cluster.Options{Muster: o.Muster, Dir: dir, Seed: o.Seed, Episode: number, Faults: share, Kinds: chosen, Nodes: nodes, Width: 4 * nodes, Content: with.Content, Pieces: with.Pieces, Patience: o.Patience}) {
			fmt.Printf("to play it again: scripts/chaos %s --seed %d --faults %d --share %d --nodes %d --kinds=%q --episode %d\n", how, o.Seed, o.Faults, o.Share, nodes, faults, number)
			return 1
		}
	}
	if !o.Keep {
		_ = os.Remove(o.Dir)
	}
	return 0
}

// playCluster plays one episode, and returns whether it found nothing wrong.
func playCluster(o *chaos.Options, dir string, c cluster.Options) bool {
	err := os.RemoveAll(dir)
	if err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	var r *cluster.Report
	if err == nil {
		r, err = cluster.Run(c)
	}
	if err != nil {
		fmt.Printf("cluster: seed=%d episode=%d not played: %v\nits folder: %s\n", c.Seed, c.Episode, err, dir)
		return false
	}
	for _, w := range r.Violations {
		fmt.Printf("VIOLATION: %s\n", w)
	}
	for _, s := range r.Skipped {
		fmt.Printf("left out: %s\n", s)
	}
	fmt.Println(r.Line())
	if len(r.Violations) > 0 {
		fmt.Printf("its folder: %s\n", dir)
		return false
	}
	if !o.Keep {
		_ = os.RemoveAll(dir)
	}
	return true
}
