package ask_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/apply/ask"
	"github.com/millrace/millrace/services/writer/plan"
)

var asksTypes = events.Command{
	Verb: events.VerbAsk, Kind: "validatingadmissionpolicies.admissionregistration.k8s.io", Version: "v1", Name: "p", Subresource: query.SubTypes,
	Body: json.RawMessage(`{"metadata":{"name":"p"},"spec":{"validations":[{"expression":"object.x"}]}}`), If: &events.If{UID: "uid-p"},
}

// The warnings are the checker's; if the checker failed, or there is none, the answer does not
// claim that all expressions fit.
func TestTypes(t *testing.T) {
	s := applytest.Serve(t)
	s.Put("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/p", "uid-p", object("p", nil))
	says := func(p *admissionregistrationv1.ValidatingAdmissionPolicy, _ discovery.DiscoveryInterface, _ meta.RESTMapper) ([]admissionregistrationv1.ExpressionWarning, error) {
		return []admissionregistrationv1.ExpressionWarning{{FieldRef: "here", Warning: p.Spec.Validations[0].Expression}}, nil
	}
	cannot := func(*admissionregistrationv1.ValidatingAdmissionPolicy, discovery.DiscoveryInterface, meta.RESTMapper) ([]admissionregistrationv1.ExpressionWarning, error) {
		return nil, errors.New("no schemas")
	}
	for what, c := range map[string]struct {
		check ask.TypeCheck
		want  events.Status
	}{"a checker": {says, events.Answered}, "one that cannot": {cannot, events.Failed}, "none": {nil, events.Refused}} {
		door := open(t, s, func(config *apply.Config) { config.Types, config.Patience = c.check, 50*time.Millisecond })
		r := carry(t, door, plan.Options{}, asksTypes)[0]
		if r.Status != c.want {
			t.Errorf("with %s the result is %+v, want %s", what, r, c.want)
		}
		if r.Status != events.Answered {
			continue
		}
		var types query.Types
		if err := json.Unmarshal(r.Answer.Body, &types); err != nil || len(types.Warnings) != 1 || types.Warnings[0].Warning != "object.x" {
			t.Errorf("the answer is %s, want one warning about object.x", r.Answer.Body)
		}
	}
}
