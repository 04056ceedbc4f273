package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"muster/head/api"
)

func newUsage() *cobra.Command {
	var f askFlags
	var users []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "usage [-u USER] [--json]",
		Short: "Show what users and accounts have used, and their shares",
		Long: `Show what users and accounts have used, as sshare and sreport do. SHARES is the part of
the cluster that one should have, USED the part that one had lately; FACTOR is what
follows for waiting jobs, from 0 to 1. Older usage counts less, as the head's
configuration says; HOURS is what is left of it, in hours of cores or of what the
configuration bills. Only a head with a file of priorities (muster head --priority)
keeps this account; muster history has what each job used.` + askHelp,
		Example: "  muster usage\n  muster usage -u alice\n  muster usage --json",
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := f.open()
			if err != nil {
				return err
			}
			u, err := h.Usage(c.Context())
			if err != nil {
				return err
			}
			u.Lines = slices.DeleteFunc(u.Lines, func(l api.UsageLine) bool { return !wanted(users, l.User) })
			if asJSON {
				return printJSON(c, u)
			}
			if len(u.Lines) == 0 && len(users) == 0 {
				fmt.Fprintln(c.ErrOrStderr(), "muster: note: the head keeps no account of usage: it does with a file of priorities (muster head --priority)")
			}
			return writeUsage(c, u.Lines)
		},
	}
	f.add(c)
	c.Flags().StringSliceVarP(&users, "user", "u", nil, "these `users`")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

func writeUsage(c *cobra.Command, lines []api.UsageLine) error {
	fraction := func(x float64) string { return strconv.FormatFloat(x, 'f', 4, 64) }
	hours := func(seconds float64) string { return strconv.FormatFloat(seconds/3600, 'f', 1, 64) }
	var rows [][]string
	for _, l := range lines {
		rows = append(rows, []string{
			orDash(l.Account), orDash(l.User), fraction(l.Shares), fraction(l.Used), fraction(l.Factor), hours(l.Raw),
		})
	}
	return writeColumns(c.OutOrStdout(), []string{"ACCOUNT", "USER", "SHARES", "USED", "FACTOR", "HOURS"}, rows, 0)
}

func newPriorities() *cobra.Command {
	var f askFlags
	var users, jobs []string
	var asJSON bool
	c := &cobra.Command{
		Use:   "priorities [-u USER] [-j JOB] [--json]",
		Short: "Show why the queue stands as it does",
		Long: `Show the priorities of the jobs that wait, the highest first, and what each is made of,
as sprio does. Jobs are considered in this order; which of them start, and when, is the
policy's choice.` + askHelp,
		Example: "  muster priorities\n  muster priorities -j 17\n  muster priorities --json",
		RunE: func(c *cobra.Command, _ []string) error {
			ids, err := jobIDs(jobs)
			if err != nil {
				return err
			}
			h, err := f.open()
			if err != nil {
				return err
			}
			p, err := h.Priorities(c.Context())
			if err != nil {
				return err
			}
			p.Jobs = slices.DeleteFunc(p.Jobs, func(j api.JobPriority) bool { return !wanted(users, j.User) || !wanted(ids, fmt.Sprint(j.Job)) })
			if asJSON {
				return printJSON(c, p)
			}
			return writePriorities(c, p.Jobs)
		},
	}
	f.add(c)
	c.Flags().StringSliceVarP(&users, "user", "u", nil, "jobs of these `users`")
	c.Flags().StringArrayVarP(&jobs, "jobs", "j", nil, "these `jobs`")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON document")
	return c
}

// writePriorities has a column for each factor that any job has.
func writePriorities(c *cobra.Command, jobs []api.JobPriority) error {
	factors := map[string]bool{}
	for _, j := range jobs {
		for name := range j.Factors {
			factors[name] = true
		}
	}
	names := slices.Sorted(maps.Keys(factors))
	header := []string{"JOBID", "USER", "ACCOUNT", "PRIORITY"}
	for _, name := range names {
		header = append(header, strings.ToUpper(name))
	}
	var rows [][]string
	for _, j := range jobs {
		row := []string{strconv.FormatUint(j.Job, 10), j.User, orDash(j.Account), strconv.FormatInt(j.Priority, 10)}
		for _, name := range names {
			row = append(row, strconv.FormatInt(j.Factors[name], 10))
		}
		rows = append(rows, row)
	}
	return writeColumns(c.OutOrStdout(), header, rows, 1)
}
