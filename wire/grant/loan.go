package grant

import (
	"errors"
	"fmt"

	"muster/model"
)

// Loan is what a node is told of a grant that has devices there.
type Loan struct {
	ID   string `json:"id"`
	User string `json:"user"`
	// Hash is that of the credential.
	Hash Hash `json:"hash"`
	// Devices are those of the node, in the order of the grant.
	Devices []Device `json:"devices"`
	// Limit is how many of them may be used at a time; AllDevices is all.
	Limit int `json:"limit"`
	// Turns is the class and weight of the grant's programs.
	model.Turns
}

// Loan returns what a node must know of a grant.
func (g *Grant) Loan(node string) Loan {
	devices := g.On(node)
	return Loan{ID: g.ID, User: g.User, Hash: g.Secret.Hash(), Devices: devices, Limit: min(g.Limit, len(devices)), Turns: g.Turns}
}

// Validate says what is wrong with a loan, if anything is.
func (l *Loan) Validate() error {
	if err := errors.Join(CheckName("grant's id", l.ID), CheckName("user", l.User)); err != nil {
		return err
	}
	if len(l.Devices) == 0 || len(l.Devices) > MaxDevices {
		return fmt.Errorf("a loan of %d devices: give 1 to %d", len(l.Devices), MaxDevices)
	}
	return errors.Join(CheckLimit(l.Limit, len(l.Devices)), l.Turns.Validate(), (&Grant{Devices: l.Devices}).validateDevices())
}
