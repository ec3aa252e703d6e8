package events

import (
	"fmt"
	"strings"
	"time"
)

// Blind is for how long nothing may be heard of a kind of heartbeats before that counts
// as a break: the API server itself renews a lease every ten seconds.
const Blind = 15 * time.Second

// Sight is a stretch of time in which the watcher heard of every change soon after it
// was made. What did not happen in it did not happen; of what lies before and behind
// it that cannot be said.
type Sight struct {
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// Heard gives the sight when something has been heard at a moment, which makes it
// longer, or begins a new one after a break.
func (s Sight) Heard(at time.Time) Sight {
	switch {
	case s.Until.IsZero(), at.Sub(s.Until) > Blind:
		return Sight{at, at}
	case at.After(s.Until):
		s.Until = at
	}
	return s
}

// String writes the sight as it goes into a header; "" for none.
func (s Sight) String() string {
	if s == (Sight{}) {
		return ""
	}
	return s.Since.UTC().Format(time.RFC3339Nano) + " " + s.Until.UTC().Format(time.RFC3339Nano)
}

func parseSight(text string) (s Sight, err error) {
	if text == "" {
		return s, nil
	}
	since, until, two := strings.Cut(text, " ")
	if !two {
		return s, fmt.Errorf("%q is not two times", text)
	}
	if s.Since, err = parseTime(time.RFC3339Nano, since); err != nil {
		return Sight{}, err
	}
	if s.Until, err = parseTime(time.RFC3339Nano, until); err != nil {
		return Sight{}, err
	}
	return s, nil
}
