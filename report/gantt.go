package report

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// MaxBlocks is the number of blocks that one Gantt chart can draw. Of more blocks, the page has
// those with the largest area (time times height), and says how many, and how much area, it leaves
// out.
const MaxBlocks = 1_000_000

// Gantt draws what occupied each row (a node) over time. In the page the user can zoom and pan, see
// the job under the pointer, and find jobs by ID.
type Gantt struct {
	Title, Note string
	// Find is the label of the search field, if the blocks are not jobs.
	Find string
	// Axis names a time axis. All Gantt charts of a page with the same name zoom and pan together,
	// and highlight the same job. "" gives the chart an axis of its own.
	Axis   string
	Rows   []string
	Kinds  []Kind
	Blocks []Block
	Jobs   []GanttJob
}

// Kind is a colour with a meaning.
type Kind struct {
	Name string
	// Colour is "#rrggbb"; "" takes the next one of the Palette.
	Colour string
	Help   string
}

// Block is a job's part of one row from Start to End.
type Block struct {
	Row        int32
	Start, End float64 // seconds
	Lo, Hi     float32 // part of the row's height, 0 (top) to 1
	Kind       uint8
	Job        int32 // index into Jobs; -1 for no job (such as a node that was down)
}

// GanttJob is what the page shows about a job.
type GanttJob struct {
	ID string
	// Lines are shown under the pointer. A tab separates name and value.
	Lines []string
}

func (g *Gantt) check() error {
	fail := func(format string, args ...any) error {
		return fmt.Errorf("gantt %q: %s", g.Title, fmt.Sprintf(format, args...))
	}
	for _, k := range g.Kinds {
		if k.Colour != "" && !isColour(k.Colour) {
			return fail("kind %q has the colour %q; want #rrggbb", k.Name, k.Colour)
		}
	}
	for i, b := range g.Blocks {
		switch {
		case b.Row < 0 || int(b.Row) >= len(g.Rows):
			return fail("block %d is in row %d of %d", i, b.Row, len(g.Rows))
		case int(b.Kind) >= len(g.Kinds):
			return fail("block %d is of kind %d of %d", i, b.Kind, len(g.Kinds))
		case b.Job < -1 || int(b.Job) >= len(g.Jobs):
			return fail("block %d belongs to job %d of %d", i, b.Job, len(g.Jobs))
		case !drawable(b.Start) || !drawable(b.End) || b.End < b.Start:
			return fail("block %d lasts from %v to %v s", i, b.Start, b.End)
		case !(b.Lo >= 0 && b.Lo <= b.Hi && b.Hi <= 1):
			return fail("block %d has the height %v to %v; want 0 to 1", i, b.Lo, b.Hi)
		}
	}
	return nil
}

func isColour(s string) bool {
	return len(s) == 7 && s[0] == '#' && strings.Trim(s[1:], "0123456789abcdefABCDEF") == ""
}

// ganttMeta is the small part of a Gantt's data, as JSON in the page.
type ganttMeta struct {
	Axis   string      `json:"axis"`
	Rows   []string    `json:"rows"`
	Kinds  []ganttKind `json:"kinds"`
	From   float64     `json:"from"`
	To     float64     `json:"to"`
	Blocks int         `json:"blocks"`
	Jobs   int         `json:"jobs"`
}

type ganttKind struct {
	Name   string `json:"name"`
	Colour string `json:"colour"`
}

func (g *Gantt) writeHTML(h *htmlWriter) {
	blocks, jobs, thinned := g.thin(MaxBlocks)
	sortBlocks(blocks)
	meta := g.meta(blocks, jobs)
	h.raw(`<figure class="gantt">`)
	h.caption(g.Title)
	h.raw(`<div class="bar"><ul class="legend">`)
	for i, k := range g.Kinds {
		h.raw("<li")
		if k.Help != "" {
			h.raw(` class="help" tabindex="0" data-tip="` + escape(k.Help) + `"`)
		}
		h.raw(`><svg viewBox="0 0 12 12" aria-hidden="true"><rect width="12" height="12" rx="2" fill="` + meta.Kinds[i].Colour + `"/></svg>` + escape(k.Name) + "</li>")
	}
	find := escape(cmp.Or(g.Find, "Find a job by ID"))
	h.raw(`</ul><form role="search"><output></output><input type="search" placeholder="` + find + `" aria-label="` + find + `" autocomplete="off" spellcheck="false"></form></div>`)
	h.raw(`<div class="stage"><canvas class="blocks" tabindex="0" role="img" aria-label="` + escape(g.Title) + `: rows over time"></canvas><canvas class="marks"></canvas>` +
		`<noscript>This picture is drawn by the page's script.</noscript></div>`)
	h.raw(`<p class="keys">Wheel: zoom time · Shift+wheel: zoom rows · drag: move · double click: all · keys: + − 0 and arrows</p>`)
	h.note(thinned)
	h.note(g.Note)
	h.json("meta", meta)
	h.raw(`<script type="text/plain" class="data">`)
	if h.err == nil {
		h.err = packBase64(h.w, blocks, jobs)
	}
	h.raw("</script></figure>\n")
}

func (g *Gantt) meta(blocks []Block, jobs []GanttJob) ganttMeta {
	meta := ganttMeta{Axis: clean(g.Axis), Rows: make([]string, len(g.Rows)), Kinds: make([]ganttKind, len(g.Kinds)), Blocks: len(blocks), Jobs: len(jobs)}
	for i, name := range g.Rows {
		meta.Rows[i] = clean(name)
	}
	for i, k := range g.Kinds {
		colour := k.Colour
		if colour == "" {
			colour = Palette[i%len(Palette)]
		}
		meta.Kinds[i] = ganttKind{Name: clean(k.Name), Colour: colour}
	}
	var t span
	for _, b := range blocks {
		t.add(b.Start)
		t.add(b.End)
	}
	meta.From, meta.To = t.lo, t.hi
	if startsNearZero(t) {
		meta.From = 0
	}
	if !(meta.To > meta.From) {
		meta.To = meta.From + 1
	}
	return meta
}

// thin keeps the limit largest blocks and their jobs, and says what it left out. The caller must
// sort the blocks.
func (g *Gantt) thin(limit int) ([]Block, []GanttJob, string) {
	if len(g.Blocks) <= limit {
		return slices.Clone(g.Blocks), g.Jobs, ""
	}
	order := make([]int32, len(g.Blocks))
	for i := range order {
		order[i] = int32(i)
	}
	area := func(i int32) float64 {
		b := &g.Blocks[i]
		return (b.End - b.Start) * float64(b.Hi-b.Lo)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch x, y := area(a), area(b); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	all, lost := 0.0, 0.0
	for i, k := range order {
		all += area(k)
		if i >= limit {
			lost += area(k)
		}
	}
	order = order[:limit]
	slices.Sort(order)
	blocks := make([]Block, limit)
	number := make([]int32, len(g.Jobs)) // the job's new index plus one; 0 if it is dropped
	var jobs []GanttJob
	for i, k := range order {
		blocks[i] = g.Blocks[k]
		if j := blocks[i].Job; j >= 0 {
			if number[j] == 0 {
				jobs = append(jobs, g.Jobs[j])
				number[j] = int32(len(jobs))
			}
			blocks[i].Job = number[j] - 1
		}
	}
	share := 0.0
	if all > 0 {
		share = lost / all
	}
	return blocks, jobs, fmt.Sprintf("Thinned: the %s smallest of %s blocks, %s of the occupied area, are left out. Jobs left out with them: %s.",
		Number(float64(len(g.Blocks)-limit)), Number(float64(len(g.Blocks))), Percent(share), Number(float64(len(g.Jobs)-len(jobs))))
}

// sortBlocks sorts by row, then by start, as the page's search expects.
func sortBlocks(blocks []Block) {
	slices.SortStableFunc(blocks, func(a, b Block) int {
		switch {
		case a.Row != b.Row:
			return int(a.Row) - int(b.Row)
		case a.Start < b.Start:
			return -1
		case a.Start > b.Start:
			return 1
		}
		return 0
	})
}

// packBase64 writes the packed data as text for the page.
func packBase64(w io.Writer, blocks []Block, jobs []GanttJob) error {
	text := base64.NewEncoder(base64.StdEncoding, w)
	zip := gzip.NewWriter(text)
	if err := pack(zip, blocks, jobs); err != nil {
		return err
	}
	if err := zip.Close(); err != nil {
		return err
	}
	return text.Close()
}

// pack writes the blocks column by column, so that the page can use typed arrays on them and gzip
// compresses them well: start and end (float64), row and job (int32), kind, lo and hi (uint8; lo
// and hi in 1/255), all little-endian. Then, for each job, its ID and lines, each followed by a
// newline, and a zero byte.
func pack(w io.Writer, blocks []Block, jobs []GanttJob) error {
	var buf bytes.Buffer
	flush := func(force bool) error {
		if !force && buf.Len() < 1<<16 {
			return nil
		}
		_, err := buf.WriteTo(w)
		return err
	}
	var word [8]byte
	columns := []func(b *Block) int{
		func(b *Block) int { binary.LittleEndian.PutUint64(word[:], math.Float64bits(b.Start)); return 8 },
		func(b *Block) int { binary.LittleEndian.PutUint64(word[:], math.Float64bits(b.End)); return 8 },
		func(b *Block) int { binary.LittleEndian.PutUint32(word[:], uint32(b.Row)); return 4 },
		func(b *Block) int { binary.LittleEndian.PutUint32(word[:], uint32(b.Job)); return 4 },
		func(b *Block) int { word[0] = b.Kind; return 1 },
		func(b *Block) int { word[0] = level(b.Lo); return 1 },
		func(b *Block) int { word[0] = level(b.Hi); return 1 },
	}
	for _, put := range columns {
		for i := range blocks {
			buf.Write(word[:put(&blocks[i])])
			if err := flush(false); err != nil {
				return err
			}
		}
	}
	for _, j := range jobs {
		buf.WriteString(clean(j.ID))
		buf.WriteByte('\n')
		for _, line := range j.Lines {
			buf.WriteString(cleanPair(line))
			buf.WriteByte('\n')
		}
		buf.WriteByte(0)
		if err := flush(false); err != nil {
			return err
		}
	}
	return flush(true)
}

func level(part float32) uint8 { return uint8(math.Round(float64(part) * 255)) }
