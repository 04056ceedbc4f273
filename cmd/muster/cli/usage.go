package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"muster/internal/misuse"
	"muster/model"
)

func NoArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return UsageErrorf("%q is one argument too many: it takes flags only", args[0])
	}
	return nil
}

// UsageErrorf is wrong usage: the exit status is 2, and the help is pointed to.
func UsageErrorf(format string, args ...any) error { return misuse.Errorf(format, args...) }

// FlagError turns what the flag library says into a usage error with the nearest right spelling.
func FlagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() == "" {
		name := unknown.GetSpecifiedName()
		var known []string
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden {
				known = append(known, f.Name)
			}
		})
		if near := model.Nearest(name, known); near != "" {
			return UsageErrorf("there is no flag --%s: did you mean --%s?", name, near)
		}
		return UsageErrorf("there is no flag --%s", name)
	}
	if unknown != nil {
		return UsageErrorf("there is no flag -%s", unknown.GetSpecifiedName())
	}
	var wrong *pflag.InvalidValueError
	if errors.As(err, &wrong) {
		return UsageErrorf("--%s %q: %s", wrong.GetFlag().Name, wrong.GetValue(), expected(wrong.GetFlag(), wrong.Unwrap()))
	}
	return UsageErrorf("%v", err)
}

// expected says what a flag takes; cause is what was wrong.
func expected(f *pflag.Flag, cause error) string {
	switch f.Value.Type() {
	case "int":
		return "give a whole number"
	case "uint64":
		return "give a whole number, not below 0"
	case "float64":
		return "give a number"
	case "bool":
		return "give true or false"
	case "duration":
		return "give a time with its unit, as 10ms, 2s or 1m"
	}
	return cause.Error()
}

// FlagsFromEnvironment sets each flag that the command line left alone from its variable.
func FlagsFromEnvironment(c *cobra.Command, env func(string) string) error {
	var first error
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if first != nil || f.Changed || f.Name == "help" {
			return
		}
		name := Variable(c, f.Name)
		value := env(name)
		if value == "" {
			return
		}
		err := c.Flags().Set(f.Name, value)
		var wrong *pflag.InvalidValueError
		switch {
		case errors.As(err, &wrong):
			first = UsageErrorf("the environment variable %s is %q: %s", name, value, expected(f, wrong.Unwrap()))
		case err != nil:
			first = UsageErrorf("the environment variable %s: %v", name, err)
		}
	})
	return first
}

// UnknownVariables returns those of a command's variables that stand for no flag of it
// or of its sub-commands, with the name that may have been meant. The environment is
// a list of NAME=VALUE.
func UnknownVariables(c *cobra.Command, environment []string) (unknown []string) {
	prefix := Variable(c, "")
	var known []string // without the prefix, so that it makes nothing alike
	EachCommand(c, func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, strings.TrimPrefix(Variable(c, f.Name), prefix)) })
	})
	for _, setting := range environment {
		name, value, _ := strings.Cut(setting, "=")
		rest, ours := strings.CutPrefix(name, prefix)
		if !ours || value == "" || slices.Contains(known, rest) {
			continue
		}
		if near := model.Nearest(rest, known); near != "" {
			name += " (did you mean " + prefix + near + "?)"
		}
		unknown = append(unknown, name)
	}
	return unknown
}

// Variable is the environment variable that stands for a flag of a command.
func Variable(c *cobra.Command, flag string) string {
	words := c.CommandPath() + " " + flag
	return strings.ToUpper(strings.NewReplacer(" ", "_", "-", "_").Replace(words))
}

func EachCommand(c *cobra.Command, do func(*cobra.Command)) {
	do(c)
	for _, sub := range c.Commands() {
		EachCommand(sub, do)
	}
}

// SubCommand finds a command by name, and lists the names there are.
func SubCommand(c *cobra.Command, name string) (found *cobra.Command, known []string) {
	for _, sub := range c.Commands() {
		if sub.Name() == name || sub.HasAlias(name) {
			return sub, nil
		}
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
		}
	}
	return nil, known
}

func OneArgument(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return UsageErrorf("give %s", what)
		case len(args) > 1:
			return UsageErrorf("%q is one argument too many: give %s", args[1], what)
		}
		return nil
	}
}
