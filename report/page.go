package report

import (
	"bufio"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"html/template"
	"io"
	"strconv"
	"strings"
)

var (
	//go:embed page.html
	shellSource string
	//go:embed page.css
	pageCSS string
	//go:embed plot.css
	plotCSS string
	//go:embed page.js
	pageJS string

	shell = template.Must(template.New("page").Parse(shellSource))
)

// Page is a report: a single HTML file that needs no other file.
type Page struct {
	Title string
	// Lead says in a few sentences what the page shows.
	Lead     string
	Sections []Section
}

// Section is a piece of a page: Heading, Text, Pre, *Table, *Chart, *Bars,
// *Stacks, *Histogram, *Strips or *Gantt.
type Section interface {
	// check says what is wrong with the section. It is called before anything is written, so that
	// no incomplete page is.
	check() error
	writeHTML(h *htmlWriter)
}

var _ = []Section{Heading(""), Text(""), Pre(""), (*Table)(nil), (*Chart)(nil), (*Bars)(nil), (*Stacks)(nil), (*Histogram)(nil), (*Strips)(nil), (*Gantt)(nil)}

// Heading begins a part of the page. A page with several lists them at the top.
type Heading string

// Text is prose; a blank line begins a new paragraph.
type Text string

// Pre is text whose lines and spaces are kept.
type Pre string

// WriteHTML writes the page. Equal pages give equal bytes.
func (p *Page) WriteHTML(w io.Writer) error {
	for i, s := range p.Sections {
		if err := s.check(); err != nil {
			return fmt.Errorf("section %d: %w", i+1, err)
		}
	}
	h := newHTMLWriter(w)
	h.template("head", map[string]any{
		"Title": clean(p.Title), "Lead": paragraphs(p.Lead), "Headings": p.headings(),
		"CSS": template.CSS(plotCSS + pageCSS), "Policy": contentPolicy(),
	})
	for _, s := range p.Sections {
		s.writeHTML(h)
	}
	h.template("foot", template.JS(pageJS))
	if h.err != nil {
		return fmt.Errorf("write page: %w", h.err)
	}
	if err := h.w.Flush(); err != nil {
		return fmt.Errorf("write page: %w", err)
	}
	return nil
}

// contentPolicy allows only the page's own script, and no network access. If hostile text ever
// became markup, the browser would still not execute it.
func contentPolicy() string {
	sum := sha256.Sum256([]byte(pageJS))
	return "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-" +
		base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// headings lists the page's parts; nil if there are too few for a table of contents.
func (p *Page) headings() []string {
	var list []string
	for _, s := range p.Sections {
		if heading, ok := s.(Heading); ok {
			list = append(list, clean(string(heading)))
		}
	}
	if len(list) < 3 {
		return nil
	}
	return list
}

func paragraphs(s string) []string {
	var list []string
	for _, p := range strings.Split(strings.ReplaceAll(s, "\r\n", "\n"), "\n\n") {
		if p = strings.TrimSpace(clean(p)); p != "" {
			list = append(list, p)
		}
	}
	return list
}

func (Heading) check() error { return nil }
func (Text) check() error    { return nil }
func (Pre) check() error     { return nil }

func (s Heading) writeHTML(h *htmlWriter) {
	h.raw(`<h2 id="part` + strconv.Itoa(h.parts) + `">` + escape(string(s)) + "</h2>\n")
	h.parts++
}

func (s Text) writeHTML(h *htmlWriter) {
	for _, p := range paragraphs(string(s)) {
		h.raw("<p>" + escape(p) + "</p>\n")
	}
}

func (s Pre) writeHTML(h *htmlWriter) {
	lines := strings.Split(strings.ReplaceAll(string(s), "\r\n", "\n"), "\n")
	for i, line := range lines {
		lines[i] = escape(strings.ReplaceAll(line, "\t", "    "))
	}
	h.raw("<pre>" + strings.Join(lines, "\n") + "</pre>\n")
}

// htmlWriter writes a page, and keeps the first error.
type htmlWriter struct {
	w     *bufio.Writer
	err   error
	parts int // headings so far
}

func newHTMLWriter(w io.Writer) *htmlWriter { return &htmlWriter{w: bufio.NewWriter(w)} }

func (h *htmlWriter) raw(s string) {
	if h.err == nil {
		_, h.err = h.w.WriteString(s)
	}
}

func (h *htmlWriter) template(name string, data any) {
	if h.err == nil {
		h.err = shell.ExecuteTemplate(h.w, name, data)
	}
}

func (h *htmlWriter) caption(title string) {
	if title != "" {
		h.raw("<figcaption>" + escape(title) + "</figcaption>")
	}
}

func (h *htmlWriter) note(note string) {
	if note != "" {
		h.raw(`<p class="note">` + escape(note) + "</p>")
	}
}

// escape makes text safe between tags and in quoted attributes, in HTML and XML.
func escape(s string) string { return html.EscapeString(clean(s)) }
