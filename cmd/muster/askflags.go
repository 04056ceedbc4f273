package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	headclient "muster/head/client"
	"muster/head/jobtable"
)

// askFlags say which head to ask.
type askFlags struct{ head, tlsDir string }

const askHelp = `

The head is the one at --head or $MUSTER_HEAD: HOST or HOST:PORT over TLS, with the
folder that muster cert made for you (--tls-dir, $MUSTER_TLS_DIR), or unix:ADDRESS.
Without either it is that of this machine.`

func (f *askFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.head, "head", "", "the head to ask, `HOST[:PORT]` or unix:ADDRESS (default: $MUSTER_HEAD, or this machine's)")
	c.Flags().StringVar(&f.tlsDir, "tls-dir", "", "`folder` with your certificate, for a head on another machine (default: $MUSTER_TLS_DIR)")
}

// open makes a client of the head.
func (f *askFlags) open() (*headclient.Head, error) {
	head, dir := f.head, f.tlsDir
	if head == "" {
		head = os.Getenv("MUSTER_HEAD")
	}
	if dir == "" {
		dir = os.Getenv("MUSTER_TLS_DIR")
	}
	return headclient.Open(head, dir)
}

func oneJob(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return usageErrorf("name one job, as 17, or 17_3 for a task of an array")
	}
	return nil
}

func someJobs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageErrorf("name the jobs, as 17, or 17_3 for a task of an array")
	}
	return nil
}

func someNodes(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageErrorf("name the nodes, as n1 or n[1-4]")
	}
	return nil
}

// completionPatience is how long a shell waits for a list of jobs or nodes.
const completionPatience = 2 * time.Second

// completeJobs offers the jobs that have not ended.
func completeJobs(f *askFlags) cobra.CompletionFunc {
	return f.complete(func(ctx context.Context, h *headclient.Head) (words []string) {
		jobs, _ := h.Jobs(ctx, headclient.Query{})
		for i := range jobs {
			if j := &jobs[i]; !j.State.Over() {
				words = append(words, fmt.Sprintf("%s\t%s of %s, %s", jobtable.Name(j), j.Name, j.User, strings.ToLower(string(j.State))))
			}
		}
		return words
	})
}

// completeNodes offers the nodes.
func completeNodes(f *askFlags) cobra.CompletionFunc {
	return f.complete(func(ctx context.Context, h *headclient.Head) (words []string) {
		nodes, _ := h.Nodes(ctx)
		for i := range nodes {
			words = append(words, nodes[i].Name+"\t"+strings.ToLower(string(nodes[i].State)))
		}
		return words
	})
}

// complete offers what the head answers in time; nothing, if it cannot be asked.
func (f *askFlags) complete(ask func(context.Context, *headclient.Head) []string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		h, err := f.open()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
		defer cancel()
		return ask(ctx, h), cobra.ShellCompDirectiveNoFileComp
	}
}

// eachJob does something to jobs, one after the other; it goes on after a failure,
// which is said with the number.
func eachJob(c *cobra.Command, args []string, do func(id string) error) error {
	ids, err := headclient.JobRefs(args)
	if err != nil {
		return err
	}
	return each(c, "job", ids, do)
}

// about is the text of an error with the name of what it is about before it, unless the text has that.
func about(what, name string, err error) string {
	name = what + " " + name
	_, after, found := strings.Cut(err.Error(), name)
	if longer := after != "" && strings.ContainsAny(after[:1], "0123456789_"); found && !longer {
		return err.Error()
	}
	return name + ": " + err.Error()
}

func each(c *cobra.Command, what string, names []string, do func(string) error) error {
	failed := false
	for i, err := range headclient.Each(names, do) {
		if err != nil {
			fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", c.CommandPath(), about(what, names[i], err))
			failed = true
			if headGone(err) {
				break // nor would it answer for the others
			}
		}
	}
	if failed {
		return exitStatus(exitFailed)
	}
	return nil
}

// withMe adds the calling user to a list of users, by the name that the head
// knows: a certificate may have another name than this machine.
func withMe(c *cobra.Command, h *headclient.Head, users []string) ([]string, error) {
	cluster, err := h.Cluster(c.Context())
	if err != nil {
		return nil, err
	}
	return append(slices.Clone(users), cluster.User), nil
}
