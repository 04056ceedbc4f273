package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"muster/head/api"
	headclient "muster/head/client"
	"muster/internal/parallel"
	"muster/node"
	"muster/report/nodetable"
	"muster/wire/status"
)

// whereFlags say whose status is wanted: that of a node on this machine, of a node of
// the cluster, or of all.
type whereFlags struct {
	socket, node string
	cluster      bool
	head         askFlags
}

const whereHelp = `

--node NAME asks a node of the cluster, through the head; --cluster asks all of them at
once. A node that is away, or does not answer in time, is shown as such.` + askHelp

func (f *whereFlags) add(c *cobra.Command) {
	nodeFlag(c, &f.socket)
	c.Flags().BoolVar(&f.cluster, "cluster", false, "ask all nodes of the cluster")
	c.Flags().StringVar(&f.node, "node", "", "ask the node of this `name`")
	f.head.add(c)
	_ = c.RegisterFlagCompletionFunc("node", completeNodes(&f.head))
}

func (f *whereFlags) check() error {
	if f.cluster && f.node != "" || f.socket != "" && (f.cluster || f.node != "") {
		return usageErrorf("give one of --socket, --cluster and --node")
	}
	return nil
}

// statusPatience is how long one of many nodes has for its answer.
const statusPatience = 5 * time.Second

// one asks the node of this machine, and adds the arguments of its programs, or the node that is
// named.
func (f *whereFlags) one(ctx context.Context) (*status.Node, error) {
	if f.node == "" {
		s, err := node.Ask(socketOf(f.socket))
		if err == nil {
			withArguments(s)
		}
		return s, err
	}
	h, err := f.head.open()
	if err != nil {
		return nil, err
	}
	return statusOfNode(ctx, h, f.node)
}

func statusOfNode(ctx context.Context, h *headclient.Head, name string) (*status.Node, error) {
	text, err := h.NodeStatus(ctx, name)
	if err != nil {
		return nil, err
	}
	var s status.Node
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, fmt.Errorf("node %s does not answer as a node does: %w", name, err)
	}
	return &s, nil
}

// all asks all nodes of the cluster, many at a time.
func (f *whereFlags) all(ctx context.Context) (*nodetable.Cluster, error) {
	h, err := f.head.open()
	if err != nil {
		return nil, err
	}
	nodes, err := h.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	all := &nodetable.Cluster{Nodes: make([]nodetable.NodeStatus, len(nodes))}
	return all, parallel.Each(ctx, manyAtOnce, func(yield func(parallel.Task) bool) {
		for i := range nodes {
			task := func(ctx context.Context) error { all.Nodes[i] = oneOfMany(ctx, h, &nodes[i]); return nil }
			if !yield(task) {
				return
			}
		}
	})
}

func oneOfMany(ctx context.Context, h *headclient.Head, n *api.Node) nodetable.NodeStatus {
	out := nodetable.NodeStatus{Node: n.Name, State: n.State}
	if !n.Connected {
		out.Error = "it is away"
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	var err error
	if out.Status, err = statusOfNode(ctx, h, n.Name); err != nil {
		out.Status, out.Error = nil, err.Error()
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			out.Error = fmt.Sprintf("it did not answer within %v", statusPatience)
		}
	}
	return out
}
