package watcher

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

var errNotListed = errors.New("the first list has not ended")

// Synced is true when this watcher has listed, and watches, every kind that falls to it.
func (s *Service) Synced() bool { return s.checkSynced() == nil }

func (s *Service) checkSynced() error {
	want, _, searched := s.wanted()
	if !searched {
		return errors.New("discovery has not answered yet")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range want {
		if !s.fallsHere(kind.Name) && !s.taken[kind.Name] {
			continue
		}
		r := s.kinds[kind.Name]
		if r == nil {
			return fmt.Errorf("%s: not started", kind.Name)
		}
		if synced, err := r.reflector.Status(); err != nil || !synced {
			return fmt.Errorf("%s: not listed or degraded: %w", kind.Name, cmp.Or(err, errNotListed))
		}
	}
	return nil
}

// Checks returns the watcher's health checks by name: api, bus, replicas, synced, watched.
func (s *Service) Checks() map[string]func() error {
	return map[string]func() error{
		"api": func() error {
			s.mu.Lock()
			defer s.mu.Unlock()
			return cmp.Or(s.apiErr, s.discoveryErr)
		},
		"bus":      s.config.Bus.Healthy,
		"replicas": s.members.Check,
		"synced":   s.checkSynced,
		"watched":  s.checkWatched,
	}
}

// Collectors returns the watcher's metrics.
func (s *Service) Collectors() []prometheus.Collector {
	members := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "millrace_watcher_members", Help: "Watchers whose heartbeats this one receives, itself included; 33 at most.",
	}, func() float64 { return float64(s.members.Members()) })
	return append(append(s.metrics.collectors(), members), s.writes.Collectors()...)
}
