package grant

import (
	"errors"
	"fmt"
	"slices"

	"muster/model"
)

// Loan is what a node is told of a grant that has devices for it.
type Loan struct {
	ID   string `json:"id"`
	User string `json:"user"`
	// Hash is that of the grant's credential, and Shown that of the one which other nodes show this one.
	Hash  Hash `json:"hash"`
	Shown Hash `json:"shown,omitzero"`
	// Devices are those of the node, in the order of the grant. For a home that is told of devices of other
	// nodes, they are all those of the grant, since the place of a device at its lender follows from them.
	Devices []Device `json:"devices"`
	// Limit is how many of the devices that the node has may be used at a time; AllDevices is all.
	Limit int `json:"limit"`
	// Turns is the class and weight of the grant's programs.
	model.Turns
	// Home is the node's name in the grant if it is such a home, and "" otherwise. Secret is then the credential,
	// with which it uses devices of other nodes, and Authority vouches for these.
	Home      string     `json:"home,omitempty"`
	Secret    Credential `json:"secret,omitempty"`
	Authority string     `json:"authority,omitempty"`
}

// Loan returns what a node must know of a grant that has devices there.
func (g *Grant) Loan(node string) Loan {
	devices := g.On(node)
	return g.LoanOf(devices, min(g.Limit, len(devices)))
}

// LoanOf returns what the node of some devices must know of a grant.
func (g *Grant) LoanOf(devices []Device, limit int) Loan {
	l := Loan{ID: g.ID, User: g.User, Hash: g.Secret.Hash(), Devices: devices, Limit: limit, Turns: g.Turns}
	if len(devices) > 0 {
		l.Shown = g.Secret.of(devices[0].Node).Hash()
	}
	return l
}

// NeedsHome says whether the home is told of devices of other nodes.
func (g *Grant) NeedsHome() bool {
	return slices.ContainsFunc(g.Devices, func(d Device) bool { return d.IsBorrowed() && d.IsForHome() })
}

// HomeLoan returns what the home must know of a grant to have devices of other nodes as its own.
func (g *Grant) HomeLoan(home string) Loan {
	return Loan{
		ID: g.ID, User: g.User, Hash: g.Secret.Hash(), Devices: g.Devices, Limit: min(g.Limit, len(g.ForHome())), Turns: g.Turns,
		Home: home, Secret: g.Secret, Authority: g.Authority,
	}
}

// OfHome is the grant, if the loan is for a home that has devices of other nodes; nil otherwise.
func (l *Loan) OfHome() *Grant {
	if l.Home == "" {
		return nil
	}
	return &Grant{ID: l.ID, User: l.User, Secret: l.Secret, Devices: l.Devices, Limit: l.Limit, Turns: l.Turns, Authority: l.Authority}
}

// Own is what a home is told if it cannot have devices of other nodes: its own devices, of which there may be none.
func (l *Loan) Own() Loan {
	return l.OfHome().Loan(l.Home)
}

// Validate says what is wrong with a loan, if anything is.
func (l *Loan) Validate() error {
	if g := l.OfHome(); g != nil {
		return l.validateAtHome(g)
	}
	if l.Secret != "" || l.Authority != "" {
		return errors.New("a secret or an authority, which are for a home that has devices of other nodes")
	}
	if err := errors.Join(CheckName("grant's id", l.ID), CheckName("user", l.User)); err != nil {
		return err
	}
	if len(l.Devices) == 0 || len(l.Devices) > MaxDevices {
		return fmt.Errorf("a loan of %d devices: give 1 to %d", len(l.Devices), MaxDevices)
	}
	return errors.Join(CheckLimit(l.Limit, len(l.Devices)), l.Turns.Validate(), (&Grant{Devices: l.Devices}).validateDevices())
}

func (l *Loan) validateAtHome(g *Grant) error {
	if err := g.Validate(); err != nil {
		return err
	}
	for _, d := range l.Devices {
		if d.IsBorrowed() == (d.Node == l.Home) {
			return fmt.Errorf("device %s: those of node %s, which is the home, have no address, and all others have one", d, l.Home)
		}
	}
	switch {
	case l.Hash != l.Secret.Hash():
		return errors.New("a secret that is another grant's")
	case !g.NeedsHome():
		return errors.New("a home, and no device of another node that programs may leave")
	}
	return CheckLimit(l.Limit, len(g.ForHome()))
}
