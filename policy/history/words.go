package history

import (
	"time"

	"muster/model"
	"muster/policy"
)

// The words of the format: what the model has, without what is not there.
type (
	cluster struct {
		Name   string    `json:"name,omitempty"`
		Nodes  []node    `json:"nodes"`
		Types  []gpuType `json:"gpu_types,omitempty"`
		Remote *remote   `json:"remote,omitempty"`
	}
	node struct {
		Name      string `json:"name"`
		Cores     int    `json:"cores"`
		Memory    int64  `json:"memory,omitempty"`
		GPUs      []int  `json:"gpus,omitempty"`
		Bandwidth int64  `json:"bandwidth,omitempty"`
		Latency   int64  `json:"latency_ns,omitempty"`
		Switch    string `json:"switch,omitempty"`
		Weight    int    `json:"weight,omitempty"`
	}
	gpuType struct {
		Name          string  `json:"name"`
		Memory        int64   `json:"memory,omitempty"`
		Speed         float64 `json:"speed"`
		PeerBandwidth int64   `json:"peer_bandwidth,omitempty"`
	}
	remote struct {
		Latency      int64   `json:"latency_ns,omitempty"`
		Overhead     float64 `json:"overhead,omitempty"`
		Far          float64 `json:"far,omitempty"`
		DriverMemory int64   `json:"driver_memory,omitempty"`
		ClientMemory int64   `json:"client_memory,omitempty"`
	}
	job struct {
		ID           string    `json:"id"`
		User         string    `json:"user,omitempty"`
		Group        string    `json:"group,omitempty"`
		Queue        string    `json:"queue,omitempty"`
		QOS          string    `json:"qos,omitempty"`
		Reservation  string    `json:"reservation,omitempty"`
		Fixed        bool      `json:"fixed,omitempty"`
		Program      string    `json:"program,omitempty"`
		Submit       int64     `json:"submit_ns,omitempty"`
		Run          int64     `json:"run_ns,omitempty"`
		WallTime     int64     `json:"wall_ns,omitempty"`
		Priority     int64     `json:"priority,omitempty"`
		Turn         int64     `json:"turn,omitempty"`
		Request      request   `json:"request"`
		Alternatives []request `json:"alternatives,omitempty"`
		NetBytes     int64     `json:"net_bytes,omitempty"`
		NetConns     int64     `json:"net_conns,omitempty"`
		GPUBytes     int64     `json:"gpu_bytes,omitempty"`
		GPUConns     int64     `json:"gpu_conns,omitempty"`
		Intensity    float64   `json:"intensity,omitempty"`
	}
	request struct {
		Nodes           int      `json:"nodes,omitempty"`
		Cores           int      `json:"cores,omitempty"`
		CoresPerNode    int      `json:"cores_per_node,omitempty"`
		CoresPerProcess int      `json:"cores_per_process,omitempty"`
		Processes       int      `json:"processes,omitempty"`
		Memory          int64    `json:"memory,omitempty"`
		MemoryPerCore   int64    `json:"memory_per_core,omitempty"`
		GPUs            int      `json:"gpus,omitempty"`
		GPUMemory       int64    `json:"gpu_memory,omitempty"`
		MoreGPUs        bool     `json:"more_gpus,omitempty"`
		GPUType         string   `json:"gpu_type,omitempty"`
		Remote          *devices `json:"remote,omitempty"`
		Contiguous      bool     `json:"contiguous,omitempty"`
		Exclusive       bool     `json:"exclusive,omitempty"`
		NodeList        []string `json:"node_list,omitempty"`
		Lenders         []string `json:"lenders,omitempty"`
		Run             int64    `json:"run_ns,omitempty"`
		WallTime        int64    `json:"wall_ns,omitempty"`
	}
	devices struct {
		Count  int   `json:"count"`
		Memory int64 `json:"memory,omitempty"`
		Shared bool  `json:"shared,omitempty"`
	}
	allocation struct {
		Parts  []part  `json:"parts"`
		Grants []grant `json:"grants,omitempty"`
	}
	part struct {
		Node      int32  `json:"node"`
		Cores     int32  `json:"cores"`
		Memory    int64  `json:"memory,omitempty"`
		GPUs      uint64 `json:"gpus,omitempty"`
		Exclusive bool   `json:"exclusive,omitempty"`
	}
	grant struct {
		For    int32 `json:"for"`
		Node   int32 `json:"node"`
		Device int32 `json:"device"`
		Memory int64 `json:"memory,omitempty"`
	}
	window struct {
		Name     string   `json:"name"`
		From     int64    `json:"from_ns"`
		Until    int64    `json:"until_ns"`
		Nodes    []int32  `json:"nodes"`
		Users    []string `json:"users,omitempty"`
		Accounts []string `json:"accounts,omitempty"`
	}
	plan struct {
		Starts  []start  `json:"starts,omitempty"`
		Stops   []stop   `json:"stops,omitempty"`
		Resumes []resume `json:"resumes,omitempty"`
		Limits  []limit  `json:"limits,omitempty"`
		Nodes   []line   `json:"nodes,omitempty"`
	}
	start struct {
		ID          policy.JobID `json:"id"`
		Alternative int          `json:"alternative,omitempty"`
		Alloc       allocation   `json:"alloc"`
		Error       string       `json:"error,omitempty"`
	}
	stop struct {
		ID  policy.JobID `json:"id"`
		How string       `json:"how"`
		For policy.JobID `json:"for"`
	}
	limit struct {
		ID      policy.JobID `json:"id"`
		Devices int          `json:"devices"`
	}
	line struct {
		Number   int32              `json:"number"`
		Settings model.NodeSettings `json:"settings"`
		Error    string             `json:"error,omitempty"`
	}
	resume struct {
		ID    policy.JobID `json:"id"`
		Error string       `json:"error,omitempty"`
	}
)

func clusterOf(c *model.Cluster) cluster {
	out := cluster{Name: c.Name, Nodes: make([]node, len(c.Nodes)), Types: typesOf(c.GPUTypes)}
	for i := range c.Nodes {
		out.Nodes[i] = nodeOf(&c.Nodes[i])
	}
	if r := c.Remote; r != (model.Remote{}) {
		out.Remote = &remote{int64(r.Latency), r.Overhead, r.Far, r.DriverMemory, r.ClientMemory}
	}
	return out
}

func (c *cluster) model() *model.Cluster {
	out := &model.Cluster{Name: c.Name, GPUTypes: modelTypes(c.Types)}
	for i := range c.Nodes {
		out.Nodes = append(out.Nodes, c.Nodes[i].model())
	}
	if r := c.Remote; r != nil {
		out.Remote = model.Remote{Latency: time.Duration(r.Latency), Overhead: r.Overhead, Far: r.Far, DriverMemory: r.DriverMemory, ClientMemory: r.ClientMemory}
	}
	return out
}

func nodeOf(n *model.Node) node {
	return node{n.Name, n.Cores, n.Memory, n.GPUs, n.Link.Bandwidth, int64(n.Link.Latency), n.Switch, n.Weight}
}

func (n *node) model() model.Node {
	return model.Node{Name: n.Name, Cores: n.Cores, Memory: n.Memory, GPUs: n.GPUs, Switch: n.Switch, Weight: n.Weight,
		Link: model.Link{Bandwidth: n.Bandwidth, Latency: time.Duration(n.Latency)}}
}

func typesOf(types []model.GPUType) []gpuType {
	var out []gpuType
	for _, t := range types {
		out = append(out, gpuType(t))
	}
	return out
}

func modelTypes(types []gpuType) []model.GPUType {
	var out []model.GPUType
	for _, t := range types {
		out = append(out, model.GPUType(t))
	}
	return out
}

func jobOf(j *model.Job) job {
	out := job{
		ID: j.ID, User: j.User, Group: j.Group, Queue: j.Queue, QOS: j.QOS, Reservation: j.Reservation, Fixed: j.Fixed,
		Submit: int64(j.Submit), Run: int64(j.Run), WallTime: int64(j.WallTime), Priority: j.Priority, Turn: j.Turn, Request: requestOf(&j.Request), Intensity: j.Intensity,
		NetBytes: j.Traffic.NetBytes, NetConns: j.Traffic.NetConns, GPUBytes: j.Traffic.GPUBytes, GPUConns: j.Traffic.GPUConns,
	}
	if j.Logged != nil {
		out.Program = j.Logged.Executable
	}
	for i := range j.Alternatives {
		out.Alternatives = append(out.Alternatives, requestOf(&j.Alternatives[i]))
	}
	return out
}

func (j *job) model() *model.Job {
	out := &model.Job{
		ID: j.ID, User: j.User, Group: j.Group, Queue: j.Queue, QOS: j.QOS, Reservation: j.Reservation, Fixed: j.Fixed, Submit: time.Duration(j.Submit), Run: time.Duration(j.Run),
		WallTime: time.Duration(j.WallTime), Priority: j.Priority, Turn: j.Turn, Request: j.Request.model(), Intensity: j.Intensity,
		Traffic: model.Traffic{NetBytes: j.NetBytes, NetConns: j.NetConns, GPUBytes: j.GPUBytes, GPUConns: j.GPUConns},
	}
	if j.Program != "" {
		out.Logged = &model.Logged{Wait: -1, CPUTime: -1, UsedMemory: -1, Executable: j.Program}
	}
	for i := range j.Alternatives {
		out.Alternatives = append(out.Alternatives, j.Alternatives[i].model())
	}
	return out
}

func requestOf(r *model.Request) request {
	out := request{
		Nodes: r.Nodes, Cores: r.Cores, CoresPerNode: r.CoresPerNode, CoresPerProcess: r.CoresPerProcess, Processes: r.Processes,
		Memory: r.Memory, MemoryPerCore: r.MemoryPerCore, GPUs: r.GPUs, GPUMemory: r.GPUMemory, MoreGPUs: r.MoreGPUs, GPUType: r.GPUType,
		Contiguous: r.Contiguous, Exclusive: r.Exclusive, NodeList: r.NodeList, Lenders: r.Lenders, Run: int64(r.Run), WallTime: int64(r.WallTime),
	}
	if r.Remote != nil {
		out.Remote = &devices{r.Remote.Count, r.Remote.Memory, r.Remote.Shared}
	}
	return out
}

func (r *request) model() model.Request {
	out := model.Request{
		Nodes: r.Nodes, Cores: r.Cores, CoresPerNode: r.CoresPerNode, CoresPerProcess: r.CoresPerProcess, Processes: r.Processes,
		Memory: r.Memory, MemoryPerCore: r.MemoryPerCore, GPUs: r.GPUs, GPUMemory: r.GPUMemory, MoreGPUs: r.MoreGPUs, GPUType: r.GPUType,
		Contiguous: r.Contiguous, Exclusive: r.Exclusive, NodeList: r.NodeList, Lenders: r.Lenders, Run: time.Duration(r.Run), WallTime: time.Duration(r.WallTime),
	}
	if r.Remote != nil {
		out.Remote = &model.RemoteGPUs{Count: r.Remote.Count, Memory: r.Remote.Memory, Shared: r.Remote.Shared}
	}
	return out
}

func allocationOf(a *model.Allocation) allocation {
	out := allocation{Parts: make([]part, len(a.Parts))}
	for i, p := range a.Parts {
		out.Parts[i] = part(p)
	}
	for _, g := range a.Grants {
		out.Grants = append(out.Grants, grant(g))
	}
	return out
}

func (a *allocation) model() *model.Allocation {
	out := &model.Allocation{Parts: make([]model.Part, len(a.Parts))}
	for i, p := range a.Parts {
		out.Parts[i] = model.Part(p)
	}
	for _, g := range a.Grants {
		out.Grants = append(out.Grants, model.Grant(g))
	}
	return out
}

func windowsOf(list []policy.Window) []window {
	out := make([]window, len(list))
	for i, w := range list {
		out[i] = window{w.Name, int64(w.From), int64(w.Until), w.Nodes, w.Users, w.Accounts}
	}
	return out
}

func policyWindows(list []window) []policy.Window {
	out := make([]policy.Window, len(list))
	for i, w := range list {
		out[i] = policy.Window{Name: w.Name, From: time.Duration(w.From), Until: time.Duration(w.Until), Nodes: w.Nodes, Users: w.Users, Accounts: w.Accounts}
	}
	return out
}

// planOf is a plan with the IDs of the history.
func planOf(p *policy.Plan, id func(policy.JobID) policy.JobID) plan {
	var out plan
	for i := range p.Starts {
		st := &p.Starts[i]
		out.Starts = append(out.Starts, start{id(st.Job), st.Alternative, allocationOf(st.Alloc), text(st.Err)})
	}
	for _, st := range p.Stops {
		other := policy.JobID(-1)
		if st.For >= 0 {
			other = id(st.For)
		}
		out.Stops = append(out.Stops, stop{id(st.Job), st.How.String(), other})
	}
	for _, l := range p.Limits {
		out.Limits = append(out.Limits, limit{id(l.Job), l.Devices})
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		out.Nodes = append(out.Nodes, line{n.Node, n.Settings, text(n.Err)})
	}
	for _, r := range p.Resumes {
		out.Resumes = append(out.Resumes, resume{id(r.Job), text(r.Err)})
	}
	return out
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
