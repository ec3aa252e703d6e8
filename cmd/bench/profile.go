package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/google/pprof/profile"
)

// stretch is how long one profile is taken.
const stretch = 10 * time.Second

// profiler gathers what Millrace's processes spend their time on, for the compiler
// to be told what matters (go build -pgo). None gathers nothing.
type profiler struct {
	following sync.WaitGroup

	mu    sync.Mutex
	taken []*profile.Profile
}

// follow takes one profile after the other of a process, until it ends.
func (p *profiler) follow(health string) {
	if p == nil {
		return
	}
	p.following.Go(func() {
		for {
			taken, err := profileOf(health)
			if err != nil {
				return // the process has ended, and what it did last is not missed
			}
			p.mu.Lock()
			p.taken = append(p.taken, taken)
			p.mu.Unlock()
		}
	})
}

func profileOf(health string) (*profile.Profile, error) {
	client := http.Client{Timeout: 2 * stretch}
	answer, err := client.Get(fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", health, int(stretch.Seconds())))
	if err != nil {
		return nil, fmt.Errorf("take a profile: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("take a profile: %s", answer.Status)
	}
	return profile.Parse(answer.Body)
}

// merged is all of it as one profile, when every process has ended.
func (p *profiler) merged() (*profile.Profile, error) {
	p.following.Wait()
	if len(p.taken) == 0 {
		return nil, errors.New("merge profiles: none was taken; let millrace play for longer, such as --scenarios=burst,many,job")
	}
	merged, err := profile.Merge(p.taken)
	if err != nil {
		return nil, fmt.Errorf("merge profiles: %w", err)
	}
	return merged, nil
}

// save writes all of it as one profile. Of the machine that it was taken on it says nothing.
func (p *profiler) save(file string) error {
	merged, err := p.merged()
	if err != nil {
		return err
	}
	for _, m := range merged.Mapping {
		m.File, m.BuildID = "millrace", ""
	}
	merged.TimeNanos, merged.Comments = 0, nil
	out, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("write profile: %w", err)
	}
	return errors.Join(merged.Write(out), out.Close())
}
