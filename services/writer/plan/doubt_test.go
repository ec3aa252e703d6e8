package plan

import (
	"testing"
	"time"
)

// TestDoubt: an object that may have been created and deleted unseen is not created again.
func TestDoubt(t *testing.T) {
	told := func(version string) Known { return Known{Told: version} }
	for name, c := range map[string]struct {
		doubt Doubt
		want  Verdict
	}{
		"it is there":                            {Doubt{There: true, At: "7", Known: told("9")}, Happened},
		"the record knows who has the name":      {Doubt{At: "7", Known: Known{Created: true, Told: "3"}}, Happened},
		"the record has come as far":             {Doubt{At: "7", Known: told("7")}, NotCreated},
		"the record has not come as far":         {Doubt{At: "7", Known: told("6")}, Unclear},
		"a list is being told":                   {Doubt{At: "7", Newest: "6", Lasts: time.Minute}, Unclear},
		"nothing has changed for a moment":       {Doubt{At: "7", Newest: "6", Known: told("6"), Lasts: Quiet - 1}, Unclear},
		"nothing has changed for long enough":    {Doubt{At: "7", Newest: "6", Known: told("6"), Lasts: Quiet}, Unheard},
		"there is nothing that could change":     {Doubt{At: "7", Known: told("6"), Lasts: Quiet}, Unheard},
		"something has changed that is not told": {Doubt{At: "10", Newest: "9", Known: told("6"), Lasts: time.Hour}, Unclear},
		"no watcher watches the kind":            {Doubt{At: "7", Known: Known{Unwatched: true}}, NotCreated},
		"it may have lived in a gap":             {Doubt{At: "7", Known: Known{Told: "9", Hidden: true}}, Happened},
		"a gap is not told of whole yet":         {Doubt{At: "7", Known: Known{Told: "6", Hidden: true}}, Unclear},
		"in a gap of what is not watched":        {Doubt{At: "7", Known: Known{Hidden: true, Unwatched: true}}, NotCreated},
		"it may not be listed":                   {Doubt{Known: told("6")}, NotCreated},
	} {
		if got := c.doubt.Verdict(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

// A kind is silent after 100 ms if the record has the newest version of its objects.
func TestWhenAKindIsSilent(t *testing.T) {
	for lasts, want := range map[time.Duration]Verdict{100*time.Millisecond - 1: Unclear, 100 * time.Millisecond: Unheard} {
		if got := (Doubt{At: "5", Newest: "4", Known: Known{Told: "4"}, Lasts: lasts}).Verdict(); got != want {
			t.Errorf("after %v the verdict is %d, want %d", lasts, got, want)
		}
	}
}

// The versions to read are those between the record and the API server, unless the object may have
// lived at others.
func TestWhichVersionsAreUnread(t *testing.T) {
	for name, c := range map[string]struct {
		doubt    Doubt
		from, to uint64
	}{
		"one":                       {Doubt{At: "7", Known: Known{Told: "6"}}, 7, 7},
		"as many as are read":       {Doubt{At: "134", Known: Known{Told: "6"}}, 7, 134},
		"too many":                  {doubt: Doubt{At: "135", Known: Known{Told: "6"}}},
		"none":                      {doubt: Doubt{At: "6", Known: Known{Told: "6"}}},
		"the record is ahead":       {doubt: Doubt{At: "6", Known: Known{Told: "9"}}},
		"the record has a gap":      {doubt: Doubt{At: "7", Known: Known{Told: "6", Hidden: true}}},
		"the record tells nothing":  {doubt: Doubt{At: "7"}},
		"the API server does not":   {doubt: Doubt{Known: Known{Told: "6"}}},
		"a version is not a number": {doubt: Doubt{At: "7", Known: Known{Told: "x"}}},
		"and the other is not":      {doubt: Doubt{At: "x", Known: Known{Told: "6"}}},
	} {
		if from, to, ok := c.doubt.Unread(); from != c.from || to != c.to || ok != (c.from > 0) {
			t.Errorf("%s: from %d to %d, %t; want from %d to %d", name, from, to, ok, c.from, c.to)
		}
	}
}
