package node

import (
	"cmp"
	"fmt"
	"slices"

	"muster/wire/control"
	"muster/wire/status"
)

// links is how many bytes went between which places of the node: the host (control.OnHost) and
// devices, by their numbers. A list of links is never changed in place, so it may be kept and
// shared.
type links []control.Link

// plus adds others.
func (l links) plus(more links) links {
	all := slices.Clone(l)
	for _, m := range more {
		all = control.AddLink(all, m)
	}
	for i := range all {
		all[i].Bytes = min(all[i].Bytes, maxCount)
	}
	return all
}

// most merges in the totals that a worker reports. Counters never go back, whatever the worker
// says.
func (l links) most(said links) links {
	all := slices.Clone(l)
	for _, m := range said {
		at := slices.IndexFunc(all, func(k control.Link) bool { return k.From == m.From && k.To == m.To })
		if at < 0 {
			all = append(all, m)
			continue
		}
		all[at].Bytes = max(all[at].Bytes, m.Bytes)
	}
	return all
}

// crediblyLinked refuses links between devices that no node has, and more of them than there can be.
func crediblyLinked(said links) error {
	for i := range said {
		m := &said[i]
		if m.From >= maxDevices*maxDevices || m.To >= maxDevices*maxDevices || len(said) > maxLinks {
			return fmt.Errorf("%d links, of which one goes from device %d to %d", len(said), m.From, m.To)
		}
		m.Bytes = min(m.Bytes, maxCount)
	}
	return nil
}

// maxLinks is how many links a client may have.
const maxLinks = 4 * maxDevices * maxDevices

// linkStatus names the ends of links. A device of another node counts under that node's name and
// the number that it has there, so that borrowing it again continues the same link.
func (d *daemon) linkStatus(all links) []status.Link {
	var named []status.Link
	for _, l := range all {
		next := status.Link{From: d.endOf(l.From), To: d.endOf(l.To)}
		at := slices.IndexFunc(named, func(k status.Link) bool { return k.From == next.From && k.To == next.To })
		if at < 0 {
			at = len(named)
			named = append(named, next)
		}
		named[at].Bytes += l.Bytes
	}
	slices.SortFunc(named, func(a, b status.Link) int { return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To)) })
	return named
}

// endOf is one end of a link.
func (d *daemon) endOf(number int) status.End {
	entries := d.stock.Load().entries
	if number < 0 || number >= len(entries) {
		return status.End{Node: d.cfg.Name, Device: control.OnHost}
	}
	if e := &entries[number]; e.Kind == KindRemote {
		return status.End{Node: d.lenderOf(e), Device: e.Index}
	}
	return status.End{Node: d.cfg.Name, Device: number}
}
