package clusterfile

import (
	"bytes"
	"embed"
	"fmt"
	"slices"

	"muster/model"
)

//go:embed presets/*.yaml
var presetFiles embed.FS

// PresetInfo describes a built-in cluster.
type PresetInfo struct {
	Name    string `json:"name"`
	Summary string `json:"summary"`
}

var presets = []PresetInfo{
	{"small", "8 nodes of 8 cores and 2 GPUs: to try things out"},
	{"tsubame", "480 nodes of 8 cores and 3 GPUs: the TSUBAME paper's G and R queues"},
	{"rgpu", "8 nodes of 12 cores and 1 GPU: the paper on Slurm with rCUDA"},
	{"aucsched-s", "128 nodes of 8 cores and 2 GPUs: the AUCSCHED paper's Machine-S"},
	{"aucsched-m", "256 nodes of 8 cores and 2 GPUs: the AUCSCHED paper's Machine-M"},
	{"aucsched-l", "1024 nodes of 8 cores and 2 GPUs: the AUCSCHED paper's Machine-L"},
	{"gremm", "24 nodes of 12 cores and 3 GPUs, 100 MB/s: the paper on mapping kernels to devices"},
	{"gremm-ib", "24 nodes of 12 cores and 3 GPUs, 1 GB/s: the same with a faster network"},
}

// Presets lists the built-in clusters.
func Presets() []PresetInfo { return slices.Clone(presets) }

// Preset returns the built-in cluster of that name.
func Preset(name string) (*model.Cluster, error) {
	if !isPreset(name) {
		return nil, fmt.Errorf("there is no preset called %q: the presets are listed by: muster cluster list", name)
	}
	file := "presets/" + name + ".yaml"
	text, err := presetFiles.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return Read(bytes.NewReader(text), file)
}

func isPreset(name string) bool { return slices.Contains(presetNames(), name) }

func presetNames() []string {
	names := make([]string, len(presets))
	for i, p := range presets {
		names[i] = p.Name
	}
	return names
}
