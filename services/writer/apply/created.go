package apply

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/apply/apiclient"
	"github.com/millrace/millrace/services/writer/plan"
)

// recordSample bounds how many objects of a namespace are read to see whether the record lags.
const recordSample = 500

// historyTimeout is the time-out of a watch in seconds. The API server sends its watch history at
// once, and then ends the watch itself: everything sent before the end has arrived here, however
// slow the connection. A client that ends the watch itself would not know that.
const historyTimeout int64 = 1

// createdBefore answers a create that may have happened before in place of the API server, unless
// it is certain that the create has not happened. The API server alone does not suffice: it
// accepts a name again as soon as the last object of that name is gone, so an object that a user
// has deleted meanwhile would exist again. The record alone does not suffice either: it may lag.
// So the door asks the API server for its version, and the record whether it has reached that
// version.
func (d *Client) createdBefore(ctx context.Context, a Actor, client *apiclient.Client, r plan.Request) (answer plan.Response, settled bool) {
	doubt, failed := listExisting(ctx, client, r)
	if failed != nil {
		failed.Stood = r.Stood
		return *failed, true
	}
	if r.Stood != "" && kinds.CompareVersions(r.Stood, doubt.At) < 0 {
		doubt.At = r.Stood // the record need not go further, unless the API server went back
	}
	var err error
	doubt.Known, err = d.config.Known(ctx, events.Ref{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}, r.Seen)
	if err != nil {
		return plan.Response{Reason: "NoAnswer", Message: err.Error(), Stood: doubt.At}, true // it is asked again
	}
	doubt.Lasts = r.InDoubt
	verdict := doubt.Verdict()
	if verdict == plan.Unclear || verdict == plan.Unheard {
		switch d.readVersions(ctx, a, client, r, doubt) {
		case existed:
			return remembered(), true
		case neverExisted:
			return plan.Response{}, false
		case notRead:
		}
	}
	switch verdict {
	case plan.Happened:
		return plan.Response{
			Code: http.StatusConflict, Reason: string(metav1.StatusReasonAlreadyExists), Message: "it is there, or the record knows that it was created, or has a gap in which it may have been",
		}, true
	case plan.Unheard:
		answer, settled = d.watchHistory(ctx, client, r, doubt.Known)
		answer.Stood = doubt.At
		return answer, settled
	case plan.Unclear:
		return plan.Response{Reason: "NoAnswer", Message: "the record has not been told yet whether it was created", Stood: doubt.At}, true
	default:
		return plan.Response{}, false
	}
}

// watchHistory searches the API server's own watch history for an object of the name, if the record
// is silent: perhaps no watcher watches the kind. A history that does not reach back, or may not
// be read, proves nothing; then a longer silence has to.
func (d *Client) watchHistory(ctx context.Context, client *apiclient.Client, r plan.Request, known plan.Known) (answer plan.Response, settled bool) {
	if known.Since == "" {
		return concludeAbsent(ctx, client, r, known.Told)
	}
	ctx, cancel := context.WithTimeout(ctx, d.config.Timeout)
	defer cancel()
	stream, failed := client.Watch(ctx, r, metav1.ListOptions{FieldSelector: byName(r), ResourceVersion: known.Since, TimeoutSeconds: ptr.To(historyTimeout)})
	switch {
	case failed == nil:
	case failed.Code >= 400 && failed.Code < 500 && failed.Code != http.StatusTooManyRequests:
		return concludeAbsent(ctx, client, r, known.Told)
	default:
		return *failed, true // it is asked again
	}
	defer stream.Close()
	var event struct{ Type watch.EventType }
	switch err := json.NewDecoder(stream).Decode(&event); {
	case errors.Is(err, io.EOF):
		return plan.Response{}, false // nothing came
	case err != nil:
		return apiclient.Refusal(err, 0), true // cut short; it is asked again
	case event.Type == watch.Added, event.Type == watch.Modified, event.Type == watch.Deleted:
		return remembered(), true
	default:
		return concludeAbsent(ctx, client, r, known.Told) // the history does not reach back
	}
}

// remembered is the answer to a create of an object that the API server has had.
func remembered() plan.Response {
	return plan.Response{
		Code: http.StatusConflict, Reason: string(metav1.StatusReasonAlreadyExists), Message: "the API server remembers that it was created",
	}
}

// concludeAbsent concludes from silence that a create has not happened, once the silence has lasted long
// enough. It must last longer if the kind has changed in other namespaces and the record does not
// have that either, since then perhaps no watcher watches the kind. An API server that has just
// started has no watch history, and the watchers lost their connections together with it.
func concludeAbsent(ctx context.Context, client *apiclient.Client, r plan.Request, told string) (answer plan.Response, settled bool) {
	if r.InDoubt < plan.Believed {
		return plan.Response{Reason: "NoAnswer", Message: "the record is silent, and the API server does not remember"}, true
	}
	if r.Namespace == "" || r.InDoubt >= plan.Unfollowed {
		return plan.Response{}, false
	}
	r.Namespace = ""
	everywhere, failed := listExisting(ctx, client, r)
	switch {
	case failed != nil:
		return *failed, true // it is asked again
	case everywhere.Newest != "" && kinds.CompareVersions(everywhere.Newest, told) > 0:
		return plan.Response{Reason: "NoAnswer", Message: "the record has not been told of what has changed in other namespaces, and the API server does not remember"}, true
	default:
		return plan.Response{}, false
	}
}

// listExisting reads the API server's version and the objects of the kind. Without the right to list it
// returns an empty Doubt, and only the record counts.
func listExisting(ctx context.Context, client *apiclient.Client, r plan.Request) (doubt plan.Doubt, failed *plan.Response) {
	o := metav1.ListOptions{FieldSelector: byName(r)}
	if r.InDoubt >= plan.Quiet { // Newest is not needed before
		o = metav1.ListOptions{Limit: recordSample}
	}
	list, failed, err := client.Probe(ctx, r, o)
	switch {
	case failed != nil && apiclient.IsOwnRefusal(*failed) && r.InDoubt < plan.Believed:
		return plan.Doubt{}, failed // an API server that has just started may not know the writer's roles yet
	case failed != nil && failed.Code >= 400 && failed.Code < 500 && failed.Code != http.StatusTooManyRequests:
		return plan.Doubt{}, nil
	case failed != nil:
		return plan.Doubt{}, failed
	case err != nil:
		return plan.Doubt{}, nil
	}
	doubt.At = list.ResourceVersion
	for _, o := range list.Items {
		doubt.There = doubt.There || o.Name == r.Name
		if kinds.CompareVersions(o.ResourceVersion, doubt.Newest) > 0 {
			doubt.Newest = o.ResourceVersion
		}
	}
	return doubt, nil
}

// byName returns the field selector of the object that a request names; it escapes the name.
func byName(r plan.Request) string {
	return fields.OneTermEqualSelector("metadata.name", r.Name).String()
}
