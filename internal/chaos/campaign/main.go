// Command campaign plays a campaign of faults against a node, for scripts/chaos.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"muster/internal/chaos"
)

func main() { os.Exit(run()) }

func run() int {
	o := chaos.Options{Kinds: chaos.Kinds, Log: os.Stderr}
	kinds := flag.String("kinds", "", "the `kinds` of faults, as worker-kill,move, or those to leave out, as -daemon-kill (default: all)")
	expect := flag.String("expect", string(chaos.Survive), "what becomes of programs whose worker or device is lost: recover or error")
	ofCluster := flag.Bool("cluster", false, "hurt a cluster, with a head, nodes and jobs, and not a node")
	nodes := flag.Int("nodes", 3, "nodes of the cluster")
	asJSON := flag.Bool("json", false, "print the report as one JSON document")
	flag.IntVar(&o.Faults, "faults", 200, "how many faults")
	flag.Uint64Var(&o.Seed, "seed", 1, "what chance is made of")
	flag.IntVar(&o.Programs, "programs", 5, "programs that run at a time")
	flag.IntVar(&o.Share, "share", 100, "faults that one node meets")
	flag.IntVar(&o.Only, "episode", 0, "play only the episode of this `number`")
	flag.BoolVar(&o.Keep, "keep", false, "keep the folders of all episodes, not only of those in which something was wrong")
	flag.DurationVar(&o.Patience, "patience", 2*time.Minute, "how long anything may take")
	flag.StringVar(&o.Dir, "dir", "", "`folder` for the episodes (default: a new one for temporary files)")
	flag.StringVar(&o.Muster, "muster", "bin/muster", "the `program` to hurt, with its libraries in lib/ beside it")
	flag.StringVar(&o.Examples, "examples", "bin/examples", "`folder` with the programs")
	flag.Parse()
	o.Settle = o.Patience
	if *ofCluster {
		return runCluster(&o, *kinds, *nodes)
	}
	if err := complete(&o, *kinds, *expect); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 2
	}
	report, err := chaos.Run(o)
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		fmt.Printf("campaign: seed=%d not played: %s\n", o.Seed, strings.ReplaceAll(err.Error(), "\n", "; "))
		return 1
	}
	if *asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		_ = enc.Encode(report)
	} else {
		show(report)
	}
	if len(report.Violations) > 0 {
		return 1
	}
	if !o.Keep {
		_ = os.Remove(o.Dir) // removes it only if it is empty
	}
	return 0
}

// complete validates the options, and makes a folder if none was given.
func complete(o *chaos.Options, kinds, expect string) error {
	if flag.NArg() > 0 {
		return fmt.Errorf("%q is no option: --help shows them", flag.Arg(0))
	}
	if o.Faults < 1 || o.Programs < 1 || o.Share < 1 || o.Patience <= 0 || o.Only < 0 {
		return fmt.Errorf("give numbers above 0")
	}
	if o.Expect = chaos.Expect(expect); o.Expect != chaos.Survive && o.Expect != chaos.Fail {
		return fmt.Errorf("--expect %q: give recover or error", expect)
	}
	if kinds != "" {
		var err error
		if o.Kinds, err = chaos.ParseKinds(kinds); err != nil {
			return err
		}
	}
	return place(o, &o.Muster, &o.Examples)
}

// place checks that the files exist, and makes the campaign's folder.
func place(o *chaos.Options, needs ...*string) error {
	for _, path := range needs {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		if _, err := os.Stat(absolute); err != nil {
			return fmt.Errorf("%w: make build examples makes it", err)
		}
		*path = absolute
	}
	var err error
	if o.Dir == "" {
		o.Dir, err = os.MkdirTemp("", "muster-chaos-")
	} else if o.Dir, err = filepath.Abs(o.Dir); err == nil {
		err = os.MkdirAll(o.Dir, 0o755)
	}
	if err != nil {
		return err
	}
	return os.Chmod(o.Dir, 0o755) // workers of other users need access
}

// show prints the report for people.
func show(r *chaos.Report) {
	for _, v := range r.Violations {
		fmt.Printf("%s--- episode %d\n%s", v.Logs, v.Episode, v.Account)
		for _, what := range v.What {
			fmt.Printf("VIOLATION in episode %d: %s\n", v.Episode, what)
		}
		fmt.Printf("its folder: %s\nto play it again: %s\n", v.Dir, v.Again)
	}
	for _, s := range r.Skipped {
		fmt.Printf("left out: %s\n", s)
	}
	fmt.Println(r.Line())
}
