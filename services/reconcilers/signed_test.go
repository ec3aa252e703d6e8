package reconcilers

import (
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/millrace/millrace/pkg/events/report"
	"github.com/millrace/millrace/pkg/events/sign"
	"github.com/millrace/millrace/services/reconcilers/shell"
)

// TestWhoseHeartbeatCounts: with keys, a heartbeat counts only if a trusted reconciler has signed
// it for the reconcilers' topic not long ago; without keys, every heartbeat counts.
func TestWhoseHeartbeatCounts(t *testing.T) {
	now := time.Now().Add(time.Minute) // the keys count by then
	signer := func(pair sign.Pair) *sign.Signer {
		s, err := sign.SignerFile(pair.Private, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	trust := func(pair sign.Pair) *sign.Trust {
		s, err := sign.TrustFile(pair.Public, nil)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	provided := func() sign.Provided {
		keys, err := sign.Provide(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	ours, theirs := provided(), provided()
	own := shell.Signatures{Sign: signer(ours.Turns), Outcomes: trust(ours.Outcomes)}
	kin := shell.Signatures{Sign: signer(ours.Turns), Outcomes: trust(ours.Outcomes), Turns: trust(theirs.Turns)}
	text := []byte(`{"id":"other"}`)
	said := func(by sign.Pair, topic string, at time.Time) []byte { return signer(by).Hint(topic, text, at) }
	for name, c := range map[string]struct {
		keys  shell.Signatures
		said  []byte
		count bool
	}{
		"signed with the own key":            {own, said(ours.Turns, report.Reconcilers, now), true},
		"signed with a trusted key":          {kin, said(theirs.Turns, report.Reconcilers, now), true},
		"signed with the own, not a trusted": {kin, said(ours.Turns, report.Reconcilers, now), false},
		"signed with a stranger's key":       {own, said(theirs.Turns, report.Reconcilers, now), false},
		"signed with a writer's key":         {own, said(ours.Outcomes, report.Reconcilers, now), false},
		"signed for the writers":             {own, said(ours.Turns, report.Writers, now), false},
		"signed long ago":                    {own, said(ours.Turns, report.Reconcilers, now.Add(-sign.HintWithin-time.Second)), false},
		"not signed":                         {own, text, false},
		"not signed, and there are no keys":  {shell.Signatures{}, text, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSignatures(c.keys, func() time.Time { return now })
			if got := s.signed(c.said); got != c.count {
				t.Errorf("the heartbeat counts: %t, want %t", got, c.count)
			}
			refused := 1.0
			if c.count {
				refused = 0
			}
			var counted dto.Metric
			if err := s.unproven.Write(&counted); err != nil || counted.GetCounter().GetValue() != refused {
				t.Errorf("%v are counted as unproven, want %v (%v)", counted.GetCounter().GetValue(), refused, err)
			}
		})
	}
	if s := newSignatures(own, func() time.Time { return now }); !s.signed(s.sign(text)) {
		t.Error("a replica's own heartbeat does not count")
	}
}
