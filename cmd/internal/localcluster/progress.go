package localcluster

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress tells a person what takes so long: a line that counts the seconds on
// a terminal; elsewhere a line at the start, one at the end, and one every half minute.
type progress struct {
	w        io.Writer
	terminal bool
	prefix   string // of every line
}

// remindEvery is how often something that goes on is told of where lines stay.
const remindEvery = 30 * time.Second

// aside is the same for what goes on behind: others write meanwhile, so that each line
// stays, and says who wrote it.
func (p *progress) aside() *progress { return &progress{w: p.w, prefix: "millrace: "} }

func newProgress(w io.Writer) *progress {
	if w == nil {
		return &progress{w: io.Discard}
	}
	p := &progress{w: w}
	if f, ok := w.(*os.File); ok {
		info, err := f.Stat()
		p.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// step says that something has begun; the function it returns says how it ended.
func (p *progress) step(what string) func(error) {
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

func (p *progress) remind(what string, begun time.Time, stop <-chan struct{}) {
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

func (p *progress) draw(what string, begun time.Time, stop <-chan struct{}) {
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
