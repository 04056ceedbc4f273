package client

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"

	"muster/internal/misuse"
	"muster/model"
	"muster/model/slurmopt"
	"muster/wire/api"
)

// jobWord stands for the nodes of the job, or of the Slurm allocation, that a program runs in.
const jobWord = "job"

// ProgramNodes reads the nodes that a program of the user's may have elements on, as --nodes takes
// them: a list, or the word job. It returns them with commas between. The node daemon knows the names
// that stand for itself, and completes the others. open reaches the head, which is asked only inside
// one of its jobs.
func ProgramNodes(ctx context.Context, text string, getenv func(string) string, open func() (*Head, error)) (string, error) {
	if text == jobWord {
		return jobNodes(ctx, getenv, open)
	}
	var nodes []string
	for _, n := range strings.Split(text, ",") {
		if n = strings.TrimSpace(n); n == "" {
			return "", misuse.Errorf("--nodes %s: give names with commas between them, as gpu1,gpu2, or %s inside a job", text, jobWord)
		}
		nodes = append(nodes, n)
	}
	return strings.Join(nodes, ","), nil
}

// gatewaysVariable says where the nodes of a job are reached that are not by their names, at the
// default port: NAME=HOST:PORT,...
const gatewaysVariable = "MUSTER_GATEWAYS"

// namedGateways reads gatewaysVariable.
func namedGateways(text string) (map[string]string, error) {
	at := map[string]string{}
	for _, one := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
		name, address, ok := strings.Cut(one, "=")
		if _, _, err := net.SplitHostPort(address); !ok || name == "" || err != nil {
			return nil, misuse.Errorf("$%s has %q: write NAME=HOST:PORT with commas between them", gatewaysVariable, one)
		}
		at[name] = address
	}
	return at, nil
}

// jobNodes is the nodes of the job. The head knows where they are reached; those of Slurm are reached
// where gatewaysVariable says, or by their names.
func jobNodes(ctx context.Context, getenv func(string) string, open func() (*Head, error)) (string, error) {
	list := cmp.Or(getenv("MUSTER_JOB_NODELIST"), getenv("SLURM_JOB_NODELIST"))
	if list == "" {
		return "", misuse.Errorf("--nodes %s: this is no job, whose nodes were in $MUSTER_JOB_NODELIST or $SLURM_JOB_NODELIST: name the nodes, as gpu1,gpu2", jobWord)
	}
	names, err := NodeNames([]string{list})
	if err != nil {
		return "", err
	}
	if len(names) == 1 || getenv("MUSTER_JOB_ID") == "" {
		gateways, err := namedGateways(getenv(gatewaysVariable))
		if err != nil {
			return "", err
		}
		for i, name := range names {
			names[i] = cmp.Or(gateways[name], name)
		}
		return strings.Join(names, ","), nil
	}
	h, err := open()
	if err != nil {
		return "", fmt.Errorf("--nodes %s: the head is asked where the nodes are: %w", jobWord, err)
	}
	known, err := h.Nodes(ctx)
	if err != nil {
		return "", fmt.Errorf("--nodes %s: the head is asked where the nodes are: %w", jobWord, err)
	}
	for i, name := range names {
		if at := slices.IndexFunc(known, func(n api.Node) bool { return n.Name == name }); at >= 0 && known[at].Gateway != "" {
			names[i] = known[at].Gateway
		}
	}
	return strings.Join(names, ","), nil
}

// NodeNames reads lists of nodes as users write them, as n1 or n[1-4].
func NodeNames(lists []string) ([]string, error) {
	var all []string
	for _, list := range lists {
		names, err := model.ExpandNodes(list)
		if err != nil {
			return nil, misuse.Errorf("%q is no list of nodes: %v", list, err)
		}
		all = append(all, names...)
	}
	return all, nil
}

var jobNumber = regexp.MustCompile(`^[1-9][0-9]{0,18}(_[0-9]{1,7})?$`)

// JobIDs reads jobs as users name them: 17, 17_3, 17_[1-4] and lists of these.
func JobIDs(lists []string) ([]string, error) {
	var ids []string
	for _, list := range lists {
		names, err := model.ExpandNodes(list)
		if err != nil {
			return nil, misuse.Errorf("%q is no job: %v", list, err)
		}
		for _, id := range names {
			if !jobNumber.MatchString(id) {
				return nil, misuse.Errorf("%q is no job: give its number, as 17, or 17_3 for a task of an array", id)
			}
			ids = append(ids, id)
		}
	}
	return ids, nil
}

var taskRange = regexp.MustCompile(`^[1-9][0-9]{0,18}_\[[0-9][0-9,:-]*\]$`)

// JobRefs reads jobs as JobIDs does, and leaves tasks in brackets together, as 17_[1-4]: the head does
// something to all of them in one request.
func JobRefs(lists []string) ([]string, error) {
	var refs []string
	for _, list := range lists {
		for _, name := range outsideBrackets(list) {
			if taskRange.MatchString(name) {
				_, tasks, _ := strings.Cut(strings.TrimSuffix(name, "]"), "[")
				if _, err := slurmopt.ParseTasks(tasks); err != nil {
					return nil, misuse.Errorf("%q is no job: %v", name, err)
				}
				refs = append(refs, name)
				continue
			}
			ids, err := JobIDs([]string{name})
			if err != nil {
				return nil, err
			}
			refs = append(refs, ids...)
		}
	}
	return refs, nil
}

// outsideBrackets splits a list at the commas that are not in brackets.
func outsideBrackets(list string) (parts []string) {
	depth, from := 0, 0
	for i, r := range list {
		switch r {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				parts = append(parts, list[from:i])
				from = i + 1
			}
		}
	}
	return append(parts, list[from:])
}

// JobID reads the name of one job.
func JobID(name string) (string, error) {
	ids, err := JobIDs([]string{name})
	if err == nil && len(ids) != 1 {
		err = misuse.Errorf("%q is more than one job: name one", name)
	}
	if err != nil {
		return "", err
	}
	return ids[0], nil
}
