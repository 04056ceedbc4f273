package offload

import "slices"

// View is a picture of the core at one moment.
type View struct {
	Load     Load
	Peers    []PeerView
	Borrowed []LoanView
	Lent     []LentView
}

// PeerView is another node.
type PeerView struct {
	ID    PeerID
	Load  Load
	Heard bool // it has reported its load
	Age   Time // how long ago that was
	Self  bool
	Holds int // how many of its slots this node holds
}

// LoanView is a ticket that the node holds.
type LoanView struct {
	Ticket
	Peer    PeerID
	Clients int
	Leaving bool
}

// LentView is a ticket that the node gave.
type LentView struct {
	Ticket
	To       NodeID
	Recalled bool
}

// View takes the picture.
func (c *Core) View(now Time) View {
	c.advance(now)
	v := View{Load: c.Load()}
	all := slices.Clone(c.peers)
	for _, l := range c.borrowed {
		v.Borrowed = append(v.Borrowed, LoanView{l.Ticket, l.peer.id, l.There, l.leaving})
		if !slices.Contains(all, l.peer) {
			all = append(all, l.peer)
		}
	}
	for _, p := range all {
		v.Peers = append(v.Peers, c.viewPeer(p))
	}
	for _, l := range c.lent {
		v.Lent = append(v.Lent, LentView{l.Ticket, l.to, l.recalled})
	}
	return v
}

func (c *Core) viewPeer(p *peer) PeerView {
	v := PeerView{ID: p.id, Load: p.load, Self: p.self}
	if v.Heard = p.heard != never; v.Heard {
		v.Age = c.now - p.heard
	}
	for _, l := range c.borrowed {
		if l.peer == p {
			v.Holds += l.Slots
		}
	}
	return v
}
