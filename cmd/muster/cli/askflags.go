package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	headclient "muster/head/client"
	"muster/head/jobtable"
	"muster/wire/api"
)

// AskFlags say which head to ask.
type AskFlags struct{ Head, TlsDir string }

const AskHelp = `

The head is the one at --head or $MUSTER_HEAD: HOST or HOST:PORT over TLS, with the
folder that muster cert made for you (--tls-dir, $MUSTER_TLS_DIR), or unix:ADDRESS.
Of several heads give all, as HOST,HOST,HOST. Without either it is that of this machine.`

func (f *AskFlags) Add(c *cobra.Command) {
	c.Flags().StringVar(&f.Head, "head", "", "the head to ask, `HOST[:PORT]` or unix:ADDRESS (default: $MUSTER_HEAD, or this machine's)")
	c.Flags().StringVar(&f.TlsDir, "tls-dir", "", "`folder` with your certificate, for a head on another machine (default: $MUSTER_TLS_DIR)")
}

// Open makes a client of the head.
func (f *AskFlags) Open() (*headclient.Head, error) {
	head, dir := f.Head, f.TlsDir
	if head == "" {
		head = os.Getenv("MUSTER_HEAD")
	}
	if dir == "" {
		dir = os.Getenv("MUSTER_TLS_DIR")
	}
	return headclient.Open(head, dir)
}

func OneJob(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return UsageErrorf("name one job, as 17, or 17_3 for a task of an array")
	}
	return nil
}

func SomeJobs(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return UsageErrorf("name the jobs, as 17, or 17_3 for a task of an array")
	}
	return nil
}

func SomeNodes(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return UsageErrorf("name the nodes, as n1 or n[1-4]")
	}
	return nil
}

// completionPatience is how long a shell waits for a list of jobs or nodes.
const completionPatience = 2 * time.Second

// CompleteJobs offers the jobs that have not ended.
func CompleteJobs(f *AskFlags) cobra.CompletionFunc {
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

// CompleteNodes offers the nodes.
func CompleteNodes(f *AskFlags) cobra.CompletionFunc {
	return f.complete(func(ctx context.Context, h *headclient.Head) (words []string) {
		nodes, _ := h.Nodes(ctx)
		for i := range nodes {
			words = append(words, nodes[i].Name+"\t"+strings.ToLower(string(nodes[i].State)))
		}
		return words
	})
}

// complete offers what the head answers in time; nothing, if it cannot be asked.
func (f *AskFlags) complete(ask func(context.Context, *headclient.Head) []string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		h, err := f.Open()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(context.Background(), completionPatience)
		defer cancel()
		return ask(ctx, h), cobra.ShellCompDirectiveNoFileComp
	}
}

// EachJob does something to jobs, one after the other; it goes on after a failure,
// which is said with the number.
func EachJob(c *cobra.Command, args []string, do func(id string) error) error {
	ids, err := headclient.JobRefs(args)
	if err != nil {
		return err
	}
	return Each(c, "job", ids, do)
}

// About is the text of an error with the name of what it is about before it, unless the text has that.
func About(what, name string, err error) string {
	name = what + " " + name
	_, after, found := strings.Cut(err.Error(), name)
	if longer := after != "" && strings.ContainsAny(after[:1], "0123456789_"); found && !longer {
		return err.Error()
	}
	return name + ": " + err.Error()
}

func Each(c *cobra.Command, what string, names []string, do func(string) error) error {
	failed := false
	for i, err := range headclient.Each(names, do) {
		if err != nil {
			fmt.Fprintf(c.ErrOrStderr(), "%s: %s\n", c.CommandPath(), About(what, names[i], err))
			failed = true
			if HeadGone(err) {
				break // nor would it answer for the others
			}
		}
	}
	if failed {
		return ExitStatus(ExitFailed)
	}
	return nil
}

// WithMe adds the calling user to a list of users, by the name that the head
// knows: a certificate may have another name than this machine.
func WithMe(c *cobra.Command, h *headclient.Head, users []string) ([]string, error) {
	cluster, err := h.Cluster(c.Context())
	if err != nil {
		return nil, err
	}
	return append(slices.Clone(users), cluster.User), nil
}

func HeadGone(err error) bool { return errors.Is(err, headclient.ErrUnreachable) }

// Nodes asks for all nodes, or for those that are named.
func (f *AskFlags) Nodes(c *cobra.Command, args []string) ([]api.Node, error) {
	names, err := headclient.NodeNames(args)
	if err != nil {
		return nil, err
	}
	h, err := f.Open()
	if err != nil {
		return nil, err
	}
	return h.NamedNodes(c.Context(), names)
}
