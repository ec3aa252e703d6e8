package nodes_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/test/oracle/nodes"
	"github.com/millrace/millrace/test/oracle/oracletest"
	"github.com/millrace/millrace/test/sim/apiserver"
)

// TestNodesAreToldHowLongAsUpstreams grows and shrinks clusters across the sizes at which the TTL of nodes
// changes. Every node reports in every chapter, as nodes do.
func TestNodesAreToldHowLongAsUpstreams(t *testing.T) {
	oracletest.Fewer(t, 100)
	rapid.Check(t, func(r *rapid.T) {
		v, there, next := &oracletest.Village{}, 0, 0
		for range rapid.IntRange(1, 5).Draw(r, "chapters") {
			want := rapid.SampledFrom([]int{1, 3, 88, 89, 90, 91, 99, 100, 101, 110}).Draw(r, "nodes")
			for ; there < want; there++ {
				v.Create(kinds.Nodes.Kind, events.Ref{Kind: kinds.Nodes.Name, Name: fmt.Sprint("n", next)})
				next++
			}
			for ; there > want; there-- { // the oldest
				v.Remove(events.Ref{Kind: kinds.Nodes.Name, Name: fmt.Sprint("n", next-there)})
			}
			for i := next - there; i < next; i++ {
				ref := events.Ref{Kind: kinds.Nodes.Name, Name: fmt.Sprint("n", i)}
				v.Does(func(api *apiserver.API) {
					api.Change(ref, func(o metav1.Object) { o.(*corev1.Node).Status.Phase += "." })
				}, "%v reports", ref)
			}
			v.Chapter()
		}
		v.Compare(t, r, nodes.NodeTTL)
	})
}

// TestNodesRememberTheSize shows what docs/differences.md says about the TTL of nodes: 95 nodes have the TTL
// of a cluster that had more than 100.
func TestNodesRememberTheSize(t *testing.T) {
	v := &oracletest.Village{}
	for i := range 95 {
		v.Create(kinds.Nodes.Kind, events.Ref{Kind: kinds.Nodes.Name, Name: fmt.Sprint("n", i)})
	}
	v.Chapter()
	for i := range 95 {
		v.Does(func(api *apiserver.API) {
			api.Change(events.Ref{Kind: kinds.Nodes.Name, Name: fmt.Sprint("n", i)}, func(o metav1.Object) {
				o.SetAnnotations(map[string]string{"node.alpha.kubernetes.io/ttl": "15"})
			})
		}, "n%d is told 15", i)
	}
	v.Chapter()
	diff, err := nodes.NodeTTL.Compare(t, v.Chapters)
	if err != nil || !strings.Contains(diff, "+ n0 map[node.alpha.kubernetes.io/ttl:15]") {
		t.Errorf("%v, %s", err, diff)
	}
}
