package writer_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/writer"
)

// promptly is within what an honest turn is carried out, whoever says what.
const promptly = 10 * time.Second

// attack says what forge gives, again and again until the test ends.
func (s *scene) attack(every time.Duration, forge func(n int) (topic, text string)) {
	ticker := time.NewTicker(every)
	s.Cleanup(ticker.Stop)
	go func() {
		for n := 0; ; n++ {
			topic, text := forge(n)
			_ = s.bus.Say(topic, []byte(text))
			select {
			case <-s.Context().Done():
				return
			case <-ticker.C:
			}
		}
	}()
}

// goesOn has turns stored for a while, and demands that each is carried out promptly.
func (s *scene) goesOn(while time.Duration) {
	s.Helper()
	began := time.Now()
	for n := 0; time.Since(began) < while; n++ {
		key, stored := fmt.Sprint("honest-", n), time.Now()
		turn := s.say(turnOf(s.T, key, nil, births(key, 1)...))
		for s.api.Created(pods+key+"-0") == 0 {
			if time.Since(stored) > promptly {
				s.Fatalf("turn %d, stored %v after the attack began, is not carried out after %v", turn, stored.Sub(began), promptly)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if o := s.outcomeOf(key, turn); !o.OK() {
			s.Fatalf("turn %d: %+v", turn, o.Results)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// TestForgedEpochsStopNoTurns: a claim that the storage went back proves nothing.
func TestForgedEpochsStopNoTurns(t *testing.T) {
	for name, epoch := range map[string]func(n int) uint64{
		"the next one":               func(int) uint64 { return 1 },
		"one more each time":         func(n int) uint64 { return uint64(n) + 1 },
		"the last one":               func(int) uint64 { return events.MaxEpoch },
		"one that there cannot be":   func(int) uint64 { return 1<<64 - 1 },
		"two forgers, now and again": func(n int) uint64 { return uint64(n%2)*1000 + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			registry := prometheus.NewPedanticRegistry()
			s.started = func(w *writer.Service) { registry.MustRegister(w.Collectors()...) }
			s.writer()
			s.attack(20*time.Millisecond, func(n int) (string, string) {
				return "epoch", fmt.Sprintf(`{"epoch":%d,"by":"mallory"}`, epoch(n))
			})
			s.goesOn(12 * time.Second)
			told := 0.0
			families, err := registry.Gather()
			s.must(err)
			for _, f := range families {
				if f.GetName() == "millrace_writer_epoch_claims_total" {
					for _, m := range f.GetMetric() {
						if verdict := m.GetLabel()[0].GetValue(); verdict != "confirmed" {
							told += m.GetCounter().GetValue()
						}
					}
				}
			}
			if told == 0 {
				t.Error("no metric tells of the claims that were not borne out")
			}
		})
	}
}
