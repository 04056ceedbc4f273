// Package grant is what a job may use: devices with their node, a share of their
// memory, and a credential that dies with the job. Whoever places jobs issues
// grants: the head, Slurm, or somebody by hand.
//
// It knows no node, no head and no program.
package grant

import (
	"errors"
	"fmt"
)

// Grant is what the programs of a job's part are given.
type Grant struct {
	ID   string `json:"id"`
	User string `json:"user"`
	// Secret is the credential.
	Secret  string   `json:"secret"`
	Devices []Device `json:"devices"`
	// Limit is how many of the devices may be used at a time; -1 is all.
	Limit int `json:"limit"`
}

// Device is one of a grant's.
type Device struct {
	Node string `json:"node"`
	// Address is where the node's gateway is; "" for the node of the programs.
	Address string `json:"address,omitempty"`
	Device  int    `json:"device"`
	// Memory is the share; 0 is the whole device.
	Memory int64 `json:"memory,omitempty"`
}

// Loan is what a node that has some of the devices knows of a grant.
type Loan struct {
	ID   string `json:"id"`
	User string `json:"user"`
	// Hash is that of the credential.
	Hash    string   `json:"hash"`
	Devices []Device `json:"devices"`
	Limit   int      `json:"limit"`
}

// Validate reports the first thing that makes no sense.
func (g *Grant) Validate() error {
	if g.ID == "" || g.Secret == "" || len(g.Devices) == 0 {
		return errors.New("a grant without a name, a credential or devices")
	}
	return check(g.Devices, g.Limit)
}

// Validate reports the first thing that makes no sense.
func (l *Loan) Validate() error {
	if l.ID == "" || l.Hash == "" || len(l.Devices) == 0 {
		return errors.New("a loan without a name, a credential or devices")
	}
	return check(l.Devices, l.Limit)
}

func check(devices []Device, limit int) error {
	if limit < -1 {
		return fmt.Errorf("a limit of %d", limit)
	}
	for _, d := range devices {
		if d.Node == "" || d.Device < 0 || d.Memory < 0 {
			return fmt.Errorf("device %d of node %q with %d bytes", d.Device, d.Node, d.Memory)
		}
	}
	return nil
}
