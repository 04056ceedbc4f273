package rgpu

import (
	"context"
	"fmt"

	"muster/model"
	"muster/report"
	"muster/sim"
	"muster/sim/simpage"
)

// drawGPUs draws the GPUs over time: the smallest workload on the fewest GPUs, in
// both modes.
func drawGPUs(ctx context.Context, l *lab) ([]report.Section, error) {
	var list []report.Section
	for _, mode := range []string{cuda, rcuda} {
		s := with(mode, onFour, workloads[0])
		r, seen, err := l.one(ctx, s, l.seeds[0])
		if err != nil {
			return nil, err
		}
		list = append(list, seen.gantt(fmt.Sprintf("The GPUs over time: %s, %d hours, %s", s.setting.title, s.hours, mode), r))
	}
	return list, nil
}

// gantt has a row for each GPU. The height of a block is the part of the GPU's memory that the job
// has.
func (d *devices) gantt(title string, r *sim.Result) *report.Gantt {
	g := &report.Gantt{Title: title, Axis: "gpus", Note: "A row is a GPU; the height of a block is the job's share of its memory. The first seed."}
	for i := range d.list {
		g.Rows = append(g.Rows, fmt.Sprintf("GPU%d (%s)", i, d.list[i].name))
	}
	for _, a := range applications {
		g.Kinds = append(g.Kinds, report.Kind{Name: a.name})
	}
	for i := range r.Jobs {
		g.Jobs = append(g.Jobs, tell(&r.Jobs[i], &r.Outcomes[i]))
	}
	for _, s := range d.closed {
		g.Blocks = append(g.Blocks, report.Block{
			Row: int32(s.device), Start: s.start.Seconds(), End: s.end.Seconds(), Lo: s.lo, Hi: min(1, s.hi),
			Kind: uint8(applicationOf(&r.Jobs[s.job])), Job: int32(s.job),
		})
	}
	return g
}

func tell(j *model.Job, o *sim.Outcome) report.GanttJob {
	return report.GanttJob{ID: j.ID, Lines: []string{
		"Application\t" + j.Logged.Executable,
		"Asked for\t" + simpage.Words(&j.Request),
		"Waited\t" + report.Duration((o.Start - j.Submit).Seconds()),
		"Ran\t" + report.Duration((o.End - o.Start).Seconds()),
		"Alone it runs\t" + report.Duration(j.Run.Seconds()),
	}}
}
