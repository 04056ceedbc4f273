package jobs

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"muster/cmd/muster/cli"
	headclient "muster/head/client"
	"muster/head/jobtable"
	"muster/internal/screen"
	"muster/wire/api"
)

func NewUsage() *cobra.Command {
	var f cli.AskFlags
	var users []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "usage [-u USER] [--json]",
		Short: "Show what users and accounts have used, and their shares",
		Long: `Show what users and accounts have used, as sshare and sreport do. SHARES is the part of
the cluster that one should have, USED the part that one had lately; FACTOR is what
follows for a user's waiting jobs, from 0 to 1. Accounts have none, as every job is a
user's. Older usage counts less, as the head's configuration says; HOURS is what is left
of it, in hours of cores or of what the configuration bills. Only a head with a file of priorities (muster head --priority)
keeps this account; muster history has what each job used.` + cli.AskHelp,
		Example: "  muster usage\n  muster usage -u alice\n  muster usage --json",
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := f.Open()
			if err != nil {
				return err
			}
			u, err := h.Usage(c.Context())
			if err != nil {
				return err
			}
			u.Lines = slices.DeleteFunc(u.Lines, func(l api.UsageLine) bool { return !jobtable.Wanted(users, l.User) })
			if asJSON {
				return cli.PrintJSON(c, u)
			}
			if len(u.Lines) == 0 && len(users) == 0 {
				fmt.Fprintln(c.ErrOrStderr(), "muster: note: the head keeps no account of usage: it does with a file of priorities (muster head --priority)")
			}
			return jobtable.WriteUsage(c.OutOrStdout(), u.Lines, screen.Columns(c.OutOrStdout()))
		},
	}
	f.Add(c)
	c.Flags().StringSliceVarP(&users, "user", "u", nil, "these `users`")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

func NewPriorities() *cobra.Command {
	var f cli.AskFlags
	var users, jobs []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "priorities [-u USER] [-j JOB] [--json]",
		Short: "Show why the queue stands as it does",
		Long: `Show the priorities of the jobs that wait, the highest first, and what each is made of,
as sprio does. Jobs are considered in this order; which of them start, and when, is the
policy's choice.` + cli.AskHelp,
		Example: "  muster priorities\n  muster priorities -j 17\n  muster priorities --json",
		RunE: func(c *cobra.Command, _ []string) error {
			ids, err := headclient.JobIDs(jobs)
			if err != nil {
				return err
			}
			h, err := f.Open()
			if err != nil {
				return err
			}
			p, err := h.Priorities(c.Context())
			if err != nil {
				return err
			}
			p.Jobs = slices.DeleteFunc(p.Jobs, func(j api.JobPriority) bool {
				return !jobtable.Wanted(users, j.User) || !jobtable.Wanted(ids, fmt.Sprint(j.Job))
			})
			if asJSON {
				return cli.PrintJSON(c, p)
			}
			return jobtable.WritePriorities(c.OutOrStdout(), p.Jobs, screen.Columns(c.OutOrStdout()))
		},
	}
	f.Add(c)
	c.Flags().StringSliceVarP(&users, "user", "u", nil, "jobs of these `users`")
	c.Flags().StringArrayVarP(&jobs, "jobs", "j", nil, "these `jobs`")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}
