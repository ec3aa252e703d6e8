package jaeger

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/reader"
)

// Draw writes a trace as a tree for people: a line for each span, below the one
// that caused it, with what it was about and what is remarkable about it.
func Draw(paper *reader.Paper, t *Trace) {
	services := t.services()
	paper.Line("trace %s, %d spans of %s, %s", paper.In(reader.Bold, t.ID), t.count(), strings.Join(services, ", "), short(t.Length()))
	d := drawing{begin: t.begin(), services: services}
	for _, root := range t.Roots {
		d.span(root, "", "")
	}
	paper.Table([]string{"SPAN", "SERVICE", "AFTER", "TOOK", "ABOUT"}, d.rows)
}

type drawing struct {
	begin    time.Time
	services []string
	rows     [][]reader.Cell
}

// span draws a span behind lead, and what it caused behind below.
func (d *drawing) span(s *Span, lead, below string) {
	name := reader.Cell{Text: lead + s.Name}
	if s.Failed {
		name.Colour = reader.Red
	}
	d.rows = append(d.rows, []reader.Cell{
		name, {Text: s.Service, Colour: d.colour(s.Service)}, {Text: short(s.Start.Sub(d.begin))}, {Text: short(s.Duration)},
		{Text: strings.Join(append(about(s), remarks(s)...), "; "), Colour: name.Colour},
	})
	for i, child := range s.Children {
		if i+1 < len(s.Children) {
			d.span(child, below+"├─ ", below+"│  ")
		} else {
			d.span(child, below+"└─ ", below+"   ")
		}
	}
}

// palette are the colours by which services are told apart.
var palette = []reader.Colour{reader.Cyan, reader.Green, reader.Blue, reader.Yellow, reader.Dim}

func (d *drawing) colour(service string) reader.Colour {
	return palette[slices.Index(d.services, service)%len(palette)]
}

// remarks are what is out of the ordinary about a span.
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

// services are the names of the trace's services, in the order in which they came
// into it.
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

// short writes a time in the unit that fits it, with three digits or less.
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
