package notary

import (
	"testing"
	"time"

	"github.com/millrace/millrace/pkg/events"
)

// A message expires before the ones around it if the bus was told so, in whole seconds.
func TestWhenAMessageExpires(t *testing.T) {
	for life, want := range map[string]int64{"": 0, "x": 0, "0s": 0, "-1s": 0, "1ns": 100, "999ms": 100, "1s": 101, "1h0m0s": 3700} {
		m := events.Message{Time: time.Unix(100, 0), Header: map[string][]string{"Nats-TTL": {life}}}
		if got := expires(m); got != want {
			t.Errorf("with a life of %q it expires at %d, want %d", life, got, want)
		}
	}
}
