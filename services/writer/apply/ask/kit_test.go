package ask_test

import (
	"encoding/json"
	"testing"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events/apiservertest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/writer/apply"
	"github.com/millrace/millrace/services/writer/apply/applytest"
	"github.com/millrace/millrace/services/writer/plan"
)

// Short names of the test kit.
var (
	actor  = applytest.Actor
	open   = applytest.Open
	carry  = applytest.Carry
	object = applytest.Object
)

const podPath = applytest.PodPath

// contentsRequest asks what the namespace ns holds, and readingsRequest how busy the pods of a
// ReplicaSet are.
var (
	contentsRequest = plan.Request{Verb: plan.Search, Kind: kinds.Namespaces.Name, Version: "v1", Name: "ns", Subresource: query.SubContents}
	readingsRequest = plan.Request{
		Verb: plan.Search, Namespace: "ns", Subresource: query.SubReadings, Body: asJSON(query.ReadingsQuestion{Metrics: []autoscalingv2.MetricSpec{cpuOf("")}, Least: 1, Most: 5}),
		Owner: &metav1.OwnerReference{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web", UID: "u"},
	}
)

func asJSON(value any) json.RawMessage {
	text, _ := json.Marshal(value) // it has only fields that encoding/json accepts
	return text
}

// prepared returns an API server with the objects of these requests, and a door.
func prepared(t *testing.T, change ...func(*apply.Config)) (*apiservertest.Server, *apply.Client) {
	t.Helper()
	s := applytest.Serve(t)
	s.Put(podPath+"b", "uid-b", object("b", nil))
	putScale(s, 3, "app=web")
	s.Put("/api/v1/namespaces/ns", "uid-ns", object("ns", nil))
	return s, open(t, s, change...)
}
