package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/cmd/muster/cli"
)

// newMan makes the command with which make install writes the manual pages. They are made of
// the help texts, so that nothing is written twice.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:     "man FOLDER",
		Short:   "Write the manual pages into a folder",
		Long:    "Write a manual page for each command into a folder. make install does that.",
		Example: "  muster man /usr/local/share/man/man1",
		Hidden:  true,
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			var failed error
			cli.EachCommand(c.Root(), func(each *cobra.Command) {
				if failed == nil && each.IsAvailableCommand() && (each == c.Root() || !isHidden(each)) {
					failed = os.WriteFile(filepath.Join(args[0], pageName(each)+".1"), []byte(manPage(each)), 0o644)
				}
			})
			return failed
		},
	}
}

// isHidden says whether a command or one above it is not for people.
func isHidden(c *cobra.Command) bool {
	return c != nil && (c.Hidden || isHidden(c.Parent()))
}

// pageName is what man calls the page of a command.
func pageName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage is the help of a command as troff with the macros of man(7).
func manPage(c *cobra.Command) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"Muster\" \"Muster\"\n", troff(strings.ToUpper(pageName(c))))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", troff(pageName(c)), troff(c.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.nf\n%s\n.fi\n", troff(c.UseLine()))
	text := c.Long
	if text == "" {
		text = c.Short + "."
	}
	fmt.Fprintf(&b, ".SH DESCRIPTION\n.nf\n%s\n.fi\n", troff(text))
	if c.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", troff(c.Example))
	}
	manFlags(&b, c.LocalFlags())
	manCommands(&b, c)
	return b.String()
}

// manFlags writes the flags of a command.
func manFlags(b *strings.Builder, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	b.WriteString(".SH OPTIONS\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		kind, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if kind != "" {
			name += " " + kind
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR\n%s\n", troff(name), troff(usage))
	})
}

// manCommands names the pages beside a command's own.
func manCommands(b *strings.Builder, c *cobra.Command) {
	var below []*cobra.Command
	for _, each := range c.Commands() {
		if each.IsAvailableCommand() {
			below = append(below, each)
		}
	}
	if len(below) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, each := range below {
			fmt.Fprintf(b, ".TP\n\\fB%s\\fR(1)\n%s\n", troff(pageName(each)), troff(each.Short))
		}
	}
	if c.HasParent() {
		fmt.Fprintf(b, ".SH SEE ALSO\n\\fB%s\\fR(1)\n", troff(pageName(c.Parent())))
	}
}

// troff makes text that troff prints as it is.
func troff(text string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
