package nodetable

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"muster/internal/units"
	"muster/model"
	"muster/report"
	"muster/wire/status"
)

// granted is a row of the table of grants: a device of a grant.
type granted struct {
	status.GrantedDevice
	grant *status.Grant
}

var grantColumns = []column[granted]{
	{"<GRANT", "", func(_ *status.Node, g *granted) string { return g.grant.ID }},
	{"<USER", "", func(_ *status.Node, g *granted) string { return g.grant.User }},
	{">DEVICE", "device", func(_ *status.Node, g *granted) string { return fmt.Sprint(g.Device) }},
	{"<NAME", "name", func(_ *status.Node, g *granted) string {
		if g.Lender != "" {
			return g.Name + " at " + g.Lender
		}
		return g.Name
	}},
	{">MEMORY", "memory_bytes", func(_ *status.Node, g *granted) string {
		switch {
		case g.Lender != "": // how much the grant has of it is there
			return "-"
		case g.Memory == 0:
			return "whole"
		}
		return units.BriefSize(g.Memory)
	}},
	{">BEYOND", "beyond_bytes", func(_ *status.Node, g *granted) string {
		switch g.Beyond {
		case 0:
			return "-"
		case model.AllBeyond:
			return model.BeyondText(g.Beyond)
		}
		return units.BriefSize(g.Beyond)
	}},
	{"<REACH", "reach", func(_ *status.Node, g *granted) string { return g.Reach.String() }},
	{">ALLOCATED", "memory_allocated_bytes", func(_ *status.Node, g *granted) string { return units.BriefSize(g.Allocated) }},
	{">PROGRAMS", "programs", func(_ *status.Node, g *granted) string { return fmt.Sprint(g.Clients) }},
	{">LIMIT", "", func(_ *status.Node, g *granted) string {
		if g.grant.Limit < 0 {
			return "all"
		}
		return strconv.Itoa(g.grant.Limit)
	}},
	{"<CLASS", "", func(_ *status.Node, g *granted) string { return cmp.Or(g.grant.Class, "-") }},
	{">WEIGHT", "", func(_ *status.Node, g *granted) string {
		if g.grant.Weight == 0 {
			return "-"
		}
		return strconv.Itoa(g.grant.Weight)
	}},
	{"<EXPIRES", "", func(_ *status.Node, g *granted) string {
		if g.grant.Expires <= 0 {
			return "never"
		}
		return time.Unix(g.grant.Expires, 0).Format(time.DateTime)
	}},
}

// Grants lists the grants of a node, a line for each device.
func Grants(all *status.Grants) *report.Table {
	var list []granted
	for i := range all.Grants {
		for _, d := range all.Grants[i].Devices {
			list = append(list, granted{d, &all.Grants[i]})
		}
	}
	return tableOf(grantColumns, nil, list)
}
