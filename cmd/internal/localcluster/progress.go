package localcluster

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// progress tells a person what takes so long: a line that counts the seconds on
// a terminal, a line at the start and one at the end elsewhere.
type progress struct {
	w        io.Writer
	terminal bool
}

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
		fmt.Fprintf(p.w, "%s ...\n", what)
	}
	return func(err error) {
		close(stop)
		drawing.Wait()
		start, result := "", "done"
		if p.terminal {
			start = "\r\x1b[K"
		}
		if err != nil {
			result = "did not work"
		}
		fmt.Fprintf(p.w, "%s%s: %s in %v\n", start, what, result, time.Since(begun).Round(100*time.Millisecond))
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
