package head

import (
	"errors"
	"slices"

	"muster/model"
	"muster/policy/preempt"
	"muster/wire/api"
)

// divisions are the partitions of the configuration, and their nodes as sets. They are nil of a cluster that is
// not divided. A job whose partition is no longer there waits.
type divisions struct {
	list []model.Partition
	of   map[string]*division
	ever bool // there have been some: what the policy knows of waiting jobs may be of those
}

// division is a partition: where its jobs run, and whose GPUs they may have; nil is all nodes.
type division struct {
	*model.Partition
	nodes, reach map[string]bool
}

func (ds *divisions) set(list []model.Partition) {
	*ds = divisions{list, map[string]*division{}, ds.ever || len(list) > 0}
	for i := range list {
		d := &division{Partition: &list[i]}
		if d.Nodes != nil {
			d.nodes, d.reach = setOf(d.Nodes), setOf(d.Reach())
		}
		ds.of[d.Name] = d
	}
}

// confined is the partition of a job, if that has not all nodes.
func (ds *divisions) confined(o *order) *division {
	if d := ds.of[o.said.Partition]; d != nil && d.nodes != nil {
		return d
	}
	return nil
}

// has says whether jobs of the partition may use a node.
func (d *division) has(name string) bool { return d == nil || d.nodes[name] }

// rankOf is a job's rank among those of all partitions.
func (ds *divisions) rankOf(o *order, rank int64) int64 {
	if d := ds.of[o.said.Partition]; d != nil {
		return d.RankOf(rank)
	}
	return rank
}

// partsNow takes over the partitions of a new configuration. Those that preempt each other stay as they were: the
// policy has them as its classes.
func (d *desk) partsNow() {
	was := d.fleet.parts.ever
	d.fleet.divide(d.cfg.Partitions)
	if was || d.fleet.parts.ever {
		d.offerAgain()
		d.retryImpossible()
	}
}

// classesOf says whether the partitions preempt each other. Then policies take them as the class of a job.
func classesOf(list []model.Partition) bool { return preempt.FromPartitions(list) != nil }

// barred says why the partition of a job lets it not start, in one of Slurm's words and in a sentence; "" if it
// does.
func (d *desk) barred(j *job) (word, why string) {
	if len(d.fleet.parts.list) == 0 {
		return "", ""
	}
	p, err := model.PartitionOf(d.fleet.parts.list, j.said.Partition)
	switch {
	case err != nil:
		return "PartitionConfig", err.Error() + ": an administrator can add it, or cancel the job and submit it to another"
	case p.State == model.PartitionDown:
		return "PartitionDown", "partition " + p.Name + " is down: its jobs wait until an administrator sets it up"
	case p.State == model.PartitionInactive:
		return "PartitionInactive", "partition " + p.Name + " is inactive: its jobs wait until an administrator sets it up"
	case j.passage.from != "": // it has started already
		return "", ""
	}
	err = p.Exceeded(d.asked(j))
	switch {
	case errors.Is(err, model.ErrPartitionTime):
		return "PartitionTimeLimit", err.Error()
	case err != nil:
		return "PartitionNodeLimit", err.Error()
	}
	return "", ""
}

// divide has a job join its partition, or refuses it as the partition does.
func (in *intake) divide(j *job) error {
	list := in.fleet.parts.list
	p, err := model.PartitionOf(list, j.said.Partition)
	if err != nil || p == nil {
		return err
	}
	j.said.Partition = p.Name
	if j.said.Time == 0 && !j.said.Unlimited {
		j.said.Time = p.UsualTime()
	}
	account := j.said.Account
	if account == "" && in.desk.ranking != nil {
		account = in.desk.ranking.Book.AccountOf(j.user, "")
	}
	if err := p.Admits(j.user, account, j.said.QOS); err != nil {
		return err
	}
	return p.Exceeded(in.desk.asked(j))
}

// Partitions lists the partitions, in the order of the configuration.
func (c *Core) Partitions() []api.Partition {
	list := []api.Partition{}
	for i := range c.fleet.parts.list {
		p := &c.fleet.parts.list[i]
		d := api.Partition{
			Name: p.Name, Default: p.Default, State: p.State.String(), AllNodes: p.Nodes == nil, NodeList: model.CompressNodes(p.Nodes), Lenders: model.CompressNodes(p.Lenders),
			MaxTime: seconds(p.MaxTime), DefaultTime: seconds(p.DefaultTime), MinNodes: p.MinNodes, MaxNodes: p.MaxNodes, MaxCores: p.MaxCores, MaxGPUs: p.MaxGPUs,
			Tier: p.PriorityTier, Factor: p.PriorityJobFactor, PreemptMode: p.PreemptMode,
			AllowUsers: p.AllowUsers, AllowAccounts: p.AllowAccounts, AllowQOS: p.AllowQOS, DenyAccounts: p.DenyAccounts, DenyQOS: p.DenyQOS,
		}
		part := c.fleet.parts.of[p.Name]
		for _, n := range c.fleet.nodes {
			if n.removed {
				continue
			}
			if part.nodes == nil || part.nodes[n.name] {
				d.Nodes++
				d.Cores += n.cores
				d.GPUs += len(n.devices)
			}
			if part.reach == nil || part.reach[n.name] {
				d.RemoteGPUs += len(n.devices)
			}
		}
		list = append(list, d)
	}
	return list
}

// partitionsOf are the names of the partitions that have a node.
func (ds *divisions) partitionsOf(node string) (names []string) {
	for i := range ds.list {
		if d := ds.of[ds.list[i].Name]; d.nodes == nil || d.nodes[node] {
			names = append(names, d.Name)
		}
	}
	return names
}

// unknownParts lists the nodes of partitions that have not come.
func (f *fleet) unknownParts() (names []string) {
	for i := range f.parts.list {
		for _, name := range slices.Concat(f.parts.list[i].Nodes, f.parts.list[i].Lenders) {
			if f.byName[name] == nil {
				names = append(names, name)
			}
		}
	}
	return names
}
