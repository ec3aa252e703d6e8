package main

import (
	"context"
	"math"
	"path/filepath"
	"time"

	"github.com/millrace/millrace/cmd/evidence"
)

// evidence writes the figures of the run to a file, if the flag asks for it.
func (s *session) evidence(broken bool) error {
	if s.options.evidence == "" {
		return nil
	}
	file, err := filepath.Abs(s.options.evidence)
	if err != nil {
		return err
	}
	return evidence.Write(context.Background(), file, s.proof(broken, time.Since(s.begun)))
}

// proof returns the figures for the evidence file.
func (s *session) proof(broken bool, took time.Duration) map[string]any {
	type cost struct {
		Fault    string  `json:"fault"`
		Promised float64 `json:"promisedSeconds"`
		Samples  int     `json:"samples"`
		P50      float64 `json:"p50Seconds"`
		Longest  float64 `json:"longestSeconds"`
	}
	r := &s.report
	costs := make([]cost, 0, len(r.HandOvers))
	for _, h := range r.HandOvers {
		costs = append(costs, cost{h.Fault, h.Promise.Seconds(), h.Samples, seconds(h.P50), seconds(h.Longest)})
	}
	rules := map[string]int{}
	for _, v := range r.Violations {
		rules[v.Rule]++
	}
	kinds, played := r.kinds()
	code := 0
	if broken {
		code = 1
	}
	f := r.Figures
	return map[string]any{
		"commit": s.commit, "seed": r.Seed, "seconds": took.Round(time.Second).Seconds(), "loadSeconds": r.Load.Round(time.Second).Seconds(),
		"buses": s.options.size.buses, "replicas": s.options.size.replicas, "users": s.options.users,
		"faults": played, "missed": len(r.Strikes) - played, "hits": kinds, "faultsPerMinute": math.Round(10*float64(played)/max(r.Load.Minutes(), 1e-9)) / 10,
		"handOvers": costs, "actions": r.Done, "revisions": f.Changes, "turns": f.Turns, "writes": f.Writes, "deltas": f.Deltas,
		"replayed": r.Replay.Same, "unsure": f.Unsure, "gaps": f.Gaps, "hidden": f.Hidden, "unread": f.Unread,
		"crashes": len(r.Crashes), "machineStalls": r.Stalls, "violations": len(r.Violations), "violationsByRule": rules,
		"restSeconds": seconds(r.Rest), "restless": r.Restless, "exitCode": code,
	}
}

// seconds rounds to milliseconds.
func seconds(d time.Duration) float64 { return d.Round(time.Millisecond).Seconds() }
