package kindlog

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/bus/bustest"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/memory"
	"github.com/millrace/millrace/services/writer/internal/podlog"
)

// What a turn writes is compared with the objects as they are recorded.
func TestWhatATurnIsComparedWith(t *testing.T) {
	command := func(verb events.Verb, kind kinds.Name, name string) events.Command {
		return events.Command{Verb: verb, Kind: kind, Namespace: "ns", Name: name}
	}
	turn := events.Turn{Commands: []events.Command{
		command(events.VerbUpdate, "pods", "a"), command(events.VerbPatch, "pods", "b"), command(events.VerbPatch, "pods", "b"),
		command(events.VerbCreate, "pods", "c"), command(events.VerbDelete, "pods", "d"), command(events.VerbUpdate, "nodes", "e"),
	}}
	if got := changedWith(turn, podlog.PodRef("a")); !slices.Equal(got, []events.Ref{podlog.PodRef("a"), podlog.PodRef("b")}) {
		t.Errorf("the objects looked up together are %v, want a and b", got)
	}
	body, err := kinds.Encode(kinds.Pods.Kind, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	is := events.Delta{Kind: "pods", Op: events.Is, ContentType: kinds.Protobuf, Form: kinds.Full, Body: body}
	if o := ObjectOf(is); o == nil || o.GetName() != "a" {
		t.Errorf("the object is %v", o)
	}
	bare := kinds.Pods.Kind
	bare.Form = kinds.Metadata
	if body, err = kinds.Encode(bare, &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	if o, is := ObjectOf(events.Delta{Kind: "pods", Op: events.Is, ContentType: kinds.Protobuf, Form: kinds.Metadata, Body: body}).(*metav1.PartialObjectMetadata); !is || o.Name != "a" {
		t.Errorf("an object of which only metadata is recorded is %v", o)
	}
	for what, change := range map[string]func(*events.Delta){
		"one that has gone": func(d *events.Delta) { d.Op = events.Gone }, "of a kind that is not known": func(d *events.Delta) { d.Kind = "widgets.e" }, "that cannot be read": func(d *events.Delta) { d.Body = []byte("x") },
	} {
		d := is
		if change(&d); ObjectOf(d) != nil {
			t.Errorf("%s is there", what)
		}
	}
	b := bustest.Wrap(memory.New(memory.Options{})).Fail(bustest.LastOf, away)
	if o := ObjectsOf(t.Context(), b, turn)(podlog.PodRef("a")); o != nil {
		t.Errorf("on a bus that is away the object is %v, want none", o)
	}
	if b.Fail(bustest.LastOf, nil); ObjectsOf(t.Context(), b, turn)(podlog.PodRef("a")) != nil {
		t.Error("of a kind without a log there is an object")
	}
}
