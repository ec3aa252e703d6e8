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

// stretch is the duration of one profile.
const stretch = 10 * time.Second

// profiler collects processor profiles of Millrace's processes for the compiler (go build -pgo). A nil
// profiler collects nothing.
type profiler struct {
	following sync.WaitGroup

	mu    sync.Mutex
	taken []*profile.Profile
}

// follow takes one profile of a process after the other, until the process ends.
func (p *profiler) follow(health string) {
	if p == nil {
		return
	}
	p.following.Go(func() {
		for {
			taken, err := profileOf(health)
			if err != nil {
				return // the process has ended; its last, incomplete profile is not needed
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

// merged waits until every process has ended, and merges all profiles.
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

// save writes all profiles as one, without any information about the machine.
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
