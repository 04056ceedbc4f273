package clusterfile

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"muster/internal/units"
	"muster/model"
	"muster/model/strictyaml"
)

// maxPartitions is more than any site has: each job looks for its own among them.
const maxPartitions = 1000

// Partitions reads partitions by their names, with Slurm's keys. Cluster descriptions and heads have them alike.
func Partitions(f *strictyaml.File, n strictyaml.Node) ([]model.Partition, error) {
	entries, err := f.Entries(n, "partitions")
	if err != nil {
		return nil, err
	}
	if len(entries) > maxPartitions {
		return nil, f.Errorf(strictyaml.Start(n), "%d partitions: give at most %d", len(entries), maxPartitions)
	}
	list := make([]model.Partition, 0, len(entries))
	for _, e := range entries {
		if err := strictyaml.CheckName(e.Key.Text); err != nil {
			return nil, f.Errorf(e.Key.Place, "the name of a partition %v", err)
		}
		p, err := partition(f, e)
		if err != nil {
			return nil, err
		}
		if list = append(list, p); model.CheckPartitions(list) != nil {
			return nil, f.Errorf(e.Key.Place, "%v", model.CheckPartitions(list))
		}
	}
	return list, nil
}

func partition(f *strictyaml.File, e strictyaml.Entry) (model.Partition, error) {
	p := model.Partition{Name: e.Key.Text, PriorityTier: 1}
	nodes := func(key string, into *[]string) strictyaml.Field {
		return strictyaml.Key(key, strictyaml.Value(f, key, into, parseNodes))
	}
	limit := func(key string, into *int) strictyaml.Field {
		return strictyaml.Key(key, strictyaml.Value(f, key, into, parseLimit))
	}
	long := func(key string, into *time.Duration) strictyaml.Field {
		return strictyaml.Key(key, strictyaml.Value(f, key, into, parseTimeLimit))
	}
	names := func(key string, into *[]string) strictyaml.Field {
		return strictyaml.Key(key, func(n strictyaml.Node) error { return namesOf(f, n, key, into) })
	}
	_, err := f.Fields(e.Value, "partition "+p.Name,
		nodes("Nodes", &p.Nodes), nodes("Lenders", &p.Lenders),
		strictyaml.Key("Default", strictyaml.Value(f, "Default", &p.Default, parseYesNo)),
		strictyaml.Key("State", strictyaml.Value(f, "State", &p.State, model.ParsePartitionState)),
		long("DefaultTime", &p.DefaultTime), long("MaxTime", &p.MaxTime),
		limit("MinNodes", &p.MinNodes), limit("MaxNodes", &p.MaxNodes), limit("MaxCPUsPerJob", &p.MaxCores), limit("MaxGPUsPerJob", &p.MaxGPUs),
		strictyaml.Key("PriorityTier", f.Count("PriorityTier", 0, model.MaxTier, &p.PriorityTier)),
		strictyaml.Key("PriorityJobFactor", f.Count("PriorityJobFactor", 1, model.MaxTier, &p.PriorityJobFactor)),
		strictyaml.Key("PreemptMode", strictyaml.Value(f, "PreemptMode", &p.PreemptMode, parsePreemptMode)),
		names("AllowUsers", &p.AllowUsers), names("AllowAccounts", &p.AllowAccounts), names("AllowQos", &p.AllowQOS),
		names("DenyAccounts", &p.DenyAccounts), names("DenyQos", &p.DenyQOS),
	)
	if p.Nodes == nil && p.Lenders != nil && err == nil {
		err = f.Errorf(e.Key.Place, "partition %s has all nodes: leave Lenders out", p.Name)
	}
	return p, err
}

// parseNodes reads a list of nodes; nil is ALL.
func parseNodes(s string) ([]string, error) {
	if s == "ALL" {
		return nil, nil
	}
	return model.ExpandNodes(s)
}

func unlimited(s string) bool {
	return strings.EqualFold(s, "UNLIMITED") || strings.EqualFold(s, "INFINITE")
}

func parseLimit(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if unlimited(s) {
		return 0, nil
	}
	if err != nil || n < 1 || n > math.MaxInt32 {
		return 0, fmt.Errorf("must be a whole number from 1 to %d, or UNLIMITED, not %q", math.MaxInt32, s)
	}
	return n, nil
}

// parseTimeLimit reads a time of slurm.conf, in which a plain number is minutes.
func parseTimeLimit(s string) (time.Duration, error) {
	if unlimited(s) {
		return 0, nil
	}
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		s = strconv.FormatUint(n, 10) + "m"
	}
	d, err := units.ParseDuration(s)
	if err == nil && d == 0 {
		err = errors.New("must be above 0, or UNLIMITED")
	}
	return d, err
}

func parseYesNo(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "yes", "true":
		return true, nil
	case "no", "false":
		return false, nil
	}
	return false, fmt.Errorf("must be YES or NO, not %q", s)
}

func parsePreemptMode(s string) (string, error) {
	switch s = strings.ToLower(s); s {
	case "off":
		return "", nil
	case "suspend", "move", "requeue", "cancel":
		return s, nil
	}
	return "", fmt.Errorf("must be off, suspend, move, requeue or cancel, not %q", s)
}

func namesOf(f *strictyaml.File, n strictyaml.Node, key string, into *[]string) error {
	items, ok := strictyaml.Items(n)
	if !ok {
		return f.Errorf(strictyaml.Start(n), "%s must be a list of names, as [alice, bob], not %s", key, strictyaml.Kind(n))
	}
	for _, item := range items {
		var name string
		if err := f.Identifier("a name of "+key, &name)(item); err != nil {
			return err
		}
		*into = append(*into, name)
	}
	return nil
}

// writePartitions writes what Partitions reads.
func writePartitions(w io.Writer, list []model.Partition) {
	if len(list) > 0 {
		fmt.Fprintln(w, "partitions:")
	}
	for i := range list {
		p := &list[i]
		nodes := "ALL"
		if p.Nodes != nil {
			nodes = model.CompressNodes(p.Nodes)
		}
		fmt.Fprintf(w, "  %s: {Nodes: %s", strictyaml.Quote(p.Name), strictyaml.Quote(nodes))
		text := func(key, value string) {
			if value != "" {
				fmt.Fprintf(w, ", %s: %s", key, value)
			}
		}
		count := func(key string, n, usual int) {
			if n != usual {
				fmt.Fprintf(w, ", %s: %d", key, n)
			}
		}
		long := func(key string, d time.Duration) {
			if d > 0 {
				text(key, d.String())
			}
		}
		names := func(key string, list []string) {
			quoted := make([]string, len(list))
			for i, name := range list {
				quoted[i] = strictyaml.Quote(name)
			}
			if len(list) > 0 {
				text(key, "["+strings.Join(quoted, ", ")+"]")
			}
		}
		if p.Lenders != nil {
			text("Lenders", strictyaml.Quote(model.CompressNodes(p.Lenders)))
		}
		if p.Default {
			text("Default", "YES")
		}
		if p.State != model.PartitionUp {
			text("State", p.State.String())
		}
		long("DefaultTime", p.DefaultTime)
		long("MaxTime", p.MaxTime)
		count("MinNodes", p.MinNodes, 0)
		count("MaxNodes", p.MaxNodes, 0)
		count("MaxCPUsPerJob", p.MaxCores, 0)
		count("MaxGPUsPerJob", p.MaxGPUs, 0)
		count("PriorityTier", p.PriorityTier, 1)
		count("PriorityJobFactor", p.PriorityJobFactor, 0)
		text("PreemptMode", p.PreemptMode)
		names("AllowUsers", p.AllowUsers)
		names("AllowAccounts", p.AllowAccounts)
		names("AllowQos", p.AllowQOS)
		names("DenyAccounts", p.DenyAccounts)
		names("DenyQos", p.DenyQOS)
		fmt.Fprintln(w, "}")
	}
}
