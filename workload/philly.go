package workload

import (
	"fmt"

	"muster/model"
)

// phillyGPUsPerNode is the number of GPUs in most of Philly's servers.
const phillyGPUsPerNode = 8

// phillyDecoder reads the flattened log of Microsoft's Philly cluster:
// timestamp,duration,num_gpus,gpu_time,cluster. The log gives the total GPUs of a job; the decoder
// divides them evenly over the fewest nodes that can hold them, with one core for each. The virtual
// cluster becomes the queue. A job's ID is the number of its row.
type phillyDecoder struct {
	*batch
	table
	bound                       bool
	at, duration, gpus, cluster int
	rows                        int64
}

func (d *phillyDecoder) line(text []byte) *fault {
	cells, f := d.row(text)
	if f != nil || d.header == nil {
		return f
	}
	if !d.bound {
		d.bound = true
		d.at, d.duration, d.gpus, d.cluster = d.index("timestamp"), d.index("duration"), d.index("num_gpus"), d.index("cluster")
		if d.at < 0 || d.duration < 0 || d.gpus < 0 {
			return fatalf(1, "a Philly log has the columns timestamp,duration,num_gpus,gpu_time,cluster")
		}
		return nil
	}
	if cells == nil {
		return nil
	}
	return d.decode(cells)
}

func (d *phillyDecoder) decode(cells []cell) *fault {
	d.rows++
	submit, known, err := parseInstant(cells[d.at].text)
	if err == nil && !known {
		err = fmt.Errorf("the time is missing")
	}
	if err != nil {
		return faultf(cells[d.at].column, "timestamp: %v", err)
	}
	run, err := parseSpan(cells[d.duration].text)
	if err != nil {
		return faultf(cells[d.duration].column, "duration: %v", err)
	}
	gpus, err := parseCount(cells[d.gpus].text)
	if err != nil {
		return faultf(cells[d.gpus].column, "num_gpus: %v", err)
	}
	perNode := int64(d.opt.GPUsPerNode)
	if perNode <= 0 {
		perNode = phillyGPUsPerNode
	}
	j := d.job()
	j.ID = d.id(fmt.Append(nil, d.rows))
	if d.cluster >= 0 {
		j.Queue = d.word([]byte(cells[d.cluster].text))
	}
	j.Submit, j.Run = submit, run
	d.originKnown = true
	nodes := max(1, ceilDiv(gpus, perNode))
	each := ceilDiv(gpus, nodes)
	j.Request = model.Request{Nodes: int(nodes), CoresPerNode: int(max(1, each)), GPUs: int(each)}
	return d.keep(1)
}
