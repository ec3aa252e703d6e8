package sim

import (
	"encoding/json"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// deltaOf says a change as the watcher does.
func deltaOf(k kinds.Kind, c Change, now time.Time) events.Delta {
	body, err := json.Marshal(c.Object)
	if err != nil {
		panic(fmt.Sprintf("an object of the toy API server has no JSON form: %v", err))
	}
	return events.Delta{
		Kind: k.Name, Ref: refOf(k, c.Object), Op: c.Op, UID: c.Object.GetUID(), ResourceVersion: c.Object.GetResourceVersion(),
		Generation: c.Object.GetGeneration(), Deleting: c.Object.GetDeletionTimestamp() != nil,
		At: now, Form: kinds.Full, ContentType: kinds.JSON, Body: body,
	}
}

func refOf(k kinds.Kind, obj metav1.Object) events.Ref {
	return events.Ref{Kind: k.Name, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}
