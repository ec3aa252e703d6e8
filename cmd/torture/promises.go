package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/check"
	"github.com/millrace/millrace/cmd/internal/fault"
	"github.com/millrace/millrace/cmd/internal/localcluster/crowd"
)

// runRules are the rules about the run itself, which cannot be checked from the books alone.
var runRules = []check.Rule{
	{Name: "ends", Text: "no process of ours ended by itself, and each ended well that was asked to"},
	{Name: "faults", Text: "every fault could be done"},
	{Name: "hand-over", Text: "work went on within what docs/reliability.md promises"},
}

// The bounds of docs/reliability.md: how long work may stand still after a fault.
const (
	killPromise  = time.Second      // a replica of a service is killed, or replaced
	stallPromise = 3 * time.Second  // a replica is stopped
	cutPromise   = 5 * time.Second  // a replica is cut off
	busPromise   = 20 * time.Second // a server of a bus of three is killed or stopped
)

// How torture checks a bound on a machine that has other things to do, in the same way as
// system.TestFailover, TestStall and TestCutOff: each step of a hand-over may take as long as a heal without
// faults, and one sample of twenty may be later, by at most three times. The time of a heal without faults is
// the median, not the longest.
const (
	steps     = 5
	oneOf     = 20
	mostTimes = 3
)

// wholeFor is how long no other fault may have been active before a fault that counts as the only one: the
// parts that an earlier fault hit are back by then, and have caught up.
const wholeFor = 3 * time.Second

// handOver is the cost of one kind of fault where it was the only active fault.
type handOver struct {
	Fault   string        `json:"fault"`
	Promise time.Duration `json:"promise"`
	Samples int           `json:"samples"`
	P50     time.Duration `json:"p50"`
	Longest time.Duration `json:"longest"`
	// Bound is Promise plus the time that this machine takes without faults. Late is the sample that must be
	// within Bound, and Worst is how long no sample may take.
	Bound time.Duration `json:"bound"`
	Late  time.Duration `json:"late"`
	Worst time.Duration `json:"worst"`
}

// promiseOf returns the name and the promise for a fault with one target.
func promiseOf(s strike) (name string, promise time.Duration, ok bool) {
	if len(s.Targets) != 1 || s.Hit == 0 {
		return "", 0, false
	}
	process, to, wired := strings.Cut(s.Targets[0], ">")
	service, _, _ := strings.Cut(process, "-")
	ours := slices.Contains(services, service)
	switch {
	case wired && (s.Kind == fault.Cut || s.Kind == fault.HalfOpen || s.Kind == fault.Stall):
		return service + " cut off from " + to, cutPromise, true
	case ours && (s.Kind == fault.Kill || s.Kind == fault.Restart):
		return service + " killed or replaced", killPromise, true
	case ours && s.Kind == fault.Pause:
		return service + " stopped", stallPromise, true
	case service == "bus" && (s.Kind == fault.Kill || s.Kind == fault.Pause):
		return "one of three buses killed or stopped", busPromise, true
	}
	return "", 0, false
}

// handOvers measures the cost of each kind of fault where it was the only one: the time from the deletion of
// a pod, or from the fault if that came later, to the new pod.
func handOvers(samples []crowd.Sample, strikes []strike) []handOver {
	times, promises := map[string][]time.Duration{}, map[string]time.Duration{}
	var peace []time.Duration
	for _, sample := range samples {
		only, n := onlyStrike(sample, strikes)
		if n == 0 {
			peace = append(peace, sample.Took())
		}
		if name, promise, ok := promiseOf(only); n == 1 && ok {
			begun := sample.Deleted
			if only.Began.After(begun) {
				begun = only.Began
			}
			times[name], promises[name] = append(times[name], sample.Created.Sub(begun)), promise
		}
	}
	calm := median(peace)
	var all []handOver
	for name, took := range times {
		slices.Sort(took)
		h := handOver{Fault: name, Promise: promises[name], Samples: len(took), P50: median(took), Longest: took[len(took)-1]}
		h.Bound, h.Late = h.Promise+steps*calm, took[len(took)-1-len(took)/oneOf]
		h.Worst = mostTimes * h.Bound
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b handOver) int { return strings.Compare(a.Fault, b.Fault) })
	return all
}

// onlyStrike returns a fault during which a sample was taken, and how many were active or had just ended.
func onlyStrike(sample crowd.Sample, strikes []strike) (only strike, n int) {
	for _, s := range strikes {
		if !s.Began.After(sample.Created) && !s.Ended.Add(wholeFor).Before(sample.Deleted) {
			only, n = s, n+1
		}
	}
	if n == 1 && only.Ended.Before(sample.Deleted) {
		return only, 2 // the fault was over: the sample counts neither as peace nor as its cost
	}
	return only, n
}

func median(of []time.Duration) time.Duration {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return sorted[len(sorted)/2]
}

// unasked returns the violations of the rules about the run.
func (r *report) unasked(singles int) []check.Violation {
	var found []check.Violation
	broken := func(rule, format string, args ...any) {
		found = append(found, check.Violation{Rule: rule, Text: fmt.Sprintf(format, args...)})
	}
	for _, c := range r.Crashes {
		broken("ends", "%s", c)
	}
	if r.Unclean != "" {
		broken("ends", "%s", r.Unclean)
	}
	for _, s := range r.Strikes {
		if s.Error != "" {
			broken("faults", "fault %d, %s of %s, could not be done: %s", s.Number, s.Kind, strings.Join(s.Targets, " + "), s.Error)
		}
	}
	for _, h := range r.HandOvers {
		if h.Late > h.Bound || h.Longest > h.Worst {
			broken("hand-over", "%s: work went on after %v, %v at the latest, in %d samples; %v is promised, which is %v, %v at the latest, with what this machine takes in peace",
				h.Fault, h.Late, h.Longest, h.Samples, h.Promise, h.Bound, h.Worst)
		}
	}
	if singles > 0 && len(r.HandOvers) == 0 {
		broken("hand-over", "there were %d faults one at a time, and no pod was deleted in any", singles)
	}
	return found
}

// promises prints how long work stood still where one fault was active.
func (s *session) promises() {
	s.say("promised       time until work went on, where there was one fault")
	for _, h := range s.report.HandOvers {
		s.say("               %-38s %4d samples, p50 %v, longest %v of %v", h.Fault, h.Samples,
			h.P50.Round(time.Millisecond), h.Longest.Round(time.Millisecond), h.Promise)
	}
}
