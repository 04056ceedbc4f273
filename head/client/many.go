package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"muster/internal/parallel"
	"muster/wire/api"
	"muster/wire/status"
)

// manyAtOnce is how many requests are in progress at the same time if there are
// more than that to send: the head writes what arrives together to disk
// together.
const manyAtOnce = 16

// Each does something with each name, a few one after the other and many
// together, and returns the outcome of each. Names behind one for which the
// head did not answer may be left out: their outcome is ErrUnreachable, too.
func Each(names []string, do func(string) error) []error {
	results := make([]error, len(names))
	for i := range results {
		results[i] = ErrUnreachable
	}
	workers := 1
	if len(names) > manyAtOnce {
		workers = manyAtOnce
	}
	_ = parallel.Each(context.Background(), workers, func(yield func(parallel.Task) bool) {
		for i, name := range names {
			// An error of a task ends the rest: a head that has gone would not answer for them either.
			task := func(context.Context) error {
				if results[i] = do(name); errors.Is(results[i], ErrUnreachable) {
					return results[i]
				}
				return nil
			}
			if !yield(task) {
				return
			}
		}
	})
	return results
}

// NamedNodes lists the nodes of these names, in their order; all without names.
func (h *Head) NamedNodes(ctx context.Context, names []string) ([]api.Node, error) {
	all, err := h.Nodes(ctx)
	if err != nil || len(names) == 0 {
		return all, err
	}
	var chosen []api.Node
	for _, name := range names {
		at := slices.IndexFunc(all, func(n api.Node) bool { return n.Name == name })
		if at < 0 {
			return nil, fmt.Errorf("there is no node %q: muster nodes lists them", name)
		}
		chosen = append(chosen, all[at])
	}
	return chosen, nil
}

// NodeAnswer is what a node says of itself, or why it does not.
type NodeAnswer struct {
	Node   api.Node
	Status *status.Node // nil with an Error
	Error  string
}

// statusPatience is how long one of many nodes has for its answer.
const statusPatience = 5 * time.Second

// NodeStatuses asks all nodes for their status, many at a time. Only the head's own failure is an error.
func (h *Head) NodeStatuses(ctx context.Context) ([]NodeAnswer, error) {
	nodes, err := h.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	return h.StatusesOf(ctx, nodes)
}

// StatusesOf is NodeStatuses for some nodes.
func (h *Head) StatusesOf(ctx context.Context, nodes []api.Node) ([]NodeAnswer, error) {
	answers := make([]NodeAnswer, len(nodes))
	return answers, parallel.Each(ctx, manyAtOnce, func(yield func(parallel.Task) bool) {
		for i := range nodes {
			task := func(ctx context.Context) error { answers[i] = h.askNode(ctx, nodes[i]); return nil }
			if !yield(task) {
				return
			}
		}
	})
}

func (h *Head) askNode(ctx context.Context, n api.Node) NodeAnswer {
	if !n.Connected {
		return NodeAnswer{Node: n, Error: "it is away"}
	}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	s, err := h.NodeStatus(ctx, n.Name)
	switch {
	case err == nil:
		return NodeAnswer{Node: n, Status: s}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return NodeAnswer{Node: n, Error: fmt.Sprintf("it did not answer within %v", statusPatience)}
	}
	return NodeAnswer{Node: n, Error: err.Error()}
}
