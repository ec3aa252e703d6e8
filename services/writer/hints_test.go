package writer_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/metrictest"
	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/services/writer"
)

// promptly is the limit within which an honest turn is carried out despite a forger.
const promptly = 10 * time.Second

// attack publishes what forge returns, repeatedly until the test ends.
func (s *scene) attack(every time.Duration, forge func(n int) (topic, text string)) {
	ticker := time.NewTicker(every)
	s.Cleanup(ticker.Stop)
	go func() {
		for n := 0; ; n++ {
			topic, text := forge(n)
			_ = s.bus.Broadcast(topic, []byte(text))
			select {
			case <-s.Context().Done():
				return
			case <-ticker.C:
			}
		}
	}()
}

// goesOn stores turns for a while, and demands that each is carried out promptly.
func (s *scene) goesOn(while time.Duration) {
	s.Helper()
	began := time.Now()
	for n := 0; time.Since(began) < while; n++ {
		key, stored := fmt.Sprint("honest-", n), time.Now()
		turn := s.say(turnOf(s.T, key, nil, creates(key, 1)...))
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
	t.Parallel()
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
			for _, one := range metrictest.Read(s, registry).Of("millrace_writer_epoch_claims_total") {
				if one.Labels[0].Value != "confirmed" {
					told += one.Value
				}
			}
			if told == 0 {
				t.Error("no metric tells of the claims that were not borne out")
			}
		})
	}
}

// keyed configures writers to sign, and to believe only what is signed.
func (s *scene) keyed() func(*writer.Config) {
	s.Helper()
	keys, err := sign.Provide(s.TempDir())
	s.must(err)
	signer, err := sign.SignerFile(keys.Outcomes.Private, nil)
	s.must(err)
	trust, err := sign.TrustFile(keys.Outcomes.Public, nil)
	s.must(err)
	return func(c *writer.Config) { c.Sign, c.Outcomes = signer, trust }
}

// madeUp returns messages of n invented writers that claim to have turns in flight.
func madeUp(writers int, turns ...uint64) func(n int) (topic, text string) {
	return func(n int) (topic, text string) {
		name := fmt.Sprint("ghost-", n/2%writers)
		if n%2 == 0 {
			return report.Writers, fmt.Sprintf(`{"id":%q}`, name)
		}
		claim := report.Heartbeat{Writer: name, Number: uint64(n/2/writers) + 1, Turns: map[string][]uint64{controller: turns}}
		return report.Writers, string(claim.Encode())
	}
}

// TestForgedClaimsDelayNoTurn: a writer dies in the middle of a turn, and a process without its
// key goes on claiming the turn.
func TestForgedClaimsDelayNoTurn(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	keys, line := s.keyed(), &tether{Bus: s.bus}
	arrived, ended := make(chan struct{}), make(chan struct{})
	var posts atomic.Int64
	s.api.Hold(func(r apiservertest.Request) {
		if r.Method == http.MethodPost && posts.Add(1) == 1 {
			close(arrived)
			<-ended
		}
	})
	t.Cleanup(func() { close(ended) })
	s.writer(keys, func(c *writer.Config) { c.Bus, c.Drain = line, time.Nanosecond })
	at := s.say(turnOf(t, "web", nil, creates("web", 3)...))
	<-arrived
	s.attack(time.Millisecond, madeUp(8, at))
	line.cut.Store(true)
	s.writer(keys) // the other one
	cut := time.Now()
	for s.api.Created(pods+"web-2") == 0 {
		if time.Since(cut) > promptly {
			t.Fatalf("turn %d is not carried out %v after the death of its writer", at, promptly)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// TestMadeUpWritersStopNoWriter: the API server answers slowly, and invented writers claim that
// they reach it.
func TestMadeUpWritersStopNoWriter(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	s.api.Hold(func(r apiservertest.Request) {
		if r.Path == "/readyz" {
			time.Sleep(1500 * time.Millisecond)
		}
	})
	s.writer(s.keyed())
	s.attack(time.Millisecond, madeUp(200))
	s.goesOn(15 * time.Second)
}
