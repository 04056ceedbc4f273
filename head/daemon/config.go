package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"muster/head"
	"muster/model"
	"muster/model/slurmopt"
)

// Where a head listens by default.
const (
	DefaultListen = ":9422"
	DefaultSocket = "@muster-head"
)

// Config is what an administrator decides.
type Config struct {
	Core   head.Config
	Policy string // as muster sim takes it
	// Priority is the file from which Core.Priority was read; "" for none.
	Priority string
	// Listen is the TLS port, HOST:PORT; "" for none.
	Listen string
	// Socket is the Unix socket, a path or @NAME; "" for none.
	Socket string
	// State is the folder of the store.
	State string
	// HTTP is where metrics and health are served, HOST:PORT; "" for nowhere.
	HTTP string
	// Page is where the page is served, HOST:PORT; "" or NoPage if it is not.
	Page string
	// TLSDir is the folder that muster cert made for the head.
	TLSDir string
	// Record is the file to which everything that the policy is told and decides is written, up to
	// RecordLimit bytes; "" for none.
	Record      string
	RecordLimit int64
	WhatIf      WhatIf
	Connections Connections
}

// Default is the configuration of a head without a configuration file.
func Default() Config {
	return Config{
		Core: head.Config{
			Cluster: "muster", NodeTimeout: 5 * time.Minute, Silence: 30 * time.Second, Grace: 30 * time.Second, InactiveLimit: head.DefaultInactiveLimit, Keep: 5 * time.Minute,
			MaxJobCount: 20_000, MaxArraySize: slurmopt.MaxArrayTasks, Limits: head.Limits{Jobs: 1_000_000},
			Holds: model.DefaultHolds(),
		},
		RecordLimit: DefaultRecordLimit, WhatIf: DefaultWhatIf,
		Policy: "easy", Socket: DefaultSocket, Connections: DefaultConnections,
	}
}

// Connections limits the connections of callers, and how long they may be silent.
type Connections struct {
	Unknown int // connections that are not authenticated yet
	All     int // connections of users
	User    int // of these, connections of one user
	Nodes   int // connections of nodes
	Node    int // of these, connections of one node

	Greet   time.Duration // to authenticate and send the first request
	Idle    time.Duration // between two requests
	Request time.Duration // to send a request, and to receive each part of the answer
}

// DefaultConnections are used for settings that are 0.
var DefaultConnections = Connections{
	Unknown: 2048, All: 4096, User: 256, Nodes: 40_000, Node: 64,
	Greet: 10 * time.Second, Idle: 2 * time.Minute, Request: time.Minute,
}

func (c Connections) complete() Connections {
	d := DefaultConnections
	return Connections{
		Unknown: cmp.Or(c.Unknown, d.Unknown), All: cmp.Or(c.All, d.All), User: cmp.Or(c.User, d.User), Nodes: cmp.Or(c.Nodes, d.Nodes), Node: cmp.Or(c.Node, d.Node),
		Greet: cmp.Or(c.Greet, d.Greet), Idle: cmp.Or(c.Idle, d.Idle), Request: cmp.Or(c.Request, d.Request),
	}
}

// check refuses a configuration with which a head could not work.
func (c *Config) check() error {
	switch {
	case c.Listen == "" && c.Socket == "":
		return errors.New("nobody could reach the head: give a port (--listen) or a socket (--socket)")
	case c.State == "":
		return errors.New("the head needs a folder for what it must not forget: give --state")
	case c.Core.Silence < time.Second || c.Core.NodeTimeout < c.Core.Silence:
		return fmt.Errorf("silence %v and node_timeout %v: give a silence of at least 1s, and a longer node_timeout", c.Core.Silence, c.Core.NodeTimeout)
	}
	return nil
}
