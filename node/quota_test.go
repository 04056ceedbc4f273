package node

import (
	"strings"
	"testing"

	"muster/device"
	"muster/node/ask"
	"muster/node/grants"
	"muster/node/inventory"
	"muster/node/settings"
	"muster/node/socket"
	"muster/node/stock"
	"muster/node/vgpu"
)

// A client has no more of the swap area than there is, than its user may have, and than its job's share is;
// what it gives back is there for others.
func TestQuota(t *testing.T) {
	gpu := &inventory.Inventory{Entries: []inventory.Device{{Here: true, Info: device.Info{Memory: 100}}}}
	q := quota{common: common{settings: new(settings.Live), stock: stock.New(gpu, nil, nil, nil, stock.Options{}), clients: map[vgpu.ClientID]*client{}}, perOwner: map[string]uint64{}}
	cfg := settings.Default()
	cfg.Swap.Size = 1000
	q.settings.Store(&cfg)
	job := &grants.Granted{ID: "job", Devices: []ask.GrantedDevice{{Memory: 60}}}
	of := func(user string, most uint64, under *grants.Granted) *client {
		c := &client{id: vgpu.ClientID(len(q.clients)), peer: socket.Peer{User: settings.Account{Name: user}}, allowance: allowance{limits: settings.UserLimits{Memory: most}}, under: grants.Under{Granted: under}}
		q.clients[c.id] = c
		return c
	}
	ann, anns, ben, first, second := of("ann", 300, nil), of("ann", 300, nil), of("ben", 0, nil), of("cy", 0, job), of("cy", 0, job)
	for i, c := range []struct {
		of   *client
		want uint64
		why  string
	}{
		{ann, 300, ""}, {anns, 1, "user ann has no more memory on this node"}, {ann, 200, ""}, {anns, 100, ""},
		{ben, 701, "the node's swap area is full"}, {ben, 600, ""}, {ben, 10, ""},
		{first, 40, ""}, {second, 21, "the job's share of the device is used up"}, {second, 20, ""}, {first, 0, ""}, {ann, 0, ""}, {anns, 0, ""},
	} {
		if granted, why := q.commit(c.of, c.want); granted != (c.why == "") || !strings.HasPrefix(why, c.why) {
			t.Errorf("step %d: %v, %s", i, granted, why)
		}
	}
	if q.total != 30 || len(q.perOwner) != 2 {
		t.Error(q.total, q.perOwner)
	}
}
