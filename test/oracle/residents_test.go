package oracle_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle"
	"github.com/millrace/millrace/test/sim"
)

func TestRootCertificatesArePublishedAsUpstreams(t *testing.T) {
	fewer(t, 4)
	inhabit(t, oracle.RootCAPublisher, certificatesTouched)
}

func certificatesTouched(r *rapid.T, v *village, namespace string) {
	ref := events.Ref{Kind: kinds.ConfigMaps.Name, Namespace: namespace, Name: rapid.SampledFrom([]string{"kube-root-ca.crt", "kube-root-ca.crt", "other"}).Draw(r, "name")}
	v.change(r, ref, kinds.ConfigMaps.Kind, func(o metav1.Object, n int) {
		c := o.(*corev1.ConfigMap)
		switch n {
		case 0:
			c.Data = map[string]string{"ca.crt": "a root certificate", "more": "x"}
		case 1:
			c.Data = map[string]string{"ca.crt": "another"}
		case 2:
			c.Annotations = nil
		case 3:
			c.Annotations = map[string]string{"kubernetes.io/description": "ours", "note": "kept"}
		default:
			c.BinaryData = map[string][]byte{"b": {1}}
		}
	})
}

func TestNamespacesHaveAccountsAsUpstreams(t *testing.T) {
	fewer(t, 4)
	inhabit(t, oracle.ServiceAccounts, accountsTouched)
}

func accountsTouched(r *rapid.T, v *village, namespace string) {
	ref := events.Ref{Kind: kinds.ServiceAccounts.Name, Namespace: namespace, Name: rapid.SampledFrom([]string{"default", "default", "builder"}).Draw(r, "name")}
	v.change(r, ref, kinds.ServiceAccounts.Kind, func(o metav1.Object, n int) {
		o.SetAnnotations(map[string]string{"note": fmt.Sprint(n)})
	})
}

// inhabit plays lives of namespaces and objects in them, with some requests refused.
func inhabit(t *testing.T, life oracle.Life, touch func(*rapid.T, *village, string), refused ...oracle.Refusal) {
	rapid.Check(t, func(r *rapid.T) {
		v := &village{}
		names := []string{"a", "b", "c"}
		for range rapid.IntRange(1, 5).Draw(r, "chapters") {
			if len(refused) > 0 {
				v.refuse(r, refused)
			}
			for range rapid.IntRange(0, 4).Draw(r, "acts") {
				name := rapid.SampledFrom(names).Draw(r, "namespace")
				switch rapid.IntRange(0, 5).Draw(r, "act") {
				case 0, 1:
					v.create(kinds.Namespaces.Kind, events.Ref{Kind: kinds.Namespaces.Name, Name: name})
				case 2:
					v.remove(events.Ref{Kind: kinds.Namespaces.Name, Name: name})
				default:
					touch(r, v, name)
				}
			}
			v.chapter()
		}
		v.compare(t, r, life)
	})
}

// TestNodesAreToldHowLongAsUpstreams grows and shrinks clusters across the sizes at which the TTL of nodes
// changes. Every node reports in every chapter, as nodes do.
func TestNodesAreToldHowLongAsUpstreams(t *testing.T) {
	fewer(t, 100)
	rapid.Check(t, func(r *rapid.T) {
		v, there, next := &village{}, 0, 0
		for range rapid.IntRange(1, 5).Draw(r, "chapters") {
			want := rapid.SampledFrom([]int{1, 3, 88, 89, 90, 91, 99, 100, 101, 110}).Draw(r, "nodes")
			for ; there < want; there++ {
				v.create(kinds.Nodes.Kind, events.Ref{Kind: kinds.Nodes.Name, Name: fmt.Sprint("n", next)})
				next++
			}
			for ; there > want; there-- { // the oldest
				v.remove(events.Ref{Kind: kinds.Nodes.Name, Name: fmt.Sprint("n", next-there)})
			}
			for i := next - there; i < next; i++ {
				ref := events.Ref{Kind: kinds.Nodes.Name, Name: fmt.Sprint("n", i)}
				v.does(func(api *sim.API) {
					api.Change(ref, func(o metav1.Object) { o.(*corev1.Node).Status.Phase += "." })
				}, "%v reports", ref)
			}
			v.chapter()
		}
		v.compare(t, r, oracle.NodeTTL)
	})
}

// TestNodesRememberTheSize shows what docs/differences.md says about the TTL of nodes: 95 nodes have the TTL
// of a cluster that had more than 100.
func TestNodesRememberTheSize(t *testing.T) {
	v := &village{}
	for i := range 95 {
		v.create(kinds.Nodes.Kind, events.Ref{Kind: kinds.Nodes.Name, Name: fmt.Sprint("n", i)})
	}
	v.chapter()
	for i := range 95 {
		v.does(func(api *sim.API) {
			api.Change(events.Ref{Kind: kinds.Nodes.Name, Name: fmt.Sprint("n", i)}, func(o metav1.Object) {
				o.SetAnnotations(map[string]string{"node.alpha.kubernetes.io/ttl": "15"})
			})
		}, "n%d is told 15", i)
	}
	v.chapter()
	diff, err := oracle.NodeTTL.Compare(t, v.chapters)
	if err != nil || !strings.Contains(diff, "+ n0 map[node.alpha.kubernetes.io/ttl:15]") {
		t.Errorf("%v, %s", err, diff)
	}
}

// village builds the writes of users.
type village struct {
	moment   []func(*sim.API)
	chapters []oracle.Chapter
	story    []string
	// refused is the refusal in the next chapter.
	refused oracle.Refusal
}

func (v *village) does(act func(*sim.API), what string, args ...any) {
	v.moment = append(v.moment, act)
	v.story = append(v.story, fmt.Sprintf(what, args...))
}

// chapter ends a chapter: all acts since the last one happen at one moment, or in several, if a fake client
// cannot take so many at once.
func (v *village) chapter() {
	for len(v.moment) > mostAtOnce {
		v.end(v.moment[:mostAtOnce], true)
		v.moment = v.moment[mostAtOnce:]
	}
	v.end(v.moment, false)
	v.moment = nil
}

// mostAtOnce is less than the hundred changes that fill a fake client's watch.
const mostAtOnce = 40

func (v *village) end(moment []func(*sim.API), loose bool) {
	v.chapters = append(v.chapters, oracle.Chapter{Loose: loose, Refused: v.refused, Acts: func(api *sim.API) {
		for _, act := range moment {
			act(api)
		}
	}})
	v.story = append(v.story, "--")
}

// refuse makes the API server refuse one of some kinds of requests once or twice in the next chapter, or
// none, with a response that may be temporary: never that an existing namespace does not exist, nor that a
// free name is taken.
func (v *village) refuse(r *rapid.T, requests []oracle.Refusal) {
	v.refused = rapid.SampledFrom(append([]oracle.Refusal{{}}, requests...)).Draw(r, "refused")
	if v.refused.Verb == "" {
		return
	}
	v.refused.Times = rapid.IntRange(1, 2).Draw(r, "times")
	v.refused.Answer = rapid.SampledFrom(slices.DeleteFunc(oracle.Refusals(v.refused.Verb), func(answer plan.Response) bool {
		return oracle.Lasting(answer) || answer.Reason == string(metav1.StatusReasonNotFound) || answer.Reason == string(metav1.StatusReasonAlreadyExists)
	})).Draw(r, "answer")
	v.story = append(v.story, v.refused.String())
}

func (v *village) create(kind kinds.Kind, ref events.Ref) {
	body := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q}}`, ref.Name, ref.Namespace)
	v.does(func(api *sim.API) {
		api.Do(plan.Request{Verb: plan.Create, Kind: kind.Name, Version: kind.Version, Namespace: ref.Namespace, Name: ref.Name, Body: []byte(body)})
	}, "create %v", ref)
}

func (v *village) remove(ref events.Ref) {
	v.does(func(api *sim.API) {
		api.Do(plan.Request{Verb: plan.Delete, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
	}, "delete %v", ref)
}

// change creates, deletes or changes an object.
func (v *village) change(r *rapid.T, ref events.Ref, kind kinds.Kind, change func(metav1.Object, int)) {
	switch n := rapid.IntRange(-2, 4).Draw(r, "change"); n {
	case -2:
		v.does(func(api *sim.API) { // if the namespace exists
			if api.Get(events.Ref{Kind: kinds.Namespaces.Name, Name: ref.Namespace}) != nil {
				body := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":%q}}`, ref.Name, ref.Namespace)
				api.Do(plan.Request{Verb: plan.Create, Kind: kind.Name, Version: kind.Version, Namespace: ref.Namespace, Name: ref.Name, Body: []byte(body)})
			}
		}, "create %v", ref)
	case -1:
		v.remove(ref)
	default:
		v.does(func(api *sim.API) { api.Change(ref, func(o metav1.Object) { change(o, n) }) }, "change %v, %d", ref, n)
	}
}

func (v *village) compare(t *testing.T, r *rapid.T, life oracle.Life) {
	diff, err := life.Compare(t, v.chapters)
	if err != nil {
		r.Fatalf("%v\n%s", err, strings.Join(v.story, "\n"))
	}
	if diff != "" {
		r.Fatalf("upstream (-) and we (+) come to different ends %s\n%s", diff, strings.Join(v.story, "\n"))
	}
}
