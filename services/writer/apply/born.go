package apply

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/writer/plan"
)

// bornBefore answers a birth that may have happened before in the place of the API
// server, when the record knows the name. The API server would not do: it takes a
// name again as soon as its last bearer is gone, and what somebody has deleted
// meanwhile would be there once more.
func (d *Door) bornBefore(ctx context.Context, r plan.Request) (refusal plan.Response, known bool) {
	known, err := d.config.Known(ctx, events.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name})
	if err != nil {
		return plan.Response{Reason: "NoAnswer", Message: err.Error()}, true // it is asked again
	}
	return plan.Response{
		Code: http.StatusConflict, Reason: string(metav1.StatusReasonAlreadyExists), Message: "the record knows that it was born",
	}, known
}
