// Package progress shows long steps, such as builds, to a user: on a terminal as a line that
// counts the seconds, elsewhere as a line at the start, one at the end, and one every 30 s.
package progress

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Progress shows steps, one after the other.
type Progress struct {
	w        io.Writer
	terminal bool
	prefix   string // of every line
}

// remindEvery is how often an unfinished step is logged if the output is no terminal.
const remindEvery = 30 * time.Second

// Aside is progress for background steps: other output comes in between, so each message is
// a line of its own with a prefix.
func (p *Progress) Aside() *Progress { return &Progress{w: p.w, prefix: "millrace: "} }

// New shows steps on w; nil: nowhere.
func New(w io.Writer) *Progress {
	if w == nil {
		return &Progress{w: io.Discard}
	}
	p := &Progress{w: w}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// Step shows the start of a step; the returned function shows its end.
func (p *Progress) Step(what string) func(error) {
	begun := time.Now()
	var drawing sync.WaitGroup
	stop := make(chan struct{})
	if p.terminal {
		drawing.Go(func() { p.draw(what, begun, stop) })
	} else {
		fmt.Fprintf(p.w, "%s%s ...\n", p.prefix, what)
		drawing.Go(func() { p.remind(what, begun, stop) })
	}
	return func(err error) {
		close(stop)
		drawing.Wait()
		start, result := p.prefix, "done"
		if p.terminal {
			start = "\r\x1b[K"
		}
		if err != nil {
			result = "did not work"
		}
		fmt.Fprintf(p.w, "%s%s: %s in %v\n", start, what, result, time.Since(begun).Round(100*time.Millisecond))
	}
}

func (p *Progress) remind(what string, begun time.Time, stop <-chan struct{}) {
	tick := time.NewTicker(remindEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			fmt.Fprintf(p.w, "%s%s: %v so far\n", p.prefix, what, time.Since(begun).Round(time.Second))
		}
	}
}

func (p *Progress) draw(what string, begun time.Time, stop <-chan struct{}) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		fmt.Fprintf(p.w, "\r\x1b[K%s ... %ds", what, int(time.Since(begun).Seconds()))
		select {
		case <-stop:
			return
		case <-tick.C:
		}
	}
}
