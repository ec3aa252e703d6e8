package policy

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	upstream "k8s.io/kubernetes/pkg/controller/disruption"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/reconcilers/controllers/disruption"
	quotas "github.com/millrace/millrace/services/reconcilers/controllers/resourcequota"
	"github.com/millrace/millrace/services/writer/plan"
	"github.com/millrace/millrace/test/oracle/exemption"
	"github.com/millrace/millrace/test/oracle/stage"
)

// typed are the countable kinds without those of which only the metadata is watched.
var typed = slices.DeleteFunc(slices.Clone(countable), func(k kinds.Kind) bool { return k.Name == secrets.Name })

// quotaPicture are the lines of the quotas.
func quotaPicture(world []runtime.Object, _ []string) (lines []string) {
	for _, obj := range world {
		if q, ok := obj.(*corev1.ResourceQuota); ok {
			lines = append(lines, q.Name+" "+amounts(q))
		}
	}
	return lines
}

// buildBudgets makes upstream's disruption controller, which finds the scales of the objects that exist at
// the beginning.
func buildBudgets(ctx context.Context, f informers.SharedInformerFactory, c kubernetes.Interface) (func(), error) {
	finder := fake.NewSimpleClientset()
	finder.Resources = scaled()
	sets, err := c.AppsV1().ReplicaSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list replica sets: %w", err)
	}
	var b Budgets
	for i := range sets.Items {
		b.World = append(b.World, &sets.Items[i])
	}
	dc := upstream.NewDisruptionController(ctx, f.Core().V1().Pods(), f.Policy().V1().PodDisruptionBudgets(),
		f.Core().V1().ReplicationControllers(), f.Apps().V1().ReplicaSets(), f.Apps().V1().Deployments(), f.Apps().V1().StatefulSets(),
		c, mapper(), b.scaler(), finder.Discovery())
	return func() { dc.Run(ctx) }, nil
}

// budgetPicture are the lines of the budgets and the disruptions of pods.
func budgetPicture(world []runtime.Object, _ []string) []string { return picture(world) }

// fairBudgetEnds leaves out the time since when disruptions are allowed, if a status was refused: upstream
// reports for a moment that it could not count.
func fairBudgetEnds(r stage.Refusal, theirs, ours []string) ([]string, []string) {
	if r.Verb != plan.Update || r.Times == 0 {
		return theirs, ours
	}
	return exemption.LetLines("allowed-since", theirs, sinceAnyTime), exemption.Relined(ours, sinceAnyTime)
}

var transition = regexp.MustCompile(`"lastTransitionTime":"[^"]*",`)

func sinceAnyTime(line string) string { return transition.ReplaceAllString(line, "") }

// QuotaAtRest runs for less time than any pod needs to end.
var QuotaAtRest = stage.Rest{Theirs: buildQuotas, Ours: quotas.New(quotas.Config{}), Kinds: typed, Long: 15 * time.Second, Picture: quotaPicture}

// BudgetAtRest runs undisturbed on an API server that refuses some of its writes.
var BudgetAtRest = stage.Rest{Theirs: buildBudgets, Ours: disruption.Controller, Kinds: stage.Served(kinds.PodDisruptionBudgets.Kind, kinds.Deployments.Kind, kinds.ReplicaSets.Kind,
	kinds.StatefulSets.Kind, kinds.ReplicationControllers.Kind, kinds.Pods.Kind), Picture: budgetPicture, Lines: fairBudgetEnds}
