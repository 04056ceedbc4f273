package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"muster/campaign/chaos"
	"muster/campaign/cluster"
	"muster/campaign/content"
	"muster/campaign/cores"
	"muster/campaign/kinds"
	"muster/campaign/world"
)

// partOfContent is the part of the faults of a campaign with content that are pieces of it. The
// others are kills, stops and links.
const partOfContent = 0.97

// Parts of a campaign with content.
const (
	partWorld   = "world"   // clusters in virtual time
	partGuide   = "guide"   // the balancer in virtual time
	partSharing = "sharing" // the dispatcher of virtual GPUs in virtual time
	partCluster = "cluster" // a real cluster
)

// runContent plays hostile and odd content against the cores in virtual time, and then against real
// clusters. The number of faults is that of each: a piece of content, a kill, a cut link, a program
// whose kernel never ends.
func runContent(o *chaos.Options, parts, faults, pieces string, nodes int) int {
	only, err := kinds.Parse(pieces, "content", content.Kinds)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 2
	}
	for _, part := range []struct {
		name string
		play func() error
	}{
		{partGuide, func() error { return playGuides(o) }},
		{partSharing, func() error { return playCores(o, partSharing, cores.Sharing) }},
		{partWorld, func() error { return playWorlds(o, only) }},
	} {
		if parts != "" && parts != part.name {
			continue
		}
		if err := part.play(); err != nil {
			fmt.Printf("VIOLATION: %v\nto play it again: scripts/chaos --content --part %s --pieces=%q --seed %d --faults %d\n", err, part.name, pieces, o.Seed, o.Faults)
			return 1
		}
	}
	if parts != "" && parts != partCluster {
		return 0
	}
	return runCluster(o, faults, nodes, cluster.Options{Content: partOfContent, Pieces: only}, fmt.Sprintf("--content --part %s --pieces=%q", partCluster, pieces))
}

// playGuides plays the guide of ivm/balance, and then that of the library in C. Who is harmed says more
// than a first decision that differs, so this comes last.
func playGuides(o *chaos.Options) error {
	if err := playCores(o, partGuide, cores.Guided); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "muster-guide-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c, err := cores.CompileInC(dir)
	if errors.Is(err, cores.ErrNoCompiler) {
		fmt.Printf("left out: the guide in C: %v\n", err)
		return nil
	}
	if err != nil {
		return err
	}
	defer c.Close()
	if err := playCores(o, partGuide+" in C", c.Guided); err != nil {
		return err
	}
	return c.Differs
}

// playCores plays a core in virtual time: one fault is a whole play.
func playCores(o *chaos.Options, name string, play func(seed uint64) error) error {
	began := time.Now()
	for i := range o.Faults {
		if err := play(o.Seed + uint64(i)); err != nil {
			return err
		}
	}
	fmt.Printf("%s: seed=%d plays=%d seconds=%.0f harmed=0\n", name, o.Seed, o.Faults, time.Since(began).Seconds())
	return nil
}

// playWorlds plays clusters in virtual time until they were sent as many pieces as there are to be
// faults.
func playWorlds(o *chaos.Options, only []content.Kind) error {
	began := time.Now()
	var all world.Result
	seed := o.Seed
	for ; all.Injected() < o.Faults; seed++ {
		cfg := world.WithContent(seed)
		cfg.Pieces = only
		r, err := world.Run(cfg)
		if err != nil {
			return err
		}
		all.Add(r)
	}
	fmt.Printf("world: seeds=%d-%d %s seconds=%.0f harmed=0\n", o.Seed, seed-1, all.Line(), time.Since(began).Seconds())
	return nil
}
