package fgd

import (
	"compress/gzip"
	"embed"
	"fmt"

	"muster/model"
	"muster/model/clusterfile"
	"muster/workload"
)

//go:embed openb/*.csv.gz
var files embed.FS

// milliCores: the trace counts cores in thousandths, and so does the cluster.
const milliCores = 1000

// milliGPU is the amount of memory that represents a thousandth of a device.
const milliGPU = clusterfile.OpenbGPUMemory / 1000

// loadCluster reads the nodes with GPUs.
func loadCluster() (*model.Cluster, error) {
	f, err := files.Open("openb/openb_node_list_gpu_node.csv.gz")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	c, err := clusterfile.FromOpenb(text)
	if err != nil {
		return nil, err
	}
	for i := range c.Nodes {
		c.Nodes[i].Cores *= milliCores
	}
	return c, nil
}

// loadPods reads the pods of one of the workloads.
func loadPods(workloadName string) ([]model.Job, error) {
	name := fmt.Sprintf("openb/openb_pod_list_%s.csv.gz", workloadName)
	f, err := files.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	wl, _, err := workload.Read(f, name, workload.ReadOptions{Format: workload.Openb, MilliCores: true, SkipLogged: true})
	if err != nil {
		return nil, err
	}
	return wl.Jobs, nil
}

// demand is what a pod asks for, in thousandths of GPUs.
func demand(j *model.Job) int64 {
	if j.Request.GPUMemory > 0 {
		return int64(j.Request.GPUs) * (j.Request.GPUMemory / milliGPU)
	}
	return int64(j.Request.GPUs) * 1000
}
