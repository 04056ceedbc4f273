package clusterfile

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"muster/internal/wholefile"
	"muster/model"
	"muster/model/strictyaml"
)

// OpenbGPUMemory is the memory that FromOpenb gives each device. The trace counts shares of devices
// in thousandths, so that each is one MiB.
const OpenbGPUMemory = 1000 << 20

// OpenbLimit is more than a list of the maximum number of nodes needs.
var OpenbLimit = wholefile.Limit{Bytes: 128 << 20, Remedy: "is it a node list of openb?"}

var openbHeader = []string{"sn", "cpu_milli", "memory_mib", "gpu", "model"}

// FromOpenb reads the node list of the openb trace (Alibaba's GPU trace of 2023), a CSV with the
// columns sn, cpu_milli, memory_mib, gpu and model. All GPU types get speed 1, because the trace
// does not give speeds.
func FromOpenb(r io.Reader) (*model.Cluster, error) {
	text, err := OpenbLimit.Read(r, "openb node list")
	if err != nil {
		return nil, err
	}
	in := csv.NewReader(bytes.NewReader(text))
	in.ReuseRecord = true
	header, err := in.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("openb node list: %w", err)
	}
	if !slices.Equal(header, openbHeader) {
		return nil, fmt.Errorf("openb node list: line 1 must be %s", strings.Join(openbHeader, ","))
	}
	c := &model.Cluster{Name: "openb", Remote: model.Remote{Overhead: 1}}
	types := map[string]int{}
	seen := map[string]bool{}
	for {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("openb node list: %w", err)
		}
		node, column, err := openbNode(c, types, record)
		if err == nil && seen[node.Name] {
			column, err = 0, fmt.Errorf("node %q is described twice: remove one", node.Name)
		}
		if err != nil {
			line, at := in.FieldPos(column)
			return nil, fmt.Errorf("openb node list: line %d, column %d: %w", line, at, err)
		}
		if len(c.Nodes) == model.MaxNodeNames {
			return nil, fmt.Errorf("openb node list: more than %d nodes", model.MaxNodeNames)
		}
		seen[node.Name] = true
		c.Nodes = append(c.Nodes, node)
	}
	if len(c.Nodes) == 0 {
		return nil, errors.New("openb node list: there are no nodes after the header")
	}
	return c, nil
}

// openbNode parses one line. If it fails, it returns the column.
func openbNode(c *model.Cluster, types map[string]int, record []string) (node model.Node, column int, err error) {
	if names, err := model.ExpandNodes(record[0]); err != nil || len(names) != 1 || !validName(record[0]) {
		return node, 0, fmt.Errorf("sn %q is no node name", record[0])
	}
	var values [3]int64
	limits := [3]int64{math.MaxInt32, math.MaxInt64 >> 20, model.MaxGPUsPerNode}
	for i, limit := range limits {
		v, err := strconv.ParseInt(record[1+i], 10, 64)
		if err != nil || v < 0 || v > limit {
			return node, 1 + i, fmt.Errorf("%s must be a whole number from 0 to %d, not %q", openbHeader[1+i], limit, record[1+i])
		}
		values[i] = v
	}
	milli, mib, gpus := values[0], values[1], int(values[2])
	if milli < 1000 {
		return node, 1, fmt.Errorf("cpu_milli must be at least 1000, one core, not %d", milli)
	}
	node = model.Node{Name: strings.Clone(record[0]), Cores: int(milli / 1000), Memory: mib << 20}
	if gpus == 0 {
		return node, 0, nil
	}
	t, err := openbType(c, types, record[4])
	if err != nil {
		return node, 4, err
	}
	node.GPUs = slices.Repeat([]int{t}, gpus)
	return node, 0, nil
}

func openbType(c *model.Cluster, types map[string]int, name string) (int, error) {
	if t, known := types[name]; known {
		return t, nil
	}
	if err := strictyaml.CheckName(name); err != nil {
		return 0, fmt.Errorf("model %w", err)
	}
	name = strings.Clone(name)
	types[name] = len(c.GPUTypes)
	c.GPUTypes = append(c.GPUTypes, model.GPUType{Name: name, Memory: OpenbGPUMemory, Speed: 1})
	return types[name], nil
}
