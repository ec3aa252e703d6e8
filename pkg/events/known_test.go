package events

import (
	"testing"
	"time"
)

// An outcome that was known at a moment was made, decided and noted no later than that.
func TestNothingIsKnownBeforeItIs(t *testing.T) {
	by := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		what                  string
		decided, at           time.Duration
		ahead                 bool
		knownDecided, knownAt time.Duration
	}{
		{"of before", -2 * time.Minute, -time.Minute, false, -2 * time.Minute, -time.Minute},
		{"a moment ahead", time.Second, time.Second, false, 0, 0},
		{"the reconcilers are ahead", time.Hour, -time.Minute, true, 0, -time.Minute},
		{"the writer is ahead", -time.Minute, time.Hour, true, -time.Minute, 0},
		{"both are", time.Hour, 2 * time.Hour, true, 0, 0},
		{"a little more than a moment", -time.Second, time.Second + 1, true, -time.Second, 0},
	} {
		o := Outcome{Decided: by.Add(c.decided), At: by.Add(c.at)}
		if got := o.Ahead(by); got != c.ahead {
			t.Errorf("%s: the outcome is ahead: %v, want %v", c.what, got, c.ahead)
		}
		known := o.KnownBy(by)
		if !known.Decided.Equal(by.Add(c.knownDecided)) || !known.At.Equal(by.Add(c.knownAt)) {
			t.Errorf("%s: decided at %v, made at %v", c.what, known.Decided, known.At)
		}
		for _, noted := range []time.Duration{-time.Hour, 0, 3 * time.Hour} {
			if got, want := known.Noted(by.Add(noted)), by.Add(min(noted, c.knownDecided)); !got.Equal(want) {
				t.Errorf("%s: what was noted of %v is of %v, want %v", c.what, noted, got, want)
			}
		}
		if same := o.KnownBy(time.Time{}); same.Decided != o.Decided || same.At != o.At {
			t.Errorf("%s: known at no moment it is %+v", c.what, same)
		}
	}
	if at := (Outcome{}).Noted(by); at != by {
		t.Errorf("where it is not known when it was decided, what was noted is of %v", at)
	}
}
