// Package cpuprofile collects processor profiles of running processes for the compiler (go build
// -pgo), and tells which share of the time Millrace's safeguards take.
package cpuprofile

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

// Profiler collects processor profiles of Millrace's processes for the compiler (go build -pgo). A nil
// Profiler collects nothing.
type Profiler struct {
	following sync.WaitGroup

	mu    sync.Mutex
	taken []*profile.Profile
}

// Follow takes one profile of a process after the other, until the process ends.
func (p *Profiler) Follow(health string) {
	if p == nil {
		return
	}
	p.following.Go(func() {
		for {
			taken, err := profileOf(health)
			if err != nil {
				return // the process has ended; its last, incomplete profile is not needed
			}
			p.Add(taken)
		}
	})
}

// Add adds a profile.
func (p *Profiler) Add(taken *profile.Profile) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken = append(p.taken, taken)
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

// Merged waits until every process has ended, and merges all profiles.
//
// Errors: there is no profile; they do not fit each other.
func (p *Profiler) Merged() (*profile.Profile, error) {
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

// Save writes all profiles as one, without any information about the machine.
//
// Errors: those of [Profiler.Merged]; the file cannot be written.
func (p *Profiler) Save(file string) error {
	merged, err := p.Merged()
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
