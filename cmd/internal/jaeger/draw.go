package jaeger

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/millrace/millrace/cmd/internal/reader/printer"
)

// View are the options for drawing a trace.
type View struct {
	// All draws also the spans of the API server and etcd within a request.
	All bool
	// Width is the width of the terminal in columns; 0 cuts no line.
	Width int
}

const (
	// levels is how many levels of the tree are drawn before a deeper span.
	levels = 3
	// nameless is about the width of the columns between the span and its subject.
	nameless = 35
)

// Draw writes a trace as a tree: a line for each span, below its parent, with its subject
// and remarks.
func Draw(paper *printer.Paper, t *Trace, v View) {
	services := t.services()
	paper.Line("trace %s, %d spans of %s, %s", paper.In(printer.Bold, t.ID), t.count(), strings.Join(services, ", "), short(t.Length()))
	d := drawing{view: v, begin: t.begin(), services: services}
	for _, root := range d.visible(t.Roots, false) {
		d.span(root, nil)
	}
	d.cut()
	paper.Table([]string{"SPAN", "SERVICE", "AFTER", "TOOK", "ABOUT"}, d.rows)
	if d.hidden > 0 {
		paper.Line("%s", paper.In(printer.Dim, fmt.Sprintf("%d spans within requests of the API server and etcd are not shown: --all", d.hidden)))
	}
}

type drawing struct {
	view     View
	begin    time.Time
	services []string
	rows     [][]printer.Cell
	hidden   int
}

// span draws a span, and its children below it. last has for each level above whether no
// sibling follows.
func (d *drawing) span(s *Span, last []bool) {
	name := printer.Cell{Text: lead(last) + s.Name}
	if s.Failed {
		name.Colour = printer.Red
	}
	d.rows = append(d.rows, []printer.Cell{
		name, {Text: strings.TrimPrefix(s.Service, "millrace-"), Colour: d.colour(s.Service)}, {Text: short(s.Start.Sub(d.begin))}, {Text: short(s.Duration)},
		{Text: strings.Join(append(about(s), remarks(s)...), "; "), Colour: name.Colour},
	})
	children := d.visible(s.Children, internal(s))
	for i, child := range children {
		d.span(child, append(slices.Clone(last), i+1 == len(children)))
	}
}

// visible are the spans to draw. In place of spans of the API server and etcd within a
// request, they are the spans that these caused.
func (d *drawing) visible(spans []*Span, within bool) (shown []*Span) {
	for _, s := range spans {
		if !d.view.All && within && internal(s) {
			d.hidden++
			shown = append(shown, d.visible(s.Children, true)...)
			continue
		}
		shown = append(shown, s)
	}
	inOrder(shown)
	return shown
}

// internal is whether a span is of the API server or etcd.
func internal(s *Span) bool {
	return slices.Contains([]string{"apiserver", "kube-apiserver", "etcd"}, s.Service)
}

// lead is the text of the tree before a span. For a deep span it leaves out the upper
// levels.
func lead(last []bool) (text string) {
	if len(last) > levels {
		text, last = "‥ ", last[len(last)-levels:]
	}
	for i, l := range last {
		switch below := i+1 < len(last); {
		case below && l:
			text += "   "
		case below:
			text += "│  "
		case l:
			text += "└─ "
		default:
			text += "├─ "
		}
	}
	return text
}

// cut shortens the first and the last column to the width of the view.
func (d *drawing) cut() {
	if d.view.Width == 0 {
		return
	}
	most, widest := min(60, max(24, (d.view.Width-nameless)/2)), 0
	for _, row := range d.rows {
		row[0].Text = shortened(row[0].Text, most)
		widest = max(widest, utf8.RuneCountInString(row[0].Text))
	}
	columns := widest + 3
	for column := 1; column < 4; column++ {
		most := 0
		for _, row := range d.rows {
			most = max(most, utf8.RuneCountInString(row[column].Text), len("SERVICE"))
		}
		columns += most + 3
	}
	for _, row := range d.rows {
		row[4].Text = shortened(row[4].Text, max(10, d.view.Width-columns))
	}
}

func shortened(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}

// palette are the colours of the services.
var palette = []printer.Colour{printer.Cyan, printer.Green, printer.Blue, printer.Yellow, printer.Dim}

func (d *drawing) colour(service string) printer.Colour {
	return palette[slices.Index(d.services, service)%len(palette)]
}

// remarks are the anomalies of a span.
func remarks(s *Span) []string {
	var out []string
	if s.Failed {
		message := "failed"
		if s.Message != "" {
			message += ": " + s.Message
		}
		out = append(out, message)
	}
	if s.Orphan {
		out = append(out, "its parent "+s.Parent+" is not in the trace")
	}
	for _, l := range s.Links {
		if l.Trace == s.trace {
			out = append(out, "also because of span "+l.Span)
		} else {
			out = append(out, "follows trace "+l.Trace)
		}
	}
	return out
}

// services are the names of the trace's services, in the order of their first spans.
func (t *Trace) services() []string {
	var all []string
	for s := range t.All() {
		if !slices.Contains(all, s.Service) {
			all = append(all, s.Service)
		}
	}
	return all
}

func (t *Trace) begin() time.Time {
	begin := t.Roots[0].Start
	for s := range t.All() {
		if s.Start.Before(begin) {
			begin = s.Start
		}
	}
	return begin
}

func (t *Trace) count() int {
	n := 0
	for range t.All() {
		n++
	}
	return n
}

// short formats a duration in a suitable unit, with at most three digits.
func short(d time.Duration) string {
	switch {
	case d >= 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d >= time.Second:
		return fmt.Sprintf("%.2fs", d.Seconds())
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%dms", d.Milliseconds())
	default:
		return fmt.Sprintf("%.1fms", float64(d.Microseconds())/1000)
	}
}
