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

// runRules are the rules about the run, which books alone do not tell of.
var runRules = []check.Rule{
	{Name: "ends", Text: "no process of ours ended by itself, and each ended well that was asked to"},
	{Name: "faults", Text: "every fault could be done"},
	{Name: "hand-over", Text: "work went on within what docs/reliability.md promises"},
}

// What docs/reliability.md promises: how long work may stand still.
const (
	killPromise  = time.Second      // a replica of a service is killed, or replaced
	stallPromise = 3 * time.Second  // it is stopped
	cutPromise   = 5 * time.Second  // it is cut off
	busPromise   = 20 * time.Second // a server of a bus of three is killed or stopped
)

// How a promise of time is held on a machine that has other things to do, as
// system.TestFailover, TestStall and TestCutOff have it: each of the steps of a hand-over
// may take what a heal takes in peace, and one sample of twenty may be later, by no more
// than three times. What a heal takes in peace is the median, not the longest.
const (
	steps     = 5
	oneOf     = 20
	mostTimes = 3
)

// wholeFor is how long nothing must have been wrong before a fault that is to be the only
// one: what an earlier one took away is back then, and has caught up.
const wholeFor = 3 * time.Second

// handOver is what one kind of fault cost when it was the only one.
type handOver struct {
	Fault   string        `json:"fault"`
	Promise time.Duration `json:"promise"`
	Samples int           `json:"samples"`
	P50     time.Duration `json:"p50"`
	Longest time.Duration `json:"longest"`
	// Bound is the promise with what this machine takes in peace, Late the sample that must
	// keep it, and Worst how long none may take.
	Bound time.Duration `json:"bound"`
	Late  time.Duration `json:"late"`
	Worst time.Duration `json:"worst"`
}

// promiseOf names a fault of one target, and gives what is promised of it.
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

// handOvers measures what each kind of fault cost when it was the only one: from the
// deletion of a pod, or the fault if that came later, to the new pod.
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

// onlyStrike gives a fault that a sample fell into, and how many were on or had just been.
func onlyStrike(sample crowd.Sample, strikes []strike) (only strike, n int) {
	for _, s := range strikes {
		if !s.Began.After(sample.Created) && !s.Ended.Add(wholeFor).Before(sample.Deleted) {
			only, n = s, n+1
		}
	}
	if n == 1 && only.Ended.Before(sample.Deleted) {
		return only, 2 // it was over: neither peace nor its time
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

// unasked gives what broke the rules about the run.
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

// promises prints how long work stood still by the one fault that was on.
func (s *session) promises() {
	s.say("promised       time until work went on, where there was one fault")
	for _, h := range s.report.HandOvers {
		s.say("               %-38s %4d samples, p50 %v, longest %v of %v", h.Fault, h.Samples,
			h.P50.Round(time.Millisecond), h.Longest.Round(time.Millisecond), h.Promise)
	}
}
