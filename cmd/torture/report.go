package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/check"
	"github.com/millrace/millrace/cmd/internal/fault"
	"github.com/millrace/millrace/cmd/internal/localcluster/crowd"
	"github.com/millrace/millrace/services/reconcilers/replay"
)

// report is the result of a run.
type report struct {
	Seed     uint64         `json:"seed"`
	Load     time.Duration  `json:"load"` // how long users worked
	Rest     time.Duration  `json:"rest"` // from the last fault until the cluster had converged
	Strikes  []strike       `json:"strikes"`
	Stalls   int            `json:"stalls"` // of the machine, which had no time for its processes
	Met      int            `json:"met"`    // requests that were refused, or whose responses were lost
	Done     map[string]int `json:"done"`
	Failed   map[string]int `json:"failed"`
	Samples  []crowd.Sample `json:"samples"`
	Crashes  []string       `json:"crashes"` // unrequested ends of our processes
	Others   []string       `json:"others"`  // unrequested ends of the control plane's processes
	Restless string         `json:"restless,omitempty"`
	Unclean  string         `json:"unclean,omitempty"` // how services ended uncleanly

	HandOvers  []handOver        `json:"handOvers"`
	Figures    check.Figures     `json:"figures"`
	Replay     replay.Summary    `json:"replay"`
	Violations []check.Violation `json:"violations"`
}

// shown bounds how many violations of a rule are printed; the JSON has all.
const shown = 5

// verdict prints the report, writes it, and returns errBroken unless every rule held.
func (s *session) verdict() error {
	r := &s.report
	r.Seed = s.options.seed
	s.figures()
	s.classes()
	s.promises()
	broken := s.rules()
	if r.Restless != "" {
		s.say("BROKEN %s", r.Restless)
		broken = true
	}
	if s.options.report != "" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return fmt.Errorf("encode the report: %w", err)
		}
		if err := os.WriteFile(s.options.report, append(text, '\n'), 0o600); err != nil {
			return fmt.Errorf("write the report: %w", err)
		}
	}
	if err := s.evidence(broken); err != nil {
		return err
	}
	if broken {
		return errBroken
	}
	s.say("nothing lost, nothing doubled")
	return nil
}

func (s *session) figures() {
	r, f := &s.report, s.report.Figures
	kinds, played := r.kinds()
	did, not := sum(r.Done), sum(r.Failed)
	s.say("")
	s.say("seed           %d", r.Seed)
	s.say("faults         %d, which hit %d targets: %s", played, sum(kinds), counts(kinds))
	s.say("               %d more found no target", len(r.Strikes)-played)
	s.say("machine        stood still %d times", r.Stalls)
	s.say("requests met   %d refused, or their answers lost", r.Met)
	s.say("load           %d actions of users in %v (%.1f a second): %s", did, r.Load.Round(time.Second), float64(did)/r.Load.Seconds(), counts(r.Done))
	s.say("               %d actions failed: %s", not, counts(r.Failed))
	s.say("changes        %d revisions of the storage, %.1f a second", f.Changes, float64(f.Changes)/r.Load.Seconds())
	s.say("record         %d deltas, %d gaps that hide %d changes; %d turns with %d commands", f.Deltas, f.Gaps, f.Hidden, f.Turns, f.Commands)
	s.say("writes         %d carried out, %d of them repeated without effect; %d without a certain answer", f.Writes, f.Repeated, f.Unanswered)
	s.say("unsure         %d results say that they are not known; %d of those commands had been carried out", f.Unsure, f.Late)
	s.say("               %d of turns that came late, with many others, where no fault was near", f.Crowded)
	s.say("unread         %d turns rest on what the logs do not have", f.Unread)
	s.say("unseen         %d owners went before a dependent that the log had not told of yet", f.Unseen)
	s.say("replay         %d of %d turns are decided as they were", r.Replay.Same, r.Replay.Turns)
	s.say("busiest object %d writes in a minute", f.Busiest)
	s.say("rest           %v after the last fault", r.Rest.Round(100*time.Millisecond))
	s.say("ends           %d processes of ours ended by themselves, %d of the control plane", len(r.Crashes), len(r.Others))
	for _, c := range r.Others[:min(len(r.Others), shown)] {
		s.say("               %s", c)
	}
}

// kinds returns how many targets each kind of fault hit, and how many faults hit a target.
func (r *report) kinds() (hits map[string]int, played int) {
	hits = map[string]int{}
	for _, strike := range r.Strikes {
		hits[string(strike.Kind)] += strike.Hit
		if strike.Hit > 0 {
			played++
		}
	}
	return hits, played
}

func sum(m map[string]int) int {
	n := 0
	for _, k := range m {
		n += k
	}
	return n
}

// counts formats a map of counts, the largest first.
func counts(m map[string]int) string {
	names := slices.Sorted(maps.Keys(m))
	slices.SortStableFunc(names, func(a, b string) int { return m[b] - m[a] })
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%d %s", m[name], name))
	}
	return strings.Join(parts, ", ")
}

// classes prints how long deleted pods were without a replacement, by the faults that were active meanwhile.
func (s *session) classes() {
	times := map[string][]time.Duration{}
	for _, sample := range s.report.Samples {
		class := classOf(sample, s.report.Strikes)
		times[class] = append(times[class], sample.Took())
	}
	s.say("hand-over      time until the place of a deleted pod is taken")
	for _, class := range slices.Sorted(maps.Keys(times)) {
		t := times[class]
		slices.Sort(t)
		s.say("               %-25s %4d samples, p50 %v, p99 %v, longest %v", class, len(t),
			t[len(t)/2].Round(time.Millisecond), t[(len(t)*99)/100].Round(time.Millisecond), t[len(t)-1].Round(time.Millisecond))
	}
}

// aftermath is how long after its end a fault still counts as active.
const aftermath = 2 * time.Second

// classOf names the faults that were active during a sample.
func classOf(sample crowd.Sample, strikes []strike) string {
	hit := map[string]map[string]bool{} // targets by cause
	for _, s := range strikes {
		if s.Began.After(sample.Created) || s.Ended.Add(aftermath).Before(sample.Deleted) {
			continue
		}
		for _, target := range s.Targets {
			cause := causeOf(s, target, sample.Deleted)
			if hit[cause] == nil {
				hit[cause] = map[string]bool{}
			}
			hit[cause][target] = true
		}
	}
	kills := 0
	for cause, targets := range hit {
		switch kill := strings.HasSuffix(cause, "killed"); {
		case len(hit) == 1 && (len(targets) == 1 || !kill):
			return cause
		case kill:
			kills++
		}
	}
	switch {
	case len(hit) == 0:
		return "peace"
	case kills == len(hit):
		return "several processes killed"
	default:
		return "several things"
	}
}

// causeOf names the effect of a fault on a target, as far as it matters to a pod that was deleted at the
// given time.
func causeOf(s strike, target string, deleted time.Time) string {
	name, _, wired := strings.Cut(target, ">")
	service, _, _ := strings.Cut(name, "-")
	switch {
	case wired:
		return "network"
	case s.Kind == fault.Busy || s.Kind == fault.Broken || s.Kind == fault.Lose:
		return "answers"
	case s.Kind == fault.Pause:
		return "pause"
	case s.Kind == fault.Restart || deleted.Sub(s.Began) > aftermath:
		return "start" // a process that was killed a while ago is starting again
	case slices.Contains(services, service) || service == "bus":
		return service + " killed"
	default:
		return "API server or etcd killed"
	}
}

// rules prints each rule with its violations, and reports whether there are any.
func (s *session) rules() bool {
	by := map[string][]check.Violation{}
	for _, v := range s.report.Violations {
		by[v.Rule] = append(by[v.Rule], v)
	}
	rules := check.Rules()
	if s.report.Replay.Passes > 0 { // the books alone do not show this rule
		rules = slices.Concat(rules, []check.Rule{decidedAgain}, runRules)
	}
	for _, rule := range rules {
		found := by[rule.Name]
		if len(found) == 0 {
			s.say("holds  %-4s %s", rule.Name, rule.Text)
			continue
		}
		s.say("BROKEN %-4s %s: %d times", rule.Name, rule.Text, len(found))
		for _, v := range found[:min(len(found), shown)] {
			s.say("    %v", v)
		}
	}
	return len(s.report.Violations) > 0
}
