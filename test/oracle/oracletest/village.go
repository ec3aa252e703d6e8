package oracletest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/stage"
	"github.com/millrace/millrace/test/sim/apiserver"
)

// PodRef refers to a pod in the worlds' namespace.
func PodRef(name string) events.Ref {
	return events.Ref{Kind: kinds.Pods.Name, Namespace: Namespace, Name: name}
}

// Inhabit plays lives of namespaces and objects in them, with some requests refused.
func Inhabit(t *testing.T, life stage.Life, touch func(*rapid.T, *Village, string), refused ...stage.Refusal) {
	rapid.Check(t, func(r *rapid.T) {
		v := &Village{}
		names := []string{"a", "b", "c"}
		for range rapid.IntRange(1, 5).Draw(r, "chapters") {
			if len(refused) > 0 {
				v.Refuse(r, refused)
			}
			for range rapid.IntRange(0, 4).Draw(r, "acts") {
				name := rapid.SampledFrom(names).Draw(r, "namespace")
				switch rapid.IntRange(0, 5).Draw(r, "act") {
				case 0, 1:
					v.Create(kinds.Namespaces.Kind, events.Ref{Kind: kinds.Namespaces.Name, Name: name})
				case 2:
					v.Remove(events.Ref{Kind: kinds.Namespaces.Name, Name: name})
				default:
					touch(r, v, name)
				}
			}
			v.Chapter()
		}
		v.Compare(t, r, life)
	})
}

// Village builds the writes of users.
type Village struct {
	Moment   []func(*apiserver.API)
	Chapters []stage.Chapter
	Story    []string
	// refused is the refusal in the next chapter.
	Refused stage.Refusal
}

// Does adds an act to the chapter.
func (v *Village) Does(act func(*apiserver.API), what string, args ...any) {
	v.Moment = append(v.Moment, act)
	v.Story = append(v.Story, fmt.Sprintf(what, args...))
}

// Chapter ends a chapter: all acts since the last one happen at one moment, or in several, if a fake client
// cannot take so many at once.
func (v *Village) Chapter() {
	for len(v.Moment) > mostAtOnce {
		v.End(v.Moment[:mostAtOnce], true)
		v.Moment = v.Moment[mostAtOnce:]
	}
	v.End(v.Moment, false)
	v.Moment = nil
}

// mostAtOnce is less than the hundred changes that fill a fake client's watch.
const mostAtOnce = 40

// End ends a chapter, after some acts at one moment. Nothing is compared after a loose one.
func (v *Village) End(moment []func(*apiserver.API), loose bool) {
	v.Chapters = append(v.Chapters, stage.Chapter{Loose: loose, Refused: v.Refused, Acts: func(api *apiserver.API) {
		for _, act := range moment {
			act(api)
		}
	}})
	v.Story = append(v.Story, "--")
}

// Refuse makes the API server refuse one of some kinds of requests once or twice in the next chapter, or
// none, with a response that may be temporary: never that an existing namespace does not exist, nor that a
// free name is taken.
func (v *Village) Refuse(r *rapid.T, requests []stage.Refusal) {
	v.Refused = rapid.SampledFrom(append([]stage.Refusal{{}}, requests...)).Draw(r, "refused")
	if v.Refused.Verb == "" {
		return
	}
	v.Refused.Times = rapid.IntRange(1, 2).Draw(r, "times")
	v.Refused.Answer = rapid.SampledFrom(slices.DeleteFunc(stage.Refusals(v.Refused.Verb), func(answer plan.Response) bool {
		return stage.Lasting(answer) || answer.Reason == string(metav1.StatusReasonNotFound) || answer.Reason == string(metav1.StatusReasonAlreadyExists)
	})).Draw(r, "answer")
	v.Story = append(v.Story, v.Refused.String())
}

// Create adds the create of an object without a spec.
func (v *Village) Create(kind kinds.Kind, ref events.Ref) {
	body := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q}}`, ref.Name, ref.Namespace)
	v.Does(func(api *apiserver.API) {
		api.Do(plan.Request{Verb: plan.Create, Kind: kind.Name, Version: kind.Version, Namespace: ref.Namespace, Name: ref.Name, Body: []byte(body)})
	}, "create %v", ref)
}

// Remove adds the delete of an object.
func (v *Village) Remove(ref events.Ref) {
	v.Does(func(api *apiserver.API) {
		api.Do(plan.Request{Verb: plan.Delete, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
	}, "delete %v", ref)
}

// Change creates, deletes or changes an object.
func (v *Village) Change(r *rapid.T, ref events.Ref, kind kinds.Kind, change func(metav1.Object, int)) {
	switch n := rapid.IntRange(-2, 4).Draw(r, "change"); n {
	case -2:
		v.Does(func(api *apiserver.API) { // if the namespace exists
			if api.Get(events.Ref{Kind: kinds.Namespaces.Name, Name: ref.Namespace}) != nil {
				body := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q}}`, ref.Name, ref.Namespace)
				api.Do(plan.Request{Verb: plan.Create, Kind: kind.Name, Version: kind.Version, Namespace: ref.Namespace, Name: ref.Name, Body: []byte(body)})
			}
		}, "create %v", ref)
	case -1:
		v.Remove(ref)
	default:
		v.Does(func(api *apiserver.API) { api.Change(ref, func(o metav1.Object) { change(o, n) }) }, "change %v, %d", ref, n)
	}
}

// Compare fails the test if the life of both controllers differs.
func (v *Village) Compare(t *testing.T, r *rapid.T, life stage.Life) {
	diff, err := life.Compare(t, v.Chapters)
	if err != nil {
		r.Fatalf("%v\n%s", err, strings.Join(v.Story, "\n"))
	}
	if diff != "" {
		r.Fatalf("upstream (-) and we (+) come to different ends %s\n%s", diff, strings.Join(v.Story, "\n"))
	}
}
