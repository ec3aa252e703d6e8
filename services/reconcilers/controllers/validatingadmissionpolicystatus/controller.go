// Package validatingadmissionpolicystatus reports in a ValidatingAdmissionPolicy which of
// its expressions do not fit the kinds that it matches: a field that no object of the
// kind has, a number compared with a string. The API server enforces such a policy
// nevertheless, so its author should know.
//
// The check needs the schemas of the API server and a compiler of expressions, so the
// controller asks the writer, once for each generation of a policy. The answer is on
// record, and the status reports it.
package validatingadmissionpolicystatus

import (
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// Controller reports expressions of policies that do not fit.
var Controller = reconcile.Controller[View]{
	Name:   "validatingadmissionpolicy-status-controller",
	Queue:  "validatingadmissionpolicy-status",
	Owns:   &kinds.ValidatingAdmissionPolicies.Kind,
	Inputs: []reconcile.Input{reconcile.Own(kinds.ValidatingAdmissionPolicies.Kind)},
	Writes: reconcile.Writes{
		{Verb: events.VerbAsk, Kind: kinds.ValidatingAdmissionPolicies.Name, Subresource: query.SubTypes, On: reconcile.Itself},
		{Verb: events.VerbUpdate, Kind: kinds.ValidatingAdmissionPolicies.Name, Subresource: "status", On: reconcile.Itself},
	},
	Remembers: true,
	Observe:   observe,
	Decide:    decide,
}

// View is what the turn of one policy can see.
type View struct {
	Policy *admissionregistrationv1.ValidatingAdmissionPolicy `json:"policy"`
	// Types are the expressions that do not fit, from the answer about the policy as it
	// is seen now; nil if there is none.
	Types *query.Types `json:"types,omitempty"`
	// Unread is an answer that could not be read.
	Unread *reconcile.Unread `json:"unread,omitempty"`
}

func observe(s reconcile.Snapshot, k events.Key) (View, bool) {
	policy, ok := reconcile.Get(s, kinds.ValidatingAdmissionPolicies, "", k.Name)
	if !ok {
		return View{}, false
	}
	v := View{Policy: policy}
	if last, ok := reconcile.Answers(s, k, policy); ok {
		for _, r := range last.Results {
			v.hear(r, last.At)
		}
	}
	return v, true
}

// hear reads an answer.
func (v *View) hear(r events.Result, at time.Time) {
	if r.Status != events.Answered {
		return
	}
	types := new(query.Types)
	if err := reconcile.Read(r, types); err != nil {
		v.Unread = &reconcile.Unread{Because: err.Error(), At: at}
		return
	}
	v.Types = types
}

// decide writes the answer into the status.
//
// Upstream: pkg/controller/validatingadmissionpolicystatus, reconcile.
func decide(v View, now time.Time) reconcile.Decision {
	switch policy := v.Policy; {
	case policy.DeletionTimestamp != nil:
		return reconcile.Nothing("the policy is being deleted")
	case policy.Generation <= policy.Status.ObservedGeneration:
		return reconcile.Nothing("the policy's expressions are type-checked")
	case v.Types == nil:
		return v.Unread.Ask(now, "it is not known whether the policy's expressions fit", reconcile.AskTypes(policy))
	default:
		next := *policy // shallow: only the status changes, of which these two are made anew
		next.Status.ObservedGeneration = policy.Generation
		next.Status.TypeChecking = &admissionregistrationv1.TypeChecking{ExpressionWarnings: v.Types.Warnings}
		return reconcile.Do(told(v.Types), reconcile.UpdateStatus(kinds.ValidatingAdmissionPolicies.Kind, &next))
	}
}

func told(t *query.Types) string {
	if len(t.Warnings) > 0 {
		return "an expression of the policy does not fit"
	}
	return "the policy's expressions fit"
}
