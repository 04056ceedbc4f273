// Command campaign plays a campaign of faults against a node, for scripts/chaos.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"muster/campaign/chaos"
	"muster/campaign/cluster"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout)) }

// help writes how the command is used: the options of scripts/chaos, some of which this one never sees.
func help(w io.Writer) {
	fmt.Fprintln(w, "Usage: scripts/chaos [OPTION...]\n\nPlays a campaign of faults: docs/chaos.md. The exit status is 0 if nothing was wrong,\n1 if something was, 2 for wrong usage.")
	fmt.Fprintln(w, "\n  --build\n        only build what it needs, to be carried to a machine without Go; alone")
	fmt.Fprintln(w, "  --put-back [NAME]\n        put mended defects back, or one, and have campaigns find them; alone")
	flag.VisitAll(func(f *flag.Flag) {
		value, usage := flag.UnquoteUsage(f)
		if value == "int" || value == "uint" {
			value = "n"
		}
		if f.DefValue != "" && f.DefValue != "0" && f.DefValue != "false" {
			usage += fmt.Sprintf(" (default: %s)", f.DefValue)
		}
		fmt.Fprintf(w, "  %s\n        %s\n", strings.TrimSpace("--"+f.Name+" "+strings.ToUpper(value)), usage)
	})
}

func run(args []string, out io.Writer) int {
	flag.CommandLine.Init("chaos", flag.ContinueOnError)
	flag.CommandLine.Usage = func() {}
	o := chaos.Options{Kinds: chaos.Kinds, Log: os.Stderr}
	kinds := flag.String("kinds", "", "the `kinds` of faults, as worker-kill,move, or those to leave out, as -daemon-kill (default: all)")
	expect := flag.String("expect", string(chaos.Survive), "what becomes of programs whose worker or device is lost: recover or error")
	ofCluster := flag.Bool("cluster", false, "hurt a cluster, with a head, nodes and jobs, and not a node")
	withContent := flag.Bool("content", false, "send hostile and odd content, in virtual time and to clusters, beside other faults")
	part := flag.String("part", "", "with --content: only the guide, sharing, world or cluster")
	pieces := flag.String("pieces", "", "with --content: the `kinds` of submissions and requests, as zero,array, or those to leave out, as -array (default: all)")
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
	if err := flag.CommandLine.Parse(args); errors.Is(err, flag.ErrHelp) {
		help(out)
		return 0
	} else if err != nil {
		fmt.Fprintln(os.Stderr, "chaos: --help lists the options")
		return 2
	}
	o.Settle = o.Patience
	switch {
	case !*withContent && (*part != "" || *pieces != ""):
		fmt.Fprintln(os.Stderr, "chaos: --part and --pieces need --content")
		return 2
	case *withContent && !slices.Contains([]string{"", partGuide, partSharing, partWorld, partCluster}, *part):
		fmt.Fprintf(os.Stderr, "chaos: there is no part %q (there are: guide, sharing, world, cluster)\n", *part)
		return 2
	case *withContent:
		if !given("share") {
			o.Share = 2500
		}
		return runContent(&o, *part, *kinds, *pieces, *nodes)
	case *ofCluster:
		return runCluster(&o, *kinds, *nodes, cluster.Options{}, "--cluster")
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

// given says whether an option was given.
func given(name string) (found bool) {
	flag.Visit(func(f *flag.Flag) { found = found || f.Name == name })
	return found
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
