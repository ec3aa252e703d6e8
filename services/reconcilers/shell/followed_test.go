package shell

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/sign"
)

// following returns a bus from which messages are followed, once.
func following(said ...events.Message) *bustest.Bus {
	return &bustest.Bus{
		OnStreamState: func(context.Context, string) (bus.State, error) { return bus.State{}, nil },
		OnFollow: func(ctx context.Context, _ string, _ uint64, handle func([]events.Message) error) error {
			if batch := said; len(batch) > 0 {
				said = nil
				if err := handle(batch); err != nil {
					return err
				}
			}
			<-ctx.Done()
			return ctx.Err()
		},
	}
}

// An outcome from the stream opens the fence only if a writer's key has signed it.
func TestAFollowedForgeryOpensNoFence(t *testing.T) {
	for _, signed := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			keys, err := sign.ProvideFrom(t.TempDir(), time.Now().Add(-time.Hour))
			must(err)
			writing, err := sign.SignerFile(keys.Outcomes.Private, nil)
			must(err)
			trust, err := sign.TrustFile(keys.Outcomes.Public, nil)
			must(err)
			refused := 0
			m, err := events.EncodeJSON(events.Outcome{
				Controller: "toy", Key: web, Lane: events.LaneWrite, Turn: 10, Results: []events.Result{{Status: events.Applied, Ref: podOf("p"), UID: "uid-x", Version: "5"}},
			}, events.Trace{})
			must(err)
			m.Sequence, m.Time, m.Header["Nats-Msg-Id"] = 3, time.Now(), []string{"10"}
			if signed {
				writing.Outcome(m, "10", m.Time)
			}
			by := Signatures{Outcomes: trust, Refused: func(events.Message, error) { refused++ }}
			l := looped(following(m), toy(), Settings{Signatures: by}, nil, aSet("web", 1, 1, 0, ""))
			remember(t, l, 10)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			go l.followOutcomes(ctx, func() {})
			synctest.Wait()
			for len(l.inbox) > 0 {
				(<-l.inbox)()
			}
			if write := l.engine.Key(web).Write; (write.Outcome == 10) != signed || (refused == 0) != signed {
				t.Errorf("with signed outcomes %v: the engine has the outcome of turn %d, and %d were refused; want that of turn 10 and none refused, or the opposite if unsigned", signed, write.Outcome, refused)
			}
		})
	}
}
