package cpuprofile

import (
	"math"
	"strings"

	"github.com/google/pprof/profile"
)

// Guards are safeguards of Millrace that take processor time: a name, and the prefixes of the functions in
// which the time is spent, including all functions that these call.
var Guards = map[string][]string{
	"signatures": {"github.com/millrace/millrace/pkg/events/sign."},
	"promises":   {"github.com/millrace/millrace/services/reconcilers/reconcile.Description.Fits"},
}

// Shares are the percentages of a profile's processor time that are spent below each of the [Guards].
func Shares(p *profile.Profile) map[string]float64 {
	spent, total := map[string]int64{}, int64(0)
	for _, s := range p.Sample {
		value := s.Value[len(s.Value)-1]
		total += value
		for name, prefixes := range Guards {
			if calls(s, prefixes) {
				spent[name] += value
			}
		}
	}
	told := map[string]float64{}
	for name := range Guards {
		told[name] = math.Round(1000*float64(spent[name])/float64(max(total, 1))) / 10
	}
	return told
}

// calls reports whether a function with one of the prefixes is on the stack of a sample.
func calls(s *profile.Sample, prefixes []string) bool {
	for _, location := range s.Location {
		for _, line := range location.Line {
			for _, prefix := range prefixes {
				if line.Function != nil && strings.HasPrefix(line.Function.Name, prefix) {
					return true
				}
			}
		}
	}
	return false
}
