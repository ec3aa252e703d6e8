package cpuprofile

import (
	"testing"

	"github.com/google/pprof/profile"
)

// stack is a sample of so many nanoseconds, the innermost function first.
func stack(nanoseconds int64, functions ...string) *profile.Sample {
	s := &profile.Sample{Value: []int64{1, nanoseconds}}
	for _, name := range functions {
		s.Location = append(s.Location, &profile.Location{Line: []profile.Line{{Function: &profile.Function{Name: name}}}})
	}
	return s
}

// A guard's share includes the functions that it calls. A function counts once however often it is on the
// stack, and also where the compiler has inlined it.
func TestSharesAreOfWhatIsCalledBelow(t *testing.T) {
	inlined := stack(40, "main.other")
	inlined.Location[0].Line = append(inlined.Location[0].Line, profile.Line{Function: &profile.Function{Name: Guards["promises"][0]}})
	p := &profile.Profile{Sample: []*profile.Sample{
		stack(20, "crypto/ed25519.Sign", Guards["signatures"][0]+"(*Key).Sign", Guards["signatures"][0]+"Turn", "main.main"),
		inlined,
		stack(940, "main.main"),
	}}
	got := Shares(p)
	if got["signatures"] != 2 || got["promises"] != 4 {
		t.Errorf("the shares are %v, want 2 and 4 percent", got)
	}
}
