package events

import (
	"fmt"
	"strings"
	"time"
)

// SightTimeout is the time without a message of a heartbeat kind after which sight counts as broken:
// the API server itself renews a lease every ten seconds.
const SightTimeout = 15 * time.Second

// Sight is an interval in which the watcher received every change soon after it was made. An
// event that was not received in it did not happen; outside of it nothing can be concluded.
type Sight struct {
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// Heard gives the sight after a message at that moment: the message extends the interval, or
// begins a new one after a break longer than [SightTimeout].
func (s Sight) Heard(at time.Time) Sight {
	switch {
	case s.Until.IsZero(), at.Sub(s.Until) > SightTimeout:
		return Sight{at, at}
	case at.After(s.Until):
		s.Until = at
	}
	return s
}

// String is the header value; "" for the zero Sight.
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
