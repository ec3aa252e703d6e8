package controllerflags

import (
	"testing"
	"time"
)

func TestWhatFlagsTellControllers(t *testing.T) {
	for _, c := range []struct {
		endpoints, mirrored, finished int
		wantFinished                  int
		wrong                         bool
	}{
		{100, 1000, 12500, 12500, false}, {1000, 1, 0, -1, false}, {1, 7, -5, -1, false},
		{0, 1, 1, 0, true}, {1001, 1, 1, 0, true}, {1, 0, 1, 0, true}, {1, 1001, 1, 0, true},
	} {
		o := New()
		o.endpoints, o.mirrored, o.finished = c.endpoints, c.mirrored, c.finished
		config, err := o.Config()
		if (err != nil) != c.wrong {
			t.Errorf("with %d and %d: %v", c.endpoints, c.finished, err)
		}
		if err == nil && (config.EndpointsPerSlice != c.endpoints || config.MirroredPerSubset != c.mirrored || config.TerminatedPods != c.wantFinished) {
			t.Errorf("%d and %d come to %+v", c.endpoints, c.finished, config)
		}
	}
}

func TestHowOftenQuotasAreCounted(t *testing.T) {
	for said, want := range map[time.Duration]time.Duration{time.Hour: time.Hour, 0: -1, -time.Second: -1} {
		o := New()
		o.recount = said
		if config, err := o.Config(); err != nil || config.QuotaPeriod != want {
			t.Errorf("%v comes to %v, %v", said, config.QuotaPeriod, err)
		}
	}
	o := New()
	if config, err := o.Config(); err != nil || config.QuotaPeriod != 5*time.Minute {
		t.Errorf("by default it is %v, %v", config.QuotaPeriod, err)
	}
}

func TestHowLongTokensAreKept(t *testing.T) {
	for said, fine := range map[time.Duration]bool{time.Hour: true, 0: false, -time.Second: false, New().unused: true} {
		o := New()
		o.unused = said
		config, err := o.Config()
		if (err == nil) != fine || fine && config.TokenPeriod != said {
			t.Errorf("%v comes to %v, %v", said, config.TokenPeriod, err)
		}
	}
	if year := New().unused; year != 8760*time.Hour {
		t.Errorf("by default it is %v", year)
	}
}
